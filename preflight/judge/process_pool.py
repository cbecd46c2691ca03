"""Judgement of nodes in several processes.

Documents are read, judged and dropped in the workers; only results come back. Workers are spawned, because the parent
may have threads, and end with the parent.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.judge.check_result import Outcome
from preflight.judge.evidence_source import EvidenceSource, opened
from preflight.judge.node_result import NodeResult, judge_node
from preflight.model import Check

#: Number of nodes per batch: equal values are sent once per batch.
BATCH = 32

#: Size in bytes beyond which documents are judged one at a time; a complete node takes 2 to 5 MB.
LARGE = 32 << 20


def surveys(
    sources: Sequence[Evidence | EvidenceSource], checks: Sequence[Check], cluster: Cluster, processes: int
) -> Iterator[NodeResult]:
    """Yield the result of each node, in order.

    A worker that dies costs time, never a node. ``checks`` are those of the registry, or some of them.
    """
    batches = [sources[start : start + BATCH] for start in range(0, len(sources), BATCH)]
    context = get_context("forkserver")
    context.set_forkserver_preload(["preflight.judge.process_pool", "preflight.checks"])
    done = 0
    known: dict[bytes, Any] = {}
    with ProcessPoolExecutor(
        min(processes, len(batches)), context, _begin, ([check.id for check in checks], cluster, context.Lock())
    ) as pool:
        try:
            for batch in pool.map(_batch, batches):
                done += 1
                _share(batch, known)
                yield from batch
        except (BrokenProcessPool, OSError, EOFError):  # killed, or no process could be started
            pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for source in (source for batch in islice(batches, done, None) for source in batch):
        yield judge_node(opened(source)(), checks, cluster, fleet_answers=True)[0]


def _share(batch: Sequence[NodeResult], known: dict[bytes, Any]) -> None:
    """Share equal expectations and equal wiring between nodes."""
    for seen in batch:
        if seen.site is not None:
            seen.site = known.setdefault(pickle.dumps(seen.site), seen.site)
        if drawn := seen.more.get("topology"):
            drawn = known.setdefault(json.dumps(drawn).encode("ascii"), drawn)
            seen.more = {**seen.more, "topology": drawn}


# --- in a worker -----------------------------------------------------------------------------------

_checks: Sequence[Check] = ()
_cluster = Cluster()
_alone: AbstractContextManager[Any] = nullcontext()


def _begin(ids: Sequence[str], cluster: Cluster, alone: AbstractContextManager[Any]) -> None:
    """Set up a worker: it ignores Ctrl-C and ends with its parent."""
    global _checks, _cluster, _alone

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    known = {check.id: check for check in registry().checks}
    _checks, _cluster, _alone = [known[ident] for ident in ids], cluster, alone


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _batch(sources: Sequence[Evidence | EvidenceSource]) -> list[NodeResult]:
    """Judge some nodes; equal values are shared and pickled once."""
    outcomes: dict[Outcome, Outcome] = {}
    found = []
    for source in sources:
        with _alone if getattr(source, "bytes", 0) > LARGE else nullcontext():
            seen = judge_node(opened(source)(), _checks, _cluster, fleet_answers=True)[0]
        seen.outcomes = [outcomes.setdefault(outcome, outcome) for outcome in seen.outcomes]
        found.append(seen)
    _share(found, {})
    return found

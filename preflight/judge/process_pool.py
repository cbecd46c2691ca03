"""Judgement of nodes, and reading of traces, in several processes.

Workers read, judge and drop documents, and read and summarise traces; they return only results. They are started by a
fork server, because the parent may have threads, and end with the parent.
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
from pathlib import Path
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts.streamed_log import LogFile, seen_on_disk
from preflight.judge.check_result import Outcome
from preflight.judge.evidence_source import EvidenceSource
from preflight.judge.node_result import NodeResult
from preflight.judge.node_verdict import survey
from preflight.model import Check
from preflight.parsers.torch import TorchOutput

#: Number of nodes per batch: equal values are sent once per batch.
BATCH = 32

#: Size in bytes beyond which documents are judged one at a time; a complete node takes 2 to 5 MB.
LARGE = 32 << 20

#: Minimum bytes of traces for which several processes are faster than one, and the compression ratio assumed for gzip.
WORTH_SHARING, UNPACKED = 64 << 20, 10


def surveys(
    sources: Sequence[Evidence | EvidenceSource], checks: Sequence[Check], cluster: Cluster, processes: int
) -> Iterator[NodeResult]:
    """Yield the result of each node, in order.

    If a worker dies, this process judges the remaining nodes. ``checks`` are those of the registry, or some of them.
    """
    batches = [sources[start : start + BATCH] for start in range(0, len(sources), BATCH)]
    context = get_context("forkserver")
    context.set_forkserver_preload(["preflight.judge.process_pool", "preflight.checks"])
    done = 0
    known: dict[Any, Any] = {}
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
        yield survey(source, checks, cluster, fleet_answers=True)[0]


def read_traces(run: Evidence, processes: int) -> None:
    """Read the profiler traces among a run's logs in worker processes.

    A single trace and small ones are not worth the workers, and stay unread. So does a log that no worker could read;
    reading it later reports the reason.
    """
    unread = [raw for raw in run.records.values() if isinstance(raw, LogFile) and "pytorch" not in vars(raw)]
    sizes = {log.path: size for log in unread if (size := _trace_size(log.path))}
    if len(sizes) < 2 or processes < 2 or sum(sizes.values()) < WORTH_SHARING:
        return
    logs = [log for log in unread if log.path in sizes]
    logs.sort(key=lambda log: sizes[log.path], reverse=True)  # longest first, so that the workers finish together
    context = get_context("forkserver")
    context.set_forkserver_preload(["preflight.judge.process_pool"])
    with ProcessPoolExecutor(min(processes, len(logs)), context, _end_with_parent) as pool:
        try:
            for log, output in zip(logs, pool.map(_read_trace, (log.path for log in logs)), strict=True):
                if output is not None:
                    log.pytorch = output
        except (BrokenProcessPool, OSError, EOFError):  # killed, or no process could be started
            pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _trace_size(path: Path) -> int:
    """Return the approximate unpacked size of a file that may be a trace; else 0."""
    try:
        with path.open("rb") as stream:
            head = stream.read(64).lstrip()
            size = os.fstat(stream.fileno()).st_size
    except OSError:
        return 0
    return size * UNPACKED if head.startswith(b"\x1f\x8b") else size if head[:1] in (b"{", b"[") else 0


def _share(batch: Sequence[NodeResult], known: dict[Any, Any]) -> None:
    """Store equal expectations, topologies and encoded values only once."""
    for seen in batch:
        if seen.site is not None:
            seen.site = known.setdefault(pickle.dumps(seen.site), seen.site)
        if drawn := seen.more.get("topology"):
            drawn = known.setdefault(json.dumps(drawn).encode("ascii"), drawn)
            seen.more = {**seen.more, "topology": drawn}
        if seen.encoded is not None:
            seen.encoded = {known.setdefault(k, k): known.setdefault(v, v) for k, v in seen.encoded.items()}


# --- in a worker -----------------------------------------------------------------------------------

_checks: Sequence[Check] = ()
_cluster = Cluster()
_alone: AbstractContextManager[Any] = nullcontext()


def _begin(ids: Sequence[str], cluster: Cluster, alone: AbstractContextManager[Any]) -> None:
    """Set up a worker that judges nodes."""
    global _checks, _cluster, _alone

    _end_with_parent()
    known = {check.id: check for check in registry().checks}
    _checks, _cluster, _alone = [known[ident] for ident in ids], cluster, alone


def _end_with_parent() -> None:
    """Make a worker ignore Ctrl-C and exit with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _batch(sources: Sequence[Evidence | EvidenceSource]) -> list[NodeResult]:
    """Judge a batch of nodes; equal values are shared and pickled once."""
    outcomes: dict[Outcome, Outcome] = {}
    found = []
    for source in sources:
        with _alone if getattr(source, "bytes", 0) > LARGE else nullcontext():
            seen = survey(source, _checks, _cluster, fleet_answers=True)[0]
        seen.outcomes = [outcomes.setdefault(outcome, outcome) for outcome in seen.outcomes]
        found.append(seen)
    _share(found, {})
    return found


def _read_trace(path: Path) -> TorchOutput | None:
    """Read a log as a trace or dump; return None if that fails."""
    try:
        return seen_on_disk(path)
    except (OSError, ValueError):
        return None

"""Asking this node, and ``preflight check``, which asks it or many; whatever happens, each ends as one document."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import contextmanager

from preflight._startup.lightclass import fields, replace
from preflight.collect.options import DEADLINE_S, Manner, plans, sweeper
from preflight.run.setup import Session, read_logs
from preflight.terminal import UsageError, progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType
    from typing import Any, NoReturn

    from preflight.evidence.document import Evidence
    from preflight.expectations import Cluster
    from preflight.probes import Probe


def check(
    cluster: Path | None, only: Sequence[str], skip: Sequence[str], logs: Sequence[Path], hosts: str | None = None,
    hostfile: Path | None = None, job: str | None = None, rerun: Path | None = None, selector: str | None = None,
    **options: Any,
) -> NoReturn:  # fmt: skip
    """Carry out ``preflight check``; ``options`` are those of ``Manner`` and the outputs of a Session."""
    manner = Manner(**{one.name: options.pop(one.name) for one in fields(Manner) if one.name in options}, job=job)
    session = Session("check", cluster, only, skip, options)
    run = read_logs(logs)
    named = [one for one in (hosts, hostfile, job, rerun, selector) if one is not None]  # "" is an unset variable
    if not named and manner.via == "srun":
        job = _own_job()
        manner, named = replace(manner, job=job), [job]
    if manner.via != "kubectl" and (manner.namespace or manner.container):
        raise UsageError("-n and -c name a pod's namespace and container: add --via kubectl")
    if not named:
        if session.resume:
            raise UsageError("--resume continues a run of many nodes: give the --hosts that it had")
        if manner.via == "kubectl":
            raise UsageError("--via kubectl: say which pods, with --pods LABELS or --hosts NAMES")
        expected = session.cluster if cluster else None
        session.finish([this_node(session.registry.probes, expected, manner, session.prepare)], run)
    from preflight.run.fleet import fleet, targets

    session.finish(fleet(targets(hosts, hostfile, job, rerun, selector, manner), session, manner), run)


def _own_job() -> str:
    """Return the number of the Slurm job that we run in."""
    if not (job := os.environ.get("SLURM_JOB_ID")):
        raise UsageError("--via srun: say which nodes, with --hosts or --job ID, or run inside a Slurm job")
    return job


def this_node(
    probes: Sequence[Probe], cluster: Cluster | None, manner: Manner, meanwhile: Callable[[], object] = lambda: None,
    name: str | None = None,
) -> Evidence:  # fmt: skip
    """Collect from this node; an interrupt gives a node without an answer.

    ``meanwhile`` is called once the node is being asked: there is time to prepare for its answer. ``name`` is what to
    call it instead of by its host name.
    """
    from preflight.transport.local.node import collect

    node = name or os.uname().nodename
    plan = plans(probes, cluster, manner, sweeper([node], cluster, manner))(node, manner.limits(DEADLINE_S))
    try:
        with _sigterm_interrupts(), progress(f"asking {node}"):
            document = collect(plan, meanwhile=meanwhile)
            gc.freeze()  # a collection need not look at what was imported
            gc.enable()
            from preflight.evidence.document import DocumentError, from_document, no_answer

            try:
                return from_document(document, node)
            except DocumentError as error:
                return no_answer(node, "read", str(error), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    except KeyboardInterrupt:
        from preflight.evidence.document import no_answer

        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return no_answer(node, "collect", "interrupted", now)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that a scheduler's time limit still gets a report."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

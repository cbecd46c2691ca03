"""Collection from this node, and ``preflight check`` of one node or many.

Every node yields exactly one evidence document, even after a failure.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preflight._startup.lightclass import fields, replace
from preflight.collect.options import DEADLINE_S, CollectOptions, plans, sweeper
from preflight.run.setup import Session, read_logs
from preflight.terminal import UsageError, progress

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
    **arguments: Any,
) -> NoReturn:  # fmt: skip
    """Carry out ``preflight check``; ``arguments`` are fields of ``CollectOptions`` and outputs of a Session."""
    options = CollectOptions(
        **{field.name: arguments.pop(field.name) for field in fields(CollectOptions) if field.name in arguments},
        job=job,
    )
    session = Session("check", cluster, only, skip, arguments)
    run = read_logs(logs)
    named = [one for one in (hosts, hostfile, job, rerun, selector) if one is not None]  # "" is an unset variable
    if not named and options.via == "srun":
        job = _own_job()
        options, named = replace(options, job=job), [job]
    if options.via != "kubectl" and (options.namespace or options.container):
        raise UsageError("-n and -c name a pod's namespace and container: add --via kubectl")
    if not named:
        if session.resume:
            raise UsageError("--resume continues a run of many nodes: give the --hosts that it had")
        if options.via == "kubectl":
            raise UsageError("--via kubectl: say which pods, with --pods LABELS or --hosts NAMES")
        expected = session.cluster if cluster else None
        session.write_outputs_and_exit([this_node(session.registry.probes, expected, options, session.prepare)], run)
    from preflight.run.fleet import fleet, targets

    session.write_outputs_and_exit(
        fleet(targets(hosts, hostfile, job, rerun, selector, options), session, options), run
    )


def _own_job() -> str:
    """Return the number of the Slurm job that we run in."""
    if not (job := os.environ.get("SLURM_JOB_ID")):
        raise UsageError("--via srun: say which nodes, with --hosts or --job ID, or run inside a Slurm job")
    return job


def this_node(
    probes: Sequence[Probe], cluster: Cluster | None, options: CollectOptions,
    meanwhile: Callable[[], object] = lambda: None, name: str | None = None,
) -> Evidence:  # fmt: skip
    """Collect from this node; an interrupt gives a node without an answer.

    ``meanwhile`` is called while the collector runs, to prepare for its answer. ``name`` replaces the host name.
    """
    from preflight.transport.local.node import collect

    node = name or os.uname().nodename
    plan = plans(probes, cluster, options, sweeper([node], cluster, options))(node, options.limits(DEADLINE_S))
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

"""Asking nodes: this one, or many over SSH; whatever happens, each node ends as one document."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from preflight.session import Session, UsageError, progress

if TYPE_CHECKING:
    from preflight.cluster import Cluster
    from preflight.evidence import Evidence
    from preflight.probes import Probe
    from preflight.transport.openssh import OpenSshTransport
    from preflight.transport.ssh import SshTransport

#: Seconds for everything: on this node, and for many; a single one of many has as long as this node.
DEADLINE_S, FLEET_DEADLINE_S = 60.0, 600.0


@dataclass(frozen=True)
class Manner:
    """How nodes are asked. ``deadline_s`` is for everything; None: as long as usual."""

    deadline_s: float | None = None
    sudo: bool = False
    via: str = "ssh"
    ssh_config: Path | None = None
    fanout: int = 64
    connect_timeout_s: float = 15.0


def this_node(probes: Sequence[Probe], cluster: Cluster, manner: Manner) -> Evidence:
    """Collect from this node; an interrupt gives a node without an answer."""
    from preflight.evidence import from_document, no_answer
    from preflight.transport.local import collect

    node = os.uname().nodename
    plan = plans(probes, cluster, manner)(node, manner.deadline_s or DEADLINE_S)
    try:
        with _sigterm_interrupts(), progress(f"asking {node}"):
            return from_document(collect(plan), node)
    except KeyboardInterrupt:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
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


def targets(hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None) -> tuple[str, ...]:
    """Return the names of the nodes that are meant."""
    from preflight.targets import TargetError, resolve

    try:
        return resolve(hosts, hostfile, job, rerun)
    except TargetError as error:
        raise UsageError(str(error)) from None


def fleet(hosts: Sequence[str], session: Session, manner: Manner) -> list[Evidence]:
    """Collect from many nodes; each document is kept as it comes."""
    from preflight.fleet import Limits, gather, interruptible
    from preflight.progress import Progress

    run_s = manner.deadline_s or FLEET_DEADLINE_S
    limits = Limits(manner.fanout, min(DEADLINE_S, run_s), run_s)
    plan_for = plans(session.registry.probes, session.cluster, manner)
    answers: list[Evidence] = []
    session.via = manner.via
    with _transport(hosts, manner) as transport, Progress(len(hosts)) as shown, interruptible() as stop:
        for warning in transport.warnings:
            click.echo(f"warning: {warning}", err=True)
        for evidence in gather(hosts, transport, plan_for, limits, on_event=shown, stop=stop):
            session.keep(evidence)
            answers.append(evidence)
    _advise(answers)
    return sorted(answers, key=lambda evidence: evidence.node)


def plans(probes: Sequence[Probe], cluster: Cluster, manner: Manner) -> Callable[[str, float], Mapping[str, Any]]:
    """Return what makes a node's plan: sudo only where its class does not forbid it, its checkpoints' place."""
    from preflight.probes import checkpoints, plan

    def make(node: str, deadline_s: float) -> Mapping[str, Any]:
        name = cluster.class_of(node)
        allowed = name is None or cluster.classes[name].sudo is not False
        path = cluster.classes[name].checkpoint.path if name is not None else None
        asked = [*probes, checkpoints(path)] if path else probes
        return plan(asked, node=node, deadline_s=deadline_s, sudo=manner.sudo and allowed)

    return make


@contextmanager
def _transport(hosts: Sequence[str], manner: Manner) -> Iterator[SshTransport | OpenSshTransport]:
    from preflight.transport.outcome import TransportError

    transport: SshTransport | OpenSshTransport
    try:
        if manner.via == "openssh":
            from preflight.transport.openssh import OpenSshTransport

            transport = OpenSshTransport(manner.ssh_config, hosts, manner.connect_timeout_s)
        else:
            from preflight.transport.ssh import SshOptions, SshTransport

            options = SshOptions(manner.ssh_config, connect_timeout_s=manner.connect_timeout_s)
            with progress("reading the SSH configuration"):
                transport = SshTransport(options, hosts)
    except TransportError as error:
        raise UsageError(str(error)) from None
    try:
        yield transport
    finally:
        transport.close()


def _advise(answers: Sequence[Evidence]) -> None:
    """Print the one cure for all host keys that were refused."""
    refused = [e.node for e in answers if e.no_answer is not None and e.no_answer.get("phase") == "host-key"]
    if len(refused) > 1:
        from preflight.transport.host_keys import bulk_cure

        click.echo(f"once you have checked the host keys of {len(refused)} hosts: {bulk_cure(refused)}", err=True)

"""Asking nodes: this one, or many over SSH; whatever happens, each node ends as one document."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

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

#: Seconds on top for a sweep of the fabric, which asks every port there is: the time limit of its probes.
SWEEP_S = 120.0
#: Seconds that a deadline has to leave beside the window, for both readings of a busy node.
MARGIN_S = 10.0


class Manner(NamedTuple):
    """How nodes are asked. ``deadline_s`` is for everything; None: as long as usual."""

    deadline_s: float | None = None
    sudo: bool = False
    via: str = "ssh"
    ssh_config: Path | None = None
    fanout: int = 64
    connect_timeout_s: float = 15.0
    fabric: bool = False
    window_s: float | None = None

    @property
    def extra_s(self) -> float:
        """Seconds that a node may take beside the usual."""
        return (self.window_s or 0) + (SWEEP_S if self.fabric else 0)

    def limits(self, usual_s: float) -> float:
        """Return the deadline of a run that usually has ``usual_s`` seconds; a window comes on top of that."""
        if self.deadline_s is None:
            return usual_s + self.extra_s
        if self.window_s is not None and self.deadline_s < self.window_s + MARGIN_S:
            raise UsageError(
                f"--window {self.window_s:g} does not fit into --deadline {self.deadline_s:g}: "
                f"give it at least {self.window_s + MARGIN_S:g} seconds, or leave it out"
            )
        return self.deadline_s


def this_node(
    probes: Sequence[Probe], cluster: Cluster | None, manner: Manner, meanwhile: Callable[[], object] = lambda: None
) -> Evidence:
    """Collect from this node; an interrupt gives a node without an answer.

    ``meanwhile`` is called once the node is being asked: there is time to prepare for its answer.
    """
    from preflight.transport.local import collect

    node = os.uname().nodename
    plan = plans(probes, cluster, manner, _sweeper([node], cluster, manner))(node, manner.limits(DEADLINE_S))
    try:
        with _sigterm_interrupts(), progress(f"asking {node}"):
            document = collect(plan, meanwhile=meanwhile)
            from preflight.evidence import from_document

            return from_document(document, node)
    except KeyboardInterrupt:
        from preflight.evidence import no_answer

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

    run_s = manner.limits(FLEET_DEADLINE_S)
    limits = Limits(manner.fanout, min(DEADLINE_S + manner.extra_s, run_s), run_s)
    plan_for = plans(session.registry.probes, session.cluster, manner, _sweeper(hosts, session.cluster, manner))
    answers: list[Evidence] = []
    session.via = manner.via
    with connection(hosts, manner) as transport, Progress(len(hosts)) as shown, interruptible() as stop:
        for warning in transport.warnings:
            click.echo(f"warning: {warning}", err=True)
        for evidence in gather(hosts, transport, plan_for, limits, on_event=shown, stop=stop):
            session.keep(evidence)
            answers.append(evidence)
    _advise(answers)
    return sorted(answers, key=lambda evidence: evidence.node)


def plans(
    probes: Sequence[Probe], cluster: Cluster | None, manner: Manner, sweeper: str | None = None
) -> Callable[[str, float], Mapping[str, Any]]:
    """Return what makes a node's plan: sudo only where its class does not forbid it, its checkpoints' place.

    ``sweeper`` is the one node that sweeps the fabric.
    """
    from preflight.probes import OUTPUT_CAP, SWEEP_CAP, checkpoints, plan, sweep

    def make(node: str, deadline_s: float) -> Mapping[str, Any]:
        name = cluster.class_of(node) if cluster else None
        members = cluster.classes[name] if cluster and name is not None else None
        allowed = members is None or members.sudo is not False
        path = members.checkpoint.path if members else None
        asked = [*probes, checkpoints(path)] if path else probes
        if node == sweeper:
            asked = [*asked, *sweep(cluster.fabric.said.device if cluster else None)]
        cap = SWEEP_CAP if node == sweeper else OUTPUT_CAP
        return plan(asked, node=node, deadline_s=deadline_s, sudo=manner.sudo and allowed, output_cap=cap,
                    window_s=manner.window_s)  # fmt: skip

    return make


def _sweeper(nodes: Sequence[str], cluster: Cluster | None, manner: Manner) -> str | None:
    """Return the one of the nodes that sweeps the fabric, if that was asked for.

    Never more than one, and never one that nobody named: every sweep queries every switch and HCA there is.
    """
    if not manner.fabric:
        return None
    named = cluster.fabric.said.sweep_from if cluster else None
    if named is None and len(nodes) == 1:
        return nodes[0]
    if named is None:
        raise UsageError('--fabric: say which node sweeps, in the cluster file: [fabric] sweep_from = "NODE"')
    found = [node for node in nodes if named in (node, node.split(".")[0])]
    if not found:
        raise UsageError(f"--fabric: {named}, which [fabric] sweep_from names, is not among the nodes that are asked")
    return found[0]


@contextmanager
def connection(hosts: Sequence[str], manner: Manner) -> Iterator[SshTransport | OpenSshTransport]:
    """Yield what reaches these hosts over SSH; it is closed at the end, and what still runs there ends with it."""
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

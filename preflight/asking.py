"""Asking nodes: this one, or many over SSH; whatever happens, each node ends as one document."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from preflight.lean import dataclass, fields, replace
from preflight.session import Session, UsageError, progress, read_logs, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from preflight.cluster import Cluster
    from preflight.evidence import Evidence
    from preflight.probes import Probe
    from preflight.transport.kubectl import Kubectl
    from preflight.transport.piped import PipedTransport
    from preflight.transport.srun import Srun
    from preflight.transport.ssh import SshTransport

#: Seconds for everything: on this node, and for many; a single one of many has as long as this node.
DEADLINE_S, FLEET_DEADLINE_S = 60.0, 600.0

#: Seconds on top for a sweep of the fabric, which asks every port there is: the time limit of its probes.
SWEEP_S = 120.0
#: Seconds that a deadline has to leave beside the window, for both readings of a busy node.
MARGIN_S = 10.0


@dataclass(frozen=True)
class Manner:
    """How nodes are asked. ``deadline_s`` is for everything; None: as long as usual."""

    deadline_s: float | None = None
    sudo: bool = False
    via: str = "ssh"
    ssh_config: Path | None = None
    fanout: int = 64
    connect_timeout_s: float = 15.0
    fabric: bool = False
    window_s: float | None = None
    namespace: str | None = None
    container: str | None = None
    job: str | None = None

    @property
    def extra_s(self) -> float:
        """Seconds that a node may take beside the usual."""
        return (self.window_s or 0) + (SWEEP_S if self.fabric else 0)

    @property
    def kubectl(self) -> Kubectl:
        """How kubectl is called."""
        from preflight.transport.kubectl import Kubectl

        return Kubectl(self.namespace or "", self.container or "")

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
    from preflight.transport.local import collect

    node = name or os.uname().nodename
    plan = plans(probes, cluster, manner, _sweeper([node], cluster, manner))(node, manner.limits(DEADLINE_S))
    try:
        with _sigterm_interrupts(), progress(f"asking {node}"):
            document = collect(plan, meanwhile=meanwhile)
            gc.freeze()  # a collection need not look at what was imported
            gc.enable()
            from preflight.evidence import from_document

            return from_document(document, node)
    except KeyboardInterrupt:
        from preflight.evidence import no_answer

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


def targets(
    hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None,
    selector: str | None = None, manner: Manner | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Return the names of the nodes, or pods, that are meant."""
    if selector is not None:
        if not selector.strip():
            raise UsageError("--pods is empty, which would mean all pods: say which, such as job-name=training")
        return _selected(selector, hosts or hostfile or job or rerun, manner or Manner())
    from preflight.targets import TargetError, resolve

    try:
        return resolve(hosts, hostfile, job, rerun)
    except TargetError as error:
        raise UsageError(str(error)) from None


def _selected(selector: str, other: object, manner: Manner) -> tuple[str, ...]:
    """Return the names of the pods with these labels that have not ended."""
    from preflight.transport.kubectl import find
    from preflight.transport.outcome import TransportError

    if other:
        raise UsageError("--pods says which: give it, or other targets, not both")
    if manner.via != "kubectl":
        raise UsageError("--pods are reached over kubectl: add --via kubectl")
    try:
        names, ended = find(selector, manner.kubectl)
    except TransportError as error:
        raise UsageError(str(error)) from None
    if ended:
        say(f"warning: {ended} more pods with these labels have ended; they are not asked\n", sys.stderr)
    return names


def fleet(hosts: Sequence[str], session: Session, manner: Manner) -> Sequence[Evidence]:
    """Collect from many nodes and return their documents by name; each is kept as it comes."""
    from preflight.fleet import Event, Limits, gather, interruptible
    from preflight.progress import Progress
    from preflight.saved import Spool
    from preflight.transport.srun import Srun

    run_s = manner.limits(FLEET_DEADLINE_S)
    limits = Limits(manner.fanout, min(DEADLINE_S + manner.extra_s, run_s), run_s)
    plan_for = plans(session.registry.probes, session.cluster, manner, _sweeper(hosts, session.cluster, manner))
    already = _already(hosts, session, plan_for("", DEADLINE_S), manner)
    if already:
        known = {evidence.node for evidence in already}
        hosts = [host for host in hosts if host not in known]
        say(f"{len(already)} nodes have answered already; asking {len(hosts)}\n", sys.stderr)
    answers = Spool(already)
    session.via = manner.via
    if not hosts:
        return answers.documents()
    with connection(hosts, manner) as transport, Progress(len(hosts)) as shown, interruptible() as stop:
        for warning in transport.warnings:
            say(f"warning: {warning}\n", sys.stderr)
        if isinstance(transport, Srun):
            said = transport.gather(hosts, plan_for, limits, lambda *event: shown(Event(*event)), stop)
        else:
            said = gather(hosts, transport, plan_for, limits, on_event=shown, stop=stop)
        for evidence in said:
            session.keep(evidence)
            answers.add(evidence)
    _advise(answers.silent)
    return answers.documents()


def _already(hosts: Sequence[str], session: Session, plan: Mapping[str, Any], manner: Manner) -> list[Evidence]:
    """Return the answers that a resumed run already has; otherwise note what is asked, so that it can be resumed."""
    from preflight import resume

    folder = session.kept_in
    if folder is None:
        return []
    options = {"sudo": manner.sudo, "fabric": manner.fabric, "window": manner.window_s}
    run = resume.asked(hosts, session.cluster_file, plan, options)
    try:
        if session.resume:
            return resume.proceed(folder, run)
        resume.begin(folder, run)
    except resume.ResumeError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    return []


def plans(
    probes: Sequence[Probe], cluster: Cluster | None, manner: Manner, sweeper: str | None = None
) -> Callable[[str, float], Mapping[str, Any]]:
    """Return a function that makes a node's plan: with sudo unless its class forbids it, and its checkpoints' path.

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
            device = cluster.fabric.said.device if cluster else None
            asked = [*asked, *sweep(device, window=manner.window_s is not None)]
        cap = SWEEP_CAP if node == sweeper else OUTPUT_CAP
        return plan(asked, node=node, deadline_s=deadline_s, sudo=manner.sudo and allowed, output_cap=cap,
                    window_s=manner.window_s, tools=(members.tools or ()) if members else ())  # fmt: skip

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
def connection(hosts: Sequence[str], manner: Manner) -> Iterator[SshTransport | PipedTransport | Srun]:
    """Yield a transport to these hosts; closing it at the end also ends what still runs there."""
    from preflight.transport.outcome import TransportError

    transport: SshTransport | PipedTransport | Srun
    try:
        if manner.via == "srun":
            from preflight.nodeset import fold_for_slurm
            from preflight.transport.srun import Srun

            transport = Srun(manner.job or os.environ.get("SLURM_JOB_ID"), fold_for_slurm)
        elif manner.via == "kubectl":
            from preflight.transport.kubectl import KubectlTransport

            transport = KubectlTransport(manner.kubectl)
        elif manner.via == "openssh":
            from preflight.transport.openssh import OpenSshTransport

            transport = OpenSshTransport(manner.ssh_config, hosts, manner.connect_timeout_s)
        else:
            try:
                from preflight.transport.ssh import SshOptions, SshTransport
            except ModuleNotFoundError as error:  # preflight as one file: paramiko's cryptography is compiled
                raise UsageError(
                    f"no SSH: there is no {error.name} in this preflight; use --via openssh, or install gpu-preflight"
                ) from None
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

        say(f"once you have checked the host keys of {len(refused)} hosts: {bulk_cure(refused)}\n", sys.stderr)

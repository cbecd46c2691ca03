"""Asking many nodes: which are meant, how they are reached, and who has answered already."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.collect.options import DEADLINE_S, FLEET_DEADLINE_S, Manner, plans, sweeper
from preflight.terminal import UsageError, progress, say

if TYPE_CHECKING:
    from preflight.evidence.document import Evidence
    from preflight.run.setup import Session
    from preflight.transport.child_transport import PipedTransport
    from preflight.transport.slurm.srun import Srun
    from preflight.transport.ssh.automatic import AutoTransport
    from preflight.transport.ssh.paramiko_transport import SshTransport


def targets(
    hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None,
    selector: str | None = None, manner: Manner | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Return the names of the nodes, or pods, that are meant."""
    if selector is not None:
        if not selector.strip():
            raise UsageError("--pods is empty, which would mean all pods: say which, such as job-name=training")
        return _selected(selector, hosts or hostfile or job or rerun, manner or Manner())
    from preflight.collect.targets import TargetError, resolve

    try:
        return resolve(hosts, hostfile, job, rerun)
    except TargetError as error:
        raise UsageError(str(error)) from None


def _selected(selector: str, other: object, manner: Manner) -> tuple[str, ...]:
    """Return the names of the pods with these labels that have not ended."""
    from preflight.transport.errors import TransportError
    from preflight.transport.kubernetes.kubectl import find

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
    from preflight.archive.lazy import Spool
    from preflight.collect.progress import Progress
    from preflight.collect.scheduler import Event, Limits, gather, interruptible
    from preflight.transport.slurm.srun import Srun

    run_s = manner.limits(FLEET_DEADLINE_S)
    limits = Limits(manner.fanout, min(DEADLINE_S + manner.extra_s, run_s), run_s)
    plan_for = plans(session.registry.probes, session.cluster, manner, sweeper(hosts, session.cluster, manner))
    already = _already(hosts, session, plan_for("", DEADLINE_S), manner)
    if already:
        known = {evidence.node for evidence in already}
        hosts = [host for host in hosts if host not in known]
        say(f"{len(already)} nodes have answered already; asking {len(hosts)}\n", sys.stderr)
    answers = Spool(already)
    session.via = manner.via
    if not hosts:
        return answers.documents()
    with (
        connection(hosts, manner) as transport,
        Progress(len(hosts), through_openssh=transport.through_openssh) as shown,
        interruptible() as stop,
    ):
        for warning in transport.warnings:
            say(f"warning: {warning}\n", sys.stderr)
        if isinstance(transport, Srun):
            said = transport.gather(hosts, plan_for, limits, lambda *event: shown(Event(*event)), stop)
        else:
            said = gather(hosts, transport, plan_for, limits, on_event=shown, stop=stop)
        for evidence in said:
            session.keep(evidence)
            answers.add(evidence)
        session.through_openssh = transport.through_openssh
    _advise(answers.silent)
    return answers.documents()


def _already(hosts: Sequence[str], session: Session, plan: Mapping[str, Any], manner: Manner) -> list[Evidence]:
    """Return the answers that a resumed run already has; otherwise note what is asked, so that it can be resumed."""
    from preflight.collect import journal

    folder = session.kept_in
    if folder is None:
        return []
    options = {"sudo": manner.sudo, "fabric": manner.fabric, "window": manner.window_s}
    run = journal.asked(hosts, session.cluster_file, plan, options)
    try:
        if session.resume:
            return journal.proceed(folder, run)
        journal.begin(folder, run)
    except journal.ResumeError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    return []


@contextmanager
def connection(hosts: Sequence[str], manner: Manner) -> Iterator[AutoTransport | SshTransport | PipedTransport | Srun]:
    """Yield a transport to these hosts; closing it at the end also ends what still runs there."""
    from preflight.transport.errors import TransportError

    transport: AutoTransport | SshTransport | PipedTransport | Srun
    try:
        if manner.via == "srun":
            from preflight.nodeset import fold_for_slurm
            from preflight.transport.slurm.srun import Srun

            transport = Srun(manner.job or os.environ.get("SLURM_JOB_ID"), fold_for_slurm)
        elif manner.via == "kubectl":
            from preflight.transport.kubernetes.kubectl import KubectlTransport

            transport = KubectlTransport(manner.kubectl)
        elif manner.via == "openssh":
            from preflight.transport.ssh.openssh import OpenSshTransport

            transport = OpenSshTransport(manner.ssh_config, hosts, manner.connect_timeout_s)
        else:
            with progress("reading the SSH configuration"):
                transport = _ssh(hosts, manner)
    except TransportError as error:
        raise UsageError(str(error)) from None
    try:
        yield transport
    finally:
        transport.close()


def _ssh(hosts: Sequence[str], manner: Manner) -> AutoTransport | SshTransport | PipedTransport:
    """Return SSH with paramiko, which ``auto`` leaves where a host needs more; raises TransportError."""
    try:
        from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
    except ModuleNotFoundError as error:  # preflight as one file: paramiko's cryptography is compiled
        if manner.via != "auto":
            raise UsageError(
                f"no SSH: there is no {error.name} in this preflight; use --via openssh, or install gpu-preflight"
            ) from None
        from preflight.transport.ssh.openssh import OpenSshTransport

        every = OpenSshTransport(manner.ssh_config, hosts, manner.connect_timeout_s)
        every.through_openssh = dict.fromkeys(hosts, f"there is no {error.name} in this preflight")
        return every
    from preflight.transport.ssh.automatic import AutoTransport

    kind = AutoTransport if manner.via == "auto" else SshTransport
    return kind(SshOptions(manner.ssh_config, connect_timeout_s=manner.connect_timeout_s), hosts)


def _advise(answers: Sequence[Evidence]) -> None:
    """Print the one cure for all host keys that were refused."""
    refused = [e.node for e in answers if e.no_answer is not None and e.no_answer.get("phase") == "host-key"]
    if len(refused) > 1:
        from preflight.transport.ssh.host_keys import bulk_cure

        say(f"once you have checked the host keys of {len(refused)} hosts: {bulk_cure(refused)}\n", sys.stderr)

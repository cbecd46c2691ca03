"""Collection from many nodes: targets, transports, and answers of a resumed run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.archive.lazy import Spool
from preflight.collect import journal
from preflight.collect.options import DEADLINE_S, FLEET_DEADLINE_S, CollectOptions, plans, sweeper
from preflight.collect.progress import ProgressLine
from preflight.collect.scheduler import Limits, NodeEvent, gather, interruptible
from preflight.collect.targets import TargetError, resolve
from preflight.nodeset import fold_for_slurm
from preflight.terminal import UsageError, print_text, progress
from preflight.transport.errors import TransportError
from preflight.transport.kubernetes.kubectl import KubectlTransport, find
from preflight.transport.slurm.srun import Srun
from preflight.transport.ssh.automatic import AutoTransport
from preflight.transport.ssh.host_keys import trust_command
from preflight.transport.ssh.openssh import OpenSshTransport

if TYPE_CHECKING:
    from preflight.evidence.document import Evidence
    from preflight.run.setup import Session
    from preflight.transport.child_transport import PipedTransport
    from preflight.transport.slurm.srun import Srun
    from preflight.transport.ssh.automatic import AutoTransport
    from preflight.transport.ssh.paramiko_transport import SshTransport


def targets(
    hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None,
    selector: str | None = None, options: CollectOptions | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Return the names of the nodes, or pods, that are meant."""
    if selector is not None:
        if not selector.strip():
            raise UsageError("--pods is empty, which would mean all pods: say which, such as job-name=training")
        return _selected(selector, hosts or hostfile or job or rerun, options or CollectOptions())

    try:
        return resolve(hosts, hostfile, job, rerun)
    except TargetError as error:
        raise UsageError(str(error)) from None


def _selected(selector: str, other: object, options: CollectOptions) -> tuple[str, ...]:
    """Return the names of the pods with these labels that have not ended."""
    if other:
        raise UsageError("--pods says which: give it, or other targets, not both")
    if options.via != "kubectl":
        raise UsageError("--pods are reached over kubectl: add --via kubectl")
    try:
        names, ended = find(selector, options.kubectl)
    except TransportError as error:
        raise UsageError(str(error)) from None
    if ended:
        print_text(f"warning: {ended} more pods with these labels have ended; they are not asked\n", sys.stderr)
    return names


def fleet(hosts: Sequence[str], session: Session, options: CollectOptions) -> Sequence[Evidence]:
    """Collect from many nodes and return their documents by name; each is saved as it comes."""
    run_s = options.limits(FLEET_DEADLINE_S)
    limits = Limits(options.fanout, min(DEADLINE_S + options.extra_s, run_s), run_s)
    plan_for = plans(session.registry.probes, session.cluster, options, sweeper(hosts, session.cluster, options))
    already = _already(hosts, session, plan_for("", DEADLINE_S), options)
    if already:
        known = {evidence.node for evidence in already}
        hosts = [host for host in hosts if host not in known]
        print_text(f"{len(already)} nodes have answered already; asking {len(hosts)}\n", sys.stderr)
    answers = Spool(already)
    session.via = options.via
    if not hosts:
        return answers.documents()
    with (
        connection(hosts, options) as transport,
        ProgressLine(len(hosts), through_openssh=transport.through_openssh) as shown,
        interruptible() as stop,
    ):
        for warning in transport.warnings:
            print_text(f"warning: {warning}\n", sys.stderr)
        if isinstance(transport, Srun):
            documents = transport.gather(hosts, plan_for, limits, lambda *event: shown(NodeEvent(*event)), stop)
        else:
            documents = gather(hosts, transport, plan_for, limits, on_event=shown, stop=stop)
        for evidence in documents:
            session.save_evidence(evidence)
            answers.add(evidence)
            del evidence  # the next one needs its memory
        session.through_openssh = transport.through_openssh
    _advise(answers.silent)
    return answers.documents()


def _already(
    hosts: Sequence[str], session: Session, plan: Mapping[str, Any], options: CollectOptions
) -> list[Evidence]:
    """Return the answers that a resumed run already has; otherwise record the run, so that it can be resumed."""
    folder = session.save_dir
    if folder is None:
        return []
    flags = {"sudo": options.sudo, "fabric": options.fabric, "window": options.window_s}
    run = journal.describe_run(hosts, session.cluster_file, plan, flags)
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
def connection(
    hosts: Sequence[str], options: CollectOptions
) -> Iterator[AutoTransport | SshTransport | PipedTransport | Srun]:
    """Yield a transport to these hosts; closing it at the end also ends what still runs there."""
    transport: AutoTransport | SshTransport | PipedTransport | Srun
    try:
        if options.via == "srun":
            transport = Srun(options.job or os.environ.get("SLURM_JOB_ID"), fold_for_slurm)
        elif options.via == "kubectl":
            transport = KubectlTransport(options.kubectl)
        elif options.via == "openssh":
            transport = OpenSshTransport(options.ssh_config, hosts, options.connect_timeout_s)
        else:
            with progress("reading the SSH configuration"):
                transport = _ssh(hosts, options)
    except TransportError as error:
        raise UsageError(str(error)) from None
    try:
        yield transport
    finally:
        transport.close()


def _ssh(hosts: Sequence[str], options: CollectOptions) -> AutoTransport | SshTransport | PipedTransport:
    """Return SSH with paramiko, which ``auto`` leaves where a host needs more; raises TransportError."""
    try:
        # import-at-use: preflight as one file has no paramiko
        from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
    except ModuleNotFoundError as error:  # preflight as one file: paramiko's cryptography is compiled
        if options.via != "auto":
            raise UsageError(
                f"no SSH: there is no {error.name} in this preflight; use --via openssh, or install gpu-preflight"
            ) from None

        every = OpenSshTransport(options.ssh_config, hosts, options.connect_timeout_s)
        every.through_openssh = dict.fromkeys(hosts, f"there is no {error.name} in this preflight")
        return every

    kind = AutoTransport if options.via == "auto" else SshTransport
    return kind(SshOptions(options.ssh_config, connect_timeout_s=options.connect_timeout_s), hosts)


def _advise(answers: Sequence[Evidence]) -> None:
    """Print the one fix for all host keys that were refused."""
    refused = [e.node for e in answers if e.no_answer is not None and e.no_answer.get("phase") == "host-key"]
    if len(refused) > 1:
        print_text(
            f"once you have checked the host keys of {len(refused)} hosts: {trust_command(refused)}\n", sys.stderr
        )

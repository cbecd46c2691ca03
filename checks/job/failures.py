"""Checks of failures in a log, with the root cause first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import replace
from preflight.checks.job.cause import (
    AFTER_FAILURE,
    HostGroup,
    blamed,
    contradictions,
    grouped,
    of_log,
    witness,
)
from preflight.checks.logs import no_nccl
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, failed, passed, processes, unknown, warned
from preflight.parsers.messages.named_processes import memory_step, processes_in
from preflight.textprep.plain_text import ends_of

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause import ConnectionEnd
    from preflight.facts.node import NodeFacts
    from preflight.parsers.nccl_log import Failure, NcclLog

#: Maximum number of failures reported for one log; those of a large job repeat each other.
_MAX_FINDINGS = 5

#: Failures that other checks report with their cause: a fallback by nccl.transport, staging by nccl.gpudirect-rdma. A
#: device that cannot be opened is reported here, unless NCCL fell back to TCP.
_ELSEWHERE = ("ib_no_device_tcp_fallback", "ibverbs_missing", "gdr_disabled_capability")


@check(
    "nccl.failures",
    title="The log has no failure of NCCL or the layers below it",
    fault="The log has a failure of NCCL or the layers below it",
    impact="blocks-job",
    explains=(*AFTER_FAILURE, ("job.errors", "parts")),
    source="signatures in preflight/parsers/nccl_log/signatures.toml, each with its origin; NCCL 2.4 … 2.30",
    fix="Fix the earliest first, because later ones are often its consequences. `preflight check --hosts NODES "
    "--log FILE` finds its cause.",
    action="fix-job",
    scope="run",
    unless=(no_nccl,),
)
def failures(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for known failures in each log, earliest cause first.

    Consequences of the same failure on other ranks are left out.

    ## Why it matters
    When one rank dies, a thousand others report a closed connection or a time-out, and hide the cause at the end of
    the log.

    ## Verdicts
    A failure that stops or hangs a job fails; one that slows it warns. An NCCL warning without a matching signature is
    unknown and quoted. So is a log that was not read completely (overlong or truncated lines, damaged compressed data),
    and a log whose ranks wait for another rank to set up a communicator. A log without a warning only shows that NCCL
    wrote none: WARN lines need NCCL_DEBUG=WARN or more.

    For network failures, the finding states the cause if the host's evidence shows it. Possible causes are limited
    locked memory, an unusable row of the GID table, no route to the peer, a missing plug-in, no path to GPU memory, ACS
    and a translating IOMMU. A port of the connection that is down, flaps, or damages or loses packets is also one. If
    the failure may have other causes as well, this one is called likely. If log and node contradict each other, the
    cause is unknown.

    ## False alarms
    The end of a cancelled job: its ranks report each other, without an earlier failure.
    """
    for key, log in run.nccl_logs.items():
        elsewhere = _elsewhere(log)
        mine = [failure for failure in log.failures if failure.id not in elsewhere]
        found = [failure for failure in mine if not failure.echo] or mine[:1]
        parts = [(part, end) for failure in found for part, end in _parts(run, log, failure)]
        for number, (failure, end) in enumerate(parts[:_MAX_FINDINGS]):
            groups = [_of_port(run, log, failure, end)] if end else _causes(run, log, failure)
            echoes = sum(one.echo for one in log.failures) if not number else 0
            group = next((group for group in groups if group.agreed), None)
            reported = _with_fault(_finding(failure, key, echoes, group), run, key, failure)
            if failure.id.startswith(_CONNECTIONS) and (inside := _inside_node(log)):
                words = f"; its sockets use {inside}, which no other node reaches: it is a bridge inside the node"
                reported = replace(reported, message=reported.message + words)
            yield _with_versions(reported, log) if failure.id == _VERSIONS and len(log.versions) > 1 else reported
            yield from contradictions(groups, key, failure.id)
        if not found:
            yield _clean(log, key, less=len(log.failures))


def _elsewhere(log: NcclLog) -> tuple[str, ...]:
    """Return the ids of failures that other checks report for this log."""
    shut = any(failure.id == "ib_no_device_tcp_fallback" for failure in log.failures)
    return (*_ELSEWHERE, "ib_unable_open_device") if shut else _ELSEWHERE


def _parts(run: RunFacts, log: NcclLog, failure: Failure) -> list[tuple[Failure, ConnectionEnd | None]]:
    """Split failed connections by the ports that show their cause."""
    if not run.nodes or failure.id not in facts.nccl_root_cause.CONNECTION:
        return [(failure, None)]
    return facts.nccl_root_cause.split(failure, run.host, filter(None, map(run.host, log.hosts)))


def _of_port(run: RunFacts, log: NcclLog, failure: Failure, end: ConnectionEnd) -> HostGroup:
    """Return the group of the host whose port shows the cause of a failure."""
    kind = next(kind for kind in facts.nccl_root_cause.KINDS if kind.id == end.cause)
    evidence, proofs = end.evidence(end.cause), facts.nccl_root_cause.Proof
    proof = proofs.LIKELY if end.port.active else proofs.AGREED
    cause = facts.nccl_root_cause.Cause(kind, proof, failure.line, evidence.summary, evidence.keys)
    hosts = tuple(host for host in of_log(log) if run.host(host.host) is end.node)
    return HostGroup(hosts, cause, (end.node.node,))


def _causes(run: RunFacts, log: NcclLog, failure: Failure) -> list[HostGroup]:
    """Look for the cause of a failure in the evidence of its hosts."""
    hosts = [host for host in of_log(log) if host.host in failure.hosts]
    return grouped(run, hosts, lambda host, node: facts.nccl_root_cause.of_failure(failure, host, node))


def _finding(failure: Failure, key: str, echoes: int, group: HostGroup | None) -> Finding:
    grade = failed if failure.severity == "fatal" else warned
    where = f" on {failure.host}" if failure.host else ""
    rank = f", rank {failure.rank}" if failure.rank is not None else ""
    times = f", {failure.count} lines" if failure.count > 1 else ""
    echo = (
        f"; {counted(echoes, 'other kind of failure follows', 'other kinds of failure follow')} from it"
        if echoes
        else ""
    )
    cause, remedies = "", failure.remedy
    if failure.id == _OUT_OF_MEMORY and (
        step := memory_step([processes_in(at.line.message) for at in failure.processes])
    ):
        remedies = (step, _NCCL_BUFFERS)
    message = ends_of(failure.line.message, 300, 160)
    if group and group.cause:
        likely = "likely " if group.cause.proof is facts.nccl_root_cause.Proof.LIKELY else ""
        cause = f"; {likely}cause on {group.named}: {group.cause.summary}"
        remedies = (group.cause.kind.fix,)
    return grade(
        f"{key.removeprefix('log:')}:{failure.line.number}{where}{rank}{times}: "
        f"{message.rstrip('.') if echo or cause else message}{echo}{cause}",
        subject=failure.id,
        found=failure.id,
        evidence=[key],
        why="; ".join(failure.cause),
        fix=_steps(remedies, failure.collect[:3]),
        quote="\n".join(text for text in (str(failure.line), witness(group) if group else "") if text),
    ).from_cause(blamed(group))


def _with_fault(finding: Finding, run: RunFacts, key: str, failure: Failure) -> Finding:
    """Return the finding with the check and places of the same fault on nodes."""
    lines = [f"{key}:{process.line.number}" for process in failure.processes if not process.line.file]
    check = facts.logged_faults.check_of(failure)
    if not finding.cause and failure.id in facts.nccl_root_cause.CONNECTION and run.nodes:
        return _with_ports(finding.with_parts(*lines), run, key, failure)
    if not check:
        return finding.with_parts(*lines)
    log = run.nccl_logs[key]
    of_rank: dict[int | None, str | None] = {rank: host.host for host in of_log(log) for rank in host.ranks}
    writers = [
        (line.host or of_rank.get(process.rank), process.rank, line.device)
        for process in failure.processes if (line := process.line)
    ]  # fmt: skip
    nodes: dict[str | None, NodeFacts] = {host: node for host, _, _ in writers if (node := run.host(host))}
    at = dict.fromkeys(facts.logged_faults.places(log, check, writers, nodes))
    blamed = (
        (host, processes(processes_in(process.line.message)))
        for (host, _, _), process in zip(writers, failure.processes, strict=True)
    )
    of_processes = facts.logged_faults.blamed_processes(blamed, check, nodes)
    finding = finding.with_parts(*lines, *at, *of_processes)
    names = dict.fromkeys(node.node for node in nodes.values())
    return finding if finding.cause or not names else finding.from_cause((check, *names))


def _with_ports(finding: Finding, run: RunFacts, key: str, failure: Failure) -> Finding:
    """Return the finding with the ports of its connections that went down.

    Their links may be up again; the kernel log shows that they went down.
    """
    nodes = filter(None, map(run.host, run.nccl_logs[key].hosts))
    ends = [end for end in facts.nccl_root_cause.ends(failure, run.host, nodes) if end.went_down]
    if not ends:
        return finding
    places = dict.fromkeys(f"{end.node.node} {end.port.name}: {_FLAPPED}" for end in ends)
    cause = (_FLAPPED, *dict.fromkeys(end.node.node for end in ends))
    return finding.with_parts(*finding.parts, *places).from_cause(cause)


#: The check of the kernel log, which shows a link that went down and came back before the evidence was collected.
_FLAPPED = "kernel.events"

#: Prefixes of ids of connection failures, and of interfaces that exist only inside a node.
_CONNECTIONS = ("connect_", "bootstrap_", "socket_")
_WITHIN_NODE = ("docker", "virbr", "cni", "podman", "lxcbr", "lxdbr", "nerdctl", "veth", "kube-bridge")


def _inside_node(log: NcclLog) -> str:
    """Return NCCL's socket interface if it exists only inside its node, else ""."""
    return next((name for name in log.bootstrap_interfaces if name.startswith(_WITHIN_NODE)), "")


#: The failure whose message may state which process holds a GPU's memory, and a step in any case.
_OUT_OF_MEMORY = "cuda_out_of_memory"
_NCCL_BUFFERS = "leave memory for NCCL's buffers"

#: The failure of ranks with several versions of NCCL, whose message need not name them.
_VERSIONS = "version_mismatch"


def _with_versions(finding: Finding, log: NcclLog) -> Finding:
    """Add the versions that the ranks printed to a finding."""
    named = ", ".join(f"{use.name} on {use.first.host or 'a host without a name'}" for use in log.versions[:4])
    return replace(finding, message=f"{finding.message}; the ranks loaded NCCL {named}")


def _steps(remedies: Sequence[str], collect: Sequence[str]) -> str:
    """Return the steps of a fix, without a final full stop.

    A full stop could be copied along with a command.
    """
    look = [f"then collect: {', '.join(collect)}"] if collect else []
    return "; ".join((*(remedy.removesuffix(".") for remedy in remedies), *look))


def _never_set_up(log: NcclLog, key: str, words: str) -> Finding:
    """Return *unknown* for a log in which ranks wait for missing ranks."""
    first = log.missing[0]
    ranks = ", ".join(str(absent.rank) for absent in log.missing[:16]) + (" and more" if log.missing[16:] else "")
    hosts = ", ".join(dict.fromkeys(absent.host for absent in log.missing[:16] if absent.host))
    where = f" ({hosts})" if hosts else ""
    which = f"rank {ranks}" if len(log.missing) == 1 else f"ranks {ranks}"
    return unknown(
        f"{words}, but {which}{where}: {first.why}; the job hangs there, or the log ends before it",
        subject=f"rank {first.rank}", found=f"no line of {which}", expected="every rank sets up the communicator",
        evidence=[key], fix=f"on {hosts or 'its host'}, check whether the process of {which} runs and what it prints; "
        "then pass the logs of all ranks",
    )  # fmt: skip


def _clean(log: NcclLog, key: str, less: int) -> Finding:
    name = key.removeprefix("log:")
    but = " except what nccl.transport and nccl.gpudirect-rdma report" if less else ""
    reported = {one.line.message for one in (*log.failures, *log.hints)}
    strange = [line for line in log.warnings if line.message not in reported]
    if strange:  # NCCL labels the line a warning
        first = strange[0]
        more = f", and {len(strange) - 1} more such lines" if strange[1:] else ""
        return unknown(
            f"{name}: no known failure in {log.lines} lines of NCCL{but}; no rule recognises the warning on "
            f"line {first.number}: {ends_of(first.message, 200)}{more}",
            subject=name, found=first.message[:200], evidence=[key],
            fix="read the lines around it; NCCL_DEBUG=INFO shows the preceding events",
        )  # fmt: skip
    if log.missing:
        return _never_set_up(log, key, f"{name}: no failure in {log.lines} lines of NCCL{but}")
    loaders = {use.first.host: use.name for use in log.versions if use.first.host}
    if len(set(loaders.values())) > 1 and len(loaders) == len(log.versions):
        return unknown(
            f"{name}: no failure in {log.lines} lines of NCCL{but}, but the hosts loaded several versions: "
            f"{', '.join(f'{version} on {host}' for host, version in [*loaders.items()][:4])}; all "
            "ranks must load the same one",
            subject=name,
            found=", ".join(sorted(set(loaders.values()))),
            expected="one version",
            evidence=[key],
            fix="if the lines are of one job, use the same image and libnccl.so.2 on every host",
        )
    if log.unread:
        return unknown(
            f"{name}: no failure in {log.lines} lines of NCCL{but}, but the log was not read completely: "
            f"{log.unread[0]}",
            subject=name, evidence=[key], fix="pass the complete log as the job wrote it, with its line ends",
        )  # fmt: skip
    return passed(f"{name}: no failure in {log.lines} lines of NCCL{but}", subject=name, evidence=[key])

"""Checks of failures in a log, with the root cause first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.job.cause import HostGroup, blamed, contradictions, grouped, of_log, witness
from preflight.checks.logs import no_nccl
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import Failure, NcclLog

#: Failures of one log that are reported one by one; those of a large job repeat each other.
_MAX_FINDINGS = 5

#: Reported with their cause by other checks: a fallback by nccl.transport, staging by nccl.gpudirect-rdma. They are
#: among the failures only where that is what the traffic does; a device that cannot be opened costs a rail by itself.
_ELSEWHERE = ("ib_no_device_tcp_fallback", "ibverbs_missing", "gdr_disabled_capability")


@check(
    "nccl.failures",
    title="The log holds no failure of NCCL or of what it rests on",
    fault="The log holds a failure of NCCL or of what it rests on",
    impact="blocks-job",
    source="signatures in preflight/parsers/nccl_log/signatures.toml, each with its origin; NCCL 2.4 … 2.30",
    fix="Fix the earliest first: later ones are often its consequences. `preflight check --hosts NODES --log FILE` "
    "finds its cause.",
    action="fix-job",
    scope="run",
    unless=(no_nccl,),
)
def failures(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for known failures in each log, earliest cause first.

    Consequences of the same failure on other ranks are left out.

    ## Why it matters
    One rank dies of its own cause; a thousand others then report a closed connection or a time-out, and it is those
    that are at the end of the log, where everybody looks.

    ## Verdicts
    What stops or hangs a job fails, what makes it slower warns. A warning of NCCL that no signature knows is
    unknown, with its line. So is a log of which a part was not read: lines without ends, damaged compressed data,
    lines that a screen cut. A log without a warning shows only that NCCL wrote none: WARN lines need NCCL_DEBUG=WARN
    or more.

    Of the network's failures the cause is given where the evidence of the host shows it: locked memory that is limited,
    an unusable row of the GID table, no route to the peer, a plug-in that is missing, no way to GPU memory, ACS or an
    IOMMU that translates. A likely cause is one that has this effect among others. Where the log states what the node
    denies, the cause is unknown.

    ## False alarms
    The end of a job that was cancelled; its ranks complain of each other, and nothing came before.
    """
    for key, log in run.nccl_logs.items():
        elsewhere = _elsewhere(log)
        mine = [failure for failure in log.failures if failure.id not in elsewhere]
        found = [failure for failure in mine if not failure.echo] or mine[:1]
        for failure in found[:_MAX_FINDINGS]:
            groups = _causes(run, log, failure)
            echoes = sum(one.echo for one in log.failures) if failure is found[0] else 0
            yield _finding(failure, key, echoes, next((group for group in groups if group.agreed), None))
            yield from contradictions(groups, key, failure.id)
        if not found:
            yield _clean(log, key, less=len(log.failures))


def _elsewhere(log: NcclLog) -> tuple[str, ...]:
    """Return the failures that other checks report for this log."""
    shut = any(failure.id == "ib_no_device_tcp_fallback" for failure in log.failures)
    return (*_ELSEWHERE, "ib_unable_open_device") if shut else _ELSEWHERE


def _causes(run: RunFacts, log: NcclLog, failure: Failure) -> list[HostGroup]:
    """Look for the cause of a failure in the evidence of the hosts that report it."""
    hosts = [host for host in of_log(log) if host.host in failure.hosts]
    return grouped(run, hosts, lambda host, node: facts.nccl_root_cause.of_failure(failure, host, node))


def _finding(failure: Failure, key: str, echoes: int, group: HostGroup | None) -> Finding:
    grade = failed if failure.severity == "fatal" else warned
    where = f" on {failure.host}" if failure.host else ""
    rank = f", rank {failure.rank}" if failure.rank is not None else ""
    times = f", {failure.count} lines" if failure.count > 1 else ""
    echo = f"; {echoes} other kinds of failure follow from it" if echoes else ""
    cause, remedies = "", failure.remedy
    if group and group.cause:
        likely = "likely " if group.cause.proof is facts.nccl_root_cause.Proof.LIKELY else ""
        cause = f"; {likely}cause on {group.named}: {group.cause.summary}"
        remedies = (group.cause.kind.fix,)
    return grade(
        f"{key.removeprefix('log:')}:{failure.line.number}{where}{rank}{times}: {failure.line.message[:200]}"
        f"{echo}{cause}",
        subject=failure.id,
        found=failure.id,
        evidence=[key],
        why="; ".join(failure.cause),
        fix=_steps(remedies, failure.collect[:3]),
        quote="\n".join(text for text in (str(failure.line), witness(group) if group else "") if text),
    ).from_cause(blamed(group))


def _steps(remedies: Sequence[str], collect: Sequence[str]) -> str:
    """Return the steps of a fix, without a final full stop.

    A full stop would be copied with the command.
    """
    look = [f"then look at {', '.join(collect)}"] if collect else []
    return "; ".join((*(remedy.removesuffix(".") for remedy in remedies), *look))


def _clean(log: NcclLog, key: str, less: int) -> Finding:
    name = key.removeprefix("log:")
    but = " except what nccl.transport and nccl.gpudirect-rdma report" if less else ""
    reported = {one.line.message for one in (*log.failures, *log.hints)}
    strange = [line for line in log.warnings if line.message not in reported]
    if strange:  # NCCL itself calls the line a warning
        first = strange[0]
        more = f", and {len(strange) - 1} more such lines" if strange[1:] else ""
        return unknown(
            f"{name}: no failure that a rule knows in {log.lines} lines of NCCL{but}; of a warning on line "
            f"{first.number} no rule knows what it means: {first.message[:160]}{more}",
            subject=name, found=first.message[:200], evidence=[key],
            fix="look at the lines around it; NCCL_DEBUG=INFO shows what came before",
        )  # fmt: skip
    if log.unread:
        return unknown(
            f"{name}: no failure in {log.lines} lines of NCCL{but}, but not all was read: {log.unread[0]}",
            subject=name, evidence=[key], fix="give the log as the job wrote it, with its line ends, and complete",
        )  # fmt: skip
    return passed(f"{name}: no failure in {log.lines} lines of NCCL{but}", subject=name, evidence=[key])

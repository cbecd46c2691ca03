"""Causes of failures and missing RDMA, shared by the checks of logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight._startup.lightclass import dataclass
from preflight.facts.job import RunFacts
from preflight.facts.node import NodeFacts
from preflight.model import Finding, unknown

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause import Cause, HostStatements
    from preflight.parsers.nccl_log import NcclLog

#: Maximum number of names in one message, and characters of a record's key in a quote.
_SHOWN, _KEY = 4, 80


#: Findings that follow from the failure that ended the job: other ranks time out, launchers report the end.
AFTER_FAILURE = (
    ("torch.hang", "ended"),
    ("nccl.failures", "ended", "*", "torch_watchdog_timeout"),
    *(
        ("job.errors", "ended", "*", f"*{words}*")
        for words in (
            "a rank ended with an error: ", "a process aborted: ", "the launcher ended", "a rank ended the job: ",
            "the serving engine ended: ", "the job or step was cancelled: ", "tasks of the job ended with an error",
            "; a consequence of another process's end",
        )
    ),
)  # fmt: skip


@dataclass(frozen=True)
class HostGroup:
    """Hosts of a log with traffic on the same path for the same cause."""

    hosts: tuple[HostStatements, ...]
    cause: Cause | None
    nodes: tuple[str, ...] = ()  # names of these hosts' nodes

    @property
    def agreed(self) -> bool:
        """Whether the node's evidence confirms the cause."""
        proofs = (facts.nccl_root_cause.Proof.AGREED, facts.nccl_root_cause.Proof.LIKELY)
        return self.cause is not None and self.cause.proof in proofs

    @property
    def contradicted(self) -> bool:
        """Whether the node shows the opposite of the log."""
        return self.cause is not None and self.cause.proof is facts.nccl_root_cause.Proof.CONTRADICTED

    @property
    def named(self) -> str:
        """The hosts, with their ranks where the log shows them: ``gpu002 (ranks 8-15)``."""
        return named(self.hosts)


def grouped(
    run: RunFacts,
    hosts: Collection[HostStatements],
    explain: Callable[[HostStatements, NodeFacts | None], Cause | None],
) -> list[HostGroup]:
    """Explain each host, and group those with the same explanation."""
    found: dict[object, tuple[Cause | None, list[HostStatements]]] = {}
    nodes = {host.host: run.host(host.host) for host in hosts}
    for host in hosts:
        cause = explain(host, nodes[host.host])
        explained = cause is not None and cause.proof is not facts.nccl_root_cause.Proof.PROBABLE
        key = (cause.kind.id, cause.proof, cause.summary) if cause and explained else None
        known, members = found.get(key, (None, []))
        members.append(host)
        found[key] = (known or cause, members)  # one log line also covers hosts that report less
    return [
        HostGroup(tuple(members), cause, tuple(node.node for host in members if (node := nodes[host.host])))
        for cause, members in found.values()
    ]


def blamed(group: HostGroup | None) -> tuple[str, ...]:
    """Return the check that reports the cause, and its nodes; empty if unproven.

    A likely cause is proven if the log names the port that shows it.
    """
    if group is None or group.cause is None or not group.agreed:
        return ()
    if group.cause.proof is facts.nccl_root_cause.Proof.LIKELY and not group.cause.kind.of_port:
        return ()
    check = group.cause.kind.check
    return (check, *group.nodes) if check and group.nodes else ()


def of_log(log: NcclLog) -> Sequence[HostStatements]:
    """Return the hosts of a log, each with its statements."""
    return tuple(facts.nccl_root_cause.hosts(log).values())


def named(hosts: Sequence[HostStatements]) -> str:
    """Return the names of the hosts, at most four.

    Ranks are added if there are at most four hosts.
    """
    shown = [_one(host, ranks=len(hosts) <= _SHOWN) for host in hosts[:_SHOWN]]
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(shown) + more


def _one(host: HostStatements, *, ranks: bool) -> str:
    name = host.host or "a host without a name"
    if not ranks or not host.ranks:
        return name
    numbers = sorted(host.ranks)
    if len(numbers) == 1:
        return f"{name} (rank {numbers[0]})"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{name} (ranks {numbers[0]}-{numbers[-1]})"
    return f"{name} ({len(numbers)} ranks)"


def because(group: HostGroup, *, named_before: bool = False) -> str:
    """Return the cause as the end of a sentence; empty if there is none.

    It names the hosts unless ``named_before``.
    """
    cause = group.cause
    if cause is None or group.contradicted:
        return "; the cause is unknown" if cause else ""
    line = f"line {cause.line.number}: {cause.line.message[:120].rstrip('.')}" if cause.line else ""
    if not group.agreed:
        return f"; the first cause that the log states is in {line}; probably {cause.names}"
    on = "" if named_before or all(host.host is None for host in group.hosts) else f" on {group.named}"
    if cause.kind.proved and line:  # NCCL names the setting; the node only shows where it is set
        return f": {cause.kind.name}{on}; {line}" + (f"; {cause.summary}" if cause.summary else "")
    return f": {cause.summary}{on}" + (f"; {line}" if line else "")


def fix(group: HostGroup) -> str:
    """Return the next step: the fix, or a command that finds the cause."""
    if group.cause is None:
        return ""
    if group.agreed:
        return group.cause.kind.fix
    return f"To find the cause: {group.cause.kind.confirm_with}." if not group.contradicted else ""


def witness(group: HostGroup) -> str:
    """Return the node records that show a cause, and what they show; may be empty."""
    cause = group.cause
    if cause is None or not cause.keys or not cause.summary:
        return ""
    keys = ", ".join(key if len(key) <= _KEY else key[:_KEY] + "…" for key in cause.keys[:3])
    return f"{group.hosts[0].host} {keys}: {cause.summary}"


def contradictions(groups: Iterable[HostGroup], key: str, what: str) -> Iterator[Finding]:
    """Report contradictions between a log and a node's evidence."""
    for group in groups:
        if not group.contradicted or group.cause is None or group.cause.line is None:
            continue
        line = group.cause.line
        yield unknown(
            f"{key.removeprefix('log:')}: the cause of {what} on {group.named} is unknown: line {line.number} "
            f"of the log shows {line.message[:120]!r}, but the node's evidence shows that {group.cause.summary}",
            subject=key.removeprefix("log:"),
            found=group.cause.summary,
            expected=line.message[:120],
            evidence=[key],
            why="The evidence was collected at another time, or on the host instead of in the job's container.",
            fix="Collect from the node while the job runs, in the job's container; then: "
            f"{group.cause.kind.confirm_with}.",
            quote="\n".join(text for text in (str(line), witness(group)) if text)[:600],
        )

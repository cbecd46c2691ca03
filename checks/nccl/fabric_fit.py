"""Checks of NCCL variables against the fabric: GID index, traffic class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight import facts
from preflight._startup.lightclass import dataclass, replace
from preflight.checks.applicability import RDMA_CLASS, no_rdma
from preflight.checks.nccl.settings_scope import as_set, nccl_versions, redacted, rule_findings, unread
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS, Setting
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.model import Finding, check, failed, passed, unknown, warned

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

#: The first release that selects the GID automatically.
AUTOMATIC_GID = (2, 21, 0)


def no_gid_table(node: NodeFacts, site: Site) -> Finding | None:
    """Return the finding of ``no_rdma`` if NCCL_IB_GID_INDEX is set, else None."""
    index = node.nccl_env.integer("NCCL_IB_GID_INDEX")
    return None if index is None or index < 0 else no_rdma(node, site)


@check(
    "nccl.gid-index",
    title="NCCL_IB_GID_INDEX selects a routable RoCE v2 address on every port",
    fault="NCCL_IB_GID_INDEX does not select a routable RoCE v2 address",
    impact="blocks-job",
    explains=(("nccl.failures", "log"),),
    source=f"{GUIDE}#nccl-ib-gid-index; selected by NCCL itself since 2.21 (NCCL 2.21 release notes)",
    fix="With NCCL 2.21 or newer, unset it; with older releases, use the row of `show_gids` that is v2 with the "
    "port's IPv4 address.",
    action="fix-job",
    unless=(no_gid_table,),
)
def gid_index(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look up the GID that NCCL_IB_GID_INDEX selects on each RoCE compute port.

    ## Why it matters
    The index counts addresses in the order in which they were added. After a restart of the network, or in a pod, row 3
    may be empty or a link-local address. Every connection then ends in a time-out that does not mention the index.

    ## Verdicts
    An empty row, RoCE v1 and a link-local address fail. A valid row warns on a host with NCCL 2.21 or newer, which
    would find the address automatically on any node; in a container it passes. Native InfiniBand ignores the index.
    Rows 0 to 7 are read; an index beyond the end of the table fails. Ports with the same fault are reported in one
    finding, because it is one setting.

    ## False alarms
    A fabric that routes only one of several v2 addresses, if NCCL_IB_ADDR_RANGE cannot select it.
    """
    setting = node.nccl_env.get("NCCL_IB_GID_INDEX")
    index = node.nccl_env.integer("NCCL_IB_GID_INDEX")
    if setting is None or index is None or index < 0:
        missing = list(unread(node, "NCCL_IB_GID_INDEX"))
        yield from missing or [passed("NCCL_IB_GID_INDEX is unset, so NCCL selects the GID", evidence=[PROCESS])]
        return
    ports = [port for port in site.roles(node).compute if port.active and port.roce]
    if not ports:
        yield passed(f"{setting.text} has no effect: no active compute port is RoCE", subject=setting.name,
                     evidence=[setting.source, RDMA_CLASS])  # fmt: skip
        return
    rows = [row for port in ports if (row := _row(node, port, index, setting)) is not None]
    yield from _folded(rows)
    if not rows:
        yield _good_index(node, ports, index, setting)


@dataclass(frozen=True)
class _Row:
    """Fault of one port's GID row; ports with the same ``kind`` are reported together."""

    kind: str
    before: str  # message text before and after the port's name
    after: str
    alike: str  # ``after`` for several ports
    finding: Finding


def _folded(rows: Sequence[_Row]) -> Iterator[Finding]:
    """Yield one finding for all ports with the same fault."""
    kinds: dict[str, list[_Row]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    for same in kinds.values():
        first = same[0]
        names = [row.finding.subject for row in same]
        if len(same) == 1:
            yield replace(first.finding, message=f"{first.before}{names[0]}{first.after}")
            continue
        named = ", ".join(names) if len(names) <= 3 else f"{len(names)} ports ({names[0]} to {names[-1]})"
        values = list(dict.fromkeys(row.finding.found for row in same if row.finding.found))
        listed = ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
        yield replace(first.finding, message=f"{first.before}{named}{first.alike}", subject="", found=listed or None)


def _row(node: NodeFacts, port: Port, index: int, setting: Setting) -> _Row | None:
    """Return the fault of a port's GID row; None if the row is valid."""
    keys = facts.gids.keys(port.device, port.number, index)
    longest = facts.gids.rows_at_most(node.evidence, port.device, port.number)
    if longest is not None and index >= longest:
        after = f" has no row {index}"
        before = f"{setting.text} in {setting.where}: the GID table of "
        return _Row(f"no row of {longest}", before, after, after, failed(
            "", subject=port.name, found=f"at most {longest} rows", expected="the index of an existing row",
            evidence=[facts.gids.MARKS_KEY, setting.source], quote=as_set(setting),
        ))  # fmt: skip
    if index not in facts.gids.COLLECTED_INDEXES:
        after = f": row {index} of the GID table is beyond the collected rows"
        return _Row("beyond", "", after, after, unknown(
            "", subject=port.name, evidence=[setting.source], fix=f"cat {keys[0][5:]} {keys[1][5:]}",
        ))  # fmt: skip
    try:
        gid = facts.gids.gid(node.evidence, port.device, port.number, index)
    except EvidenceError as error:
        after = f": row {index} of the GID table could not be read ({error.why})"
        return _Row(f"unread: {error.why}", "", after, after,
                    unknown("", subject=port.name, evidence=[error.key]))  # fmt: skip
    if gid.empty and int(gid.address) == 0:
        kind = what = "is empty"
    elif gid.empty:
        what = f"holds {gid.address}, which is outside this network namespace"
        kind = "has addresses outside this network namespace"
    elif "v2" not in gid.type:
        what, kind = f"is {gid.shown}, which no router forwards", "is IB/RoCE v1, which no router forwards"
    elif gid.address.is_link_local:
        what, kind = f"is {gid.shown}, which reaches no other subnet", "is link-local, which reaches no other subnet"
    else:
        return None
    return _Row(
        kind,
        f"{setting.text} in {setting.where}: row {index} of the GID table of ",
        f" {what}",
        f" {kind}",
        failed(
            "",
            subject=port.name,
            found="empty" if gid.empty else gid.shown,
            expected="a RoCE v2 address of the port's own IPv4 or global IPv6",
            evidence=[*keys, setting.source],
            quote=as_set(setting),
        ),
    )


def _good_index(node: NodeFacts, ports: list[Port], index: int, setting: Setting) -> Finding:
    newest = max(nccl_versions(node), default=None)
    keys = [setting.source, *facts.gids.keys(ports[0].device, ports[0].number, index)]
    if newest is not None and newest >= AUTOMATIC_GID and not node.in_container:
        release = ".".join(map(str, newest))
        message = f"{setting.text} in {setting.where} is correct, but NCCL {release} would select it automatically"
        return warned(message, subject=setting.name, found=setting.value, expected="unset", evidence=keys,
                      quote=as_set(setting))  # fmt: skip
    return passed(
        f"{setting.text} selects a RoCE v2 address on all {len(ports)} ports", subject=setting.name, evidence=keys
    )


# --- tuning ----------------------------------------------------------------------------------------


@check(
    "nccl.fabric-fit",
    title="NCCL's fabric settings fit this fabric",
    fault="NCCL's fabric settings do not fit this fabric",
    impact="slows-job",
    explains=(("nccl.run-settings", "log"),),
    source=f"{GUIDE} (NCCL_IB_TC, NCCL_CROSS_NIC, NCCL_IB_QPS_PER_CONNECTION); RFC 2474: DSCP = traffic class >> 2",
    fix="Unset it, or use this fabric's value: `NCCL_IB_TC=106` is DSCP 26, which the default map puts on priority 3.",
    action="fix-job",
    gating=False,  # never fails
)
def fit(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for settings that were tuned for another fabric.

    ## Why it matters
    A setting of another fabric causes no error. With another site's traffic class, for example, the traffic uses a
    priority that no switch pauses for.

    ## Verdicts
    All of these warn: a traffic class with the ECN bits set to "congested"; several queue pairs for each connection on
    InfiniBand; messages split over queue pairs; NCCL_CROSS_NIC=1 where each rail is a separate subnet. A variable that
    is not set is not judged. On a lossless RoCE fabric, roce.chain follows the traffic class to its priority.

    ## False alarms
    A site that routes between its rails.
    """
    found = [*rule_findings(node, site, "fabric_fit"), *redacted(node)]
    if site.lossless.value:  # roce.chain judges the traffic class by the port's map
        found = [one for one in found if one.subject != "NCCL_IB_TC"]
    missing = list(unread(node, "a value for another fabric"))
    yield from (*found, *missing)
    if not found and not missing:
        yield passed("no setting is meant for another kind of fabric", evidence=[PROCESS])

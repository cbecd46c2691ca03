"""Marking links of the RoCE chain: trust, traffic class, DSCP, priority.

RFC 2474: the DSCP is the traffic class without its two lowest bits, which are ECN's (RFC 3168; 3 means congested).
The number itself is not judged: 41, 52, 84 and 106 are all in use. Only the priority in the node's own map is judged.
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts import port_qos
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.roce_chain.model import ChainLink, Place, State

MARK = "set {where} to 4 x DSCP + 2 of the lossless priority (`mlnx_qos -i IF` shows the map), or map its DSCP to it"


def trust(at: Place, name: str) -> ChainLink:
    """Compare the source of a packet's priority with the site's, or with DSCP."""
    found, wanted = at.trust, at.policy.trust.value or "dscp"
    if found.value == wanted:
        return ChainLink(name, State.OK, found.value, evidence=(found.evidence,))
    cost = ", so packets without a VLAN tag count as priority 0" if found.value == "pcp" else ""
    return ChainLink(
        name, State.BROKEN, found.value,
        f"the port trusts {found.value} instead of {wanted}{cost}",
        f"{wanted} ({at.policy.trust.source or 'routed RoCE v2 is marked by DSCP'})",
        (found.evidence,), fix=f"`mlnx_qos -i {at.netdev} --trust {wanted}`",
    )  # fmt: skip


@dataclass(frozen=True)
class TrafficClass:
    """The traffic class that a job's packets carry."""

    value: int
    where: str  # where it is set
    evidence: str
    of_driver: bool = False  # set for all queue pairs of the device, overriding NCCL's request

    def __str__(self) -> str:
        return f"{self.value} ({self.where})"

    @property
    def dscp(self) -> int:
        """The traffic class without its ECN bits."""
        return self.value >> 2

    @property
    def file(self) -> str:
        """The file that the value was read from."""
        return self.evidence.partition(":")[2]

    def fix_for(self, value: int) -> str:
        """Return how to change the value at its source.

        The driver's setting overrides NCCL_IB_TC.
        """
        if self.of_driver:
            return f"`echo {value} > {self.file}` as root: the driver's value overrides NCCL_IB_TC"
        return f"set NCCL_IB_TC={value}"


def mark(at: Place) -> TrafficClass:
    """Return the traffic class of a job's packets.

    The driver's setting overrides NCCL's. Without NCCL_IB_TC a job uses 0, unless the program sets it; that is visible
    only inside a job, so elsewhere the site's declaration is used. Raises EvidenceError if there is none.
    """
    if driver := port_qos.traffic_class(at.evidence, at.port.device, at.port.number):
        return TrafficClass(driver.value, "the driver's, for all queue pairs", driver.evidence, of_driver=True)
    env = at.node.nccl_env
    setting, number = env.get("NCCL_IB_TC"), env.integer("NCCL_IB_TC")
    if setting is not None and number is not None and number >= 0:
        if number > 255:
            raise EvidenceError(setting.source, f"{setting.text} is more than a byte")
        return TrafficClass(number, f"NCCL_IB_TC in {setting.where}", setting.source)
    if running := _of_running_job(at):
        return running
    for key, why in env.unreadable.items():
        raise EvidenceError(key, f"may set NCCL_IB_TC and could not be read: {why}")
    if at.node.rank is not None:
        return TrafficClass(0, "NCCL's default: the job sets no NCCL_IB_TC", PROCESS)
    if (declared := at.policy.traffic_class).value is not None:
        return TrafficClass(declared.value, declared.source, PROCESS)
    raise EvidenceError(PROCESS, "the traffic class is not set on this node, and NCCL's default is 0")


def _of_running_job(at: Place) -> TrafficClass | None:
    """Return the NCCL_IB_TC of all ranks of a running job; None if unknown.

    If unset, the value is unknown: a file in the job's container may set it. Raises EvidenceError if the ranks differ.
    """
    try:
        environments = [rank.settings for rank in at.node.nccl_ranks.environments]
        found = {number: env for env in environments if (number := env.integer("NCCL_IB_TC")) is not None}
    except EvidenceError:
        return None
    marks = [
        TrafficClass(n, f"NCCL_IB_TC in {s.where}", s.source) for n, e in found.items() if (s := e.get("NCCL_IB_TC"))
    ]
    marks = [mark for mark in marks if 0 <= mark.value <= 255]
    if len(marks) > 1:
        raise EvidenceError(marks[0].evidence, f"the ranks that run here differ: {', '.join(map(str, marks[:3]))}")
    return marks[0] if marks else None


def traffic_class(at: Place, name: str) -> ChainLink:
    """Compare the traffic class with the site's; ECN bits of 3 are always wrong."""
    if at.trusts_pcp:
        return _apart(name)
    found, wanted = mark(at), at.policy.traffic_class
    if found.value & 3 == 3:
        return ChainLink(
            name, State.BROKEN, str(found), f"traffic class {found} marks every packet as congested",
            "ECN bits 2 (ECT), as in 106", (found.evidence,), fix=found.fix_for(found.value - 1),
        )  # fmt: skip
    if wanted.value not in (None, found.value):
        return ChainLink(
            name, State.BROKEN, str(found), f"the traffic class is {found}, expected {wanted.value}",
            f"{wanted.value} ({wanted.source})", (found.evidence,), fix=found.fix_for(wanted.value),
        )  # fmt: skip
    return ChainLink(name, State.OK, str(found), evidence=(found.evidence,), compared=str(found.value))


def dscp(at: Place, name: str) -> ChainLink:
    """Compare the DSCP of the traffic class with the site's."""
    if at.trusts_pcp:
        return _apart(name)
    found, wanted = mark(at), at.policy.dscp
    if wanted.value in (None, found.dscp):
        return ChainLink(name, State.OK, f"{found.dscp}", evidence=(found.evidence,))
    return ChainLink(
        name, State.BROKEN, f"{found.dscp}",
        f"traffic class {found} is DSCP {found.dscp}, expected {wanted.value}",
        f"{wanted.value} ({wanted.source})", (found.evidence,), fix=found.fix_for(wanted.value * 4 + 2),
    )  # fmt: skip


def priority(at: Place, name: str) -> ChainLink:
    """Compare the priority of the DSCP in the port's map with the lossless one."""
    if at.trusts_pcp:
        return _by_service_level(at, name)
    found, table = mark(at), port_qos.dscp_map(at.evidence, at.netdev)
    priority = table.value.priority(found.dscp)
    if priority is None:
        raise EvidenceError(table.evidence, f"does not map DSCP {found.dscp}")
    because = f"traffic class {found} is DSCP {found.dscp}"
    where = found.file if found.of_driver else "NCCL_IB_TC"
    return _compared(at, name, priority, because, (table.evidence, found.evidence), where)


def _by_service_level(at: Place, name: str) -> ChainLink:
    """Compare the service level, which is the priority if PCP is trusted on purpose."""
    if at.policy.trust.value != "pcp":
        return _apart(name)
    env = at.node.nccl_env
    setting, number = env.get("NCCL_IB_SL"), env.integer("NCCL_IB_SL")
    if setting is not None and number is not None and number >= 0:
        return _compared(at, name, number & 7, setting.text, (setting.source,))
    if at.node.rank is None:
        raise EvidenceError(PROCESS, "NCCL_IB_SL is not set on this node, and NCCL's default is 0")
    return _compared(at, name, 0, "NCCL's default service level is 0", (PROCESS,))


def _compared(
    at: Place, name: str, priority: int, because: str, evidence: tuple[str, ...], where: str = "NCCL_IB_TC"
) -> ChainLink:
    if priority == at.priority:
        return ChainLink(name, State.OK, f"{priority}", evidence=evidence)
    return ChainLink(
        name, State.BROKEN, f"{priority}",
        f"{because}, priority {priority}; the lossless priority is {at.priority}",
        f"priority {at.priority} ({at.source})", evidence, fix=MARK.format(where=where),
    )  # fmt: skip


def _apart(name: str) -> ChainLink:
    return ChainLink(name, State.APART, reason="the port does not trust DSCP")

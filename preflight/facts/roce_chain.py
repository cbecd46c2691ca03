"""The RoCE chain of a port: from its interface to its congestion control, link by link, in an expert's order.

Each link says what was read, of which record, and whether it holds. A later link is of use only where those before it
hold, so the first broken one is what is wrong with a port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from preflight.evidence import EvidenceError
from preflight.facts import rdma, roce_addressing, roce_marking, roce_service
from preflight.facts.roce_link import Chain, Link, Place, Policy, State, Want

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma import Port

__all__ = ["ADDRESSING", "SERVICE", "Chain", "Link", "Policy", "State", "Want", "chains"]

Step = Callable[[Place, str], Link]

#: Links that any RoCE port needs, in order.
ADDRESSING: Mapping[str, Step] = {
    "interface": roce_addressing.interface,
    "address": roce_addressing.address,
    "MTU": roce_addressing.mtu,
    "active MTU": roce_addressing.active_mtu,
    "GID": roce_addressing.gid,
}

#: Links that make a fabric lossless, in order.
SERVICE: Mapping[str, Step] = {
    "trust": roce_marking.trust,
    "traffic class": roce_marking.traffic_class,
    "DSCP": roce_marking.dscp,
    "priority": roce_marking.priority,
    "PFC": roce_service.pfc,
    "ECN": roce_service.ecn,
    "CNP": roce_service.cnp,
    "global pause": roce_service.pause,
    "buffers": roce_service.buffers,
    "DCBX": roce_service.dcbx,
    "DCQCN": roce_service.dcqcn,
}


def chains(node: NodeFacts, ports: Sequence[Port], policy: Policy) -> tuple[Chain, ...]:
    """Build the chain of each of these RoCE ports, which are active and have an interface here."""
    return _with_odd_ones([_chain(Place(node, port, policy)) for port in ports])


def _chain(at: Place) -> Chain:
    links = [_tried(at, name, step) for name, step in ADDRESSING.items()]
    if at.priority is not None:
        links += [_tried(at, name, step) for name, step in SERVICE.items()]
    else:
        why = "nothing says whether the fabric is lossless"
        if at.policy.lossless.value is not None:
            why = f"lossy by design ({at.policy.lossless.source})"
        links += [Link(name, State.APART, says=why) for name in SERVICE]
    return Chain(at.port, tuple(links), at.inferred)


def _tried(at: Place, name: str, step: Step) -> Link:
    try:
        return step(at, name)
    except EvidenceError as error:
        kind, _, target = error.key.partition(":")
        named = kind == "cmd" and not error.why.startswith(target)
        why = f"{target} {error.why}" if named else error.why
        if at.netdev:  # left out, so that ports of which the same is unknown say the same
            why = why.replace(at.netdev, "IF")
        fix = _LEARN.get(name, "")
        if name not in ADDRESSING and rdma.is_virtual_function(at.evidence, at.port.device):
            why, fix = "a virtual function, whose quality of service its host sets and knows", "ask on its host"
        if name not in ADDRESSING and _is_software(at):
            why, fix = "a software device, which leaves quality of service to the NIC below it", f"`dcb` of {at.netdev}"
        return Link(name, State.UNKNOWN, says=why, evidence=(error.key,), fix=fix)


def _is_software(at: Place) -> bool:
    try:
        return rdma.is_software(at.evidence, at.port.device)
    except EvidenceError:
        return False


_LEARN = {
    "active MTU": "install `ibv_devinfo` (package ibverbs-utils, or rdma-core), or see rdma.device-nodes",
    "GID": "run `show_gids` on the node",
    "global pause": "install `ethtool` on the node",
    **dict.fromkeys(
        ("traffic class", "DSCP"),
        "where jobs set it themselves, say so in the cluster file (qos.traffic_class = 106); else NCCL_IB_TC=106 in "
        "/etc/nccl.conf",
    ),
    **dict.fromkeys(
        ("trust", "priority", "PFC", "buffers", "DCBX"),
        "install iproute2's `dcb`, or run with --sudo for `mlnx_qos`; a virtual function cannot tell: ask its host",
    ),
    **dict.fromkeys(
        ("ECN", "CNP", "DCQCN"),
        "only the vendor's driver (MLNX_OFED, DOCA) shows it to all; upstream's, in part, to root: run as root, or "
        "`mlxconfig query` ROCE_CC_PRIO_MASK",
    ),
}


def _with_odd_ones(found: Sequence[Chain]) -> tuple[Chain, ...]:
    """Mark the ports whose congestion control runs otherwise than that of most ports of the node."""
    values = Counter(chain.link("DCQCN").value for chain in found if chain.link("DCQCN").state is State.OK)
    if len(values) < 2:
        return tuple(found)
    usual = values.most_common(1)[0][0]
    marked = []
    for chain in found:
        link = chain.link("DCQCN")
        if link.state is State.OK and link.value != usual:
            odd = replace(
                link, state=State.BROKEN, minor=True, expected=f"{usual}, as on the other ports",
                says=f"DCQCN runs with {link.value}, on most ports of this node with {usual}",
                fix="compare /sys/class/net/IF/ecn/roce_rp of the ports, and make them equal",
            )  # fmt: skip
            chain = replace(chain, links=tuple(odd if one is link else one for one in chain.links))
        marked.append(chain)
    return tuple(marked)

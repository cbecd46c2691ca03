"""The RoCE chain of a port: from its interface to its congestion control.

Each link has its value, its record and its state. A later link is relevant only if the earlier ones are healthy, so the
first broken link is the fault of the port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.evidence.document import EvidenceError, with_subject
from preflight.facts import rdma_ports
from preflight.facts.collection_hint import collection_hint
from preflight.facts.roce_chain.model import Chain, ChainLink, Place, RocePolicy, State, Want

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts
    from preflight.facts.rdma_ports import Port

__all__ = ["ADDRESSING", "SERVICE", "Chain", "ChainLink", "RocePolicy", "State", "Want", "chains"]

Step = Callable[[Place, str], ChainLink]


def _step(module: str, function: str) -> Step:
    """Return a function that imports its module when called.

    This saves the import on nodes without a RoCE port.
    """

    def take(at: Place, name: str) -> ChainLink:
        found: Step = getattr(import_module(f"preflight.facts.{module}"), function)
        return found(at, name)

    return take


#: Links that any RoCE port needs, in order.
ADDRESSING: Mapping[str, Step] = {
    "interface": _step("roce_chain.addressing", "interface"),
    "address": _step("roce_chain.addressing", "address"),
    "MTU": _step("roce_chain.addressing", "mtu"),
    "active MTU": _step("roce_chain.addressing", "active_mtu"),
    "GID": _step("roce_chain.addressing", "gid"),
}

#: Links that make a fabric lossless, in order.
SERVICE: Mapping[str, Step] = {
    "trust": _step("roce_chain.marking", "trust"),
    "traffic class": _step("roce_chain.marking", "traffic_class"),
    "DSCP": _step("roce_chain.marking", "dscp"),
    "priority": _step("roce_chain.marking", "priority"),
    "PFC": _step("roce_chain.flow_control", "pfc"),
    "ECN": _step("roce_chain.flow_control", "ecn"),
    "CNP": _step("roce_chain.flow_control", "cnp"),
    "global pause": _step("roce_chain.flow_control", "pause"),
    "buffers": _step("roce_chain.flow_control", "buffers"),
    "DCBX": _step("roce_chain.flow_control", "dcbx"),
    "DCQCN": _step("roce_chain.flow_control", "dcqcn"),
}


def chains(node: NodeFacts, ports: Sequence[Port], policy: RocePolicy) -> tuple[Chain, ...]:
    """Return the chains of these active RoCE ports; cached for the node.

    Checks of a node and of the fleet need the same chains.
    """
    known: list[tuple[tuple[Port, ...], RocePolicy, tuple[Chain, ...]]] = node.__dict__.setdefault("_chains", [])
    for its_ports, its_policy, made in known:
        if its_ports == tuple(ports) and its_policy == policy:
            return made
    made = _with_odd_ones([_chain(Place(node, port, policy)) for port in ports])
    known.append((tuple(ports), policy, made))
    return made


def _chain(at: Place) -> Chain:
    links = [_tried(at, name, step) for name, step in ADDRESSING.items()]
    if at.priority is not None:
        links += [_of_bond(at, name, step) for name, step in SERVICE.items()]
    else:
        why = "whether the fabric is lossless is not declared"
        if at.policy.lossless.value is not None:
            why = f"lossy by design ({at.policy.lossless.source})"
        links += [ChainLink(name, State.APART, reason=why) for name in SERVICE]
    return Chain(at.port, tuple(links), at.inferred)


def _of_bond(at: Place, name: str, step: Step) -> ChainLink:
    """Judge a link on each interface of a bond; return the worst result.

    A port without a bond is judged once.
    """
    try:
        slaves = at.slaves
    except EvidenceError as error:
        return ChainLink(name, State.UNKNOWN, reason=str(error), evidence=(error.key,))
    if not slaves:
        return _tried(at, name, step)
    found = {slave: _tried(at.of_slave(slave), name, step) for slave in slaves}
    worst = next(state for state in _WORST if any(link.state is state for link in found.values()))
    of = [slave for slave, link in found.items() if link.state is worst]
    link = found[of[0]]
    keys = tuple(dict.fromkeys(key for slave in of for key in found[slave].evidence))
    where = f"{', '.join(of)} of {at.netdev}: " if link.reason and len(of) < len(slaves) else ""
    return replace(link, reason=f"{where}{link.reason}", evidence=keys)


#: States from worst to best; the worst interface of a bond decides.
_WORST = (State.BROKEN, State.UNKNOWN, State.OK, State.APART)


def _tried(at: Place, name: str, step: Step) -> ChainLink:
    try:
        return step(at, name)
    except EvidenceError as error:
        kind, _, target = error.key.partition(":")
        named = error.why.startswith(target)
        why = error.why if named else with_subject(target if kind == "cmd" else "the record", error.why)
        why = why.removeprefix("the record: ")
        if at.netdev:  # replaced, so that ports with the same gap have the same text
            why = why.replace(at.netdev, "IF")
        fix = _learn(at, name, error.key)
        if name not in ADDRESSING and rdma_ports.is_virtual_function(at.evidence, at.port.device):
            why, fix = "a virtual function: its host sets the quality of service", "run preflight on its host"
        if name not in ADDRESSING and _is_software(at):
            why, fix = "a software device, whose quality of service is set on the NIC below it", f"`dcb` of {at.netdev}"
        return ChainLink(name, State.UNKNOWN, reason=why, evidence=(error.key,), fix=fix)


def _is_software(at: Place) -> bool:
    try:
        return rdma_ports.is_software(at.evidence, at.port.device)
    except EvidenceError:
        return False


def _learn(at: Place, name: str, key: str) -> str:
    """Return how to collect a missing value; empty if no way is known."""
    status = at.evidence.record(key).status if key in at.evidence.records else "missing"
    if status == "ok" and name == "active MTU":
        return "see rdma.device-nodes: `ibv_devinfo` lists only devices that it can open"
    hangs = status in ("timeout", "abandoned", "not-run")
    if hangs or (name in _TOOLS and status not in ("ok", "missing")):
        return collection_hint(key, at.evidence)
    return _LEARN.get(name, "")


#: Links that depend on one tool, whose error determines the advice.
_TOOLS = ("active MTU", "global pause")

_LEARN = {
    "active MTU": "install `ibv_devinfo` (package ibverbs-utils, or rdma-core)",
    "GID": "run `show_gids` on the node",
    "global pause": "install `ethtool` on the node",
    **dict.fromkeys(
        ("traffic class", "DSCP"),
        "if jobs set it themselves, declare it in the cluster file (qos.traffic_class = 106); "
        "otherwise set NCCL_IB_TC=106 in /etc/nccl.conf",
    ),
    **dict.fromkeys(
        ("trust", "priority", "PFC", "buffers", "DCBX"),
        "install iproute2's `dcb`, or run with --sudo for `mlnx_qos`; on a virtual function, run preflight on its host",
    ),
    **dict.fromkeys(
        ("ECN", "CNP", "DCQCN"),
        "only the vendor's driver (MLNX_OFED, DOCA) shows it to all users; the upstream driver shows part of it to "
        "root: run as root, or query ROCE_CC_PRIO_MASK with `mlxconfig`",
    ),
}


def _with_odd_ones(found: Sequence[Chain]) -> tuple[Chain, ...]:
    """Mark ports whose DCQCN parameters differ from those of most ports of the node."""
    values = Counter(chain.link("DCQCN").value for chain in found if chain.link("DCQCN").state is State.OK)
    if len(values) < 2:
        return tuple(found)
    usual = values.most_common(1)[0][0]
    marked = []
    for chain in found:
        link = chain.link("DCQCN")
        if link.state is State.OK and link.value != usual:
            odd = replace(
                link, state=State.BROKEN, minor=True, expected=f"{usual}, like the other ports",
                reason=f"DCQCN runs with {link.value}, but with {usual} on most ports of this node",
                fix="compare /sys/class/net/IF/ecn/roce_rp of the ports, and set equal values",
            )  # fmt: skip
            chain = replace(chain, links=tuple(odd if one is link else one for one in chain.links))
        marked.append(chain)
    return tuple(marked)

"""Values of a class: those of most of its nodes, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.expectations.catalogue import Part
from preflight.facts.majority import near, vote
from preflight.learn.node_values import NodeValues
from preflight.nodeset import fold, is_name, unfold

#: Usual minimum MTUs of a training fabric: the largest RDMA MTU, and the Ethernet MTU that it needs.
LEAST_MTU, LEAST_NETDEV_MTU = 4096, 4200


@dataclass(frozen=True)
class Value:
    """One key of a class: its value, or None and why it was not learnt."""

    table: str  # "", ports, qos, checkpoint
    key: str
    written: str  # as TOML
    comment: str  # its source, or why it was not learnt
    learnt: bool
    odd: tuple[str, ...] = ()  # nodes with a different value


@dataclass(frozen=True)
class _Key:
    table: str
    key: str
    read: Callable[[NodeValues], Any]
    source: str  # where nodes show it
    wrong: Callable[[Any, Part | None], str] = lambda value, part: ""  # why a value must not become the norm
    tolerance: float = 0.0  # relative tolerance of numbers


def _too_few(value: Any, part: Part | None) -> str:
    if part is None or part.gpus is None or value >= part.gpus:
        return ""
    return f"below the {part.gpus} that a {part.name} has ({part.source})"


def _too_slow(value: Any, part: Part | None) -> str:
    if part is None or part.compute_rate_gbps is None or value >= part.compute_rate_gbps:
        return ""
    return f"below the usual {part.compute_rate_gbps:g} Gb/s of a {part.name} ({part.source})"


def _small(least: int, why: str) -> Callable[[Any, Part | None], str]:
    return lambda value, part: f"below {least}, {why}" if value < least else ""


def _folded(devices: tuple[str, ...] | None) -> str | list[str] | None:
    """Fold device names: ``mlx5_[0,3-6]``."""
    if not devices or not all(map(is_name, devices)):
        return None
    folded = fold(devices)
    return folded if set(unfold(folded)) == set(devices) else list(devices)


_SWAPS = "a job that swaps slows all others; declare it if intended"

KEYS = (
    _Key("", "gpus", lambda one: one.gpus or None, "/sys/bus/pci/devices", _too_few),
    _Key("", "hcas", lambda one: len(one.compute) if one.compute else None, "/sys/class/infiniband"),
    _Key("ports", "compute", lambda one: _folded(one.compute), "/sys/class/infiniband, nvidia-smi topo -m"),
    _Key("ports", "link_layer", lambda one: one.link_layer, "/sys/class/infiniband/*/ports/*/link_layer"),
    _Key("ports", "rate_gbps", lambda one: one.rate_gbps, "/sys/class/infiniband/*/ports/*/rate", _too_slow),
    _Key("ports", "mtu", lambda one: one.mtu, "ibv_devinfo",
         _small(LEAST_MTU, "the largest RDMA MTU, usual for training fabrics")),
    _Key("ports", "netdev_mtu", lambda one: one.netdev_mtu, "/sys/class/net/*/mtu",
         _small(LEAST_NETDEV_MTU, "which an RDMA MTU of 4096 needs")),
    _Key("ports", "point_to_point", lambda one: one.point_to_point, "ip addr"),
    _Key("host", "memory_gib", lambda node: node.memory_gib, "/proc/meminfo", tolerance=0.01),
    _Key("host", "cpus", lambda node: node.cpus, "/sys/devices/system/cpu/online"),
    _Key("host", "smt", lambda node: node.smt, "/sys/devices/system/cpu/smt/control"),
    _Key("host", "numa_nodes", lambda node: node.numa_nodes, "/sys/devices/system/node"),
    _Key("host", "nvme", lambda node: node.nvme, "/sys/class/nvme"),
    _Key("host", "swap", lambda node: node.swap, "/proc/swaps", lambda value, part: _SWAPS if value else ""),
    _Key("checkpoint", "path", lambda one: one.checkpoints, "the evidence, which lists its checkpoints"),
    _Key("checkpoint", "interval_min", lambda one: one.interval_min, "times of the existing checkpoints"),
)  # fmt: skip


def values(members: Sequence[NodeValues], part: Part | None) -> Iterator[Value]:
    """Yield the values of a class in file order; keys that no node shows are absent."""
    for key in KEYS:
        found = _value(key, members, _of_each_port(part, members) if key.key == "rate_gbps" else part)
        if found is not None:
            yield found
    yield from _qos(members)
    yield from _mounts(members)


def _of_each_port(part: Part | None, members: Sequence[NodeValues]) -> Part | None:
    """Return the part with the usual rate of one port, if each GPU has several.

    If the nodes differ in their number of ports per GPU, the part is returned unchanged.
    """
    shares = {len(one.compute or ()) / one.gpus for one in members if one.gpus}
    share = shares.pop() if len(shares) == 1 else 0.0
    if part is None or part.compute_rate_gbps is None or share < 2 or share % 1:
        return part
    return replace(part, compute_rate_gbps=part.compute_rate_gbps / share)


def _value(key: _Key, members: Sequence[NodeValues], part: Part | None) -> Value | None:
    raw = {one.node: value for one in members if (value := key.read(one)) is not None}
    if not raw:
        return None
    if key.tolerance:
        raw = {node: float(f"{value:.5g}") for node, value in near(raw, key.tolerance).items()}
    toml_values = {node: written(value) for node, value in raw.items()}
    missed = {one.node: one.missed[key.key] for one in members if one.node in raw and key.key in one.missed}
    voting = {node: value for node, value in toml_values.items() if node not in missed}
    found = vote((voting or toml_values).items())
    if found.usual is None:
        return Value(key.table, key.key, "", f"no majority: {found.listed}", False)
    value = next(value for node, value in raw.items() if toml_values[node] == found.usual)
    odd = tuple(node for node, one in toml_values.items() if one != found.usual)
    share = f"{len(found.holders)} of {len(members)} nodes"
    reason = key.wrong(value, part)
    if not voting and not reason:
        reason = f"each of them fails {' or '.join(sorted({check for by in missed.values() for check in by}))}"
    if reason:
        return Value(key.table, key.key, found.usual, f"{share} have it: {reason}", False, odd)
    if missed:
        share += f", {len(missed)} without a vote because they fail its check"
    return Value(key.table, key.key, found.usual, f"{share}; {key.source}", True, odd)


def _qos(members: Sequence[NodeValues]) -> Iterator[Value]:
    """Yield the RoCE settings; a lack of PFC is not learnt, because it may be a fault."""
    shown = {one.node: one.pfc for one in members if one.pfc is not None}
    if not shown:
        return
    voting = {one.node: shown[one.node] for one in members if one.node in shown and "pfc" not in one.missed} or shown
    found = vote((node, written(list(pfc))) for node, pfc in voting.items())
    if found.usual is None:
        yield Value("qos", "lossless", "", f"no majority of priorities with PFC: {found.listed}", False)
        return
    usual = next(pfc for node, pfc in voting.items() if node in found.holders)
    odd = tuple(node for nodes in found.odd.values() for node in nodes)
    share = f"{len(found.holders)} of {len(members)} nodes"
    if len(usual) != 1:
        what = f"PFC on for {', '.join(map(str, usual))}" if usual else "no PFC"
        why = f"{share} have {what}: a lossless fabric uses one priority; set false if the fabric is lossy by design"
        yield Value("qos", "lossless", "", why, False, odd)
        return
    yield Value("qos", "lossless", "true", f"{share} have PFC on one priority", True, odd)
    yield Value("qos", "pfc_priority", str(usual[0]), f"{share}; dcb pfc show, mlnx_qos", True, odd)
    for key, read, source in (("ecn", lambda one: one.ecn, "/sys/class/net/*/ecn"),
                              ("trust", lambda one: one.trust, "dcb app show, mlnx_qos"),
                              ("dcbx", lambda one: one.dcbx, "dcb dcbx show, mlnx_qos")):  # fmt: skip
        value = _value(_Key("qos", key, read, source, _unmarked), members, None)
        if value is not None:
            yield value


def _of_mount(place: str, which: int) -> Callable[[NodeValues], Any]:
    return lambda node: node.mounts[place][which] if place in node.mounts else None


def _mounts(members: Sequence[NodeValues]) -> Iterator[Value]:
    """Yield the network storage that the majority of nodes mounts."""
    places = sorted({place for member in members for place in member.mounts})
    for place in places:
        has = vote((member.node, str(place in member.mounts)) for member in members)
        if has.usual != "True":
            continue
        table = f"host.mounts.{written(place)}"
        for key, which in (("type", 0), ("read_write", 1)):
            read = _Key(table, key, _of_mount(place, which), "/proc/self/mountinfo")
            if (value := _value(read, members, None)) is not None:
                without = (
                    tuple(member.node for member in members if place not in member.mounts) if key == "type" else ()
                )
                yield replace(value, odd=(*value.odd, *without))


def _unmarked(value: Any, part: Part | None) -> str:
    """Return why a value must not become a lossless fabric's norm; empty if it may."""
    if value is False:
        return "without ECN only PFC remains, which stops complete paths; declare it if intended"
    return ""


def written(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:.12g}"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")  # else ASCII; JSON's escapes are TOML's
    return "[" + ", ".join(written(one) for one in value) + "]"

"""What is wrong with an output of RDMA ports and NICs, as far as it shows by itself.

These are checks like all others, but their evidence is what was read: the record ``read:KIND``. A rule
fails only what is wrong on any machine: a pasted output does not show which ports a job uses, so that a port
that is down or slow beside others is unknown, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Check, Finding, check, failed, passed, unknown, warned
from preflight.recognition.evidence_adapter import read_facts

#: Kinds that show ports.
_PORTS = ("ibstat", "ibstatus", "ibv_devinfo", "rdma link")

#: PFC on more priorities than this does not fit the buffers of a NIC (formats of mlnx_qos; ConnectX headroom).
_LOSSLESS_MOST = 2


def _up(port: Mapping[str, Any]) -> bool:
    return str(port["state"] or "").upper().endswith("ACTIVE")


@check(
    "rdma.port-state",
    title="An RDMA port that has a link is active",
    source="port states of the InfiniBand architecture specification, 14.2.5.6",
    fix="Initializing: see that a subnet manager runs (`sminfo`); all down: cables, switch ports, `ip link`.",
)
def port_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for ports with a link that no subnet manager has brought up, and for outputs without any active port.

    Without an active port NCCL falls back to TCP and says so only in its log.

    A port that is down beside active ones may be a spare one: which ports a job uses is not in the text, so it is
    unknown.
    """
    for key, facts in read_facts(node, *_PORTS):
        ports = [port for port in facts["ports"] if port["state"]]
        blank = [port for port in facts["ports"] if not port["state"]] if ports else []
        if retraining := [port for port in ports if _up(port) and _RETRAINS.fullmatch(str(port["physical_state"]))]:
            yield warned(f"{_listed(retraining, _state)}: the link is being recovered from errors",
                         found=_states(retraining), expected="Active/LinkUp", evidence=[key])  # fmt: skip
        waiting = [port for port in ports if re.fullmatch(r"(?i)INIT(?:IALIZING)?", port["state"]) and _has_link(port)]
        if waiting:
            names = ", ".join(map(_name, waiting))
            yield failed(
                f"{names}: the cable has a link, and no subnet manager has brought the port up",
                found="Initializing", expected="Active", evidence=[key],
            )  # fmt: skip
        elif ports and not any(map(_up, ports)) and node.evidence.record(key).ok:  # else others may have stood there
            yield failed(f"none of {len(ports)} RDMA ports is active ({_states(ports)})", found="0", evidence=[key])
        elif down := [port for port in ports if not _up(port)]:
            if len(down) < len(ports):
                yield _not_known(
                    f"{_listed(down, _state)}, beside {len(ports) - len(down)} active", down,
                    found=_states(down), expected="Active/LinkUp", evidence=[key],
                )  # fmt: skip
        elif blank:
            names = ", ".join(map(_name, blank[:_NAMED]))
            yield unknown(f"{len(ports)} of {len(facts['ports'])} RDMA ports are active; the text lacks the state of "
                          f"{names}", fix="Give the complete output.", evidence=[key])  # fmt: skip
        elif ports and not retraining:
            yield passed(f"{len(ports)} of {len(ports)} RDMA ports are active", evidence=[key])


#: Physical states of a link that is active and retrains.
_RETRAINS = re.compile(r"(?i)link_?error_?recovery")


@check(
    "rdma.port-rate",
    title="Active ports of one link layer run at one rate",
    source="InfiniBand architecture specification: a link trains to the most that both ends can",
    fix="Reseat or replace the cable, then compare with the switch port.",
)
def port_rate(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the rates of active ports with the fastest of the same link layer.

    A port that trained at fewer lanes or a lower speed is still active; every ring through it runs at its pace.

    A storage or management port may be slower by design, which the text does not show: unknown. Equal rates are no
    pass: all may be too slow.
    """
    for key, facts in read_facts(node, *_PORTS):
        best: dict[str | None, float] = {}
        active = [port for port in facts["ports"] if port["state"] and _up(port) and port["rate_gbps"]]
        for port in active:
            best[port["link_layer"]] = max(port["rate_gbps"], best.get(port["link_layer"], 0.0))
        slow = [port for port in active if port["rate_gbps"] < best[port["link_layer"]]]
        for layer in dict.fromkeys(port["link_layer"] for port in slow):
            alike, most = [port for port in slow if port["link_layer"] == layer], f"{best[layer]:g} Gb/s"
            rates = ", ".join(dict.fromkeys(map(_rate, alike)))
            yield _not_known(
                f"{_listed(alike, _rate)}, others of its link layer at {most}", alike,
                found=rates, expected=most, evidence=[key],
            )  # fmt: skip


#: Ports that a message names.
_NAMED = 8


def _not_known(what: str, ports: Sequence[Mapping[str, Any]], **details: Any) -> Finding:
    """Return the finding of ports that would be at fault if a job used them."""
    subject = _name(ports[0]) if len(ports) == 1 else ""
    fix = "`preflight check` on the node knows the job's ports; or see whether they are spare, or for storage."
    uses = "it" if len(ports) == 1 else "them"
    return unknown(f"{what}; the text does not show whether a job uses {uses}", subject=subject, fix=fix, **details)


def _name(port: Mapping[str, Any]) -> str:
    return f"{port['device']} port {port['port']}"


def _state(port: Mapping[str, Any]) -> str:
    return "/".join(str(port[name]) for name in ("state", "physical_state") if port[name])


def _rate(port: Mapping[str, Any]) -> str:
    return f"{port['rate_gbps']:g} Gb/s"


def _states(ports: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(set(map(_state, ports))))


def _listed(ports: Sequence[Mapping[str, Any]], what: Callable[[Mapping[str, Any]], str]) -> str:
    more = f" and {len(ports) - _NAMED} more" if len(ports) > _NAMED else ""
    return ", ".join(f"{_name(port)}: {what(port)}" for port in ports[:_NAMED]) + more


def _has_link(port: Mapping[str, Any]) -> bool:
    return re.fullmatch(r"(?i)link_?up", str(port["physical_state"] or "linkup")) is not None


@check(
    "rdma.active-mtu",
    title="Active Ethernet ports carry RDMA in packets of more than 1024 bytes",
    source="Linux drivers/infiniband/core: the active MTU is the largest of 256..4096 that fits the netdev's MTU",
    fix="Set MTU 9000 (at least 4200) on the interface and on the switch port.",
)
def active_mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for active RoCE ports whose active MTU is 1024: the interface was left at MTU 1500.

    Every message then takes four times the packets, and the NIC's packet rate becomes the limit.

    A management port beside others may be meant that way: only where all ports are so, it is a warning.
    """
    for key, facts in read_facts(node, "ibv_devinfo"):
        ports = [port for port in facts["ports"] if _up(port) and not _in_software(port)]
        if any(port["link_layer"] != "Ethernet" or not port["active_mtu"] for port in ports):
            continue  # with InfiniBand beside it, Ethernet is for management
        large = [port for port in ports if port["active_mtu"] > 1024]
        if ports and not large and not node.evidence.record(key).ok:
            continue  # what was cut off may have been the fast ones
        if ports and not large:
            yield warned(f"all {len(ports)} active Ethernet ports: active MTU 1024", found="1024", expected="4096",
                         evidence=[key])  # fmt: skip
        elif ports:
            yield passed(f"{len(large)} of {len(ports)} active Ethernet ports have an active MTU above 1024",
                         evidence=[key])  # fmt: skip


#: ``vendor_id`` of Soft-RoCE and Soft-iWARP (rxe_param.h, siw.h).
_SOFTWARE = frozenset({"0xffffff", "0x626d74"})


def _in_software(port: Mapping[str, Any]) -> bool:
    """Tell whether a port's packets are made by the kernel, or are TCP's: their size is the interface's business."""
    return (
        port["vendor_id"] in _SOFTWARE
        or str(port["transport"]).startswith("iWARP")
        or re.match(r"(?:rxe|siw)", port["device"] or "") is not None
    )


_NIC = re.compile(r"(?i)(?:ethernet|infiniband|network) controller|02(?:00|07)\b")


@check(
    "pcie.nic-link",
    title="NICs have trained all their PCIe lanes at full speed",
    source="PCIe base specification: LnkCap is what the device can, LnkSta what was trained; lspci says (downgraded)",
    fix="Reseat the card or its riser, look at the slot's own width, and at the BIOS's bifurcation.",
)
def nic_link(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for network controllers whose link is below their capability.

    A 400 Gb/s port behind eight lanes of PCIe 5 gives at most half of it.

    GPUs lower their speed when they idle and are judged by their width alone, elsewhere.
    """
    for key, facts in read_facts(node, "lspci"):
        nics = [device for device in facts["devices"] if _NIC.match(device["class"] or "")]
        slow = [device for device in nics if device["link"]["downgraded"]]
        for device in slow:
            link = device["link"]
            yield warned(
                f"{device['address']} trained {link['speed']} {link['width']}", subject=device["address"],
                found=f"{link['speed']} {link['width']}", expected=f"{link['max_speed']} {link['max_width']}",
                evidence=[key],
            )  # fmt: skip
        if nics and not slow and all(device["link"]["width"] for device in nics):
            yield passed(f"{len(nics)} NICs have trained all they can", evidence=[key])


@check(
    "roce.pfc",
    title="PFC is on for no more priorities than a NIC has buffers for",
    source="mlnx_qos(8), dcb-pfc(8); RDMA over converged Ethernet runs on one lossless priority, at most two",
    fix="Leave PFC on for the one priority that RDMA uses, on both ends of the cable.",
)
def pfc(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Count the priorities with PFC.

    Headroom is kept for each of them: with more than two the buffers are too small, and packets are lost.

    PFC on none is a lossy network by design, which the text cannot tell from a forgotten setting.
    """
    for key, facts in read_facts(node, "mlnx_qos", "dcb"):
        on = [priority for priority, enabled in (facts["pfc"] or {}).items() if enabled]
        if len(on) > _LOSSLESS_MOST:
            yield warned(
                f"PFC is on for {len(on)} priorities: {', '.join(on)}", found=len(on), expected="1", evidence=[key]
            )
        elif on:
            yield passed(f"PFC is on for priority {', '.join(on)}", found=", ".join(on), evidence=[key])


@check(
    "optics.alarms",
    title="The module in a port reports no alarm",
    source="ethtool -m: alarm and warning flags of SFF-8636 and CMIS",
    fix="Clean and reseat the module or cable, look at its temperature and power; replace it if it stays.",
)
def module(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the alarm flags that the module itself raises.

    A module that is too hot or gets too little light loses symbols first, then the link.

    A single lane without light may be unused, as behind a breakout cable, and is not judged; a module without
    diagnostics shows none.
    """
    for key, facts in read_facts(node, "ethtool -m"):
        alarms = [name for name in facts["alarms"] if not re.search(r"(?i)rx power low .*\(chan", name)]
        if alarms:
            yield warned(f"the module reports: {', '.join(alarms)}", found=", ".join(alarms), evidence=[key])


RULES: tuple[Check, ...] = (port_state, port_rate, active_mtu, nic_link, pfc, module)

"""Cost of an incident for a job, estimated with the roofline of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import ceil, floor
from typing import Any

from preflight._startup.lightclass import replace
from preflight.expectations.catalogue import PARTS
from preflight.expectations.roofline.collectives import roofline
from preflight.expectations.roofline.machine import RooflineMachine, machine_of
from preflight.incidents.parts import devices, switches

#: Figures in findings that can be compared as a ratio: rates, clocks, and numbers of links or lanes.
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/s")
_MHZ = re.compile(r"(\d+) MHz")
_NUMBER = re.compile(r"x?(\d+)\b")

#: Checks whose findings state a network rate and the expected rate.
_OF_RATES = ("rdma.port-rate", "rdma.bandwidth-per-gpu", "pcie.nic-link", "fleet.rails")

#: Checks for missing HCAs: a GPU without its own HCA shares that of another GPU.
_OF_DEVICES = ("rdma.device-count", "rdma.registered")

#: Check -> pattern of its figures, and the operation slowed by their ratio.
_OF_GPUS = {
    "nvlink.links": (_NUMBER, "all-reduce in the node"),
    "gpu.clocks": (_MHZ, "compute"),
    "gpu.pcie-link": (_NUMBER, "copies between GPU and host"),
}

#: Hardware slowdown of any kind reduces the clocks by a factor of 2 or more (NVML API, nvmlClocksEventReasons).
_SLOWED = "compute at 50% or less"

Document = Mapping[str, Any]


def cost_of(
    findings: Sequence[Document], names: Sequence[str], nodes: Mapping[str, Document], gpus: int | None = None
) -> str | None:
    """Describe the rates that a job still reaches; None if no loss is known.

    ``gpus`` is the number of GPUs of all nodes, if it is known.

    A job waits for its slowest GPU, and a ring for its slowest port, so the lowest fraction of an expected rate
    decides. If NVLink is the bottleneck, as in one NVLink domain, the job loses less than the port does.
    """
    hit = [nodes[name] for name in names if name in nodes]
    if not hit:
        return None
    reduced: dict[str, float] = {}
    missing = any(finding["check"] in _OF_DEVICES and finding["status"] == "fail" for finding in findings)
    lost = _lost_ports(findings)
    down = (share for name in names if name in nodes for share in _ports_down(lost.get(name, set()), nodes[name]))
    if shares := [*(share for finding in findings for share in _network(finding)), *down]:
        share = min(shares)
        if share and missing:  # the rate is the average of the GPUs
            share = _of_one_gpu(share, hit[0])
        left = _of_roofline(share, hit[0], len(nodes)) if share else None
        reduced["all-reduce between nodes"] = share if left is None else left
    for finding in findings:
        figure, what = _OF_GPUS.get(finding["check"], (None, ""))
        for share in _share(finding["found"], finding["expected"], figure) if figure else ():
            reduced[what] = min(share, reduced.get(what, 1.0))
    for what in {what for finding in findings if (what := _without(finding))}:
        reduced.pop(what, None)  # the path that replaces it has another rate
    slowed = any(finding["check"] == "gpu.throttling" and finding["status"] == "fail" for finding in findings)
    if slowed and reduced.get("compute", 1.0) >= 0.5:
        reduced.pop("compute", None)
    costs = [
        f"{what} at about {100 * share:.0f}%" if share else f"{what} without RDMA"
        for what, share in reduced.items() if share < 1
    ]  # fmt: skip
    costs += [_SLOWED] if slowed and "compute" not in reduced else []
    here, all_of_them = sum(map(_gpus, hit)), gpus_of(nodes) if gpus is None else gpus
    ranks = [f"{here} of {all_of_them} GPUs"] if 0 < here < all_of_them else []
    return "; ".join([*ranks, *costs]) if costs else None


def _network(finding: Document) -> Iterator[float]:
    if finding["check"] not in _OF_RATES:
        return
    if finding["check"] == "fleet.rails":  # the differing ports, in the same order as those of most nodes
        rates = [_RATE.findall(str(finding[key] or "")) for key in ("found", "expected")]
        for measured, wanted in zip(*rates, strict=True) if len(rates[0]) == len(rates[1]) else ():
            yield from _share(f"{measured} Gb/s", f"{wanted} Gb/s", _RATE)
        return
    stated = _RATE.findall(str(finding["message"])) if finding["check"] == "pcie.nic-link" else []
    if len(stated) == 2:  # rates of the link and of its port; found and expected are lanes
        yield from _share(f"{stated[0]} Gb/s", f"{stated[1]} Gb/s", _RATE)
    else:
        yield from _share(finding["found"], finding["expected"], _RATE)


def _share(reading: object, expected: object, figure: re.Pattern[str]) -> Iterator[float]:
    measured, wanted = (figure.search(str(text or "")) for text in (reading, expected))
    if measured and wanted and 0 < float(measured[1]) < float(wanted[1]):
        yield float(measured[1]) / float(wanted[1])


def _without(finding: Document) -> str:
    """Return the operation whose links or clock a GPU has lost entirely; may be empty."""
    figure, what = _OF_GPUS.get(finding["check"], (None, ""))
    reading = figure.search(str(finding["found"] or "")) if figure else None
    return what if reading and not float(reading[1]) else ""


def _lost_ports(findings: Iterable[Document]) -> dict[str, set[str]]:
    """Return the devices of each node whose port is down."""
    lost: dict[str, set[str]] = {}
    for finding in findings:
        if finding["check"] == "rdma.port-state" and finding["status"] == "fail":
            device = finding["subject"].rpartition(":")[0] or finding["subject"]
            for name in finding["nodes"]:
                lost.setdefault(name, set()).add(device)
    return lost


def _ports_down(down: Set[str], node: Document) -> Iterator[float]:
    """Yield the fraction of its port bandwidth that a GPU still has if ports are down."""
    ports = sum(nic["compute"] for nic in devices(node, "nics"))
    left = ports - len(down)
    if down and ports and left <= 0:
        yield 0.0
    elif 0 < left < ports <= _gpus(node):
        yield 1 / ceil(ports / left)
    elif 0 < left < ports:
        yield min((share for switch in switches(node) for share in _at_switch(switch, down)), default=left / ports)


def _at_switch(switch: Document, down: Set[str]) -> Iterator[float]:
    """Yield the fraction left to a GPU that has several of the NICs at its switch."""
    nics = [nic["name"] for nic in switch["nics"] if nic["compute"]]
    lost, gpus = len(down & set(nics)), len(switch["gpus"])
    if lost and gpus:
        yield max(1 - ceil(lost / gpus) * gpus / len(nics), 0.5 if lost == len(nics) else 0.0)


def _of_one_gpu(share: float, node: Document) -> float:
    """Return the fraction left to the worst-off GPU if HCAs are missing.

    A GPU without an HCA of its own shares that of another GPU.
    """
    present = sum(nic["compute"] for nic in devices(node, "nics"))
    of_gpu = max(1, round(present / share / max(1, _gpus(node))))
    left = floor(share * of_gpu + 1e-9)
    return left / of_gpu if left else 1 / ceil(1 / share)


def _of_roofline(share: float, node: Document, count: int) -> float | None:
    """Return the remaining fraction of an all-reduce's usual bus bandwidth, or None.

    The all-reduce is over ``count`` nodes, and ``share`` is the remaining fraction of the NIC rate. None if the
    bandwidth of the node is unknown.
    """
    machine = _machine(node)
    if machine is None or machine.nic_gbps is None:
        return None
    healthy = roofline("all_reduce", machine, max(2, count))
    less = roofline("all_reduce", replace(machine, nic_gbps=machine.nic_gbps * share), max(2, count))
    return less.customary / healthy.customary if healthy and less else None


def _machine(node: Document) -> RooflineMachine | None:
    part = next((part for part in PARTS if part.name == node.get("part")), None)
    nics = [nic for nic in devices(node, "nics") if nic["compute"]]
    rates = [float(rate[1]) for nic in nics if (rate := _RATE.search(nic["label"]))]
    return machine_of(part, _gpus(node) or None, len(nics), max(rates)) if part and rates else None


def gpus_of(nodes: Mapping[str, Document]) -> int:
    """Return the number of GPUs of all nodes."""
    return sum(map(_gpus, nodes.values()))


def _gpus(node: Document) -> int:
    return sum(1 for _ in devices(node, "gpus"))

"""What an incident costs a job, estimated from the roofline of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import replace
from preflight.expectations.catalogue import PARTS
from preflight.expectations.roofline.collectives import roofline
from preflight.expectations.roofline.machine import RooflineMachine, machine_of
from preflight.incidents.parts import devices

#: A rate, as findings state it.
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/s")

#: Checks that state a rate of the network and the expected one.
_OF_RATES = ("rdma.port-rate", "rdma.bandwidth-per-gpu", "pcie.nic-link")

Document = Mapping[str, Any]


def cost_of(findings: Iterable[Document], names: Sequence[str], nodes: Mapping[str, Document]) -> str | None:
    """Return the share of its rate that a collective reaches; None: not known.

    A ring waits for its slowest port, so the least share of an expected rate counts. Where NVLink binds before the
    NICs do, as in one NVLink domain, less is lost than the port lacks.
    """
    shares = [share for finding in findings if finding["check"] in _OF_RATES for share in _share(finding)]
    hit = [nodes[name] for name in names if name in nodes]
    if not shares or not hit:
        return None
    least = min(shares)
    left = _of_roofline(least, hit[0], len(nodes))
    here, all_of_them = sum(map(_gpus, hit)), sum(map(_gpus, nodes.values()))
    ranks = f"{here} of {all_of_them} GPUs; " if 0 < here < all_of_them else ""
    share = least if left is None else left
    return f"{ranks}all-reduce between nodes at about {100 * share:.0f} %" if share < 1 else None


def _share(finding: Document) -> Iterator[float]:
    measured, expected = (_RATE.search(str(finding[key] or "")) for key in ("found", "expected"))
    if measured and expected and 0 < float(measured[1]) < float(expected[1]):
        yield float(measured[1]) / float(expected[1])


def _of_roofline(share: float, node: Document, count: int) -> float | None:
    """Return the share of the customary bus bandwidth; None without a roofline."""
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


def _gpus(node: Document) -> int:
    return sum(1 for _ in devices(node, "gpus"))

"""Comparison of hosts with the same devices, in one text or in several files.

A host that differs is reported in its own part. Hosts with different devices are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from preflight.model import Finding, unknown, warned
from preflight.parsers.rdma.port_list import PortList, RdmaPort
from preflight.recognition.judges import Judge, PastedValue
from preflight.recognition.judges.lists import limited


def _by_name(listed: PortList) -> dict[str, RdmaPort]:
    return {port.name: port for port in listed.ports}


def _devices(listed: PortList) -> dict[str, Any]:
    return {port.name: port.other.get("ca_type") for port in listed.ports}


def _alike(part: PastedValue) -> list[dict[str, RdmaPort]]:
    """Return the ports by name of each other host that has the same devices."""
    if not part.others:
        return []
    own = _devices(part.value)
    return [_by_name(other) for other in part.others if own and _devices(other) == own]


def _rates(ports: Mapping[str, RdmaPort]) -> Counter[float]:
    return Counter(port.rate_gbps for port in ports.values() if port.logical == "ACTIVE" and port.rate_gbps)


@limited
def port_states(part: PastedValue) -> Iterator[Finding]:
    """Warn of ports that are not active here, but are on every other host."""
    others = _alike(part)
    for name, port in _by_name(part.value).items() if others else ():
        if port.logical not in ("", "ACTIVE") and all(host[name].logical == "ACTIVE" for host in others):
            yield warned(f"{name} is {port.state_shown}, but active {_place(len(others), part)}",
                         subject=name, found=port.state_shown, expected="active, as on each other host",
                         evidence=part.evidence)  # fmt: skip


@limited
def port_rates(part: PastedValue) -> Iterator[Finding]:
    """Warn of active ports that are slower than on most other hosts.

    Hosts may number their devices differently: the same rates in a different order count as equal.
    """
    others = _alike(part)
    if not others:
        return
    own = _by_name(part.value)
    if 2 * sum(_rates(host) == _rates(own) for host in others) >= len(others):
        return
    for name, port in own.items():
        if port.logical != "ACTIVE" or not port.rate_gbps:
            continue
        rates = Counter(host[name].rate_gbps for host in others if host[name].logical == "ACTIVE")
        usual, number = max(rates.items(), key=lambda item: (item[1], item[0] or 0), default=(None, 0))
        if usual and port.rate_gbps < usual:
            yield warned(f"{name} runs at {port.rate_gbps:g} Gb/s, but at {usual:g} {_place(number, part)}",
                         subject=name, found=f"{port.rate_gbps:g} Gb/s", expected=f"{usual:g} Gb/s, as on most hosts",
                         evidence=part.evidence)  # fmt: skip


def equal_values(what: str, value_of: Callable[[RdmaPort], object], fix: str) -> Judge:
    """Return a judge of a value that should be equal on all hosts.

    If two values are equally common, the right one is unknown; this is reported once.
    """

    @limited
    def compare(part: PastedValue) -> Iterator[Finding]:
        others = _alike(part)
        for name, port in _by_name(part.value).items() if others else ():
            yield from _unequal(f"{name} has {what}", name, value_of(port), [value_of(host[name]) for host in others],
                                part, fix)  # fmt: skip

    return compare


def driver(version_of: Callable[[Any], str | None]) -> Judge:
    """Return a judge of the NVIDIA driver, which should be equal on all hosts."""

    def compare(part: PastedValue) -> Iterator[Finding]:
        yield from _unequal("the NVIDIA driver is", "", version_of(part.value), map(version_of, part.others), part,
                            "Install one version on all nodes, and reboot.")  # fmt: skip

    return compare


def _unequal(
    what: str, subject: str, own: object, others: Iterable[object], part: PastedValue, fix: str
) -> Iterator[Finding]:
    values = Counter(value for value in others if value)
    if not own or not values:
        return
    usual, number = values.most_common(1)[0]
    same = values[own] + part.hosts
    if own == usual or same > number or (same == number and str(own) > str(usual)):
        return
    report = warned if same < number else unknown
    yield report(f"{what} {own}, but {usual} {_place(number, part)}", subject=subject, found=str(own),
                 expected=str(usual), evidence=part.evidence, fix=fix)  # fmt: skip


def _place(number: int, part: PastedValue) -> str:
    """Return where other values were found; unnamed files may be from one host."""
    plural = "s" if number > 1 else ""
    return f"in {number} other file{plural}" if part.files else f"on {number} other host{plural} in this text"


#: Checks, and their judges of every kind of port list.
COMPARED = (
    ("rdma.port-state", port_states),
    ("rdma.port-rate", port_rates),
    ("fleet.firmware", equal_values("firmware", lambda port: port.other.get("firmware"),
                                    "Install one release on all nodes: `mlxfwmanager`.")),
    ("fleet.mtu-equal", equal_values("an active MTU of", lambda port: port.active_mtu if port.logical == "ACTIVE"
                                     else None, "Set one MTU on all nodes and on the switches.")),
)  # fmt: skip

"""Fleets: many nodes of one kind, each with its own identifiers and small natural differences.

The differences between nodes are seeded and harmless: temperatures, light, counters' history, the clock's offset. A
healthy fleet raises nothing. Faults are planted by changing the description of a node, or records of its document.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.support.machines import evidence
from tests.support.machines.machine import Machine, Nic

#: The last unicast LID of a subnet (InfiniBand architecture specification, 4.1.1).
_LAST_LID = 0xBFFF
_FIRST_LID = 16

Fault = Callable[[Machine], Machine]


def names(count: int, stem: str = "gpu") -> list[str]:
    """Return the nodes' names: gpu001 … gpu064, with as many digits as the last one needs, at least three."""
    digits = max(3, len(str(count)))
    return [f"{stem}{number:0{digits}d}" for number in range(1, count + 1)]


def member(machine: Machine, name: str, number: int, count: int, seed: int) -> Machine:
    """Return node ``number`` (from 1) of a fleet of ``count`` nodes like this machine."""
    chance = random.Random(f"{seed}/{number}")
    gpus = tuple(_idle(machine, gpu.health, gpu, chance) for gpu in machine.gpus)
    nics = tuple(_nic(nic, place, number, count, len(machine.nics), chance) for place, nic in enumerate(machine.nics))
    return replace(
        machine, name=name, number=number, gpus=gpus, nics=nics,
        clock_offset_s=round(chance.uniform(-0.00008, 0.00008), 9),
        checkpoint_age_min=chance.randint(5, 25),
    )  # fmt: skip


def _idle(machine: Machine, health: Mapping[str, Any], gpu: Any, chance: random.Random) -> Any:
    warmer = chance.randint(-3, 3)
    usual = machine.platform.gpu
    varied: dict[str, Any] = {}
    if usual.temperature_c is not None:
        varied["temperature_c"] = usual.temperature_c + warmer
    if usual.temperature_margin_c is not None:
        varied["temperature_margin_c"] = usual.temperature_margin_c - warmer
    return replace(gpu, health={**varied, **health})


def _nic(nic: Nic, place: int, number: int, count: int, nics: int, chance: random.Random) -> Nic:
    """Give a NIC its LID: one subnet for all if the LIDs suffice, else a separate fabric for each rail."""
    last = _FIRST_LID + (count + 1) * nics
    own, prefix = _FIRST_LID + number * nics + place, nic.prefix
    if last > _LAST_LID:
        own, prefix = _FIRST_LID + number, nic.prefix + 1 + place
    stands = {"out_of_sequence": chance.randint(0, 5000), "link_downed": chance.randint(1, 9)} | dict(nic.stands)
    return replace(
        nic, ip=_address(nic.ip, number), guid=_guid(nic.guid, number), lid=own, prefix=prefix, stands=stands,
        module_c=round(nic.module_c + chance.uniform(-3, 3), 2), rx_mw=round(nic.rx_mw + chance.uniform(-0.1, 0.1), 4),
    )  # fmt: skip


def _address(ip: str | None, number: int) -> str | None:
    """Move an address of the description to the node's own block: 65,536 addresses further."""
    if not ip:
        return ip
    one = ipaddress.IPv4Interface(ip)
    return f"{one.ip + (number << 16)}/{one.network.prefixlen}"


def _guid(guid: str, number: int) -> str:
    """Change a GUID of the description; a GUID of zeros stays."""
    if not guid.strip("0:"):
        return guid
    digits = f"{int(guid.replace(':', ''), 16) ^ number << 20:016x}"
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def machines(machine: Machine, count: int, seed: int = 1, stem: str = "gpu") -> Iterator[Machine]:
    """Yield the descriptions of a healthy fleet."""
    for number, name in enumerate(names(count, stem), start=1):
        yield member(machine, name, number, count, seed)


def fleet(
    machine: Machine, count: int, seed: int = 1, faults: Mapping[str, Fault] | None = None, stem: str = "gpu"
) -> Iterator[dict[str, Any]]:
    """Yield the Evidence documents of a fleet of ``count`` nodes like ``machine``, one by one.

    ``faults``: node name -> the change of its description. The same arguments give the same documents; 10,000 of
    them take two minutes and are never in memory together.
    """
    for one in machines(machine, count, seed, stem):
        yield evidence((faults or {}).get(one.name, _healthy)(one))


def _healthy(machine: Machine) -> Machine:
    return machine

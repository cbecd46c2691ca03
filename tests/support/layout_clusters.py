"""Saved evidence of clusters with known leaves and NVLink domains, for `preflight plan`. Made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from preflight.facts.nvidia.model import GpuFabric
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.fleet import machines
from tests.support.machines.gb200 import gb200_tray
from tests.support.machines.lldp import LLDP

#: Leaf of a node's rail: (number of the node, from 0; rail) -> name.
LeafOf = Callable[[int, int], str]


def rail_leaves(unit: int) -> LeafOf:
    """One leaf for each rail of each ``unit`` nodes."""
    return lambda node, rail: f"leaf-u{node // unit}r{rail}"


def node_leaves(unit: int) -> LeafOf:
    """All NICs of ``unit`` nodes on one leaf."""
    return lambda node, rail: f"leaf-{node // unit}"


def roce(folder: Path, count: int, leaf_of: LeafOf) -> Path:
    """Write nodes with eight H100 and RoCE, whose NICs see their leaf by LLDP."""
    documents = enumerate(_documents(hgx_h100("x", roce=True), count))
    return _written(folder, (_heard(document, number, leaf_of) for number, document in documents))


def infiniband(folder: Path, count: int, leaf_of: LeafOf) -> Path:
    """Write nodes with eight H100 and InfiniBand; the first one has a sweep of the fabric."""
    documents = list(_documents(hgx_h100("x"), count))
    documents[0]["records"]["cmd:ibnetdiscover"] = {
        "status": "ok", "rc": 0, "out": _sweep(documents, leaf_of), "err": "", "duration_s": 0.5,
    }  # fmt: skip
    return _written(folder, documents)


def nvl72(folder: Path, racks: int, trays: int = 18, named: Callable[[int, int], str] | None = None) -> Path:
    """Write trays of GB200 racks; ``named`` returns a tray's name from its rack and number."""

    def documents() -> Iterator[dict[str, Any]]:
        for number, machine in enumerate(machines(gb200_tray("x"), racks * trays)):
            rack, tray = divmod(number, trays)
            fabric = GpuFabric("Completed", "Success", (), 1, f"{rack + 1:08x}-0000-0000-0000-000000000072")
            gpus = tuple(replace(gpu, health={**gpu.health, "fabric": fabric}) for gpu in machine.gpus)
            name = named(rack, tray) if named else f"rack{rack:02d}-tray{tray:02d}"
            yield evidence(replace(machine, gpus=gpus, name=name))

    return _written(folder, documents())


def _documents(machine: Machine, count: int) -> Iterator[dict[str, Any]]:
    return (evidence(own) for own in machines(machine, count))


def _heard(document: dict[str, Any], number: int, leaf_of: LeafOf) -> dict[str, Any]:
    record = document["records"][LLDP]
    heard = json.loads(record["out"])
    for rail, entry in enumerate(heard["lldp"][0]["interface"]):
        entry["chassis"][0]["name"][0]["value"] = leaf_of(number, rail)
        entry["port"][0]["id"][0]["value"] = f"Ethernet{number}/{rail}"
    document["records"][LLDP] = {**record, "out": json.dumps(heard)}
    return document


def _sweep(documents: list[dict[str, Any]], leaf_of: LeafOf) -> str:
    """Return ibnetdiscover's output for the compute HCAs of the nodes, one leaf level and a spine."""
    cables: dict[str, list[tuple[str, str]]] = {}
    for number, document in enumerate(documents):
        for rail, device in enumerate(_compute(document)):
            guid = document["records"][f"file:/sys/class/infiniband/{device}/node_guid"]["out"].strip().replace(":", "")
            cables.setdefault(leaf_of(number, rail), []).append((guid, f"{document['node']} {device}"))
    guid_of = {name: f"9000000000000{number:03x}" for number, name in enumerate(cables)}
    spine, lines = "9000000000000fff", list[str]()
    for name, hcas in cables.items():
        lines += ["vendid=0x2c9", "devid=0xd2f0", f"switchguid=0x{guid_of[name]}({guid_of[name]})",
                  f'Switch\t64 "S-{guid_of[name]}"\t\t# "{name}" enhanced port 0 lid 1 lmc 0']  # fmt: skip
        lines += [f'[{port}]\t"H-{guid}"[1]({guid})\t\t# "{what}" lid 9 4xNDR'
                  for port, (guid, what) in enumerate(hcas, start=1)]  # fmt: skip
        lines += [f'[60]\t"S-{spine}"[{list(cables).index(name) + 1}]\t\t# "spine" lid 2 4xNDR', ""]
    lines += ["vendid=0x2c9", "devid=0xd2f0", f"switchguid=0x{spine}({spine})",
              f'Switch\t64 "S-{spine}"\t\t# "spine" enhanced port 0 lid 2 lmc 0']  # fmt: skip
    lines += [
        f'[{port}]\t"S-{guid_of[name]}"[60]\t\t# "{name}" lid 1 4xNDR' for port, name in enumerate(cables, start=1)
    ]
    for name, hcas in cables.items():
        for port, (guid, what) in enumerate(hcas, start=1):
            lines += ["", "vendid=0x2c9", "devid=0x1021", f"caguid=0x{guid}", f'Ca\t1 "H-{guid}"\t\t# "{what}"',
                      f'[1]({guid}) \t"S-{guid_of[name]}"[{port}]\t\t# lid 9 lmc 0 "{name}" lid 1 4xNDR']  # fmt: skip
    return "\n".join(lines) + "\n"


def _compute(document: dict[str, Any]) -> list[str]:
    """Return the HCAs near a GPU, in the order of the GPUs, as in the machine's description."""
    machine = hgx_h100("x")
    near = [nic for nic in machine.nics if nic.gpu is not None]
    return [nic.device for nic in sorted(near, key=lambda nic: nic.gpu or 0)]


def _written(folder: Path, documents: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for document in documents:
        (folder / f"{document['node']}.json").write_text(json.dumps(document))
    return folder

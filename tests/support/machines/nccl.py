"""The collector's records on NCCL besides its environment: the files that it names, and running ranks."""

from __future__ import annotations

from typing import Any

from tests.support.machines.machine import Machine
from tests.support.machines.records import Records

NAMED = ("NCCL_CONF_FILE", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE")


def render(machine: Machine) -> Records:
    files = {name: _file(machine, name) for name in NAMED if machine.env.get(name)}
    return {
        "env:files": {"status": "ok", "value": files},
        "env:ranks": {"status": "ok", "value": {"environments": [], "denied": 0, "cut": False}},
    }


def _file(machine: Machine, name: str) -> dict[str, Any]:
    found = {"status": "ok", "path": machine.env[name], "type": "file", "access": "r", "folder_access": "r"}
    return found | ({"out": topology(machine)} if name == "NCCL_TOPO_FILE" else {})


def topology(machine: Machine) -> str:
    """Return a topology file in NCCL's form, with the GPUs of the machine."""
    gpus = "".join(
        f'    <pci busid="{gpu.address}" class="0x030200" link_speed="16 GT/s" link_width="16"/>\n'
        for gpu in machine.gpus
    )
    return f'<system version="1">\n  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">\n{gpus}  </cpu>\n</system>\n'

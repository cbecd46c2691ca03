"""Machines made by hand: whole-node evidence rendered from a description of the hardware.

Every text is written in the documented format of the tool (`nvidia-smi topo -m`, `ibstat`, `ibv_devinfo`, sysfs ABI,
dcb(8), mlnx_qos); the wiring follows the DGX H100 user guide, that of other nodes the sources that their modules name.
Nothing here was recorded on hardware, as every document states in its ``origin``. A fault is a change of the
description, so all tools of a sick node agree with each other as they would on a real one.

``python -m tests.support.machines`` writes ``fixtures/nodes`` and ``preflight/demo``; a test compares them.
"""

from __future__ import annotations

from typing import Any

from tests.support.machines import (
    bus,
    counters,
    gpus,
    hcas,
    host,
    inventory,
    kernel,
    lldp,
    nccl,
    network,
    optics,
    settings,
    system,
)
from tests.support.machines.hcas import active_mtu
from tests.support.machines.machine import Gpu, Machine, Nic, hgx_h100, one_pair, with_gpu, with_nic
from tests.support.machines.platform import Platform
from tests.support.machines.records import Records

__all__ = ["Gpu", "Machine", "Nic", "active_mtu", "evidence", "hgx_h100", "one_pair", "with_gpu", "with_nic"]


def origin(platform: Platform) -> str:
    """Return the origin of a document."""
    return (
        "made by hand: rendered from a description of the hardware in the documented formats of each tool; "
        f"{platform.origin}; nothing was recorded on hardware"
    )


ORIGIN = origin(Platform())
COLLECTED_AT = "2026-11-21T03:00:00Z"


def evidence(machine: Machine) -> dict[str, Any]:
    """Render the machine's Evidence document."""
    records: Records = {}
    renderers = (
        bus.render,
        gpus.render,
        hcas.render_sysfs,
        hcas.render_tools,
        counters.render,
        optics.render,
        network.render,
        lldp.render,
        host.render,
        kernel.render,
        system.render,
        inventory.render,
        settings.render,
        nccl.render,
    )
    for render in renderers:
        records.update(render(machine))
    records.update(machine.records)
    return {
        "schema": "preflight.evidence/1",
        "node": machine.name,
        "collected_at": COLLECTED_AT,
        "origin": origin(machine.platform),
        "collector": {
            "python": "3.10.12", "platform": f"Linux-{machine.platform.kernel}-{machine.platform.architecture}",
            "user": "root", "uid": 0,
            "seconds": 1.1, "deadline_s": 60, "sudo": False, "where": machine.where, "notes": [],
        },
        "records": dict(sorted(records.items())),
    }  # fmt: skip

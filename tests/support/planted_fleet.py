"""A large fleet with 25 planted differences, each on a separate node, and the expected report.

It is written to a folder node by node, so it may exceed the memory. Made by hand, like all of
``tests/support/machines``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from preflight.archive.directory import file_name
from preflight.evidence.document import dump, from_document
from tests.support.machines import Machine, hgx_h100
from tests.support.machines.fleet import fleet, names
from tests.support.machines.inventory import host_table
from tests.support.whole_nodes import LESS_PER_GPU, Fault, env, every_gpu, every_rail, gpu, health, nic, node, setting

#: Identity of a finding in the report: status, check, subject.
Reported = frozenset[tuple[str, str, str]]

CLUSTER = """\
[class.h100]
gpus = 8
hcas = 8

[class.h100.ports]
compute = "mlx5_[0,3-6,9-11]"
storage = "mlx5_[1-2,7-8]"
link_layer = "Ethernet"
rate_gbps = 400
mtu = 4096
netdev_mtu = 9000
point_to_point = true
load_balancing = "one-path"

[class.h100.qos]
lossless = true
pfc_priority = 3
ecn = true

[class.h100.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
""" + host_table("h100")

#: Buses of the GPUs of an HGX H100.
GPU_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def _firmware(version: str) -> Fault:
    def plant(machine: Machine) -> Machine:
        nics = [
            replace(one, model=replace(one.model, firmware=version)) if one.gpu is not None else one
            for one in machine.nics
        ]
        return replace(machine, nics=tuple(nics))

    return plant


def _cnp_dscp(value: int) -> Fault:
    def plant(machine: Machine) -> Machine:
        nics = tuple(replace(one, qos=replace(one.qos, cnp_dscp=value)) for one in machine.nics)
        return replace(machine, nics=nics)

    return plant


def _kernel(release: str) -> Fault:
    return lambda machine: replace(machine, platform=replace(machine.platform, kernel=release))


#: Name -> the change of one node, and all its findings other than passes and skips.
DIFFERENCES: Mapping[str, tuple[Fault, Reported]] = {
    "a GPU off the bus": (gpu(3, on_bus=False), frozenset({("fail", "gpu.count", "")})),
    "a GPU that the driver lost": (gpu(3, answers=False), frozenset({("fail", "gpu.driver", "0000:61:00.0")})),
    "a row that cannot be remapped": (
        health(5, remap_failure=True), frozenset({("fail", "gpu.row-remap", "0000:c3:00.0")}),
    ),
    "ECC off": (
        health(2, ecc=False, ecc_pending=False), frozenset({("fail", "gpu.ecc-mode", "0000:52:00.0")}),
    ),
    "a GPU on half its lanes": (health(1, pcie_width=8), frozenset({("fail", "gpu.pcie-link", "0000:43:00.0")})),
    "a port down": (
        nic("mlx5_5", state="DOWN", physical="Polling"),
        frozenset({("fail", "rdma.port-state", "mlx5_5:1"), LESS_PER_GPU}),
    ),
    "a slow port": (
        nic("mlx5_9", rate="200 Gb/sec (2X NDR)"), frozenset({("fail", "rdma.port-rate", "mlx5_9:1"), LESS_PER_GPU}),
    ),
    "a NIC on half its lanes": (nic("mlx5_5", lanes=8), frozenset({("fail", "pcie.nic-link", "mlx5_5"), LESS_PER_GPU})),
    "symbol errors": (
        nic("mlx5_5", grows={"symbol_error": 60}), frozenset({("fail", "counters.link-quality", "mlx5_5:1")}),
    ),
    "a link without FEC": (nic("mlx5_5", fec="Off"), frozenset({("warn", "optics.fec", "mlx5_5:1")})),
    "PFC off in the switch": (nic("mlx5_9", switch_pfc=()), frozenset({("fail", "switch.pfc", "enp192s0")})),
    "ECN off on one port": (nic("mlx5_10", ecn=False), frozenset({("fail", "roce.chain", "mlx5_10:1")})),
    "ACS redirects": (
        node(acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")), frozenset({("fail", "gpudirect.path", "")}),
    ),
    "little locked memory": (node(memlock="8388608"), frozenset({("fail", "host.memlock", "")})),
    "a clock behind": (node(clock_offset_s=-0.2), frozenset({("warn", "host.time-sync", "")})),
    "a job that stopped saving": (node(checkpoint_age_min=200), frozenset({("warn", "checkpoint.age", "")})),
    "NCCL_IB_DISABLE left over": (
        env(NCCL_IB_DISABLE="1"),
        frozenset({("fail", "nccl.left-over-disables", "NCCL_IB_DISABLE")}),
    ),
    "another driver": (node(driver="570.86.10"), frozenset({("fail", "fleet.driver-equal", "")})),
    "huge pages always": (
        setting("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        frozenset({("warn", "fleet.host", "transparent huge pages")}),
    ),
    "another NIC firmware": (
        _firmware("28.39.1002"), frozenset({("warn", "rdma.firmware", "MT_0000000838")}),
    ),
    "another BIOS": (
        setting("/sys/class/dmi/id/bios_version", "1.05.03"), frozenset({("warn", "fleet.host", "BIOS version")}),
    ),
    "another kernel": (_kernel("5.15.0-1070-nvidia"), frozenset({("warn", "fleet.host", "kernel release")})),
    "another application clock": (
        every_gpu(application_clock_mhz=1410),
        frozenset(("warn", "gpu.clocks", f"0000:{bus}:00.0") for bus in GPU_BUSES),
    ),
    "another DSCP of CNPs": (_cnp_dscp(46), frozenset({("warn", "fleet.roce-equal", "")})),
    "another order of addresses": (every_rail(gid_index=4), frozenset({("warn", "fleet.gid-index", "")})),
}  # fmt: skip


def write(folder: Path, count: int, seed: int = 7) -> dict[str, Reported]:
    """Write the documents of ``count`` RoCE nodes; return those that differ, with their expected findings."""
    where = random.Random(seed).sample(names(count), len(DIFFERENCES))
    folder.mkdir(parents=True, exist_ok=True)
    faults = {name: fault for name, (fault, _) in zip(where, DIFFERENCES.values(), strict=True)}
    for document in fleet(hgx_h100("", roce=True), count, seed, faults):
        text = dump(from_document(document, document["node"]))
        (folder / file_name(document["node"])).write_text(text, encoding="utf-8")
    return {name: expected for name, (_, expected) in zip(where, DIFFERENCES.values(), strict=True)}


def reported(report: Mapping[str, Any]) -> dict[str, Reported]:
    """Return the findings of a report by node, other than passes and skips."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for one in report["findings"]:
        if one["status"] not in ("pass", "skip"):
            for name in one["nodes"]:
                found.setdefault(name, set()).add((one["status"], one["check"], one["subject"]))
    return {name: frozenset(keys) for name, keys in found.items()}

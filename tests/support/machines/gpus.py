"""The NVIDIA driver's tools: ``nvidia-smi topo -m``, ``--query-gpu``, NVML, /proc."""

from __future__ import annotations

from collections import Counter

from preflight.facts.nvidia.smi_xml import XML
from preflight.parsers.nvidia.nvlink_errors import NVLINK_ERRORS
from preflight.parsers.nvidia.nvlink_status import NVLINK
from tests.support.machines import bus, gpu_health, gpu_services
from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.records import MISSING, Records, ok, ran, twice


def _answering(machine: Machine) -> list[tuple[int, Gpu]]:
    """Return the GPUs listed by the driver, with their indexes."""
    alive = [gpu for gpu in machine.gpus if gpu.on_bus and gpu.answers]
    return list(enumerate(alive))


def _topo(machine: Machine) -> str:
    """Render ``nvidia-smi topo -m`` as drivers 535 and newer print it, with the underlined header."""
    gpus = _answering(machine)
    nics = [nic for nic in machine.nics if nic.bound]
    names = [f"GPU{index}" for index, _ in gpus] + [f"NIC{index}" for index in range(len(nics))]
    head = "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = [f"\x1b[4m{head}\x1b[0m"]
    for index, gpu in gpus:
        cells = [_gpu_gpu(machine, gpu, other) for _, other in gpus]
        cells += [_gpu_nic(machine, gpu, nic) for nic in nics]
        lines.append(f"GPU{index}\t" + "\t".join(cells) + f"\t{machine.local_cpus(gpu.numa)}\t{_numa(gpu)}")
    for index, nic in enumerate(nics):
        cells = [_gpu_nic(machine, gpu, nic) for _, gpu in gpus]
        cells += [_nic_nic(nic, other) for other in nics]
        lines.append(f"NIC{index}\t" + "\t".join(cells) + "\t\t\t\t")
    legend = [
        "", "Legend:", "", "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks", "", "NIC Legend:", "",
    ]  # fmt: skip
    legend += [f"  NIC{index}: {nic.device}" for index, nic in enumerate(nics)]
    return "\n".join([*lines, *legend, ""])


def _numa(gpu: Gpu) -> str:
    """Render NUMA Affinity and GPU NUMA ID; the tool prints two tabs between them."""
    affinity = gpu.numa_affinity or (gpu.numa if gpu.numa >= 0 else "N/A")
    return f"{affinity}\t\t{'N/A' if gpu.memory_node is None else gpu.memory_node}"


def _far(one: Gpu | Nic, other: Gpu | Nic) -> str:
    if one.above and other.above:
        return bus.distance(one, other)
    return "NODE" if one.numa == other.numa else "SYS"


def _gpu_gpu(machine: Machine, one: Gpu, other: Gpu) -> str:
    if one is other:
        return " X "
    return f"NV{machine.nvlinks}" if one.nvlink and other.nvlink and machine.nvlinks else _far(one, other)


def _gpu_nic(machine: Machine, gpu: Gpu, nic: Nic) -> str:
    if machine.every_path:
        return machine.every_path
    if not nic.above and nic.gpu is not None and machine.gpus[nic.gpu] is gpu:
        return "PXB"
    return _far(gpu, nic)


def _nic_nic(one: Nic, other: Nic) -> str:
    if one is other:
        return " X "
    same_card = (one.domain, one.bus) == (other.domain, other.bus)
    return "PIX" if same_card else _far(one, other)


def uuid(machine: Machine, gpu: Gpu) -> str:
    """Return the UUID of a GPU, unique in a fleet."""
    return f"GPU-00000000-0000-0000-{machine.number:04x}-00000000{gpu.domain:02x}{gpu.bus:02x}"


def render(machine: Machine) -> Records:
    topo, query = (
        "cmd:nvidia-smi topo -m",
        ("cmd:nvidia-smi --query-gpu=index,pci.bus_id,name,uuid,driver_version --format=csv,noheader"),
    )
    version = "file:/proc/driver/nvidia/version"
    if not machine.driver_loaded:
        error = (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return gpu_services.render(machine, []) | {
            NVLINK: ran(error, 9), NVLINK_ERRORS: ran(error, 9), topo: ran(error, 9), query: ran(error, 9),
            XML: ran(error, 9), version: MISSING,
            "nvml:gpus": {"status": "missing", "why": "no NVIDIA driver is loaded"},
        }  # fmt: skip
    gpus = _answering(machine)
    rows = [
        f"{index}, 0000{gpu.address.upper()}, {machine.gpu_name}, {uuid(machine, gpu)}, {machine.driver}\n"
        for index, gpu in gpus
    ]
    healths = [gpu_health.described(machine, index, gpu, uuid(machine, gpu)) for index, gpu in gpus]
    nvml = [gpu_health.nvml(health, machine.gpu_id) for health in healths]
    later = [{**first, "pcie_replays": first.get("pcie_replays", 0) + gpu.replay_gain}
             for first, (_, gpu) in zip(nvml, gpus, strict=True)]  # fmt: skip
    about = {"driver": machine.driver, "cuda": machine.platform.cuda, "count": len(nvml)}
    kernel = (
        f"NVRM version: NVIDIA UNIX {gpu_services.flavour(machine)}  {machine.driver}  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    return gpu_services.render(machine, healths) | {
        topo: ran(_topo(machine)),
        query: ran("".join(rows)),
        version: ok(kernel),
        XML: ran(gpu_health.xml(healths, machine)),
        NVLINK_ERRORS: twice(
            ran(gpu_services.nvlink_errors(healths, [gpu.nvlink_errors for _, gpu in gpus])),
            ran(
                gpu_services.nvlink_errors(
                    healths, [dict(Counter(gpu.nvlink_errors) + Counter(gpu.nvlink_gains)) for _, gpu in gpus]
                )
            ),
        ),
        "nvml:gpus": twice(
            {"status": "ok", "value": {**about, "gpus": nvml}}, {"status": "ok", "value": {**about, "gpus": later}}
        ),
    }

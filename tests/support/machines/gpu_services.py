"""Services and devices around the GPUs: fabric manager, IMEX, NVLink's own tool, the kernel's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.facts.kernel_log import DMESG, NOTICES, UPTIME
from preflight.facts.nvidia.model import GpuHealth
from preflight.parsers.host.services import FABRIC_MANAGER, SERVICES
from preflight.parsers.nvidia.nvlink_status import NVLINK
from tests.support.machines.machine import Machine
from tests.support.machines.records import DIRECTORY, MISSING, Records, listing, ok, ran

#: Seconds since the made-up node booted.
UPTIME_S = 432000

#: HGX boards without NVSwitches on the node's PCI bus: B200, B300.
_SWITCHES_NOT_ON_THE_BUS = ("2901", "3182")

#: Boot messages of any kernel at these levels; ``dmesg --raw`` of a 5.15 kernel, shortened.
_BOOT = (
    "<4>[    0.000000] secureboot: Secure boot disabled",
    "<4>[    1.204511] pci {gpu}: BAR 1: assigned to efifb",
    "<4>[    9.118207] nvidia: loading out-of-tree module taints kernel.",
    "<4>[    9.501733] NVRM: loading NVIDIA UNIX {flavour}  {driver}  Release Build  (dvs-builder)",
)


#: The first line of any kernel's log.
_BANNER = "<5>[    0.000000] Linux version 5.15.0-1066-nvidia (buildd@example) (gcc 11.4.0) #67 SMP"


def _is_notice(line: str) -> bool:
    """Return whether a line of ``dmesg --raw`` has the level notice or below."""
    return int(line[1 : line.index(">")]) & 7 >= 5


def flavour(machine: Machine) -> str:
    """Return the name of the driver's kernel module flavour."""
    processor = machine.platform.architecture
    return f"Open Kernel Module for {processor}" if machine.open_driver else f"{processor} Kernel Module"


def nvlink(gpus: list[GpuHealth]) -> str:
    """Render ``nvidia-smi nvlink -s``."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
        if gpu.links is None:
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        for number, up in enumerate(gpu.links or ()):
            lines.append(f"\t Link {number}: " + (f"{gpu.link_gbytes_s:g} GB/s" if up else "<inactive>"))
    return "\n".join([*lines, ""])


#: Counters of each link, up to NVLink 4 and from NVLink 5 on.
_COUNTERS = ("Replay Errors", "Recovery Errors", "CRC Errors")
_COUNTERS_5 = ("Malformed packet Errors", "Rx Errors", "Link recovery successful events", "Link recovery failed events",
               "Total link recovery events", "Effective Errors", "Symbol Errors")  # fmt: skip


def nvlink_errors(gpus: list[GpuHealth], errors: Sequence[Mapping[tuple[int, str], int]]) -> str:
    """Render ``nvidia-smi nvlink -e``; ``errors`` of each GPU are by link and name."""
    lines = []
    for gpu, counts in zip(gpus, errors, strict=True):
        lines.append(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
        if gpu.links is None:
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        names = _COUNTERS if (gpu.link_gbytes_s or 0) < 40 else _COUNTERS_5
        for number, up in enumerate(gpu.links or ()):
            lines += [f"\t Link {number}: {name}: {counts.get((number, name), 0)}" for name in names if up]
    return "\n".join([*lines, ""])


def render(machine: Machine, gpus: list[GpuHealth]) -> Records:
    """Render the records; ``gpus`` are those listed by the driver."""
    words = {"driver": machine.driver, "flavour": flavour(machine), "gpu": machine.gpus[0].address}
    boot = [line.format(**words) for line in _BOOT[: 4 if machine.driver_loaded else 2]]
    has_manager = bool(machine.nvswitches) or machine.gpu_id in _SWITCHES_NOT_ON_THE_BUS
    state = machine.fabric_manager if has_manager else "inactive"
    units = {
        "nvidia-fabricmanager.service": ("loaded" if has_manager else "not-found", state),
        "nvidia-imex.service": ("loaded", machine.imex_state) if machine.imex else ("not-found", "inactive"),
    }
    shown = [
        f"Id={name}\nLoadState={load}\nActiveState={active}\nSubState={'running' if active == 'active' else 'dead'}\n"
        for name, (load, active) in units.items()
    ]
    version = machine.fabric_manager_version or machine.driver
    return {
        NVLINK: ran(nvlink(gpus)),
        SERVICES: ran("\n".join(shown)),
        FABRIC_MANAGER: ran(f"Fabric Manager version is : {version}\n") if has_manager else MISSING,
        "dir:/dev/nvidia-caps-imex-channels": listing({"channel0": DIRECTORY} if machine.imex_channel else {})
        if machine.imex else MISSING,
        DMESG: ran("\n".join([*boot, *(line for line in machine.kernel_log if not _is_notice(line)), ""])),
        NOTICES: ran("\n".join([_BANNER, *filter(_is_notice, machine.kernel_log), ""])),
        UPTIME: ok(f"{UPTIME_S}.21 {UPTIME_S * 200}.02\n"),
    }  # fmt: skip

"""GPU health, rendered from one description as NVML's answer and as ``nvidia-smi -q -x``.

Elements and their order are from public ``nvidia-smi -q -x`` outputs of drivers 555 to 580; nothing was recorded on
hardware.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.sax.saxutils import escape

from preflight.facts.nvidia.model import COMPUTE_MODES, FABRIC_STATES, RECOVERY_ACTIONS, GpuFabric, GpuHealth
from tests.support.machines.machine import Gpu, Machine

_MIB = 2**20


def described(machine: Machine, index: int, gpu: Gpu, uuid: str) -> GpuHealth:
    """Return the tools' values for one GPU that answers."""
    idle = machine.platform.gpu
    gsp = machine.driver if idle.gsp else None
    serial = f"{1650000000000 + 0x10000 * machine.number + 0x100 * gpu.domain + gpu.bus}"
    found = replace(
        idle, index=index, address=gpu.address, uuid=uuid, name=machine.gpu_name, gsp=gsp, serial=serial,
        application_clock_mhz=idle.sm_clock_max_mhz, application_clock_default_mhz=idle.sm_clock_max_mhz,
        pcie_replays=2 if gpu.bus % 3 else 0,
    )  # fmt: skip
    without: dict[str, Any] = {} if gpu.nvlink else {"links": (False,) * len(idle.links or ())}
    return replace(found, **{**without, **gpu.health})


def nvml(gpu: GpuHealth, device_id: str) -> dict[str, Any]:
    """Render NVML's answer; values missing from the description are not supported."""
    raw: dict[str, Any] = {
        "index": gpu.index, "bus_id": _bus_id(gpu), "pci_device_id": f"0x{device_id}10DE", "uuid": gpu.uuid,
        "name": gpu.name, "memory_total_bytes": _times(gpu.memory_total_mib, _MIB),
        "bar1_total_bytes": _times(gpu.bar1_total_mib, _MIB),
        "memory": _dict(
            total_bytes=_times(gpu.memory_total_mib, _MIB), reserved_bytes=_times(gpu.memory_reserved_mib, _MIB),
            used_bytes=_times(gpu.memory_used_mib, _MIB),
        ),
        "persistence": _bit(gpu.persistence), "retired_pending": _bit(gpu.retired_pending),
        "mig": _list(gpu.mig, gpu.mig_pending), "ecc": _list(gpu.ecc, gpu.ecc_pending),
        "remapped_rows": _list(
            gpu.remapped_corrected, gpu.remapped_uncorrected, gpu.remap_pending, gpu.remap_failure
        ),
        "retired_pages": _list(gpu.retired_single, gpu.retired_double),
        "remap_banks": list(gpu.remap_banks) if gpu.remap_banks else None,
        "sram": _dict(threshold_exceeded=_bit(gpu.sram_threshold_exceeded)),
        "utilisation": _list(gpu.utilisation_pct, gpu.memory_utilisation_pct),
        "recovery_action": _number(RECOVERY_ACTIONS, gpu.recovery_action),
        "compute_mode": _number(COMPUTE_MODES, gpu.compute_mode),
        "fabric": _fabric(gpu.fabric),
        "nvlink": {"active": [int(up) for up in gpu.links], "speed_mbytes_s": _times(gpu.link_gbytes_s, 1000)}
        if gpu.links else None,
        "processes": [
            {"pid": one.pid, "name": one.name, "used_bytes": _times(one.used_mib, _MIB)} for one in gpu.processes
        ] if gpu.processes is not None else None,
    }  # fmt: skip
    for kind in ("limit", "enforced", "default"):
        raw[f"power_{kind}_mw"] = _times(getattr(gpu, f"power_{kind}_w"), 1000)
    for name in (
        "event_reasons", "temperature_c", "temperature_margin_c", "temperature_slowdown_c", "pcie_generation",
        "pcie_generation_max", "pcie_width", "pcie_width_max", "performance_state", "vbios", "inforom", "gsp",
        "sm_clock_mhz", "sm_clock_max_mhz", "application_clock_mhz", "application_clock_default_mhz",
        "pcie_replays", "serial", "cuda_cores", *_ecc_fields(),
    ):  # fmt: skip
        raw[name] = getattr(gpu, name)
    refused = sorted(key for key, value in raw.items() if value is None)
    return {key: value for key, value in raw.items() if value is not None} | {
        "errors": {}, "not_supported": refused,
    }  # fmt: skip


def _ecc_fields() -> list[str]:
    return [f"ecc_{span}_{memory}_{severity}" for span in ("volatile", "aggregate") for memory in ("sram", "dram")
            for severity in ("corrected", "uncorrected")]  # fmt: skip


def _bus_id(gpu: GpuHealth) -> str:
    return f"0000{gpu.address}".upper()


def _times(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)


def _bit(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _list(*values: int | None) -> list[int] | None:
    found = [int(value) for value in values if value is not None]
    return found if len(found) == len(values) else None


def _dict(**values: int | None) -> dict[str, int] | None:
    found = {key: value for key, value in values.items() if value is not None}
    return found or None


def _number(words: dict[int, str], word: str | None) -> int | None:
    return next((number for number, known in words.items() if known == word), None)


_FAULTS = {"degraded bandwidth": 0, "route recovery in progress": 2, "route unhealthy": 4,
           "access timeout recovery": 6}  # fmt: skip


def _fabric(fabric: GpuFabric | None) -> dict[str, Any] | None:
    if fabric is None:
        return {"state": 0, "status": 0, "clique": 0, "cluster_uuid": "", "health_mask": 0}
    mask = 1 << 8
    for fault, shift in _FAULTS.items():
        mask |= (1 if fault in fabric.faults else 2) << shift
    status = 0 if fabric.status == "Success" else int(fabric.status.split()[-1])
    return {"state": _number(FABRIC_STATES, fabric.state), "status": status, "clique": fabric.clique,
            "cluster_uuid": fabric.cluster_uuid, "health_mask": mask}  # fmt: skip


# --- nvidia-smi -q -x ------------------------------------------------------------------------------

Tree = dict[str, Any]


def xml(gpus: list[GpuHealth], machine: Machine) -> str:
    """Render ``nvidia-smi -q -x``; values missing from the description are ``N/A``."""
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>"]
    head = {"timestamp": "Sat Nov 21 03:00:00 2026", "driver_version": machine.driver,
            "cuda_version": machine.platform.cuda,            "attached_gpus": len(gpus)}  # fmt: skip
    lines += _lines(head, 1)
    for gpu in gpus:
        lines += [f'\t<gpu id="{_bus_id(gpu)}">', *_lines(_tree(gpu, machine), 2), "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def _lines(tree: Tree, depth: int) -> list[str]:
    lines, indent = [], "\t" * depth
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}<{name}>", *_lines(value, depth + 1), f"{indent}</{name}>"]
        elif isinstance(value, list):
            lines.append(f"{indent}<{name}>")
            for one in value:
                lines += _lines(one, depth + 1)
            lines.append(f"{indent}</{name}>")
        else:
            text = "N/A" if value is None else escape(str(value))
            lines.append(f"{indent}<{name}>{text}</{name}>")
    return lines


def _on(value: bool | None, yes: str = "Enabled", no: str = "Disabled") -> str | None:
    return None if value is None else yes if value else no


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.2f} W" if unit == "W" else f"{value}{unit}"


_REASONS = ("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
            "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
            "display_clocks_setting")  # fmt: skip


def _tree(gpu: GpuHealth, machine: Machine) -> Tree:
    reasons: Tree | None = None
    if gpu.event_reasons is not None:
        reasons = {
            f"clocks_event_reason_{name}": "Active" if gpu.event_reasons >> bit & 1 else "Not Active"
            for bit, name in enumerate(_REASONS)
        }
    return {
        "product_name": gpu.name, "product_brand": "NVIDIA", "product_architecture": machine.platform.gpu_architecture,
        "persistence_mode": _on(gpu.persistence), **machine.platform.gpu_xml,
        "mig_mode": {"current_mig": _on(gpu.mig), "pending_mig": _on(gpu.mig_pending)},
        "serial": gpu.serial, "uuid": gpu.uuid, "vbios_version": gpu.vbios,
        "inforom_version": {"img_version": gpu.inforom, "oem_object": "2.1", "ecc_object": "7.16"},
        "gpu_reset_status": {"reset_required": "Requested functionality has been deprecated"},
        "gpu_recovery_action": gpu.recovery_action, "gsp_firmware_version": gpu.gsp,
        "pci": {
            "pci_device_id": f"{machine.gpu_id}10DE", "pci_bus_id": _bus_id(gpu),
            "pci_gpu_link_info": {
                "pcie_gen": {"max_link_gen": gpu.pcie_generation_max, "current_link_gen": gpu.pcie_generation},
                "link_widths": {
                    "max_link_width": _unit(gpu.pcie_width_max, "x"),
                    "current_link_width": _unit(gpu.pcie_width, "x"),
                },
            },
            "replay_counter": gpu.pcie_replays, "replay_rollover_counter": 0,
        },
        "performance_state": _unit(gpu.performance_state, "") and f"P{gpu.performance_state}",
        "clocks_event_reasons": reasons,
        "fb_memory_usage": {
            "total": _unit(gpu.memory_total_mib, " MiB"), "reserved": _unit(gpu.memory_reserved_mib, " MiB"),
            "used": _unit(gpu.memory_used_mib, " MiB"),
        },
        "bar1_memory_usage": {"total": _unit(gpu.bar1_total_mib, " MiB")},
        "compute_mode": gpu.compute_mode,
        "utilization": {
            "gpu_util": _unit(gpu.utilisation_pct, " %"), "memory_util": _unit(gpu.memory_utilisation_pct, " %"),
        },
        "ecc_mode": {"current_ecc": _on(gpu.ecc), "pending_ecc": _on(gpu.ecc_pending)},
        "ecc_errors": {
            "volatile": _ecc(gpu, "volatile"),
            "aggregate": _ecc(gpu, "aggregate")
            | {"sram_threshold_exceeded": _on(gpu.sram_threshold_exceeded, "Yes", "No")},
        },
        "retired_pages": {
            "multiple_single_bit_retirement": {"retired_count": gpu.retired_single},
            "double_bit_retirement": {"retired_count": gpu.retired_double},
            "pending_blacklist": _on(gpu.retired_pending, "Yes", "No"),
            "pending_retirement": _on(gpu.retired_pending, "Yes", "No"),
        },
        "remapped_rows": _remapped(gpu),
        "temperature": {
            "gpu_temp": _unit(gpu.temperature_c, " C"), "gpu_temp_tlimit": _unit(gpu.temperature_margin_c, " C"),
            "gpu_temp_slow_threshold": _unit(gpu.temperature_slowdown_c, " C"),
        },
        "gpu_power_readings": {
            "power_state": "P0", "current_power_limit": _unit(gpu.power_enforced_w, "W"),
            "requested_power_limit": _unit(gpu.power_limit_w, "W"),
            "default_power_limit": _unit(gpu.power_default_w, "W"),
        },
        "clocks": {"sm_clock": _unit(gpu.sm_clock_mhz, " MHz")},
        "applications_clocks": {"graphics_clock": _unit(gpu.application_clock_mhz, " MHz")},
        "default_applications_clocks": {"graphics_clock": _unit(gpu.application_clock_default_mhz, " MHz")},
        "max_clocks": {"sm_clock": _unit(gpu.sm_clock_max_mhz, " MHz")},
        "fabric": _fabric_tree(gpu.fabric),
        "processes": None if gpu.processes is None else [
            {"process_info": {
                "gpu_instance_id": None, "compute_instance_id": None, "pid": one.pid, "type": "C",
                "process_name": one.name, "used_memory": _unit(one.used_mib, " MiB"),
            }}
            for one in gpu.processes
        ],
    }  # fmt: skip


def _ecc(gpu: GpuHealth, span: str) -> Tree:
    value = {name: getattr(gpu, name) for name in _ecc_fields()}
    uncorrected = value[f"ecc_{span}_sram_uncorrected"]
    return {
        "sram_correctable": value[f"ecc_{span}_sram_corrected"],
        "sram_uncorrectable_parity": uncorrected if uncorrected is None else 0,
        "sram_uncorrectable_secded": uncorrected,
        "dram_correctable": value[f"ecc_{span}_dram_corrected"],
        "dram_uncorrectable": value[f"ecc_{span}_dram_uncorrected"],
    }


def _remapped(gpu: GpuHealth) -> Tree | None:
    if gpu.remapped_corrected is None:
        return None
    names = ("max", "high", "partial", "low", "none")
    banks = gpu.remap_banks or (None,) * 5
    return {
        "remapped_row_corr": gpu.remapped_corrected, "remapped_row_unc": gpu.remapped_uncorrected,
        "remapped_row_pending": _on(gpu.remap_pending, "Yes", "No"),
        "remapped_row_failure": _on(gpu.remap_failure, "Yes", "No"),
        "row_remapper_histogram": {
            f"row_remapper_histogram_{name}": _unit(bank, " bank(s)") for name, bank in zip(names, banks, strict=True)
        },
    }  # fmt: skip


def _fabric_tree(fabric: GpuFabric | None) -> Tree:
    if fabric is None:
        return {"state": None, "status": None, "cliqueId": None, "clusterUuid": None}
    faults = dict.fromkeys(fabric.faults, "True")
    return {
        "state": fabric.state, "status": fabric.status, "cliqueId": fabric.clique, "clusterUuid": fabric.cluster_uuid,
        "health": {
            "bandwidth": "Degraded" if "degraded bandwidth" in faults else "Full",
            "route_recovery_in_progress": faults.get("route recovery in progress", "False"),
            "route_unhealthy": faults.get("route unhealthy", "False"),
            "access_timeout_recovery": faults.get("access timeout recovery", "False"),
        },
    }  # fmt: skip

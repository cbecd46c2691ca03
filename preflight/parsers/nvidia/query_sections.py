"""The sections of ``nvidia-smi -q``, and the fields of each.

They show where a field belongs if the indentation or the heading of its section is lost. The sections are in the order
of the output, and cover drivers from R410 to R590.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from preflight.parsers.nvidia.query_log import Tree, key

#: The path of a section: names, starting below the GPU.
Path = tuple[str, ...]

_MEMORY = "total used free"
_ERRORS = (
    "sram_correctable sram_uncorrectable sram_uncorrectable_parity sram_uncorrectable_sec_ded dram_correctable "
    "dram_uncorrectable sram_threshold_exceeded"
)
_BITS = (
    "device_memory dram register_file l1_cache l2_cache texture_memory texture_shared cbu sram total total_ecc"
)  # fmt: skip
#: R535 renamed this section and half of its fields, and added sections with the same fields after it.
_WATTS_OLD = (
    "power_management power_draw power_limit default_power_limit enforced_power_limit min_power_limit max_power_limit"
)
_WATTS = (
    "average_power_draw instantaneous_power_draw power_draw current_power_limit requested_power_limit "
    "default_power_limit min_power_limit max_power_limit"
)
_REASONS = (
    "idle applications_clocks_setting sw_power_cap hw_slowdown hw_thermal_slowdown hw_power_brake_slowdown sync_boost "
    "sw_thermal_slowdown display_clock_setting unknown"
)
_ORDER = tuple(
    (tuple(path.split("/")), frozenset(names.split()), re.compile(value))
    for path, names, value in (
        ("mig_mode", "current pending", "Enabled|Disabled"),
        ("driver_model", "current pending", "WDDM|TCC|MCDM"),
        ("platform_info", "chassis_serial_number slot_number tray_index host_id peer_type module_id gpu_fabric_guid",
         ".+"),
        ("inforom_version", "image_version oem_object ecc_object power_management_object", ".+"),
        ("inforom_bbx_object_flush", "latest_timestamp latest_duration", ".+"),
        ("gpu_operation_mode", "current pending", ".+"),
        ("gpu_virtualization_mode", "virtualization_mode host_vgpu_mode vgpu_heterogeneous_mode", ".+"),
        ("gpu_reset_status", "reset_required drain_and_reset_recommended", ".+"),
        ("ibmnpu", "relaxed_ordering_mode", ".+"),
        ("pci", "bus device domain base_classcode sub_classcode device_id bus_id sub_system_id replays_since_reset "
         "replay_number_rollovers tx_throughput rx_throughput atomic_caps_inbound atomic_caps_outbound", ".+"),
        ("pci/gpu_link_info", "", ".+"),
        ("pci/gpu_link_info/pcie_generation", "max current device_current device_max host_max", r"\d"),
        ("pci/gpu_link_info/link_width", "max current", r"\d{1,2}x"),
        ("pci/bridge_chip", "type firmware", ".+"),
        ("clocks_event_reasons", _REASONS, "(?:Not )?Active"),
        ("clocks_throttle_reasons", _REASONS, "(?:Not )?Active"),
        ("clocks_event_reasons_counters",
         "sw_power_capping sync_boost sw_thermal_slowdown hw_thermal_slowdown hw_power_braking", r"\d+ us"),
        ("fb_memory_usage", f"{_MEMORY} reserved", r"\d+ MiB"),
        ("memory_usage", _MEMORY, r"\d+ MB"),  # before R331
        ("bar1_memory_usage", _MEMORY, r"\d+ MiB"),
        ("conf_compute_protected_memory_usage", _MEMORY, r"\d+ MiB"),
        ("utilization", "gpu memory encoder decoder jpeg ofa", r"\d+ %"),
        ("encoder_stats", "active_sessions average_fps average_latency", r"\d+"),
        ("fbc_stats", "active_sessions average_fps average_latency", r"\d+"),
        ("dram_encryption_mode", "current pending", "Enabled|Disabled"),
        ("ecc_mode", "current pending", "Enabled|Disabled"),
        ("ecc_errors", "channel_repair_pending tpc_repair_pending unrepairable_memory", ".+"),
        ("ecc_errors/volatile", _ERRORS, ".+"),
        ("ecc_errors/volatile/single_bit", _BITS, r"\d+"),
        ("ecc_errors/volatile/double_bit", _BITS, r"\d+"),
        ("ecc_errors/aggregate", _ERRORS, ".+"),
        ("ecc_errors/aggregate/single_bit", _BITS, r"\d+"),
        ("ecc_errors/aggregate/double_bit", _BITS, r"\d+"),
        ("ecc_errors/aggregate_uncorrectable_sram_sources",
         "sram_l2 sram_sm sram_microcontroller sram_pcie sram_other", r"\d+"),
        ("retired_pages", "single_bit_ecc double_bit_ecc pending_page_blacklist pending", ".+"),
        ("remapped_rows", "correctable_error uncorrectable_error inactive pending remapping_failure_occurred", ".+"),
        ("remapped_rows/bank_remap_availability_histogram", "max high partial low none", r"\d+ bank.*"),
        ("temperature", "gpu_current_temp gpu_t_limit_temp gpu_shutdown_temp gpu_shutdown_t_limit_temp "
         "gpu_slowdown_temp gpu_slowdown_t_limit_temp gpu_max_operating_temp gpu_max_operating_t_limit_temp "
         "gpu_target_temperature memory_current_temp memory_max_operating_temp "
         "memory_max_operating_t_limit_temp", r"-?\d+ C"),
        ("gpu_power_readings", _WATTS, r"\d+\.\d+ W"),
        ("gpu_memory_power_readings", "average_power_draw instantaneous_power_draw", r"\d+\.\d+ W"),
        ("module_power_readings", _WATTS, r"\d+\.\d+ W"),
        ("power_readings", _WATTS_OLD, r"\d+\.\d+ W|Supported"),
        ("power_samples", "duration number_of_samples max min avg", r"(?:\d+\.)?\d+(?: \w+)?"),
        ("workload_power_profiles", "requested_profiles enforced_profiles", ".+"),
        ("clocks", "graphics sm memory video", r"\d+ MHz"),
        ("applications_clocks", "graphics memory", r"\d+ MHz"),
        ("default_applications_clocks", "graphics memory", r"\d+ MHz"),
        ("deferred_clocks", "memory", r"\d+ MHz"),
        ("max_clocks", "graphics sm memory video", r"\d+ MHz"),
        ("max_customer_boost_clocks", "graphics", r"\d+ MHz"),
        ("clock_policy", "auto_boost auto_boost_default", ".+"),
        ("voltage", "graphics", r"[\d.]+ mV"),
        ("fabric", "state status cliqueid clusteruuid", ".+"),
        ("fabric/health", "summary bandwidth route_recovery_in_progress route_unhealthy access_timeout_recovery "
         "incorrect_configuration", ".+"),
        ("processes", "gpu_instance_id compute_instance_id process_id type name used_gpu_memory", ".+"),
        ("capabilities", "egm", ".+"),
    )
)  # fmt: skip
_CHILDREN = {path: names for path, names, _ in _ORDER}
_VALUES = {path: value for path, _, value in _ORDER}
#: The names of all sections.
HEADS = frozenset(path[-1] for path in _CHILDREN)
_OF_INSTANCE = frozenset(("ecc_errors", "volatile", "fb_memory_usage", "bar1_memory_usage"))
#: Top-level fields of a GPU; such a field ends the section above it.
_FIELDS = (
    "product_name product_brand product_architecture display_mode display_active display_attached persistence_mode "
    "addressing_mode accounting_mode accounting_mode_buffer_size serial_number gpu_uuid gpu_pdi minor_number "
    "vbios_version multigpu_board board_id board_part_number gpu_part_number fru_part_number platform_info module_id "
    "gpu_c2c_mode gpu_recovery_action gsp_firmware_version fan_speed performance_state sparse_operation_mode "
    "compute_mode processes"
)
TOP = frozenset(_FIELDS.split())
NAMES = HEADS | TOP | frozenset(name for names in _CHILDREN.values() for name in names) - {"name", "type"}
_RANK = {path[0]: number for number, (path, _, _) in reversed(tuple(enumerate(_ORDER)))}
#: Top-level field -> the section above it.
_BEFORE = {"fan_speed": "pci", "performance_state": "pci", "compute_mode": "conf_compute_protected_memory_usage",
           "sparse_operation_mode": "clocks_event_reasons_counters", "processes": "fabric"}  # fmt: skip
_NO_DATA = re.compile(r"(?i)\[?(?:n/a|not supported|unknown error|requested functionality.*)\]?|")


@dataclass(frozen=True)
class FieldLine:
    """One line of the output: its indentation, name and value.

    The heading of a section has the value None.
    """

    depth: int
    name: str
    value: str | None


def is_flat(entries: Sequence[FieldLine]) -> bool:
    """Return whether a GPU's lines have lost their indentation."""
    inner = entries[1:]
    return len(inner) > 2 and len({entry.depth for entry in inner}) == 1 and any(map(_is_head, entries))


def _is_head(entry: FieldLine) -> bool:
    return entry.value is None and key(entry.name) in HEADS


def place(tree: Tree, entries: Iterable[FieldLine], begun: Path = ()) -> None:
    """Add fields to their sections in a tree, by name.

    ``begun`` is the section of the first field.
    """
    here, instance = begun, False
    for entry in entries:
        name = key(entry.name)
        # a MIG instance has sections with the same names
        instance = name == "mig_device" or (
            instance and name not in TOP and (name not in HEADS or name in _OF_INSTANCE)
        )
        if instance:
            continue
        here = _section(name, entry.value is None, here)
        below: Any = tree
        for part in here:
            if not isinstance(below.get(part), dict):
                below[part] = {}
            below = below[part]
        if entry.value is not None:
            below.setdefault(name, entry.value.strip())


def _section(name: str, head: bool, here: Path) -> Path:
    """Return the section that a field belongs to, or that a heading opens.

    ``here`` is the section of the line before.
    """
    for depth in range(len(here), -1, -1):
        if head and (opened := (*here[:depth], name)) in _CHILDREN:
            return opened
        if not head and name in _CHILDREN.get(here[:depth], ()):
            return here[:depth]
    if head:
        return (name,)  # a section of an unknown driver
    return () if name in TOP else here


def is_section(head: FieldLine, below: Sequence[FieldLine]) -> bool:
    """Return whether a line is the heading of a known section.

    At least two lines must be below it, and all of them must fit the section.
    """
    path = (key(head.name),)
    return head.value is None and path in _CHILDREN and len(below) > 1 and _fits(path, below)


def is_top(entry: FieldLine) -> bool:
    """Return whether a line is a top-level field or section heading of a GPU."""
    name = key(entry.name)
    return name in TOP or (entry.value is None and (name,) in _CHILDREN)


def orphans(entries: Sequence[FieldLine]) -> tuple[int, Path | None]:
    """Return the number of leading entries without a heading, and their section.

    The section is None if none fits, or if several fit equally well.
    """
    count = next((at for at, entry in enumerate(entries) if _opens_top(entry, entries[at + 1 : at + 2])), len(entries))
    lost = entries[:count]
    fits = [path for path in _CHILDREN if lost and _fits(path, lost)]
    if count < len(entries) and len(fits) > 1:
        after = key(entries[count].name)
        rank = _RANK.get(_BEFORE.get(after, after), -1) + (after in _BEFORE)
        before = [path for path in fits if _RANK[path[0]] < rank]
        fits = [path for path in before if _RANK[path[0]] == max(_RANK[one[0]] for one in before)]
    watts = [path for path in fits if path[0].endswith("power_readings")]
    if watts and len(watts) == len(fits):
        return count, watts[0]  # the power readings of a module are N/A except on Grace
    deepest = [path for path in fits if not any(other[: len(path)] == path and other != path for other in fits)]
    return count, deepest[0] if len(deepest) == 1 else None


def _opens_top(entry: FieldLine, after: Sequence[FieldLine]) -> bool:
    """Return whether a line is at the top level of a GPU.

    Such a line is the heading of a section, or a field of the GPU itself.
    """
    name = key(entry.name)
    if entry.value is None:
        return (name,) in _CHILDREN
    return name in TOP or ((name,) in _CHILDREN and not any(one.depth > entry.depth for one in after))


def _fits(path: Path, lost: Sequence[FieldLine]) -> bool:
    """Return whether all entries fit a section, starting at its top level."""
    if key(lost[0].name) not in _CHILDREN[path] and (*path, key(lost[0].name)) not in _CHILDREN:
        return False
    here = path
    for entry in lost:
        name, value = key(entry.name), entry.value
        here = _section(name, value is None, here)
        if value is None:
            fits = here[-1:] == (name,)
        else:
            fits = name in _CHILDREN.get(here, ()) and bool(
                _NO_DATA.fullmatch(value.strip()) or _VALUES[here].fullmatch(value.strip())
            )
        if not fits or here[:1] != path[:1]:
            return False
    return True

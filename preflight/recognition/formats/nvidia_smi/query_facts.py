"""Documented facts of ``nvidia-smi -q``, from its parsed tree.

``N/A``, ``Not Supported`` and similar values become None. Names are looked up in every spelling used since driver R450.
"""

from __future__ import annotations

import functools
from typing import Any

from preflight.parsers.nvidia.query_log import (
    NO_DATA,
    QueryLog,
    Tree,
    attached,
    complete_bus_id,
    complete_version,
    errors_in,
    flag,
    measure,
    numbers,
)


def query_facts(log: QueryLog) -> dict[str, Any]:
    """Return the documented facts of a query's output."""
    return {
        "driver": complete_version(_get(log.general, "driver_version")),
        "cuda": complete_version(_get(log.general, "cuda_version")),
        "attached_gpus": attached(log),
        "gpus": [
            _gpu(complete_bus_id(bus_id or _get(tree, "pci/bus_id", "pci/pci_bus_id")), tree)
            for bus_id, tree in log.gpus
        ],
    }  # fmt: skip


@functools.cache
def _names(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def _get(tree: Tree, *paths: str) -> Any:
    """Return the value at the first path with data; None if no path has any.

    A path is a list of names joined by ``/``.
    """
    for path in paths:
        names = _names(path)
        if names[0] not in tree:
            continue
        here: Any = tree
        for name in names:
            here = here.get(name) if isinstance(here, dict) else None
        if isinstance(here, dict) and here:
            return here
        if isinstance(here, str) and not NO_DATA.fullmatch(here):
            return here
    return None


def _integer(value: Any) -> int | None:
    number = measure(value) if isinstance(value, str) else None
    return None if number is None else int(number)


def _real(value: Any) -> float | None:
    number = measure(value) if isinstance(value, str) else None
    return None if number is None else float(number)


def _yes(value: Any) -> bool | None:
    return flag(value) if isinstance(value, str) else None


def _below(places: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return the path of each name below each parent path."""
    return tuple(f"{place}/{name}" for place in places for name in names)


_LINK, _POWER = ("pci/gpu_link_info", "pci/pci_gpu_link_info"), ("gpu_power_readings", "power_readings")
_GENERATION = _below(_LINK, "pcie_generation/current", "pcie_gen/current_link_gen")
_MAX_GENERATION = _below(_LINK, "pcie_generation/max", "pcie_gen/max_link_gen")
_WIDTH = _below(_LINK, "link_width/current", "link_widths/current_link_width")
_MAX_WIDTH = _below(_LINK, "link_width/max", "link_widths/max_link_width")
_DRAW = _below(_POWER, "average_power_draw", "instantaneous_power_draw", "power_draw", "instant_power_draw")
_LIMIT = _below(_POWER, "current_power_limit", "enforced_power_limit", "power_limit",
                "requested_power_limit")  # fmt: skip
_DEFAULT_LIMIT = _below(_POWER, "default_power_limit")
_MAX_LIMIT = _below(_POWER, "max_power_limit")


#: Sections of clock values, whose numbers keep the tool's names.
_CLOCKS = ("clocks", "applications_clocks", "default_applications_clocks", "deferred_clocks", "max_clocks",
           "max_customer_boost_clocks", "clock_policy", "clocks_event_reasons_counters")  # fmt: skip


def _gpu(bus_id: str | None, tree: Tree) -> dict[str, Any]:
    def first(*names: str) -> Any:
        return _get(tree, *names)

    def word(*names: str) -> str | None:
        """Return a string, or None: a damaged document may have elements in its place."""
        found = first(*names)
        return found if isinstance(found, str) else None

    return {
        "index": word("index"), "bus_id": bus_id, "product": word("product_name"), "uuid": word("gpu_uuid", "uuid"),
        "architecture": word("product_architecture"), "serial": word("serial_number", "serial"),
        "vbios": word("vbios_version"), "gsp_firmware": word("gsp_firmware_version"),
        "persistence": word("persistence_mode"),
        "mig": word("mig_mode/current", "mig_mode/current_mig"),
        "mig_pending": word("mig_mode/pending", "mig_mode/pending_mig"),
        "ecc": word("ecc_mode/current", "ecc_mode/current_ecc"),
        "ecc_pending": word("ecc_mode/pending", "ecc_mode/pending_ecc"),
        "ecc_errors": _ecc(first("ecc_errors")),
        "remapped_rows": _remapped(first("remapped_rows")),
        "retired_pages_pending": _yes(
            first("retired_pages/pending_page_blacklist", "retired_pages/pending_retirement")),
        "performance_state": word("performance_state"),
        "pcie": {
            "generation_current": _integer(first(*_GENERATION)), "generation_max": _integer(first(*_MAX_GENERATION)),
            "width_current": _integer(first(*_WIDTH)), "width_max": _integer(first(*_MAX_WIDTH)),
            "replays": _integer(first("pci/replays_since_reset", "pci/replay_counter")),
        },
        "clocks_event_reasons": _reasons(first("clocks_event_reasons", "clocks_throttle_reasons")),
        "fabric": _fabric(first("fabric")),
        "recovery_action": _recovery(tree),
        "power_draw_w": _real(first(*_DRAW)), "power_limit_w": _real(first(*_LIMIT)),
        "power_limit_default_w": _real(first(*_DEFAULT_LIMIT)), "power_limit_max_w": _real(first(*_MAX_LIMIT)),
        "temperature_c": _real(first("temperature/gpu_current_temp", "temperature/gpu_temp")),
        "temperature_limit_c": _real(first("temperature/gpu_t_limit_temp", "temperature/gpu_temp_tlimit")),
        "memory_total_mib": _integer(first("fb_memory_usage/total", "memory_usage/total")),
        "memory_used_mib": _integer(first("fb_memory_usage/used", "memory_usage/used")),
        "bar1_total_mib": _integer(first("bar1_memory_usage/total")),
        "utilization_gpu_percent": _integer(first("utilization/gpu", "utilization/gpu_util")),
        "no_answer": sorted(errors_in(tree)),
        "retired_pages": numbers(tree.get("retired_pages")),
        **{name: numbers(tree.get(name)) for name in _CLOCKS},
    }  # fmt: skip


def _recovery(tree: Tree) -> str | None:
    """Return the recovery action; the tool's ``None`` is an action, not missing data."""
    action = _get(tree, "gpu_recovery_action", "recovery_action")
    return action if isinstance(action, str) else None


def _ecc(block: Any) -> dict[str, Any] | None:
    """Return every number of the ECC section; None if there is no section.

    Up to Volta, errors of one bit and of two bits are separate groups; the total of each is added as ``NAME_total``.
    """
    counted = numbers(block)
    for span in ("volatile", "aggregate"):
        counts = counted.get(span) if counted else None
        if isinstance(counts, dict):
            bits_of = {name: bits for name, bits in counts.items() if isinstance(bits, dict) and "total" in bits}
            counts.update({f"{name}_total": bits["total"] for name, bits in bits_of.items()})
    return counted


#: Documented name -> its names in the XML and in the text output.
_REMAPPED = {
    "correctable": ("remapped_row_corr", "correctable_error"),
    "uncorrectable": ("remapped_row_unc", "uncorrectable_error"),
    "pending": ("remapped_row_pending", "pending"),
    "failure": ("remapped_row_failure", "remapping_failure_occurred"),
    "histogram": ("row_remapper_histogram", "bank_remap_availability_histogram"),
}


def _remapped(block: Any) -> dict[str, Any] | None:
    """Return the numbers of remapped rows, under documented names where defined."""
    counted = numbers(block)
    if counted is None:
        return None
    named = {
        name: next((counted.pop(spelling) for spelling in spellings if spelling in counted), None)
        for name, spellings in _REMAPPED.items()
    }
    if isinstance(named["histogram"], dict):
        named["histogram"] = {
            name.removeprefix("row_remapper_histogram_"): banks for name, banks in named["histogram"].items()
        }
    return {**named, **counted}


def _reasons(block: Any) -> list[str] | None:
    """Return the active clock event reasons, by their names in the text output.

    Nested groups are flattened. None if there is no such section.
    """
    if not isinstance(block, dict):
        return None
    active: list[str] = []
    for name, value in block.items():
        short = name.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_")
        if isinstance(value, dict):
            active += _reasons(value) or []
        elif str(value).lower() == "active":
            active.append(_REASONS.get(short, short))
    return active


#: Names in the XML -> names in the text output.
_REASONS = {"gpu_idle": "idle", "hw_power_braking": "hw_power_brake_slowdown"}


def _fabric(block: Any) -> dict[str, Any] | None:
    if not isinstance(block, dict):
        return None
    health = block.get("health")
    health_items = health.items() if isinstance(health, dict) else ()
    return {
        "state": _get(block, "state"), "status": _get(block, "status"),
        "clique_id": _integer(_get(block, "cliqueid", "clique_id")),
        "cluster_uuid": _get(block, "clusteruuid", "cluster_uuid"),
        "health": {name: value for name, value in health_items
                   if isinstance(value, str) and not NO_DATA.fullmatch(value)} or None,
    }  # fmt: skip

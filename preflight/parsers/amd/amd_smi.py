"""``amd-smi`` as JSON, or as text indented below ``GPU: N``.

Commands: static, metric, topology, list, process.

Sources: AMD's manual and change log of the tool (ROCm 6.0 to 7.1), and outputs of MI210, MI300X, MI350X and Radeon
cards in public reports. Not tested on a node with AMD GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from preflight.parsers.amd.model import (
    AmdErrors,
    AmdGpu,
    AmdLink,
    AmdProcess,
    AmdReport,
    count,
    facts,
    generation,
    measure,
    summary,
    word,
)
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at, json_head
from preflight.textprep.lines import Lines

__all__ = ("HINTS", "begins", "facts", "parse_lines", "summary")

HINTS = ("GPU: ", "[", "{")

_JSON = re.compile(
    r'\s*(?:\{\s*"gpu_data"\s*:\s*)?\[?\s*\{\s*"gpu"\s*:\s*\d{1,4}\s*,\s*'
    r'"(?:asic|bus|bdf|usage|power|clock|temperature|pcie|ecc|ecc_blocks|throttle|limit|driver|ras|mem_usage|process_list'
    r"|links|vbios|ifwi|board|vram|fan|numa|xgmi_err|perf_level|uuid|partition)\""
)
_GPU = re.compile(r"GPU: (\d{1,4})\s*")
_FIELD = re.compile(r"(\s{2,40})([A-Z][A-Za-z0-9_ ]{0,60}):(?: (.{1,400}?))?\s*")
#: Maximum numbers of GPUs and of links, processes or fields of one GPU that are read.
_GPUS, _ITEMS = 1024, 4096
#: Sensor -> its names in the section of temperatures, and in that of limits.
_SENSORS = {"edge": ("edge",), "hotspot": ("hotspot", "junction"), "mem": ("mem", "vram")}
#: Thermal reasons; others (power cap, low utilization, clocks below the host's limit) are active on healthy GPUs.
_HEAT = ("prochot", "socket_thermal", "vr_thermal", "hbm_thermal")
_ACTIVE, _INACTIVE = ("ACTIVE", "TRUE"), ("NOT ACTIVE", "INACTIVE", "FALSE")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``amd-smi`` output begins at a line."""
    text = lines[at].text
    if _GPU.fullmatch(text):
        after = lines[at + 1 : at + 2]
        return bool(after) and _FIELD.fullmatch(after[0].text) is not None
    if text.strip() not in ("[", "{", "[{") and '"gpu' not in text[:200]:
        return False
    return _JSON.match(json_head(lines, at)) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[AmdReport]:
    """Read the GPUs starting at a line."""
    end, trees, gaps = _of_text(lines, at) if _GPU.fullmatch(lines[at].text) else _of_json(lines, at)
    gpus = tuple(_gpu(tree) for tree in trees)
    if not gpus and not gaps:
        gaps = (ParseGap(lines[at].number, "no value of a GPU follows"),)
    return Parsed(AmdReport(gpus), gaps, end)


def _of_json(lines: Lines, at: int) -> tuple[int, Sequence[Mapping[str, Any]], tuple[ParseGap, ...]]:
    parsed = json_at(lines, at)
    if parsed is None:
        return len(lines), [], (ParseGap(lines[at].number, "the JSON is truncated"),)
    end, document = parsed
    listed = document.get("gpu_data") if isinstance(document, Mapping) and "gpu_data" in document else document
    items = listed if isinstance(listed, list) else [listed]
    trees = [item for item in items[:_GPUS] if isinstance(item, Mapping) and isinstance(item.get("gpu"), int)]
    more = len(items) - len(trees)
    gaps = (ParseGap(lines[at].number, f"{more} entries are not GPUs, or too many"),) if more else ()
    return end, trees, gaps


def _of_text(lines: Lines, at: int) -> tuple[int, Sequence[Mapping[str, Any]], tuple[ParseGap, ...]]:
    """Return the line after the text, and a tree of each GPU.

    Names are in lower case, as in JSON.
    """
    trees: list[dict[str, Any]] = []
    above: list[tuple[int, dict[str, Any]]] = []  # indentation and content of the enclosing sections
    fields, end, last = 0, at, at
    for end in range(at, len(lines)):
        text = lines[end].text
        if match := _GPU.fullmatch(text):
            if len(trees) == _GPUS:
                break
            trees.append({"gpu": int(match[1])})
            above, fields = [(0, trees[-1])], 0
        elif text.strip() and not text.startswith("  "):
            break
        elif (match := _FIELD.fullmatch(text)) and fields < _ITEMS:
            fields += 1
            while above[-1][0] >= len(match[1]):
                above.pop()
            name, section = match[2].lower().replace(" ", "_"), dict[str, Any]()
            above[-1][1][name] = section if match[3] is None else match[3]
            if match[3] is None:
                above.append((len(match[1]), section))
        if text.strip():
            last = end
    return last + 1, trees, ()


def _section(tree: Any, *path: str) -> Mapping[str, Any]:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def _first(section: Mapping[str, Any], *names: str) -> Any:
    return next((section[name] for name in names if word(section.get(name)) or measure(section.get(name)) is not None),
                None)  # fmt: skip


def _gpu(tree: Mapping[str, Any]) -> AmdGpu:
    bus, pcie, limit = _section(tree, "bus"), _section(tree, "pcie"), _section(tree, "limit")
    memory, power = _section(tree, "mem_usage"), _section(tree, "power")
    product = word(_section(tree, "asic").get("market_name")) or word(_section(tree, "board").get("product_name"))
    image = _section(tree, "ifwi") or _section(tree, "vbios")
    return AmdGpu(
        int(tree["gpu"]),
        address=word(bus.get("bdf")) or word(tree.get("bdf")) or "",
        product=product,
        driver=word(_section(tree, "driver").get("version")),
        vbios=word(image.get("version")) or word(image.get("part_number")),
        pcie_width=count(_first(pcie, "width", "current_width", "current_lanes")),
        pcie_width_max=count(bus.get("max_pcie_width")),
        pcie_generation=generation(_first(pcie, "speed", "current_speed")),
        pcie_generation_max=generation(bus.get("max_pcie_speed")),
        pcie_replays=count(pcie.get("replay_count")),
        errors=tuple(_errors(tree)),
        ras={name: state for name, value in islice(_section(tree, "ras", "ecc_block_state").items(), 64)
             if (state := word(value))},
        temperatures_c=_sensors(_section(tree, "temperature"), "{}"),
        slowdown_c=_sensors(limit, "slowdown_{}_temperature"),
        throttled=_throttled(_section(tree, "throttle"), word(power.get("throttle_status"))),
        power_limit_w=measure(_first(_section(limit, "ppt0") or limit, "socket_power_limit", "socket_power")),
        memory_total_mib=count(memory.get("total_vram")),
        memory_used_mib=count(memory.get("used_vram")),
        utilization_percent=count(_section(tree, "usage").get("gfx_activity")),
        links=dict(_links(tree)),
        processes=_processes(tree.get("process_list")),
    )  # fmt: skip


def _sensors(section: Mapping[str, Any], form: str) -> dict[str, float]:
    degrees = {sensor: measure(_first(section, *(form.format(name) for name in names)))
               for sensor, names in _SENSORS.items()}  # fmt: skip
    return {sensor: value for sensor, value in degrees.items() if value is not None}


def _errors(tree: Mapping[str, Any]) -> Iterator[AmdErrors]:
    total = {name.removeprefix("total_"): value for name, value in _section(tree, "ecc").items()}
    for block, counts in (("total", total), *islice(_section(tree, "ecc_blocks").items(), 64)):
        if isinstance(counts, Mapping):
            values = [count(counts.get(f"{kind}_count")) for kind in ("correctable", "uncorrectable", "deferred")]
            if any(value is not None for value in values):
                yield AmdErrors(block if block == "total" else block[:40].upper(), *values)


def _throttled(section: Mapping[str, Any], status: str | None) -> tuple[str, ...] | None:
    """Return the active thermal reasons; None if a state is missing or unknown."""
    states = {reason: (word(section.get(f"{reason}_violation_status")) or "").upper() for reason in _HEAT}
    active = tuple(reason for reason, state in states.items() if state in _ACTIVE)
    if active:
        return active
    if status == "THROTTLED":
        return ("unnamed",)
    clear = all(state in _INACTIVE for state in states.values())
    return () if clear or status == "UNTHROTTLED" else None


def _links(tree: Mapping[str, Any]) -> Iterator[tuple[int, AmdLink]]:
    listed = tree.get("links")
    for item in listed[:_ITEMS] if isinstance(listed, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("gpu"), int) and item["gpu"] != tree["gpu"]:
            kind = item.get("link_type")
            status = item.get("link_status")
            yield item["gpu"], AmdLink(str(kind)[:40] if kind is not None else "", word(status) or "")


def _processes(listed: Any) -> tuple[AmdProcess, ...] | None:
    """Return the processes; None if the text has no list of them."""
    if not isinstance(listed, list):
        return None
    processes = [_section(item, "process_info") for item in listed[:_ITEMS]]
    return tuple(
        AmdProcess(pid, word(item.get("name")) or "")
        for item in processes
        if (pid := count(item.get("pid"))) is not None
    )

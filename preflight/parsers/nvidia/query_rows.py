"""Rows of ``nvidia-smi --query-gpu`` as CSV, and ``nvidia-smi -L``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.parsers.nvidia.query_log import QueryLog, Tree
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = (", ", "(UUID: ", "--query-")

#: A column of the query -> path of the same value in the tree of ``nvidia-smi -q``.
_PATHS = {
    "name": "product_name", "gpu_name": "product_name", "uuid": "gpu_uuid", "gpu_uuid": "gpu_uuid",
    "serial": "serial_number", "gpu_serial": "serial_number", "vbios_version": "vbios_version",
    "pstate": "performance_state", "persistence_mode": "persistence_mode", "compute_mode": "compute_mode",
    "gpu_recovery_action": "gpu_recovery_action",
    "mig.mode.current": "mig_mode/current", "mig.mode.pending": "mig_mode/pending",
    "ecc.mode.current": "ecc_mode/current", "ecc.mode.pending": "ecc_mode/pending",
    "temperature.gpu": "temperature/gpu_current_temp", "temperature.gpu.tlimit": "temperature/gpu_t_limit_temp",
    "memory.total": "fb_memory_usage/total", "memory.used": "fb_memory_usage/used",
    "memory.reserved": "fb_memory_usage/reserved", "memory.free": "fb_memory_usage/free",
    "utilization.gpu": "utilization/gpu", "utilization.memory": "utilization/memory",
    "pcie.link.gen.current": "pci/gpu_link_info/pcie_generation/current",
    "pcie.link.gen.gpucurrent": "pci/gpu_link_info/pcie_generation/current",
    "pcie.link.gen.max": "pci/gpu_link_info/pcie_generation/max",
    "pcie.link.width.current": "pci/gpu_link_info/link_width/current",
    "pcie.link.width.max": "pci/gpu_link_info/link_width/max",
    "power.draw": "gpu_power_readings/power_draw", "power.draw.average": "gpu_power_readings/average_power_draw",
    "power.limit": "gpu_power_readings/requested_power_limit",
    "enforced.power.limit": "gpu_power_readings/current_power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit",
    "power.max_limit": "gpu_power_readings/max_power_limit",
    "clocks.sm": "clocks/sm", "clocks.current.sm": "clocks/sm", "clocks.max.sm": "max_clocks/sm",
    "clocks.gr": "clocks/graphics", "clocks.current.graphics": "clocks/graphics",
    "clocks.applications.gr": "applications_clocks/graphics",
    "clocks.applications.graphics": "applications_clocks/graphics",
    "clocks.default_applications.gr": "default_applications_clocks/graphics",
    "clocks.default_applications.graphics": "default_applications_clocks/graphics",
    "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
    "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending",
    "remapped_rows.correctable": "remapped_rows/correctable_error",
    "remapped_rows.uncorrectable": "remapped_rows/uncorrectable_error",
    "remapped_rows.pending": "remapped_rows/pending",
    "remapped_rows.failure": "remapped_rows/remapping_failure_occurred",
    "fabric.state": "fabric/state", "fabric.status": "fabric/status",
}  # fmt: skip
#: Columns of flags: ``--query-remapped-rows`` prints 0 and 1, ``-q`` No and Yes.
_FLAGGED = frozenset({"remapped_rows.pending", "remapped_rows.failure", "retired_pages.pending"})
_FLAGS = {"0": "No", "1": "Yes"}
#: Columns with counts of memory errors; their names include the kind of memory.
_ECC = re.compile(r"ecc\.errors\.(corrected|uncorrected)\.(volatile|aggregate)\.(device_memory|dram|sram|total)")
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w{2,40})")
#: Bits of ``clocks_event_reasons.active`` (nvml.h).
_REASON_BITS = {
    0x01: "idle", 0x02: "applications_clocks_setting", 0x04: "sw_power_cap", 0x08: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}  # fmt: skip
_PLACES = frozenset({"index", "pci.bus_id", "gpu_bus_id", "driver_version", "timestamp", "count"})
_COLUMN = re.compile(r"\s*([a-z][\w.]{1,60})(?: \[[\w/%]{1,8}\])?\s*")
_LISTED = re.compile(r"\s*GPU (\d{1,3}): (\S.{0,120}?) \(UUID: ([\w-]{4,64})\)\s*")
#: Text printed instead of a row if a GPU does not answer.
_LOST = re.compile(r".{0,200}(?:GPU is lost|requires reset|Unable to determine the device handle).{0,200}")
#: Maximum columns of one query, and characters of one line.
_MOST_COLUMNS, _LONGEST = 200, 16_000


def _columns(text: str) -> list[str] | None:
    """Return the column names of a header; None for any other line."""
    if text.count(",") < 1 or text.count(",") > _MOST_COLUMNS or len(text) > _LONGEST:
        return None
    matches = [_COLUMN.fullmatch(cell) for cell in text.split(",")]
    if not all(matches):
        return None
    names = [match[1] for match in matches if match]
    columns = [name for name in names if name in _PATHS or name in _PLACES or _ECC.fullmatch(name)
             or _REASON.fullmatch(name)]  # fmt: skip
    # "name" and "index" are too common to identify a header
    own = [name for name in columns if "." in name or "_" in name]
    return names if own and 2 * len(columns) >= len(names) and len(columns) > 1 else None


#: A command that prints rows without a header; the command names their columns.
_COMMAND = re.compile(
    r"nvidia-smi\s(?:.{0,200}\s)?--query-(?:gpu|remapped-rows)[= ]"
    r"[\"']?([a-z][\w.]{1,60}(?:,[a-z][\w.]{1,60}){1,200})[\"']?(?=\s|$)"
)


def _queried(lines: Lines, at: int) -> list[str] | None:
    """Return the columns of a command with ``noheader`` above its rows, else None."""
    text = lines[at].text
    if "--query-" not in text or "noheader" not in text or at + 1 >= len(lines):
        return None
    columns = match[1].split(",") if (match := _COMMAND.search(text[:_LONGEST])) else []
    cells = lines[at + 1].text.split(",")
    return columns if len(columns) == len(cells) > 1 and _columns(",".join(columns)) else None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``--query-gpu`` or a list of ``-L`` begins at a line."""
    text = lines[at].text
    if _queried(lines, at):
        return True
    return _LISTED.fullmatch(text) is not None if "(UUID: " in text else _columns(text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[QueryLog]:
    """Read the table or list that begins at a line."""
    columns = _queried(lines, at) or _columns(lines[at].text)
    if columns is None:
        return _listed(lines, at)
    rows = parse_rows(lines, at + 1, columns)
    if not rows.value.gpus:
        return Parsed(rows.value, (*rows.gaps, ParseGap(lines[at].number, "no row follows the header")), rows.end)
    return rows


def parse_rows(lines: Lines, at: int, columns: Sequence[str]) -> Parsed[QueryLog]:
    """Read rows with the given columns, from a line up to the first other line.

    A GPU that does not answer has an error line instead of a row; it becomes ``message`` in the GPU's tree.
    """
    general: Tree = {}
    gpus: list[tuple[str, Tree]] = []
    gaps: list[ParseGap] = []
    end = at
    while end < len(lines):
        text = lines[end].text
        if not text.strip() or len(text) > _LONGEST or is_prompt(text) or _columns(text) is not None:
            break
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) == len(columns):
            gpus.append(_gpu(columns, cells, general))
            if general.get("driver_version") != dict(zip(columns, cells, strict=True)).get("driver_version"):
                gaps.append(ParseGap(lines[end].number, "the rows name several driver versions"))
        elif _LOST.fullmatch(text):
            gpus.append(("", {"state": "GPU is lost", "message": text.strip()}))
        else:
            if "," in text:
                gaps.append(ParseGap(lines[end].number, "the row is truncated: it has fewer cells than the header"))
                end += 1
            break
        end += 1
    return Parsed(QueryLog(general, tuple(gpus)), tuple(gaps), end)


def _gpu(columns: Sequence[str], cells: list[str], general: Tree) -> tuple[str, Tree]:
    tree: Tree = {}
    bus_id = ""
    for name, value in zip(columns, cells, strict=True):
        if name in ("pci.bus_id", "gpu_bus_id"):
            bus_id = value
        elif name == "driver_version":
            general.setdefault("driver_version", value)
        elif name == "index":
            tree["index"] = value
        elif match := _ECC.fullmatch(name):
            memory = "dram" if match[3] in ("device_memory", "dram") else match[3]
            kind = "correctable" if match[1] == "corrected" else "uncorrectable"
            _put(tree, f"ecc_errors/{match[2]}/{memory}_{kind}", value)
        elif match := _REASON.fullmatch(name):
            _reason(tree, match[1], value)
        elif name in _PATHS:
            _put(tree, _PATHS[name], _FLAGS.get(value, value) if name in _FLAGGED else value)
    power = tree.get("gpu_power_readings", {})
    if "requested_power_limit" in power:  # used if the enforced limit is missing
        power.setdefault("current_power_limit", power["requested_power_limit"])
    for counts in tree.get("ecc_errors", {}).values():  # a total is dropped if its parts are given
        for kind in ("correctable", "uncorrectable"):
            if counts.keys() & {f"dram_{kind}", f"sram_{kind}"}:
                counts.pop(f"total_{kind}", None)
    return bus_id, tree


def _put(tree: Tree, path: str, value: str) -> None:
    *above, name = path.split("/")
    for section in above:
        tree = tree.setdefault(section, {})
    tree.setdefault(name, value)


def _reason(tree: Tree, name: str, value: str) -> None:
    if name == "active":
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
            bits = int(value, 16)
            for bit, reason in _REASON_BITS.items():
                _put(tree, f"clocks_event_reasons/{reason}", "Active" if bits & bit else "Not Active")
    elif name != "supported":
        _put(tree, f"clocks_event_reasons/{name.replace('gpu_idle', 'idle')}", value)


def _listed(lines: Lines, at: int) -> Parsed[QueryLog]:
    """Read ``nvidia-smi -L``, which lists MIG instances below their GPU."""
    gpus: list[tuple[str, Tree]] = []
    end = at
    while end < len(lines):
        if match := _LISTED.fullmatch(lines[end].text):
            gpus.append(("", {"index": match[1], "product_name": match[2], "gpu_uuid": match[3]}))
        elif lines[end].text.lstrip().startswith("MIG "):
            gpus[-1][1]["mig_mode"] = {"current": "Enabled"}
        else:
            break
        end += 1
    return Parsed(QueryLog({}, tuple(gpus)), (), end)

"""Pasted output of perftest: the test, its device, rows and error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.network.perftest import UNITS, PerftestError, cause, table_rows
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("Test", "#bytes")

_HEAD = re.compile(
    r"\s*(?:RDMA_)?(Write|Read|Send|Atomic|Raw Ethernet)\w*\s+(?:Bi|Pipe)?\S*\s*(BW|Latency)(?:\s+\w+)? Test\s*"
)
_COLUMNS = re.compile(r"\s*#bytes\s+#iterations\s.*")
_NAMED = re.compile(r"([A-Z][A-Za-z /-]{1,24}?)\s*:\s+(\S+)")
_ENDS = re.compile(r"\s*-{20,}\s*")
_STATUS = re.compile(r"[Ff]ailed status (\d{1,3})(?:\D{1,40}\d{1,20} syndrome? (0x[0-9a-fA-F]{1,8}))?")
#: The rate of a port, in sysfs and in lists of ports; maximum lines above a test, below it, and below the device's
#: name, in which it is searched.
_RATE = re.compile(r"\s*(?:[Rr]ate:?\s+)?(\d{1,4}(?:\.\d)?)(?: G(?:b/sec|bps|b/s)(?: \(.{1,20}\))?)?\s*")
_ABOVE, _BELOW, _BELOW_NAME = 80, 10, 25
#: Maximum lines of one test; a sweep prints one row per message size.
_MOST_LINES = 200


@dataclass(frozen=True)
class PerftestRow:
    """The results for one message size."""

    bytes: int  # message size
    messages: int
    bandwidth_gbps: float | None = None  # average
    million_messages_per_s: float | None = None
    latency_us: float | None = None  # typical; for a write, half of the round trip
    peak_gbps: float | None = None  # None if not measured, as in tests of a fixed duration


@dataclass(frozen=True)
class PerftestRun:
    """The output of one side of a test; a value that the text lacks is None."""

    line: int
    tool: str | None  # as in ib_write_bw
    device: str | None
    link_layer: str | None
    mtu: int | None  # bytes
    rows: tuple[PerftestRow, ...]
    error: PerftestError | None
    error_text: str  # first line with an error; empty if there is none
    port_gbps: float | None = None  # rate of the device's port, from the text above or below the test
    status: int | None = None  # status of the failed work completion
    syndrome: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)  # name -> value, as printed


def begins(lines: Lines, at: int) -> bool:
    """Return whether perftest output begins at a line."""
    text = lines[at].text
    return bool(_HEAD.fullmatch(text) or _COLUMNS.fullmatch(text))


def parse_lines(lines: Lines, at: int) -> Parsed[PerftestRun]:
    """Read one test starting at a line."""
    end = at + 1
    while end < min(len(lines), at + _MOST_LINES) and not (begins_anew(lines, at, end) or is_prompt(lines[end].text)):
        end += 1
    while end > at + 1 and not lines[end - 1].text.strip():
        end -= 1
    texts = [line.text for line in lines[at:end]]
    head = _HEAD.fullmatch(texts[0])
    fields = {name.strip(): value for text in texts for name, value in _NAMED.findall(text)}
    columns, found = table_rows("\n".join(texts))
    rows = tuple(_row(row, columns) for row in found)
    error = cause("\n".join(texts))
    gaps = []
    if head is None:
        gaps.append(ParseGap(lines[at].number, "the header of the test is missing"))
    if not rows and error is None and not any("rror" in text or "ailed" in text for text in texts):
        gaps.append(ParseGap(lines[end - 1].number, "no row of results follows"))
    tool = f"ib_{head[1].lower().split()[0]}_{'bw' if head[2] == 'BW' else 'lat'}" if head else None
    mtu = fields.get("Mtu", "").partition("[")[0]
    words = next((text.strip() for text in texts if "ailed status" in text or "rror" in text or "ouldn't" in text), "")
    failed = next((match for text in texts if (match := _STATUS.search(text)) is not None), None)
    run = PerftestRun(
        lines[at].number, tool, fields.get("Device"), fields.get("Link type"), int(mtu) if mtu.isdecimal() else None,
        rows, error, words[:200], _port_gbps(lines, at, end, fields.get("Device", "")),
        int(failed[1]) if failed else None, failed[2] if failed else None, fields,
    )  # fmt: skip
    return Parsed(run, tuple(gaps), end)


def _port_gbps(lines: Lines, at: int, end: int, device: str) -> float | None:
    """Return the rate shown below the device's name; None without one.

    The nearest name above the test counts, then the first one below it.
    """
    if not device:
        return None
    name = re.compile(rf"\b{re.escape(device)}\b")
    above, below = range(at - 1, max(0, at - _ABOVE) - 1, -1), range(end, min(len(lines), end + _BELOW))
    for index in (index for index in chain(above, below) if name.search(lines[index].text)):
        last = at if index < at else len(lines)
        for line in lines[index + 1 : min(last, index + _BELOW_NAME)]:
            if ("ate" in line.text or "Gb" in line.text) and (match := _RATE.fullmatch(line.text)):
                return float(match[1])
    return None


def begins_anew(lines: Lines, at: int, index: int) -> bool:
    """Return whether the test that began at ``at`` ends before line ``index``."""
    text = lines[index].text
    if _HEAD.fullmatch(text):
        return True
    rules = _ENDS.fullmatch(lines[index - 1].text)
    return bool(rules and not text.strip() and any(_COLUMNS.fullmatch(line.text) for line in lines[at : index - 1]))


def _row(row: Mapping[str, float], columns: Mapping[str, str]) -> PerftestRow:
    unit = columns.get("BW average", "")
    average, rate, peak = row.get("BW average"), row.get("MsgRate"), row.get("BW peak")
    return PerftestRow(
        int(row["#bytes"]), int(row["#iterations"]),
        None if average is None else round(average * UNITS.get(unit, 1.0), 3), rate, row.get("t_typical"),
        round(peak * UNITS.get(columns.get("BW peak", unit), 1.0), 3) if peak else None,
    )  # fmt: skip


def facts(run: PerftestRun) -> dict[str, Any]:
    """Return the test as `preflight read --json` prints it."""
    rows = [
        {"bytes": row.bytes, "iterations": row.messages, "bw_gbps": row.bandwidth_gbps,
         "bw_peak_gbps": row.peak_gbps, "msg_rate": row.million_messages_per_s, "latency_us": row.latency_us}
        for row in run.rows
    ]  # fmt: skip
    return {"tool": run.tool, "device": run.device, "link_layer": run.link_layer, "mtu": run.mtu, "rows": rows,
            "port_gbps": run.port_gbps, "error": run.error.value if run.error else run.error_text or None,
            "status": run.status, "syndrome": run.syndrome, "fields": dict(run.fields)}  # fmt: skip


def summary(run: PerftestRun) -> str:
    """Return a one-line summary of the test."""
    best = max((row.bandwidth_gbps for row in run.rows if row.bandwidth_gbps is not None), default=None)
    result = run.error.value if run.error else f"{best:g} Gb/s" if best is not None else f"{len(run.rows)} rows"
    return f"{run.tool or 'perftest'} of {run.device or 'a device'}: {result}"

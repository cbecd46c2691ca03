"""Log lines of serving engines: requests, throughput and KV cache.

The supported engines are vLLM (``Avg generation throughput: … Running: … Waiting: …``) and SGLang
(``Decode batch. #running-req: …``).
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.messages.scan import error_in
from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Line, Lines

_REPORTS = ("Avg generation throughput:", "#running-req:")
HINTS = (*_REPORTS, "Application startup complete", "GPU KV cache size:")

_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
#: Patterns of the values, by program; older versions of vLLM print `Pending` instead of `Waiting`.
_VALUES = {
    "vLLM": {
        "prompt": re.compile(rf"Avg prompt throughput: {_NUMBER} tokens/s"),
        "generation": re.compile(rf"Avg generation throughput: {_NUMBER} tokens/s"),
        "running": re.compile(rf"Running: {_NUMBER} reqs"),
        "waiting": re.compile(rf"(?:Waiting|Pending): {_NUMBER} reqs"),
        "cache": re.compile(rf"GPU KV cache usage: {_NUMBER}%"),
    },
    "SGLang": {
        "generation": re.compile(rf"gen throughput \(token/s\): {_NUMBER}"),
        "running": re.compile(rf"#running-req: {_NUMBER}"),
        "waiting": re.compile(rf"#queue-req: {_NUMBER}"),
        "cache": re.compile(rf"(?:token|KV cache) usage: {_NUMBER}"),
    },
}
_CACHE_SIZE = re.compile(r"GPU KV cache size: (\d[\d,]{0,14}) tokens")
_ENGINE = re.compile(r"\bEngine (\d{1,5}): ")
#: Maximum number of lines between two reports, and maximum number of examined characters of a line.
_GAP, _LONGEST = 60, 2000


@dataclass(frozen=True)
class ServingReport:
    """One periodic report of an engine; a value that its line lacks is None."""

    engine: str  # its number; empty if not printed
    generation_tokens_s: float | None
    prompt_tokens_s: float | None
    running: int | None  # requests
    waiting: int | None
    cache_used: float | None  # share of the KV cache, 0 to 1
    line: int


@dataclass(frozen=True)
class ServingLog:
    """The reports of one program, and the start of its server."""

    program: str
    reports: tuple[ServingReport, ...]
    started: int | None = None  # number of the line that reports that the server is ready
    cache_tokens: int | None = None  # size of the KV cache in tokens


def report_in(line: Line) -> tuple[str, ServingReport] | None:
    """Return the program and the report of a line; None for any other line."""
    text = line.text[:_LONGEST]
    program = next((name for name, hint in zip(_VALUES, _REPORTS, strict=True) if hint in text), None)
    if program is None:
        return None
    values = {name: float(match[1]) for name, pattern in _VALUES[program].items() if (match := pattern.search(text))}
    if "generation" not in values and "running" not in values:
        return None

    def integer(name: str) -> int | None:
        return int(values[name]) if name in values else None

    used = values.get("cache")
    engine = _ENGINE.search(text)
    return program, ServingReport(
        engine[1] if engine else "", values.get("generation"), values.get("prompt"), integer("running"),
        integer("waiting"), used / 100 if used is not None and program == "vLLM" else used, line.number,
    )  # fmt: skip


def begins(lines: Lines, at: int) -> bool:
    """Return whether a line is an engine's report or start message."""
    return report_in(lines[at]) is not None or _start_in(lines[at].text[:_LONGEST]) is not None


def _start_in(text: str) -> int | None:
    """Read a line that a server logs when it starts.

    Return the size of the KV cache in tokens, 0 if the server is ready, or None for any other line.
    """
    if size := _CACHE_SIZE.search(text):
        return int(size[1].replace(",", ""))
    return 0 if text.strip().removeprefix("INFO:").strip() == "Application startup complete." else None


def parse_lines(lines: Lines, at: int) -> Parsed[ServingLog]:
    """Read one program's reports, up to an error message or a long gap."""
    reports: list[ServingReport] = []
    program = ""
    started = tokens = None
    end = last = at
    while end < len(lines) and end - last <= _GAP:
        hit = report_in(lines[end])
        if hit is not None and hit[0] == (program or hit[0]):
            program = hit[0]
            reports.append(hit[1])
            last = end
        elif (start := _start_in(lines[end].text[:_LONGEST])) is not None:
            tokens = start or tokens
            started = started if start else lines[end].number
            last = end
        elif error_in(lines[end].text) is not None:
            break
        end += 1
    return Parsed(ServingLog(program, tuple(reports), started, tokens), (), last + 1)

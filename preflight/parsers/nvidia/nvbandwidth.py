"""``nvbandwidth``: bandwidths of copies between host and GPUs, and between GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

_HEAD = re.compile(r"\s*nvbandwidth Version: ?(\S{1,20}).*")
_RUNNING = re.compile(r"\s*Running (\w{1,80})\.?\s*")
_SUM = re.compile(r"\s*(?:SUM|MIN|MAX|AVG) (\w{1,80}) (\d{1,8}(?:\.\d{1,4})?)\s*")
_WAIVED = re.compile(r"\s*(?:(\w{1,80}) )?(?:was )?(?:WAIVED|Waived|waived)\b.*")
_ERROR = re.compile(r"\s*\[?(?:CUDA_ERROR_\w{1,60}|ERROR|Error)\b.{0,200}|\s*Mismatch.{0,200}")
_TITLE = re.compile(r"\s*mem\w*.{0,80}\((GB/s|ns)\)\s*")
_COLUMNS = re.compile(r"\s*\d{1,3}(?:\s+\d{1,3}){0,63}\s*")
_ROW = re.compile(r"\s*(\d{1,3})((?:\s+(?:N/A|\d{1,7}(?:\.\d{1,4})?)){1,64})\s*")
_DRIVER = re.compile(r"\s*Driver Version: (\d{3}\.\d{1,4}(?:\.\d{1,4})?)\s*")
_LISTED = re.compile(r"\s*(?:\[\S{1,80} - \w+\]:? )?[Dd]evice \d{1,3}: (\S.{0,120})")
_OTHER = re.compile(
    r"\s*(?:CUDA (?:Runtime|Driver) Version|Driver Version|Built from|Device \d|NOTE|MPI version|Process \d|\S+ -"
    r" device \d).*"
)


@dataclass(frozen=True)
class CopyTest:
    """One nvbandwidth test and its matrix of results."""

    name: str
    unit: str
    rows: Mapping[int, tuple[float | None, ...]]
    total: float | None  # the printed sum, minimum, maximum or average
    waived: bool
    line: int


@dataclass(frozen=True)
class Bandwidths:
    """The results of one nvbandwidth run."""

    version: str
    tests: tuple[CopyTest, ...]
    errors: tuple[tuple[int, str], ...]  # line number and text
    driver: str | None = None
    devices: tuple[str, ...] = ()  # GPUs as listed, with their PCI addresses


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``nvbandwidth`` output begins at a line."""
    text = lines[at].text
    return bool(_HEAD.fullmatch(text)) or (
        bool(_RUNNING.fullmatch(text)) and any(_TITLE.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    )


def parse_lines(lines: Lines, at: int) -> Parsed[Bandwidths]:
    """Read the output of one run, which begins at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    tests: list[CopyTest] = []
    errors: list[tuple[int, str]] = []
    driver, devices = None, list[str]()
    name, unit, rows, begun = "", "GB/s", dict[int, tuple[float | None, ...]](), at
    end = last = at

    def close(total: float | None = None, waived: bool = False) -> None:
        nonlocal name, rows
        if name:
            tests.append(CopyTest(name, unit, rows, total, waived, lines[begun].number))
        name, rows = "", {}

    while end < len(lines) and end - last < 5:
        text = lines[end].text
        if end > at and _HEAD.fullmatch(text):
            break
        if match := _RUNNING.fullmatch(text):
            close()
            name, begun = match[1], end
        elif match := _TITLE.fullmatch(text):
            unit = match[1]
        elif match := _SUM.fullmatch(text):
            close(float(match[2]))
        elif name and _WAIVED.fullmatch(text):
            close(waived=True)
        elif _ERROR.fullmatch(text):
            errors.append((lines[end].number, text.strip()))
        elif match := _DRIVER.fullmatch(text):
            driver = match[1]
        elif match := _LISTED.fullmatch(text):
            devices.append(match[1])
        elif name and not _COLUMNS.fullmatch(text) and (match := _ROW.fullmatch(text)):
            rows[int(match[1])] = tuple(None if cell == "N/A" else float(cell) for cell in match[2].split())
        elif text.strip() and not (end == at or _COLUMNS.fullmatch(text) or _OTHER.fullmatch(text)):
            end += 1
            continue
        if text.strip():
            last = end
        end += 1
    gaps = (ParseGap(lines[last].number, f"the sum of {name} is missing"),) if name else ()
    close()
    run = Bandwidths(head[1] if head else "", tuple(tests), tuple(errors), driver, tuple(devices))
    return Parsed(run, gaps, last + 1)


HINTS = ("nvbandwidth Version", "Running ")

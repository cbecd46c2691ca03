"""``cpupower frequency-info``: a CPU's frequency governor, driver and clock.

Source: cpupower-frequency-info(1).
"""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

HINTS = ("analyzing CPU",)

_HEAD = re.compile(r"analyzing CPU (\d{1,5})(?:[-,]\S{0,200})?:?\s*")
_GOVERNOR = re.compile(r'\s*The governor "([\w-]{1,40})" may decide.*')
_DRIVER = re.compile(r"\s*driver: ([\w-]{1,40})\s*")
_CURRENT = re.compile(r"\s*current CPU frequency: (\d{1,6}(?:\.\d{1,3})?) ([GM])Hz.*")


@dataclass(frozen=True)
class FrequencyPolicy:
    """The frequency policy of one CPU; a value that the text lacks is None."""

    cpu: int
    driver: str | None
    governor: str | None
    current_mhz: float | None
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``cpupower`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[FrequencyPolicy]:
    """Read the output that begins at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    end, taken = block(lines, at, lambda text: text[:1].isspace() and not _HEAD.fullmatch(text), blanks=0)
    text = [line.text for line in taken]
    governor = next((match[1] for line in text if (match := _GOVERNOR.fullmatch(line))), None)
    driver = next((match[1] for line in text if (match := _DRIVER.fullmatch(line))), None)
    clock = next((match for line in text if (match := _CURRENT.fullmatch(line))), None)
    mhz = float(clock[1]) * (1000 if clock[2] == "G" else 1) if clock else None
    gaps = () if governor else (ParseGap(lines[end - 1].number, "the governor is missing"),)
    return Parsed(FrequencyPolicy(int(head[1]) if head else 0, driver, governor, mhz, lines[at].number), gaps, end)


def facts(policy: FrequencyPolicy) -> dict[str, Any]:
    """Return the policy as `preflight read --json` prints it."""
    return {"cpu": policy.cpu, "driver": policy.driver, "governor": policy.governor, "current_mhz": policy.current_mhz}


def summary(policy: FrequencyPolicy) -> str:
    """Return a one-line summary of the policy."""
    return f"CPU {policy.cpu}: governor {policy.governor or 'not shown'}"

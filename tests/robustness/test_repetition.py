"""Long repetitions of a few lines are skipped: the result is the same as without the shortcut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from preflight import recognition
from preflight.recognition import detector
from preflight.textprep.lines import Line
from tests.support import paths

OUTSIDE = paths.DATA / "outside"

#: Lines that flood a job's log, in addition to those of tools.
FLOODS = ["NCCL WARN x", "x", "[", "]", "{", "}", "  ", "--", "...", "State: Active", "NCCL_DEBUG=INFO", "12:00:01 x",
          "NVRM: Xid (PCI:0000:3b:00): 79, x", "GPU0\tX\tNV18", "1: x", "# x", "> x", '"x",', "\tPort 1:"]  # fmt: skip
#: Lines of a text; the shortcut applies from 4000 on, except near lines that differ.
LENGTHS = (2000, 4001, 4500, 6000)
PLACES = (0, 999, 1000, 1001, 2000, 3000, -1, -999, -1000, -1001)
ERROR = "[ 1234.567890] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def lines_of_tools() -> list[list[str]]:
    """Return the lines of each output of a tool."""
    files = sorted(path for path in OUTSIDE.rglob("*") if path.is_file() and path.suffix not in (".toml", ".md"))
    texts = [path.read_bytes().decode("utf-8", "replace").splitlines() for path in files]
    return [lines for text in texts if (lines := [line for line in text if len(line) <= 300])]


def flood(chosen: random.Random, outputs: list[list[str]]) -> list[str]:
    """Return one to five lines many times, with a few other lines at random places."""
    lines = chosen.choice(outputs)
    period = chosen.choice((1, 1, 2, 3, 4, 5))
    begin = chosen.randrange(len(lines))
    near = lines[begin : begin + period] if chosen.random() < 0.7 else chosen.choices([*FLOODS, *lines], k=period)
    text = near * (chosen.choice(LENGTHS) // len(near) + 1)
    for _ in range(chosen.choice((1, 1, 1, 2, 3))):
        place = chosen.choice((*PLACES, chosen.randrange(len(text)))) % len(text)
        begin = chosen.randrange(len(lines))
        own = lines[begin : begin + chosen.choice((1, 1, 1, 2, 8))]
        text[place : place + chosen.choice((0, 1))] = own if chosen.random() < 0.7 else [chosen.choice(FLOODS)]
    return text


def read(lines: list[str]) -> list[dict[str, Any]]:
    return [part.document() for part in recognition.read_text("\n".join(lines), "flood")]


def test_lines_that_repeat_are_read_as_without_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, outputs = random.Random(20261123), lines_of_tools()
    shortcut, taken = detector._repeated, 0
    for _ in range(12):
        lines = flood(chosen, outputs)
        with monkeypatch.context() as patch:
            patch.setattr(detector, "_repeated", lambda lines: [])
            expected = read(lines)
        assert read(lines) == expected
        taken += bool(shortcut([Line(number, line) for number, line in enumerate(lines, 1)]))
    assert taken > 1


@pytest.mark.parametrize("number", [2000, 5000])
@pytest.mark.parametrize("place", [0, 1, 0.2, 0.4, 0.6, 0.8, -2, -1])
def test_one_line_that_differs_is_read_at_any_place(place: float, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at = int(place * number if 0 < place < 1 else place) % number
    lines = ["NCCL WARN x"] * number
    lines[at] = ERROR
    parts = read(lines)
    assert [part["kind"] for part in parts] == ["kernel log"]
    assert parts[0]["lines"][0] == at + 1
    monkeypatch.setattr(detector, "_repeated", lambda lines: [])
    assert read(lines) == parts


def test_most_lines_that_repeat_are_not_looked_at() -> None:
    looked_at = 0

    def matches(lines: Any, at: int) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    kind = detector.OutputFormat("none", matches, lambda lines, at: detector.ParsedPart(at, {}, ""))
    assert not list(detector.parts([Line(number, "x") for number in range(1, 50_001)], "", [kind]))
    assert 1000 < looked_at < 5000

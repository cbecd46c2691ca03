"""Step lines that differ only in digits, read with a pattern of the first one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight._startup.lightclass import dataclass
from preflight.parsers.training.iteration_log import StepFields, TrainingStep, fields_in
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import lines_of
from preflight.textprep.numbered_text import NumberedText

#: Steps by writer (empty if the line does not name it) and framework.
StepsByWriter = dict[tuple[str, str], list[TrainingStep]]

_NO_DIGITS = str.maketrans("", "", "0123456789")
_DIGITS = re.compile(r"\d+")
#: Number of lines from which textprep.line_prefixes accepts a repeated prefix.
_REPEATED = 3
#: Maximum number of line shapes, and maximum length of a line that is read by a pattern.
_MOST_SHAPES, _LONGEST = 4096, 4000


@dataclass(frozen=True)
class _Shape:
    """Lines that are equal except for digits; not read here without a pattern."""

    fields: StepFields | None  # None: not step lines
    pattern: re.Pattern[str] | None = None
    writer: str | None = None  # None: it differs between lines


_OTHER = _Shape(StepFields("", {}))


def read_repeated(lines: Iterable[tuple[int, str]]) -> tuple[StepsByWriter, list[tuple[int, str]]]:
    """Return the steps of numbered lines, and the lines that could not be read.

    Lines with terminal or page markup, and lines that are too long, cannot be read here.
    """
    steps: StepsByWriter = {}
    rest: list[tuple[int, str]] = []
    shapes: dict[str, _Shape] = {}
    writers: dict[str, str] = {}
    shape = _OTHER
    for number, text in lines:
        match = shape.pattern.fullmatch(text) if shape.pattern is not None else None
        if match is None:
            name = text.translate(_NO_DIGITS)
            if name not in shapes and len(shapes) < _MOST_SHAPES:
                shapes[name] = _shape(text)
            shape = shapes.get(name, _OTHER)
            match = shape.pattern.fullmatch(text) if shape.pattern is not None else None
        if shape.fields is None:
            continue
        if match is None:
            rest.append((number, text))
            continue
        values = match.groupdict()
        prefix = values.pop("prefix")
        if (writer := shape.writer) is None:
            if prefix not in writers:
                writers[prefix] = _written(text)[0]
            writer = writers[prefix]
        steps.setdefault((writer, shape.fields.framework), []).append(shape.fields.step(values, number))
    return steps, rest


def _shape(text: str) -> _Shape:
    """Make the shape of a line."""
    if len(text) > _LONGEST:
        return _OTHER
    writer, bare = _written(text)
    if not text.endswith(bare):
        return _OTHER
    if (fields := fields_in(bare)) is None:
        writer, bare = "", text  # the word before a colon is not a prefix
        fields = fields_in(bare)
    if fields is None:
        return _Shape(None)
    pieces, at, begin = [], 0, len(text) - len(bare)
    pieces.append(f"(?P<prefix>{_any_digits(text[:begin])})")
    for name, (start, end) in sorted(fields.spans.items(), key=lambda field: field[1]):
        if start < at:
            return _OTHER
        pieces += (_any_digits(bare[at:start]), f"(?P<{name}>{_any_digits(bare[start:end])})")
        at = end
    pattern = re.compile("".join(pieces) + _any_digits(bare[at:]))
    return _Shape(fields, pattern, None if _DIGITS.search(writer) else writer)


#: Seconds of one unit of a printed time; 0: its inverse is the time.
_SECONDS = {"ms": 0.001, "s": 1.0, "s/it": 1.0, "it/s": 0.0}


def time_reader(text: str) -> tuple[re.Pattern[bytes], float] | None:
    """Return a pattern of lines like a step line, and the unit of its group in s.

    The group is the time or, with unit 0, a rate; without either, the pattern has no group. None if the line is not a
    step line, has markup or is too long.
    """
    shape = _shape(text)
    if shape.fields is None or shape.pattern is None:
        return None
    name = next((name for name in ("time", "throughput") if name in shape.fields.spans), "")
    named = rf"\(\?P<(?!{name}>)\w+>" if name else r"\(\?P<\w+>"
    pattern = re.sub(named, "(?:", shape.pattern.pattern)
    return re.compile(pattern.encode()), _SECONDS.get(shape.fields.time_unit, 0.0) if name == "time" else 0.0


def _written(text: str) -> tuple[str, str]:
    """Split a line into the writer that its prefix names (or "") and the rest."""
    lines = lines_of(NumberedText("\n".join([text] * _REPEATED)))
    for writer, own in split_by_writer(lines):
        return writer, own[0].text
    return "", text


def _any_digits(text: str) -> str:
    return r"\d{1,20}".join(map(re.escape, _DIGITS.split(text)))

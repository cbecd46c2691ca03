"""Step lines that differ only in digits, read with a pattern of the first one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from preflight._startup.lightclass import dataclass
from preflight.parsers.training.iteration_log import StepFields, TrainingStep, fields_in
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import lines_of
from preflight.textprep.numbered_text import NumberedText

#: Steps by writer (empty if the line does not name it) and framework.
StepsByWriter = dict[tuple[str, str], list[TrainingStep]]

#: The bytes in which lines of one shape differ.
DIGITS = b"0123456789"
_NO_DIGITS = str.maketrans("", "", DIGITS.decode())
_DIGITS = re.compile(r"\d+")
#: Number of lines at which textprep.line_prefixes accepts a repeated prefix.
_REPEATED = 3
#: Maximum number of line shapes, and maximum length of a line that is read by a pattern.
_MOST_SHAPES, _LONGEST = 4096, 4000


@dataclass(frozen=True)
class _Shape:
    """Lines that are equal except for digits; not read here if there is no pattern."""

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


@dataclass(frozen=True)
class TimeReader:
    """Reader of the times in step lines that differ only in digits."""

    is_timed: bool  # whether the lines have a time or a rate
    unit: float = 0.0  # seconds of one unit; 0: a rate
    before: bytes = b""  # text before the time, and after it; empty if other values are between such texts
    after: bytes = b""
    pattern: re.Pattern[bytes] | None = None  # its group is the time, if ``before`` is empty

    def times(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the time in each line as printed; empty if it cannot be read."""
        if self.pattern is None:  # takes a quarter of the time
            return [line.partition(self.before)[2].partition(self.after)[0] for line in lines]
        return [match[1] if match else b"" for match in map(self.pattern.fullmatch, lines)]


def time_reader(text: str) -> TimeReader | None:
    """Return a reader of lines like a step line.

    It reads the time or, without one, a rate. None if the line is not a step line, has markup or is too long.
    """
    shape = _shape(text)
    if shape.fields is None or shape.pattern is None:
        return None
    name = next((name for name in ("time", "throughput") if name in shape.fields.spans), None)
    if name is None:
        return TimeReader(is_timed=False)
    unit = _SECONDS.get(shape.fields.time_unit, 0.0) if name == "time" else 0.0
    pattern = re.compile(re.sub(rf"\(\?P<(?!{name}>)\w+>", "(?:", shape.pattern.pattern).encode())
    before, after = _around(pattern, text.encode())
    return TimeReader(True, unit, before, after, None if before else pattern)


def _around(pattern: re.Pattern[bytes], line: bytes) -> tuple[bytes, bytes]:
    """Return the texts before and after the group, up to the next digits.

    Both are empty if the first one also occurs elsewhere in such lines.
    """
    match = pattern.fullmatch(line)
    if match is None:
        return b"", b""
    before, after = re.split(rb"\d", line[: match.start(1)])[-1], re.split(rb"\d", line[match.end(1) :])[0]
    alone = before and line.translate(None, DIGITS).count(before) == 1
    return (before, after) if alone and after else (b"", b"")


def _written(text: str) -> tuple[str, str]:
    """Split a line into the writer that its prefix names (or "") and its text."""
    lines = lines_of(NumberedText("\n".join([text] * _REPEATED)))
    for writer, own in split_by_writer(lines):
        return writer, own[0].text
    return "", text


def _any_digits(text: str) -> str:
    return r"\d{1,20}".join(map(re.escape, _DIGITS.split(text)))

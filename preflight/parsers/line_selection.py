"""Lines of a job's log that are not NCCL messages, in bounded memory."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from preflight.parsers.training.step_classes import StepLines
from preflight.textprep.numbered_text import LEFT_OUT, NumberedText

if TYPE_CHECKING:
    from preflight.parsers.training.skipped_steps import SkippedSteps
    from preflight.parsers.training.step_classes import StepsBetween

#: Maximum lines and bytes stored from the start and from the end of the selection.
MOST_LINES, MOST_BYTES = 100_000, 12 << 20

#: Number of lines of one shape (see ``shape_of``) at which they count as repetitions; number of repetitions
#: that remain.
ALIKE, _SHOWN = 1000, 50
_DIGITS = b"0123456789"
#: The beginning of a progress bar, and the bytes that change while it grows: spaces, ``#`` and the blocks of tqdm.
_BAR, _OF_BAR = b"%|", _DIGITS + b" #" + "".join(map(chr, range(0x2588, 0x2590))).encode()

#: Maximum step lines stored from the start and from the end, in addition to the first ``ALIKE`` of each shape.
MOST_STEPS = 5_000

#: Words of nccl-tests' reports and of PyTorch's watchdog.
_WORDS = (
    rb"ccl-tests v|test starting|nThread|Out of bounds|Avg bus|concluded|_perf|CCL version|algbw"
    rb"|Test (?:NCCL|CUDA|HIP) f|Test timeout|WorkNCCL\(|ast enqueued|Watchdog caught|Timeout at NCCL work"
    rb"|detected by watchdog|thread terminated with exception|\] \[Rank |Rank\s.{0,300}\sdevice\s"
)
#: Words of training steps.
_STEP = re.compile(
    rb"elapsed time per iteration|train_step_timing|\btps:|SamplesPerSec=|iter time \(s\)|\'loss\':|it/s|s/it"
    rb"|(?i:\b(?:step|iter).{0,160}\bloss\b)"
)
#: A row of nccl-tests, or the end of one; a host name may precede it without a space.
_TYPE = rb"(?:u?int\d{0,2}|char|half|float\d{0,2}|double|bfloat16|f8e[45]m[23]|fp8\w*)"
_ROW = rb"\d\s{1,40}\d{1,19}\s{1,40}" + _TYPE + rb"(?=\s|$)"
_WANTED = re.compile(rb"%s|%s|^[\s|]*[\d.][\d.\seE+\-naifN/A*|]*$" % (_WORDS, _ROW))
_TORN = re.compile(r"\d\s{1,40}\d{1,19}\s{1,40}[a-z]\w{2,15}\s")


def shape_of(line: bytes) -> bytes:
    """Return a line without its digits, and without the bar of a progress bar."""
    return line.translate(None, _OF_BAR if _BAR in line else _DIGITS)


def is_wanted(line: bytes) -> bool:
    """Return whether a line is needed even if repeated: a measurement or a rank."""
    return _WANTED.search(line) is not None


def is_step(line: bytes) -> bool:
    """Return whether a line may be a training step, and not a measurement or rank."""
    return _STEP.search(line) is not None and not is_wanted(line)


def is_torn(head: bytes) -> bool:
    """Return whether the text before an NCCL message starts a row of nccl-tests."""
    return b"  " in head and _TORN.search(head.decode("latin-1")) is not None


class LineSelection:
    """Selected lines in order; if there are too many, the first and the last ones."""

    def __init__(self) -> None:
        self._head, self._tail = _Lines(), _Lines()
        self._full = False
        self.dropped = 0  # number of selected lines between the first and the last ones
        self.all: str | None = None  # the complete text, if it is short enough to be pasted text
        self._steps, self._last_steps = StepLines(), StepLines()
        self._skipped: SkippedSteps | None = None

    def take_all(self, text: str) -> None:
        """Store a complete text, instead of selected lines."""
        self.all = text

    def add(self, number: int, line: bytes, after_gap: bool) -> None:
        """Add the next line; ``after_gap``: similar lines before it were skipped."""
        if not self._full:
            self._head.add(number, line, after_gap)
            self._full = self._head.is_full
            return
        self._tail.add(number, line, after_gap)
        if self._tail.is_twice_full:
            self.dropped += self._tail.drop_first_half()

    def add_steps(self, steps: StepLines) -> None:
        """Add step lines of frequent shapes; those in the middle are only counted."""
        if room := MOST_STEPS - len(self._steps):
            first, steps = steps.split(room)
            self._steps.add(first)
        self._last_steps.add(steps)
        if (extra := len(self._last_steps) - MOST_STEPS) > 0:
            middle, self._last_steps = self._last_steps.split(extra)
            self._skip().add(middle)

    def _skip(self) -> SkippedSteps:
        # import-at-use: only the longest logs need it
        from preflight.parsers.training.skipped_steps import SkippedSteps

        self._skipped = self._skipped or SkippedSteps()
        return self._skipped

    def steps(self) -> Iterator[tuple[int, str]]:
        """Yield the lines that ``add_steps`` stored, with their numbers."""
        for steps in (self._steps, self._last_steps):
            for number, text in zip(steps.numbers, steps.texts, strict=True):
                yield number, text.decode("utf-8", "backslashreplace")

    def steps_between(self) -> StepsBetween | None:
        """Return the step lines that are only counted; None without any."""
        return self._skipped.counted() if self._skipped is not None else None

    def merge(self, other: LineSelection) -> None:
        """Add the selection of the next part of the log."""
        if other._skipped is not None:
            self._skip().merge(other._skipped)
        self.add_steps(other._steps)
        self.add_steps(other._last_steps)
        for number, line, after_gap in other._items():
            self.add(number, line, after_gap)
        self.dropped += other.dropped

    def text(self, *, steps: bool = True) -> NumberedText:
        """Return the lines, with only the first ones of a repeated shape.

        All measurements and ranks are included, and with ``steps``, all step lines that are not in ``steps()``.
        """
        if self.all is not None:
            return NumberedText(self.all)
        numbers, lines = array("Q"), []
        for number, line, _ in self._few(each=True, steps=steps):
            numbers.append(number)
            lines.append(line)
        return _numbered(numbers, lines)

    def tool_text(self) -> NumberedText:
        """Return the lines that may be tool output, with marks for gaps.

        Step lines of repeated shapes are left out.
        """
        if self.all is not None:
            return NumberedText(self.all)
        numbers, lines = array("Q"), []
        for number, line, after_gap in self._few(each=False, steps=False):
            if after_gap and numbers:
                numbers.append(numbers[-1] + 1)
                lines.append(LEFT_OUT.encode())
            numbers.append(number)
            lines.append(line)
        return _numbered(numbers, lines)

    def _few(self, *, each: bool, steps: bool) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (number, line, whether lines are missing before it), with few repetitions.

        With ``each``, every line of a measurement or rank is included; with ``steps``, every step line; with neither,
        no repeated step line.
        """
        counts = Counter(shape_of(line) for _, line, _ in self._items())
        left = {shape: _SHOWN for shape, count in counts.items() if count >= ALIKE}
        complete: dict[bytes, bool] = {}
        omitted: dict[bytes, bool] = {}
        gap = False
        for number, line, after_gap in self._items():
            gap |= after_gap
            if (shape := shape_of(line)) in left and not complete.get(shape):
                if shape not in complete:
                    complete[shape] = (each and is_wanted(line)) or (steps and is_step(line))
                    omitted[shape] = not each and not steps and is_step(line)
                if omitted[shape]:
                    continue
                if not left[shape]:
                    gap = True
                    continue
                left[shape] -= not complete.get(shape)
            yield number, line, gap
            gap = False

    def _items(self) -> Iterator[tuple[int, bytes, bool]]:
        """Yield (number, line, whether lines are missing before it)."""
        yield from self._head.items()
        gap = self.dropped > 0
        for number, line, after_gap in self._tail.items():
            yield number, line, after_gap or gap
            gap = False


def _numbered(numbers: array[int], lines: list[bytes]) -> NumberedText:
    return NumberedText(b"\n".join(lines).decode("utf-8", "backslashreplace"), numbers)


class _Lines:
    """Stored lines, with their numbers and the gaps between them."""

    def __init__(self) -> None:
        self.numbers, self.lines = array("Q"), list[bytes]()
        self.gaps: set[int] = set()
        self.size = 0

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= MOST_LINES or self.size >= MOST_BYTES

    @property
    def is_twice_full(self) -> bool:
        return len(self.lines) >= 2 * MOST_LINES or self.size >= 2 * MOST_BYTES

    def add(self, number: int, line: bytes, after_gap: bool) -> None:
        self.numbers.append(number)
        self.lines.append(line)
        self.size += len(line) + 1
        if after_gap:
            self.gaps.add(number)

    def items(self) -> Iterable[tuple[int, bytes, bool]]:
        for number, line in zip(self.numbers, self.lines, strict=True):
            yield number, line, number in self.gaps

    def drop_first_half(self) -> int:
        half = 0
        while len(self.lines) - half > MOST_LINES or self.size > MOST_BYTES:
            self.size -= len(self.lines[half]) + 1
            half += 1
        self.gaps.difference_update(self.numbers[:half])
        del self.lines[:half]
        del self.numbers[:half]
        return half

"""Text normalisation: escape sequences, line ends, blanks, numbers and ID lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Control sequences (ECMA-48): CSI, OSC and DCS with their strings, character sets and single functions.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")

#: What each state of tqdm's progress bar has, and little else: states that others overwrite are lines too.
BAR = "%|"

#: Text that Ray adds to a line that it prints once for many processes.
_REPEATED = re.compile(r"\[repeated \d{1,7}x across [a-z ]{1,20}\]")


def strip_ray_repeat(line: str) -> str:
    """Remove Ray's note that a line was repeated."""
    match = _REPEATED.search(line) if "[repeated " in line else None
    return line[: match.start()].rstrip() if match else line


def uncoloured(text: str) -> str:
    """Remove escape sequences from a text."""
    return _ANSI.sub("", text)


def normalize_text(text: str) -> str:
    """Remove escape sequences, BOM and NUL, and convert line ends to ``\\n``."""
    text = uncoloured(text).replace("\ufeff", "").replace("\x00", "")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def ends_of(text: str, most: int, head: int = 0) -> str:
    """Return a text on one line, shortened in the middle to ``most`` characters.

    A message starts with the wrapper of an error and ends with its cause. ``head`` characters are from the start; the
    default is a third.
    """
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    head = head or most // 3
    return f"{text[:head].rstrip()} … {text[head - most + 3 :].lstrip()}"


#: Maximum number of consecutive blanks. Tools do not print columns further apart, and patterns with optional text
#: between blanks take quadratic or cubic time.
_WIDEST = 256
_GAP = re.compile(rf"(?<![^\S\n])([^\S\n]{{{_WIDEST}}})[^\S\n]+")


def limit_blank_runs(text: str) -> str:
    """Return a text with at most 256 consecutive blanks in a line."""
    return _GAP.sub(r"\1", text)


#: Maximum number of consecutive empty lines that are read; no parser looks further.
_MOST_EMPTY = 1000
_EMPTY = re.compile(rf"\n{{{_MOST_EMPTY + 2},}}")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line), from 1; a run of empty lines yields only its first 1000."""
    number, begin = 1, 0
    for gap in _EMPTY.finditer(text):
        yield from enumerate(text[begin : gap.start() + _MOST_EMPTY].split("\n"), number)
        number, begin = number + text.count("\n", begin, gap.end()), gap.end()
    yield from enumerate(text[begin:].split("\n"), number)


#: Maximum IDs in a list; Linux supports at most 8192 CPUs and 1024 NUMA nodes.
MOST_IDS = 65_536


def integer(text: str, what: str) -> int:
    """Read a decimal number; raises ValueError, in which ``what`` names the number."""
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        raise ValueError(f"{what} is {text.strip()[:60]!r}, not a number")
    return int(text)


def id_list(text: str, what: str) -> frozenset[int]:
    """Read a kernel list of IDs (``0-3,8``); raises ValueError.

    ``what`` names the list in the error.
    """
    ids: set[int] = set()
    named = 0
    for item in text.strip().split(","):
        if not item:
            continue
        if not (match := re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", item.strip())):
            raise ValueError(f"{what} contains {item.strip()[:60]!r}, neither an ID nor a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{what} contains the range {item.strip()!r}, which ends before it begins")
        named += last - first + 1
        if named > MOST_IDS:
            raise ValueError(f"{what} contains more than {MOST_IDS} IDs")
        ids.update(range(first, last + 1))
    return frozenset(ids)


def fold_ids(ids: frozenset[int]) -> str:
    """Format IDs as a kernel list (``0-3,8``); empty without IDs."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

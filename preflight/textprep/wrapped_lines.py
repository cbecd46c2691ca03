"""Lines that a terminal, an email or a page wrapped at a width, joined again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from preflight.textprep.lines import Line, Lines
from preflight.textprep.numbered_text import left_out

#: Usual widths of terminals; shorter or longer lines are not wrapped.
_WIDTHS = range(60, 401)
_BEGINS = re.compile(
    rb"\s*$|#|.{0,200}?(?:NCCL (?:INFO|WARN|version) |\w:\d{1,10}:\d{1,10} \[)|\[(?:[rR]ank ?)?\d|\d{4}-\d\d-\d\d"
    rb"|\[[EWIF](?:\d{4})? (?:[\d:.]{8,20} )?ProcessGroupNCCL"
)
_OWN = (b"NCCL ", b"ProcessGroupNCCL.cpp:")
#: Minimum number of broken lines that show a width.
_ENOUGH = 3

#: An incomplete line: without text after the level, or with a list of HCAs that does not end.
_UNFINISHED = re.compile(rb"NCCL (?:WARN|INFO)$|NCCL INFO NET/\S{1,32} ?: Using \[.{1,4096}/(?:IB|RoCE)$")
_LAST = (b"WARN", b"INFO", b"/IB", b"/RoCE")
_LONGEST = 4096


def continued(lines: list[bytes]) -> list[bytes]:
    """Join incomplete lines with their indented continuations.

    Joined lines become empty, to preserve line numbers.
    """
    joined = list(lines)
    at = 0
    while at < len(lines) - 1:
        first, end = lines[at].rstrip(), at + 1
        depth = len(first) - len(first.lstrip(b" \t"))
        if len(first) <= _LONGEST and first.endswith(_LAST) and _UNFINISHED.search(first):
            while end < len(lines) and _below(lines[end], depth) and b"NCCL " not in lines[end]:
                end += 1
            if end > at + 1:
                joined[at:end] = [b" ".join([first, *map(bytes.strip, lines[at + 1 : end])]), *[b""] * (end - at - 1)]
        at = end
    return joined


def _below(line: bytes, depth: int) -> bool:
    """Return whether a line is not empty and indented deeper than ``depth``."""
    return bool(line.strip()) and len(line) - len(line.lstrip(b" \t")) > depth


def unwrapped(lines: list[bytes]) -> list[bytes]:
    """Join wrapped lines.

    Joined lines become empty, to preserve line numbers. A width is accepted if no line is longer, and if nearly all
    lines of that length from NCCL or PyTorch's watchdog precede a line that does not start like a log line.
    """
    lengths = [len(line.rstrip(b"\r")) for line in lines]
    width = max(lengths, default=0)
    if width not in _WIDTHS:
        return lines
    full = [i for i, length in enumerate(lengths[:-1]) if length == width and any(own in lines[i] for own in _OWN)]
    broken = [i for i in full if not _BEGINS.match(lines[i + 1])]
    if len(broken) < _ENOUGH or len(broken) < 0.8 * len(full):
        return lines
    joined = list(lines)
    end = -1
    for i in broken:
        if i <= end:  # already joined to the previous line
            continue
        end = i + 1
        while lengths[end] == width and end + 1 < len(lines) and not _BEGINS.match(lines[end + 1]):
            end += 1
        joined[i] = b"".join(line.rstrip(b"\r") for line in lines[i : end + 1])
        joined[i + 1 : end + 1] = [b""] * (end - i)
    return joined


def join_at(lines: Sequence[str], width: int, goes_on: Callable[[str], bool]) -> list[str]:
    """Join lines of exactly a width with the continuations that ``goes_on`` accepts.

    Joined lines become empty, to preserve line numbers.
    """
    joined, at = list(lines), 0
    while at < len(joined) - 1:
        end = at
        while (
            end + 1 < len(joined) and len(joined[end]) == width and joined[end + 1].strip() and goes_on(joined[end + 1])
        ):
            end += 1
        if end > at:
            joined[at : end + 1] = ["".join(joined[at : end + 1]), *[""] * (end - at)]
        at = end + 1
    return joined


#: Range of line widths of emails and screens.
_NARROWEST, _WIDEST = 60, 240
#: Minimum width of a screen.
_SCREEN = 76
#: Common widths of screens. One line of such a width is enough, since others lost trailing blanks.
_USUAL = frozenset((80, 100, 120, 132, 160))
#: Text that cannot start a line, because a page's syntax highlighting split it; minimum number of such lines.
_REST = re.compile(r"[\]):](?:\s|\d|$)")
_LEAST_RESTS = 4
#: Maximum length of a word that an email moves to the next line.
_WORD = 40


def unbroken(lines: Lines) -> Iterator[list[Line]]:
    """Yield the lines joined in each plausible way.

    They may have been split by syntax highlighting, or wrapped by a screen or an email.
    """
    if sum(bool(_REST.match(line.text)) for line in lines) >= _LEAST_RESTS:
        yield _put_together(lines, lambda line, after: line + after if _REST.match(after) else None)
    widths = Counter(len(line.text) for line in lines)
    widest = max(widths, default=0)
    if not _NARROWEST <= widest <= _WIDEST:
        return
    if (widths[widest] > 1 or widest in _USUAL) and widest >= _SCREEN:
        yield _put_together(lines, lambda line, after: _screen(line, after, widest))
    # an email breaks lines where the next word does not fit, so its width may exceed that of its longest line
    yield _put_together(lines, lambda line, after: _mail(line, after, widest))


def _screen(line: str, after: str, width: int) -> str | None:
    """Join two lines if a screen of the given width wrapped them, else return None.

    Trailing blanks, which were lost at the break, are restored.
    """
    if len(line) == width:
        return line + after
    if width - len(line) <= 8 and after[:1].isspace():
        return line.ljust(width) + after
    return None


def _mail(line: str, after: str, width: int) -> str | None:
    """Join two lines if the second's first word did not fit; return None otherwise."""
    words = after.split(None, 1)
    if not words or after[:1].isspace() or not width - _WORD <= len(line):
        return None
    return f"{line} {after}" if len(line) + 1 + len(words[0]) > width else None


#: The kernel's time before a message, complete or truncated; the rest of a wrapped line never starts with it.
KERNEL_TIME = re.compile(r"(?:<\d{1,3}>)?\[ {0,8}\d{1,9}\.\d{0,9}(?:\]|$)")


def _put_together(lines: Lines, join: Callable[[str, str], str | None]) -> list[Line]:
    found: list[Line] = []
    tail = ""
    for line in lines:
        goes_on = found and tail and line.text and not left_out(line.text) and not KERNEL_TIME.match(line.text)
        one = join(tail, line.text) if goes_on else None
        if one is None:
            found.append(line)
        else:
            found[-1] = Line(found[-1].number, found[-1].text + one[len(tail) :])
        tail = line.text
    return found

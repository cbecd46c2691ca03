"""Removal of line prefixes: writers, times and line numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Set

from preflight.textprep.launcher_prefixes import ANY_MARK, MARKS, TIMES
from preflight.textprep.lines import Line, Lines
from preflight.textprep.plain_text import normalize_text

_KERNEL = re.compile(r"\bkernel(?::|\[)|NVRM: |SXid \(|\bmlx5_core |\bpcieport |nvidia-\w+: ")
_KERNEL_TIME = re.compile(r"\s*(?:<\d+>|\d{1,7}[:-]?\s?)?\[\s*\w|\w{3} {1,2}\d{1,2} \d\d:|\d{4}-\d\d-\d\d[T ]|\s{8}")
#: A line number of ``grep -n``, ``cat -n`` or an editor. ``81:00.0`` is a PCI address.
_LINE_NUMBER = re.compile(r"\s{0,8}(\d{1,7})(?:\t|\.(?:\s|$)|(?<=^.{6}) {2}|[:|](?!\d\d\.\d) ?)")
#: An element of a JSON list of lines, as Ansible prints them.
_JSON_STRING = re.compile(r'\s*("(?:[^"\\]|\\.){0,4000}"),?\s*')
_LEAST_NUMBERED = 5
_LEAST_COMMENTED = 6

#: A progress bar with a description, which is not the name of a writer: ``Loading checkpoint shards: 50%|``.
ACTIVITY_BAR = re.compile(r"\s{0,20}(?!Train)[A-Z][a-z]{2,20}ing\b[^|]{0,80}%\|")

#: Minimum number of consecutive lines with a prefix (fewer are text), and minimum lines per writer: ``State: Active``
#: also looks like a prefix.
_LEAST_LINES, _LEAST_PER_WRITER = 3, 3
#: Maximum attempts to find the same prefix in a run of lines, each from a later line.
_TRIES = 6


def split_by_writer(lines: Lines, depth: int = 2) -> Iterator[tuple[str, list[Line]]]:
    """Yield runs of lines with their writer, without launcher prefixes.

    An unknown writer is empty. Interleaved lines of several writers are separated.
    """
    lines = _uncommented(lines) or lines
    at, plain_from = 0, 0
    refused: dict[re.Pattern[str], tuple[int, int]] = {}
    while at < len(lines):
        end, written = _marked(lines, at, refused) if lines[at].text else (at, {})
        if end == at:
            at += 1
            continue
        if plain_from < at:
            yield "", list(lines[plain_from:at])
        for writer, own in written.items():
            # lines may have passed through several launchers
            for name, inner in split_by_writer(own, depth - 1) if depth > 1 else [("", own)]:
                yield f"{writer} {name}".strip(), inner
        at = plain_from = end
    if plain_from < len(lines):
        yield "", list(lines[plain_from:])


def _marked(
    lines: Lines, at: int, refused: dict[re.Pattern[str], tuple[int, int]]
) -> tuple[int, dict[str, list[Line]]]:
    """Return the end of a run of prefixed lines, and its lines by writer.

    The end is ``at`` if there is no such run. ``refused`` caches prefixes that turned out to be text: up to which line,
    and after how many attempts.
    """
    text = lines[at].text
    if text.lstrip()[:1].isdigit() and (numbered := _numbered(lines, at, refused)):
        return at + len(numbered), {"": numbered}
    if '"' in text and (numbered := _listed(lines, at)):
        return at + len(numbered), {"": numbered}
    if not ANY_MARK.match(text) or ACTIVITY_BAR.match(text):
        return at, {}
    for mark in (*MARKS, *TIMES):
        if not mark.match(lines[at].text):
            continue
        until, tries = refused.get(mark, (0, 0))
        if at < until and tries >= _TRIES:
            continue
        written: dict[str, list[Line]] = {}
        end, count = at, 0
        while end < len(lines):
            text = lines[end].text
            if match := mark.match(text + " "):
                rest = _unframed(text[match.end() :]) if text[:1] in "|│┃║" else text[match.end() :]
                written.setdefault(match[1], []).append(Line(lines[end].number, rest))
                count += 1
            elif text.strip():
                break
            end += 1
        while end > at and not lines[end - 1].text.strip():
            end -= 1
        kernel = mark in TIMES and _of_kernel([line.text for own in written.values() for line in own])
        if not kernel and count >= max(_LEAST_LINES, _least(written) * len(written)):
            return end, written
        refused[mark] = (end, _TRIES if kernel else tries + 1 if at < until else 1)
    return at, {}


def _unframed(text: str) -> str:
    """Remove the closing bar of a frame, or the bars of empty cells at a row's end.

    A bar that touches a word is not removed.
    """
    end = len(text.rstrip())
    if text[:end].endswith(("│", "┃", "║")):
        return text[: end - 1].rstrip()
    stop = end
    while text[stop - 1 : stop] == "|":
        before = stop - 1
        while before and text[before - 1].isspace():
            before -= 1
        if before == stop - 1:
            break
        stop = before
    return text[:stop] if stop < end else text


#: A prefix that looks like a host name, but may be the name of a field.
_MAY_BE_TEXT = re.compile(r"\s*[A-Za-z]\w*:\s")
#: Maximum lines of a text that is read again with its prefixes.
_MOST_TWICE = 5000


def unread(lines: Lines, written: Iterable[Lines], taken: Set[int]) -> Iterator[list[Line]]:
    """Yield runs of lines to be read again with their removed prefixes.

    No parser read these lines without the prefix, which may be the name of a field, as in ``State: Active``. Lines with
    numbers in ``taken`` are left out.
    """
    if len(lines) > _MOST_TWICE:
        return
    before = {line.number: line.text for line in lines}
    bare = {line.number for own in written for line in own
            if line.text != before[line.number] and _MAY_BE_TEXT.match(before[line.number])}  # fmt: skip
    bare -= taken
    stretch: list[Line] = []
    for line in lines:
        if line.number in bare:
            stretch.append(line)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _least(writers: Iterable[str]) -> int:
    """Return the minimum lines per writer: one less if all names contain digits."""
    return _LEAST_PER_WRITER - all(re.search(r"\d", name) for name in writers)


def _uncommented(lines: Lines) -> list[Line]:
    """Return the lines without their leading ``#``; empty if a text line lacks it."""
    count = sum(line.text.startswith("#") for line in lines)
    if count < _LEAST_COMMENTED or any(line.text.strip() and not line.text.startswith("#") for line in lines):
        return []
    return [Line(line.number, line.text[1:].removeprefix(" ")) for line in lines]


def _of_kernel(texts: list[str]) -> bool:
    """Return whether the removed prefix was the time of kernel lines.

    If most lines still have a time, it was not.
    """
    if not any(_KERNEL.search(text) for text in texts):
        return False
    return sum(bool(_KERNEL_TIME.match(text)) for text in texts) * 2 < len(texts)


def _numbered(lines: Lines, at: int, refused: dict[re.Pattern[str], tuple[int, int]]) -> list[Line]:
    """Return the consecutively numbered lines that begin at a line, without numbers."""
    if at < refused.get(_LINE_NUMBER, (0, 0))[0]:
        return []
    found: list[Line] = []
    before: int | None = None
    for line in _from(lines, at):
        match = _LINE_NUMBER.match(line.text + "\t" if line.text.strip().isdigit() else line.text)
        if not match or (before is not None and int(match[1]) != before + 1):
            break
        before = int(match[1])
        found.append(Line(line.number, line.text[match.end() :]))
    # cat -n starts at 1 and prints a tab: two lines are then enough
    least = 2 if found and re.match(r"\s*1\t", lines[at].text) else _LEAST_NUMBERED
    if len(found) < least:
        return []
    # the task numbers of a job also ascend, but they are repeated
    end = at + len(found)
    if end < len(lines) and _LINE_NUMBER.match(lines[end].text):
        refused[_LINE_NUMBER] = (end, _TRIES)
        return []
    return found


def _listed(lines: Lines, at: int) -> list[Line]:
    """Return the unescaped elements of the JSON list of lines that starts at a line."""
    found: list[Line] = []
    for line in _from(lines, at):
        match = _JSON_STRING.fullmatch(line.text) if '"' in line.text else None
        if not match:
            break
        try:
            text = str(json.loads(match[1], strict=False))
        except ValueError:
            break
        found.append(Line(line.number, normalize_text(text).replace("\n", " ").rstrip()))
    return found if len(found) >= _LEAST_NUMBERED else []


def _from(lines: Lines, at: int) -> Iterator[Line]:
    while at < len(lines):
        yield lines[at]
        at += 1

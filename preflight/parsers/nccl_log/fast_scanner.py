"""The pass over a log's lines, in bytes.

Nearly all lines of a large log are channel lines that differ in nothing but who says them. They are
taken apart by two searches for a constant and counted by (what stands before, way); text is made, and
patterns are tried, only where such a pair is met for the first time.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import islice
from operator import itemgetter
from zlib import crc32

from preflight.parsers.job_output import LONGEST_LINE_CHARS
from preflight.parsers.line_selection import ALIKE, LineSelection, is_torn, is_wanted
from preflight.parsers.nccl_log import rails, signatures
from preflight.parsers.nccl_log.apply_event import apply, sized
from preflight.parsers.nccl_log.channels import Via, via
from preflight.parsers.nccl_log.communicators import collective_size
from preflight.parsers.nccl_log.counters import MAX_WARNINGS
from preflight.parsers.nccl_log.event import LogEvent
from preflight.parsers.nccl_log.line_parser import LineParser, has_level
from preflight.parsers.nccl_log.messages import ignored, marked, parse_message
from preflight.parsers.nccl_log.prefix import Origin, clean, origin_of, unwrapped_json
from preflight.parsers.nccl_log.summarize import FRAMEWORK
from preflight.textprep.line_suffix import trimmed

_INFO, _WARN = b"NCCL INFO ", b"NCCL WARN "
_VIA = b"] via "
_CONNECTIONS = (b"Channel ", b"Ring ", b"CollNet ", b"Coll ")
#: "Channel 00/0 : 1000000[1b000] -> 1000000[1b000] [receive"
_LONGEST_NAME = 64
#: Lines at the beginning of a chunk that tell whether a collector of logs wrapped each into JSON.
HEADER_PROBE_LINES = 20
_DIGITS = b"0123456789"
#: Words of lines that others than NCCL write and that are read here, too.
_OURS = (b"NCCL", b"RCCL", b"vLLM is using nccl==")
#: Code of a kind of lines: a count in steps of _STEP, whether it is read here, whether every line is selected,
#: whether it is NCCL's or a framework's about NCCL.
_READ, _EACH, _NAMED, _STEP = 1, 2, 4, 8

#: A line that NCCL wrote, or what a launcher and a copy left of it, or a framework about it. A colour may end before.
_LINE = re.compile(rf"(?:\b|\dm)NCCL (?:INFO|WARN|ERROR|TRACE|ABORT|VERSION|version)\b|{FRAMEWORK.pattern}")
#: Words one of which is in every such line.
_WORDS = (b"NCCL", b"Nccl", b"nccl", b"Dist", b"c10d", b"Detected mismatch", b"Watchdog caught")

#: Entries of the tables that only save time; when they are full they are emptied.
_MAX_WAYS, _MAX_HEADS, _MAX_MESSAGES = 131_072, 32_768, 16_384
#: Only messages of at most so many bytes are remembered.
_REMEMBERED = 1024
#: Where more than this part of a chunk's lines begins differently, every line bears its time.
_STAMPED = 0.25


class Scanner(LineParser):
    """Reads lines in order, the many that are alike in bulk."""

    def __init__(self, first_line: int = 0, file: str = "", selection: LineSelection | None = None) -> None:
        """Begin after so many lines; ``selection`` takes the lines of other parsers."""
        super().__init__(first_line, file)
        self.selection = selection
        self.selected: list[tuple[int, bytes, bool]] = []  # lines of a chunk that are selected
        self.shapes: dict[bytes, int] = {}  # lines that others than NCCL wrote, without their digits → see _STEP
        self.stamped = False
        self.counts: Counter[bytes | None] = Counter()  # of channel lines, by what stands before and way
        self.ways: dict[bytes, tuple[str | None, Via | None]] = {}  # the same → host and way
        self.known_ways: dict[bytes, tuple[bool, Via | None]] = {}  # way → whether it is one, and which
        self.origins: dict[bytes, Origin | None] = {}
        self.messages: dict[bytes, tuple[LogEvent | None, str | None]] = {}
        self.warnings: dict[tuple[str, bytes], str | None] = {}  # source and message → failure
        self.silent_warning: bytes | None = None  # the last line that was only counted
        self.sizes: set[bytes] = set()  # of communicators, as collectives' lines name them
        self.idle: set[bytes] = set()  # messages that say nothing, without their digits

    def feed(self, lines: list[bytes]) -> None:
        """Take in lines, without their ends."""
        if not any(lines):  # a flood of line ends
            self.number += len(lines)
            self.tally.all_lines += len(lines)
            return
        written = lines
        if any(line[:1] == b"{" or unwrapped_json(line) is not None for line in lines[:HEADER_PROBE_LINES]):
            lines = [line if (inside := unwrapped_json(line)) is None else inside for line in lines]
        start, stamped, known, shapes = self.number, self.stamped, len(self.origins), self.shapes
        ends, mask = self.tally.ends, self.tally.ends_mask
        limit, gap = ALIKE * _STEP, False
        channels: list[tuple[int, bytes, bytes]] = []
        keys: list[bytes] = []
        others: list[tuple[int, bytes]] = []
        first = last = 0  # of NCCL's
        for number, line in enumerate(lines, start + 1):
            head, info, message = line.partition(_INFO)
            if info:
                last = number
                first = first or number
                before, is_channel, way = message.partition(_VIA)
                if is_channel and len(before) <= _LONGEST_NAME:
                    key = (_unstamped(head) if stamped else head) + way
                    keys.append(key)
                    channels.append((number, key, line))
                    if way[:3] == b"NET" and not (mask and crc32(before[:16]) & mask) and ends.get(before) != way:
                        mask = rails.add(ends, mask, before, way)
                    continue
                self.number = number
                self._info(line, head, message)
                continue
            if not line:
                continue
            shape = line.translate(None, _DIGITS)
            code = shapes.get(shape)
            if code is None:
                code = self._shape(line, shape)
            elif code >= limit and not code & (_READ | _EACH | _NAMED):
                gap = True
                continue
            else:
                shapes[shape] = code + _STEP
            if code & _NAMED:
                last = number
                first = first or number
            if code & _READ:
                others.append((number, line))
            if code < limit or code & _EACH:
                self.selected.append((number, written[number - start - 1], gap))
                gap = False
            else:
                gap = True
        self.tally.ends_mask = mask
        if first:
            self.tally.spanned(first, last)
        self._count(keys, channels)
        self._others(others)
        self.number = start + len(lines)
        self.tally.all_lines += len(lines)
        self._select()
        if len(self.origins) - known > _STAMPED * len(lines) > 64:
            self.stamped = True
        if len(self.counts) > _MAX_WAYS or len(self.origins) > _MAX_HEADS:
            self.flush_counts()

    def _shape(self, line: bytes, shape: bytes) -> int:
        """Return the code of a new kind of lines."""
        is_long = len(line) > LONGEST_LINE_CHARS
        is_read = is_long or any(mark in line for mark in _OURS) or any(mark in line for mark in _marks())
        is_named = any(word in line for word in _WORDS) and _LINE.search(clean(line)) is not None
        is_each = self.selection is not None and is_wanted(line[:LONGEST_LINE_CHARS])
        code = _READ * is_read + _EACH * is_each + _NAMED * is_named
        if len(shape) <= _REMEMBERED:
            if len(self.shapes) >= _MAX_MESSAGES:
                self.shapes.clear()
            self.shapes[shape] = code + _STEP
        return code

    def _select(self) -> None:
        """Hand over the selected lines of a chunk in their order."""
        if self.selection is not None:
            self.selected.sort(key=itemgetter(0))
            before = 0
            for number, line, gap in self.selected:
                if number != before:
                    self.selection.add(number, line, gap)
                before = number
        self.selected.clear()

    def flush_counts(self) -> None:
        """Add the counts of channels to the tally."""
        table = self.tally.seen.get("via", {})
        for key, count in self.counts.items():
            host, taken = self.ways[key or b""]
            self.tally.lines += count
            if taken is not None and (seen := table.get((host, *taken))) is not None:
                seen.count += count
            elif taken is not None:
                self.tally.overflow["via"] = self.tally.overflow.get("via", 0) + count
        self.counts.clear()
        self.ways.clear()
        self.origins.clear()

    # --- channels ----------------------------------------------------------------------------------

    def _count(self, keys: list[bytes], channels: list[tuple[int, bytes, bytes]]) -> None:
        """Count a chunk's channel lines, and look at those of a kind that was not met yet."""
        before = len(self.counts)
        self.counts.update(keys)
        new = set(islice(reversed(self.counts), len(self.counts) - before))
        refused = set()
        for number, key, line in channels if new else ():
            if key not in new:
                continue
            self.number = number
            if key not in refused and self._new_way(line, key):
                new.discard(key)
                continue
            if key not in refused:
                refused.add(key)
                del self.counts[key]
            self.parse_line(number, line)

    def _new_way(self, line: bytes, key: bytes) -> bool:
        """Take in a channel's line of a new kind; False if it needs more care."""
        head, _, message = line.partition(_INFO)
        before, _, way = message.partition(_VIA)
        head = _unstamped(head) if self.stamped else head
        origin = self.origins[head] if head in self.origins else self._origin(head, line)
        if way not in self.known_ways:
            if len(self.known_ways) >= _MAX_MESSAGES:
                self.known_ways.clear()
            self.known_ways[way] = (len(way) <= _LONGEST_NAME * 4 and not has_level(way), via(clean(way)))
        is_simple, taken = self.known_ways[way]
        if origin is None or not is_simple or head[:1] == b"{" or not before.startswith(_CONNECTIONS):
            return False
        self.ways[key] = (origin.host, taken)
        if taken is not None:
            number, channel_text = self.number, before + _VIA + way
            self.tally.add("via", (origin.host, *taken), lambda: self.line(number, line, origin, channel_text), 0)
            if b" nRanks " in way:
                self.way_of(clean(way))
        return True

    # --- other messages of level INFO --------------------------------------------------------------

    def _info(self, line: bytes, head: bytes, message: bytes) -> None:
        origin = self.origins[head] if head in self.origins else self._origin(head, line)
        if origin is None and has_level(head):  # a warning and another message in one line
            self.parse_line(self.number, line)
            return
        if (known := self.messages.get(message)) is None:
            if ignored(message):
                self.tally.lines += origin is not None and not origin.quoted
                self._sized(message)
                return
            if (shape := message.translate(None, _DIGITS)) in self.idle:
                self.tally.lines += origin is not None and not origin.quoted
                return
            if has_level(message) or head[:1] == b"{" or len(line) > 8 * LONGEST_LINE_CHARS:
                self.parse_line(self.number, line)
                return
            known = self._read(message, shape)
        event, failure = known
        if event is not None and event.kind == "version":
            self.selected.append((self.number, line, False))
        if origin is None:
            if event is not None and event.kind == "version":  # of any process
                self.outside(self.number, clean(line))
            return
        self.tally.lines += event is not None or failure is not None or not origin.quoted
        if event is not None:
            apply(self.tally, event, origin, lambda: self.line(self.number, line, origin, message))
        if failure is not None:
            self.failed(failure, origin, lambda: self.line(self.number, line, origin, message))

    def _sized(self, message: bytes) -> None:
        """Keep the size of the communicator that a collective's line names, and each size once."""
        size = message[message.find(b" [nranks=") :][:20]
        if size[:1] == b" " and size not in self.sizes and (ranks := collective_size(size)) is not None:
            if len(self.sizes) < _MAX_MESSAGES:
                self.sizes.add(size)
            sized(self.tally, ranks)

    def _read(self, message: bytes, shape: bytes) -> tuple[LogEvent | None, str | None]:
        """Parse a message seen for the first time, and cache the result."""
        text = trimmed(clean(message))
        event = parse_message(text)
        if event is not None and event.kind in ("comm", "size", "rank"):
            return (event, None)  # with an address: no such message comes again
        found = signatures.matching(text, "info")
        if event is None and found is None and not marked(text) and not any(m in text for m in signatures.info_marks()):
            if len(self.idle) >= _MAX_MESSAGES:
                self.idle.clear()
            if len(shape) <= _REMEMBERED:
                self.idle.add(shape)
            return (None, None)
        known = (event, found.id if found else None)
        if len(message) <= _REMEMBERED:
            if len(self.messages) >= _MAX_MESSAGES:
                self.messages.clear()
            self.messages[message] = known
        return known

    # --- all the rest ------------------------------------------------------------------------------

    def _warning(self, number: int, raw: bytes) -> None:
        """Take in a line that may be a warning; what many ranks say is read once."""
        if raw == self.silent_warning:
            self.tally.lines += 1
            self.tally.warning_count += 1
            return
        head, warn, message = raw.partition(_WARN)
        if not warn or len(message) > _REMEMBERED or b"NCCL " in message or raw[:1] == b"{":
            self.parse_line(number, raw)
            return
        self.number = number
        origin = self.origins[head] if head in self.origins else self._origin(head, b"")
        if origin is None:
            self.parse_line(number, raw)
            return
        key = (origin.source, message)
        if key not in self.warnings:
            if len(self.warnings) >= _MAX_MESSAGES:
                self.warnings.clear()
            text = trimmed(clean(message))
            self.sized_by(text)
            found = signatures.matching(text, "warn", origin.source)
            self.warnings[key] = found.id if found else None
        self.tally.lines += 1
        self.tally.warning(lambda: self.line(number, raw, origin, message))
        if name := self.warnings[key]:
            self.failed(name, origin, lambda: self.line(number, raw, origin, message))
        elif len(self.tally.warnings) >= MAX_WARNINGS:
            self.silent_warning = raw

    def _others(self, lines: list[tuple[int, bytes]]) -> None:
        """Take in lines that are not of level INFO: warnings, versions, and what others than NCCL wrote."""
        plain: list[tuple[int, bytes]] = []
        now = self.number
        for number, raw in lines:
            if any(mark in raw for mark in _OURS):
                self._warning(number, raw)
            elif len(raw) > LONGEST_LINE_CHARS:
                self.tally.long_lines += 1
                plain.append((number, raw[:LONGEST_LINE_CHARS]))
            else:
                plain.append((number, raw))
        for number, raw in plain:
            self.outside(number, clean(raw))
        self.number = now

    def _origin(self, head: bytes, line: bytes) -> Origin | None:
        try:
            return self.origins[head]
        except KeyError:
            if line and is_torn(head):
                self.selected.append((self.number, line, False))
            several = len(head) > LONGEST_LINE_CHARS or has_level(head)
            origin = None if several else self.known(origin_of(clean(head)))
            self.origins[head] = origin
            return origin


@cache
def _marks() -> tuple[bytes, ...]:
    """Return the texts of which a line of another program must hold one to be read."""
    return signatures.outside_marks()


def _unstamped(head: bytes) -> bytes:
    """Return the end of what stands before a message: HOST:PID:TID and device, without the time before them."""
    parts = head.rsplit(b" ", 3)
    return head if len(parts) < 4 else b" ".join(parts[1:])

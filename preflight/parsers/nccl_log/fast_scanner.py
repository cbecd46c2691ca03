"""Fast scanner of a log's lines, as bytes.

Nearly all lines of a large log are channel lines that differ only in their process and channel. Each is split by
searching for two constants, and counted by process and transport; only the first line of each such pair is decoded and
parsed. Other repeated messages of a process are counted in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import compress
from operator import not_
from zlib import crc32

from preflight._startup.lightclass import replace
from preflight.parsers.job_output import LONGEST_LINE_CHARS
from preflight.parsers.line_selection import ALIKE, LineSelection, is_step, is_torn, is_wanted, shape_of
from preflight.parsers.nccl_log import rails, signatures
from preflight.parsers.nccl_log.apply_event import OF_COMMUNICATORS, apply, nowhere, sized
from preflight.parsers.nccl_log.channels import Via, via
from preflight.parsers.nccl_log.communicators import collective_size
from preflight.parsers.nccl_log.counters import MAX_WARNINGS
from preflight.parsers.nccl_log.event import LogEvent
from preflight.parsers.nccl_log.line_parser import LineParser, has_level, is_relevant
from preflight.parsers.nccl_log.messages import ignored, marked, parse_message
from preflight.parsers.nccl_log.model import LogLine
from preflight.parsers.nccl_log.prefix import Origin, clean, origin_of, unwrapped_json
from preflight.parsers.nccl_log.summarize import FRAMEWORK
from preflight.parsers.training.step_classes import StepLines
from preflight.textprep.line_source import MAX_LINE_BYTES
from preflight.textprep.line_suffix import trimmed

_INFO, _WARN = b"NCCL INFO ", b"NCCL WARN "
_VIA = b"] via "
_CONNECTIONS = (b"Channel ", b"Ring ", b"CollNet ", b"Coll ")
#: "Channel 00/0 : 1000000[1b000] -> 1000000[1b000] [receive"
_LONGEST_NAME = 64
#: Number of lines at the start of a chunk that are searched for a log collector's JSON.
HEADER_PROBE_LINES = 20
_DIGITS = b"0123456789"
#: Words in lines that may have an NCCL version, or an NCCL warning.
_OURS = (b"NCCL", b"RCCL", b"vLLM is using nccl==")
#: Flags of a shape of lines: they are parsed here; each is selected; they are from NCCL, or from a framework about it;
#: they are training steps. The higher bits, in steps of _STEP, count the lines.
_READ, _EACH, _NAMED, _OF_TRAINING, _STEP = 1, 2, 4, 8, 16

#: A line from NCCL, even if a launcher or copying has damaged its prefix, or a framework's message about NCCL. The end
#: of a colour code may precede it directly.
_LINE = re.compile(rf"(?:\b|\dm)NCCL (?:INFO|WARN|ERROR|TRACE|ABORT|VERSION|version)\b|{FRAMEWORK.pattern}")
#: Words; every such line contains at least one.
_WORDS = (b"NCCL", b"Nccl", b"nccl", b"Dist", b"c10d", b"Detected mismatch", b"Watchdog caught")

#: Maximum number of entries in the caches, which are emptied when full.
_MAX_PAIRS, _MAX_HEADS, _MAX_MESSAGES = 131_072, 32_768, 16_384
#: The note on a line above the maximum length, and the number of bytes by which its searched parts overlap.
LONG_LINE_NOTE = f"a line is longer than {MAX_LINE_BYTES >> 10} KiB; the rest of it was not read"
_LONGEST_MARK = 256
#: Maximum number of bytes beyond the maximum line length that are searched: a megabyte takes 0.1 s.
_MOST_SEARCHED = 16 << 20
#: Maximum number of bytes in a cached message.
_REMEMBERED = 1024
#: Number of process names that occurred after different line starts, beyond which line starts are timestamps.
_STAMPED = 64
_MAX_STAMPS = 1024
#: Cached result for a message: the message, its event and the id of its failure.
_Read = tuple[bytes, LogEvent | None, str | None]


class Scanner(LineParser):
    """Scanner of a log's lines, which only counts those that are repeated."""

    def __init__(self, first_line: int = 0, file: str = "", selection: LineSelection | None = None) -> None:
        """Start after ``first_line`` lines; ``selection`` gets lines for other parsers."""
        super().__init__(first_line, file)
        self.selection = selection
        self.before_rest = b""  # the end of the part that was left out last
        self.searched = 0  # bytes beyond the maximum line length
        self.last_selected, self.gap = 0, False  # gap: lines after it were not selected
        self.shapes: dict[bytes, int] = {}  # shape of a line → its flags and count, see _STEP
        self.frequent: dict[bytes, bytes] = {}  # training steps with enough selected lines, without digits → the same
        self.origins: dict[bytes, Origin | None] = {}  # text before a message → the process that wrote it
        self.restamped = 0  # process names that occurred after different line starts
        self.stamps: set[bytes] = set()  # line starts before such names, without digits
        # process → channel transport, or other message → number of repetitions; each text is stored once
        self.ways: dict[bytes, dict[bytes, int]] = {}
        self.repeats: dict[bytes, dict[bytes, int]] = {}
        self.pairs = 0  # number of entries in both
        self.known_ways: dict[bytes, tuple[bytes, bool, Via | None]] = {}  # → text, is transport, value
        self.messages: dict[bytes, _Read] = {}
        self.warnings: dict[tuple[str, bytes], str | None] = {}  # source and message → id of the failure
        self.silent_warning: bytes | None = None  # the last warning that was only counted
        self.sizes: set[bytes] = set()  # communicator sizes, as printed for collectives
        self.idle: set[bytes] = set()  # messages that are not parsed, without digits

    def feed(self, lines: list[bytes]) -> None:
        """Read lines, without their newlines."""
        start = self.number
        self.tally.all_lines += len(lines)
        if not any(lines):  # only newlines
            self.number += len(lines)
            return
        written = lines
        if any(line[:1] == b"{" or unwrapped_json(line) is not None for line in lines[:HEADER_PROBE_LINES]):
            lines = [line if (inside := unwrapped_json(line)) is None else inside for line in lines]
        ways, repeats, shapes, stamps = self.ways, self.repeats, self.shapes, self.stamps
        ends, mask = self.tally.ends, self.tally.ends_mask
        limit, origins, width = ALIKE * _STEP, self.origins, 0
        first = last = 0  # numbers of lines from NCCL
        rest: Iterable[tuple[int, bytes]] = enumerate(lines, start + 1)
        steps, late = StepLines(), StepLines()
        if self.frequent:
            names = list(map(self.frequent.get, [line.translate(None, _DIGITS) for line in written]))
            numbers = range(start + 1, start + 1 + len(lines))
            if None not in names:
                steps, rest = StepLines(numbers, written, names), ()  # type: ignore[arg-type]
            else:
                steps = StepLines(compress(numbers, names), compress(written, names), filter(None, names))
                rest = compress(rest, map(not_, names))
        for number, line in rest:
            head, info, message = line.partition(_INFO)
            if info:
                last = number
                if not first:
                    first = number
                if stamps:
                    stamp = head[:width].translate(None, _DIGITS)
                    if stamp not in stamps or head[width:] not in origins:  # most are as wide as the last one
                        width = _name_begin(head)
                        stamp = head[:width].translate(None, _DIGITS)
                    if stamp in stamps:
                        head = head[width:]
                before, is_channel, way = message.partition(_VIA)
                if is_channel and len(before) <= _LONGEST_NAME:
                    if way[:3] == b"NET" and not (mask and crc32(before[:16]) & mask) and ends.get(before) != way:
                        mask = rails.add(ends, mask, before, way)
                    try:
                        ways[head][way] += 1
                    except KeyError:
                        self.number = number
                        self._new_way(line, head, before, way)
                    continue
                if (texts := repeats.get(head)) is not None and message in texts:
                    texts[message] += 1
                    continue
                self.number = number
                self._info(line, head, message)
                continue
            if not line:
                continue
            shape = shape_of(line)
            code = shapes.get(shape)
            if code is None:
                code = self._shape(line, shape)
            elif code >= limit and not code & (_READ | _EACH | _NAMED):
                if code & _OF_TRAINING:
                    step = written[number - start - 1]
                    name = step.translate(None, _DIGITS)
                    late.add(StepLines([number], [step], [self.frequent.setdefault(name, name)]))
                else:
                    self.gap = True
                continue
            else:
                shapes[shape] = code + _STEP
            if code & _NAMED:
                last = number
                first = first or number
            if code & _READ:
                self.number = number
                self._other(line)
            if code < limit or code & _EACH:
                self._select(number, written[number - start - 1])
            else:
                self.gap = True
        if late:
            steps.add(late)
            steps.sort()
        if steps and self.selection is not None:
            self.selection.add_steps(steps)
        self.tally.ends_mask = mask
        if first:
            self.tally.spanned(first, last)
        self.number = start + len(lines)
        if len(self.origins) > _MAX_HEADS:
            self.flush_counts()

    def _shape(self, line: bytes, shape: bytes) -> int:
        """Return the flags of a line with a new shape."""
        is_long = len(line) > LONGEST_LINE_CHARS
        is_read = is_long or any(mark in line for mark in _OURS) or any(mark in line for mark in _marks())
        is_named = any(word in line for word in _WORDS) and _LINE.search(clean(line)) is not None
        start = line[:LONGEST_LINE_CHARS]
        is_each = self.selection is not None and is_wanted(start)
        may_be_step = self.selection is not None and not (is_read or is_named or _INFO in shape)
        is_training = may_be_step and is_step(start)
        code = _READ * is_read + _EACH * is_each + _NAMED * is_named + _OF_TRAINING * is_training
        if len(shape) <= _REMEMBERED:
            if len(self.shapes) >= _MAX_MESSAGES:
                self.shapes.clear()
                self.frequent.clear()
            self.shapes[shape] = code + _STEP
        return code

    def _select(self, number: int, line: bytes) -> None:
        """Select a line for other parsers, unless it was selected already."""
        if self.selection is not None and number != self.last_selected:
            self.selection.add(number, line, self.gap)
            self.last_selected, self.gap = number, False

    def left_out(self, rest: bytes) -> None:
        """Note relevant text beyond the maximum line length; call it for each part."""
        if LONG_LINE_NOTE not in self.tally.unread:
            self.searched += len(rest)
            if self.searched > _MOST_SEARCHED or is_relevant(self.before_rest + rest):
                self.tally.unread[LONG_LINE_NOTE] = None
        self.before_rest = rest[-_LONGEST_MARK:]

    def flush_counts(self) -> None:
        """Add the repetitions to the tally, and empty the caches."""
        table = self.tally.seen.get("via", {})
        for head, ways in self.ways.items():
            host = self.origins[head].host  # type: ignore[union-attr]
            for way, count in ways.items():
                self.tally.lines += count
                taken = self.known_ways[way][2]
                if taken is not None and (seen := table.get((host, *taken))) is not None:
                    seen.count += count
                elif taken is not None:
                    self.tally.overflow["via"] = self.tally.overflow.get("via", 0) + count
        for head, texts in self.repeats.items():
            origin = self.origins[head]
            for message, count in texts.items():
                if count and origin is not None:
                    self._count(self.messages[message], origin, nowhere, count)
        self.ways.clear()
        self.repeats.clear()
        self.known_ways.clear()
        self.messages.clear()
        self.pairs = 0
        if len(self.origins) > _MAX_HEADS:
            self.origins.clear()

    # --- channels ----------------------------------------------------------------------------------

    def _new_way(self, line: bytes, head: bytes, before: bytes, way: bytes) -> None:
        """Count a channel line whose process has not used this transport before."""
        origin = self._origin(head, line)
        if (entry := self.known_ways.get(way)) is None:
            if len(self.known_ways) >= _MAX_MESSAGES:
                self.flush_counts()
            is_simple = len(way) <= _LONGEST_NAME * 4 and not has_level(way)
            self.known_ways[way] = entry = (way, is_simple, via(clean(way)))
        way, is_simple, taken = entry
        if origin is None or not is_simple or head[:1] == b"{" or not before.startswith(_CONNECTIONS):
            self.parse_line(self.number, line)
            return
        self.ways.setdefault(head, {})[way] = 1
        if taken is not None:
            text = before + _VIA + way
            self.tally.add("via", (origin.host, *taken), lambda: self.line(self.number, line, origin, text), 0)
            if b" nRanks " in way:
                self.way_of(clean(way))
        self._paired()

    def _paired(self) -> None:
        self.pairs += 1
        if self.pairs > _MAX_PAIRS:
            self.flush_counts()

    # --- other messages of level INFO --------------------------------------------------------------

    def _info(self, line: bytes, head: bytes, message: bytes) -> None:
        """Count an INFO message that is new for its process, or not cached."""
        origin = self._origin(head, line)
        if origin is None and has_level(head):  # several messages on one line
            self.parse_line(self.number, line)
            return
        if (read := self.messages.get(message)) is None:
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
            read = self._read(message, shape)
            if len(message) > LONGEST_LINE_CHARS:
                self.cut_off(message[LONGEST_LINE_CHARS:])
        message, event, _ = read
        is_version = event is not None and event.kind == "version"
        if is_version:
            self._select(self.number, line)
        if origin is None:
            if is_version:  # the version is recorded even if the process is unknown
                self.outside(self.number, clean(line))
            return
        self._count(read, origin, lambda: self.line(self.number, line, origin, message))
        if message in self.messages and not is_version:
            self.repeats.setdefault(head, {})[message] = 0
            self._paired()

    def _count(self, read: _Read, origin: Origin, line: Callable[[], LogLine], count: int = 1) -> None:
        """Count a parsed message that a process wrote ``count`` times."""
        _, event, failure = read
        self.tally.lines += count * (event is not None or failure is not None or not origin.quoted)
        if event is not None:
            apply(self.tally, event, origin, self.number, line, count)
        if failure is not None:
            self.failed(failure, origin, line, count)

    def _sized(self, message: bytes) -> None:
        """Record the communicator size in a collective's message, once per size."""
        size = message[message.find(b" [nranks=") :][:20]
        if size[:1] == b" " and size not in self.sizes and (ranks := collective_size(size)) is not None:
            if len(self.sizes) < _MAX_MESSAGES:
                self.sizes.add(size)
            sized(self.tally, ranks)

    def _read(self, message: bytes, shape: bytes) -> _Read:
        """Parse a new message, and cache the result."""
        text = trimmed(clean(message))
        event = parse_message(text)
        if event is not None and event.kind in OF_COMMUNICATORS:
            return (message, event, None)
        found = signatures.matching(text, "info")
        if event is None and found is None and not marked(text) and not any(m in text for m in signatures.info_marks()):
            if len(self.idle) >= _MAX_MESSAGES:
                self.idle.clear()
            if len(shape) <= _REMEMBERED:
                self.idle.add(shape)
            return (message, None, None)
        known = (message, event, found.id if found else None)
        if len(message) <= _REMEMBERED:
            if len(self.messages) >= _MAX_MESSAGES:
                self.flush_counts()
            self.messages[message] = known
        return known

    # --- other lines -------------------------------------------------------------------------------

    def _warning(self, number: int, raw: bytes) -> None:
        """Parse a line that may be a warning; the same text of many ranks only once."""
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

    def _other(self, raw: bytes) -> None:
        """Parse a line without an INFO message: a warning, a version, a failure."""
        if any(mark in raw for mark in _OURS):
            self._warning(self.number, raw)
            return
        if len(raw) > LONGEST_LINE_CHARS:
            self.cut_off(raw[LONGEST_LINE_CHARS:])
        self.outside(self.number, clean(raw[:LONGEST_LINE_CHARS]))

    def line(self, number: int, raw: bytes, origin: Origin, message: bytes) -> LogLine:
        """Build the line of a fact, with its own time and prefix."""
        if self.stamps and origin.host is not None:
            complete = origin_of(clean(raw[: max(raw.find(_INFO), raw.find(_WARN), 0)]))
            origin = complete if complete is not None and complete.process == origin.process else origin
        return super().line(number, raw, origin, message)

    def _origin(self, head: bytes, line: bytes) -> Origin | None:
        """Return the process that wrote a line; None if unknown, as for prose."""
        if head in self.origins:
            return self.origins[head]
        if line and is_torn(head):
            self._select(self.number, line)
        several = len(head) > LONGEST_LINE_CHARS or has_level(head)
        origin = None if several else self.known(origin_of(clean(head)))
        self.origins[head] = origin
        if origin is not None and origin.host is not None:
            self._learn_stamp(head, origin)
        return origin

    def _learn_stamp(self, head: bytes, origin: Origin) -> None:
        """Detect prefixes that differ only in a time before the process name."""
        cut = _name_begin(head)
        stamp, name = head[:cut], head[cut:]
        is_stamp = 0 < cut <= _LONGEST_NAME and stamp[:1] != b"{" and b"  " not in stamp
        if is_stamp and name.startswith(f"{origin.host}:".encode()):
            self.restamped += name in self.origins
            self.origins.setdefault(name, replace(origin, tag="", time=None))
            if self.restamped > _STAMPED and len(self.stamps) < _MAX_STAMPS:
                self.stamps.add(stamp.translate(None, _DIGITS))


@cache
def _marks() -> tuple[bytes, ...]:
    """Return strings, one of which is in every relevant line of another program."""
    return signatures.outside_marks()


def _name_begin(head: bytes) -> int:
    """Return the position in a prefix at which ``HOST:PID:TID [DEVICE]`` starts."""
    return head.rfind(b" ", 0, head.rfind(b" ", 0, -1)) + 1

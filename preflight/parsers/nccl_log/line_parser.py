"""Parser of one line, which may have several messages or be from another program."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from functools import cache
from itertools import islice

from preflight.parsers import line_selection
from preflight.parsers.job_output import LONGEST_LINE_CHARS
from preflight.parsers.nccl_log import rails, signatures
from preflight.parsers.nccl_log.apply_event import OF_COMMUNICATORS, add_version, apply, sized
from preflight.parsers.nccl_log.channels import connects, ranks_of, via
from preflight.parsers.nccl_log.communicators import size_in_warning
from preflight.parsers.nccl_log.counters import Key, LogCounters
from preflight.parsers.nccl_log.messages import built_for, parse_message, version
from preflight.parsers.nccl_log.model import LogLine
from preflight.parsers.nccl_log.prefix import LEVEL, Origin, clean, origin_of, unwrapped_json
from preflight.textprep.launcher_prefixes import strip_launcher_prefix
from preflight.textprep.line_suffix import trimmed
from preflight.textprep.prose import is_heading, is_manual_excerpt, is_prose

_LEVEL = re.compile(r"NCCL (INFO|WARN|ERROR|TRACE|CALL|ABORT)(?: |\r?$)")  # ERROR is only used by RCCL
#: Text directly before a second message on the same line.
_SECOND = re.compile(
    rb"(?:\[\d{4}-[^\]\n]{6,32}\] )?([A-Za-z0-9_][\w.-]{0,254}):\d{1,10}:\d{1,10} "
    rb"(?:\[\d{1,4}\] )?(?:\S{1,128}:\d{1,6} )?$"
)
_MOST_PARTS = 32
#: Maximum number of cached lines without a fact, and their maximum size in bytes.
_MAX_SILENT_LINES, _MAX_SILENT_BYTES = 16_384, 1024
#: Kinds of TRACE messages that are parsed.
_OF_TRACE = OF_COMMUNICATORS | {"nranks"}
#: Maximum number of lines in a PyTorch error message: its kind, "Last error:", NCCL's text.
_SAME_MESSAGE = 4


def is_relevant(text: bytes) -> bool:
    """Return whether a text may have an NCCL message, a failure or a measurement."""
    return any(mark in text for mark in _names()) or line_selection.is_wanted(text)


@cache
def _names() -> tuple[bytes, ...]:
    return (b"NCCL", b"RCCL", *signatures.outside_marks())


def has_level(raw: bytes) -> bool:
    """Return whether a text contains NCCL's name followed by a level."""
    return LEVEL.search(raw) is not None


class LineParser:
    """Parser of one line at a time; :attr:`tally` has the counts."""

    def __init__(self, first_line: int = 0, file: str = "") -> None:
        """Start after ``first_line`` lines."""
        self.tally = LogCounters()
        self.number = first_line
        self.file = file
        self.silent: set[bytes] = set()  # lines without a fact, so repetitions are not parsed
        self.cut_number = 0  # number of the last line that was not read in full
        self.spoke = (0, "")  # line number and prefix of the start of PyTorch's error message

    def parse_line(self, number: int, raw: bytes) -> None:
        """Parse a line that may contain several messages, or a JSON object."""
        if raw in self.silent:
            return
        self.number = number
        if len(raw) > 2 * LONGEST_LINE_CHARS:
            self.cut_off(raw[2 * LONGEST_LINE_CHARS :])
            raw = raw[: 2 * LONGEST_LINE_CHARS]
        inside = unwrapped_json(raw)
        before = ""
        parts = _parts(raw if inside is None else inside, self.tally.seen.get("host", {}))
        for part in parts[:_MOST_PARTS]:
            if len(part) > LONGEST_LINE_CHARS:
                self.cut_off(part[LONGEST_LINE_CHARS:])
            before = self._part(part, before)
        self.tally.long_lines += len(parts) > _MOST_PARTS

    def cut_off(self, rest: bytes) -> None:
        """Count a line that is not read to its end, unless the unread text is irrelevant."""
        if is_relevant(rest):
            self.tally.long_lines += self.number != self.cut_number
            self.cut_number = self.number

    def _part(self, part: bytes, before: str) -> str:
        """Parse one message of a line, and return its text ("" if not from NCCL).

        It is not counted if it is equal to ``before``: collectors may write a message twice on a line.
        """
        text = clean(part)
        level = _LEVEL.search(text)
        origin = self.known(origin_of(text[: level.start()])) if level else None
        if level is None or origin is None:
            if not self.outside(self.number, text):
                self._keep_silent(part)
            return ""
        message = trimmed(text[level.end() :])
        if message == before:
            if not message:  # the line ends after the level
                self._keep_silent(part)
            return message
        self.tally.lines += 1
        line = self.line(self.number, part, origin, message.encode("utf-8", "backslashreplace"))
        if level[1] == "INFO":
            self._info_part(message, origin, line)
        elif level[1] == "TRACE":
            if (event := parse_message(message)) is not None and event.kind in _OF_TRACE:
                apply(self.tally, event, origin, self.number, lambda: line)
        elif level[1] in ("WARN", "ERROR"):
            self.tally.warning(lambda: line)
            self.sized_by(message)
            if found := signatures.matching(message, "warn", origin.source):
                self.failed(found.id, origin, lambda: line)
        return message

    def _keep_silent(self, line: bytes) -> None:
        if len(self.silent) >= _MAX_SILENT_LINES:
            self.silent.clear()
        if len(line) <= _MAX_SILENT_BYTES:
            self.silent.add(line)

    def _info_part(self, message: str, origin: Origin, line: LogLine) -> None:
        before, is_channel, way = message.partition("] via ")
        taken = via(way) if is_channel and connects(before) else None
        if taken is not None:
            self.tally.add("via", (origin.host, *taken), lambda: line)
            self.way_of(way)
            if taken.transport == "NET":
                end, ends = before.encode("utf-8", "backslashreplace"), self.tally.ends
                if end not in ends:
                    self.tally.ends_mask = rails.add(ends, self.tally.ends_mask, end, trimmed(way).encode())
        elif (event := parse_message(message)) is not None:
            apply(self.tally, event, origin, self.number, lambda: line)
        if found := signatures.matching(message, "info"):
            self.failed(found.id, origin, lambda: line)

    def way_of(self, way: str) -> None:
        """Record the communicator size that RCCL prints after a transport."""
        if (nranks := ranks_of(way)) is not None:
            sized(self.tally, nranks)

    def sized_by(self, warning: str) -> None:
        """Record the communicator size in a bootstrap warning."""
        if (nranks := size_in_warning(warning)) is not None:
            sized(self.tally, nranks)

    def outside(self, number: int, text: str) -> bool:
        """Parse a line of another program; return whether it has a fact."""
        nccl_version = version(text)
        found = signatures.matching(text, "outside")
        if found is not None and is_manual_excerpt(text):
            found = None
        if nccl_version is None and found is None:
            return False
        who = self._who(number, text)
        line = LogLine(number, None, text.strip()[:1000], text.strip()[:300], tag=who, file=self.file)
        if nccl_version is not None:
            add_version(self.tally, nccl_version, built_for(text), lambda: line)
            self.tally.lines += 1
        if found is not None:
            # headings and prose are counted separately from program output
            tag = line.tag or ("#" if is_heading(line.text) else "”" if is_prose(line.text) else "")
            self.failed(found.id, Origin(None, None, None, tag, None, ""), lambda: line)
        return True

    def _who(self, number: int, text: str) -> str:
        """Return the launcher's prefix, which later lines of a PyTorch message lack."""
        tag = strip_launcher_prefix(text)[0]
        if tag and "NCCL error" in text:
            self.spoke = (number, tag)
        elif 0 < number - self.spoke[0] <= _SAME_MESSAGE and not text.startswith("["):
            # the start of `socketProgress: Connection closed` looks like a prefix with a host name
            word = not any(character.isdigit() for character in tag)
            tag = self.spoke[1] if word or self.spoke[1].startswith(tag) else tag
        return tag

    def failed(self, name: str, origin: Origin, line: Callable[[], LogLine], count: int = 1) -> None:
        """Count an occurrence of a failure in a process."""
        self.tally.add("failure", (name, *origin.process), line, count)

    def known(self, origin: Origin | None) -> Origin | None:
        """Record the host of the process that wrote a line, and return the process."""
        if origin is not None and origin.host is not None:
            host = origin.host
            self.tally.add("host", (host,), lambda: LogLine(self.number, host, "", "", file=self.file), 0)
        return origin

    def line(self, number: int, raw: bytes, origin: Origin, message: bytes) -> LogLine:
        """Build the line of a fact, for quoting."""
        message_text = trimmed(clean(message))[:1000]
        text = clean(raw).strip()[:300]
        return LogLine(
            number, origin.host, message_text, text, origin.time, origin.pid, origin.device, origin.tag, self.file
        )


def _parts(raw: bytes, hosts: Container[Key]) -> list[bytes]:
    """Split a line before each further message that was written into it."""
    found = [match.start() for match in islice(LEVEL.finditer(raw), _MOST_PARTS + 1)]
    cuts = [0]
    for start in found[1:]:
        if second := _SECOND.search(raw, max(cuts[-1], start - 300), start):
            cuts.append(second.start(1) + _glued(second[1].decode("latin-1"), hosts))
    parts = [raw[a:b] for a, b in zip(cuts, [*cuts[1:], len(raw)], strict=True)]
    return [part.rstrip(b" |") for part in parts[:-1]] + parts[-1:]


def _glued(name: str, hosts: Container[Key]) -> int:
    """Return where a known host name starts in text that lost a line break; else 0."""
    return next((at for at in range(len(name)) if (name[at:],) in hosts), 0)

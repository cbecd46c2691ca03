"""A line read with care: one that may hold several messages, or was written by others than NCCL."""

from __future__ import annotations

import re
from collections.abc import Callable, Container

from preflight.parsers.job_output import LONGEST_LINE_CHARS, unlaunched
from preflight.parsers.nccl_log import rails, signatures
from preflight.parsers.nccl_log.apply_event import add_version, apply, sized
from preflight.parsers.nccl_log.channels import connects, ranks_of, via
from preflight.parsers.nccl_log.communicators import size_in_warning
from preflight.parsers.nccl_log.counters import Key, Tally
from preflight.parsers.nccl_log.messages import built_for, event, version
from preflight.parsers.nccl_log.model import Line
from preflight.parsers.nccl_log.prefix import Origin, clean, origin_of, unwrapped_json
from preflight.parsers.nccl_log.prose_filter import sentence, taught, title
from preflight.parsers.nccl_log.strip_suffix import trimmed

_LEVEL = re.compile(r"NCCL (INFO|WARN|ERROR|TRACE|CALL|ABORT)(?: |\r?$)")  # ERROR: RCCL's
_LEVEL_BYTES = re.compile(rb"NCCL (?:INFO|WARN|ERROR|TRACE|CALL|ABORT)(?: |\r?$)")
#: What may stand directly before a second message that was written into the same line.
_SECOND = re.compile(
    rb"(?:\[\d{4}-[^\]\n]{6,32}\] )?([A-Za-z0-9_][\w.-]{0,254}):\d{1,10}:\d{1,10} "
    rb"(?:\[\d{1,4}\] )?(?:\S{1,128}:\d{1,6} )?$"
)
_MOST_PARTS = 32
#: Different lines that say nothing, of at most so many bytes, that are remembered.
_SILENT_KEPT, _SILENT_LONGEST = 16_384, 1024
#: What of level TRACE is read.
_OF_COMMUNICATORS = frozenset({"comm", "size", "rank", "nranks"})
#: Lines of a message of PyTorch: its kind, "Last error:", NCCL's words.
_SAME_MESSAGE = 4


def levelled(raw: bytes) -> bool:
    """Tell whether a text holds NCCL's name and a level."""
    return _LEVEL_BYTES.search(raw) is not None


class CarefulReader:
    """Reads one line at a time; :attr:`tally` holds what they say."""

    def __init__(self, first_line: int = 0, file: str = "") -> None:
        """Begin after so many lines."""
        self.tally = Tally()
        self.number = first_line
        self.file = file
        self.silent: set[bytes] = set()  # lines that name NCCL and say nothing
        self.spoke = (0, "")  # the line on which PyTorch began to tell of an error, and its mark

    def careful(self, number: int, raw: bytes) -> None:
        """Take in a line that may hold several messages, or stand in a JSON object."""
        if raw in self.silent:
            return
        if len(raw) > 2 * LONGEST_LINE_CHARS:
            self.tally.long_lines += 1
            raw = raw[: 2 * LONGEST_LINE_CHARS]
        inside = unwrapped_json(raw)
        self.number = number
        before = ""
        for part in _parts(raw if inside is None else inside, self.tally.seen.get("host", {})):
            before = self._part(part, before)

    def _part(self, part: bytes, before: str) -> str:
        """Take in one message, and return it; one that a collector wrote twice on a line counts once."""
        text = clean(part)
        level = _LEVEL.search(text)
        origin = self.known(origin_of(text[: level.start()])) if level else None
        if level is None or origin is None:
            if not self.outside(self.number, text):
                self._keep_silent(part)
            return ""
        message = trimmed(text[level.end() :])
        if message == before:
            if not message:  # a level alone
                self._keep_silent(part)
            return message
        self.tally.lines += 1
        line = self.line(self.number, part, origin, message.encode("utf-8", "backslashreplace"))
        if level[1] == "INFO":
            self._info_part(message, origin, line)
        elif level[1] == "TRACE":
            if (said := event(message)) is not None and said.kind in _OF_COMMUNICATORS:
                apply(self.tally, said, origin, lambda: line)
        elif level[1] in ("WARN", "ERROR"):
            self.tally.warning(lambda: line)
            self.sized_by(message)
            if found := signatures.matching(message, "warn", origin.source):
                self.failed(found.id, origin, lambda: line)
        return message

    def _keep_silent(self, line: bytes) -> None:
        if len(self.silent) >= _SILENT_KEPT:
            self.silent.clear()
        if len(line) <= _SILENT_LONGEST:
            self.silent.add(line)

    def _info_part(self, message: str, origin: Origin, line: Line) -> None:
        before, is_channel, way = message.partition("] via ")
        taken = via(way) if is_channel and connects(before) else None
        if taken is not None:
            self.tally.add("via", (origin.host, *taken), lambda: line)
            self.way_of(way)
            if taken.transport == "NET":
                end, ends = before.encode("utf-8", "backslashreplace"), self.tally.ends
                if end not in ends:
                    self.tally.ends_mask = rails.add(ends, self.tally.ends_mask, end, trimmed(way).encode())
        elif (said := event(message)) is not None:
            apply(self.tally, said, origin, lambda: line)
        if found := signatures.matching(message, "info"):
            self.failed(found.id, origin, lambda: line)

    def way_of(self, way: str) -> None:
        """Keep how many ranks the way of a channel says there are."""
        if (nranks := ranks_of(way)) is not None:
            sized(self.tally, nranks)

    def sized_by(self, warning: str) -> None:
        """Keep how many ranks a warning says there are."""
        if (nranks := size_in_warning(warning)) is not None:
            sized(self.tally, nranks)

    def outside(self, number: int, text: str) -> bool:
        """Take in a line that NCCL did not write, a framework's, a launcher's, nccl-tests'; False: it says nothing."""
        said = version(text)
        found = signatures.matching(text, "outside")
        if found is not None and taught(text):
            found = None
        if said is None and found is None:
            return False
        who = self._who(number, text)
        line = Line(number, None, text.strip()[:1000], text.strip()[:300], tag=who, file=self.file)
        if said is not None:
            add_version(self.tally, said, built_for(text), lambda: line)
            self.tally.lines += 1
        if found is not None:
            # what a title or a sentence says is kept apart from what the program said
            tag = line.tag or ("#" if title(line.text) else "”" if sentence(line.text) else "")
            self.failed(found.id, Origin(None, None, None, tag, None, ""), lambda: line)
        return True

    def _who(self, number: int, text: str) -> str:
        """Return a launcher's mark; the lines that follow the first of PyTorch's message bear none."""
        tag = unlaunched(text)[0]
        if tag and "NCCL error" in text:
            self.spoke = (number, tag)
        elif 0 < number - self.spoke[0] <= _SAME_MESSAGE and not text.startswith("["):
            # `socketProgress: Connection closed` begins as with the name of a host
            word = not any(character.isdigit() for character in tag)
            tag = self.spoke[1] if word or self.spoke[1].startswith(tag) else tag
        return tag

    def failed(self, name: str, origin: Origin, line: Callable[[], Line]) -> None:
        """Count a failure signature."""
        self.tally.add("failure", (name, *origin.process), line)

    def known(self, origin: Origin | None) -> Origin | None:
        """Keep the host of whoever wrote a line."""
        if origin is not None and origin.host is not None:
            host, number = origin.host, self.number
            self.tally.add("host", (host,), lambda: Line(number, host, "", "", file=self.file), 0)
            seen = self.tally.seen["host"].get((host,))
            if seen is not None and number < seen.first.number:  # lines of channels are looked at after others
                seen.first = Line(number, host, "", "", file=self.file)
        return origin

    def line(self, number: int, raw: bytes, origin: Origin, message: bytes) -> Line:
        """Make the line that a fact rests on."""
        said = trimmed(clean(message))[:1000]
        text = clean(raw).strip()[:300]
        return Line(number, origin.host, said, text, origin.time, origin.pid, origin.device, origin.tag, self.file)


def _parts(raw: bytes, hosts: Container[Key]) -> list[bytes]:
    """Split a line where other messages were written into it."""
    found = [match.start() for match in _LEVEL_BYTES.finditer(raw)][:_MOST_PARTS]
    cuts = [0]
    for start in found[1:]:
        if second := _SECOND.search(raw, max(cuts[-1], start - 300), start):
            cuts.append(second.start(1) + _glued(second[1].decode("latin-1"), hosts))
    parts = [raw[a:b] for a, b in zip(cuts, [*cuts[1:], len(raw)], strict=True)]
    return [part.rstrip(b" |") for part in parts[:-1]] + parts[-1:]


def _glued(name: str, hosts: Container[Key]) -> int:
    """Return where the name of a known host begins in what the end of the message before it may be glued to."""
    return next((at for at in range(len(name)) if (name[at:],) in hosts), 0)

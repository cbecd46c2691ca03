"""The text before ``NCCL INFO``: launcher, time, HOST:PID:TID, device, source."""

from __future__ import annotations

import json
import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.job_output import LONGEST_LINE_CHARS, SHORT_LINE_CHARS, unmarked
from preflight.textprep.launcher_prefixes import strip_launcher_prefix
from preflight.textprep.plain_text import limit_blank_runs, normalize_text

#: NCCL's name and a level; only RCCL uses ERROR.
LEVEL = re.compile(rb"NCCL (?:INFO|WARN|ERROR|TRACE|CALL|ABORT)(?: |\r?$)")
#: A log collector's timestamp, which may be followed directly by text.
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:Z|[+-]\d\d:?\d\d)?")
_HOST = re.compile(r"(?:(?<![\w.-])|(?<=^-))([A-Za-z0-9_][\w.-]{0,254}):(\d{1,10}):(\d{1,10})\s")
#: Text that NCCL before 2.12 printed without a newline, so the next message follows it directly.
_VERSION_BEFORE = re.compile(r"(?<=NCCL version )[\d.]{3,10}[\w.-]{0,20}\+(?:cuda|hip)\d{1,2}\.\d")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d\s")
#: The start of a table row that an NCCL message interrupted; a number may precede the host name directly.
_TABLE_ROW = re.compile(r"\d\s{1,40}\d{1,19}\s{1,40}[A-Za-z]\w{2,15}\s")
#: The CUDA device; then the time of a TRACE message, FILE:LINE and function.
_DEVICE = r"\[\s?(?P<device>\d{1,4})\s?\]"
_REST = (
    r"\s*(?:\d{1,12}\.\d{1,9}\s+)?"
    r"(?:(?P<source>[\w./\\+-]{1,256}:\d{1,6})\s+(?:\(\w{1,64}\)\s+)?|\S{1,128}:\d{1,6}\s+"
    r"|(?:[\w:*&]{1,64} ){0,3}[\w:~]{1,128}\([^()]{0,256}\):\d{1,6}\s+)?\s*"  # a plug-in that prints its functions
)
#: [HOST][PID:TID][DEVICE][FILE:LINE], the format of T-Head's library.
_BRACKETED = re.compile(
    r"\[([A-Za-z0-9_][\w.-]{0,254})\]\[(\d{1,10}):(\d{1,10})\]\[(\d{1,4})\](?:\[([\w./-]{1,256}:\d{1,6})\])?"
)
#: Some builds print an uninitialised device number.
_AFTER_HOST = re.compile(rf"\s*(?:\[\s?(?P<device>\d{{1,10}})\s?\])?{_REST}")
#: A prefix without the host: only the device distinguishes NCCL's line from prose about NCCL.
_MARKED = re.compile(f"(?:.{{0,400}}[\\s:>│|]|[#+-]|//)?{_DEVICE}{_REST}")
#: A host without the process or thread; it must have a digit or hyphen, since it may otherwise be a word.
_HOST_ALONE = re.compile(
    rf"\s*(?!(?i:rank|gpu|cuda|dev|device|proc|task|line|step|node_rank|local_rank)[-_:]?\d*\s)"
    rf"(?P<host>(?=\S*[\d-]|\S*:[Xx*])[A-Za-z][\w.-]{{1,254}})(?::(?:(?P<pid>\d{{1,10}})|[Xx*]{{1,10}})(?::[\dXx*]{{1,10}})?)?"
    rf"\s{_DEVICE}{_REST}"
)
#: A host with placeholders instead of numbers, as in a manual.
_HOST_NAMED = re.compile(
    rf"\s*(?P<host>[A-Za-z][\w.-]{{1,254}}):(?P<pid><?(?i:pid)>?):<?(?i:tid)>?\s(?:{_DEVICE})?{_REST}"
)
_BEFORE_BARE = re.compile(
    # a count of `uniq -c`; the variable name of the text in a program's source
    r"\s*(?:\d{1,7}\s+|(?:(?:const|var|let) )?[\w.]{1,64}\s?(?::?=|:)\s?[bru]?(?=[\"'`]))?"
    r"(?:(?:[\[(]\s*[\])]|\[[\w.@/:-]{1,64}(?: [\w.@/:-]{1,32}){0,3}\]:?"
    r"|[\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?|[>|│┃*]|[EWI]|ERROR|WARNING|INFO"
    r"|std(?:out|err)(?: [FP])?)\s+"
    r"|(?:[#+\"'`-]|//|\.{2,}|…)\s*)*"
)
_BARE = re.compile(f"(?:\\S{{1,255}}:[\\dXx*]{{1,10}}:[\\dXx*]{{1,10}}\\s)?{_REST}")


#: A log collector's record: JSON, which Fluentd prefixes with a time and a tag.
_BEFORE_RECORD = 256
_RECORD = re.compile(
    rb"\s*(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,20}(?: [+-]\d{4})?[ \t][\w./*-]{1,160}(?:\t|: ))?(\{.*\})\s*$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Origin:
    """The origin of a line: process, time, and position in NCCL's source code."""

    host: str | None
    pid: int | None
    device: int | None
    tag: str
    time: str | None
    source: str
    quoted: bool = False  # after a quotation mark, so it may be a sentence or source code about such a line

    @property
    def process(self) -> tuple[str, int | None, int | None]:
        """The identity of a rank: host or tag, process id, device."""
        return (self.host or self.tag, self.pid, self.device)


def clean(raw: bytes) -> str:
    """Return the first 8,192 characters of a line, without terminal or HTML codes."""
    text = raw[: LONGEST_LINE_CHARS * 2].decode("utf-8", "backslashreplace")[:LONGEST_LINE_CHARS]
    if "\x1b" in text or "\x00" in text or "\ufeff" in text:
        text = normalize_text(text)
    if len(text) > SHORT_LINE_CHARS:
        text = limit_blank_runs(text)
    if "&" in text or "](http" in text or "[0m" in text or "[39m" in text or "[m" in text:
        text = unmarked(text)
    return text


def unwrapped_json(raw: bytes) -> bytes | None:
    """Return NCCL's text in a log collector's JSON object; None for other lines."""
    if b"CCL" not in raw and b"\\u" not in raw:  # only such lines are decoded
        return None
    if b"{" not in raw[:_BEFORE_RECORD] or len(raw) > LONGEST_LINE_CHARS * 2 or not (record := _RECORD.match(raw)):
        return None
    try:
        value = json.loads(record[1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    held = [text for text in value.values() if isinstance(text, str) and "CCL" in text]
    return held[0].rstrip("\n").encode("utf-8", "backslashreplace") if held else None


def origin_of(head: str) -> Origin | None:
    """Parse the text before the level; return None if it is prose, not a prefix."""
    head = head.rpartition("\r")[2]
    time = None
    for stamp in _STAMP.finditer(head):
        time = f"{stamp[1]} {stamp[2].replace(',', '.')}"
    head = _STAMP.sub(" ", head) if time else head
    found = rest = None
    if "NCCL version " in head:
        head = _VERSION_BEFORE.sub(lambda match: match[0] + " ", head)
    if "][" in head:
        head = _BRACKETED.sub(lambda match: f" {match[1]}:{match[2]}:{match[3]} [{match[4]}] {match[5] or ''} ", head)
    for match in _HOST.finditer(head):
        if not _CLOCK.fullmatch(match[0]) and (after := _AFTER_HOST.fullmatch(head, match.end())):
            found, rest = match, after
    if found is not None and rest is not None and not _TABLE_ROW.search(head[: found.start() + 1]):
        tag = strip_launcher_prefix(head[: found.start()] + "x")[0] if found.start() else ""
        return Origin(found[1], int(found[2]), _number(rest["device"]), tag, time, rest["source"] or "")
    tag, bare = strip_launcher_prefix(head)
    left = _BEFORE_BARE.sub("", bare, count=1)
    if marked := _HOST_ALONE.fullmatch(left) or _HOST_NAMED.fullmatch(left):
        pid = _number(marked["pid"]) if (marked["pid"] or "").isdigit() else None
        return Origin(marked["host"], pid, _number(marked["device"]), tag, time, marked["source"] or "")
    if marked := _MARKED.fullmatch(bare):
        return Origin(None, None, _number(marked["device"]), tag, time, marked["source"] or "")
    if alone := _BARE.fullmatch(left):
        return Origin(None, None, None, tag, time, alone["source"] or "", head.endswith(("'", '"', "`")))
    return Origin(None, None, None, tag, time, "") if found is not None or _TABLE_ROW.search(head) else None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)

"""Logs of programs and daemons in which no other parser knows a line.

Their lines have a date or a level; those that may report a fault are listed.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

HINTS = ()

#: Minimum number of lines in a log, minimum share of lines in a log format, and number of characters read of a line.
_FEWEST, _SHARE, _LONGEST = 3, 0.7, 2000

#: The prefix that Ray or a launcher writes before the line of an actor or rank.
_ACTOR = re.compile(
    r"\([\w.:-]{1,60}(?: rank=\d{1,6})? (?:pid=\d{1,8}(?:, ip=[\w.:]{3,45})?|\+[\dhms]{2,16})\) ?"
    r"|\[(?:rank|default)\d{1,6}\]:? ?"
)
#: A line that continues a message: it is indented, or closes the bracket of a multi-line value.
_CONTINUED = re.compile(r"(?:\t| {1,40}\S|[{}\])>]{1,3},?\s*$)")
_MOST_CONTINUED = 2  # maximum average number of such lines per message
#: The prefix that journald and syslog write before a program's line.
_SYSLOG = re.compile(
    r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16}) [\w.-]{1,64} (?!kernel)"
    r"[\w./@-]{1,64}(?:\[\d{1,10}\])?: "
)
#: The level of a line. Lines that start with the seconds since boot are from the kernel or the X server.
_LEVEL = re.compile(
    r"(?!\s{0,8}\[ {0,8}\d{1,9}\.\d{1,9}\])(?:\s{0,8}[\[(]?(?P<glog>[IWEF])\d{4,8} \d\d:"
    r"|\s{0,8}\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{1,9}:? (?P<letter>[IWEFD]) "
    r"|.{0,60}?\b(?P<word>DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
    r"|(?:.{0,60}\s)?level=\"?(?P<field>[a-z]{3,8})"
    r"|\s{0,4}\{.{0,200}\"(?:level|severity)\": ?\"(?P<json>[A-Za-z]{3,8}))"
)
_VERSION = re.compile(
    r"([A-Za-z][\w./-]{1,40}(?: [A-Z][\w-]{1,30}){0,3})[\"']?,? version[= :]{1,2}"
    r"[\"']?(v?\d{1,5}(?:\.[\w-]{1,20}){1,4})"
)

#: Words of a line that may report a fault.
_TROUBLE = re.compile(
    r"(?i)\b(?:errors?|fail(?:ed|ures?|s|ing)?|faults?|fatal|critical|exceptions?|traceback|unable|cannot|can(?:'|no)t"
    r"|could ?n[o']t|timed? ?-?out|timeouts?|unhealthy|lost|losing|kill(?:ed|ing)?|abort\w*|crash\w*|core dump\w*"
    r"|not (?:responding|found|available|supported|enough|ready|detected|healthy)|died|dead\w*|hang|hung|hangs|stuck"
    r"|stall\w*|denied|refused|reject\w*|forbidden|unauthori[sz]ed|unreachable|disconnect\w*|closed|broken|corrupt\w*"
    r"|mismatch\w*|missing|invalid|illegal|no (?:such|devices?|gpus?|space|route|valid|available|nodes?)|down|drain\w*"
    r"|degraded|evict\w*|preempt\w*|requeue\w*|restart\w*|retry\w*|retries|throttl\w*|slow(?:er|down)?|straggl\w*"
    r"|overflow\w*|exceed\w*|exhaust\w*|insufficient|out of memory|oom\w*|nan|inf|unexpected\w*|unknown|unrecogni[sz]ed"
    r"|expired|stale|orphan\w*|zombie|undefined|segfault|signal|SIG[A-Z]{3,5}|xid|ecc|uncorrect\w*|panic|waiting"
    r"|pending|skipp\w*|disabl\w*|suspend\w*|deadlock\w*|leak\w*|warn(?:ing)?s?|WTERMSIG|WEXITSTATUS [1-9]\d*"
    r"|exit ?(?:code|status)[ =:]{1,2}[1-9]\d*|rejoin\w*|leaving|leave|left|fall(?:ing)? ?back|without"
    r"|0 (?:gpus?|devices?))\b"
)
#: Warnings that healthy programs print.
_USUAL = re.compile(
    r"(?i)hostfile, will proceed with training with local resources|async_io requires the dev libaio|OMP_NUM_THREADS"
    r"|TF-TRT Warning: Could not find TensorRT|already been registered|Ignoring the following XIDs|sparse_attn"
    r"|OVERFLOW! Rank \d{1,6} Skipping step\. Attempted loss scale: \d{4,12}\b"  # a loss scaler is still adapting
    r"|Please specify the CUTLASS repo|\]\s*\**$|errno: 9[79]\b"
)
#: Phrases in which such a word does not report a fault.
_HARMLESS = re.compile(
    r"(?i)\b(?:health|liveness|readiness|error|failure|restart|retry|timeout|exit)[ _-]?(?:check(?:s|ing)?"
    r"|polic(?:y|ies)|handlers?|intervals?|secs?|seconds|budget|backoff)\b"
    r"|\b(?:no|0|zero|without) (?:errors?|failures?|warnings?)\b"
    r"|\b0 (?:failed|lost|missing|dead|stale|killed|orphaned|unhealthy)\b"
    r"|\w*timeout\w*(?:\(\w{1,3}\))?[\"']?[= :]{1,3}[\"']?[\d(n]|\bretries[= :]{1,3}\d|\brestarts?[= :]{1,3}0\b"
    r"|\bnan_?check\w*"
    r"|\berrors?[= :]{1,3}(?:0|none)\b|\w+/error\b|\berror=0?\.\d+|\bmean_?error|\b(?:cool|wind|count|power)[ -]?down\b"
    r"|\bscal(?:e|ing) down\b|\bdisabled by default|\bgit-(?:hash|branch)=unknown"
)
_MOST = 50


@dataclass(frozen=True)
class ProgramLog:
    """Counts of a log's lines and levels, and the lines that may report a fault."""

    lines: int  # number of non-blank lines
    first_time: str
    last_time: str
    levels: dict[str, int]
    versions: tuple[str, ...]
    troubles: tuple[tuple[int, str], ...]  # (line number, text)
    line: int


_TIME = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)


def begins(lines: Lines, at: int) -> bool:
    """Return whether most lines that begin at a line are in a log format.

    Such a line has a level or is from a Slurm daemon. An actor's prefix alone is not enough, since it may precede any
    text; a timestamp before every line is only enough if it changes.
    """
    texts = [line.text[:_LONGEST] for line in lines[at : at + _LOOKED_AT] if line.text.strip()]
    begun = [text for text in texts if not _CONTINUED.match(text)]
    own = [
        bare
        for text in begun
        if (bare := _without_actor(text)) == text or (_LEVEL.match(bare) and not _SYSLOG.match(text))
    ]
    logged = sum(_LEVEL.match(text) is not None or _OF_SLURM.match(text) is not None for text in own)
    stamped = [match["time"] for text in begun if (match := _SYSLOG.match(text))]
    logged += len(stamped) if len(set(stamped)) > 1 else 0  # equal times may precede any text
    enough = logged >= max(1, _SHARE * len(own), (len(texts) - len(begun)) / _MOST_CONTINUED)
    return len(texts) >= _FEWEST and enough


def _without_actor(text: str) -> str:
    match = _ACTOR.match(text) or _SYSLOG.match(text)
    return text[match.end() :] if match else text


#: Maximum number of lines examined, and the format of Slurm daemon logs, with words that they contain.
_LOOKED_AT = 2000
_OF_SLURM = re.compile(
    r"\[(?:\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} \d\d )\d\d:\d\d:\d\d\.\d{1,6}\] (?:\[\d{1,10}\.\w{1,12}\] )?"
    r".{0,100}(?:\b(?:slurm\w{1,8}|JobId|jobs?|step|tasks?|sched|backfill|CPUs|[Gg]res|gpu|prolog\w*|epilog\w*|[Nn]odes?"
    r"|cgroup\w*|Message|power\w*|reservation|partition)\b|_rpc_|_job_|Parameters=|/)"
)


def parse_lines(lines: Lines, at: int) -> Parsed[ProgramLog]:
    """Read a log from a line to the end of the text."""
    levels, versions, troubles = Counter[str](), dict[str, None](), list[tuple[int, str]]()
    times: list[str] = []
    number = 0
    for line in lines[at:]:
        text = line.text[:_LONGEST]
        if not text.strip():
            continue
        number += 1
        if match := _LEVEL.match(_without_actor(text)):
            levels[_level(match)] += 1
        if match := _TIME.search(text[:120]):
            times[1:] = [match[0]]
        for match in _VERSION.finditer(text):
            versions.setdefault(f"{match[1]} {match[2]}")
        if _in_trouble(text) and len(troubles) < _MOST:
            troubles.append((line.number, text.strip()))
    if troubles and number:
        troubles = _lasting(troubles, [line.text[:_LONGEST] for line in lines[at:] if line.text.strip()])
    longest = max((len(line.text) for line in lines[at:]), default=0)
    gaps = (ParseGap(lines[at].number, "a line is too long to read"),) if longest > _LONGEST else ()
    value = ProgramLog(
        number, times[0] if times else "", times[-1] if times else "", dict(levels), tuple(versions)[:20],
        tuple(troubles), lines[at].number,
    )  # fmt: skip
    return Parsed(value, gaps, len(lines))


_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "fatal", "D": "debug", "N": "notice", "C": "critical"}
_BAD = frozenset(("warning", "error", "fatal", "critical"))


def _level(match: re.Match[str]) -> str:
    word: str = match["glog"] or match["letter"] or match["word"] or match["field"] or match["json"]
    return _LEVELS.get(word.upper()[:1], word.lower())


#: Words of a message about waiting, which is no longer a problem if the log's last line reports success.
_WAITED = re.compile(
    r"(?i)\b(?:re-?try(?:ing)?|retries|waiting|pending|not (?:yet )?(?:ready|available|discovered|found yet))\b"
)
_SUCCESS = re.compile(
    r"(?i)\b(?:success(?:ful(?:ly)?)?|succeeded|completed?|finished|passed|ready|started|connected|registered|done)\b"
)
#: Messages that a node was taken out of service, and that it was returned to service.
_TAKEN = re.compile(r"update_node: node (?P<node>\S{1,128}) state set to (?:DRAIN\w{0,4}|DOWN)\b")
_RESUMED = re.compile(r"update_node: node (?P<node>\S{1,128}) state set to (?:RESUME|IDLE|UNDRAIN)\b")


def _lasting(troubles: list[tuple[int, str]], texts: list[str]) -> list[tuple[int, str]]:
    """Return (line number, text) of problems that the log does not show as resolved."""
    well = _SUCCESS.search(texts[-1]) is not None and not _in_trouble(texts[-1])
    resumed = {match["node"] for text in texts if (match := _RESUMED.search(text))}
    lasting = []
    for number, text in troubles:
        taken = _TAKEN.search(text)
        if taken is not None and taken["node"] in resumed:
            continue
        if well and _level_of(text) in ("", "info", "debug") and not _in_trouble(_WAITED.sub("", text)):
            continue
        lasting.append((number, text))
    return lasting


def _level_of(text: str) -> str:
    match = _LEVEL.match(_without_actor(text))
    return _level(match) if match else ""


def _in_trouble(text: str) -> bool:
    if _USUAL.search(text):
        return False
    return _level_of(text) in _BAD or _TROUBLE.search(_HARMLESS.sub("", text)) is not None


def facts(log: ProgramLog) -> dict[str, Any]:
    """Return the log as `preflight read --json` prints it."""
    return {
        "lines": log.lines, "first_time": log.first_time or None, "last_time": log.last_time or None,
        "levels": log.levels, "versions": list(log.versions),
        "troubles": [{"line": number, "text": text[:300]} for number, text in log.troubles],
    }  # fmt: skip


def summary(log: ProgramLog) -> str:
    """Return a one-line summary of the log."""
    return f"{log.lines} lines of a program's log; {len(log.troubles)} may report a fault"

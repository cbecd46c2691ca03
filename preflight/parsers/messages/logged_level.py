"""Detection of lines that a program logged as errors, by their level."""

from __future__ import annotations

import json
import re

from preflight.evidence import json_limits

#: Number of characters at the start of a line in which its level occurs, and maximum length of a returned message.
_HEAD, _LENGTH = 160, 300

#: Strings for format detection; every line with a level contains at least one.
HINTS = (
    "ERROR", "CRITICAL", "FATAL", "SEVERE", "rror:", "fatal:", "panic:", "level=", '"level"', '"severity"', ".go:",
    ".cc:", ".cpp:", ".cu:", ".h:", ".py:", ".rs:", "xception:", "Interrupt:", "Timeout:", "Failure:", "Resources:",
    "Fault:", "rror response from daemon", "Error from server",
)  # fmt: skip

#: glog and klog: ``E1012 10:00:00.123456    1 main.go:173] text``; PyTorch's C++ code adds a bracket.
_GLOG = re.compile(
    r"\s{0,8}\[?(?P<level>[IWEF])\d{4,8} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,9}(?:\d{1,10}\s{1,4})?[\w./-]{1,120}:\d{1,6}"
    r"\]"
    r"\s?(?P<text>.*)"
)
#: Ray: ``[2026-10-01 10:00:00,000 E 311 311] (raylet) node.cc:30: text``; XLA prints a bracket after the line number.
_LETTER = re.compile(
    r"\s{0,8}\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{1,9}:? (?P<level>[IWEFDC])(?: \d{1,10} \d{1,10}\])? (?:\(\w{1,30}"
    r"\) )?"
    r"(?:[\w./-]{1,120}:\d{1,6}[:\]] ?)(?P<text>.*)"
)
#: logfmt: ``time="…" level=error msg="…"``.
_LOGFMT = re.compile(r'(?:^|\s)(?:level|lvl|severity)="?(?P<level>[A-Za-z]{3,9})"?(?:\s|$)')
_MESSAGE = re.compile(r'(?:^|\s)(?:msg|message|err|error)="((?:[^"\\]|\\.){1,600})"')
#: Python's logging, log4j, spdlog and similar: a level in capitals after only times, names and punctuation.
_CAPITAL = re.compile(
    r"(?:\S{1,60}\s{1,12}){0,7}?(?:\S{1,60}?[\])>|:-])?[\[(<|]{0,3}"
    r"(?P<level>ERROR|CRITICAL|FATAL|SEVERE|EMERG|ALERT)(?:[\])>|:]|\s|$)[\])>|:\s-]*(?P<text>.*)"
)
#: A program's own prefix: ``error: …``, ``train.py: error: …``, ``Error: …``, ``panic: …``.
_OWN_WORD = re.compile(
    r"\s{0,4}(?:[\w./+-]{1,60}(?:\[\d{1,10}\])?: )?(?:[Ff]atal error|[Ff]atal|[Ee]rror|panic|FATAL|ERROR)"
    r"(?: \[\w{1,20}\]| response from daemon| from server(?: \(\w{1,40}\))?)?: {1,8}(?P<text>\S.*)"
)

#: Words of a message that is not an error, or of an error from which the program recovered.
_NO_FAULT = re.compile(
    r"(?i)\b(?:no|0|zero|without|any) (?:\w{1,20} )?(?:errors?|failures?)\b|\berrors?\b ?(?:=|:|count:?)? ?(?:0\b"
    r"|none\b)"
    r"|\b(?:re-?try(?:ing)?|retries|re-?tried|re-?connecting|will try again|trying again|try another|fall(?:ing)? ?back"
    r"|ignor(?:ed|ing)|recovered|succeeded|successful(?:ly)?|resolved|non.?fatal|harmless|can be ignored|is unstuck"
    r"|already been registered)\b"
    r"|\bdeprecat|error[_ ]?(?:rate|bound|handler|handling|level|log|check)|mean (?:squared )?error|\berror_?(?:if|on)_"
)
#: Words of a message that reports the last of several attempts.
_GAVE_UP = re.compile(r"(?i)giv(?:e|ing|en) up|(?:max(?:imum)?|too many|all) (?:number of )?(?:re-?tries|attempts)"
 r"|after \d+"
                      r" (?:re-?tries|attempts)|retries (?:exhausted|exceeded)|exceeded")  # fmt: skip

#: Lines of a traceback that a logger wrote one by one.
_OF_TRACEBACK = re.compile(r"^\s{0,40}File \"|\] {3,}\S|^\s{4,}|^[\s~^]*$")

_BAD = frozenset({"e", "f", "error", "err", "fatal", "critical", "crit", "panic", "dpanic", "severe", "emerg", "alert"})


def error_text(text: str) -> str | None:
    """Return the message of a line of level error or worse; None for any other line."""
    result = _leveled(text)
    if not result or not re.search(r"[A-Za-z]{3}", result) or _OF_TRACEBACK.search(result):
        return None
    return result[:_LENGTH] if is_fault(result) or ends_program(text) else None


def ends_program(text: str) -> bool:
    """Return whether a line has a level at which glog and Ray end the process."""
    match = _GLOG.match(text) or _LETTER.match(text)
    return match is not None and match["level"] in "FC"


def is_fault(text: str) -> bool:
    """Return whether a text reports an error from which the program did not recover."""
    return _NO_FAULT.search(text) is None or _GAVE_UP.search(text) is not None


def is_log_line(text: str) -> bool:
    """Return whether a line has the form of a log line: a time, or a level."""
    return _LOG_LINE.match(text[:_HEAD]) is not None


_LOG_LINE = re.compile(
    r"\s{0,8}[\[(]?(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|\d\d/\d\d/\d\d|[IWEF]\d{4} \d\d:|\w{3} [ \d]\d \d\d:\d\d:\d\d"
    r"|time=\""
    r"|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|TRACE|NOTICE)\b)|\s{0,4}\{\"(?:level|ts|time|severity)\""
)


def _leveled(text: str) -> str:
    if match := _GLOG.match(text) or _LETTER.match(text):
        return match["text"] if match["level"] in "EFC" else ""
    if text.lstrip()[:2] == '{"' and text.rstrip()[-1:] == "}":
        return _of_json(text)
    if "level=" in text or "severity=" in text or "lvl=" in text:
        match = _LOGFMT.search(text[: _HEAD * 4])
        if match:
            logged = [part.replace('\\"', '"') for part in _MESSAGE.findall(text[:4000])]
            return (": ".join(logged) or text.strip()) if match["level"].lower() in _BAD else ""
    if match := _OWN_WORD.match(text):
        return match["text"]
    head = text[:_HEAD]
    if any(word in head for word in ("ERROR", "CRITICAL", "FATAL", "SEVERE", "EMERG", "ALERT")):
        match = _CAPITAL.match(text[:2000])
        if match and not re.match(r"[A-Z_ ]{0,30}[=(]|\s*(?:SUMMARY|COUNT|RATE|LOG|LEVEL)", match["text"]):
            return match["text"]
    return ""


def _of_json(text: str) -> str:
    """Return the error message of a JSON line (zap, logrus, pino, bunyan), or ""."""
    if len(text) > 20_000 or not re.search(r'"(?:level|severity|lvl|levelname)"', text):
        return ""
    try:
        value = json_limits.text(text)
    except (ValueError, RecursionError):
        return ""
    level = next((value[key] for key in ("level", "severity", "lvl", "levelname") if key in value), "")
    if str(level).lower() not in _BAD:
        return ""
    logged = [value.get(key) for key in ("msg", "message", "error", "err", "exception") if value.get(key)]
    return ": ".join(text if isinstance(text, str) else json.dumps(text)[:200] for text in logged)

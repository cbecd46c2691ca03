"""Detection of prose about failures: headings, sentences and manuals."""

from __future__ import annotations

import re

from preflight.textprep.launcher_prefixes import strip_launcher_prefix

_TITLE = re.compile(r"[>\s]{0,8}#{1,6} (?!Out of bounds|Avg bus|error:|Rank)")
#: The start of a line that a program printed.
_OUTPUT = re.compile(
    r"[>\s|│`-]{0,12}(?:\[|\(\w+ pid=|nccl[A-Z]|NCCL\b|RCCL\b|[A-Za-z_.]{0,80}(?:Error|Exception)\b|/|\d|what\(\)"
    r"|terminate\b|Watchdog|ProcessGroup|Traceback|File \"|Last error|Test |#|\S{1,128}: Test |\S{1,200}:\d+)"
)
_WORDS_FIRST = re.compile(r"[>\s*-]{0,12}(?:\*\*)?[A-Z\"'][\w'’]{0,20},?(?: [\w'’/-]{1,20},?){2,}(?::? |$)")
_PROSE = re.compile(
    r"\b(?:I|I'm|we|you|your|my|me|this|that|which|because|usually|typically|means|mean|caused|should|please|would|might"
    r"|seems|got|get|getting|see|again|when|if|indicates|suggests)\b",
    re.IGNORECASE,
)
#: A message with placeholders, as manuals quote it.
_PATTERN = re.compile(
    r"`[^`]{0,300}(?:\.\.\.|…|\[Rank N\]|<\w+>)[^`]{0,300}`|WorkNCCL\(\s?(?:\.\.\.|…)"
    r"|[\"'`“]Out of bounds values"
)
#: A list item that consists of a message without digits, as in a manual.
_POINT = re.compile(r"\s{0,8}[-*•] `[^`\d]{1,300}`[.,;]?\s*")
_TABLE_LINE = re.compile(r"\s{0,4}\|.{0,400}`.{0,400}\||.{0,4}`[^`]{1,300}`[^|]{0,200} \| .{0,400} \|")


#: A quoted message, followed by its meaning or by when it appears.
_EXPLANATION = re.compile(
    r"[\s>*-]{0,12}[\"'`“][^\"'`”]{4,300}[\"'`”]\W{0,3}(?:(?:mostly|usually|often|typically|generally|only|just) )?"
    r"(?:means?|indicates?|suggests?|says?|appears? (?:when|if)|is (?:usually |often |mostly )?(?:caused|printed|logged"
    r"|a (?:sign|symptom)))\b|.{0,80}\b(?:if|when|whenever) (?:you|users?) (?:see|get|hit|find)\b.{0,40}[\"'`“]",
    re.IGNORECASE,
)


def is_explanation(text: str) -> bool:
    """Return whether a line explains a quoted message, as a manual does."""
    return _EXPLANATION.match(strip_launcher_prefix(text)[1]) is not None or _EXPLANATION.match(text) is not None


def is_heading(text: str) -> bool:
    """Return whether a line is a heading."""
    return _TITLE.match(text) is not None


def is_prose(text: str) -> bool:
    """Return whether a line is a sentence of prose."""
    if _OUTPUT.match(text) or _OUTPUT.match(strip_launcher_prefix(text)[1]):
        return False
    return len({word.lower() for word in _PROSE.findall(text[:600])}) > (_WORDS_FIRST.match(text) is None)


def is_quoting(text: str) -> bool:
    """Return whether a line is prose that quotes output in backquotes."""
    return text.count("`") > 1 and is_prose(text)


def is_manual_excerpt(text: str) -> bool:
    """Return whether a line is from a manual's list of messages."""
    bare = strip_launcher_prefix(text)[1]
    return any(_PATTERN.search(one) or _TABLE_LINE.match(one) or _POINT.fullmatch(one) for one in {text, bare})

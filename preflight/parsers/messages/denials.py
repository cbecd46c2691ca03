"""Words of log lines that deny a fault: ``failed=no``, ``no failures``."""

from __future__ import annotations

import re

_FAULT = r"(?:fail|err(?:or|s)?\b|error|abort|mismatch|unhealthy|timed[ _-]?out|timeout|oom|kill|crash|corrupt|fault)"
#: A field with such a word in its name, and a value that denies it; punctuation or another field must follow.
_FIELD = re.compile(
    rf"(?i)(?<![\w.-])[\w.-]{{0,40}}{_FAULT}\w{{0,20}}(?: (?:count|total|found|detected|seen|reported)s?)?[\"']?"
    r"\s{0,3}[:=]\s{0,3}[\"']?(?:no|none|false|null|nil|never|0+(?:\.0+)?|0x0+)(?![\w-])[\"']?"
    r"(?=\s*(?:$|[,;|)\]}]|\.(?:\s|$))|\s+[\w.-]{1,40}[:=])"
)
#: A denial before the noun. A bare 0 may be the number of a device, so the text before it must exclude that.
_NOUN = r"(?:errors?|failures?|faults?|mismatch(?:es)?|timeouts?)(?![\w:=-])"
_BEFORE = re.compile(
    rf"(?i)(?:(?<![\w-])(?:no|zero|without(?: any)?) |(?:(?<=[:,;=(] )|(?<=found )|(?<=with )|(?<=has ))0 ){_NOUN}"
)


def without_denials(text: str) -> str:
    """Return a line without the words that deny a fault."""
    if not _VALUE.search(text):
        return text
    return _BEFORE.sub("", _FIELD.sub("", text))


_VALUE = re.compile(r"(?i)[:=]\s{0,3}[\"']?(?:no|n[ieu]|false|0)|\b(?:no|zero|without|0) ")

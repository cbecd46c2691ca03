"""Events printed by ``kubectl get events`` and ``kubectl describe``."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block
from preflight.textprep.lines import Lines

_HEAD = re.compile(r"\s*(?:NAMESPACE\s+)?LAST SEEN\s+(?:COUNT\s+NAME\s+KIND\s+)?TYPE\s+REASON\s+(?:KIND|OBJECT)\b.*")
_AGE = r"(?:\d{1,4}(?:d|h|m|s)){1,3}(?: \(x\d{1,6} over (?:\d{1,4}(?:d|h|m|s)){1,3}\))?|<unknown>|<invalid>"
_EVENT = re.compile(
    rf"\s*(?:(?P<ns>[a-z0-9][\w-]{{0,62}})\s+)?(?P<age>{_AGE})\s+(?P<type>Normal"
    rf"|Warning)\s+(?P<reason>[A-Z]\w{{1,60}})\s+"
    r"(?P<object>[a-z][\w.-]{1,40}/[\w.-]{1,253})\s+(?P<message>.*)"
)
_DESCRIBED_HEAD = re.compile(r"\s*Type\s+Reason\s+Age\s+From\s+Message\s*")
_DESCRIBED = re.compile(
    rf"\s*(?P<type>Normal"
    rf"|Warning)\s+(?P<reason>[A-Z]\w{{1,60}})\s+(?P<age>{_AGE})\s+(?P<from>[\w.,: /-]{{2,80}}?)\s{{2,}}"
    r"(?P<message>.*)"
)


@dataclass(frozen=True)
class KubernetesEvent:
    """One Kubernetes event."""

    type: str
    reason: str
    object: str  # kind/name; empty in a description, which is on one object
    message: str
    age: str
    line: int


def event_in(text: str, number: int) -> KubernetesEvent | None:
    """Read the event on a line; return None if there is none."""
    if match := _EVENT.fullmatch(text):
        return KubernetesEvent(
            match["type"], match["reason"], match["object"], match["message"].strip(), match["age"], number
        )
    if match := _DESCRIBED.fullmatch(text):
        return KubernetesEvent(match["type"], match["reason"], "", match["message"].strip(), match["age"], number)
    return None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of events begins at a line."""
    text = lines[at].text
    if _HEAD.fullmatch(text) or _DESCRIBED_HEAD.fullmatch(text):
        return True
    return ("Warning" in text or "Normal" in text) and event_in(text, 0) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[KubernetesEvent, ...]]:
    """Read the list that begins at a line."""

    def belongs(text: str) -> bool:
        return (
            bool(re.fullmatch(r"\s*-{2,}(?:\s+-{2,})+\s*", text) or _HEAD.fullmatch(text))
            or event_in(text, 0) is not None
        )

    end, taken = block(lines, at, belongs, blanks=1)
    events = [event for line in taken if (event := event_in(line.text, line.number))]
    while events and (more := _continued(lines, end)):  # a multi-line message
        text = " ".join((events[-1].message, *(line.text.strip() for line in lines[end : end + more])))
        events[-1] = replace(events[-1], message=text)
        end += more
        if end >= len(lines) or event_in(lines[end].text, 0) is None:
            break
        end, taken = block(lines, end, belongs, blanks=1)
        events += [event for line in taken if (event := event_in(line.text, line.number))]
    return Parsed(tuple(events), (), end)


#: The start of a continuation line of a message, in errors from mounts and runtimes; maximum continuation lines.
_CONTINUED = re.compile(r"\s{0,40}(?:Mounting (?:command|arguments)|Output|stderr|stdout|exit status)\b:?.*", re.I)
_MOST_CONTINUED = 8


def _continued(lines: Lines, at: int) -> int:
    """Return how many lines, from this one on, continue the message above."""
    end = at
    while end < min(len(lines), at + _MOST_CONTINUED) and _CONTINUED.fullmatch(lines[end].text):
        end += 1
    return end - at


HINTS = ("LAST SEEN", "Warning", "Normal", "Reason")

"""``kubectl get pods`` and ``kubectl get nodes``."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("NAME",)

_POD_HEAD = re.compile(r"\s*(NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE\b.{0,200}")
_NODE_HEAD = re.compile(r"\s*NAME\s+STATUS\s+ROLES\s+AGE\s+VERSION\b.{0,300}")
_AGE = r"(?:\d{1,5}[dhms]){1,3}|\d{1,3}y(?:\d{1,3}d)?|<unknown>|<invalid>"
_POD = re.compile(
    r"\s*([a-z0-9][\w.-]{0,252})\s+(\d{1,4})/(\d{1,4})\s+([A-Z][\w:/.-]{1,60})\s+(\d{1,7})"
    rf"(?: \((?:{_AGE}) ago\))?\s+(?:{_AGE})(?:\s+(\S{{1,64}})(?:\s+(\S{{1,253}}))?.{{0,200}})?\s*"
)
_NAMED = re.compile(r"\s*([a-z0-9][\w-]{0,62})\s+(\S.{0,1000})")
_NODE = re.compile(
    rf"\s*([a-z0-9][\w.-]{{0,252}})\s+((?:Not)?Ready|Unknown)((?:,\w{{1,40}}){{0,4}})\s+(\S{{1,200}})\s+(?:{_AGE})\s+"
    r"(v\S{1,60}).{0,300}"
)


@dataclass(frozen=True)
class ListedPod:
    """One row of pods."""

    namespace: str
    name: str
    ready: int
    containers: int
    status: str
    restarts: int
    node: str
    line: int


@dataclass(frozen=True)
class ListedNode:
    """One row of nodes."""

    name: str
    status: str  # Ready, NotReady
    marks: tuple[str, ...]  # SchedulingDisabled
    version: str
    line: int


@dataclass(frozen=True)
class KubernetesList:
    """The rows of one table."""

    pods: tuple[ListedPod, ...] = ()
    nodes: tuple[ListedNode, ...] = ()


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table begins at a line."""
    return bool(_POD_HEAD.fullmatch(lines[at].text) or _NODE_HEAD.fullmatch(lines[at].text))


def parse_lines(lines: Lines, at: int) -> Parsed[KubernetesList]:
    """Read the rows below the header."""
    head = _POD_HEAD.fullmatch(lines[at].text)
    pods: list[ListedPod] = []
    nodes: list[ListedNode] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines) and lines[end].text.strip() and not is_prompt(lines[end].text):
        text, number = lines[end].text, lines[end].number
        if head and (pod := _pod(text, number, named=bool(head[1]))):
            pods.append(pod)
        elif not head and (match := _NODE.fullmatch(text)):
            nodes.append(ListedNode(match[1], match[2], tuple(filter(None, match[3].split(","))), match[5], number))
        else:
            gaps.append(ParseGap(number, "the row is cut"))
            break
        end += 1
    return Parsed(KubernetesList(tuple(pods), tuple(nodes)), tuple(gaps), end)


def _pod(text: str, number: int, named: bool) -> ListedPod | None:
    namespace = ""
    if named:
        if not (first := _NAMED.fullmatch(text)):
            return None
        namespace, text = first[1], first[2]
    match = _POD.fullmatch(text)
    if not match:
        return None
    node = match[7] or ""
    return ListedPod(namespace, match[1], int(match[2]), int(match[3]), match[4], int(match[5]),
                     "" if node == "<none>" else node, number)  # fmt: skip

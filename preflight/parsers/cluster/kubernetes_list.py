"""Tables of ``kubectl get``: pods, nodes and objects of any other kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = (
    "NAME", "Ready", "Running", "Completed", "Succeeded", "Error", "BackOff", "Pending", "Evicted", "Terminating",
    "Init:", "PodInitializing", "ContainerCreating", "ImagePull", "Invalid", "OOMKilled", "Unknown", "Admission",
)  # fmt: skip

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
#: The beginning of a row of a pod.
_BEGUN = re.compile(r"\s*(?:[a-z0-9][\w-]{0,62}\s+)?[a-z0-9][\w.-]{0,252}\s+\d{1,4}/\d{1,4}(?:\s|$)")


@dataclass(frozen=True)
class ListedPod:
    """One row of a table of pods."""

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
    """One row of a table of nodes."""

    name: str
    status: str  # Ready, NotReady or Unknown
    marks: tuple[str, ...]  # further words of the status, such as SchedulingDisabled
    version: str
    line: int


@dataclass(frozen=True)
class ListedObject:
    """One row of a table of objects of any other kind."""

    namespace: str
    name: str
    columns: Mapping[str, str]  # heading -> cell
    line: int


@dataclass(frozen=True)
class KubernetesList:
    """The rows of one table, which lists objects of one kind."""

    pods: tuple[ListedPod, ...] = ()
    nodes: tuple[ListedNode, ...] = ()
    others: tuple[ListedObject, ...] = ()


#: Columns; at least one of them identifies a table of any kind as one of Kubernetes.
_OWN = frozenset({"AGE", "STATUS", "STATE", "PHASE", "READY", "TERMINALSTATE"})
_HEADING = re.compile(r"[A-Z][A-Z0-9()/%._-]{0,30}(?: [A-Z][A-Z0-9()/%._-]{0,30}){0,3}")
_MOST_COLUMNS = 30


def _headings(text: str) -> list[tuple[str, int]]:
    """Return the headings of a table with their positions; empty for any other line."""
    if len(text) > 2000 or not re.match(r"\s*(?:(?:NAMESPACE\s+)?NAME|CONTAINER(?: ID)?)\s", text):
        return []
    headings = [(match[0], match.start()) for match in re.finditer(r"\S+(?: \S+)*", text)]
    names = {name for name, _ in headings}
    fits = len(headings) == len(names) <= _MOST_COLUMNS and all(_HEADING.fullmatch(name) for name in names)
    of_state = _OWN & names or any(name.endswith((" STATUS", " STATE")) for name in names)
    return headings if fits and of_state and {"NAME", "NAMES"} & names and len(names) > 1 else []


def begins(lines: Lines, at: int) -> bool:
    """Return whether a table of ``kubectl get`` begins at a line.

    ``grep`` and ``--no-headers`` leave rows without a header.
    """
    text = lines[at].text
    return _is_headed(text) or _row_without_header(text, lines[at].number) is not None


def _is_headed(text: str) -> bool:
    return bool(_POD_HEAD.fullmatch(text) or _NODE_HEAD.fullmatch(text) or _headings(text))


def parse_lines(lines: Lines, at: int) -> Parsed[KubernetesList]:
    """Read the rows below the header, or rows without one."""
    text = lines[at].text
    read: Callable[[str, int], ListedPod | ListedNode | None]
    pods_below, nodes_below = _POD_HEAD.fullmatch(text), _NODE_HEAD.fullmatch(text)
    if pods_below:
        read, end = partial(_pod, named=bool(pods_below[1])), at + 1
    elif nodes_below:
        read, end = _node, at + 1
    elif _headings(text):
        return _other_rows(lines, at)
    else:
        read, end = _row_without_header, at
    rows: list[ListedPod | ListedNode] = []
    gaps: list[ParseGap] = []
    while end < len(lines) and lines[end].text.strip() and not is_prompt(lines[end].text):
        row = read(lines[end].text, lines[end].number)
        if row is None:
            if pods_below or nodes_below or _BEGUN.match(lines[end].text):
                gaps.append(ParseGap(lines[end].number, "the row is truncated"))
            break
        rows.append(row)
        end += 1
    pods = tuple(row for row in rows if isinstance(row, ListedPod))
    nodes = tuple(row for row in rows if isinstance(row, ListedNode))
    return Parsed(KubernetesList(pods, nodes), tuple(gaps), end)


def _other_rows(lines: Lines, at: int) -> Parsed[KubernetesList]:
    """Read the rows of a table of neither pods nor nodes."""
    heads = _headings(lines[at].text)
    rows: list[ListedObject] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines) and (text := lines[end].text).strip() and not is_prompt(text) and not _is_headed(text):
        row = _row(heads, lines[end].text[:4000])
        name = row.get("NAME") or row.get("NAMES", "")
        if not re.fullmatch(r"[A-Za-z0-9][\w.:/-]{0,252}", name):
            break
        missing = sum(not row[name] for name, _ in heads)
        if missing and row.get("AGE", "-") == "":
            gaps.append(ParseGap(lines[end].number, "the row is truncated"))
        rows.append(ListedObject(row.get("NAMESPACE", ""), name, row, lines[end].number))
        end += 1
    return Parsed(KubernetesList(others=tuple(rows)), tuple(gaps), end)


def _row(heads: list[tuple[str, int]], text: str) -> dict[str, str]:
    words = [match[0] for match in re.finditer(r"\S+(?: \S+)*", text)]
    if len(words) == len(heads):
        return {name: word for (name, _), word in zip(heads, words, strict=True)}
    ends = [begin for _, begin in heads[1:]] + [len(text)]
    return {name: text[begin:stop].strip() for (name, begin), stop in zip(heads, ends, strict=True)}


def _row_without_header(text: str, number: int) -> ListedPod | ListedNode | None:
    return _pod(text, number) or _pod(text, number, named=True) or _node(text, number)


def _node(text: str, number: int) -> ListedNode | None:
    match = _NODE.fullmatch(text)
    if not match:
        return None
    return ListedNode(match[1], match[2], tuple(filter(None, match[3].split(","))), match[5], number)


def _pod(text: str, number: int, *, named: bool = False) -> ListedPod | None:
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

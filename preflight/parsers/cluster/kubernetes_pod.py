"""``kubectl describe pod``: the pod's node, container states and events."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent, event_in
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

_FIELD = re.compile(r"(\s*)([A-Z][\w ()-]{1,40}?):\s*(.*)")
_CONTAINER = re.compile(r"  ([a-z0-9][\w.-]{0,62}):\s*")
_STATE = re.compile(r"\s{1,8}State:\s+(?:Waiting|Terminated|Running)\s*")
_SECTIONS = frozenset({"Containers", "Init Containers", "Conditions", "Volumes", "Events", "Tolerations"})


@dataclass(frozen=True)
class ContainerState:
    """The current and last state of a container; a missing value is None or empty."""

    name: str
    state: str
    reason: str
    exit_code: int | None
    last_state: str
    last_reason: str
    last_exit_code: int | None
    restarts: int | None
    ready: bool | None
    line: int
    message: str = ""  # why it ended or does not start


@dataclass(frozen=True)
class PodDescription:
    """One pod; a value that the text lacks is empty."""

    name: str
    namespace: str
    node: str
    status: str
    reason: str
    message: str
    containers: tuple[ContainerState, ...]
    conditions: tuple[tuple[str, str], ...]  # type and status
    events: tuple[KubernetesEvent, ...]


def begins(lines: Lines, at: int) -> bool:
    """Return whether a pod's description, or a container's state, begins at a line."""
    if _STATE.fullmatch(lines[at].text):
        near = [line.text for line in lines[at + 1 : at + 12]]
        return any(re.fullmatch(r"\s+(?:Ready|Restart Count|Last State|Exit Code):\s+\S.*", text) for text in near)
    if not re.fullmatch(r"Name:\s+\S+", lines[at].text):
        return False
    near = [line.text for line in lines[at + 1 : at + 8]]
    return any(re.match(r"Namespace:\s+\S", text) for text in near) and any(
        re.match(r"(?:Priority|Node|Service Account|Start Time|Status):\s", text) for text in near
    )


def parse_lines(lines: Lines, at: int) -> Parsed[PodDescription]:
    """Read the description that begins at a line."""
    top: dict[str, str] = {}
    containers: list[dict[str, str | int]] = []
    conditions: list[tuple[str, str]] = []
    events: list[KubernetesEvent] = []
    section, block, end, last = "", "", at, at
    depth_of_state = 4
    if _STATE.fullmatch(lines[at].text):
        section, depth_of_state = "Containers", len(lines[at].text) - len(lines[at].text.lstrip())
        containers.append({"name": "", "line": lines[at].number})
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if is_prompt(text) or (end > at and not text[:1].isspace() and begins(lines, end)):
            break
        match = _FIELD.fullmatch(text)
        if match and not match[1]:
            section = match[2]
            top.setdefault(section, match[3].strip())
        elif section in ("Containers", "Init Containers") and (name := _CONTAINER.fullmatch(text)):
            containers.append({"name": name[1], "line": lines[end].number})
            block = ""
        elif section in ("Containers", "Init Containers") and match and containers:
            depth, key, value = len(match[1]), match[2], match[3].strip()
            if depth <= depth_of_state:
                block = key
                containers[-1].setdefault(key, value)
            elif key in ("Reason", "Exit Code", "Message"):
                containers[-1].setdefault(f"{block}/{key}", value)
        elif section == "Conditions" and (pair := re.fullmatch(r"\s+(\w{3,40})\s+(True|False|Unknown)\s*", text)):
            conditions.append((pair[1], pair[2]))
        elif section == "Events" and (event := event_in(text, lines[end].number)):
            events.append(event)
        elif text.strip() and not text[:1].isspace() and end > at:
            break
        if text.strip():
            last = end
        end += 1
    gaps = (
        ()
        if "Events" in top
        else (ParseGap(lines[last].number, "the events at the end of the description are missing", "Name" not in top),)
    )
    return Parsed(
        PodDescription(
            top.get("Name", ""), top.get("Namespace", ""), top.get("Node", "").split("/")[0].replace("<none>", ""),
            top.get("Status", ""), top.get("Reason", ""), top.get("Message", ""), tuple(map(_container, containers)),
            tuple(conditions), tuple(events),
        ), gaps, last + 1,
    )  # fmt: skip


def _container(raw: dict[str, str | int]) -> ContainerState:
    def text(name: str) -> str:
        return str(raw.get(name, ""))

    def number(name: str) -> int | None:
        return int(text(name)) if re.fullmatch(r"-?\d{1,6}", text(name)) else None

    return ContainerState(
        text("name"), text("State"), text("State/Reason"), number("State/Exit Code"), text("Last State"),
        text("Last State/Reason"), number("Last State/Exit Code"), number("Restart Count"),
        {"True": True, "False": False}.get(text("Ready")), int(raw.get("line", 0)),
        text("Last State/Message") or text("State/Message"),
    )  # fmt: skip


HINTS = ("Name:", "State:")

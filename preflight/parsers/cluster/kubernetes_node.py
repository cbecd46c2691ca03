"""``kubectl describe node``: conditions, taints and allocatable resources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass, field
from preflight.parsers import text_block
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("Name:", "Conditions:", "apacity:", "llocatable:")

_NAME = re.compile(r"Name:\s+(\S{1,253})")
_TOP = re.compile(r"([A-Z][\w ()-]{1,40}?):\s*(.*)")
_CONDITION = re.compile(
    r"\s+([A-Z]\w{2,60})\s+(True|False|Unknown)\s+(?:\w{3}, \d{1,2} \w{3} \d{4} [\d:]{8} \S{1,6}\s+){0,2}(\w{1,80})"
    r"(?:\s+(.{0,400}))?"
)
_RESOURCE = re.compile(r"\s+\"?([a-z][\w./-]{1,120})\"?:\s+\"?(\d{1,12})([KMGTE]i?|m)?\"?,?\s*")
_ROLES = re.compile(r"Roles:\s")
#: Lines that only a node's description contains, and maximum lines between the node's name and such a line.
_OF_A_NODE = re.compile(r"Allocatable:\s*|\s+(?:MemoryPressure|DiskPressure|PIDPressure)\s+(?:True|False|Unknown)\b.*")
_NEAR = 60
#: A section without the node's name, from a description or from YAML.
_SECTION = re.compile(r"Conditions:\s*|(?:Capacity|Allocatable):\s*|\s{0,8}(?:capacity|allocatable):\s*")


@dataclass(frozen=True)
class NodeCondition:
    """One condition of a node or another object."""

    type: str
    status: str
    reason: str
    message: str
    line: int


@dataclass(frozen=True)
class NodeDescription:
    """One node; its resources, by name, are only those without a unit."""

    name: str
    unschedulable: bool
    taints: tuple[str, ...]
    conditions: tuple[NodeCondition, ...]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    system_info: Mapping[str, str] = field(default_factory=dict)  # section System Info, by name


def begins(lines: Lines, at: int) -> bool:
    """Return whether the description of a node, or a section of it, begins at a line."""
    if _NAME.fullmatch(lines[at].text):
        near = [line.text for line in lines[at + 1 : at + _NEAR]]
        return bool(near) and (_ROLES.match(near[0]) is not None or _is_excerpt(near))
    if not _SECTION.fullmatch(lines[at].text) or at + 1 >= len(lines):
        return False
    below = [line.text for line in lines[at + 1 : at + 6]]
    if lines[at].text.startswith("Conditions"):
        return any(_OF_A_NODE.fullmatch(text) for text in below)
    return _RESOURCE.fullmatch(below[0]) is not None


def _is_excerpt(near: list[str]) -> bool:
    """Return whether an excerpt of a node's description follows the node's name."""
    for text in near:
        if _OF_A_NODE.fullmatch(text):
            return True
        if _NAME.fullmatch(text) or (text.strip() and not text[0].isspace() and not _TOP.fullmatch(text)):
            return False
    return False


def parse_lines(lines: Lines, at: int) -> Parsed[NodeDescription]:
    """Read the description that begins at a line."""
    name = _NAME.fullmatch(lines[at].text)
    taints: list[str] = []
    conditions: list[NodeCondition] = []
    amounts: dict[str, dict[str, int]] = {"Capacity": {}, "Allocatable": {}}
    system: dict[str, str] = {}
    section = "" if name else lines[at].text.strip().rstrip(":").capitalize()
    margin = len(lines[at].text) - len(lines[at].text.lstrip())
    unschedulable, end, last = False, at + 1, at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if is_prompt(text) or (_NAME.fullmatch(text) and begins(lines, end)):
            break
        text = text[margin:] if text[:margin].isspace() else text
        if match := _TOP.fullmatch(text) or (_SECTION.fullmatch(text) and re.fullmatch(r"(\w+):(\s*)", text)):
            section = match[1].capitalize() if _SECTION.fullmatch(text) else match[1]
            unschedulable = unschedulable or (section == "Unschedulable" and match[2].strip() == "true")
            if section == "Taints" and match[2].strip() not in ("<none>", ""):
                taints.append(match[2].strip())
        elif text.strip() and not text[0].isspace():
            break
        elif section == "Taints" and text.strip():
            taints.append(text.strip())
        elif section == "Conditions" and (row := _CONDITION.fullmatch(text)):
            conditions.append(NodeCondition(row[1], row[2], row[3], (row[4] or "").strip(), lines[end].number))
        elif section == "System Info" and (pair := text_block.field(text)):
            system.setdefault(*pair)
        elif section in amounts and (row := _RESOURCE.fullmatch(text)) and not row[3]:
            amounts[section][row[1]] = int(row[2])
        last = end if text.strip() else last
        end += 1
    lacking = [what for what, there in (("conditions", conditions), ("Allocatable", amounts["Allocatable"]))
               if not there]  # fmt: skip
    complete = name is not None and at + 1 < len(lines) and _ROLES.match(lines[at + 1].text) is not None
    gaps = tuple(ParseGap(lines[last].number, f"the node's {what} are missing") for what in lacking if complete)
    return Parsed(
        NodeDescription(name[1] if name else "", unschedulable, tuple(taints), tuple(conditions), amounts["Capacity"],
                        amounts["Allocatable"], system), gaps, last + 1,
    )  # fmt: skip

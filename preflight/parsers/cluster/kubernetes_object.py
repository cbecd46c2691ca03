"""Kubernetes objects in JSON or YAML, or printed by ``kubectl describe``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.cluster import kubernetes_pod
from preflight.parsers.cluster.indented_fields import read_fields
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent, event_in
from preflight.parsers.cluster.kubernetes_node import NodeCondition, NodeDescription
from preflight.parsers.cluster.kubernetes_node import begins as describes_node
from preflight.parsers.cluster.kubernetes_pod import ContainerState, PodDescription
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt, json_at, json_head
from preflight.textprep.lines import Lines

HINTS = ("apiVersion", '"kind"', "Name:", "{", "[", "tatus:", "onditions:")

#: Maximum lines of one output, objects of a list, and depth to which a status is examined.
_MOST_LINES, MOST_OBJECTS, _DEEPEST = 200_000, 2000, 12
_YAML = re.compile(r"apiVersion: \S{1,100}")
_JSON_KEY = re.compile(r'"(?:apiVersion|kind|metadata|lastTransitionTime|containerStatuses)"\s*:')
_NAME_LINE = re.compile(r"\s*-?\s*\"?name\"?:\s+\"?([\w.-]{1,253})\"?,?\s*|Name:\s+([\w.-]{1,253})")
_DESCRIBED = re.compile(r"(?:Labels|Annotations|API Version|Kind|Selector|Parallelism|Replicas|Status):(?:\s|$)")
_TABLE_CONDITION = re.compile(r"\s+([A-Z]\w{2,60})\s+(True|False|Unknown)\s+(\S{1,80})(?:\s.*)?")
#: A status or its conditions, without the object around it.
_EXCERPT = re.compile(r"\s{0,8}(?P<name>[Ss]tatus|[Cc]onditions):\s*")
_IN_EXCERPT = re.compile(
    r"\s*(?:- )?(?:[Cc]onditions:\s*|(?:type|Type):\s+[A-Z]\w+\s*|(?:lastTransitionTime|Last Transition Time):\s.*"
    r"|(?:phase|Phase|reason|Reason):\s+\S.*)"
)
_COUNT = re.compile(r"(\d{1,7}) (\w{3,20})")
_ERROR_NAME = re.compile(r"(?i)\w*error\w*|failureMessage")


@dataclass(frozen=True)
class StatusError:
    """An error text in an object's status, under a key such as ``lastSyncError``."""

    field: str
    text: str


@dataclass(frozen=True)
class KubernetesObject:
    """The status of an object that is neither a pod, a node nor an event."""

    kind: str
    name: str
    namespace: str
    state: str  # from the status, as printed; empty if there is none
    message: str
    conditions: tuple[NodeCondition, ...]
    counts: Mapping[str, int]  # by their names in the status or the description, such as "failed"
    parts: tuple[tuple[str, str], ...]  # names and states of its components
    errors: tuple[StatusError, ...]
    line: int


@dataclass(frozen=True)
class KubernetesObjects:
    """The objects of one output, by kind."""

    pods: tuple[PodDescription, ...] = ()
    nodes: tuple[NodeDescription, ...] = ()
    events: tuple[KubernetesEvent, ...] = ()
    others: tuple[KubernetesObject, ...] = ()


def begins(lines: Lines, at: int) -> bool:
    """Return whether objects with a status, or an excerpt of one, begin at a line."""
    text = lines[at].text
    if text[:1] in "{[":
        near = json_head(lines, at)
        return '"status"' in near and _JSON_KEY.search(near) is not None
    if _YAML.fullmatch(text):
        return any(re.match(r"(?:  )?status:\s*$", line.text) for line in _document(lines, at))
    return _is_description(lines, at) or _is_excerpt(lines, at)


def _is_excerpt(lines: Lines, at: int) -> bool:
    if not (head := _EXCERPT.fullmatch(lines[at].text)):
        return False
    below = [line.text for line in lines[at + 1 : at + 8]]
    deeper = "- " if head["name"] == "conditions" else " "
    return bool(below) and below[0].lstrip(" ").startswith(deeper.strip()) and below[0][:1] in " -" and any(
        _IN_EXCERPT.fullmatch(text) for text in below[: 2 if head["name"].lower() == "status" else 8]
    )  # fmt: skip


def _document(lines: Lines, at: int) -> Iterator[Any]:
    for line in lines[at : at + _MOST_LINES]:
        if (
            line.text.startswith("---")
            or is_prompt(line.text)
            or (line is not lines[at] and _YAML.fullmatch(line.text))
        ):
            return
        yield line


def _is_description(lines: Lines, at: int) -> bool:
    if not re.fullmatch(r"Name:\s+\S{1,253}", lines[at].text):
        return False
    if describes_node(lines, at) or (kubernetes_pod.begins(lines, at) and not _other_kind(lines, at)):
        return False
    near = [line.text for line in lines[at + 1 : at + 8]]
    return sum(bool(_DESCRIBED.match(text)) for text in near) >= 2


def _other_kind(lines: Lines, at: int) -> bool:
    return any(
        re.match(
            r"(?:Kind|API Version|Pods Statuses|Replicas|Selector|Desired Number\b.{0,60}|Parallelism):", line.text
        )
        for line in lines[at : at + 40]
    )


def parse_lines(lines: Lines, at: int) -> Parsed[KubernetesObjects]:
    """Read the output that begins at a line."""
    text = lines[at].text
    if text[:1] in "{[":
        result = json_at(lines, at)
        if result is None:
            gap = ParseGap(lines[at].number, "the JSON is truncated")
            return Parsed(KubernetesObjects(), (gap,), min(at + _MOST_LINES, len(lines)))
        end, value = result
        return Parsed(_objects(value, _numbers(lines, at, end), lines[at].number), (), end)
    if _YAML.fullmatch(text):
        value, end = read_fields(lines, at, titled=False)
        return Parsed(_objects(value, _numbers(lines, at, end), lines[at].number), (), end)
    if excerpt := _EXCERPT.fullmatch(text):
        value, end = read_fields(lines, at, titled=excerpt["name"][0].isupper())
        value = value if isinstance(value, dict) else {}
        value = {"status": value} if excerpt["name"].lower() == "conditions" else value
        return Parsed(_objects(value, {}, lines[at].number), (), end)
    return _described(lines, at)


def _numbers(lines: Lines, at: int, end: int) -> dict[str, int]:
    """Return the number of the first line with each object's name."""
    result: dict[str, int] = {}
    for line in lines[at:end]:
        if match := _NAME_LINE.fullmatch(line.text):
            result.setdefault(match[1] or match[2], line.number)
    return result


def _described(lines: Lines, at: int) -> Parsed[KubernetesObjects]:
    value, end = read_fields(lines, at, titled=True)
    if not isinstance(value, dict):
        return Parsed(KubernetesObjects(), (), at + 1)
    value = {**value, "metadata": {"name": value.get("name"), "namespace": value.get("namespace")}}
    conditions = [
        NodeCondition(match[1], match[2], match[3], "", line.number)
        for line in lines[at:end]
        if (match := _TABLE_CONDITION.fullmatch(line.text)) and event_in(line.text, 0) is None
    ]
    counts = {
        name.lower(): int(number)
        for key in ("podsStatuses", "podsStatus", "replicas")
        for number, name in _COUNT.findall(str(value.get(key) or ""))
    }
    made = _other(value, {}, lines[at].number)
    other = KubernetesObject(made.kind, made.name, made.namespace, made.state, made.message,
                             (*made.conditions, *conditions), {**made.counts, **counts}, made.parts, made.errors,
                             made.line)  # fmt: skip
    events: list[KubernetesEvent] = []
    while end < len(lines):
        if event := event_in(lines[end].text, lines[end].number):
            events.append(event)
        elif not re.match(r"\s+(?:Type\s+Reason|-{2,})|\s*$", lines[end].text):
            break
        end += 1
    while end > at + 1 and not lines[end - 1].text.strip():
        end -= 1
    return Parsed(KubernetesObjects(events=tuple(events), others=(other,)), (), end)


def _objects(value: Any, numbers: Mapping[str, int], first: int) -> KubernetesObjects:
    pods: list[PodDescription] = []
    nodes: list[NodeDescription] = []
    events: list[KubernetesEvent] = []
    others: list[KubernetesObject] = []
    for item in _items(value):
        line = numbers.get(_text(_at(item, "metadata").get("name")), first)
        kind = _text(item.get("kind"))
        if kind == "Pod" or "containerStatuses" in _at(item, "status"):
            pods.append(_pod(item, line))
        elif kind == "Event" or "involvedObject" in item:
            events.append(_event(item, line))
        elif kind == "Node" or "nodeInfo" in _at(item, "status"):
            nodes.append(_node(item, line))
        else:
            others.append(_other(item, numbers, line))
    return KubernetesObjects(tuple(pods), tuple(nodes), tuple(events), tuple(others))


def _items(value: Any) -> list[dict[str, Any]]:
    items = value.get("items", [value]) if isinstance(value, dict) else value if isinstance(value, list) else []
    result = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if result and all(
        {"type", "status"} <= item.keys() and "kind" not in item for item in result
    ):  # only conditions, as jq extracts them
        return [{"status": {"conditions": result}}]
    return result[:MOST_OBJECTS]


def _at(value: Any, key: str) -> dict[str, Any]:
    result = value.get(key) if isinstance(value, dict) else None
    return result if isinstance(result, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _number(value: Any) -> int | None:
    text = _text(value)
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else None


def _conditions(status: Mapping[str, Any], line: int) -> tuple[NodeCondition, ...]:
    listed = status.get("conditions")
    return tuple(
        NodeCondition(_text(entry.get("type")), _text(entry.get("status")), _text(entry.get("reason")),
                      _text(entry.get("message"))[:400], line)
        for entry in (listed if isinstance(listed, list) else [listed] if isinstance(listed, dict) else [])[:100]
        if isinstance(entry, dict)
    )  # fmt: skip


def _pod(item: Mapping[str, Any], line: int) -> PodDescription:
    status, meta = _at(item, "status"), _at(item, "metadata")
    containers = [
        _container(entry, line)
        for listed in (status.get("initContainerStatuses"), status.get("containerStatuses"))
        if isinstance(listed, list)
        for entry in listed
        if isinstance(entry, dict)
    ]
    return PodDescription(
        _text(meta.get("name")), _text(meta.get("namespace")), _text(_at(item, "spec").get("nodeName")),
        _text(status.get("phase")), _text(status.get("reason")), _text(status.get("message")), tuple(containers),
        tuple((entry.type, entry.status) for entry in _conditions(status, line)), (),
    )  # fmt: skip


def _container(entry: Mapping[str, Any], line: int) -> ContainerState:
    def state(key: str) -> tuple[str, str, int | None]:
        name, of = next(((name, of) for name, of in _at(entry, key).items() if isinstance(of, dict)), ("", {}))
        return name.capitalize(), _text(of.get("reason")), _number(of.get("exitCode"))

    now, before = state("state"), state("lastState")
    messages = [_text(of.get("message")) for key in ("lastState", "state") for of in _at(entry, key).values()
                if isinstance(of, dict)]  # fmt: skip
    ready = _text(entry.get("ready")).lower()
    return ContainerState(
        _text(entry.get("name")), *now, *before, _number(entry.get("restartCount")),
        {"true": True, "false": False}.get(ready), line, next(filter(None, messages), "")[:2000],
    )  # fmt: skip


def _node(item: Mapping[str, Any], line: int) -> NodeDescription:
    status, spec = _at(item, "status"), _at(item, "spec")
    taints = spec.get("taints")
    capacity, allocatable = (
        {name: number for name, value in _at(status, key).items() if (number := _number(value)) is not None}
        for key in ("capacity", "allocatable")
    )
    info = {name: value for name, value in _at(status, "nodeInfo").items() if isinstance(value, str)}
    return NodeDescription(
        _text(_at(item, "metadata").get("name")), _text(spec.get("unschedulable")).lower() == "true",
        tuple(f"{_text(entry.get('key'))}:{_text(entry.get('effect'))}"
              for entry in (taints if isinstance(taints, list) else []) if isinstance(entry, dict)),
        _conditions(status, line), capacity, allocatable, info,
    )  # fmt: skip


def _event(item: Mapping[str, Any], line: int) -> KubernetesEvent:
    of = _at(item, "involvedObject") or _at(item, "regarding")
    about = f"{_text(of.get('kind')).lower()}/{_text(of.get('name'))}" if of else ""
    message = _text(item.get("message")) or _text(item.get("note"))
    return KubernetesEvent(_text(item.get("type")), _text(item.get("reason")), about, message[:1000], "", line)


def _other(item: Mapping[str, Any], numbers: Mapping[str, int], line: int) -> KubernetesObject:
    status, meta = _at(item, "status"), _at(item, "metadata")
    state = next(
        (_text(status[key]) for key in ("state", "phase", "syncStatus", "status", "health") if _text(status.get(key))),
        "",
    )
    replicas = [_at(status, "replicaStatuses"), *(entry for entry in _at(status, "replicaStatuses").values())]
    counts: dict[str, int] = {}
    for place in (status, *(entry for entry in replicas if isinstance(entry, dict))):
        for name, value in place.items():
            if (number := _number(value)) is not None:
                counts[name] = max(number, counts.get(name, 0))
    parts: list[tuple[str, str]] = []
    errors: list[StatusError] = []
    _walk(status, 0, parts, errors)
    return KubernetesObject(
        _text(item.get("kind")), _text(meta.get("name")), _text(meta.get("namespace")), state,
        (_text(status.get("reason")) + " " + _text(status.get("message"))).strip()[:400], _conditions(status, line),
        counts, tuple(parts), tuple(errors), line,
    )  # fmt: skip


def _walk(value: Any, depth: int, parts: list[tuple[str, str]], errors: list[StatusError]) -> None:
    """Collect the components with a state, and the error texts, in a status."""
    if depth > _DEEPEST or len(parts) + len(errors) > MOST_OBJECTS:
        return
    if isinstance(value, list):
        for entry in value:
            _walk(entry, depth + 1, parts, errors)
    elif isinstance(value, dict):
        state = next((_text(value[key]) for key in ("state", "phase", "status") if _text(value.get(key))), "")
        if depth and state and _text(value.get("name")):
            parts.append((_text(value["name"]), state))
        for name, entry in value.items():
            if isinstance(entry, (dict, list)):
                if name != "conditions":
                    _walk(entry, depth + 1, parts, errors)
            elif _ERROR_NAME.fullmatch(str(name)) and _text(entry) not in (
                "",
                "0",
                "<nil>",
                "none",
                "None",
                "False",
                "false",
            ):
                errors.append(StatusError(str(name), _text(entry)[:400]))

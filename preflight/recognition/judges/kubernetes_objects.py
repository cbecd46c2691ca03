"""Faults of Kubernetes objects of any kind: their states, conditions and counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from preflight.model import Finding, failed, unknown, warned
from preflight.parsers.cluster.kubernetes_list import ListedObject
from preflight.parsers.cluster.kubernetes_node import NodeCondition
from preflight.parsers.cluster.kubernetes_object import KubernetesObject
from preflight.recognition.judges import Judge, PastedValue
from preflight.recognition.judges.kubernetes_words import (
    BAD,
    BAD_COLUMN,
    BAD_IF_TRUE,
    BAD_MESSAGE,
    BAD_REASON,
    BAD_UNLESS_TRUE,
    BAD_WORD,
    COUNT,
    EXITED,
    GOING_ON,
    NOT_WELL,
    QUOTA,
    SHARE,
    WELL,
    WELL_FOR_NOW,
    cause,
)  # fmt: skip
from preflight.textprep.plain_text import ends_of

#: Number of restarts at which a running pod warns: a judgement call.
RESTARTS = 5
#: Maximum number of parts of an object that are examined.
_MOST_PARTS = 200
_STATE_COLUMNS = ("STATUS", "STATE", "PHASE", "TERMINALSTATE", "READY", "AVAILABLE", "HEALTHY", "HEALTH", "SYNCED")


class ObjectTrouble(NamedTuple):
    """A fault of an object: status of the finding, message, and value as printed."""

    status: str
    words: str
    value: str


def _state_trouble(name: str, value: str) -> ObjectTrouble | None:
    """Return the fault that a state shows; None if healthy.

    An unrecognised state is reported as unknown.
    """
    if WELL.fullmatch(value) or WELL_FOR_NOW.fullmatch(value):
        return None
    if exited := EXITED.fullmatch(value):
        if exited[1] == "0":
            return None
        return ObjectTrouble("warn" if exited[1] else "unknown", f"{name} is {value}", value)
    status = "fail" if BAD.fullmatch(value) else "unknown"
    if NOT_WELL.fullmatch(value):
        status = "warn"
    remark = "" if status == "fail" or GOING_ON.fullmatch(value) or BAD.fullmatch(value) else " (an unrecognised state)"
    return ObjectTrouble(status, f"{name} is {value}{remark}", value)


def row_trouble(row: ListedObject) -> ObjectTrouble | None:
    """Return the fault of a table row; None if healthy."""
    columns = row.columns
    for name in (*_STATE_COLUMNS, *(name for name in columns if name.endswith((" STATUS", " STATE")))):
        value = columns.get(name, "")
        if COUNT.fullmatch(value) or SHARE.fullmatch(value):
            continue
        if (trouble := _state_trouble(name.lower(), value)) is not None:
            return trouble
    bad = next((name for name, value in columns.items() if name != "NAME" and BAD_WORD.fullmatch(value)), None)
    if bad is not None:
        return ObjectTrouble("warn", f"{bad.lower()} is {columns[bad]}", columns[bad])
    for name in ("ADMITTED", "ESTABLISHED", "ACCEPTED", "PROGRAMMED", "VALID", "SYNCED"):
        if columns.get(name) == "False":
            return ObjectTrouble("unknown" if name == "ADMITTED" else "warn", f"{name.lower()} is False", "False")
    for name, value in columns.items():
        if value == "True" and BAD_COLUMN.fullmatch(name):
            return ObjectTrouble("warn", f"{name.lower()} is True", value)
    for name in ("REQUEST", "LIMIT"):
        if used_up := [match for match in QUOTA.finditer(columns.get(name, "")) if match[2] == match[3] != "0"]:
            words = ", ".join(f"{match[1]} {match[2]} of {match[3]}" for match in used_up[:6])
            return ObjectTrouble("unknown", f"its quota is used up: {words}; more pods are refused", used_up[0][0])
    counts = {name: int(value) for name, value in columns.items() if COUNT.fullmatch(value)}
    wanted = counts.get("DESIRED")
    for name in ("READY", "AVAILABLE", "UP-TO-DATE", "CURRENT"):
        if wanted is not None and name in counts and counts[name] < wanted:
            words = f"{counts[name]} of {wanted} {'updated' if name == 'UP-TO-DATE' else name.lower()}"
            return ObjectTrouble("warn", words, f"{counts[name]}/{wanted}")
    if (share := SHARE.fullmatch(columns.get("READY", ""))) and int(share[1]) < int(share[2]):
        return ObjectTrouble("warn", f"{share[1]} of {share[2]} ready", share[0])
    share = SHARE.fullmatch(columns.get("COMPLETIONS", ""))
    if share and "STATUS" not in columns and int(share[1]) < int(share[2]):
        return ObjectTrouble(
            "unknown", f"{share[1]} of {share[2]} complete: it is still running, or it failed", share[0]
        )
    if counts.get("FAILED", 0) or counts.get("ERRORS", 0):
        return ObjectTrouble("fail", f"{counts.get('FAILED') or counts.get('ERRORS')} failed", "failed")
    if counts.get("RESTARTS", 0) >= RESTARTS:
        return ObjectTrouble("warn", f"{counts['RESTARTS']} restarts", str(counts["RESTARTS"]))
    return None


_REPORTS = {"fail": failed, "warn": warned, "unknown": unknown}


def object_judge(name: str, trouble: ObjectTrouble, line: int, kind: str = "") -> Judge:
    """Return the judge that reports one fault of an object."""

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        of = f"{kind} {name}".strip() or "the object"
        yield _REPORTS[trouble.status](
            f"{of}: {trouble.words} (line {line})", subject=name, found=trouble.value[:200], evidence=part.evidence,
            fix=f"`kubectl describe {kind.lower() or 'KIND'} {name}`: conditions and events. "
                f"{cause(f'{name} {trouble.words}')[1]}",
        )  # fmt: skip

    return judge_part


def object_troubles(entry: KubernetesObject) -> Iterator[ObjectTrouble]:
    """Yield faults from conditions, errors, state, parts and counts of an object."""
    over = any(item.type in ("Complete", "Succeeded", "Failed") and item.status == "True" for item in entry.conditions)
    reported = False
    for item in entry.conditions:
        if (status := _condition_status(item, over)) is not None:
            reported = True
            words = f": {ends_of(item.message, 320)}" if item.message else ""
            yield ObjectTrouble(
                status, f"{item.type} is {item.status} ({item.reason}{words})", f"{item.type}={item.status}"
            )
    for error in entry.errors:
        reported = True
        yield ObjectTrouble("fail", f"{error.field}: {ends_of(error.text, 320)}", error.text)
    if (trouble := _state_trouble("its state", entry.state)) is not None:
        reported = True
        yield ObjectTrouble(
            trouble.status, f"{trouble.words}{f': {ends_of(entry.message, 320)}' if entry.message else ''}", entry.state
        )
    for name, state in entry.parts[:_MOST_PARTS]:
        if (trouble := _state_trouble(name, state)) is not None and trouble.status != "unknown":
            reported = True
            yield trouble
    counts = {name.lower(): number for name, number in entry.counts.items()}
    if not reported and counts.get("failed", 0):
        yield ObjectTrouble("fail", f"{counts['failed']} of its pods failed", str(counts["failed"]))
    unavailable = counts.get("numberunavailable", counts.get("unavailablereplicas", counts.get("unavailable", 0)))
    if not reported and unavailable:
        yield ObjectTrouble("warn", f"{unavailable} of its pods are not available", str(unavailable))
    elif not reported and counts.get("waiting", 0):
        yield ObjectTrouble("unknown", f"{counts['waiting']} of its pods are waiting", str(counts["waiting"]))


def _condition_status(item: NodeCondition, over: bool) -> str | None:
    """Return the status of a condition's finding; None for a good condition."""
    if BAD_IF_TRUE.fullmatch(item.type):
        if item.status != "True":
            return None
        return "fail" if item.type.startswith("Fail") or item.type.endswith(("Failed", "Failure", "Error")) else "warn"
    if BAD_UNLESS_TRUE.fullmatch(item.type):
        return None if item.status == "True" or over else "warn"
    if item.status != "True" and BAD_REASON.fullmatch(item.reason):
        return "warn"
    return "unknown" if item.status == "False" and BAD_MESSAGE.search(item.message) else None

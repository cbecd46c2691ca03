"""The documents' items: what an operator is asked to confirm, each answered by checks, never by opinion.

An item is as good as the worst of the checks that bear on it (fail > unknown > warn > pass > skip).
An item that no evidence was supplied for, or a part of which no check covers, is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.checklist_items import ITEMS, Item
from preflight.model import Check, Status, worst

#: What kind of evidence answers an item, and the one command that supplies it (empty: not in this version).
SUPPLY = {
    "node": ("evidence of the nodes", "preflight check"),
    "fleet": ("evidence of several nodes", "preflight judge DIR"),
    "bench": ("a collective benchmark", "preflight check --log all_reduce_perf.out"),
    "trace": ("an NCCL or job log", "preflight check --log job.log"),
    "window": ("counters sampled twice", "preflight check --window 60"),
    "fabric": ("a sweep of switches and links", "preflight check --fabric"),
    "switch": ("an answer of the switches", ""),
    "declared": ("the site's own word in the cluster file", ""),
    "report": ("the record of earlier runs", ""),
}


def answer(checks: Sequence[Check], statuses: Mapping[tuple[str, str], Status]) -> list[dict[str, Any]]:
    """Return every item with its status; ``statuses`` holds, by check and item, what those that ran said."""
    return [_answer(item, checks, statuses) for item in ITEMS]


def _answer(item: Item, checks: Sequence[Check], statuses: Mapping[tuple[str, str], Status]) -> dict[str, Any]:
    bearing = [check.id for check in checks if item.id in check.answers]
    ran = {check: statuses[check, item.id] for check in bearing if (check, item.id) in statuses}
    status, missing = Status.UNKNOWN, ""
    if not bearing:
        missing = f"no check of this version answers it; it needs {_kinds(item)}"
    elif not ran:
        missing = f"not judged yet: it needs {_kinds(item)}"
    else:
        status = worst(ran.values())
        if item.uncovered and status is not Status.FAIL:
            status = Status.UNKNOWN
            missing = f"no check of this version covers: {item.uncovered}"
        elif status is Status.UNKNOWN:
            vague = [check for check, said in ran.items() if said is Status.UNKNOWN]
            missing = f"could not be told by {', '.join(vague)}"
        elif waiting := [check for check in bearing if check not in ran]:
            missing = f"not judged: {', '.join(waiting)}"
            if status is not Status.FAIL:
                status = Status.UNKNOWN
    return {
        "id": item.id,
        "document": item.document,
        "title": item.title,
        "status": str(status),
        "checks": bearing,
        "missing": missing,
        "supply": _command(item) if missing and bearing else "",
    }


def _kinds(item: Item) -> str:
    return ", ".join(SUPPLY[kind][0] for kind in item.by)


def _command(item: Item) -> str:
    return next((SUPPLY[kind][1] for kind in item.by if SUPPLY[kind][1]), "")


#: Ids that a check may answer; a check that names another is a mistake.
KNOWN = frozenset(item.id for item in ITEMS)

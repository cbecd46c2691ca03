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
    "pair": ("a test between two nodes", "preflight pair HOST HOST --save DIR"),
    "fabric": ("a sweep of switches and links", "preflight check --fabric"),
    "switch": ("an answer of the switches", ""),
    "declared": ("the site's own word in the cluster file", ""),
    "report": ("the record of earlier runs", ""),
}


def answer(checks: Sequence[Check], statuses: Mapping[tuple[str, str], Status]) -> list[dict[str, Any]]:
    """Return every item with its status; ``statuses`` holds, by check and item, what those that ran said."""
    bearing: dict[str, list[Check]] = {}
    for check in checks:
        for item in check.answers:
            bearing.setdefault(item, []).append(check)
    return [_answer(item, bearing.get(item.id, ()), statuses) for item in ITEMS]


def _answer(item: Item, checks: Sequence[Check], statuses: Mapping[tuple[str, str], Status]) -> dict[str, Any]:
    bearing = [check.id for check in checks]
    ran = {check: statuses[check, item.id] for check in bearing if (check, item.id) in statuses}
    status, missing, waiting = Status.UNKNOWN, "", list[Check]()
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
        elif waiting := [check for check in checks if check.id not in ran]:
            missing = f"not judged: {', '.join(check.id for check in waiting)}"
            if status is not Status.FAIL:
                status = Status.UNKNOWN
    return {
        "id": item.id,
        "document": item.document,
        "title": item.title,
        "status": str(status),
        "checks": bearing,
        "missing": missing,
        "supply": _command(item, waiting) if missing and bearing else "",
    }


def _kinds(item: Item) -> str:
    return ", ".join(SUPPLY[kind][0] for kind in item.by)


def _command(item: Item, waiting: Sequence[Check]) -> str:
    for check in waiting:
        if check.sweep and check.window:
            return f"{SUPPLY['fabric'][1]} --window 60"
        if kind := "pair" if check.pair else "window" if check.window else "fabric" if check.sweep else "":
            return SUPPLY[kind][1]
    return next((SUPPLY[kind][1] for kind in item.by if SUPPLY[kind][1]), "")


#: Ids that a check may answer; a check that names another is a mistake.
KNOWN = frozenset(item.id for item in ITEMS)

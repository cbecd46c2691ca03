"""Answers to the checklists: each question is answered by findings of its checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.checklist.item import ELSEWHERE, ChecklistItem, Question
from preflight.checklist.items import ITEMS
from preflight.model import Check, Status, worst

#: Kind of evidence that answers an item -> its name, and the command that supplies it.
SUPPLY = {
    "node": ("evidence from the nodes", "preflight check"),
    "fleet": ("evidence from several nodes", "preflight judge DIR"),
    "bench": ("a collective benchmark", "preflight check --log all_reduce_perf.out"),
    "trace": ("an NCCL or job log", "preflight check --log job.log"),
    "window": ("counters sampled twice", "preflight check --window 60"),
    "pair": ("a test between two nodes", "preflight pair HOST HOST --save DIR"),
    "fabric": ("a sweep of switches and links", "preflight check --fabric"),
    "switch": ("data from the switches", "preflight judge DIR --switch-files DIR"),
    "declared": ("the site's declaration in the cluster file", "preflight check --cluster cluster.toml"),
    "report": ("the record of earlier runs", "preflight check --history FILE"),
}

#: Status by check and item, of the checks that ran; the item "" stands for all findings of the check.
Statuses = Mapping[tuple[str, str], Status]


def answer(checks: Sequence[Check], statuses: Statuses) -> list[dict[str, Any]]:
    """Return every item with its status and its questions.

    A check that answers an item but is named in none of its questions, such as a plug-in's, becomes a question.
    """
    known = {check.id: check for check in checks}
    claiming: dict[str, list[Check]] = {}
    for check in checks:
        for item_id in check.answers:
            claiming.setdefault(item_id, []).append(check)
    return [_item(item, known, claiming.get(item.id, ()), statuses) for item in ITEMS]


@dataclass(frozen=True)
class _Answer:
    """A question with its status, and the reason if unanswered."""

    question: Question
    status: Status
    waiting: tuple[str, ...] = ()  # checks that did not run
    vague: tuple[str, ...] = ()  # checks that ran but are unknown
    elsewhere: str = ""  # why the question is not applicable

    @property
    def open(self) -> bool:
        return self.status is Status.UNKNOWN and not self.question.checks

    @property
    def missing(self) -> str:
        """The missing evidence; empty if answered."""
        parts = [self.question.missing] if self.open else []
        needs = [f"it needs {self.question.needs}"] if self.vague and self.question.needs else []
        return "; ".join([*parts, *_reasons(self.waiting, self.vague), *needs])


def _item(
    item: ChecklistItem, known: Mapping[str, Check], claiming: Iterable[Check], statuses: Statuses
) -> dict[str, Any]:
    named = item.checks
    added = [check for check in claiming if check.id not in named]
    questions = (*item.questions, *(Question(check.title, (check.id,)) for check in added))
    answers = [_question(question, item.id, statuses) for question in questions]
    bearing = [*named, *(check.id for check in added)]
    waiting = tuple(dict.fromkeys(check for one in answers for check in one.waiting))
    missing = _missing(item, bearing, answers, waiting)
    unsettled = waiting or any(one.vague for one in answers)
    return {
        "id": item.id,
        "document": item.document,
        "title": item.title,
        "status": str(worst(one.status for one in answers)),
        "checks": bearing,
        "questions": [
            {
                "text": one.question.text,
                "status": str(one.status),
                "checks": list(one.question.checks),
                "missing": one.missing,
                **({"elsewhere": one.elsewhere} if one.elsewhere else {}),
            }
            for one in answers
        ],
        "missing": missing,
        **({"within": item.within} if item.within else {}),
        "supply": _command(item, [known[check] for check in waiting if check in known]) if unsettled else "",
    }


def _question(question: Question, item: str, statuses: Statuses) -> _Answer:
    if question.where and statuses.get((question.where, "")) is Status.SKIP:
        return _Answer(question, Status.SKIP, elsewhere=ELSEWHERE[question.where])
    ran = {check: statuses[check, item] for check in question.checks if (check, item) in statuses}
    waiting = tuple(check for check in question.checks if check not in ran)
    vague = tuple(check for check, status in ran.items() if status is Status.UNKNOWN)
    found = [*ran.values(), *(Status.UNKNOWN for _ in waiting)]
    return _Answer(question, worst(found), waiting, vague)


def _missing(item: ChecklistItem, bearing: Sequence[str], answers: Sequence[_Answer], waiting: Sequence[str]) -> str:
    if not bearing:
        unanswered = any(one.open for one in answers)
        return f"no check in this version answers it; it needs {_kinds(item)}" if unanswered else ""
    parts = [one.question.missing for one in answers if one.open]
    open_parts = [f"no check in this version covers: {', '.join(parts)}"] if parts else []
    vague = tuple(dict.fromkeys(check for one in answers for check in one.vague))
    if set(waiting) == set(bearing):
        return "; ".join([f"not judged yet: it needs {_kinds(item)}", *open_parts])
    needs = dict.fromkeys(one.question.needs for one in answers if one.vague and one.question.needs)
    return "; ".join([*open_parts, *_reasons(waiting, vague), *(f"it needs {what}" for what in needs)])


def _reasons(waiting: Sequence[str], vague: Sequence[str]) -> list[str]:
    found = [f"not judged: {', '.join(waiting)}"] if waiting else []
    return [*found, f"unknown by {', '.join(vague)}"] if vague else found


def _kinds(item: ChecklistItem) -> str:
    return ", ".join(SUPPLY[kind][0] for kind in item.by)


def _command(item: ChecklistItem, waiting: Sequence[Check]) -> str:
    for check in waiting:
        if check.sweep and check.window:
            return f"{SUPPLY['fabric'][1]} --window 60"
        needs = {
            "pair": check.pair,
            "window": check.window,
            "fabric": check.sweep,
            "switch": check.switches,
            "report": check.history,
        }
        if kind := next((kind for kind, needed in needs.items() if needed), ""):
            return SUPPLY[kind][1]
    return next((SUPPLY[kind][1] for kind in item.by if SUPPLY[kind][1]), "")

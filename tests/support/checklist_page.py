"""Writer of ``docs/checklist.md`` from the checklists' items: ``python -m tests.support.checklist_page``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from preflight.checklist.item import CONTAINER, INFINIBAND, NVLINK_DOMAIN, ROCE, ChecklistItem, Question
from preflight.checklist.items import ITEMS
from preflight.checks import registry
from preflight.judge import judge
from preflight.model import Scope
from preflight.textprep.agreement import verb
from tests.support import paths
from tests.support.fixture import cases

PAGE = paths.ROOT / "docs" / "checklist.md"

_HEAD = """\
# The checklists

<!-- Written by python -m tests.support.checklist_page from preflight/checklist: change the items there. -->

Five checklists on AI fabrics ask an operator to confirm {items} items. `preflight checklist DIR` answers them from
saved evidence, as do the HTML page and the JSON of every report. This page lists what each item asks, which checks
answer it, and what is not answered yet.

Each item consists of questions. A question has the worst result of its checks, and is unknown until all of them ran. An
item has the worst result of its questions: fail > unknown > warn > pass > skip. So an item with an open question cannot
pass, unless the question does not apply: questions marked *RoCE only* are skipped if no compute port is RoCE, and those
marked *in a container* outside containers. *needs* names the input, or the declaration in the cluster file, without
which a check cannot answer. `preflight explain CHECK` prints the page of a check.

The last column shows how much of an item is answered:

- **fully**: every question has checks.
- **partly**: some questions have no check, and the previous column shows what is missing; or all have checks, but the
  answer covers only the evidence that *within* names. Every report states this as well.
- **open**: no question has a check.

{counts}
"""

DOCUMENTS = {
    "fabric-primer": "Why training needs a fabric of its own (fabric-primer)",
    "parallelism": "Before a job grows from 8 to 64 GPUs (parallelism)",
    "gpu-scaling": "What the hardware should reach (gpu-scaling)",
    "network-tuning": "Operational validation, practice, and the lens on bottlenecks (network-tuning)",
    "ai-network": "What an AI data-centre network needs (ai-network)",
}


#: Where a question applies, by the check that is skipped elsewhere.
ONLY = {
    ROCE: "RoCE only",
    INFINIBAND: "InfiniBand only",
    CONTAINER: "in a container",
    NVLINK_DOMAIN: "where NVLink spans nodes",
}


@dataclass(frozen=True)
class Note:
    """A fixture that shows on what the result of an item depends."""

    item: str
    fixture: str  # check/case
    status: str  # results of the item's checks
    text: str

    def holds(self) -> bool:
        """Return whether the fixture gives the stated result."""
        check_id, _, name = self.fixture.partition("/")
        checks = [check for check in registry().checks if self.item in check.answers]
        case = next(case for case in cases(check_id) if case.path.stem == name)
        of_run = any(check.scope is Scope.RUN for check in checks if check.id == check_id)
        run, nodes = case.run() if of_run else (None, case.evidences())
        lines = judge(nodes, checks, case.cluster(), run=run)["checklists"]
        return any(line["id"] == self.item and line["status"] == self.status for line in lines)


NOTES = (
    Note(
        "FP-LAT-4", "nccl-tests.curve/smooth", "unknown",
        "is unknown for a smooth curve if the cluster file names no reference run. If it names one, the curve passes "
        "(`nccl-tests.curve/as-the-good-run`) or fails (`nccl-tests.curve/half-of-the-good-run`).",
    ),
    Note(
        "FP-LAT-4", "nccl-tests.curve/as-the-good-run", "pass",
        "passes if the curve matches the reference run that the cluster file names.",
    ),
)  # fmt: skip


def page() -> str:
    """Return the page."""
    verdicts = Counter(verdict(item) for item in ITEMS)
    questions = [question for item in ITEMS for question in item.questions]
    answered = sum(bool(question.checks) for question in questions)
    bound = sum(not item.open and bool(item.within) for item in ITEMS)
    counts = (
        f"Of {len(ITEMS)} items, {verdicts['fully']} are answered fully, {verdicts['partly']} partly ({bound} of them "
        f"only because of *within*),\nand {verdicts['open']} {verb(verdicts['open'], 'is')} open. Of their "
        f"{len(questions)} questions, {answered} have checks."
    )
    lines = [_HEAD.format(items=len(ITEMS), counts=counts)]
    for document, items in groupby(ITEMS, key=lambda item: item.document):
        lines.append(f"## {DOCUMENTS[document]}\n")
        lines.append("| item | asks | in particular | answered by, or missing | verdict |")
        lines.append("|---|---|---|---|---|")
        for item in items:
            lines += _rows(item)
        lines.append("")
    lines.append("## Answers that depend on the cluster file\n")
    lines.append("These test fixtures show an item whose result depends on a declaration:\n")
    lines += [f"- {note.item} (`fixtures/{note.fixture}.json`) {note.text}" for note in NOTES]
    return "\n".join(lines) + "\n"


def verdict(item: ChecklistItem) -> str:
    """Return in one word how much of an item is covered by checks."""
    return "open" if not item.checks else "partly" if item.open or item.within else "fully"


def escaped(text: str) -> str:
    """Return text for a table cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _rows(item: ChecklistItem) -> Iterator[str]:
    for place, question in enumerate(item.questions):
        name, title, result = (f"**{item.id}**", escaped(item.title), _verdict(item)) if not place else ("", "", "")
        yield f"| {name} | {title} | {escaped(question.text)} | {_answered(question)} | {result} |"


def _verdict(item: ChecklistItem) -> str:
    word = verdict(item)
    answered = len(item.questions) - len(item.open)
    more = f", {answered} of {len(item.questions)}" if word == "partly" else ""
    return f"**{word}**{more}" + (f"; within: {escaped(item.within)}" if item.within else "")


def _answered(question: Question) -> str:
    by = ", ".join(f"`{check}`" for check in question.checks) or f"*missing:* {escaped(question.missing)}"
    needs = f"; needs {escaped(question.needs)}" if question.needs else ""
    return by + needs + (f" ({ONLY[question.where]})" if question.where else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

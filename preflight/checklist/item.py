"""Items of a checklist: the questions of a sentence, and their checks."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass

#: The check that is skipped where no compute port is RoCE: questions about Ethernet do not apply there.
ROCE = "roce.chain"

#: The check that is skipped where all compute ports are RoCE.
INFINIBAND = "rdma.active-mtu"

#: The check that is skipped outside containers.
CONTAINER = "container.gpu-devices"

#: The check that is skipped where NVLink ends in each node.
NVLINK_DOMAIN = "nvlink.imex"

#: Why a question does not apply where such a check is skipped.
ELSEWHERE = {
    ROCE: "no compute port is RoCE",
    INFINIBAND: "no compute port is InfiniBand",
    CONTAINER: "not in a container with GPUs",
    NVLINK_DOMAIN: "NVLink ends in each node",
}

#: Which ports are meant for NCCL, only the site knows.
COMPUTE = "`compute` in [class.NAME.ports] of the cluster file"

#: Where checkpoints are and how often they are saved, only the site knows.
CHECKPOINT = "`path` and `interval_min` in [class.NAME.checkpoint] of the cluster file"

#: Where NCCL's variables are read, which a job's script may set later.
ENVIRONMENT = "the environment of preflight and of ranks that it sees, and NCCL's files; a job's script may set more"


@dataclass(frozen=True)
class Question:
    """One question of an item; all of its checks must answer, without any it is open."""

    text: str
    checks: tuple[str, ...] = ()
    missing: str = ""
    where: str = ""
    needs: str = ""


@dataclass(frozen=True)
class ChecklistItem:
    """One sentence of a document; ``by`` are its kinds of evidence.

    They are listed in ``answers.SUPPLY``.
    """

    id: str
    document: str
    title: str
    by: tuple[str, ...]
    questions: tuple[Question, ...]
    within: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """Ids of the checks that answer any of its questions, each once."""
        return tuple(dict.fromkeys(check for question in self.questions for check in question.checks))

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions without a check."""
        return tuple(question for question in self.questions if not question.checks)


def question(text: str, *checks: str, where: str = "", needs: str = "") -> Question:
    """Return a question that these checks answer, all of them together."""
    return Question(text, checks, "", where, needs)


def lack(text: str, missing: str, *, where: str = "") -> Question:
    """Return an open question, with what would answer it."""
    return Question(text, (), missing, where)


class Checklist:
    """Makes the items of one document."""

    def __init__(self, document: str) -> None:
        """Take the name of the document."""
        self.document = document

    def item(self, id: str, title: str, by: str, *questions: Question, within: str = "") -> ChecklistItem:
        """Return an item; ``by`` are words, separated by spaces."""
        return ChecklistItem(id, self.document, title, tuple(by.split()), questions, within)

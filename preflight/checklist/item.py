"""Items of a checklist: a sentence, the questions it raises, and their checks."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass

#: The check that is skipped if no compute port is RoCE: questions about Ethernet are then not applicable.
ROCE = "roce.chain"

#: The check that is skipped if all compute ports are RoCE.
INFINIBAND = "rdma.active-mtu"

#: The check that is skipped outside containers.
CONTAINER = "container.gpu-devices"

#: The check that is skipped if NVLink does not leave the node.
NVLINK_DOMAIN = "nvlink.imex"

#: Why a question is not applicable if such a check is skipped.
ELSEWHERE = {
    ROCE: "no compute port is RoCE",
    INFINIBAND: "no compute port is InfiniBand",
    CONTAINER: "not in a container with GPUs",
    NVLINK_DOMAIN: "NVLink is limited to each node",
}

#: Input that questions about NCCL's ports need: only the site knows these ports.
COMPUTE = "`compute` in [class.NAME.ports] of the cluster file"

#: Input that questions about checkpoints need: only the site knows their directory and interval.
CHECKPOINT = "`path` and `interval_min` in [class.NAME.checkpoint] of the cluster file"

#: Sources of NCCL's variables, which a job's script may set later.
ENVIRONMENT = "the environment of preflight and of visible ranks, and NCCL's files; a job's script may set more"


@dataclass(frozen=True)
class Question:
    """One question of an item; all of its checks must answer. Open if it has none."""

    text: str
    checks: tuple[str, ...] = ()
    missing: str = ""
    where: str = ""
    needs: str = ""


@dataclass(frozen=True)
class ChecklistItem:
    """One sentence of a document, with its questions.

    ``by`` lists the kinds of evidence that answer it, which are keys of ``answers.SUPPLY``.
    """

    id: str
    document: str
    title: str
    by: tuple[str, ...]
    questions: tuple[Question, ...]
    within: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """Ids of the checks of all questions, each once."""
        return tuple(dict.fromkeys(check for question in self.questions for check in question.checks))

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions without a check."""
        return tuple(question for question in self.questions if not question.checks)


def question(text: str, *checks: str, where: str = "", needs: str = "") -> Question:
    """Return a question that these checks answer together."""
    return Question(text, checks, "", where, needs)


def lack(text: str, missing: str, *, where: str = "") -> Question:
    """Return an open question with its missing evidence."""
    return Question(text, (), missing, where)


class Checklist:
    """Builder of the items of one document."""

    def __init__(self, document: str) -> None:
        """Set the name of the document."""
        self.document = document

    def item(self, id: str, title: str, by: str, *questions: Question, within: str = "") -> ChecklistItem:
        """Return an item; ``by`` lists kinds of evidence, separated by spaces."""
        return ChecklistItem(id, self.document, title, tuple(by.split()), questions, within)

"""Cluster file learnt from a fleet: majority values, without known faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.checks import registry
from preflight.errors import PreflightError
from preflight.evidence.document import NODE, Evidence
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from preflight.learn.classes import kinds
from preflight.learn.majority import values
from preflight.learn.node_values import read_node
from preflight.learn.self_check import Fault, faults
from preflight.learn.toml_writer import Class, text
from preflight.nodeset import excerpt, is_name

if TYPE_CHECKING:
    from preflight.model import Check

__all__ = ["LearnError", "Learnt", "learn"]


class LearnError(PreflightError):
    """The evidence has no node with a GPU and a valid node name."""


@dataclass(frozen=True)
class Learnt:
    """A learnt cluster file, the values that were not learnt, and the faults found."""

    text: str
    classes: int
    nodes: int
    refused: tuple[str, ...]  # values that were not learnt, each with why
    systemic: tuple[Fault, ...]  # faults of a large share of a class's nodes
    odd: tuple[str, ...]  # nodes that fail or warn under this file


def learn(evidences: Sequence[Evidence], checks: Sequence[Check] | None = None, processes: int = 1) -> Learnt:
    """Learn a cluster file from these nodes; raises LearnError.

    The result depends only on the evidence and the checks.
    """
    if checks is None:
        checks = registry().checks
    empty = Cluster()
    readings = []
    silent = []
    why = ""
    for evidence in evidences:
        if evidence.kind != NODE:
            continue
        if not evidence.answered:
            silent.append(evidence.node)
            why = why or (evidence.no_answer or {}).get("reason", "")
            continue
        node = NodeFacts(evidence)
        readings.append(read_node(node, empty.site(node)))
    readings.sort(key=lambda one: one.node)
    found, apart = kinds(readings)
    if not found:
        silence = f" ({silent[0]} gave no answer: {why})" if why else ""
        raise LearnError(f"no node of this evidence has a GPU: nothing to learn from{silence}")
    unnamed = [one.node for kind in found for one in kind.members if not is_name(one.node)]
    found = [kind for kind in found if any(is_name(one.node) for one in kind.members)]
    if not found:
        raise LearnError(f"these names cannot be written as a list of nodes: {', '.join(map(excerpt, unnamed[:5]))}")
    classes = [Class(kind, tuple(values(kind.members, kind.part))) for kind in found]
    draft = text(classes, [], [one.node for one in apart], silent, unnamed)
    report = judge(evidences, checks, decode(draft.encode(), "cluster.toml"), processes=processes)
    seen = faults(report, {kind.name: [one.node for one in kind.members] for kind in found})
    final = text(classes, seen, [one.node for one in apart], silent, unnamed)
    refused = tuple(
        f"class.{one.kind.name}{'.' + value.table if value.table else ''}.{value.key}: {value.comment}"
        for one in classes
        for value in one.values
        if not value.learnt
    )
    return Learnt(
        final, len(classes), len(readings), refused, tuple(one for one in seen if one.systemic),
        tuple(sorted({node for one in seen for node in one.nodes})),
    )  # fmt: skip

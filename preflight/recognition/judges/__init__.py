"""Judgement of pasted outputs by the core functions of the checks.

Every finding has the id of a check. A judge receives the parser's value of one part, without the node's roles, site or
time. It reports *warn* or *unknown* if the text does not show the intent.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any

from preflight._startup.lightclass import replace
from preflight.checks import registry
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Check, Finding, Scope, Status, docstring
from preflight.recognition.evidence_adapter import key_of

#: Modules of this package; each has its judges by kind in ``JUDGES``: (id of the check, judge). Job output is first: it
#: is the most frequently pasted, and the largest.
MODULES = (
    "jobs", "signatures", "transport", "gpu", "amd", "devices", "dcgm", "kernel", "host", "kubernetes", "slurm",
    "ports", "counters", "interfaces", "qos", "pcie", "nic_tools", "gpu_tools", "kernel_settings", "fabric_tools",
    "host_tools", "hardware", "system", "status", "switches", "metrics", "containers",
)  # fmt: skip


#: Maximum number of findings of one check for one part; a person does not read more nodes or pods one by one.
_MOST_FINDINGS = 256
#: Kinds whose messages have many causes: a check's reason is that of its own fault, which may not be theirs.
_MANY_CAUSES = frozenset({
    "framework error", "nvidia-smi error", "slurm error", "network error", "program log", "kubernetes events",
    "kubernetes describe", "kubernetes object", "kubernetes get", "sacct", "squeue", "scontrol job", "fio", "iperf3",
})  # fmt: skip
#: Maximum number of names in a list.
MOST_NAMED = 20


@dataclass(frozen=True)
class PastedValue:
    """The value of one part, and facts about its text."""

    value: Any
    evidence: tuple[str, ...]  # key of its record
    complete: bool  # complete, as far as the text shows
    earlier: tuple[Any, ...] = ()  # earlier values of the same kind from the same writer
    others: tuple[Any, ...] = ()  # values of the same kind from other writers
    in_full: bool = True  # complete, or an excerpt in which every line was read
    hosts: int = 1  # number of hosts with this output
    files: bool = False  # the values of other writers come from other files


Judge = Callable[[PastedValue], Iterator[Finding]]
#: Pairs of a check's id and its judge.
Judged = tuple[tuple[str, Judge], ...]
#: Kind of output -> its judges, or a function that returns the judges of a value.
Judges = Mapping[str, "Judged | Callable[[Any], Judged]"]


class PastedRun:
    """The function of a check for one pasted part.

    Its docstring is the check's page, or only the first line of it for messages with many causes; it judges with the
    check's core functions.
    """

    def __init__(self, check: Check, kind: str, judges: Sequence[Judge], *values: Any) -> None:
        self.__name__: str = check.run.__name__
        self._real, self._key, self._judges, self._values = check.run, key_of(kind), judges, values
        self._fix = check.fix  # also for what is unknown: the text has been collected
        self._many_causes = kind in _MANY_CAUSES

    def __call__(self, node: NodeFacts, site: Site, /) -> Iterator[Finding]:
        """Yield the findings of a part."""
        complete = node.evidence.record(self._key).ok
        value, *more = self._values
        part = PastedValue(value, (self._key,), complete, *more)
        for finding in shortened(chain.from_iterable(judge(part) for judge in self._judges), _MOST_FINDINGS):
            yield finding if finding.fix or finding.status is not Status.UNKNOWN else replace(finding, fix=self._fix)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        page = docstring(self._real)
        return page.partition("\n")[0] if page and self._many_causes else page


def checks_of(
    kind: str,
    value: Any,
    earlier: tuple[Any, ...] = (),
    others: tuple[Any, ...] = (),
    in_full: bool = True,
    hosts: int = 1,
    files: bool = False,
) -> tuple[Check, ...]:
    """Return the checks that judge a part of this kind and value.

    Empty if no judge handles the kind. ``in_full`` states whether all lines of the part were read, ``files`` whether
    ``others`` come from other files.
    """
    declared = _declared()
    judges = _judges(kind)
    by_check: dict[str, list[Judge]] = defaultdict(list)
    for id, judge in judges if isinstance(judges, tuple) else judges(value):
        by_check[id].append(judge)
    return tuple(
        replace(
            declared[id], run=PastedRun(declared[id], kind, own, value, earlier, others, in_full, hosts, files),
            scope=Scope.NODE, sweep=False, window=False, pair="", reads=(), needs=(), history=False, unless=(),
        )
        for id, own in by_check.items()
    )  # fmt: skip


@functools.cache
def _judges(kind: str) -> Judged | Callable[[Any], Judged]:
    """Return the judges of a kind; empty if there are none.

    Modules after the matching one are not imported.
    """
    judges_of = (import_module(f"{__name__}.{name}").JUDGES for name in MODULES)
    return next((judges[kind] for judges in judges_of if kind in judges), ())


@functools.cache
def _declared() -> Mapping[str, Check]:
    return {check.id: check for check in registry().checks}


def lowered(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings, with failures turned into warnings.

    Used for values that are faults only under the usual intent, which the text does not show.
    """
    for finding in findings:
        yield replace(finding, status=Status.WARN) if finding.status is Status.FAIL else finding


def shortened(findings: Iterator[Finding], most: int, every: Container[Status] = ()) -> Iterator[Finding]:
    """Yield the first findings, and one per status that summarises all others.

    All findings whose status is in ``every`` are yielded.
    """
    first: dict[Status, Finding] = {}
    names: dict[Status, list[str]] = defaultdict(list)
    counts = Counter[Status]()
    for number, finding in enumerate(findings):
        if number < most or finding.status in every:
            yield finding
            continue
        first.setdefault(finding.status, finding)
        counts[finding.status] += 1
        if len(names[finding.status]) < MOST_NAMED:
            names[finding.status].append(finding.subject)
    for status, finding in first.items():
        more = "" if counts[status] <= MOST_NAMED else ", …"
        message = f"{counts[status]} more: {', '.join(names[status])}{more}; the first: {finding.message}"
        yield replace(finding, message=message, subject="")

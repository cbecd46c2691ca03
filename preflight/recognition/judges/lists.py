"""Helpers for judges of network outputs: uncertain faults, long lists."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from preflight._startup.lightclass import replace
from preflight.model import Finding, Status, unknown
from preflight.recognition.judges import Judge, PastedValue

#: Maximum number of findings per check and part; one more summarises the rest.
MOST_FINDINGS = 8
#: Names in a list.
MOST_NAMED = 20


def unsure(message: str, **details: object) -> Finding:
    """Report a port's fault as unknown, because the text does not show its use."""
    fix = (
        "Run `preflight check` on the node, which knows the job's ports, or check whether the port "
        "is spare or for storage."
    )
    return unknown(f"{message}; the text does not show whether a job uses it", **{"fix": fix, **details})


#: Smallest odd number of GPUs that suggests a lost one: boards and chassis have 1, 2, 4, 6, 8, 10 or 16.
_ODD = 5


def judge_number_of_gpus(number: int, evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report an odd number of GPUs, which no board has."""
    if number >= _ODD and number % 2:
        yield unknown(
            f"{number} GPUs are listed, an odd number: one may have fallen off the bus, or the job was assigned them",
            found=number,
            expected="the node's GPUs",
            evidence=evidence,
            fix="`lspci -d 10de: | grep -c -e 3D -e VGA`; `dmesg -T | grep -i xid`.",
        )


def limited(judge: Callable[[PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge that summarises all but its first findings."""

    @functools.wraps(judge)
    def shortened(part: PastedValue) -> Iterator[Finding]:
        first: dict[Status, Finding] = {}
        names: dict[Status, list[str]] = defaultdict(list)
        counts = Counter[Status]()
        for number, finding in enumerate(judge(part)):
            if number < MOST_FINDINGS or finding.status is Status.PASS:
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

    return shortened

"""The rules of kernel.events for a pasted log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.checks.host.kernel_events import of_problem, words_of
from preflight.checks.host.kernel_judgement import Xid, judged
from preflight.checks.host.kernel_problem import Window
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Check, Finding, check, passed
from preflight.parsers.host.kernel_events import KernelEvent
from preflight.parsers.host.kernel_log import seconds
from preflight.recognition.evidence_adapter import read_facts


@check(
    "kernel.events",
    title="The log shows no fault of memory, processors, PCIe, disks or links",
    source="the same rules as on a node: `preflight explain kernel.events`",
    fix="Drain the node before its hardware is touched; the lines are quoted.",
)
def kernel_events(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge errors of hardware, disks, links and memory in a kernel's log.

    The kernel reports first what a job dies of an hour later.

    How long ago a line was written is not known of a pasted log, so each counts. A link that stays down is unknown: a
    job may use it.
    """
    for key, facts in read_facts(node, "kernel log"):
        events = [_event(event) for event in facts["events"]]
        window = Window(since_boot=all(event.at_s is None or event.at_s < _WALL_S for event in events))
        judgement = judged(events, window, [xid for item in facts["xids"] if (xid := _xid(item))])
        for problem in judgement.problems:
            where = f" (line {problem.events[0].line})"
            yield of_problem(problem, window, "no such line", [key], where)
        if judgement.notes and not judgement.problems and node.evidence.record(key).ok:
            yield passed(f"no fault of the machine in these lines{words_of(judgement, 0)}", evidence=[key])


_WALL_S = 3e8


def _event(event: Mapping[str, Any]) -> KernelEvent:
    return KernelEvent(
        event["event"], event["severity"], event["device"] or "", event["seconds"], event["text"], event["line"],
        event["count"], event["bus"] or "", event["detail"] or "",
    )  # fmt: skip


def _xid(xid: Mapping[str, Any]) -> Xid | None:
    time = xid["time"] or ""
    stamp = f"[{time}]" if re.match(r"[0-9]+\.|[A-Z]\w\w [A-Z]\w\w ", time) else time
    at_s = seconds(stamp)
    return Xid(at_s, xid["bus_id"] or "", xid["xid"]) if at_s is not None else None


RULES: tuple[Check, ...] = (kernel_events,)

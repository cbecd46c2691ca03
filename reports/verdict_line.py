"""The verdict in one line, for text and HTML reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.reports.sanitize import FABRIC, RUN, SWITCHES, fold, one_line, short

#: The check that reports plug-ins that cannot be loaded.
LOADED = "site.plugins"

#: Message of gpu.count for a machine with nothing to judge, and the start of the message for a switch.
NOTHING, SWITCH = "no GPU, no RDMA NIC", "network switch"


@dataclass(frozen=True)
class VerdictLine:
    """The verdict word, the status that sets its colour, and the counts."""

    word: str  # FAIL, NOT JUDGED, NO BLOCKER or PASS
    status: str  # fail, unknown, warn or pass
    detail: str


def headline(report: Mapping[str, Any]) -> str:
    """Return the verdict line: ``FAIL: 3 of 6 nodes have problems; …``."""
    line = verdict(report)
    return f"{line.word}: {line.detail}"


def verdict(report: Mapping[str, Any]) -> VerdictLine:
    """Return the verdict for the report's exit status and counts.

    PASS is printed only if nothing failed, no result is unknown and every node answered; unanswered checklist items are
    counted. If the exit status is 0 only because no failed or unknown check is gating, the word is NO BLOCKER.
    """
    tally = _Tally.of(report)
    if report["exit_status"] == 1:
        clauses = [*tally.failures(), *_systemic(report), *tally.strange(), *tally.gaps(), *_unloaded(report)]
        return VerdictLine("FAIL", "fail", "; ".join(clauses))
    if report["exit_status"] != 0:
        return VerdictLine("NOT JUDGED", "unknown", "; ".join([*_unloaded(report), *tally.not_judged()]))
    if tally.failed or tally.unknown or tally.silent:
        return VerdictLine("NO BLOCKER", "warn", "; ".join(["no gating check failed", *tally.beside_the_gate()]))
    return VerdictLine("PASS", "pass", "; ".join(tally.passes()))


def _systemic(report: Mapping[str, Any]) -> list[str]:
    """Describe a failure on so many nodes that one cause is likely.

    Independent faults of many nodes, such as defects of their GPUs, are separate incidents.
    """
    joined = {
        report["findings"][number]["check"]
        for incident in report.get("incidents", ()) if len(incident["nodes"]) > 1 for number in incident["findings"]
    }  # fmt: skip
    found = [one for one in report.get("systemic", ()) if one["status"] == "fail" and one["check"] in joined]
    if not found:
        return []
    worst = found[0]
    more = f", and {_of(len(found) - 1, 'other check')} likewise" if len(found) > 1 else ""
    return [f"{one_line(worst['check'])} failed on {worst['nodes']} of {worst['of']}{more}: look for one cause"]


def _unloaded(report: Mapping[str, Any]) -> list[str]:
    """List the plug-ins that cannot be loaded; their checks did not run."""
    return [one_line(found["message"]) for found in report["findings"] if found["check"] == LOADED]


@dataclass(frozen=True)
class _Tally:
    names: tuple[str, ...]
    failing: int  # nodes
    vague: int  # nodes that answered, did not fail, and have a gating unknown result
    warned: int  # nodes
    good: int  # nodes with the status pass or warn
    silent: int  # nodes
    failed: int  # results
    node_failed: int  # results of nodes, without those of the logs
    unknown: int  # results
    run_failed: int  # findings in the logs
    run_warned: int
    run_unknown: int
    run_gap: str  # message of the first gating unknown result of the logs
    fabric_failed: int  # findings in sweeps of the fabric
    fabric_unknown: int
    swept: bool  # whether a sweep of the fabric or switches were judged
    switch_failed: int  # findings of Ethernet switches and their cables
    switch_unknown: int
    bare: tuple[str, ...]  # nodes with neither GPU nor RDMA NIC, without a declaration
    switches: tuple[tuple[str, str], ...]  # network switches among the nodes, each with its system
    unclassed: int  # nodes without a class in the cluster file
    at: tuple[str, ...]  # nodes with the causes of failures
    items: int  # of the checklists
    open_items: int  # checklist items with the status unknown

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> _Tally:
        nodes = report["nodes"]
        answered = [node["status"] for node in nodes if not node.get("no_answer")]
        logs, sweeps, ethernet = (_statuses(report, place) for place in (RUN, FABRIC, SWITCHES))
        coverage = report["coverage"]
        bare, switches = _strangers(report)
        mute = sum(name in switches for name in (node["name"] for node in nodes if node.get("no_answer")))
        return cls(
            names=tuple(node["name"] for node in nodes),
            failing=answered.count("fail"),
            vague=len(_vague(report) - set(bare) - set(switches)),
            warned=answered.count("warn"),
            good=answered.count("pass") + answered.count("warn"),
            silent=coverage["nodes"]["no_answer"] - mute,
            failed=coverage["failed"],
            node_failed=sum(list(node["checks"].values()).count("fail") for node in nodes),
            unknown=coverage["unknown"],
            run_failed=logs.count("fail"),
            run_warned=logs.count("warn"),
            run_unknown=logs.count("unknown"),
            run_gap=_gap(report),
            fabric_failed=sweeps.count("fail"),
            fabric_unknown=sweeps.count("unknown"),
            swept=bool(sweeps or ethernet),
            switch_failed=ethernet.count("fail"),
            switch_unknown=ethernet.count("unknown"),
            bare=tuple(bare),
            switches=tuple(switches.items()),
            unclassed=len(coverage.get("without_class", ())),
            at=_at(report),
            items=len(report["checklists"]),
            open_items=sum(item["status"] == "unknown" for item in report["checklists"]),
        )

    def failures(self) -> list[str]:
        clauses = []
        if self.failing and len(self.names) == 1:
            clauses.append(f"{_of(self.node_failed, 'check')} failed on {one_line(self.names[0])}")
        elif self.failing:
            clauses.append(f"{self._share(self.failing)} {'has' if self.failing == 1 else 'have'} problems")
        if self.run_failed:
            clauses.append(f"the run's logs show {_of(self.run_failed, 'problem')}")
        if self.fabric_failed:
            clauses.append(f"the fabric has {_of(self.fabric_failed, 'problem')}")
        if self.switch_failed:
            clauses.append(f"the switches have {_of(self.switch_failed, 'problem')}")
        if not clauses and self.at:
            clauses.append(f"a failure in the run's logs has its cause on {short(fold(self.at), 40)}")
        return clauses or [f"{_of(self.failed, 'check')} failed"]

    def gaps(self) -> list[str]:
        clauses = []
        if self.vague:
            clauses.append(f"unknown for {_of(self.vague, 'node')}")
        return clauses + self._silence()

    def strange(self) -> list[str]:
        """Describe the nodes without anything to judge."""
        clauses = []
        if self.bare:
            who = self._share(len(self.bare)) if len(self.names) > 1 else one_line(self.names[0])
            verb = "has" if len(self.bare) == 1 else "have"
            are = "is" if len(self.bare) == 1 else "are"
            clauses.append(f"{who} {verb} neither a GPU nor an RDMA NIC, and {are} not declared to have none")
        if len(self.switches) > _NAMED:
            named = f"{_of(len(self.switches), 'node')} ({short(fold([name for name, _ in self.switches]), 60)})"
            clauses.append(f"{named} are network switches")
        else:
            clauses += [f"{one_line(name)} is a {one_line(system)}" for name, system in self.switches]
        return clauses

    def not_judged(self) -> list[str]:
        clauses = self.strange()
        if self.failing:
            verb = "has" if self.failing == 1 else "have"
            clauses.append(f"{self._share(self.failing)} {verb} non-gating failures")
        if self.vague:
            clauses.append(f"unknown for {self._share(self.vague)}")
        if self.run_unknown:
            if self.good == len(self.names) > 0:
                clauses.append(
                    f"{one_line(self.names[0])} passed" if self.good == 1 else f"all {self.good} nodes passed"
                )
            clauses.append(self.run_gap or "results of the run's logs are unknown")
        if self.fabric_unknown:
            clauses.append("parts of the fabric are unknown")
        if self.switch_unknown:
            clauses.append("results of the switches are unknown")
        clauses += self._silence()
        if not clauses and self.unknown:
            clauses.append(f"{_of(self.unknown, 'result')} unknown")
        if not clauses:
            clauses.append("no check could be applied" if self.names else "nothing was judged")
        return clauses

    def beside_the_gate(self) -> list[str]:
        clauses = []
        if self.failed:
            clauses.append(f"{_of(self.failed, 'non-gating result')} failed")
        if self.unknown:
            clauses.append(f"{_of(self.unknown, 'non-gating result')} unknown")
        if self.run_warned:
            clauses.append(f"the run's logs show {_of(self.run_warned, 'warning')}")
        return clauses + self._silence()

    def passes(self) -> list[str]:
        if not self.names and not self.swept:
            clauses = ["the run's logs passed"]
        elif self.swept and not self.good:
            clauses = ["the fabric passed every check that applies"]
        elif len(self.names) == 1:
            clauses = [f"{one_line(self.names[0])} passed every check that applies"]
        elif self.good == len(self.names):
            clauses = [f"all {self.good} nodes passed every check that applies"]
        else:
            clauses = [f"{self._share(self.good)} passed; no check applies to the rest"]
        if self.warned:
            clauses.append("with warnings" if len(self.names) == 1 else f"{_of(self.warned, 'node')} with warnings")
        if self.run_warned:
            clauses.append(f"the run's logs show {_of(self.run_warned, 'warning')}")
        if self.unclassed:
            clauses.append(f"{_of(self.unclassed, 'node')} in no class of the cluster file")
        if self.open_items:
            clauses.append(f"{self.open_items} of {_of(self.items, 'checklist item')} unknown")
        return clauses

    def _silence(self) -> list[str]:
        if not self.silent:
            return []
        if self.silent == len(self.names):
            return ["no node answered" if self.silent > 1 else f"{one_line(self.names[0])} gave no answer"]
        return [f"{_of(self.silent, 'node')} gave no answer"]

    def _share(self, count: int) -> str:
        return f"{count} of {_of(len(self.names), 'node')}"


def _statuses(report: Mapping[str, Any], place: str) -> list[str]:
    """Return the statuses of the findings in logs, sweeps or switches.

    Failures that are one incident count once, and not at all if their cause is elsewhere.
    """
    findings = report["findings"]
    here = {
        number
        for number, finding in enumerate(findings)
        if any(name.split(" ")[0] == place for name in finding["nodes"])
    }
    if "incidents" not in report:
        return [findings[number]["status"] for number in here]
    causes = [
        "fail" for incident in report["incidents"] if incident["status"] == "fail" and incident["findings"][0] in here
    ]
    return causes + [findings[number]["status"] for number in here if findings[number]["status"] != "fail"]


def _gap(report: Mapping[str, Any]) -> str:
    """Return what the logs lack: the message of the first gating unknown result."""
    return next(
        (
            short(finding["message"], _GAP)
            for finding in report["findings"]
            if finding["status"] == "unknown" and finding.get("gating", True) and finding["nodes"] == [RUN]
        ),
        "",
    )


def _at(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes with the causes of failures that only the logs show."""
    names: dict[str, None] = {}
    for incident in report.get("incidents", ()):
        findings = [report["findings"][number] for number in incident["findings"]]
        if all(finding["nodes"] == [RUN] for finding in findings if finding["status"] == "fail"):
            names |= dict.fromkeys(incident["nodes"] if incident["status"] == "fail" else ())
    return tuple(name for name in names if not name.startswith("@"))


#: Maximum number of switches that are named, and maximum length of a message.
_NAMED, _GAP = 3, 120
_OF_SWITCH = re.compile(rf"(?:^|\b)({SWITCH} \([^()]{{1,80}}\))")


def bare_nodes(report: Mapping[str, Any]) -> list[str]:
    """Return nodes with neither GPU nor RDMA NIC, unless that is declared."""
    return _strangers(report)[0]


def _strangers(report: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return nodes with neither GPU nor NIC, and switches with their systems."""
    bare: list[str] = []
    switches: dict[str, str] = {}
    for finding in report["findings"]:
        if finding["check"] == "gpu.count" and finding["status"] == "unknown" and finding["found"]:
            if finding["found"] == NOTHING:
                bare += finding["nodes"]
            elif match := _OF_SWITCH.match(finding["found"]):
                switches |= dict.fromkeys(finding["nodes"], match[1])
    for node in report["nodes"]:
        silence = node.get("no_answer") or {}
        if match := _OF_SWITCH.search(silence.get("reason", "")):
            switches[node["name"]] = match[1]
    return bare, switches


def _vague(report: Mapping[str, Any]) -> set[str]:
    """Return the nodes whose status is unknown because of a gating result.

    Results without a finding count as gating.
    """
    gating: dict[str, set[str]] = {}
    idle: dict[str, set[str]] = {}
    for finding in report["findings"]:
        if finding["status"] == "unknown":
            side = gating if finding.get("gating", True) else idle
            side.setdefault(finding["check"], set()).update(finding["nodes"])
    none: set[str] = set()
    return {
        node["name"]
        for node in report["nodes"]
        if node["status"] == "unknown" and not node.get("no_answer")
        for check, status in node["checks"].items()
        if status == "unknown"
        and (node["name"] not in idle.get(check, none) or node["name"] in gating.get(check, none))
    }


def _of(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"

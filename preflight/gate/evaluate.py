"""Evaluation of evidence for a hook: checks, relevant findings, reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from os.path import basename
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.checks._registry.plugins import LOADED
from preflight.evidence.document import Evidence, EvidenceError
from preflight.expectations import Cluster, Site
from preflight.expectations.gate_table import Gate, GateHook, matches, selected
from preflight.facts.node import NodeFacts
from preflight.gate.announce import plain_line
from preflight.gate.configuration import UnknownCheck
from preflight.gate.ownership import owner_of
from preflight.gate.verdict import PREFIX, ascii_reason
from preflight.judge import judge
from preflight.judge.actions import strongest
from preflight.model import Check

#: While a job may run, processes on the GPUs are normal; in a prolog they are leftovers.
BUSY = ("gpu.left-over-processes", "gpu.process-per-gpu", "gpu.memory-headroom", "gpu.utilisation-visible")
_ANY_TIME = ("slurm-healthcheck",)

#: Used instead of a check's id if no check is to blame.
EXPECTATIONS, NO_ANSWER, NOTHING = "gate.expectations", "gate.no-answer", "gate.nothing-judged"

#: Maximum length of a reason; the drain adds the owner.
_REASON_MOST = 185
_FOUND_MOST = 60

#: Maximum number of named checks that are unknown for one reason.
_FEW = 4

_URGENT = {"node": 0, "site": 1, "job": 2}


@dataclass(frozen=True)
class CheckSelection:
    """The checks that a hook runs; ids of the disabled ones and of those in shadow."""

    checks: tuple[Check, ...]
    off: tuple[str, ...]
    shadow: tuple[str, ...]


@dataclass(frozen=True)
class NodeEvaluation:
    """Result of judging a node: the report, and its part relevant to the hook.

    ``lines`` describe the findings, the most urgent first. ``all_gpus`` is False if GPUs were left out because they
    belong to other jobs.
    """

    report: Mapping[str, Any]
    status: str
    cause: str
    reason: str
    owner: str
    action: str
    causes: tuple[str, ...]
    unknowns: tuple[str, ...]
    off: tuple[str, ...]
    lines: tuple[str, ...]
    all_gpus: bool


def select(checks: Sequence[Check], gate: Gate, settings: GateHook, name: str) -> CheckSelection:
    """Select the checks of a hook; raises UnknownCheck if none is left.

    A pattern of ``only`` that matches no known check may name a check of a plug-in that cannot be loaded, so the check
    of plug-ins is added.
    """
    only, skip = settings.only, (*(settings.skip or ()), *(BUSY if name in _ANY_TIME and settings.only is None else ()))
    if only is not None and any(not any(fnmatchcase(check.id, glob) for check in checks) for glob in only):
        only = (*only, LOADED)
    chosen = [check for check in checks if selected(check.id, only, skip)]
    if not chosen:
        raise UnknownCheck("[gate] only and skip together leave no check")
    shadow = tuple(check.id for check in chosen if check.gating and matches(check.id, gate.shadow or ()))
    ids = {check.id for check in chosen}
    return CheckSelection(
        tuple(replace(check, gating=False) if check.id in shadow else check for check in chosen),
        tuple(check.id for check in checks if check.id not in ids),
        shadow,
    )


def evaluate_node(
    evidence: Evidence,
    cluster: Cluster,
    selection: CheckSelection,
    *,
    hook: str,
    expects: bool,
    gpus: frozenset[int] | None,
) -> NodeEvaluation:
    """Judge one node for a hook.

    With ``expects``, the node cannot pass unless the cluster file or the recognised part sets the numbers of GPUs and
    HCAs. ``gpus`` are the indices of the job's GPUs; None means all GPUs of the node.
    """
    report = judge([evidence], selection.checks, cluster, off=selection.off)
    facts = NodeFacts(evidence)
    theirs = _others(facts, gpus) if evidence.no_answer is None else _Others()
    configured = {name: getattr(cluster.gate, name) or () for name in ("node", "job", "site")} if cluster.gate else {}
    gating = [finding for finding in report["findings"] if finding["gating"]]
    mine = [finding for finding in gating if not theirs.own(finding)]
    aside = any(theirs.own(finding) and finding["status"] in ("fail", "unknown") for finding in gating)
    failed = [finding for finding in mine if finding["status"] == "fail"]
    owners = {finding["check"]: owner_of(finding["check"], hook, configured) for finding in failed}
    failed.sort(key=lambda finding: _URGENT[owners[finding["check"]]])
    vague = [f for f in mine if f["status"] == "unknown"]
    missing = list(_missing(report, vague, bool(failed), evidence, aside))
    outside = _in_no_class(report, cluster)
    if expects and evidence.no_answer is None and (lacking := _unexpected(cluster.site(facts))):
        keys = f"{', '.join(lacking)} of the cluster file"
        missing.append((EXPECTATIONS, outside or f"the expected number is not declared: {keys}"))
    causes = tuple(dict.fromkeys(f["check"] for f in failed))
    unknowns = tuple(dict.fromkeys([*(check for check, _ in missing), *(f["check"] for f in vague)]))
    lines = [_line("FAIL", f, owners) for f in failed] + [f"  UNKNOWN {check}: {why}" for check, why in missing]
    noted = [f"  WARN {EXPECTATIONS}: {outside}"] if outside and EXPECTATIONS not in unknowns else []
    lines_shown = tuple(map(plain_line, (*lines, *_folded(vague), *noted)))
    off, all_gpus = _by_choice(report, selection), not theirs.restricted
    if failed:
        first = failed[0]
        check, text = first["check"], reason(first)
        action = strongest(finding["action"] for finding in failed)
        return NodeEvaluation(
            report, "fail", check, text, owners[check], action, causes, unknowns, off, lines_shown, all_gpus
        )
    if unknowns:
        why = [f"{check}: {why}" for check, why in missing] + [f"{f['check']}: {f['message']}" for f in vague]
        more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
        text = ascii_reason(PREFIX + why[0], _REASON_MOST - len(more)) + more
        return NodeEvaluation(report, "unknown", "", text, "node", "monitor", (), unknowns, off, lines_shown, all_gpus)
    return NodeEvaluation(report, "pass", "", "", "node", "none", (), (), off, lines_shown, all_gpus)


def _by_choice(report: Mapping[str, Any], selection: CheckSelection) -> tuple[str, ...]:
    """Return the checks that the cluster file disables, shadows or waives."""
    coverage, usual = report["coverage"], {check.id for check in selection.checks if check.gating}
    quiet = [finding["check"] for finding in report["findings"] if not finding["gating"] and finding["check"] in usual]
    in_class = [check for checks in coverage.get("off_in_class", {}).values() for check in checks]
    return tuple(dict.fromkeys([*coverage["off"], *in_class, *selection.shadow, *quiet]))


def reason(finding: Mapping[str, Any]) -> str:
    """Return the reason for a failure, with the most important words first.

    Its form is ``preflight: CHECK: SUBJECT: found X, expected Y (meaning)``.
    """
    subject = f"{finding['subject']}: " if finding["subject"] else ""
    if finding["found"] is None:
        return ascii_reason(f"{PREFIX}{finding['check']}: {finding['message']}", _REASON_MOST)
    comparison = f"found {_cut(finding['found'])}"
    if finding["expected"] is not None:
        comparison += f", expected {_cut(finding['expected'])}"
    message = f" ({finding['message']})" if "found " not in finding["message"] else ""
    return ascii_reason(f"{PREFIX}{finding['check']}: {subject}{comparison}{message}", _REASON_MOST)


def _cut(text: str) -> str:
    return ascii_reason(text, _FOUND_MOST)


def _folded(vague: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each reason for *unknown*, with the checks that share it."""
    by_message: dict[str, list[Mapping[str, Any]]] = {}
    for finding in vague:
        by_message.setdefault(finding["message"], []).append(finding)
    for message, same in by_message.items():
        checks = list(dict.fromkeys(finding["check"] for finding in same))
        more = f" and {len(checks) - _FEW} more" if len(checks) > _FEW else ""
        yield f"  UNKNOWN {', '.join(checks[:_FEW])}{more}: {message} - next: {same[0]['fix']}"


def _line(word: str, finding: Mapping[str, Any], owners: Mapping[str, str]) -> str:
    tag = f" [{owners[finding['check']]}] action: {finding['action']}" if word == "FAIL" else ""
    step = f" - next: {finding['fix']}" if finding["fix"] else ""
    subject = f"{finding['subject']}: " if finding["subject"] else ""
    return f"  {word} {finding['check']}: {subject}{finding['message']}{tag}{step}"


def _missing(
    report: Mapping[str, Any], vague: Sequence[Mapping[str, Any]], failed: bool, evidence: Evidence, aside: bool
) -> Iterator[tuple[str, str]]:
    """Yield why the node could not be judged, as (identifier, reason).

    Covers a node without an answer, a run without results, and an unknown result that no gating check reports.
    """
    if evidence.no_answer is not None:
        yield NO_ANSWER, f"{evidence.no_answer.get('phase', '?')}: {evidence.no_answer.get('reason', '?')}"
    elif not any(finding["status"] in ("pass", "warn", "fail") for finding in report["findings"]):
        yield NOTHING, "no check reached a result"
    elif report["exit_status"] == 3 and not vague and not aside and not failed:
        crashed = [f for f in report["findings"] if f["status"] == "unknown"]
        yield NOTHING, f"{crashed[0]['check']}: {crashed[0]['message']}" if crashed else "the result is unknown"


def _in_no_class(report: Mapping[str, Any], cluster: Cluster) -> str:
    """Return the message for a node that no class covers, else ""."""
    if not (outside := report["coverage"].get("without_class")):
        return ""
    return (
        f"{outside[0]} is in no class of {basename(cluster.path)}, so the expected number of GPUs and "
        "HCAs is unknown: add it to the nodes of a class"
    )


def _unexpected(site: Site) -> list[str]:
    """Return the missing keys of the cluster file.

    Without these keys it is unknown whether GPUs or HCAs are missing.
    """
    lacking = [site.gpus.key] if site.gpus.value is None else []
    return lacking + ([site.hcas.key] if site.hcas.value is None and site.members.ports.compute is None else [])


@dataclass(frozen=True)
class _Others:
    """GPUs of the node that belong to other jobs; their faults do not block this job."""

    addresses: frozenset[str] = frozenset()
    confined: bool = False  # a cgroup hides them from the driver

    @property
    def restricted(self) -> bool:
        """Whether the job has only some of the node's GPUs."""
        return self.confined or bool(self.addresses)

    def own(self, finding: Mapping[str, Any]) -> bool:
        """Return whether a finding is about another job's GPU."""
        return finding["subject"] in self.addresses or (self.confined and finding["check"] == "gpu.driver")


def _others(facts: NodeFacts, gpus: frozenset[int] | None) -> _Others:
    """Return the GPUs that belong to other jobs.

    If a cgroup hides them, the driver does not report them either.
    """
    if gpus is None:
        return _Others()
    try:
        driver_gpus, bus = facts.gpu_health.gpus, facts.gpus_on_bus
    except EvidenceError:
        return _Others()
    if len(gpus) >= len(bus):
        return _Others()
    if len(driver_gpus) == len(gpus):
        return _Others(frozenset(d.address for d in bus) - {gpu.address for gpu in driver_gpus}, confined=True)
    return _Others(frozenset(gpu.address for gpu in driver_gpus if gpu.index not in gpus))

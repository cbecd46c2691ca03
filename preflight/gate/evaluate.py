"""From evidence to a verdict: which checks a seat runs, what of their findings counts for the job, the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.checks._registry.plugins import LOADED
from preflight.evidence.document import Evidence, EvidenceError
from preflight.expectations import Cluster, Site
from preflight.expectations.gate_table import Gate, GateSeat, matches, selected
from preflight.facts.node import NodeFacts
from preflight.gate.announce import plain_line
from preflight.gate.configuration import UnknownCheck
from preflight.gate.ownership import whose
from preflight.gate.verdict import PREFIX, ascii_reason
from preflight.judge import judge
from preflight.model import Check

#: While a job may run, what runs on the GPUs is no fault; in a prolog it is left over.
BUSY = ("gpu.left-over-processes", "gpu.process-per-gpu", "gpu.memory-headroom", "gpu.utilisation-visible")
_ANY_TIME = ("slurm-healthcheck",)

#: What stands for a check where none of them is to blame.
EXPECTATIONS, NO_ANSWER, NOTHING = "gate.expectations", "gate.no-answer", "gate.nothing-judged"

#: Characters of a reason; who drains adds whose problem it is.
_REASON_MOST = 185
_FOUND_MOST = 60

#: Checks that are named where many could not tell for one reason.
_FEW = 4

_URGENT = {"node": 0, "site": 1, "job": 2}


@dataclass(frozen=True)
class Selection:
    """The checks that a seat runs, those that were switched off, and those that hold no job back; by choice."""

    checks: tuple[Check, ...]
    off: tuple[str, ...]
    shadow: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """What was found on a node: the report, and what of it counts; ``lines`` tell it, the most urgent first.

    ``whole``: no GPU was left aside as another job's.
    """

    report: Mapping[str, Any]
    status: str
    cause: str
    reason: str
    whose: str
    causes: tuple[str, ...]
    unknowns: tuple[str, ...]
    off: tuple[str, ...]
    lines: tuple[str, ...]
    whole: bool


def select(checks: Sequence[Check], gate: Gate, seat: GateSeat, name: str) -> Selection:
    """Choose the checks of a hook; raises UnknownCheck where none is left.

    A pattern of ``only`` that matches no known check may be of a plug-in that cannot be loaded, which then is reported.
    """
    only, skip = seat.only, (*(seat.skip or ()), *(BUSY if name in _ANY_TIME and seat.only is None else ()))
    if only is not None and any(not any(fnmatchcase(check.id, glob) for check in checks) for glob in only):
        only = (*only, LOADED)
    kept = [check for check in checks if selected(check.id, only, skip)]
    if not kept:
        raise UnknownCheck("[gate] only and skip together leave no check")
    shadow = tuple(check.id for check in kept if check.gating and matches(check.id, gate.shadow or ()))
    ids = {check.id for check in kept}
    return Selection(
        tuple(replace(check, gating=False) if check.id in shadow else check for check in kept),
        tuple(check.id for check in checks if check.id not in ids),
        shadow,
    )


def judged(
    evidence: Evidence, cluster: Cluster, selection: Selection, *, seat: str, expects: bool, gpus: frozenset[int] | None
) -> Judged:
    """Judge one node for a seat.

    ``expects``: it cannot pass unless the cluster file or the part says how many GPUs and HCAs there should be.
    ``gpus`` are the indices of the GPUs that the job has; None: all of the node.
    """
    report = judge([evidence], selection.checks, cluster, off=selection.off)
    facts = NodeFacts(evidence)
    theirs = _others(facts, gpus) if evidence.no_answer is None else _Others()
    said = {name: getattr(cluster.gate, name) or () for name in ("node", "job", "site")} if cluster.gate else {}
    gating = [finding for finding in report["findings"] if finding["gating"]]
    mine = [finding for finding in gating if not theirs.own(finding)]
    aside = any(theirs.own(finding) and finding["status"] in ("fail", "unknown") for finding in gating)
    failed = [finding for finding in mine if finding["status"] == "fail"]
    owner = {finding["check"]: whose(finding["check"], seat, said) for finding in failed}
    failed.sort(key=lambda finding: _URGENT[owner[finding["check"]]])
    vague = [f for f in mine if f["status"] == "unknown"]
    missing = list(_missing(report, vague, bool(failed), evidence, aside))
    if expects and evidence.no_answer is None and (lacking := _unexpected(cluster.site(facts))):
        missing.append((EXPECTATIONS, f"nothing says how many to expect: {', '.join(lacking)} of the cluster file"))
    causes = tuple(dict.fromkeys(f["check"] for f in failed))
    unknowns = tuple(dict.fromkeys([*(check for check, _ in missing), *(f["check"] for f in vague)]))
    lines = [_line("FAIL", f, owner) for f in failed] + [f"  UNKNOWN {check}: {why}" for check, why in missing]
    told = tuple(map(plain_line, (*lines, *_folded(vague))))
    off, whole = _by_choice(report, selection), not theirs.restricted
    if failed:
        first = failed[0]
        check, text = first["check"], reason(first)
        return Judged(report, "fail", check, text, owner[check], causes, unknowns, off, told, whole)
    if unknowns:
        why = [f"{check}: {why}" for check, why in missing] + [f"{f['check']}: {f['message']}" for f in vague]
        more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
        text = ascii_reason(PREFIX + why[0], _REASON_MOST - len(more)) + more
        return Judged(report, "unknown", "", text, "node", (), unknowns, off, told, whole)
    return Judged(report, "pass", "", "", "node", (), (), off, (), whole)


def _by_choice(report: Mapping[str, Any], selection: Selection) -> tuple[str, ...]:
    """Return the checks that the cluster file switched off, lets only report, or waives, wherever it says so."""
    coverage, usual = report["coverage"], {check.id for check in selection.checks if check.gating}
    quiet = [finding["check"] for finding in report["findings"] if not finding["gating"] and finding["check"] in usual]
    in_class = [check for checks in coverage.get("off_in_class", {}).values() for check in checks]
    return tuple(dict.fromkeys([*coverage["off"], *in_class, *selection.shadow, *quiet]))


def reason(finding: Mapping[str, Any]) -> str:
    """Return ``preflight: CHECK: SUBJECT: found X, expected Y (what it means)``, the most important words first."""
    subject = f"{finding['subject']}: " if finding["subject"] else ""
    if finding["found"] is None:
        return ascii_reason(f"{PREFIX}{finding['check']}: {finding['message']}", _REASON_MOST)
    said = f"found {_cut(finding['found'])}"
    if finding["expected"] is not None:
        said += f", expected {_cut(finding['expected'])}"
    message = f" ({finding['message']})" if "found " not in finding["message"] else ""
    return ascii_reason(f"{PREFIX}{finding['check']}: {subject}{said}{message}", _REASON_MOST)


def _cut(text: str) -> str:
    return ascii_reason(text, _FOUND_MOST)


def _folded(vague: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each thing that could not be told, with the checks that wait for it."""
    by_message: dict[str, list[Mapping[str, Any]]] = {}
    for finding in vague:
        by_message.setdefault(finding["message"], []).append(finding)
    for message, same in by_message.items():
        checks = list(dict.fromkeys(finding["check"] for finding in same))
        more = f" and {len(checks) - _FEW} more" if len(checks) > _FEW else ""
        yield f"  UNKNOWN {', '.join(checks[:_FEW])}{more}: {message} - next: {same[0]['fix']}"


def _line(word: str, finding: Mapping[str, Any], owner: Mapping[str, str]) -> str:
    tag = f" [{owner[finding['check']]}]" if word == "FAIL" else ""
    step = f" - next: {finding['fix']}" if finding["fix"] else ""
    subject = f"{finding['subject']}: " if finding["subject"] else ""
    return f"  {word} {finding['check']}: {subject}{finding['message']}{tag}{step}"


def _missing(
    report: Mapping[str, Any], vague: Sequence[Mapping[str, Any]], failed: bool, evidence: Evidence, aside: bool
) -> Iterator[tuple[str, str]]:
    """Yield what kept the node from being judged, where no gating check says so: an identifier, and why."""
    if evidence.no_answer is not None:
        yield NO_ANSWER, f"{evidence.no_answer.get('phase', '?')}: {evidence.no_answer.get('reason', '?')}"
    elif not any(finding["status"] in ("pass", "warn", "fail") for finding in report["findings"]):
        yield NOTHING, "no check could say anything"
    elif report["exit_status"] == 3 and not vague and not aside and not failed:
        crashed = [f for f in report["findings"] if f["status"] == "unknown"]
        yield NOTHING, f"{crashed[0]['check']}: {crashed[0]['message']}" if crashed else "the report could not tell"


def _unexpected(site: Site) -> list[str]:
    """Return the keys of the cluster file without which nobody knows whether GPUs or HCAs are missing."""
    lacking = [site.gpus.key] if site.gpus.value is None else []
    return lacking + ([site.hcas.key] if site.hcas.value is None and site.members.ports.compute is None else [])


@dataclass(frozen=True)
class _Others:
    """GPUs of the node that are not the job's: what is wrong with them does not hold it back."""

    addresses: frozenset[str] = frozenset()
    confined: bool = False  # a cgroup hides them from the driver

    @property
    def restricted(self) -> bool:
        """Whether the job has only some of the node's GPUs."""
        return self.confined or bool(self.addresses)

    def own(self, finding: Mapping[str, Any]) -> bool:
        """Tell whether a finding is about a GPU of others."""
        return finding["subject"] in self.addresses or (self.confined and finding["check"] == "gpu.driver")


def _others(facts: NodeFacts, gpus: frozenset[int] | None) -> _Others:
    """Tell the job's GPUs from the others; where a cgroup hides those, the driver cannot answer for them either."""
    if gpus is None:
        return _Others()
    try:
        seen, bus = facts.gpu_health.gpus, facts.gpus_on_bus
    except EvidenceError:
        return _Others()
    if len(gpus) >= len(bus):
        return _Others()
    if len(seen) == len(gpus):
        return _Others(frozenset(d.address for d in bus) - {gpu.address for gpu in seen}, confined=True)
    return _Others(frozenset(gpu.address for gpu in seen if gpu.index not in gpus))

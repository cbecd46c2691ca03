"""Facts in, findings out: run the checks over evidence and make the report document.

Pure: the same evidence, cluster file, checks and version give the same document (all but ``run``,
which the caller adds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from preflight import checklist
from preflight.cluster import Cluster, Site
from preflight.evidence import Evidence, EvidenceError
from preflight.facts import NodeFacts, RunFacts
from preflight.facts.picture import picture
from preflight.facts.run import RUN
from preflight.lean import dataclass
from preflight.model import Check, Finding, Scope, Status, unknown, worst

if TYPE_CHECKING:
    from preflight.facts.fabric import FabricFacts

SCHEMA = "preflight.report/1"

#: Order in which findings are told, most urgent first.
DISPLAY = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.SKIP, Status.PASS)

_EXCERPT_LINES, _EXCERPT_CHARS = 14, 1200


@dataclass
class Outcome:
    """What one check said of one subject: a node, or the run."""

    check: Check
    node: str
    findings: tuple[Finding, ...]
    crashed: bool = False

    @property
    def status(self) -> Status:
        """The roll-up of its findings."""
        return worst(finding.status for finding in self.findings)


@dataclass
class Verdict:
    """All outcomes of a run, before they become a document."""

    planned: tuple[str, ...]
    outcomes: list[Outcome] = field(default_factory=list)
    silent: dict[str, Mapping[str, str]] = field(default_factory=dict)  # node -> phase, reason


def judge(
    evidences: Sequence[Evidence],
    checks: Sequence[Check],
    cluster: Cluster | None = None,
    *,
    run: Evidence | None = None,
    off: Sequence[str] = (),
) -> dict[str, Any]:
    """Judge nodes (and the logs of a run) and return the report document without its ``run`` block.

    ``off`` are the ids of checks that were switched off by choice; they are named in the coverage.
    """
    cluster = cluster or Cluster()
    nodes = [NodeFacts(evidence) for evidence in evidences if evidence.no_answer is None]
    sites = {node.node: cluster.site(node) for node in nodes}
    verdict = Verdict(tuple(evidence.node for evidence in evidences))
    verdict.silent = {e.node: e.no_answer for e in evidences if e.no_answer is not None}
    swept_as = _sweeps(nodes, sites) if any(check.sweep for check in checks) else []
    windowed = any(node.evidence.windowed for node in nodes)
    for check in checks:
        if check.window and not windowed:
            continue
        if check.scope is Scope.NODE:
            verdict.outcomes += [_run(check, node.node, node.evidence, node, sites[node.node]) for node in nodes]
        elif check.sweep:
            verdict.outcomes += [_run(check, name, swept.evidence, swept, cluster.fabric) for name, swept in swept_as]
        elif check.scope is Scope.FLEET:
            verdict.outcomes += _fleet(check, verdict.planned, nodes, sites)
        elif run is not None:
            verdict.outcomes.append(_run(check, RUN, run, RunFacts(run, nodes), cluster.run_site(sites.values())))
    kept = {evidence.node: evidence for evidence in evidences} | ({RUN: run} if run else {})
    kept |= {name: swept.evidence for name, swept in swept_as}
    document = _document(verdict, checks, kept, sites, {n.node: n for n in nodes}, run is not None, off, len(swept_as),
                         windowed)  # fmt: skip
    if drawn := [picture for name, swept in swept_as if (picture := _fabric_picture(name, swept, cluster))]:
        document["fabrics"] = drawn
    return document


def _sweeps(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> list[tuple[str, FabricFacts]]:
    """Return the sweeps of the fabric in the evidence, each with the name that its findings are kept under."""
    keys = ("cmd:ibnetdiscover",)
    if not any(key.startswith(keys) for node in nodes for key in node.evidence.records):
        return []
    from preflight.facts.fabric import FABRIC, sweeps

    found = list(sweeps(nodes, lambda node: sites[node.node].roles(node).compute))
    if len(found) == 1:
        return [(FABRIC, found[0])]
    return [(f"{FABRIC} {swept.net_key[4:]} on {swept.sweeper.node}", swept) for swept in found]


def _fabric_picture(name: str, swept: FabricFacts, cluster: Cluster) -> dict[str, Any] | None:
    from preflight.facts.fabric_picture import picture

    try:
        return picture(name, swept, cluster.fabric.reference)
    except EvidenceError:
        return None


def _run(check: Check, name: str, evidence: Evidence, facts: object, site: object) -> Outcome:
    """Run one check; a record that cannot answer, a crash and silence all become *unknown*."""
    findings: list[Finding] = []
    crashed = False
    try:
        for finding in check.run(facts, site):
            findings.append(finding)
    except EvidenceError as error:
        findings.append(_could_not_tell(error, evidence))
    except Exception as error:
        crashed = True
        import logging

        logging.getLogger(__name__).exception("check %s crashed on %s", check.id, name)
        findings.append(
            unknown(
                f"the check itself crashed: {type(error).__name__}: {error}",
                fix="this is a fault of preflight, not of the node: report it with the traceback in the log",
            )
        )
    if not findings:
        findings.append(unknown("the check said nothing", fix="this is a fault of the check: report it"))
    return Outcome(check, name, tuple(findings), crashed)


def _could_not_tell(error: EvidenceError, evidence: Evidence) -> Finding:
    return unknown(f"could not tell: {error}", evidence=[error.key], fix=_supply(error.key, evidence))


def _supply(key: str, evidence: Evidence) -> str:
    """Say in one sentence how to get a record that is missing."""
    kind, _, target = key.partition(":")
    try:
        status = evidence.record(key).status
    except EvidenceError:
        return f"collect again with this version of preflight, which asks for {target}"
    if status == "missing" and kind == "cmd":
        tool = target.split()[0]
        return f"install `{tool}`{_PACKAGES.get(tool, '')} on the node"
    if status == "missing" and kind in ("psutil", "nvml"):
        return f"install the Python package {'psutil' if kind == 'psutil' else 'nvidia-ml-py'} on the node"
    if status == "denied":
        return "run with --sudo, or as root"
    if status in ("timeout", "abandoned"):
        return f"find out on the node why it hangs: {target}"
    if status == "not-run":
        return "give the run more time: --deadline"
    return f"look at it on the node: {target}"


_PACKAGES = {
    **dict.fromkeys(
        ("ibstat", "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery"), " (package infiniband-diags)"
    ),
    "ibv_devinfo": " (package ibverbs-utils, or rdma-core)",
    "dcb": " (package iproute2)",
    "mlnx_qos": " (package mlnx-tools)",
    "nvidia-smi": " (it comes with the NVIDIA driver)",
    "lspci": " (package pciutils)",
    "chronyc": " (package chrony)",
    "ethtool": " (package ethtool)",
    "ip": " (package iproute2)",
    "find": " (package findutils)",
}


def _fleet(
    check: Check, planned: Sequence[str], nodes: Sequence[NodeFacts], sites: Mapping[str, Site]
) -> Iterator[Outcome]:
    """Run a fleet check and share its findings out to the nodes that they speak of."""
    answered = [node for node in nodes if node.evidence.answered]
    if len(answered) < 2:
        alone = len(planned) == 1 and len(answered) == 1
        message = f"fewer than two nodes answered ({len(answered)} of {len(planned)}): nothing to compare"
        finding = Finding(Status.SKIP if alone else Status.UNKNOWN, message)
        yield from (Outcome(check, node.node, (finding,)) for node in nodes)
        return
    whole = _run(check, "", nodes[0].evidence, answered, sites)
    for node in nodes:
        mine = tuple(f for f in whole.findings if not f.nodes or node.node in f.nodes)
        if not mine:
            mine = (unknown("the check said nothing of this node"),)
        yield Outcome(check, node.node, mine, whole.crashed)


# --- the document ----------------------------------------------------------------------------------


def _document(
    verdict: Verdict,
    checks: Sequence[Check],
    evidences: Mapping[str, Evidence],
    sites: Mapping[str, Site],
    facts: Mapping[str, NodeFacts],
    has_logs: bool,
    off: Sequence[str],
    swept: int,
    windowed: bool,
) -> dict[str, Any]:
    unread = [] if windowed else [check for check in checks if check.window]
    per_node = [c for c in checks if c.scope is not Scope.RUN and not c.sweep and c not in unread]
    of_sweep = [check for check in checks if check.sweep]
    run_checks = [check for check in checks if check.scope is Scope.RUN]
    counts = Counter(outcome.status for outcome in verdict.outcomes)
    coverage: dict[str, Any] = {
        "planned": len(verdict.planned) * len(per_node) + (len(run_checks) if has_logs else 0) + len(of_sweep) * swept,
        "ran": sum(counts[s] for s in (Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN)),
        "passed": counts[Status.PASS],
        "warned": counts[Status.WARN],
        "failed": counts[Status.FAIL],
        "unknown": counts[Status.UNKNOWN],
        "skipped": counts[Status.SKIP],
        "no_answer": len(verdict.silent) * len(per_node),
        "nodes": {
            "planned": len(verdict.planned),
            "answered": len(verdict.planned) - len(verdict.silent),
            "no_answer": len(verdict.silent),
        },
        "off": list(off),
        "without_logs": [] if has_logs else [check.id for check in run_checks],
        "without_window": [check.id for check in unread],
        "without_sweep": [] if swept else [check.id for check in of_sweep],
    }
    outcomes: dict[str, list[Outcome]] = {name: [] for name in (*verdict.planned, RUN)}
    for outcome in verdict.outcomes:
        outcomes.setdefault(outcome.node, []).append(outcome)
    nodes = [_node(name, verdict, outcomes[name], evidences[name], sites, facts) for name in verdict.planned]
    findings = list(_folded(verdict.outcomes, evidences))
    statuses = _by_item(verdict.outcomes)
    document = {
        "schema": SCHEMA,
        "coverage": coverage,
        "nodes": nodes,
        "findings": findings,
        "checklists": checklist.answer(checks, statuses),
        "exit_status": exit_status(verdict),
    }
    if origins := sorted({e.origin for e in evidences.values() if e.origin}):
        document["origins"] = origins
    return document


def exit_status(verdict: Verdict) -> int:
    """Return 1 if a gating check failed, 3 if something could not be told, else 0."""
    gating = [outcome for outcome in verdict.outcomes if outcome.check.gating]
    if any(outcome.status is Status.FAIL for outcome in gating):
        return 1
    told = any(outcome.status in (Status.PASS, Status.WARN, Status.FAIL) for outcome in verdict.outcomes)
    vague = any(outcome.status is Status.UNKNOWN for outcome in gating)
    crashed = any(outcome.crashed for outcome in verdict.outcomes)
    return 3 if vague or crashed or verdict.silent or not told else 0


def _by_item(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Status]:
    """Roll up what each check said of each checklist item that it answers."""
    found: dict[tuple[str, str], list[Status]] = {}
    for outcome in outcomes:
        for item in outcome.check.answers:
            said = [f.status for f in outcome.findings if f.answers is None or item in f.answers]
            found.setdefault((outcome.check.id, item), []).append(worst(said))
    return {key: worst(statuses) for key, statuses in found.items()}


def _node(
    name: str,
    verdict: Verdict,
    mine: Sequence[Outcome],
    evidence: Evidence,
    sites: Mapping[str, Site],
    facts: Mapping[str, NodeFacts],
) -> dict[str, Any]:
    if name in verdict.silent:
        silence = {key: str(value) for key, value in verdict.silent[name].items()}
        return {"name": name, "status": str(Status.UNKNOWN), "no_answer": silence, "checks": {}}
    site = sites[name]
    node: dict[str, Any] = {
        "name": name,
        "status": str(worst(outcome.status for outcome in mine) if mine else Status.SKIP),
        "collected_at": evidence.collected_at,
        "class": site.class_name if site.path else None,
        "part": site.part.name if site.part else None,
        "where": str(evidence.collector.get("where", "")) or None,
        "checks": {outcome.check.id: str(outcome.status) for outcome in mine},
    }
    if evidence.origin:
        node["origin"] = evidence.origin
    if notes := evidence.collector.get("notes"):
        node["notes"] = [str(note) for note in notes] if isinstance(notes, list) else [str(notes)]
    if drawn := _picture(facts[name], site):
        node["topology"] = drawn
    return node


def _picture(node: NodeFacts, site: Site) -> dict[str, Any] | None:
    try:
        compute = frozenset(port.device for port in site.roles(node).compute)
    except EvidenceError:
        compute = frozenset()
    return picture(node, compute)


def _folded(outcomes: Iterable[Outcome], evidences: Mapping[str, Evidence]) -> Iterator[dict[str, Any]]:
    """Yield equal findings once, with all the nodes that they hold for, most urgent first."""
    groups: dict[tuple[Check, Finding], list[str]] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            groups.setdefault((outcome.check, replace(finding, nodes=())), []).append(outcome.node)
    order = {key: number for number, key in enumerate(groups)}
    for (check, finding), nodes in sorted(
        groups.items(), key=lambda item: (DISPLAY.index(item[0][1].status), order[item[0]])
    ):
        urgent = finding.status not in (Status.PASS, Status.SKIP)
        shown = _holder(finding, nodes, evidences)
        first = evidences.get(shown)
        document: dict[str, Any] = {
            "check": check.id,
            "title": check.title,
            "status": str(finding.status),
            "gating": check.gating,
            "nodes": nodes,
            "subject": finding.subject,
            "message": finding.message,
            "found": finding.found,
            "expected": finding.expected,
            "evidence": list(finding.evidence),
            "why": (finding.why or check.why) if urgent else "",
            "fix": _next(check, finding, first) if urgent else "",
        }
        if urgent:
            document["excerpts"] = list(_excerpts(finding, shown, first))
        yield document


def _holder(finding: Finding, nodes: Sequence[str], evidences: Mapping[str, Evidence]) -> str:
    """Return the first of the nodes that has the record on which a finding rests most: of a pair, only one has it."""
    key = finding.evidence[0] if finding.evidence else ""
    return next((name for name in nodes if name in evidences and key in evidences[name]), nodes[0])


def _next(check: Check, finding: Finding, evidence: Evidence | None) -> str:
    """Say what to do next: the finding's own word, else the check's cure, or how to learn what is unknown."""
    if finding.fix or finding.status is not Status.UNKNOWN:
        return finding.fix or check.fix
    return _supply(finding.evidence[0], evidence) if finding.evidence and evidence else ""


def _excerpts(finding: Finding, node: str, evidence: Evidence | None) -> Iterator[dict[str, str]]:
    """Yield the passages of the evidence that a finding rests on."""
    if finding.quote:
        yield {"node": node, "key": finding.evidence[0] if finding.evidence else "", "text": finding.quote}
        return
    for key in finding.evidence[:3]:
        try:
            record = evidence.record(key) if evidence else None
        except EvidenceError:
            continue
        if record is None:
            continue
        if record.entries:
            text = "  ".join(record.entries)
        elif record.value is not None:
            text = str(record.value)
        else:
            text = record.out.strip("\n") or record.err.strip("\n")
        lines = text.split("\n")
        cut = "\n".join(lines[:_EXCERPT_LINES])[:_EXCERPT_CHARS]
        if len(cut) < len(text):
            cut += "\n[…]"
        if described := record.describe():
            cut = f"[{described}]\n{cut}".rstrip("\n")
        if cut:
            yield {"node": node, "key": key, "text": cut}

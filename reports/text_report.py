"""Terminal report: verdict, coverage, findings, and folded passes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import replace
from preflight.reports.cluster_scope import judged_by, remarks
from preflight.reports.coverage_text import waiting
from preflight.reports.history_text import before, summary
from preflight.reports.pass_scope import Standings
from preflight.reports.sanitize import counted, listed, one_line, short, visible
from preflight.reports.text_layout import Listing, Paragraph, Part, typeset
from preflight.reports.verdict_line import headline

COLOUR = {"fail": "bold red", "warn": "yellow", "unknown": "magenta", "pass": "green", "skip": "dim"}
WORD = {"fail": "FAIL", "warn": "WARN", "unknown": "UNKNOWN", "pass": "pass", "skip": "n/a"}
_ITEM_WORDS = {status: word.lower() for status, word in WORD.items()} | {"skip": "not applicable"}


def render(report: Mapping[str, Any], *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """Return the report as text; ``verbose`` lists every pass and skip."""
    return typeset(_parts(report, verbose), colour=colour, width=width)


def _parts(report: Mapping[str, Any], verbose: bool) -> list[Part]:
    findings: Sequence[Mapping[str, Any]] = report["findings"]
    by = {status: [f for f in findings if f["status"] == status] for status in COLOUR}
    parts = heading(report, verbose=verbose)
    if past := summary(report):
        parts.append(_line(past))
    parts += unanswered(report["nodes"])
    for finding in [*by["fail"], *by["warn"]]:
        parts += finding_parts(finding, verbose)
    parts += _unknown(by["unknown"])
    parts += _folded(by, Standings(report), verbose)
    parts.append(_checklists(report["checklists"]))
    return parts


def heading(report: Mapping[str, Any], *, verbose: bool = False, width: int = 0) -> list[Part]:
    """Return the verdict, coverage and nodes; with a ``width``, in a few lines."""
    parts: list[Part] = [_headline(report)]
    origins = [f"evidence: {one_line(origin)}" for origin in report.get("origins", ())]
    parts += [_line(line, "dim") for line in _bounded(origins, width, "kinds of evidence")]
    parts += _expectations(report, width)
    parts.append(_coverage(report["coverage"], verbose, brief=bool(width)))
    ways = [
        one_line(f"through the system's ssh: {way['nodes']}: {way['why']}")
        for way in report.get("run", {}).get("openssh", ())
    ]
    ways += [
        one_line(f"judged here, not on the node: {way['nodes']}: {way['why']}")
        for way in report.get("run", {}).get("judged_here", ())
    ]
    parts += [_line(line, "dim") for line in _bounded(ways, width, "groups of nodes")]
    if report["nodes"]:
        names = [node["name"] for node in report["nodes"]]
        parts.append(Paragraph((("nodes: ", "bold"), (counted(names, width - 7 if width else _ALL), ""))))
    return parts


def _bounded(lines: Sequence[str], width: int, what: str) -> list[str]:
    """Return all lines; with a ``width``, the first few, truncated to it."""
    if not width:
        return list(lines)
    more = [f"and {len(lines) - _FEW} more {what}"] if len(lines) > _FEW else []
    return [short(line, width) for line in lines[:_FEW]] + more


def _line(text: str, style: str = "") -> Paragraph:
    return Paragraph(((text, ""),), style)


def _headline(report: Mapping[str, Any]) -> Paragraph:
    style = {0: "bold green", 1: "bold red"}.get(report["exit_status"], "bold magenta")
    return _line(one_line(headline(report)), style)


def _expectations(report: Mapping[str, Any], width: int) -> list[Part]:
    """Describe the cluster file of saved evidence, and nodes it does not cover."""
    named = judged_by(report.get("run") or {})
    lines: list[Part] = [_line(named)] if named else []
    for remark in remarks(report):
        line = replace(remark, nodes=short(remark.nodes, width)).line if width else remark.line
        lines.append(_line(line, COLOUR["warn"] if remark.warns else "dim"))
    return lines


#: Maximum number of checks, classes or lines that are listed; more are counted (all: --verbose, --json).
_FEW = 3

#: Columns before the nodes of a finding: its status.
_HANG = 8

#: A width larger than any text.
_ALL = sys.maxsize

#: Maximum number of reasons for missing answers on the first screen; the rest is counted.
REASONS_SHOWN = 5


def _coverage(coverage: Mapping[str, Any], verbose: bool, *, brief: bool) -> Paragraph:
    nodes = coverage["nodes"]
    counts = [
        f"{coverage[key]} {word}"
        for key, word in (
            ("passed", "passed"), ("warned", "warned"), ("failed", "failed"), ("unknown", "unknown"),
            ("skipped", "not applicable"), ("no_answer", "no answer"),
        )
        if coverage[key]
    ]  # fmt: skip
    checks = f"{coverage['planned']} node-checks planned = {' + '.join(counts) or '0'}"
    if brief:
        bad = [f"{coverage[key]} {key}" for key in ("failed", "warned", "unknown") if coverage[key]]
        checks = ", ".join([f"{coverage['passed']} of {coverage['planned']} node-checks passed", *bad])
    spans = [
        ("coverage: ", ""),
        (f"{nodes['answered']} of {_count(nodes['planned'], 'node')} answered; ", "not bold"),
        (checks, "not bold"),
    ]
    if coverage["off"]:
        spans.append((f"; not run (--only, --skip or the cluster file): {_few(coverage['off'], verbose)}", "not bold"))
        if not verbose and len(coverage["off"]) > _FEW:
            spans.append((" (-v lists them)", "not bold"))
    off_in_class = coverage.get("off_in_class") or {}
    if brief and len(off_in_class) > _FEW:
        spans.append((f"; some are off in {len(off_in_class)} classes", "not bold"))
    else:
        for name, ids in off_in_class.items():
            spans.append((f"; off in class {name}: {_few(ids, verbose)}", "not bold"))
    if waivers := coverage.get("waivers"):
        idle = [waiver["check"] for waiver in waivers if not waiver["matched"] and not waiver["expired"]]
        spans.append((f"; {_count(coverage['waived'], 'result')} waived", "not bold"))
        if idle:
            spans.append((f" (the waivers for {_few(idle, verbose or not brief)} are not needed)", "not bold"))
    for group in () if brief else waiting(coverage):
        named = _few(group.ids, verbose)
        spans.append((f"; not planned without {group.needs} ({group.command}): {named}", "dim not bold"))
    return Paragraph(tuple(spans), "bold")


def _few(ids: Sequence[str], verbose: bool) -> str:
    """List checks; only count them if there are many."""
    return ", ".join(ids) if verbose or len(ids) <= _FEW else _count(len(ids), "check")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def unanswered(nodes: Sequence[Mapping[str, Any]], width: int = 0) -> list[Paragraph]:
    """Return a line for each reason why nodes did not answer.

    With a ``width``, only the most frequent reasons are listed, and the rest is counted.
    """
    groups = list(without_answer(nodes).items())
    if width and len(groups) > REASONS_SHOWN:
        groups.sort(key=lambda group: -len(group[1]))
    shown = groups[:REASONS_SHOWN] if width else groups
    lines = []
    for (phase, reason), names in shown:
        named, why = counted(names, width // 2 or _ALL), short(reason, 2 * width or _ALL)
        where = f"; all of rack {one_line(rack)}" if (rack := _rack_of(nodes, names)) else ""
        text = f"  {why} ({phase}){where}"
        lines.append(Paragraph((("\nNO ANSWER  ", COLOUR["unknown"]), (named, "bold"), (text, ""))))
    if left := groups[len(shown) :]:
        silent = sum(len(names) for _, names in left)
        lines.append(Paragraph(((f"\nand {_count(silent, 'node')} for {_count(len(left), 'other reason')}", "dim"),)))
    return lines


def without_answer(nodes: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Return the nodes that did not answer by phase and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if silence := node.get("no_answer"):
            reasons.setdefault((silence.get("phase", ""), silence.get("reason", "")), []).append(node["name"])
    return reasons


def _rack_of(nodes: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the rack that consists of exactly these nodes, at least two; else ""."""
    chosen = set(names)
    racks = {node.get("rack", "") for node in nodes if node["name"] in chosen}
    rack = str(racks.pop()) if len(racks) == 1 and len(chosen) > 1 else ""
    return rack if rack and all(node["name"] in chosen for node in nodes if node.get("rack") == rack) else ""


def _head(word: str, colour: str, finding: Mapping[str, Any]) -> Paragraph:
    return Paragraph((
        (word, colour), (one_line(listed(finding["nodes"])), "bold"), ("  ", ""), (one_line(finding["message"]), ""),
        (f"  [{finding['check']}]", "dim"),
    ), hang=_HANG)  # fmt: skip


def finding_parts(finding: Mapping[str, Any], verbose: bool = False) -> list[Part]:
    """Return a finding in full."""
    status = finding["status"]
    rows = [
        (label, visible(finding[key]), "")
        for label, key in (("found", "found"), ("expected", "expected"), ("why", "why"), ("next", "fix"))
        if finding[key]
    ]
    if verbose and "action" in finding:
        rows.append(("action", one_line(finding["action"]), ""))
    if was := before(finding):
        rows.append(("before", was, ""))
    if finding["evidence"]:
        rows.append(("evidence", one_line(", ".join(finding["evidence"])), "dim"))
    return [_head(f"\n{WORD[status]:<{_HANG}}", COLOUR[status], finding), Listing(tuple(rows))]


def _unknown(findings: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Group unknown findings by message and fix."""
    if not findings:
        return []
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for finding in findings:
        nodes, checks = groups.setdefault((finding["message"], finding["fix"]), ([], []))
        nodes += [node for node in finding["nodes"] if node not in nodes]
        if finding["check"] not in checks:
            checks.append(finding["check"])
    parts: list[Part] = [_line("\nUnknown", "bold")]
    for (message, fix), (nodes, checks) in groups.items():
        rows = [("checks", ", ".join(checks), "")]
        if fix:
            rows.append(("next", visible(fix), ""))
        parts.append(Paragraph((
            ("UNKNOWN ", COLOUR["unknown"]), (one_line(listed(nodes)), "bold"), ("  ", ""), (one_line(message), ""),
        ), hang=_HANG))  # fmt: skip
        parts.append(Listing(tuple(rows)))
    return parts


def _folded(by: Mapping[str, Sequence[Mapping[str, Any]]], standings: Standings, verbose: bool) -> list[Part]:
    """List full passes, partial passes with counts, and checks that do not apply."""
    parts: list[Part] = []
    for status, title in (("pass", "Passed"), ("skip", "Not applicable")):
        findings = by[status]
        if not findings:
            continue
        checks = list(dict.fromkeys(finding["check"] for finding in findings))
        if verbose:
            parts.append(_line(f"\n{title}", "bold"))
            parts += [_head(f"{WORD[status]:<{_HANG}}", COLOUR[status], finding) for finding in findings]
        elif status == "pass":
            everywhere = [check for check in checks if standings.everywhere(check, "pass")]
            partly = [check for check in checks if check not in everywhere and standings.has(check, "pass")]
            if everywhere:
                parts.append(Paragraph(((f"\n{title}: ", "bold"), (", ".join(everywhere), "dim"))))
            if partly:
                counted = ", ".join(f"{check} ({standings.share(check, 'pass')})" for check in partly)
                parts.append(Paragraph((("\nPassed on some nodes only: ", "bold"), (counted, "dim"))))
        else:
            reasons: dict[str, list[str]] = {}
            for finding in findings:
                check = finding["check"]
                if finding.get("reported_by") or not standings.has(check, "skip"):
                    continue  # another finding of this check counts
                where = "" if standings.everywhere(check, "skip") else f" on {standings.share(check, 'skip')} nodes"
                names = reasons.setdefault(finding["message"], [])
                if check + where not in names:
                    names.append(check + where)
            skipped = "; ".join(f"{one_line(why)} ({', '.join(names)})" for why, names in reasons.items())
            if skipped:
                parts.append(Paragraph(((f"\n{title}: ", "bold"), (skipped, "dim"))))
            parts += _left(findings)
    return parts


def _left(skips: Sequence[Mapping[str, Any]]) -> list[Part]:
    """List comparisons that are omitted because a node check reports them."""
    repeated = [
        f"{finding['check']} on {one_line(listed(finding['nodes']))} ({one_line(finding['message'])})"
        for finding in skips
        if finding.get("reported_by")
    ]
    return (
        [Paragraph((("\nNot repeated, because another check reports it: ", "bold"), ("; ".join(repeated), "dim")))]
        if repeated
        else []
    )


def _checklists(items: Sequence[Mapping[str, Any]]) -> Paragraph:
    """Count the items of each checklist; the items are in `preflight checklist`."""
    documents: dict[str, dict[str, int]] = {}
    for item in items:
        counts = documents.setdefault(item["document"], {})
        counts[item["status"]] = counts.get(item["status"], 0) + 1
    totals = []
    for document, counts in documents.items():
        totals.append(f"{document} " + ", ".join(f"{counts[s]} {_ITEM_WORDS[s]}" for s in COLOUR if s in counts))
    text = "; ".join(totals) + "  (items: preflight checklist, or --html)"
    return Paragraph((("\nchecklists: ", ""), (text, "dim not bold")), "bold")

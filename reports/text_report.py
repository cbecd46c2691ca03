"""The report for a terminal: verdict first, then coverage, then what to do; passes folded."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from preflight.reports.verdict import headline
from preflight.reports.visible import fold, one_line, visible

COLOUR = {"fail": "bold red", "warn": "yellow", "unknown": "magenta", "pass": "green", "skip": "dim"}
WORD = {"fail": "FAIL", "warn": "WARN", "unknown": "UNKNOWN", "pass": "pass", "skip": "skip"}


def render(report: Mapping[str, Any], *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """Return the report as text; ``verbose`` lists passes and skips one by one."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, soft_wrap=False, legacy_windows=False,
    )  # fmt: skip
    for part in _parts(report, verbose):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _parts(report: Mapping[str, Any], verbose: bool) -> list[Any]:
    findings: Sequence[Mapping[str, Any]] = report["findings"]
    by = {status: [f for f in findings if f["status"] == status] for status in COLOUR}
    parts: list[Any] = [_headline(report)]
    for origin in report.get("origins", ()):
        parts.append(Text(f"evidence: {one_line(origin)}", style="dim"))
    parts.append(_coverage(report["coverage"]))
    parts += _silent(report["nodes"])
    parts += [_finding(finding) for status in ("fail", "warn") for finding in by[status]]
    parts += _unknown(by["unknown"])
    parts += _folded(by, verbose)
    parts.append(_checklists(report["checklists"]))
    return parts


def _headline(report: Mapping[str, Any]) -> Text:
    style = {0: "bold green", 1: "bold red"}.get(report["exit_status"], "bold magenta")
    return Text(one_line(headline(report)), style=style)


def _coverage(coverage: Mapping[str, Any]) -> Text:
    nodes = coverage["nodes"]
    text = Text("coverage: ", style="bold")
    text.append(f"{nodes['answered']} of {_count(nodes['planned'], 'node')} answered; ", style="not bold")
    text.append(f"{coverage['planned']} node-checks planned = ", style="not bold")
    counts = [
        f"{coverage[key]} {word}"
        for key, word in (
            ("passed", "passed"), ("warned", "warned"), ("failed", "failed"), ("unknown", "unknown"),
            ("skipped", "skipped"), ("no_answer", "without an answer"),
        )
        if coverage[key]
    ]  # fmt: skip
    text.append(" + ".join(counts) or "0", style="not bold")
    if coverage["off"]:
        text.append(f"; off by choice: {', '.join(coverage['off'])}", style="not bold")
    if coverage["without_logs"]:
        text.append(f"; not planned without a log (--log): {', '.join(coverage['without_logs'])}", style="dim not bold")
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _silent(nodes: Sequence[Mapping[str, Any]]) -> list[Text]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if silence := node.get("no_answer"):
            reasons.setdefault((silence.get("phase", ""), silence.get("reason", "")), []).append(node["name"])
    return [
        Text.assemble(
            ("\nNO ANSWER  ", COLOUR["unknown"]), (one_line(fold(names)), "bold"), f"  {one_line(reason)} ({phase})"
        )
        for (phase, reason), names in reasons.items()
    ]


def _finding(finding: Mapping[str, Any]) -> Group:
    status = finding["status"]
    where = one_line(fold(finding["nodes"]))
    head = Text.assemble(
        (f"\n{WORD[status]:<8}", COLOUR[status]), (where, "bold"), "  ", one_line(finding["message"]),
        (f"  [{finding['check']}]", "dim"),
    )  # fmt: skip
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, key in (("found", "found"), ("expected", "expected"), ("why", "why"), ("next", "fix")):
        if finding[key]:
            grid.add_row(label, Text(visible(finding[key])))
    if finding["evidence"]:
        grid.add_row("evidence", Text(one_line(", ".join(finding["evidence"])), style="dim"))
    return Group(head, Padding(grid, (0, 0, 0, 8)))


def _unknown(findings: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Group what could not be told by what would tell it."""
    if not findings:
        return []
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for finding in findings:
        nodes, checks = groups.setdefault((finding["message"], finding["fix"]), ([], []))
        nodes += [node for node in finding["nodes"] if node not in nodes]
        if finding["check"] not in checks:
            checks.append(finding["check"])
    parts: list[Any] = [Text("\nCould not be told", style="bold")]
    for (message, fix), (nodes, checks) in groups.items():
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        grid.add_row("checks", Text(", ".join(checks)))
        if fix:
            grid.add_row("next", Text(visible(fix)))
        head = Text.assemble(
            ("UNKNOWN ", COLOUR["unknown"]), (one_line(fold(nodes)), "bold"), "  ", one_line(message)
        )  # fmt: skip
        parts.append(Group(head, Padding(grid, (0, 0, 0, 8))))
    return parts


def _folded(by: Mapping[str, Sequence[Mapping[str, Any]]], verbose: bool) -> list[Any]:
    parts: list[Any] = []
    for status, title in (("pass", "Passed"), ("skip", "Skipped, because it cannot apply here")):
        findings = by[status]
        if not findings:
            continue
        checks = list(dict.fromkeys(finding["check"] for finding in findings))
        if verbose:
            parts.append(Text(f"\n{title}", style="bold"))
            for finding in findings:
                parts.append(
                    Text.assemble(
                        (f"{WORD[status]:<8}", COLOUR[status]), (one_line(fold(finding["nodes"])), "bold"),
                        "  ", one_line(finding["message"]), (f"  [{finding['check']}]", "dim"),
                    )
                )  # fmt: skip
        elif status == "pass":
            parts.append(Text.assemble((f"\n{title}: ", "bold"), (", ".join(checks), "dim")))
        else:
            reasons: dict[str, list[str]] = {}
            for finding in findings:
                names = reasons.setdefault(finding["message"], [])
                if finding["check"] not in names:
                    names.append(finding["check"])
            said = "; ".join(f"{one_line(why)} ({', '.join(names)})" for why, names in reasons.items())
            parts.append(Text.assemble((f"\n{title}: ", "bold"), (said, "dim")))
    return parts


def _checklists(items: Sequence[Mapping[str, Any]]) -> Text:
    """Count the items of each document; the whole list is `preflight checklist` and the HTML page."""
    text = Text("\nchecklists: ", style="bold")
    documents: dict[str, dict[str, int]] = {}
    for item in items:
        counts = documents.setdefault(item["document"], {})
        counts[item["status"]] = counts.get(item["status"], 0) + 1
    said = []
    for document, counts in documents.items():
        said.append(f"{document} " + ", ".join(f"{counts[s]} {WORD[s].lower()}" for s in COLOUR if s in counts))
    text.append("; ".join(said) + "  (items: preflight checklist, or --html)", style="dim not bold")
    return text

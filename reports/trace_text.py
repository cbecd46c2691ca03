"""Traces of a job as text: budget of a step, awaited ranks, findings and fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from preflight.reports.sanitize import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from preflight.facts.trace.job import JobTrace
    from preflight.parsers.torch import TraceSummary

#: Maximum number of printed findings of one check and status; those of 64 ranks are often similar.
_MOST_ALIKE = 3
_MOST_GROUPS = 12
#: Maximum number of named files without a trace or a dump, and the reasons.
_MOST_FILES = 8
_EMPTY = "the file is empty"
_UNKNOWN = "no complete profiler trace, flight-recorder dump or text of `ncclras` or `py-spy`"
_ORDER = ("fail", "warn", "unknown")
#: Display names of the parts of idle time.
_IDLE = (
    ("idle_host", "CPU"),
    ("idle_sync", "synchronisation"),
    ("idle_data", "data"),
    ("idle_other", "start of kernels"),
)


def render(
    traces: Mapping[str, TraceSummary],
    job: JobTrace | None,
    findings: Sequence[Mapping[str, Any]],
    groups: Sequence[str] = (),
    files: Sequence[Path] = (),
) -> str:
    """Return a step's budget, waiting by groups, open findings, and passed checks."""
    lines = [headline(traces, job)] if traces and job else []
    lines += [f"{'':8}{one_line(text)}" for text in groups[:_MOST_GROUPS]]
    lines += [f"{'':8}and {len(groups) - _MOST_GROUPS} more groups"] if len(groups) > _MOST_GROUPS else []
    passed = sorted({finding["check"] for finding in findings if finding["status"] == "pass"})
    open_checks = set()
    for status in _ORDER:
        by_check: dict[str, list[Mapping[str, Any]]] = {}
        for finding in findings:
            if finding["status"] == status:
                by_check.setdefault(finding["check"], []).append(finding)
        for check, alike in by_check.items():
            open_checks.add(check)
            shown = 1 if status == "unknown" else _MOST_ALIKE
            for finding in alike[:shown]:
                lines.append(f"{status.upper():<8}{check}: {one_line(finding['message'])}")
            if len(alike) > shown:
                lines.append(f"{'':8}and {len(alike) - shown} more like it")
            if alike[0].get("fix"):
                lines.append(f"{'':8}fix: {one_line(alike[0]['fix'])}")
    if clean := [check for check in passed if check not in open_checks]:
        lines.append(f"{'PASS':<8}{', '.join(clean)}")
    return "\n".join(lines or _unread(files)) + "\n"


def _unread(files: Sequence[Path]) -> list[str]:
    """Return a line for each of the files that have no finding."""
    lines = [f"{one_line(str(file))}: {_EMPTY if file.is_file() and not file.stat().st_size else _UNKNOWN}"
             for file in files[:_MOST_FILES]]  # fmt: skip
    return lines + [f"and {len(files) - _MOST_FILES} more files"] * (len(files) > _MOST_FILES)


def headline(traces: Mapping[str, TraceSummary], job: JobTrace) -> str:
    """Return one line: the length of a step, and its parts on average over the ranks."""
    documents = [trace.document for trace in traces.values()]
    budgets = [facts["gpu"]["budget"] for facts in documents if facts["gpu"] and facts["gpu"]["budget"]]
    lengths = [facts["steps"]["p50_ms"] for facts in documents if facts["steps"] and facts["steps"]["p50_ms"]]
    ranks = f"{len(documents)} rank{'s' if len(documents) != 1 else ''}"
    subject = f"{ranks}: a step takes {median(lengths):.4g} ms" if lengths else f"{ranks}: steps are not marked"
    if not budgets:
        return f"{subject}; the traces contain no GPU kernels"
    part = {name: fmean(budget[name] for budget in budgets) for name in budgets[0]}
    idle = sum(part[name] for name, _ in _IDLE)
    causes = [f"{label} {part[name]:.0%}" for name, label in _IDLE if part[name] >= 0.005]
    phrases = [
        f"{part['compute']:.0%} compute",
        f"{part['communication']:.0%} exposed communication{_waiting(job, part['communication'])}",
    ]
    if part["copies"] >= 0.005:
        phrases.append(f"{part['copies']:.0%} copies")
    due = f" ({', '.join(causes)})" if causes else ""
    phrases.append(f"{idle:.0%} GPU idle{due}")
    return f"{subject}: {', '.join(phrases)}"


def _waiting(job: JobTrace, communication: float) -> str:
    """Describe how much exposed communication is waiting, and for which rank."""
    lengths = {rank: sum(end - begin for begin, end in job.ranks[rank].steps.values()) for rank in job.compared}
    shares = [min(1.0, (job.waited(rank) or 0.0) / length) for rank, length in lengths.items() if length]
    if not shares or communication < 0.005:
        return ""
    if job.missing:
        return " (transfer or waiting: some ranks have no trace)"
    waiting = min(communication, fmean(shares))
    late = [str(straggler.rank) for straggler in job.stragglers[:3]]
    who = f"rank {', '.join(late)}" if late else "other ranks"
    return f" ({communication - waiting:.0%} transfer, {waiting:.0%} waiting for {who})"

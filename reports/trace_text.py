"""Traces of a job as text: budget of a step, awaited ranks, findings and fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from preflight.facts.trace.pauses import PART, pauses
from preflight.reports.sanitize import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from preflight.facts.trace.job import JobTrace
    from preflight.facts.trace.stragglers import Straggler
    from preflight.parsers.torch import TraceSummary

#: Maximum number of printed findings of one check and status; those of 64 ranks are often similar.
_MOST_ALIKE = 3
_MOST_GROUPS = 12
#: Maximum difference between the mean step and the median one, as a fraction, to state only one of them.
_SAME = 0.02
#: Maximum number of named files without a trace or a dump, and the reasons.
_MOST_FILES = 8
_EMPTY = "the file is empty"
_UNKNOWN = "no complete profiler trace, flight-recorder dump or text of `ncclras` or `py-spy`"
_ORDER = ("fail", "warn", "unknown")
#: Display names of the parts of idle time.
_IDLE = (
    (PART, "pauses"),
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
    lines = [headline(traces, job, findings)] if traces and job else []
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


def headline(traces: Mapping[str, TraceSummary], job: JobTrace, findings: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return one line: the length of a step, its parts, and what late ranks cost."""
    documents = [trace.document for trace in traces.values()]
    paused = pauses(traces)
    budgets = {key: trace.document["gpu"]["budget"] for key, trace in traces.items() if trace.document["gpu"]}
    shares = [paused[key].budget(parts) if key in paused else parts for key, parts in budgets.items() if parts]
    ranks = f"{len(documents)} rank{'s' if len(documents) != 1 else ''}"
    subject = f"{ranks}: {_step(documents, job)}"
    if not shares:
        return f"{subject}; the traces contain no GPU kernels"
    part = {name: fmean(parts.get(name, 0.0) for parts in shares) for name in (*shares[0], PART)}
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
    costs = [
        f"; {finding['subject']} cost{'s' * str(finding['subject']).startswith('rank ')} {finding['found']}"
        for finding in findings
        if finding["check"] == "torch.straggler" and str(finding.get("found")).endswith("of a step")
    ]
    return f"{subject}: {', '.join(phrases)}{''.join(costs[:_MOST_ALIKE])}"


def _step(documents: Sequence[Mapping[str, Any]], job: JobTrace) -> str:
    """State the mean length of a step, and the median if it differs."""
    samples = [facts["steps"] for facts in documents if facts["steps"] and facts["steps"]["p50_ms"]]
    if not samples:
        return "steps are not marked"
    usual = job.step_us / 1000 if job.step_us else median(sample["p50_ms"] for sample in samples)
    mean = sum(sample["total_ms"] for sample in samples) / sum(sample["count"] for sample in samples)
    if abs(mean - usual) <= _SAME * usual:
        return f"a step takes {usual:.4g} ms"
    return f"a step takes {mean:.4g} ms on average (median {usual:.4g} ms)"


def _waiting(job: JobTrace, communication: float) -> str:
    """Describe how much exposed communication is waiting, and for which ranks."""
    lengths = {rank: sum(end - begin for begin, end in job.ranks[rank].steps.values()) for rank in job.compared}
    lengths = {rank: length for rank, length in lengths.items() if length}
    if not lengths or communication < 0.005:
        return ""
    if job.missing:
        return " (transfer or waiting: some ranks have no trace)"
    waiting = min(communication, fmean(min(1.0, (job.waited(rank) or 0.0) / lengths[rank]) for rank in lengths))
    parts = [f"{communication - waiting:.0%} transfer"]
    late = job.stragglers[:_MOST_ALIKE]
    for_late = min(waiting, sum(_for_rank(job, straggler, lengths) for straggler in late))
    if waiting - for_late >= 0.005 or not late:
        staged = any(group.kinds == {"sendrecv"} for group in job.waits.groups)
        parts.append(f"{waiting - for_late:.0%} waiting {'between stages' if staged else 'for other ranks'}")
    if late:
        parts.append(f"{for_late:.0%} waiting for rank {', '.join(str(straggler.rank) for straggler in late)}")
    return f" ({', '.join(parts)})"


def _for_rank(job: JobTrace, straggler: Straggler, lengths: Mapping[int, float]) -> float:
    """Return the mean share of the steps for which ranks wait for a late rank.

    The stages of a pipeline would wait as well without it. Each step is longer by what it costs; of that, all ranks
    wait, but for what the late rank does itself.
    """
    if straggler.more_us and job.step_us:
        return max(0.0, straggler.lost_share - straggler.more_us / job.step_us / len(job.ranks))
    charged = dict.fromkeys(lengths, 0.0)
    for (rank, _), charges in job.waits.bare.items():
        if rank in charged:
            charged[rank] += charges.get(straggler.rank, 0.0)
    return fmean(charged[rank] / lengths[rank] for rank in lengths)

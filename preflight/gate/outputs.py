"""What a seat writes beside its line: metrics for node_exporter, the report, its verdict for the controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from preflight.archive import file_name, replacing
from preflight.archive import write as write_file
from preflight.gate import told
from preflight.gate.sitting import Sitting
from preflight.gate.verdict import PREFIX, STATUSES, Verdict, to_document


def write(sitting: Sitting, verdict: Verdict) -> list[str]:
    """Write what was asked for; return a line for each thing that could not be written."""
    complaints = []
    asked = sitting.asked
    for target, make in (
        (asked.textfile, _metrics), (asked.report_dir, _report), (sitting.publish, _published),
    ):  # fmt: skip
        if target:
            try:
                make(Path(target), sitting, verdict)
            except Exception as error:  # of a library that is missing as well; the verdict stands
                why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                complaints.append(told.plain(f"{PREFIX}{target} cannot be written: {why}"))
    return complaints


def _metrics(path: Path, sitting: Sitting, verdict: Verdict) -> None:
    """Write the file of a textfile collector, which reads ``*.prom`` only, so that it never sees half of it."""
    text = "".join(f"{line}\n" for line in metrics(sitting, verdict)) + _of_report(sitting)
    with replacing(path, 0o644) as stream:
        stream.write(text.encode())


def metrics(sitting: Sitting, verdict: Verdict) -> Iterator[str]:
    """Yield the lines of the exposition format; the labels are names of nodes and words of ours, nothing else."""
    from preflight.reports.exposition import Metric

    labels = {"node": verdict.node, "seat": sitting.asked.seat}
    said = Metric("preflight_gate_verdict", "Whether this is what the gate said last of the node.")
    for status in STATUSES:
        said.add(status == verdict.status, **labels, status=status)
    yield from said.lines()
    for name, value, about in (
        ("failed_checks", len(verdict.causes), "Gating checks that failed."),
        ("unknown_checks", len(verdict.unknowns), "Gating checks that could not tell."),
        ("off_checks", len(verdict.off), "Checks that were switched off, or hold no job back, by choice."),
        ("exit_status", sitting.status(verdict), "Exit status of the gate."),
        ("verdict_time_seconds", verdict.at, "When the node was judged, in seconds since 1970 UTC."),
        ("duration_seconds", verdict.seconds, "How long judging took."),
    ):
        metric = Metric(f"preflight_gate_{name}", about)
        metric.add(value, **labels)
        yield from metric.lines()


def _of_report(sitting: Sitting) -> str:
    if sitting.report is None:
        return ""
    from preflight.reports.prometheus import render

    return render(sitting.report)


def _report(folder: Path, sitting: Sitting, verdict: Verdict) -> None:
    """Write verdict, report and evidence to a volume: what a finished init container has printed is gone soon."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "verdict.json", json.dumps(to_document(verdict), indent=1) + "\n")
    if sitting.report is not None:
        write_file(folder / "report.json", json.dumps(sitting.report, indent=1) + "\n")
    if sitting.evidence is not None:
        from preflight.evidence import dump

        (folder / "evidence").mkdir(exist_ok=True)
        write_file(folder / "evidence" / file_name(sitting.node), dump(sitting.evidence))
    if sitting.report is not None:
        from preflight.reports.html_page import render

        write_file(folder / "report.html", render(sitting.report))


def _published(folder: Path, sitting: Sitting, verdict: Verdict) -> None:
    """Write the verdict to where the seat ``slurm-controller`` reads it."""
    write_file(folder / file_name(verdict.node), json.dumps(to_document(verdict)) + "\n")

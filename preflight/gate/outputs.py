"""Files that a hook writes: metrics, the report, the verdict for the controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.archive.directory import file_name, replacing
from preflight.archive.directory import write as write_file
from preflight.evidence.document import dump
from preflight.gate.verdict import PREFIX, STATUSES, ascii_reason, to_document
from preflight.reports.prometheus import render
from preflight.reports.prometheus_format import Metric

if TYPE_CHECKING:
    from preflight.gate.result import GateResult


def write(result: GateResult) -> list[str]:
    """Write the requested outputs; return a line for each failure."""
    complaints = []
    for target, make in (
        (result.textfile, _metrics), (result.report_dir, _report), (result.publish, _published),
    ):  # fmt: skip
        if target:
            try:
                make(Path(target), result)
            except Exception as error:  # includes a missing library; the verdict is still valid
                why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                complaints.append(ascii_reason(f"{PREFIX}{target} cannot be written: {why}", 2000))
    return complaints


def _metrics(path: Path, result: GateResult) -> None:
    """Write the metrics for a textfile collector atomically.

    The collector only reads ``*.prom``, so it never sees the temporary file.
    """
    text = "".join(f"{line}\n" for line in metrics(result)) + _of_report(result)
    with replacing(path, 0o644) as stream:
        stream.write(text.encode())


def metrics(result: GateResult) -> Iterator[str]:
    """Yield the lines of the exposition format.

    Label values are node names and fixed words.
    """
    verdict = result.verdict
    labels = {"node": verdict.node, "hook": result.hook}
    verdict_metric = Metric("preflight_gate_verdict", "Whether this is the gate's last verdict on the node.")
    for status in STATUSES:
        verdict_metric.add(status == verdict.status, **labels, status=status)
    yield from verdict_metric.lines()
    action = Metric("preflight_gate_action", "What the gate's verdict requires.")
    action.add(1, **labels, action=verdict.action)
    yield from action.lines()
    for name, value, about in (
        ("failed_checks", len(verdict.causes), "Gating checks that failed."),
        ("unknown_checks", len(verdict.unknowns), "Gating checks that are unknown."),
        ("off_checks", len(verdict.off), "Checks that are disabled, or set to report only."),
        ("exit_status", result.exit_status, "Exit status of the gate."),
        ("verdict_time_seconds", verdict.at, "When the node was judged, in seconds since 1970 UTC."),
        ("duration_seconds", verdict.seconds, "How long judging took."),
    ):
        metric = Metric(f"preflight_gate_{name}", about)
        metric.add(value, **labels)
        yield from metric.lines()


def _of_report(result: GateResult) -> str:
    if result.report is None:
        return ""

    return render(result.report)


def _report(folder: Path, result: GateResult) -> None:
    """Write verdict, report and evidence to a volume.

    The output of a finished init container is lost soon.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "verdict.json", json.dumps(to_document(result.verdict), indent=1) + "\n")
    if result.report is not None:
        write_file(folder / "report.json", json.dumps(result.report, indent=1) + "\n")
    if result.evidence is not None:
        (folder / "evidence").mkdir(exist_ok=True)
        write_file(folder / "evidence" / file_name(result.node), dump(result.evidence))
    if result.report is not None:
        from preflight.reports.html_page import render  # import-at-use: jinja2, with --report-dir alone

        write_file(folder / "report.html", render(result.report))


def _published(folder: Path, result: GateResult) -> None:
    """Publish the verdict for the hook ``slurm-controller``."""
    write_file(folder / file_name(result.verdict.node), json.dumps(to_document(result.verdict)) + "\n")

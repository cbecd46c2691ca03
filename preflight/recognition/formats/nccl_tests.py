"""nccl-tests output as text or JSON, possibly with NCCL lines in its table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from preflight.bench.observation import group_runs
from preflight.parsers.job_log import JobLog
from preflight.parsers.nccl_tests.collective import contradictions
from preflight.parsers.nccl_tests.model import IterationTimes
from preflight.parsers.nccl_tests.text import Measurement, Report, Row
from preflight.parsers.parsed import ParseGap
from preflight.recognition.detector import ParsedPart, TextPart

KIND = "nccl-tests"


def parts(log: JobLog) -> list[TextPart]:
    """Return the nccl-tests runs in a log, one part per run."""
    found = []
    texts = log.text.between((report.first_line, report.last_line) for report in log.nccl_tests)
    for report, text in zip(log.nccl_tests, texts, strict=True):
        taken = ParsedPart(report.last_line, facts_of(report), summary(report), list(_cut(report)))
        found.append(TextPart(KIND, report.first_line, report.last_line, "", taken, f"{text}\n"))
    return found


def facts_of(report: Report) -> dict[str, Any]:
    """Return the facts of a report under their documented names."""
    best = report.best()
    return {
        "collective": report.collective,
        "collective_printed": report.collective_printed,
        "nranks": report.nranks,
        "nnodes": report.nnodes,
        "hosts": list(report.hosts),
        "nccl_version": report.nccl_version,
        "nccl_tests_version": report.version,
        "devices": [
            {
                "rank": d.rank,
                "group": d.group,
                "host": d.host,
                "device": d.index,
                "bus_id": d.bus,
                "name": d.name or None,
            }
            for d in report.devices
        ],
        "rows": [_row(row) for row in report.rows],
        "avg_busbw": _finite(report.average_busbw_gbytes_s),
        "max_busbw": best.busbw_gbytes_s if best else None,
        "wrong": None if report.validated is False else report.out_of_bounds,
        "status": report.status,
        "error": report.failures[0].text if report.failures else None,
        "last_error": report.last_error or None,
        "communicators": report.groups,
        "groups": [
            {
                "hosts": list(run.nodes),
                "ranks": run.kind.ranks,
                "busbw": [{"bytes": size, "busbw": rate} for size, rate in sorted(run.busbw.items())],
            }
            for run in (group_runs(report) if report.groups > 1 else ())
        ],
        "copies": report.copies,
        "contradictions": list(_contradictions(report)),
    }


def _contradictions(report: Report) -> tuple[str, ...]:
    ranks = report.nranks
    if ranks is not None and report.groups > 1:
        ranks = ranks // report.groups if ranks % report.groups == 0 else None
    return contradictions(report.rows, report.collective, ranks if report.copies == 1 else None)


def _row(row: Row) -> dict[str, Any]:
    return {
        "bytes": row.bytes,
        "count": row.count,
        "dtype": row.dtype,
        "redop": row.redop,
        "root": row.root,
        "out_of_place": _half(row.out_of_place),
        "in_place": _half(row.in_place),
    }


def _half(half: Measurement | None) -> dict[str, Any] | None:
    if half is None:
        return None
    return {
        "time_us": _finite(half.time_us),
        "algbw": _finite(half.algbw_gbytes_s),
        "busbw": _finite(half.busbw_gbytes_s),
        "wrong": half.wrong,
        "max_error": _finite(half.max_error),
        "iterations": _iterations(half.iterations),
    }


def _iterations(times: IterationTimes | None) -> dict[str, Any] | None:
    """Return statistics of iteration times; None for those that need more iterations."""
    if times is None:
        return None
    return {
        "count": len(times.times_us) or None,
        "min_us": times.min_us,
        "p50_us": times.p50_us,
        "p95_us": times.p95_us,
        "p99_us": times.p99_us,
        "p999_us": times.quantile(0.999),
        "max_us": times.max_us,
        "cv_percent": times.cv_percent,
        "processes": [{"mean_us": sum(row) / len(row), "max_us": max(row)} if row else None for row in times.processes],
    }


def _finite(value: float | None) -> float | None:
    """Return a number if it is finite, else None: JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def summary(report: Report) -> str:
    """Summarise a report in one line."""
    nodes = f" on {report.nnodes} node{'s' * (report.nnodes != 1)}" if report.nnodes else ""
    over = f" over {report.nranks} ranks{nodes}" if report.nranks else ""
    best = report.best()
    phrases = [f"{report.collective or 'an unnamed collective'}{over}"]
    if report.copies > 1:
        phrases.append(f"{report.copies} separate runs, because the binary was built without MPI")
    if best is not None:
        phrases.append(f"best busbw {best.busbw_gbytes_s:g} GB/s at {best.row.bytes} B")
    if report.out_of_bounds:
        phrases.append(f"{report.out_of_bounds} failed checks of the values")
    if report.failures:
        phrases.append(f"stopped: {report.failures[0].text[:120]}")
    elif not report.finished:
        phrases.append("its end is missing")
    return "; ".join(phrases)


def _cut(report: Report) -> Iterator[ParseGap]:
    for row in report.cut_rows:
        size = f"the row of {row.bytes} B" if row.bytes is not None else "taken out"
        yield ParseGap(row.line, f"{size}: {row.text[:80]}")
    if report.devices and report.nranks is None:
        yield ParseGap(report.first_line, "the list of devices is incomplete")
    if not report.complete and not report.failures:
        yield ParseGap(report.last_line, "the footer is incomplete: the run did not end, or its end was cut off")

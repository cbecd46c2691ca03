"""Checks of nccl-tests runs for wrong values and errors, and shared helpers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.expectations import Site
from preflight.facts.job import RunFacts, report_subjects
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import Row
    from preflight.parsers.nccl_tests.text import Report

PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"

MIB, GIB = 2**20, 2**30


def name_of(key: str) -> str:
    """Return the display name of a log."""
    return key.removeprefix("log:")


def reports(run: RunFacts) -> Iterator[tuple[str, str, Report]]:
    """Yield the record key, display name and report of each nccl-tests run."""
    for key, found in run.nccl_tests.items():
        for subject, report in zip(report_subjects(name_of(key), found), found, strict=True):
            yield key, subject, report


def no_report(run: RunFacts, site: Site) -> Finding | None:
    """Return a finding if no log has an nccl-tests report; checklist items stay open."""
    if not run.logs:
        return unknown("no log was given", fix="pass the output of nccl-tests: --log FILE")
    if not run.nccl_tests:
        return skipped("no nccl-tests report in the logs", evidence=run.logs).about()
    return None


def text_of(run: RunFacts, key: str, *numbers: int) -> str:
    """Return lines of a log with their numbers, at most 600 characters."""
    wanted = sorted(set(numbers))
    lines = run.log(key).text.between((number, number) for number in wanted)
    return "\n".join(f"{number}: {line.rstrip()}" for number, line in zip(wanted, lines, strict=True))[:600]


def size_of(size: int) -> str:
    """Format a number of bytes."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def over(report: Report) -> str:
    """Describe the ranks and nodes of a report."""
    ranks, nodes = report.nranks, report.nnodes
    return f"{ranks} GPUs on {nodes} node{'s' if nodes != 1 else ''}" if ranks else "an unknown number of GPUs"


def so_far(report: Report) -> str:
    """Describe the progress of an unfinished run."""
    best = report.best()
    best_so_far = f", best busbw so far {best.busbw_gbytes_s:g} GB/s" if best else ""
    where = report.cut_rows[-1].bytes if report.cut_rows else None
    return f"{counted(len(report.rows), 'row') if report.rows else 'no row'}{best_so_far}" + (
        f", stopped at {size_of(where)}" if where is not None else ""
    )


def no_measurement(name: str, row: Row) -> str:
    """Describe a row with an invalid time or rate."""
    return f"{name}: the row for {size_of(row.bytes)} is ignored: a time or a rate is negative or not a number"


@check(
    "nccl-tests.wrong-values",
    title="nccl-tests found no wrong value",
    fault="nccl-tests found wrong values",
    impact="blocks-job",
    explains=(("nccl-tests.stopped", "ended"),),
    source=f"{PERFORMANCE}; nccl-tests 2.19.6 src/common.cu",
    fix="Repeat with `-c 1` on halves of the nodes until one remains; then run `preflight check` there.",
    scope="run",
    unless=(no_report,),
)
def wrong_values(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for wrong values in each nccl-tests run.

    ## Why it matters
    A collective that returns wrong numbers corrupts the model at full bandwidth and without an error.

    ## Verdicts
    A single wrong value fails. A run with -c 0 also prints "0 OK" although it validated nothing; it is unknown, as is
    a run that stopped or ended early (`nccl-tests.stopped`), or that has a rate that is negative or not a number.

    ## False alarms
    None known; nccl-tests compares floats within a rounding tolerance.
    """
    for key, name, report in reports(run):
        yield _wrong(run, key, name, report)


#: Number of sizes with wrong values that a message names.
_SHOWN = 8


def _wrong(run: RunFacts, key: str, name: str, report: Report) -> Finding:
    rows, bad = report.rows, report.wrong_rows
    if bad or report.out_of_bounds or report.out_of_bounds_ok is False:
        places = counted(report.out_of_bounds or len(bad), "failed check" if report.out_of_bounds else "row")
        if bad:
            shown = [f"{counted(max(half.wrong or 0 for half in row.halves), 'wrong value')} at {size_of(row.bytes)}"
                     for row in bad[:_SHOWN]]  # fmt: skip
            places += f" ({', '.join(shown)}" + (f" and {len(bad) - _SHOWN} more)" if len(bad) > _SHOWN else ")")
        return failed(
            f"{name}: wrong results: {places}",
            subject=name,
            found=places,
            expected="0",
            evidence=[key],
            quote=text_of(run, key, *(row.line for row in bad[:3])) if bad else "",
        )
    right = ", without a wrong value" if report.rows else ""
    if report.failures:
        when = f"after {so_far(report)}" if report.rows else "before its first row"
        message = f"{name}: the run stopped with an error {when}{right}"
        return unknown(message, subject=name, evidence=[key], fix="see nccl-tests.stopped")
    if not report.complete:
        message = f"{name}: the run did not finish: {so_far(report)}{right}"
        return unknown(message, subject=name, evidence=[key], fix="let it run to completion")
    if not report.validated:
        message = f"{name}: the run did not validate its results, although it printed {report.out_of_bounds} OK"
        return unknown(message, subject=name, evidence=[key], fix="run again with -c 1")
    if row := report.unmeasured:
        return unknown(no_measurement(name, row), subject=name, evidence=[key], quote=text_of(run, key, row.line),
                       fix="run it again")  # fmt: skip
    return passed(f"{name}: no wrong value in {counted(len(rows), 'row')}", subject=name, found="0", evidence=[key])


@check(
    "nccl-tests.stopped",
    title="nccl-tests ran to completion",
    fault="nccl-tests stopped with an error",
    impact="blocks-job",
    source=f"{PERFORMANCE}; nccl-tests 2.19.6 src/common.h (CUDACHECK, NCCLCHECK), common.cu",
    fix="Read the quoted error, and run nccl-tests again on that node alone with NCCL_DEBUG=INFO.",
    scope="run",
    unless=(no_report,),
)
def stopped(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for nccl-tests runs that ended with a CUDA or NCCL error.

    ## Why it matters
    nccl-tests makes the calls that a training job makes, so the job would end with the same error.

    ## Verdicts
    A failed CUDA or NCCL call fails, and so does a timeout of nccl-tests itself (-T); the first message is shown. A run
    whose output ends before the summary is unknown: it may still be running, or its output was truncated.

    ## False alarms
    A cancelled run: it has no error of its own and is unknown, but its other processes may report a lost peer.
    """
    for key, name, report in reports(run):
        yield _stopped(run, key, name, report)


def _stopped(run: RunFacts, key: str, name: str, report: Report) -> Finding:
    if report.failures:
        first = report.failures[0]
        return failed(
            f"{name}: the run stopped with an error: {first.text[:200]}",
            subject=name,
            found=f"{so_far(report)}, then an error",
            expected="a complete run",
            evidence=[key],
            why="A training job would have failed with the same error.",
            quote=text_of(run, key, first.line),
        )
    if not report.complete:
        return unknown(f"{name}: the output ends before the summary: {so_far(report)}", subject=name, evidence=[key],
                       fix="let it run to completion, and pass its complete output")  # fmt: skip
    return passed(
        f"{name}: the run is complete, with {counted(len(report.rows), 'row')}",
        subject=name,
        found="complete",
        evidence=[key],
    )

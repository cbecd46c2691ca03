"""``preflight trace``: how a training job spends its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.collect.request import Collected
from preflight.commands import options
from preflight.facts.job import RunFacts
from preflight.facts.trace.purposes import PURPOSES
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_file
from preflight.run.request import new_request
from preflight.run.saved_evidence import read_logs
from preflight.run.trace_folder import trace_files
from preflight.terminal import UsageError, print_text, write_or_report

if TYPE_CHECKING:
    from preflight.facts.trace.job import JobTrace


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, required=True, type=options.file_path, metavar="FILE|DIR...")
@options.cluster
@click.option("--group", "only", type=click.Choice(PURPOSES), metavar="KIND",
              help="Show waiting in these process groups: tp, dp, pp, ep, cp.")  # fmt: skip
@click.option("--html", "html_file", type=options.file_path, metavar="F",
              help="Write one HTML page, with the longest step as a picture.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def trace(
    paths: tuple[Path, ...], cluster: Path | None, only: str | None, html_file: Path | None, as_json: bool
) -> int:
    """Show how a training job spends its steps.

    Takes traces of PyTorch's profiler, one for each rank, and dumps of its flight recorder; also the text of `ncclras`,
    and of `py-spy dump` for each rank.

    \b
    Example: preflight trace traces/
             preflight trace traces/ --html steps.html
             preflight trace rank0.json.gz rank1.json.gz --group tp
    Exit:    0 passed, 1 failed, 3 unknown, 2 usage or configuration
    \f

    The findings are those of `preflight check --log`. The first line states how a step's time is spent, and which rank
    its peers wait for. The page shows the longest step of all ranks on one clock.
    """
    from preflight.reports import trace_text

    files = tuple(trace_files(paths))
    run = read_logs(files)
    request = new_request("trace", cluster, only=("torch.*", "nccl.ras"))
    report = judge_run(request, Collected((), run))
    assert run is not None
    status = int(report["exit_status"])
    facts = RunFacts(run)
    job = facts.job_trace if facts.traces else None
    groups = _of_groups(job, only, report) if only else ()
    if as_json:
        print_text(json.dumps(report, indent=1) + "\n")
    else:
        print_text(trace_text.render(facts.traces, job, report["findings"], groups, files))
    if html_file:
        from preflight.reports.html_page import render

        page = render(report)
        if not write_or_report(lambda: write_file(html_file, page), html_file):
            return status or 3
    return status


def _of_groups(job: JobTrace | None, only: str, report: dict[str, object]) -> list[str]:
    """Return lines on one kind of process group, and add its timelines to the report.

    Raises UsageError if the traces show no such group.
    """
    from preflight.facts.trace.purposes import purpose
    from preflight.facts.trace.timeline import group_waits, timelines

    if job is None or not (lines := group_waits(job, only)):
        kinds = dict.fromkeys(kind for group in job.waits.groups if (kind := purpose(group))) if job else {}
        present = f"they have {', '.join(kinds)}" if kinds else "no collectives were matched across ranks"
        raise UsageError(f"--group {only}: the traces show no such group; {present}")
    report["timelines"] = timelines(job, only)
    return lines

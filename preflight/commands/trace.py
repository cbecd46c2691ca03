"""``preflight trace``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from preflight.collect.request import Collected
from preflight.commands import options
from preflight.facts.job import RunFacts
from preflight.run.judge_run import judge_run
from preflight.run.request import new_request
from preflight.run.saved_evidence import read_logs
from preflight.run.trace_folder import trace_files
from preflight.terminal import print_text


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, required=True, type=options.file_path, metavar="FILE|DIR...")
@options.cluster
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def trace(paths: tuple[Path, ...], cluster: Path | None, as_json: bool) -> int:
    """Show how a training job spends its steps.

    Takes traces of PyTorch's profiler, one for each rank, and dumps of its flight recorder.

    \b
    Example: preflight trace traces/
             preflight trace rank0.json.gz rank1.json.gz
    Exit:    1 a finding fails; else as check
    \f

    The findings are those of `preflight check --log`. The first line states how a step's time is spent, and which rank
    its peers wait for.
    """
    from preflight.reports import trace_text

    run = read_logs(tuple(trace_files(paths)))
    request = new_request("trace", cluster, only=("torch.*",))
    report = judge_run(request, Collected((), run))
    if as_json:
        print_text(json.dumps(report, indent=1) + "\n")
    else:
        assert run is not None
        facts = RunFacts(run)
        print_text(trace_text.render(facts.traces, facts.job_trace if facts.traces else None, report["findings"]))
    # in `check`, a past job's failure does not block new jobs; here it is the result
    failed = any(finding["status"] == "fail" for finding in report["findings"])
    return 1 if failed else int(report["exit_status"])

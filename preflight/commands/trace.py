"""``preflight trace``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click

from preflight.collect.request import Collected
from preflight.commands import options
from preflight.facts.job import RunFacts
from preflight.run.judge_run import judge_run
from preflight.run.request import new_request
from preflight.run.saved_evidence import read_logs
from preflight.terminal import UsageError, print_text

#: Maximum number of files read, and name patterns of traces and dumps.
_MOST_FILES = 4096
_SUFFIXES = (".json", ".json.gz", ".pickle")
_DUMP = "nccl_trace_rank_"


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

    run = read_logs(tuple(_files(paths)))
    request = new_request("trace", cluster, only=("torch.*",))
    report = judge_run(request, Collected((), run))
    if as_json:
        print_text(json.dumps(report, indent=1) + "\n")
    else:
        assert run is not None
        facts = RunFacts(run)
        print_text(trace_text.render(facts.traces, facts.job_trace if facts.traces else None, report["findings"]))
    # a past job's failure holds no new job back in `check`, but here it is the result
    failed = any(finding["status"] == "fail" for finding in report["findings"])
    return 1 if failed else int(report["exit_status"])


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the files, and traces and dumps in folders; raises UsageError."""
    count = 0
    for path in paths:
        if not path.is_dir():
            yield path
            count += 1
            continue
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        chosen = [name for name in names if name.endswith(_SUFFIXES) or _DUMP in name]
        if not chosen:
            raise UsageError(f"{path}: no trace or dump in it (*.json, *.json.gz, *.pickle, {_DUMP}N)")
        for name in chosen:
            count += 1
            yield path / name
    if count > _MOST_FILES:
        raise UsageError(f"{count} files; at most {_MOST_FILES} are read")

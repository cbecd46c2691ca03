"""``preflight diff``: comparison of two saved runs or two jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands import options
from preflight.run.cluster_discovery import choose_cluster
from preflight.run.request import new_request
from preflight.terminal import UsageError, print_text, progress

if TYPE_CHECKING:
    from preflight.facts.job import RunFacts


#: Number of bytes read at the start of a file to recognise a trace.
_HEAD = 1 << 16


@click.command(cls=options.ShortHelp)
@click.argument("before", type=options.file_path, metavar="BEFORE")
@click.argument("after", type=options.file_path, metavar="AFTER")
@options.cluster
@options.selection
@click.option("--json", "as_json", is_flag=True, help="Print the difference as JSON.")
def diff(
    before: Path, after: Path, cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...], as_json: bool
) -> int:
    """Compare two saved runs, or two jobs.

    A run is evidence (--save DIR) or a report (--json FILE); a job is a trace, a folder of traces, or a log with step
    times: a step that takes 5% longer is worse.

    \b
    Example: preflight diff good-run/ last-night/
             preflight diff traces-before/ traces-after/
    Exit:    0 nothing got worse, 1 something did, 3 unknown, 2 usage
    """
    from preflight.diff import SnapshotError, compare, load, render
    from preflight.diff.jobs import compare_jobs, render_jobs

    jobs = [load_job(path) for path in (before, after)]
    if jobs[0] is not None and jobs[1] is not None:
        of_jobs = compare_jobs(jobs[0], jobs[1])
        print_text(json.dumps(of_jobs, indent=1) + "\n" if as_json else render_jobs(of_jobs))
        return int(of_jobs["exit_status"])
    if jobs[0] is not None or jobs[1] is not None:
        raise UsageError("only one of the two is a trace or a job's log")
    request = new_request("diff", choose_cluster(cluster, [after], [before]).path, only=only, skip=skip)
    sides = []
    for path in (before, after):
        try:
            with progress(f"judging {path}"):
                sides.append(load(path, request.checks, request.cluster, os.cpu_count() or 1))
        except SnapshotError as error:
            raise UsageError(str(error)) from None
    comparison = compare(*sides)
    print_text(json.dumps(comparison, indent=1) + "\n" if as_json else render(comparison))
    return int(comparison["exit_status"])


def load_job(path: Path) -> RunFacts | None:
    """Return the facts of a trace, a folder of traces or a job's log, else None."""
    from preflight.facts.job import RunFacts
    from preflight.parsers import torch
    from preflight.run.saved_evidence import read_logs
    from preflight.run.trace_folder import trace_files

    if path.is_dir():
        first = next((name for name in sorted(path.iterdir()) if name.name.endswith((".json", ".json.gz"))), None)
        if first is None or not torch.begins(_begun(first)):
            return None
        run = read_logs(tuple(trace_files((path,))))
    elif path.is_file() and (torch.begins(begun := _begun(path)) or _is_text(begun)):
        run = read_logs((path,))
    else:
        return None
    facts = RunFacts(run) if run is not None else None
    return facts if facts is not None and (facts.traces or facts.training) else None


def _is_text(begun: str) -> bool:
    """Return whether the start of a file may be a log: it has lines and is not JSON."""
    is_json = begun[:1] + begun[1:].lstrip()[:1] in ('{"', "{}", "[{", "[[", '["', "[]")
    return "\n" in begun and not is_json


def _begun(path: Path) -> str:
    """Return the start of a file, decompressed; empty if it cannot be read."""
    import gzip

    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            data = (gzip.GzipFile(fileobj=stream) if packed else stream).read(_HEAD)
    except (OSError, EOFError, ValueError):
        return ""
    return data.decode("utf-8", "replace").lstrip()

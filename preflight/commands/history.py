"""``preflight history``: findings of earlier runs, and durations of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.commands import options
from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from preflight.history import HistoryStore


@click.group()
def history() -> None:
    """List earlier runs (check --history FILE) and job times.

    \b
    Example: preflight history runs history.db
             preflight history node history.db gpu003
    """


_file = click.argument("file", type=options.file_path, metavar="FILE")
_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")


@history.command()
@_file
@_json
def runs(file: Path, as_json: bool) -> None:
    """List the runs, newest first."""
    with _opened(file) as store:
        recorded = store.runs()
    entries = [
        {"at": run.at, "command": run.command, "version": run.version, "exit_status": run.exit_status,
         "record": run.record}
        for run in recorded
    ]  # fmt: skip
    words = {0: "passed", 1: "failed", 3: "unknown"}
    rows = [(run.at, run.command, run.version, words.get(run.exit_status, str(run.exit_status))) for run in recorded]
    _print_rows(entries, as_json, ("at", "command", "version", "verdict"), rows)


@history.command()
@_file
@click.argument("name", metavar="NODE")
@_json
def node(file: Path, name: str, as_json: bool) -> None:
    """List what did not pass on a node, newest first."""
    from preflight.reports.sanitize import visible

    keys = ("at", "check", "subject", "status", "message")
    with _opened(file) as store:
        rows = store.findings_of(name)
        answered = store.answered([run.id for run in store.runs()])
    if not rows:  # a missing finding is not a pass
        times = sum(name in names for names in answered.values())
        print_text(
            f"{visible(name)}: answered in {times} of {len(answered)} runs; the history has no finding on it\n",
            sys.stderr,
        )
    _print_rows([dict(zip(keys, row, strict=True)) for row in rows], as_json, keys, rows)


@history.command()
@_file
@click.argument("what", default="%", metavar="[BENCHMARK]")
@_json
def figures(file: Path, what: str, as_json: bool) -> None:
    """List benchmark results, newest first.

    In BENCHMARK, % matches any text.
    """
    keys = ("at", "what", "subject", "value", "unit")
    with _opened(file) as store:
        rows = store.figures(what)
    _print_rows([dict(zip(keys, row, strict=True)) for row in rows], as_json, keys, rows)


@history.command()
@_file
@click.argument("id", metavar="ID")
@click.option("--seconds", type=click.FloatRange(0), required=True, metavar="S", help="How long it took.")
@click.option("--name", required=True, metavar="NAME", help="Jobs with the same name are compared.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes.")
@click.option("--outcome", default="completed", metavar="WORD", help="completed (default), failed, timeout, …")
def job(file: Path, id: str, seconds: float, name: str, nodes: int | None, outcome: str) -> None:
    """Record how long a job took, for example in an epilog.

    \b
    Example: preflight history job history.db 4711 --seconds 5400 --name llama
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with _opened(file, make=True) as store:
        store.add_job(id, now, seconds, nodes, name, outcome)


@history.command()
@_file
@_json
def jobs(file: Path, as_json: bool) -> None:
    """List jobs and their times, newest first.

    Each is compared with the median of completed jobs with the same name and number of nodes.
    """
    from statistics import median

    with _opened(file) as store:
        rows = store.jobs()
    usual: dict[tuple[str, int | None], list[float]] = {}
    for _, _, seconds, nodes, name, outcome in rows:
        if outcome == "completed":
            usual.setdefault((name, nodes), []).append(seconds)
    keys = ("id", "ended", "seconds", "nodes", "name", "outcome", "of_usual")
    table = []
    for id, ended, seconds, nodes, name, outcome in rows:
        others = usual.get((name, nodes), [])
        share = round(seconds / median(others), 3) if len(others) > 2 and median(others) else None
        table.append((id, ended, seconds, nodes, name, outcome, share))
    _print_rows([dict(zip(keys, row, strict=True)) for row in table], as_json, keys, table)


@contextmanager
def _opened(file: Path, *, make: bool = False) -> Iterator[HistoryStore]:
    """Open a history; with ``make``, create a missing one. Raises UsageError."""
    from preflight.history import HistoryError, HistoryStore

    if not make and not file.exists():
        raise UsageError(f"{file}: history not found; `preflight check --history {file}` creates one")
    try:
        with HistoryStore(file) as store:
            yield store
    except HistoryError as error:
        raise UsageError(str(error)) from None


def _print_rows(entries: list[Any], as_json: bool, keys: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    from preflight.reports.sanitize import one_line

    if as_json:
        print_text(json.dumps(entries, indent=1) + "\n")
        return
    lines = [
        [str(key) for key in keys],
        *([one_line("" if cell is None else str(cell)) for cell in row] for row in rows),
    ]
    widths = [min(max(len(line[place]) for line in lines), 60) for place in range(len(lines[0]))]
    for line in lines:
        print_text("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")

"""``preflight diff``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from preflight.commands import options
from preflight.run.cluster_discovery import choose_cluster
from preflight.run.request import new_request
from preflight.terminal import UsageError, print_text, progress


@click.command(cls=options.ShortHelp)
@click.argument("before", type=options.file_path, metavar="BEFORE")
@click.argument("after", type=options.file_path, metavar="AFTER")
@options.cluster
@options.selection
@click.option("--json", "as_json", is_flag=True, help="Print the difference as JSON.")
def diff(
    before: Path, after: Path, cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...], as_json: bool
) -> int:
    """Compare two saved runs.

    Each is evidence (--save DIR) or a report (--json FILE).

    \b
    Example: preflight diff good-run/ last-night/
    Exit:    0 nothing got worse, 1 something did, 3 unknown, 2 usage
    """
    from preflight.diff import SnapshotError, compare, load, render

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

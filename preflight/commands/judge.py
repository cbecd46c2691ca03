"""``preflight judge`` and ``preflight demo``: evidence that was saved before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from preflight.commands import options
from preflight.session import Session, load_evidence, read_logs


@click.command(cls=options.Compact)
@click.argument("paths", nargs=-1, required=True, type=options.file_path, metavar="FILE|DIR...")
@options.cluster
@options.selection
@options.log
@options.outputs
def judge(
    paths: tuple[Path, ...], cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...],
    logs: tuple[Path, ...], **outputs: Any,
) -> None:  # fmt: skip
    """Judge evidence that was saved before; no node is asked.

    \b
    Example: preflight judge evidence/ --cluster cluster.toml --html report.html
    Exit:    as check
    """
    session = Session("judge", cluster, only, skip, outputs)
    evidences, run = load_evidence(paths)
    session.finish(evidences, read_logs(logs) or run)


@click.command(cls=options.Compact)
@options.outputs
def demo(**outputs: Any) -> None:
    """Judge a sick cluster that ships with preflight; no node is asked.

    The evidence is a recording made by hand: eight nodes in the documented formats of each tool.

    \b
    Example: preflight demo --html demo.html
    """
    from importlib.resources import as_file, files

    with as_file(files("preflight.demo")) as folder:
        session = Session("demo", folder / "cluster.toml", (), (), outputs)
        evidences, _ = load_evidence(sorted(folder.glob("gpu*.json")))
        session.finish(evidences, read_logs((folder / "job.log",)))

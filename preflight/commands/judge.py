"""``preflight judge`` and ``preflight demo``: evidence that was saved before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from preflight.commands import options
from preflight.run.setup import Session, load_evidence, read_logs, saved_cluster


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
    session = Session("judge", cluster or saved_cluster(paths), only, skip, outputs)
    evidences, run = load_evidence(paths)
    session.write_outputs_and_exit(evidences, read_logs(logs) or run)


@contextmanager
def _cluster_of_the_demo() -> Iterator[Path]:
    """Yield the demo's folder. From inside an archive a copy: ``as_file`` takes folders since Python 3.12 only."""
    from importlib.resources import files

    where = files("preflight.demo")
    if isinstance(where, Path):
        yield where
        return
    with TemporaryDirectory(prefix="preflight-demo-") as folder:
        for entry in where.iterdir():
            if entry.is_file():
                (Path(folder) / entry.name).write_bytes(entry.read_bytes())
        yield Path(folder)


@click.command(cls=options.Compact)
@options.outputs
def demo(**outputs: Any) -> None:
    """Judge a sick cluster that ships with preflight; no node is asked.

    The evidence is a recording made by hand: eight nodes in the documented formats of each tool.

    \b
    Example: preflight demo --html demo.html
    """
    with _cluster_of_the_demo() as folder:
        session = Session("demo", folder / "cluster.toml", (), (), outputs)
        evidences, _ = load_evidence(sorted(folder.glob("gpu*.json")))
        session.write_outputs_and_exit(evidences, read_logs((folder / "job.log",)))

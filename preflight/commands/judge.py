"""``preflight judge`` and ``preflight demo``: judge saved evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from preflight._startup.lightclass import replace
from preflight.collect.request import Collected
from preflight.commands import options
from preflight.run.cluster_discovery import choose_cluster
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_outputs
from preflight.run.request import RunRequest, from_arguments
from preflight.run.saved_evidence import (
    CAMPAIGN_CHECKS,
    campaign_of,
    is_text,
    load_evidence,
    log_folders,
    read_logs,
    with_switches,
)
from preflight.terminal import UsageError


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, type=options.file_path, metavar="FILE|DIR...")
@options.cluster
@options.selection
@options.log
@click.option(
    "--switch-files",
    multiple=True,
    type=options.file_path,
    metavar="FILE|DIR",
    help="SONiC techsupport or databases, EOS sessions.",
)
@options.outputs
def judge(paths: tuple[Path, ...], cluster: Path | None, switch_files: tuple[Path, ...], **arguments: Any) -> int:
    """Judge saved evidence, or a folder of nccl-tests results.

    \b
    Example: preflight judge evidence/ --cluster cluster.toml --html report.html
             preflight judge pairs/ --html pairs.html
             preflight judge evidence/ --switch-files switches/
             preflight judge campaign/              (of preflight bench)
    Exit:    as check
    """
    if not paths and not switch_files:
        if (taken := arguments["json_file"]) not in (None, "-"):
            raise UsageError(f"--json takes {taken} as the file to write: put --json last, or write --json -")
        raise click.MissingParameter(ctx=click.get_current_context(), param_type="argument", param_hint="'FILE|DIR...'")
    for text in filter(is_text, paths):
        raise UsageError(
            f"{text} is not evidence: judge takes documents of `preflight collect`, bundles, folders of them or of "
            f"nccl-tests results, and campaigns; for pasted tool output and logs, use `preflight read {text}`"
        )
    path, origin = choose_cluster(cluster, paths)
    if (run := campaign_of(paths)) is not None:
        if not (arguments["only"] or arguments["skip"]):
            arguments["only"] = CAMPAIGN_CHECKS
        collected = Collected((), run)
        request = from_arguments("judge", path, {**arguments, "cluster_origin": origin})
        return write_outputs(request, judge_run(request, collected), collected)
    return _judge(from_arguments("judge", path, {**arguments, "cluster_origin": origin}), paths, switch_files)


def _judge(request: RunRequest, paths: Sequence[Path], switch_files: Sequence[Path] = ()) -> int:
    """Judge saved documents and write the outputs; return the exit status."""
    evidence, logs = log_folders(paths)
    saved = with_switches(load_evidence(evidence), switch_files)
    collected = replace(saved, run=read_logs((*request.logs, *logs)) or saved.run)
    return write_outputs(request, judge_run(request, collected), collected)


@contextmanager
def _cluster_of_the_demo() -> Iterator[Path]:
    """Yield the demo's folder, or a copy of it if preflight runs from an archive.

    ``as_file`` accepts folders only from Python 3.12 on.
    """
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


@click.command(cls=options.ShortHelp)
@options.outputs
def demo(**outputs: Any) -> int:
    """Judge an example cluster with faults.

    The evidence of its eight nodes is synthetic: it imitates the documented output of each tool.

    \b
    Example: preflight demo --html demo.html
    """
    with _cluster_of_the_demo() as folder:
        request = from_arguments("demo", folder / "cluster.toml", {**outputs, "logs": (folder / "job.log",)})
        return _judge(request, sorted(folder.glob("gpu*.json")))

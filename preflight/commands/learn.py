"""``preflight learn``: a cluster file with the values of existing nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.archive.directory import STDOUT
from preflight.commands import options
from preflight.model import counted
from preflight.run.outputs import write_file
from preflight.run.request import from_arguments
from preflight.run.saved_evidence import load_evidence
from preflight.terminal import UsageError, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preflight.evidence.document import Evidence
    from preflight.run.request import RunRequest


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, type=options.file_path, metavar="[FILE|DIR]...")
@options.targets
@options.collecting
@click.option(
    "--from",
    "source",
    type=options.file_path,
    metavar="FILE",
    help="Convert a configuration of NHC or gcm instead.",
)
@click.option("--save", type=options.file_path, metavar="DIR", help="Keep the evidence: DIR/NODE.json for each node.")
@click.option(
    "-o", "--output", type=options.file_path, default=STDOUT, metavar="F",
    help="File to write instead of standard output.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing file.")
def learn(
    paths: tuple[Path, ...], output: Path, force: bool, save: Path | None, source: Path | None, **arguments: Any
) -> int:
    """Write a cluster file with the values of the nodes.

    \b
    Example: preflight learn --hosts 'gpu[001-064]' -o cluster.toml
             preflight learn evidence/ -o cluster.toml
             preflight learn --from nhc.conf -o cluster.toml
    Exit:    0 written, 1 written with gaps, 2 usage, 3 nothing learnt
    \f

    Writes the values of most nodes, each with its origin; leaves out values below the part's specification. --from
    converts a file and contacts no node. The exit status is 1 if a value was not learnt, or is faulty on many nodes.
    """
    from preflight.learn import LearnError
    from preflight.learn import learn as learn_from
    from preflight.reports.sanitize import fold, one_line

    if output != STDOUT and output.exists() and not force:
        raise UsageError(f"{output} already exists: review it, or replace it with --force")
    request = from_arguments("learn", None, {**arguments, "save": save})
    if source is not None:
        if paths or save or request.targets.selector:
            raise UsageError("--from converts a file and cannot be used with evidence, --save or --pods")
        return _convert(source, output, request.targets.nodes(request.options) if request.targets.named else ())
    evidences = _evidences(paths, request)
    with progress(f"learning from {counted(len(evidences), 'node')}"):
        try:
            found = learn_from(evidences, request.checks, os.cpu_count() or 1)
        except LearnError as error:
            click.echo(f"preflight: {error}", err=True)
            return 3
    _write(output, found.text)
    aside = output == STDOUT  # standard output contains only the file
    target = "" if aside else f"{output}: "
    click.echo(f"{target}{counted(found.classes, 'class')} from {counted(found.nodes, 'node')}", err=aside)
    for fault in found.systemic:
        click.echo(
            f"SYSTEMIC: {fault.check} {fault.status}s on {len(fault.nodes)} of {fault.of} nodes of class "
            f"{fault.class_name}: {one_line(fault.message)[:200]}",
            err=aside,
        )
    for refused in found.refused:
        click.echo(f"not learnt: {one_line(refused)[:300]}", err=aside)
    if found.odd:
        click.echo(f"with this file, these nodes fail or warn: {fold(found.odd)}", err=aside)
    return 1 if found.systemic or found.refused else 0


def _convert(source: Path, output: Path, hosts: tuple[str, ...]) -> int:
    """Convert another tool's configuration; return the exit status."""
    from preflight.evidence import safe_read
    from preflight.learn.conversion import ConversionError, convert
    from preflight.reports.sanitize import one_line

    try:
        made = convert(safe_read.content(source, safe_read.BY_HAND), source.name, hosts)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None
    except ConversionError as error:
        raise UsageError(one_line(str(error))) from None
    if made.text:
        _write(output, made.text)
        classes = "1 class" if made.classes == 1 else f"{made.classes} classes"
        click.echo(f"{output}: {classes} from {one_line(str(source))} ({made.kind})", err=output == STDOUT)
    for line in made.lost:
        click.echo(f"not converted: {one_line(line)}", err=True)
    for line in made.covered:
        click.echo(f"judged without a key: {one_line(line)}", err=True)
    if not made.text:
        click.echo(f"preflight: no setting of {one_line(str(source))} ({made.kind}) has a counterpart", err=True)
        return 3
    return 1 if made.lost else 0


def _write(output: Path, text: str) -> None:
    try:
        write_file(output, text)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None


def _evidences(paths: Sequence[Path], request: RunRequest) -> Sequence[Evidence]:
    """Read saved evidence, or collect from the named nodes; raises UsageError."""
    named = request.targets.named
    if paths:
        if named:
            raise UsageError("specify saved evidence or nodes to collect from, not both")
        return load_evidence(paths).evidences
    from preflight.collect import fleet

    if not named:
        raise UsageError("specify the nodes to learn from: --hosts 'gpu[001-064]', or a folder of saved evidence")
    return fleet.collect(request.collection(request.targets.nodes(request.options))).evidences

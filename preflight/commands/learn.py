"""``preflight learn``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.archive.directory import STDOUT
from preflight.commands import options
from preflight.run.setup import Session, load_evidence, write_file
from preflight.terminal import UsageError, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preflight.evidence.document import Evidence


@click.command(cls=options.Compact)
@click.argument("paths", nargs=-1, type=options.file_path, metavar="[FILE|DIR]...")
@options.targets
@options.collecting
@click.option("--save", type=options.file_path, metavar="DIR", help="Keep the evidence: DIR/NODE.json.")
@click.option("-o", "output", required=True, type=options.file_path, metavar="CLUSTER.TOML")
@click.option("--force", is_flag=True, help="The file to write; replace one that is there.")
def learn(paths: tuple[Path, ...], output: Path, force: bool, save: Path | None, **arguments: Any) -> None:
    """Write a cluster file from what a fleet has, asked now or saved before.

    Values of the majority are written, each with where it came from; what is below the part's own figures is not.

    \b
    Example: preflight learn --hosts 'gpu[001-064]' -o cluster.toml
             preflight learn evidence/ -o cluster.toml
    Exit:    0 written, 1 written but something was not learnt or is sick on many nodes, 2 usage, 3 nothing learnt
    """
    from preflight.learn import LearnError
    from preflight.learn import learn as learn_from
    from preflight.reports.sanitize import fold, one_line

    if output != STDOUT and output.exists() and not force:
        raise UsageError(f"{output} exists already: read it first, or replace it with --force")
    session = Session("learn", None, (), (), {"save": save, "json_file": None})
    evidences = _evidences(paths, session, arguments)
    with progress(f"learning from {len(evidences)} nodes"):
        try:
            found = learn_from(evidences, session.checks, os.cpu_count() or 1)
        except LearnError as error:
            click.echo(f"preflight: {error}", err=True)
            sys.exit(3)
    try:
        write_file(output, found.text)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None
    classes = "1 class" if found.classes == 1 else f"{found.classes} classes"
    aside = output == STDOUT  # standard output is for the file alone
    click.echo(f"{output}: {classes} from {found.nodes} nodes", err=aside)
    for fault in found.systemic:
        click.echo(
            f"SYSTEMIC: {fault.check} {fault.status}s on {len(fault.nodes)} of {fault.of} nodes of class "
            f"{fault.class_name}: {one_line(fault.message)[:200]}",
            err=aside,
        )
    for refused in found.refused:
        click.echo(f"not learnt: {one_line(refused)[:300]}", err=aside)
    if found.odd:
        click.echo(f"by this file, these nodes fail or warn: {fold(found.odd)}", err=aside)
    sys.exit(1 if found.systemic or found.refused else 0)


def _evidences(paths: Sequence[Path], session: Session, collected: dict[str, Any]) -> Sequence[Evidence]:
    """Read saved evidence, or collect from the nodes that are named."""
    names = {name: collected.pop(name, None) for name in ("hosts", "hostfile", "job", "rerun", "selector")}
    if paths:
        if any(names.values()):
            raise UsageError("give evidence that was saved, or nodes to ask, not both")
        return load_evidence(paths)[0]
    from preflight._startup.lightclass import fields
    from preflight.collect.options import CollectOptions
    from preflight.run.fleet import fleet, targets

    if not any(names.values()):
        raise UsageError("name the nodes to learn from: --hosts 'gpu[001-064]', or a folder of saved evidence")
    known = {one.name: collected.pop(one.name) for one in fields(CollectOptions) if one.name in collected}
    collect_options = CollectOptions(**known, job=names["job"])
    hosts = targets(names["hosts"], names["hostfile"], names["job"], names["rerun"], names["selector"], collect_options)
    return fleet(hosts, session, collect_options)

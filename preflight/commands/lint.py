"""``preflight lint``: validation of a cluster file, and a test on evidence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands import options
from preflight.run.request import report_broken
from preflight.run.saved_evidence import load_evidence
from preflight.terminal import UsageError, progress

if TYPE_CHECKING:
    from preflight.evidence.document import Evidence
    from preflight.expectations.catalogue import Part


@click.command(cls=options.ShortHelp)
@click.argument("file", type=options.file_path, metavar="CLUSTER.TOML")
@click.argument("paths", nargs=-1, type=options.file_path, metavar="[FILE|DIR]...")
@click.option("--explain", "key", metavar="KEY", help="Print the origin of a value, such as ports.mtu.")
def lint(file: Path, paths: tuple[Path, ...], key: str | None) -> None:
    """Validate a cluster file, and test it on saved evidence.

    \b
    Example: preflight lint cluster.toml evidence/
             preflight lint cluster.toml --explain ports.rate_gbps
    Exit:    0 valid, 2 not valid
    \f

    The exit status refers to the file, not to the nodes in the evidence.
    """
    from preflight.checks import registry
    from preflight.expectations.cluster_file import ClusterFileError, load
    from preflight.lint import UnknownKey, explain, preview, summary
    from preflight.reports.sanitize import one_line

    known = registry()
    report_broken(known)
    try:
        cluster = load(file, known.ids, datetime.now(timezone.utc).date())
    except ClusterFileError as error:
        raise UsageError(str(error)) from None
    evidences = load_evidence(paths).evidences if paths else []
    if key is not None:
        text = file.read_text(encoding="utf-8")
        try:
            for line in explain(cluster, text, key, _part(evidences)):
                click.echo(one_line(line))
        except UnknownKey as error:
            raise UsageError(one_line(str(error))) from None
        return
    click.echo(f"{file}: valid")
    for line in summary(cluster):
        click.echo(one_line(line))
    if evidences:
        with progress(f"testing it on {len(evidences)} nodes"):
            lines = list(preview(evidences, known.checks, cluster, os.cpu_count() or 1))
        for line in lines:
            click.echo(one_line(line))


def _part(evidences: Sequence[Evidence]) -> Part | None:
    """Return the part recognised on all nodes; None if the nodes differ."""
    from preflight.evidence.document import EvidenceError
    from preflight.expectations.catalogue import recognise
    from preflight.facts.node import NodeFacts

    found = set()
    for evidence in evidences:
        try:
            found.add(recognise(NodeFacts(evidence).pci))
        except EvidenceError:
            continue
    return found.pop() if len(found) == 1 else None

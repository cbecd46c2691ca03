"""``preflight read``."""

from __future__ import annotations

import json
import sys

import click

from preflight.terminal import UsageError, progress, screen


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="FILE|-...")
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON (preflight.read/1).")
def read(names: tuple[str, ...], as_json: bool) -> None:
    """Recognise and judge whatever was pasted: tool output, logs, alone or mixed.

    \b
    Example: nvidia-smi topo -m | preflight read -
             preflight read slurm-4711.out ibstat.txt
    Exit:    0 all judged, none failed; 1 failed; 3 not recognised, not judged or unknown; 2 a file cannot be read
    """
    from preflight import recognition

    found = []
    try:
        for source in recognition.open_sources(names):
            with progress(f"reading {source.name}"):
                found.append((source.name, recognition.read(source)))
    except recognition.SourceError as error:
        raise UsageError(str(error)) from None
    document = recognition.document(found)
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        from preflight.reports.recognition_text import render

        terminal, width = screen()
        click.echo(render(document, ", ".join(recognition.known()), colour=terminal, width=width), nl=False)
    sys.exit(recognition.exit_status(found))

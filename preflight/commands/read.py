"""``preflight read``: recognition and judgement of pasted text."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click

from preflight.terminal import UsageError, progress, screen

#: Number of JSON fragments, of a few characters each, that are written at once.
_PIECES = 10_000


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="FILE|DIR|-...")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--format", "layout", type=click.Choice(("text", "md", "json")), default="text",
              help="Text, Markdown for a ticket, or JSON.")  # fmt: skip
def read(names: tuple[str, ...], as_json: bool, layout: str) -> int:
    """Recognise and judge pasted text: tool output and logs.

    \b
    Example: nvidia-smi topo -m | preflight read -
             preflight read slurm-4711.out ibstat.txt
             preflight read pairs/
             preflight read --format md slurm-4711.out
    Exit:    0 passed, 1 failed, 3 unknown, 2 a file cannot be read

    Formats: outputs of NVIDIA, AMD, InfiniBand, Ethernet, host, Kubernetes and Slurm tools; logs of NCCL, PyTorch and
    other training and serving programs. The manual's page "Read pasted text" lists them.
    \f

    The exit status is also 3 if a part is not recognised or not judged; the first line names it.
    """
    from preflight import recognition

    found = []
    guesses = {}
    reports, unread = {}, {}
    leaves: dict[str, str] = {}
    try:
        for source in recognition.open_sources(names):
            with progress(f"reading {source.name}"):
                found.append((source.name, recognition.read(source)))
                reports[source.name] = recognition.reports_of(source, found[-1][1])
                leaves |= recognition.leaves_of(found[-1][1])
                unread[source.name] = tuple(source.unread)
                if not found[-1][1]:
                    guesses[source.name] = recognition.guess(source.text.text)
    except recognition.SourceError as error:
        raise UsageError(str(error)) from None
    recognition.compare_files(found)
    compared = recognition.across(reports, leaves)
    document = recognition.document(found, guesses, compared, unread)
    if as_json or layout == "json":
        _print_json(document)
    elif layout == "md":
        from preflight.reports.recognition_answer import markdown
        from preflight.reports.recognition_text import not_judged

        click.echo(markdown(document, not_judged(document)), nl=False)
    else:
        from preflight.reports.recognition_text import render

        terminal, width = screen()
        click.echo(render(document, colour=terminal, width=width), nl=False)
        if compared:
            from preflight.reports.pair_map_text import render as render_map

            click.echo("".join(map(render_map, compared.pictures)), nl=False)
    return recognition.exit_status(found, compared, unread)


def _print_json(document: dict[str, Any]) -> None:
    """Print a document in chunks.

    As one string, a document with a long list of ports would take 100 MiB.
    """
    pieces = json.JSONEncoder(indent=1).iterencode(document)
    while text := "".join(islice(pieces, _PIECES)):
        click.echo(text, nl=False)
    click.echo()

"""``preflight collect``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from preflight.commands import options
from preflight.run.setup import writable, write_file
from preflight.terminal import UsageError


@click.command(cls=options.Compact)
@click.option(
    "-o", "--output", type=options.file_path, metavar="FILE", help="Write to FILE instead of standard output."
)
@click.option("--node", metavar="NAME", help="Call this node so, instead of by its host name: in a pod.")
@options.collecting
def collect(
    output: Path | None, node: str | None, deadline_s: float | None, sudo: bool, fabric: bool, window_s: float | None
) -> None:
    """Ask this node and print its evidence, unjudged.

    \b
    Example: preflight collect -o node.json
             preflight judge node.json          later, anywhere
    """
    from preflight.checks import registry
    from preflight.collect.options import CollectOptions
    from preflight.run.local import this_node

    writable(output)
    collect_options = CollectOptions(deadline_s, sudo, fabric=fabric, window_s=window_s)
    evidence = this_node(registry().probes, None, collect_options, name=node)
    from preflight.evidence.document import dump

    if output:
        try:
            write_file(output, dump(evidence))
        except OSError as error:
            raise UsageError(f"{output} could not be written: {error.strerror}") from None
    else:
        click.echo(dump(evidence), nl=False)
    if evidence.no_answer is not None:
        sys.exit(3)

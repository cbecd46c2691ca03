"""``preflight collect``: the evidence of this node, without a judgement."""

from __future__ import annotations

import os
from pathlib import Path

import click

from preflight.commands import options
from preflight.run.outputs import write_file
from preflight.run.request import require_writable
from preflight.terminal import UsageError


@click.command(cls=options.ShortHelp)
@click.option(
    "-o", "--output", type=options.file_path, metavar="FILE", help="Write to FILE instead of standard output."
)
@click.option("--node", metavar="NAME", help="Name of this node, if not its host name.")
@options.collecting
def collect(
    output: Path | None, node: str | None, deadline_s: float | None, sudo: bool, fabric: bool, window_s: float | None
) -> int:
    """Collect the evidence of this node, without judging it.

    \b
    Example: preflight collect -o node.json
             preflight judge node.json          later, anywhere
    """
    from preflight.checks import registry
    from preflight.collect.local import collect_interruptibly
    from preflight.collect.options import CollectOptions
    from preflight.collect.request import CollectRequest

    require_writable(output)
    collect_options = CollectOptions(deadline_s, sudo, fabric=fabric, window_s=window_s)
    request = CollectRequest((node or os.uname().nodename,), registry().probes, collect_options)
    evidence = collect_interruptibly(request)
    from preflight.evidence.document import dump

    if output:
        try:
            write_file(output, dump(evidence))
        except OSError as error:
            raise UsageError(f"{output} could not be written: {error.strerror}") from None
    else:
        click.echo(dump(evidence), nl=False)
    return 0 if evidence.no_answer is None else 3

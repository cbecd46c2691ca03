"""``preflight collect``: the evidence of this node, without a judgement."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands import options
from preflight.run.outputs import write_file
from preflight.run.request import require_writable
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from preflight.evidence.document import Evidence
    from preflight.run.request import RunRequest


@click.command(cls=options.ShortHelp)
@click.option(
    "-o", "--output", type=options.file_path, metavar="FILE", help="Write to FILE instead of standard output."
)
@click.option("--node", metavar="NAME", help="Name of this node, if not its host name.")
@click.option("--judge", "judged", is_flag=True, help="Add this node's verdict, for a quick `preflight judge` of many.")
@options.cluster
@options.collecting
def collect(
    output: Path | None, node: str | None, judged: bool, cluster: Path | None, deadline_s: float | None, sudo: bool,
    fabric: bool, window_s: float | None,
) -> int:  # fmt: skip
    """Collect the evidence of this node, without judging it.

    \b
    Example: preflight collect -o node.json
             preflight judge node.json          later, anywhere
    \f

    With --judge, this node also runs all checks of one node, with the cluster file of --cluster, and saves its verdict
    with its evidence. `preflight judge` with the same cluster file and version then only compares the nodes; the report
    is the same.
    """
    from preflight.collect.local import collect_interruptibly
    from preflight.collect.options import CollectOptions
    from preflight.run.cluster_discovery import choose_cluster
    from preflight.run.request import new_request

    require_writable(output)
    if cluster and not judged:
        raise UsageError("--cluster is for --judge: without it, the evidence is not judged")
    name, collect_options = (
        node or os.uname().nodename,
        CollectOptions(deadline_s, sudo, fabric=fabric, window_s=window_s),
    )
    path = choose_cluster(cluster)[0] if judged else None
    request = new_request("collect", path, options=collect_options)
    evidence = collect_interruptibly(request.collection((name,)))
    document = _document(request, evidence, judged)
    if output:
        try:
            write_file(output, document)
        except OSError as error:
            raise UsageError(f"{output} could not be written: {error.strerror}") from None
    else:
        click.echo(document, nl=False)
    return 0 if evidence.no_answer is None else 3


def _document(request: RunRequest, evidence: Evidence, judged: bool) -> str:
    """Return the text of the document, with the node's verdict if wanted."""
    from preflight.evidence.document import dump

    text = dump(evidence)
    if not judged:
        return text
    from preflight.evidence import node_result
    from preflight.judge.node_verdict import verdict

    result = verdict(evidence, request.checks, request.cluster)
    return text if result is None else node_result.dump(evidence.node, result, text)

"""``preflight check``."""

from __future__ import annotations

from typing import Any

import click

from preflight.commands import options


@click.command(cls=options.Compact)
@options.targets
@options.cluster
@options.selection
@options.log
@options.collecting
@options.outputs
@click.option("--resume", is_flag=True)
@click.option("--exclude-file", type=options.file_path, metavar="F", help="Go on (--save); list bad nodes for sbatch.")
def check(**arguments: Any) -> int:
    """Ask this node, or many over SSH, in Slurm or in pods; judge and report.

    \b
    Example: preflight check --hosts 'gpu[001-064]' --cluster cluster.toml
    Exit:    0 passed, 1 failed, 3 could not tell, 2 usage or configuration
    """
    from preflight.run import check as run

    return run.check(**arguments)

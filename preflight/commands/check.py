"""``preflight check``: collect from nodes and judge them."""

from __future__ import annotations

from typing import Any

import click

from preflight.commands import options


@click.command(cls=options.ShortHelp)
@options.targets
@options.cluster
@options.selection
@options.log
@options.collecting
@options.combine_options(
    click.option("--switches", is_flag=True, help="Also read the Ethernet switches of the cluster file."),
    click.option("--judge-on-nodes", is_flag=True, help="Let each node judge itself (with --via srun)."),
    heading="Collection",
)
@options.outputs
@options.combine_options(
    click.option("--resume", is_flag=True, help="Continue the run in --save DIR."),
    click.option("--exclude-file", type=options.file_path, metavar="F",
                 help="List nodes that failed or did not answer."),
    heading="Output",
)  # fmt: skip
def check(**arguments: Any) -> int:
    """Check this node, or many: over SSH, in Slurm, in pods.

    \b
    Example: preflight check --hosts 'gpu[001-064]' --cluster cluster.toml
    Exit:    0 passed, 1 failed, 3 unknown, 2 usage or configuration
    \f

    Without --hosts, --hostfile, --job, --rerun or --pods, this node is checked. Nothing is installed on the nodes; they
    need Python 3.6 or newer. With --via auto, a host that needs a feature missing in paramiko uses the system's ssh.

    The cluster file declares the expected state of the nodes. Without an expectation, the result is unknown.

    --only and --skip take ids of checks, with wildcards: 'rdma.*'. Use --log once for each file. --window also extends
    the time limit. --switches reads the switches that [switches] of the cluster file names; without nodes, it reads
    only the switches. --judge-on-nodes sends preflight to the nodes through Slurm; the report is the same.
    --exclude-file writes a list for sbatch --exclude. --json, --html, --junit, --textfile and --exclude-file take - for
    standard output; --json without a file prints the report.
    """
    from preflight.run import check as run

    return run.check(**arguments)

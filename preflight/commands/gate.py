"""``preflight gate`` for click: help, and arguments that ``gate.options`` rejects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.commands import options
from preflight.gate.options import DEADLINES, Options
from preflight.gate.policy import HOOKS

if TYPE_CHECKING:
    from preflight.expectations import Cluster

_FILE = click.Path()


@click.command(cls=options.ShortHelp, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("hook", required=False, type=click.Choice([*HOOKS, "status"]), metavar="HOOK")
@click.option("--policy", is_flag=True, help="Print what each hook does on each verdict.")
@click.option("--cluster", type=_FILE, metavar="FILE", help="Expected state of the nodes (cluster.toml).")
@click.option("--state-dir", type=_FILE, metavar="DIR", help="Where verdicts are cached (/var/lib/preflight).")
@click.option("--strict", is_flag=True, help="Refuse jobs on a node without a verdict.")
@click.option("--dry-run", is_flag=True, help="Print what would happen; every job starts.")
@click.option("--deadline", type=click.FloatRange(*DEADLINES), metavar="S", help="Time limit in seconds.")
@click.option("--refresh", is_flag=True, help="Ignore the cached verdict.")
@click.option("--textfile", type=_FILE, metavar="F.prom", help="Write metrics for node_exporter.")
@click.option("--report-dir", type=_FILE, metavar="DIR", help="Write verdict, report and evidence.")
@click.option("--termination-log", type=_FILE, metavar="F", help="init-container: where to write the reason.")
@click.option("--verdicts", type=_FILE, metavar="DIR", help="slurm-controller, status: read verdicts from DIR.")
@click.option("--hosts", metavar="NODESET", help="slurm-controller: check these nodes over SSH.")
@click.option("--ssh-config", type=_FILE, metavar="F", help="slurm-controller: SSH configuration for --hosts.")
@click.option("--node", metavar="NAME", help="Name of this node in the cluster file.")
def gate(hook: str | None, policy: bool, cluster: str | None, **settings: Any) -> int:
    """Let a job start, or hold it back.

    \b
    HOOK:    slurm-prolog, slurm-healthcheck, slurm-step, slurm-controller,
             init-container, ci; or status, which lists the nodes by state
    Example: preflight gate ci --cluster cluster.toml --report-dir report
             preflight gate status --cluster /etc/slurm/preflight/cluster.toml
    Exit:    preflight gate --policy; status: 1 a node failed, 3 not all judged
    """
    if policy:
        click.echo(_policy(cluster), nl=False)
        return 0
    if hook is None:
        raise click.UsageError("HOOK is missing: one of " + ", ".join(HOOKS))
    if hook == "status":
        return _status(Options(hook, cluster=cluster, **settings))
    from preflight.gate import main

    return main.run_hook(Options(hook, cluster=cluster, **settings))


def _status(given: Options) -> int:
    """Print the gate's state of all nodes; return the exit status."""
    from preflight.gate import fleet_status
    from preflight.gate.slurm.scontrol import ControllerError
    from preflight.reports.sanitize import one_line

    expected = _expected(given.cluster)
    try:
        status = fleet_status.query(expected, given.verdicts)
    except ControllerError as error:
        click.echo(one_line(f"preflight: the list of nodes is unknown: {error}"), err=True)
        return 3
    for line in fleet_status.lines(status):
        click.echo(line)
    if given.textfile:
        try:
            fleet_status.write_metrics(status, Path(given.textfile))
        except OSError as error:
            raise click.UsageError(f"{given.textfile} cannot be written: {error.strerror}") from None
    return status.exit_status


def by_click(words: Sequence[str]) -> int:
    """Run ``preflight gate`` with these arguments; return the exit status.

    For a usage error, it is the hook's exit status for errors.
    """
    from preflight.gate import main

    try:
        status = gate.main(list(words), prog_name="preflight gate", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        hook = next((word for word in words if word in HOOKS), "")
        return main.usage_error(hook, f"{error.format_message()} (preflight gate --help)")
    return status if isinstance(status, int) else 0


def _policy(cluster: str | None) -> str:
    from preflight.gate.policy_table import text

    return text() if cluster is None else text(_expected(cluster).gate)


def _expected(cluster: str | None) -> Cluster:
    """Load the cluster file; without a path, return an empty one. Raises UsageError."""
    from preflight.expectations import Cluster

    if cluster is None:
        return Cluster()
    from preflight.checks import registry
    from preflight.expectations.cluster_file import ClusterFileError, load

    try:
        return load(Path(cluster), registry().ids)
    except ClusterFileError as error:
        raise click.UsageError(str(error)) from None

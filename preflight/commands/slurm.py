"""``preflight slurm``: files of the hooks, and the required changes to slurm.conf."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from preflight.checks import registry
from preflight.commands import options
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import ClusterFileError, load
from preflight.expectations.gate_table import Gate
from preflight.gate.slurm import drain_reason, drain_settings, installation, slurm_conf
from preflight.gate.slurm.scontrol import Controller, ControllerError
from preflight.gate.slurm.slurm_conf import ConfLine, as_difference
from preflight.nodeset import fold_for_slurm
from preflight.reports.sanitize import one_line
from preflight.terminal import UsageError, print_text

_FOLDER = "/etc/slurm/preflight"
_STATES = {"new": "new", "same": "unchanged", "ours": "to update", "foreign": "NOT OURS, or edited: left alone"}


@click.group()
def slurm() -> None:
    """Install the gate in Slurm, or remove it.

    \b
    Example: preflight slurm install --dry-run
             preflight slurm uninstall --dry-run
    """


_folder = click.option("--folder", type=options.file_path, default=_FOLDER, metavar="DIR",
                       help=f"Folder of the scripts ({_FOLDER}).")  # fmt: skip
_apply = click.option("--apply/--dry-run", "apply", default=False, help="Make the changes, or only print them.")


@slurm.command()
@_apply
@_folder
@click.option("--cluster", type=options.file_path, metavar="FILE", help="Cluster file (DIR/cluster.toml).")
@click.option("--python", type=options.file_path, metavar="FILE", help="Interpreter with preflight (this one).")
@click.option("--history", type=options.file_path, default=installation.HISTORY, metavar="FILE",
              help=f"History for EpilogSlurmctld ({installation.HISTORY}).")  # fmt: skip
def install(apply: bool, folder: Path, cluster: Path | None, python: Path | None, history: Path) -> int:
    """Write the scripts, and print the lines to change in slurm.conf.

    \b
    Example: preflight slurm install --dry-run
             sudo /opt/preflight/bin/python3 -I -m preflight slurm install --apply
    Exit:    0 done or nothing to do, 2 nothing written, 3 Slurm did not answer
    \f

    slurm.conf is never changed: the lines to change are printed, and written to DIR/slurm.conf. A file that preflight
    did not write, or that was edited since, is left alone, and nothing else is written. Run the command on every node
    and on the controller, or once in a shared folder.
    """
    folder = Path(os.path.abspath(folder))
    history = Path(os.path.abspath(history))
    if history.exists() and not history.is_file():
        raise UsageError(f"--history: {history} is not a file")
    cluster, python = (path and Path(os.path.abspath(path)) for path in (cluster, python))
    path = cluster or folder / "cluster.toml"
    expected = _cluster(path) if cluster is not None or os.path.lexists(path) else None
    try:
        where = installation.place(folder, cluster, python, history)
        config = _controller(expected).configuration()
        lines = slurm_conf.difference(where.conf(), config)
        files = installation.plan(where, lines)
        _print(f"{file.path}: {_STATES[file.state]}" for file in files)
        if apply:
            installation.write(where, files)
            _print([f"{folder}: written" if any(file.state != "same" for file in files) else f"{folder}: unchanged"])
    except installation.InstallError as error:
        raise UsageError(f"nothing was written: {error}") from None
    except ControllerError as error:
        print_text(f"{folder}: nothing was written: Slurm's configuration is unknown: {error}\n")
        return 3
    _print(_advice(lines, config, folder))
    _print(_next(path, expected, apply))
    return 2 if any(file.state == "foreign" for file in files) else 0


@slurm.command()
@_apply
@_folder
def uninstall(apply: bool, folder: Path) -> int:
    """Remove the scripts, once slurm.conf no longer names them.

    \b
    Exit:    0 done or nothing to do, 2 nothing removed, 3 Slurm did not answer
    \f

    slurmd drains a node whose Prolog is missing, so nothing is removed while the running configuration names a script.
    The cluster file and edited files stay. Nodes that preflight drained are listed.
    """
    folder = Path(os.path.abspath(folder))
    try:
        controller = _controller(None)
        config = controller.configuration()
        drained = [node.name for node in controller.nodes().values() if drain_reason.ours(node.name, node.reason)]
        files = installation.remaining(folder)
        used = slurm_conf.removal([str(file.path) for file in files], config)
        _print(f"{file.path}: {'to remove' if file.state == 'ours' else file.state}" for file in files)
        if used:
            _print([f"Remove these lines from {_conf(config)}, then run `scontrol reconfigure`:"])
            _print(f"-{line.key}={line.running}" for line in used)
        if drained:
            _print([f"Nodes drained by preflight, to be undrained after a repair: scontrol update "
                    f"nodename={fold_for_slurm(drained)} state=undrain"])  # fmt: skip
        if apply and used:
            raise UsageError("nothing was removed: Slurm still runs these scripts, and drains a node without them")
        if apply:
            installation.remove(files)
            _print([f"{folder}: removed"])
    except installation.InstallError as error:
        raise UsageError(f"nothing was removed: {error}") from None
    except ControllerError as error:
        print_text(f"{folder}: nothing was removed: Slurm's configuration is unknown: {error}\n")
        return 3
    return 0


def _cluster(path: Path) -> Cluster:
    """Return a cluster file; raises UsageError if it is missing or invalid."""
    try:
        return load(path, registry().ids)
    except ClusterFileError as error:
        raise UsageError(str(error)) from None


def _controller(expected: Cluster | None) -> Controller:
    gate = expected.gate if expected is not None and expected.gate is not None else Gate()
    return Controller(drain_settings.of(gate), os.environ)


def _advice(lines: Sequence[ConfLine], config: dict[str, str], folder: Path) -> Iterator[str]:
    """Yield the lines to change in slurm.conf, and advice on the site's own programs."""
    changes = as_difference(lines)
    if changes:
        yield f"Change these lines in {_conf(config)}, then run `scontrol reconfigure`:"
        yield from changes
    else:
        yield f"{_conf(config)}: nothing to change"
    for line in lines:
        if line.conflict:
            script = folder / Path(line.needed).name
            yield f"{line.key}={line.running} is not replaced. At the end of that program, add: {script} || exit"


def _next(path: Path, expected: Cluster | None, applied: bool) -> Iterator[str]:
    if expected is None:
        yield f"Next: write {path} (`preflight learn`). Until then every job starts, and nodes are NOT JUDGED"
    elif not (expected.gate and expected.gate.dry_run):
        yield f"{path}: faulty nodes are drained. For a first rollout, set `dry_run = true` in [gate]"
    else:
        yield f"{path}: dry run, no node is drained"
    if not applied:
        yield "Nothing was written: --apply writes the files"


def _conf(config: dict[str, str]) -> str:
    return f"{config.get('SLURM_CONF') or 'slurm.conf'} (Slurm {config.get('SLURM_VERSION') or 'of unknown version'})"


def _print(lines: Iterable[str]) -> None:
    print_text("".join(f"{one_line(line)}\n" for line in lines))

"""``preflight check``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from preflight.commands import options
from preflight.session import Session, read_logs


@click.command(cls=options.Compact)
@options.targets
@options.cluster
@options.selection
@options.log
@options.asking
@options.outputs
@click.option("--exclude-file", type=options.file_path, metavar="F", help="Write bad nodes for `sbatch --exclude`.")
def check(
    hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None,
    cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...], logs: tuple[Path, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Ask this node, or many over SSH; judge and report.

    \b
    Example: preflight check --hosts 'gpu[001-064]' --cluster cluster.toml
    Exit:    0 passed, 1 failed, 3 could not tell, 2 usage or configuration
    """
    from preflight import asking

    manner = asking.Manner(**{name: options.pop(name) for name in asking.Manner._fields})
    session = Session("check", cluster, only, skip, options)
    run = read_logs(logs)
    if not any((hosts, hostfile, job, rerun)):
        expected = session.cluster if cluster else None
        session.finish([asking.this_node(session.registry.probes, expected, manner, session.prepare)], run)
    names = asking.targets(hosts, hostfile, job, rerun)
    session.finish(asking.fleet(names, session, manner), run)

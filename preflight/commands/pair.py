"""``preflight pair``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from preflight.commands import options
from preflight.run.setup import Session


@click.command(cls=options.Compact)
@click.argument("server", metavar="HOST_A")
@click.argument("client", metavar="HOST_B")
@options.pairing
@options.cluster
@options.outputs
def pair(
    server: str, client: str, tests: tuple[str, ...], deadline_s: float, via: str, ssh_config: Path | None,
    cluster: Path | None, device: str | None, gid_index: int | None, mtu: str | None, size: int | None,
    port: int | None, at_least_gbps: float | None, **outputs: Any,
) -> None:  # fmt: skip
    """Test the path between two nodes: path MTU and RDMA writes, or --test.

    \b
    Example: preflight pair gpu001 gpu002 --device mlx5_0
    Exit:    as check
    """
    from preflight.collect.options import CollectOptions
    from preflight.pair import plan

    session = Session("pair", cluster, (), (), outputs)
    wanted = plan.Wanted(device, gid_index, int(mtu) if mtu else None, size, port, at_least_gbps)
    collect_options = CollectOptions(deadline_s, via=via, ssh_config=ssh_config)
    session.write_outputs_and_exit(plan.run_pair(server, client, tests, wanted, session, collect_options), None)

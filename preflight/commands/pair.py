"""``preflight pair``: tests of the path between two nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from preflight.commands import options
from preflight.run.cluster_discovery import choose_cluster
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_outputs
from preflight.run.request import Outputs, new_request


@click.command(cls=options.ShortHelp)
@click.argument("server", metavar="HOST_A")
@click.argument("client", metavar="HOST_B")
@options.pairing
@options.cluster
@options.outputs
def pair(
    server: str, client: str, tests: tuple[str, ...], deadline_s: float, via: str, ssh_config: Path | None,
    cluster: Path | None, device: str | None, gid_index: int | None, mtu: str | None, size: int | None,
    port: int | None, at_least_gbps: float | None, **outputs: Any,
) -> int:  # fmt: skip
    """Test the path between two nodes: path MTU, RDMA writes.

    \b
    Example: preflight pair gpu001 gpu002 --device mlx5_0
    Exit:    as check
    """
    from preflight.collect.options import CollectOptions
    from preflight.pair import plan

    names = plan.names_of(tests)
    collect_options = CollectOptions(deadline_s, via=via, ssh_config=ssh_config)
    path, origin = choose_cluster(cluster)
    request = new_request("pair", path, Outputs(**outputs), selected=plan.checks_of(names), options=collect_options,
                          cluster_origin=origin)  # fmt: skip
    wanted = plan.Wanted(device, gid_index, int(mtu) if mtu else None, size, port, at_least_gbps)
    collected = plan.run_pair(request.collection(plan.hosts_of(server, client)), names, wanted)
    return write_outputs(request, judge_run(request, collected), collected)

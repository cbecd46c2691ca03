"""``preflight pair``: from its arguments to the evidence of both nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import click

from preflight._startup.lightclass import replace
from preflight.checks.pair import bandwidth as checks
from preflight.collect.connection import connection
from preflight.collect.options import DEADLINE_S, CollectOptions
from preflight.collect.request import Collected, CollectRequest, Targets
from preflight.expectations import Cluster
from preflight.model import Check
from preflight.pair.endpoints import Wanted
from preflight.pair.execute import PairTransport, carry_out
from preflight.pair.tests import USUAL
from preflight.terminal import UsageError, progress

__all__ = ["Wanted", "checks_of", "hosts_of", "names_of", "run_pair"]


def names_of(tests: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tests to run: those given, or the default ones."""
    return tuple(dict.fromkeys(tests or USUAL))


def checks_of(names: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that judge some tests."""
    return tuple(checks.CHECKS[name] for name in names)


def hosts_of(server: str, client: str) -> tuple[str, str]:
    """Return the names of two different hosts; raises UsageError."""
    hosts = _host(server), _host(client)
    if hosts[0] == hosts[1]:
        raise UsageError("a pair needs two nodes: specify two different hosts")
    return hosts


def run_pair(request: CollectRequest, names: Sequence[str], wanted: Wanted) -> Collected:
    """Run the tests between the two hosts of a request, the first as server."""
    server, client = request.nodes
    with connection(request) as once:  # an error in the configuration shows before any node is contacted
        for warning in once.warnings:
            click.echo(f"warning: {warning}", err=True)
    through_openssh: dict[str, str] = {}

    @contextmanager
    def reach(host: str) -> Iterator[PairTransport]:
        with connection(replace(request, nodes=(host,))) as transport:
            try:
                yield cast("PairTransport", transport)  # not srun, which runs on many nodes
            finally:
                through_openssh.update(transport.through_openssh)

    deadline_s = request.options.deadline_s or DEADLINE_S
    cluster = request.cluster or Cluster()
    evidences = carry_out((server, client), names, wanted, cluster, reach, deadline_s, progress)
    return Collected(evidences, via=request.options.via, through_openssh=through_openssh)


def _host(name: str) -> str:
    found = Targets(hosts=name).nodes(CollectOptions())
    if len(found) != 1:
        raise UsageError(f"{name!r} is {len(found)} nodes; each side of a pair is a single node")
    return found[0]

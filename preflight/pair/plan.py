"""``preflight pair``: from the words of the command line to the evidence of both nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import click

from preflight.checks.pair import bandwidth as checks
from preflight.collect.options import DEADLINE_S, CollectOptions
from preflight.evidence.document import Evidence
from preflight.pair.endpoints import Wanted
from preflight.pair.execute import PairTransport, carry_out
from preflight.pair.tests import USUAL
from preflight.run.fleet import connection, targets
from preflight.run.setup import Session
from preflight.terminal import UsageError, progress

__all__ = ["Wanted", "run_pair"]


def run_pair(
    server: str, client: str, tests: Sequence[str], wanted: Wanted, session: Session, options: CollectOptions
) -> list[Evidence]:
    """Carry out the tests between two hosts and let the session judge them; return the evidence of both."""
    names = tuple(dict.fromkeys(tests or USUAL))
    hosts = _host(server), _host(client)
    if hosts[0] == hosts[1]:
        raise UsageError("a pair is two nodes: give two different hosts")
    session.via = options.via
    session.checks = [checks.CHECKS[name] for name in names]
    session.off = []
    with connection(hosts, options) as once:  # a mistake in the configuration shows before any node is contacted
        for warning in once.warnings:
            click.echo(f"warning: {warning}", err=True)

    @contextmanager
    def reach(host: str) -> Iterator[PairTransport]:
        with connection([host], options) as transport:
            try:
                yield cast("PairTransport", transport)  # no srun: it runs on many nodes
            finally:
                session.through_openssh = {**session.through_openssh, **transport.through_openssh}

    return carry_out(hosts, names, wanted, session.cluster, reach, options.deadline_s or DEADLINE_S, progress)


def _host(name: str) -> str:
    found = targets(name, None, None, None)
    if len(found) != 1:
        raise UsageError(f"{name!r} is {len(found)} nodes: a side of a pair is one")
    return found[0]

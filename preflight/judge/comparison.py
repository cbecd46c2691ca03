"""Comparison of nodes, without those that make a check fail.

A value that a check cannot use, because a record of one node is missing or because a node reports nonsense about
itself, must not leave the other nodes without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.judge.check_result import attempt
from preflight.model import Check, Finding

#: Maximum number of runs of a check to find the nodes that it cannot compare with others.
_RUNS = 64

Errors = dict[int, BaseException]


def compared(
    check: Check, nodes: Mapping[int, NodeFacts], sites: Mapping[str, Site]
) -> tuple[list[Finding], BaseException | None, Errors]:
    """Run a check on nodes; return findings, error, and errors of nodes left out.

    A node is left out if the check completes without it.
    """
    findings, error = attempt(check, list(nodes.values()), sites)
    if error is not None:
        for errors in _left_out(check, nodes, sites):
            remaining = [node for place, node in nodes.items() if place not in errors]
            again, wrong = attempt(check, remaining, sites)
            if wrong is None and len(remaining) > 1:
                return again, None, errors
    return findings, error, {}


def _left_out(check: Check, nodes: Mapping[int, NodeFacts], sites: Mapping[str, Site]) -> Iterator[Errors]:
    """Yield the nodes that make a check fail: first alone, then with other nodes.

    If a check fails only for two nodes together, the wrong one is the one that fails with most other nodes.
    """
    errors = {place: wrong for place, node in nodes.items() if (wrong := attempt(check, [node], sites)[1]) is not None}
    yield errors
    others = [place for place in nodes if place not in errors]
    for order in (others, others[::-1]):
        search = _Search(check, nodes, sites)
        search.add(order)
        if len(search.errors) < len(search.remaining):
            yield {**errors, **search.errors}


class _Search:
    """Search by bisection for the nodes that make a check fail together with others."""

    def __init__(self, check: Check, nodes: Mapping[int, NodeFacts], sites: Mapping[str, Site]) -> None:
        self.remaining: list[int] = []
        self.errors: Errors = {}
        self._check, self._nodes, self._sites = check, nodes, sites
        self._runs = _RUNS

    def add(self, places: Sequence[int]) -> None:
        """Keep the nodes with which the check completes; record each failing node's error.

        Nodes that are not tried before the limit of runs is reached are in neither ``remaining`` nor ``errors``.
        """
        if not places or not self._runs:
            return
        self._runs -= 1
        nodes = [self._nodes[place] for place in (*self.remaining, *places)]
        wrong = attempt(self._check, nodes, self._sites)[1]
        if wrong is None:
            self.remaining += places
        elif len(places) == 1:
            self.errors[places[0]] = wrong
        else:
            self.add(places[: len(places) // 2])
            self.add(places[len(places) // 2 :])

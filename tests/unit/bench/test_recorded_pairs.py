"""Pairwise runs of two real clusters: the sick one has a rail that is slow in a quarter of its runs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from preflight.bench.bits import ENOUGH
from preflight.bench.comparison import Comparison, compare
from preflight.bench.factors import NODE, RAIL
from preflight.bench.observation import observations
from preflight.parsers.nccl_tests.text import parse
from tests.support.pair_runs import log

RECORDED = json.loads(Path(__file__).with_name("recorded_pairs.json").read_text())


def texts(cluster: str, seed: int | None) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return the logs of a cluster and the names of its nodes and rails, permuted by a seed."""
    rows = RECORDED["clusters"][cluster]
    nodes = sorted({node for _, ends, _, _ in rows for node in ends}, key=int)
    rails = sorted({gpu for _, ends, _, _ in rows for own in ends.values() for gpu in own.split()})
    draw = random.Random(seed)
    names = [f"cnode2-{int(node):03d}" if seed is None else f"host-{draw.getrandbits(32):08x}" for node in nodes]
    buses = list(rails)
    if seed is not None:
        draw.shuffle(buses)
    node, rail = dict(zip(nodes, names, strict=True)), dict(zip(rails, buses, strict=True))
    made = []
    for collective, ends, values, ended in rows:
        order = list(ends)
        if seed is not None:
            draw.shuffle(order)
        at = {node[item]: [f"0000:{rail[gpu]}:00" for gpu in ends[item].split()] for item in order}
        made.append(log(collective, at, dict(zip(RECORDED["sizes"], values, strict=True)), ended))
    if seed is not None:
        draw.shuffle(made)
    return made, node, rail


def compared(logs: list[str]) -> tuple[Comparison, ...]:
    return compare(observations({str(number): parse(text) for number, text in enumerate(logs)}))


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_the_rail_is_named_and_no_node(seed: int | None) -> None:
    logs, node, rail = texts("sick", seed)
    result = {comparison.kind.collective: comparison for comparison in compared(logs)}
    assert set(result) == {"alltoall", "sendrecv"}
    for comparison in result.values():
        first, *others = comparison.slow.causes
        assert (first.factor.kind, first.factor.of) == (RAIL, f"0000:{rail['9d']}:00")
        assert first.bits >= ENOUGH
        assert not others
        assert all(rival.kind != NODE for rival in first.alike)
        assert not comparison.slow.unexplained
        assert not comparison.stopped.named
    stopped = {
        (name, frozenset(held.run.nodes))
        for name, comparison in result.items() for held in comparison.held if not held.run.complete
    }  # fmt: skip
    pairs = {("alltoall", ("5", "16")), ("alltoall", ("7", "16")), ("sendrecv", ("2", "8")), ("sendrecv", ("3", "8")),
             ("sendrecv", ("8", "9"))}  # fmt: skip
    assert stopped == {(name, frozenset(node[item] for item in pair)) for name, pair in pairs}


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_nothing_is_named_on_a_healthy_cluster(seed: int | None) -> None:
    logs, node, _ = texts("healthy", seed)
    result = compared(logs)
    assert sorted((item.kind.collective, item.kind.ranks) for item in result) == [
        (name, ranks) for name in ("alltoall", "sendrecv") for ranks in (2, 4, 8, 16)
    ]
    for comparison in result:
        assert not comparison.slow.causes
        assert not comparison.stopped.causes
        assert not any(held.slow for held in comparison.held)
        assert not comparison.low
        assert all(level.usual for level in comparison.levels)
    (eight,) = (item for item in result if (item.kind.collective, item.kind.ranks) == ("sendrecv", 16))
    blocks = {frozenset(block) for level in eight.levels for block in level.blocks}
    leaves = (("4", "5", "6", "7", "8", "10", "11"), ("2", "3"), ("9",))
    assert blocks == {frozenset(node[item] for item in leaf) for leaf in leaves}
    (four,) = (item for item in result if (item.kind.collective, item.kind.ranks) == ("sendrecv", 8))
    assert {item.node for item in four.distant} == {node[item] for item in ("2", "3", "9")}

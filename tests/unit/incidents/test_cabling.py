"""The leaf of a port that is down, from the cables of peers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from preflight.incidents.cabling import Cabling
from preflight.incidents.parts import Parts

RAILS = {"mlx5_0": "leaf-1", "mlx5_1": "leaf-2", "mlx5_2": "leaf-3", "mlx5_3": "leaf-4"}
OTHER_POD = {"mlx5_0": "leaf-5", "mlx5_1": "leaf-6", "mlx5_2": "leaf-7", "mlx5_3": "leaf-8"}
ONE_LEAF = dict.fromkeys(RAILS, "leaf-9")


def node(leaves: Mapping[str, str]) -> Parts:
    return Parts({}, frozenset(), leaves)


def without(plan: Mapping[str, str], *devices: str) -> Parts:
    return node({device: leaf for device, leaf in plan.items() if device not in devices})


@pytest.mark.parametrize(
    ("sick", "peers", "leaf"),
    [
        (without(RAILS, "mlx5_2"), [RAILS, RAILS, OTHER_POD], "leaf-3"),
        (without(OTHER_POD, "mlx5_2", "mlx5_3"), [RAILS, OTHER_POD], "leaf-7"),
        (without(ONE_LEAF, "mlx5_2"), [], "leaf-9"),
        (without(RAILS, "mlx5_2"), [OTHER_POD], ""),  # no peer has its plan
        (without(RAILS, "mlx5_2"), [], ""),
        (without(RAILS, "mlx5_2"), [without(RAILS, "mlx5_3").leaves], "leaf-3"),  # another port of the peer is down
        (without(RAILS, "mlx5_2"), [{"mlx5_0": "leaf-1", "mlx5_2": "leaf-3"}], ""),  # too few ports in common
        (without(RAILS, "mlx5_2"), [{**without(OTHER_POD, "mlx5_3").leaves, "mlx5_0": "leaf-1"}], ""),
        (without(RAILS, "mlx5_2"), [RAILS, {**RAILS, "mlx5_2": "leaf-6"}], ""),  # peers differ
        (without(ONE_LEAF, "mlx5_2"), [{**ONE_LEAF, "mlx5_2": "leaf-6"}], "leaf-6"),  # peers take precedence
        (without(ONE_LEAF, "mlx5_1", "mlx5_2"), [], ""),  # two ports left: chance
        (node({}), [RAILS], ""),  # no LLDP
    ],
)
def test_leaf_of_a_port_that_is_down(sick: Parts, peers: list[Mapping[str, str]], leaf: str) -> None:
    assert Cabling.of([sick, *map(node, peers)]).leaf(sick, "mlx5_2:1") == leaf


def test_nodes_that_are_not_cabled_alike_have_no_plans() -> None:
    odd = [node({**RAILS, "mlx5_1": f"leaf-{number}"}) for number in range(300)]
    assert Cabling.of(odd).plans == ()

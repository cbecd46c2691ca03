"""Declared versions, firmware and settings of a class: every compared value, on a single node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from preflight.checks import registry
from preflight.checks.comparison.declared_values import written
from preflight.checks.comparison.electorate import Trait
from preflight.checks.fleet import core, gpu, host, nic, rails, software
from preflight.checks.job import rank_agreement
from preflight.checks.roce import fleet as roce
from preflight.evidence.document import EvidenceError, from_document
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from tests.support.machines import evidence, hgx_h100
from tests.support.whole_nodes import both, firmware

TRAITS = (
    core.DRIVER, rank_agreement.NCCL, *software.SOFTWARE, *software.FIRMWARE,
    *software.nic_firmware(["MT_0000000838"]), *host.HOST, *gpu.GPU,
    *(trait for trait, _, _ in gpu.DOMAIN), *nic.NIC, *rails.RAILS, rails.LEAF, *roce.PORTS,
    roce.GID_INDEX, *roce.MARKING,
)  # fmt: skip

#: Values covered by a key that another node check uses.
JUDGED = {
    "number of GPUs": "gpus", "link layer of the compute ports": "ports.link_layer", 
    "rate of each rail": "ports.rate_gbps",
    "trust state": "qos.trust", "priorities with PFC": "qos.pfc_priority", "ECN per priority": "qos.ecn",
    "global pause": "qos.lossless", "RoCE traffic class": "qos.traffic_class", "RoCE marking of CNPs": "qos.cnp_dscp",
    "RoCE DCBX mode": "qos.dcbx", "mounts": "host.mounts",
}  # fmt: skip

CHECK = [check for check in registry().checks if check.id == "node.expected"]


@pytest.mark.parametrize("trait", TRAITS, ids=lambda trait: trait.what)
def test_every_compared_value_has_a_key(trait: Trait) -> None:
    assert bool(trait.expects) != (trait.what in JUDGED)
    assert trait.expects or trait.judged_by or trait.misses
    if trait.expects:
        cluster = decode(b"[class.a.rails.mlx5_0]\n", "cluster.toml")
        node = NodeFacts(from_document(evidence(hgx_h100("x")), "x"))
        assert cluster.site(node).declared(trait.expects) == {}, "the key is known, and not set"


def _shown() -> Iterator[tuple[Trait, str]]:
    node = NodeFacts(from_document(evidence(hgx_h100("x", roce=True)), "x"))
    site = decode(b"[class.a]\n", "c").site(node)
    for trait in TRAITS:
        if not trait.expects or "*" in trait.expects:
            continue
        try:
            value = trait.read(node, site)
        except EvidenceError:
            continue
        if isinstance(value, str):
            yield trait, value


SHOWN = list(_shown())


def _literals(value: str) -> Iterator[str]:
    """Yield the forms of a shown value in a cluster file: text, number, boolean, list."""
    number = value.split()[0]
    yield from (f'"{value}"', f'["{value}"]')
    if number.isdigit():
        yield number
    if value in ("on", "off"):
        yield "true" if value == "on" else "false"


@pytest.mark.parametrize(("trait", "value"), SHOWN, ids=[trait.what for trait, _ in SHOWN])
def test_a_value_that_is_declared_as_shown_passes_and_another_does_not(trait: Trait, value: str) -> None:
    key = ".".join(f'"{part}"' for part in trait.expects.split("."))
    document = from_document(evidence(hgx_h100("x", roce=True)), "x")
    for literal in _literals(value):
        try:
            cluster = decode(f"class.a.{key} = {literal}\n".encode(), "cluster.toml")
        except ClusterFileError:
            continue
        report = judge([document], CHECK, cluster)
        assert [one["status"] for one in report["findings"]] == ["pass"], report["findings"]
        declared = cluster.site(NodeFacts(document)).declared(trait.expects)[""]
        assert written(trait, declared.value) == value
        break
    else:
        pytest.fail(f"no form of {value!r} is taken by {trait.expects}")


def test_one_node_alone_is_judged() -> None:
    document = from_document(evidence(hgx_h100("x")), "x")
    cluster = decode(b'[class.a.versions]\ndriver = "570.86.15"\nkernel = "5.15.0-1060-nvidia"\n', "cluster.toml")
    report = judge([document], CHECK, cluster)
    assert {one["subject"]: one["status"] for one in report["findings"]} == {
        "NVIDIA driver": "fail", "kernel release": "warn",
    }  # fmt: skip
    assert report["exit_status"] == 1


TWO = """
[class.a.firmware]
nics = { MT_0000000838 = ["28.43.2026", "28.45.1200"] }
vbios = ["96.00.74.00.01", "96.00.89.00.01"]
[class.a.versions]
kernel = ["5.15.0-1063-nvidia", "5.15.0-1070-nvidia"]
"""
FIRMWARE = [check for check in registry().checks if check.id in ("node.expected", "rdma.firmware", "fleet.firmware")]


def test_each_value_of_a_list_is_right() -> None:
    """A roll-out: some NICs and nodes already have the new version; one NIC has a third."""
    cluster = decode(TWO.encode(), "cluster.toml")
    rolled = firmware("mlx5_9", "28.45.1200")
    nodes = [
        from_document(evidence(replace(plant(hgx_h100(f"x{at}")), number=at)), f"x{at}")
        for at, plant in enumerate((rolled, rolled, lambda machine: machine, firmware("mlx5_3", "28.39.1002")))
    ]
    judged = judge(nodes, FIRMWARE, cluster)
    loud = {
        (finding["check"], tuple(finding["nodes"]))
        for finding in judged["findings"]
        if finding["status"] not in ("pass", "skip")
    }
    assert loud == {(check, ("x3",)) for check in ("node.expected", "rdma.firmware")}
    (message,) = (
        finding["message"]
        for finding in judged["findings"]
        if finding["status"] == "warn" and "not 28" in finding["message"]
    )
    assert message == "firmware of NICs MT_0000000838, mlx5_3: 28.39.1002, not 28.43.2026 or 28.45.1200"


def test_firmware_of_all_compute_nics_makes_no_other_nic_wrong() -> None:
    rails = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
    titles = []
    for old in (rails, rails[:2]):
        machine = both(*(firmware(rail, "28.39.1002") for rail in old))(hgx_h100("x1"))
        judged = judge(
            [from_document(evidence(machine), "x1")], [check for check in FIRMWARE if check.id == "rdma.firmware"]
        )
        titles += [finding["message"] for finding in judged["findings"]]
    assert titles == [
        "NICs of board MT_0000000838 run 2 versions of firmware: 28.39.1002 on the 8 compute NICs, 28.43.2026 on "
        "mlx5_1, mlx5_2, mlx5_7, mlx5_8",
        "mlx5_0, mlx5_3 run firmware 28.39.1002, but 10 of 12 NICs of the same board (MT_0000000838) run 28.43.2026",
    ]


def test_a_rail_that_the_node_does_not_show_is_no_pass() -> None:
    document = from_document(evidence(hgx_h100("x")), "x")
    report = judge([document], CHECK, decode(b'[class.a.rails.mlx5_77]\npci = "0000:18:00.0"\n', "cluster.toml"))
    (found,) = report["findings"]
    assert (found["status"], report["exit_status"]) == ("unknown", 3)
    assert "mlx5_77: the cluster file declares a value, but this node shows none" in found["message"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[class.a.versions]\ndrver = '1'\n", 2, "class.a.versions.drver: unknown key - did you mean driver?"),
        ("[class.a.versions]\ndriver = 570\n", 2, "takes the value as a report shows it, in quotes"),
        ("[class.a.rails.mlx5_0]\nleav = 'x'\n", 2, "class.a.rails.mlx5_0.leav: unknown key - did you mean leaf?"),
        ("[class.a.rails.'@x']\nleaf = 'x'\n", 1, "takes names such as mlx5_0"),
        ("[class.a]\nrails = 3\n", 2, "not a table - write it as [class.a.rails]"),
        ("[class.a.firmware.nics]\n'MT 1' = 'x'\n", 1, "MT 1: takes names such as MT_0000000838"),
        ("[class.a.firmware]\nvbios = ['1']\n", 2, "takes one value, or a list of several"),
        ("[class.a.firmware]\nnics = { MT_0000000838 = [1, 2] }\n", 2, "MT_0000000838: takes the value as a report"),
        ("[class.a.versions]\ndriver = ['1', '2']\n", 2, "takes the value as a report shows it, in quotes"),
        ("[class.a.nccl]\nFOO = 'x'\n", 1, "FOO: takes names such as NCCL_ALGO"),
        ("[class.a.host]\nboot_options = 'a'\nsockets = 0\n", 3, "takes an integer from 1 to 1024"),
    ],
)
def test_a_wrong_key_names_line_and_fix(text: str, line: int, words: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        decode(text.encode(), "cluster.toml")
    assert f"cluster.toml:{line}: " in str(caught.value)
    assert words in str(caught.value)

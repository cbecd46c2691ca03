"""The cluster file: valid content, and messages for invalid content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preflight.evidence.document import from_document
from preflight.expectations.catalogue import PARTS, recognise
from preflight.expectations.cluster_file import ClusterFileError, load
from preflight.expectations.toml_line_numbers import Lines
from preflight.facts.node import NodeFacts
from preflight.facts.pci import PciDevice
from preflight.probes.declared import checkpoints
from tests.support.fixture import whole_node

GOOD = """
[cluster]
name = "alpha"

[class.h100]
nodes = "gpu[001-004]"
gpus = 8
hcas = 8

[class.h100.ports]
compute = "mlx5_[0,3-6,9-11]"
storage = ["mlx5_1", "mlx5_2"]
link_layer = "InfiniBand"
rate_gbps = 400

[class.cpu]
gpus = 0
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return path


def test_classes_by_node_set(tmp_path: Path) -> None:
    cluster = load(write(tmp_path, GOOD))
    assert cluster.class_of("gpu003") == "h100"
    assert cluster.class_of("gpu003.example.org") == "h100"
    assert cluster.class_of("login1") == "cpu"
    assert cluster.classes["h100"].ports.compute == tuple(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11))


def test_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    node = NodeFacts(from_document(dict(whole_node("hgx-h100"), node="gpu001"), "x"))
    site = load(write(tmp_path, GOOD)).site(node)
    assert site.gpus.value == 8
    assert site.gpus.source == "cluster.toml class.h100.gpus"
    assert site.mtu.value is None
    assert site.mtu.key == "class.h100.ports.mtu"
    bare = load(write(tmp_path, "[class.all]\nhcas = 8\n")).site(node)
    assert "HGX H100" in bare.gpus.source
    assert bare.gpus.binding
    assert not bare.rate_gbps.binding


ERRORS = [
    ("[class.a]\ngpuss = 8\n", 2, "class.a.gpuss", "did you mean gpus?"),
    ("[class.a]\n\n# eight\ngpus = '8'\n", 4, "class.a.gpus", "integer"),
    ("[class.a]\ngpus = -1\n", 2, "class.a.gpus", "from 0 to"),
    ("[class.a]\ngpus = true\n", 2, "class.a.gpus", "integer"),
    ("[class.a.ports]\nrate_gbps = '400 Gb/s'\n", 2, "class.a.ports.rate_gbps", "without quotes or unit"),
    ("[class.a.ports]\nmtu = 9000\n", 2, "class.a.ports.mtu", "4096"),
    ("[class.a.ports]\nlink_layer = 'infiniband'\n", 2, "class.a.ports.link_layer", 'did you mean "InfiniBand"'),
    ("[class.a]\npart = 'HGX H10O'\n", 2, "class.a.part", 'did you mean "HGX H100"'),
    ("[class.a]\nnodes = 'gpu[001-'\n", 2, "class.a.nodes", "gpu["),
    ("[class.a]\nnodes = ''\n", 2, "class.a.nodes", "takes names"),
    ("[klass.a]\ngpus = 8\n", 1, "klass", "did you mean class?"),
    ("[class]\na = 3\n", 2, "class.a", r"\[class.a\]"),
    ("class.a.gpus = 8\nclass.a.gpu = 8\n", 2, "class.a.gpu", "did you mean gpus?"),
    ("class = { a = { gpus = 8, hca = 8 } }\n", 1, "class.a.hca", "did you mean hcas?"),
    ("[class.a]\nnodes = 'n[1-2]'\n[class.b]\nnodes = 'n[2-3]'\n", 4, "class.b.nodes", "one class"),
    ("[class.a]\n[class.b]\n", 2, "class.b", "list no nodes"),
    ("[class.a.qos]\nlossless = true\n", 2, "class.a.qos.lossless", "pfc_priority"),
    ("[class.a.qos]\ntraffic_class = 256\n", 2, "class.a.qos.traffic_class", "from 0 to 255"),
    ("[class.a.qos]\ntraffic_class = 107\n", 2, "class.a.qos.traffic_class", "congested - write 106"),
    ("[class.a.qos]\ntraffic_class = 106\ndscp = 24\n", 3, "class.a.qos.dscp", "is DSCP 26, not 24"),
    ('[class.a.qos]\ntrust = "pcp"\ntraffic_class = 106\n', 3, "class.a.qos.traffic_class", 'trust = "dscp"'),
    ("[class.a.qos]\ndscp = 26\ncnp_dscp = 26\n", 3, "class.a.qos.cnp_dscp", "cnp_dscp = 48"),
    ('[class.a.qos]\ntrust = "dcsp"\n', 2, "class.a.qos.trust", 'did you mean "dscp"'),
    ('[class.a.qos]\ndcbx = "switch"\n', 2, "class.a.qos.dcbx", '"os", "firmware"'),
    ("[class.a.ports]\ncompute = 'm[0-1]'\nstorage = 'm1'\n", 3, "class.a.ports.storage", "one role"),
    ("[class.a]\nhcas = 4\n[class.a.ports]\ncompute = 'm[0-1]'\n", 2, "class.a.hcas", "agree"),
    ("[class.a.thresholds]\nshm = 8\n", 2, "class.a.thresholds.shm", "did you mean shm_gib?"),
    ("[class.a]\nnodes = 'gpu[1-99999999]'\n", 2, "class.a.nodes", "at most"),
    ("[[class]]\ngpus = 8\n", 1, "class", "not a table"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "key", "fix"), ERRORS, ids=[m[2] + m[3][:12] for m in ERRORS])
def test_error_names_file_line_key_and_fix(tmp_path: Path, text: str, line: int, key: str, fix: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ClusterFileError) as caught:
        load(path)
    message = str(caught.value)
    assert f"{path}:{line}: {key}:" in message
    assert re.search(re.escape(fix) if "[" not in fix or fix == "gpu[" else fix, message), message


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError) as caught:
        load(write(tmp_path, "[class.a]\ngpuss = 8\nhcas = 'x'\n"))
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "describes no class"),
        (b"[class.a\n", ":1: class.a: the name of a table is not closed"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[class.a]\ngpus = 8\ngpus = 9\n", ":3: gpus: is set twice"),
    ],
)
def test_unreadable_file(tmp_path: Path, raw: bytes, expected: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_bytes(raw)
    with pytest.raises(ClusterFileError, match=expected):
        load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match="cannot be read"):
        load(tmp_path / "no.toml")


def test_line_of_is_found_in_long_values() -> None:
    text = 'a = """\n[b]\nc = 1\n"""\n[b]\n# note\nd = [\n 1,\n 2,\n]\nc = 2\n'
    lines = Lines(text)
    assert lines.of(("b", "c")) == 11
    assert lines.of(("b", "d")) == 7
    assert lines.of(("b", "nothing")) == 5
    assert lines.of(("a",)) == 1
    assert lines.of(("nothing", "c")) is None


def bus(*functions: tuple[str, str, int]) -> list[PciDevice]:
    return [
        PciDevice(f"0000:{n:02x}:00.0", kind, ids.split(":")[0], ids.split(":")[1], "", 0, None, ())
        for n, (ids, _, kind) in enumerate(functions)
    ]


GPU, SWITCH = 0x030200, 0x068000


@pytest.mark.parametrize(
    ("device", "count", "switches", "part"),
    [
        ("20b2", 8, 6, "HGX A100"), ("2330", 8, 4, "HGX H100"), ("2330", 7, 4, "HGX H100"), ("2330", 7, 0, "HGX H100"),
        ("2330", 4, 0, "4x H100 SXM"), ("2330", 2, 0, None), ("2335", 8, 4, "HGX H200"), ("2901", 8, 0, "HGX B200"),
        ("2941", 4, 0, "GB200 tray"), ("26b9", 3, 0, "L40S PCIe"), ("ffff", 8, 0, None),
    ],
)  # fmt: skip
def test_part_is_recognised(device: str, count: int, switches: int, part: str | None) -> None:
    functions = [(f"10de:{device}", "", GPU)] * count + [("10de:22a3", "", SWITCH)] * switches
    found = recognise(bus(*functions))
    assert (found.name if found else None) == part


def test_mixed_and_empty_machines_are_no_part() -> None:
    assert recognise(bus(("10de:2330", "", GPU), ("10de:26b9", "", GPU))) is None
    assert recognise([]) is None


def test_catalogue_is_consistent() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    for part in PARTS:
        assert part.source
        if part.all_reduce_gbytes_s:
            assert 0.4 * part.gpu.nvlink_gbytes_s < part.all_reduce_gbytes_s < 1.56 * part.gpu.nvlink_gbytes_s


DECLARED = """
[class.h100.checkpoint]
path = "/shared/check points"
interval_min = 30

[class.h100.ports]
point_to_point = false
networks = ["rdma/rail-0", "rdma/rail-1"]
"""


def test_checkpoints_addressing_and_networks_can_be_declared(tmp_path: Path) -> None:
    node = NodeFacts(from_document(dict(whole_node("hgx-h100"), node="gpu001"), "x"))
    site = load(write(tmp_path, DECLARED)).site(node)
    assert site.checkpoint_path.value == "/shared/check points"
    assert site.checkpoint_interval_min.source == "cluster.toml class.h100.checkpoint.interval_min"
    assert site.point_to_point.value is False
    assert site.networks.value == ("rdma/rail-0", "rdma/rail-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[class.a.checkpoint]\npath = "shared"', "takes an absolute path"),
        ("[class.a.checkpoint]\ninterval_min = 30", "has an interval but no path"),
        ('[class.a.checkpoint]\npath = "/x"\ninterval_min = "30"', "takes a number"),
        ("[class.a.ports]\nnetworks = [1]", "takes a list of texts"),
        ('[class.a.ports]\npoint_to_point = "yes"', "takes true or false"),
    ],
)
def test_errors_in_declarations(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterFileError, match=message):
        load(write(tmp_path, text))


def test_the_checkpoints_probe_is_one_argument_vector() -> None:
    """L44, L60: a path is never interpreted by a shell."""
    probe = checkpoints("/a b/$(id)'\"")
    assert probe.argv[:3] == ("find", "-H", "/a b/$(id)'\"")
    assert probe.argv[-1] == r"%T@ %y %P\n"

"""Logs in forms from public issues; the reader's result is checked by hand, line by line."""

from __future__ import annotations

import json

import pytest

from preflight.parsers import nccl_log
from preflight.parsers.nccl_log import NcclLog
from preflight.parsers.nccl_log.to_json import document
from tests.support import paths

DATA = paths.DATA / "outside" / "nccl"


def read(name: str) -> NcclLog:
    return nccl_log.read([DATA / f"{name}.log"])


def channels(log: NcclLog) -> list[tuple[str, bool | None, int]]:
    return [(entry.network, entry.gpudirect, entry.count) for entry in log.channels]


def uses(found: tuple[nccl_log.Use, ...]) -> list[tuple[str, int]]:
    return [(use.name, use.count) for use in found]


def failed(log: NcclLog) -> list[tuple[str, str | None, int]]:
    return [(failure.id, failure.host, failure.count) for failure in log.failures]


#: name → version, driver, ranks, nodes, hosts, lines of NCCL
HEADS = {
    "boxed-2.10": (None, None, None, None, ["task-4183-qm27h"], 4),
    "cloudwatch-twice-2.21": ("2.21.5", "12.4", None, None, ["ip-10-12-95-168"], 5),
    "crossing-rails-2.11": (None, None, None, None, ["10-71-28-136"], 9),
    "efa-gdr-2.21": (None, None, None, None, ["6hgx3-8"], 6),
    "gdr-by-distance-2.4": ("2.4.7", None, None, 2, ["driver_node", "assistant_node"], 8),
    "glued-2.20": (None, "12.4", 4, None, ["7c52906e1b84"], 11),
    "hidden-host-2.18": (None, "12.1", None, None, [], 8),
    "ib-disabled-2.18": (None, "12.2", None, 2, ["node"], 8),
    "in-flowing-text-2.19": (None, None, None, None, ["rtx4090-07"], 6),
    "local-protection-2.18": (None, None, None, 2, ["Node-5", "Node-4"], 6),
    "mpirun-tags-2.4": ("2.4.2", None, None, 2, ["acc4", "acc5"], 5),
    "no-host-2.5": ("2.5.7", None, 16, None, [], 16),
    "no-network-one-node-2.29": (None, None, None, None, ["towerw5500-02"], 13),
    "one-node-in-a-container-2.20": ("2.20.5", "12.4", 2, 1, ["90ab3f72e615"], 16),
    "pdsh-sharp-2.18": (None, None, 16, None, ["ml4-h100-bench-worker-0"], 7),
    "ray-rccl": (None, None, 2, None, ["merlin"], 6),
    "retry-exceeded-2.20": (None, None, None, None, ["computer-demo"], 6),
    "rings-2.4": (None, None, None, 2, ["initial_box", "companion_host"], 9),
    "warn-with-time-2.27": (None, None, None, None, ["node-07.example.org"], 1),
    "duplicate-gpu-2.18": (None, None, None, None, ["rgpu4063"], 5),
    "one-node-of-two-2.18": (None, None, 16, None, [], 6),
    "torch-last-error": (None, None, None, None, ["gpshared2284"], 2),
    "efa-2.24": (None, None, None, 2, ["4dgx7-4", "4dgx7-5"], 9),
    "one-container-2.5": ("2.5.6", None, None, None, ["e04b7719c2d6"], 7),
    "sharp-loaded-2.20": (None, None, None, 2, ["bh200-gpu31", "bh200-gpu32"], 8),
    "shm-full-2.27": (None, None, None, None, ["ci-m-x86iavx512-29-113-t4-4-kqrtz-runner-b7hxd-workflow"], 5),
    "torch-watchdog": (None, None, None, None, ["nhrtao3wzd5kxe8mqy2g1"], 3),
    "unknown-warning-2.21": (None, None, None, None, ["soak-nccl-p5-3-worker-0"], 4),
    "warning-without-failure-2.4": ("2.4.8", None, None, None, ["kunlun"], 8),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(name: str) -> None:
    log = read(name)
    found = (log.nccl_version, log.cuda_driver, log.nranks, log.nnodes, list(log.hosts), log.lines)
    assert found == HEADS[name]


def test_every_file_is_listed() -> None:
    files = {path.stem for path in DATA.glob("*.log")}
    assert files == set(HEADS)
    table = (DATA / "README.md").read_text()
    assert all(f"`{name}.log`" in table for name in files)


#: name → networks chosen, channels, inside a node
WAYS = {
    "boxed-2.10": ([("IB", 2)], [], []),
    "crossing-rails-2.11": ([], [("IB", True, 9)], []),
    "efa-gdr-2.21": ([], [("AWS Libfabric", True, 4)], []),
    "gdr-by-distance-2.4": ([("IB", 1)], [], []),  # NET/Socket is only its rendezvous
    "glued-2.20": ([("Socket", 1)], [], [("P2P/IPC", 2)]),
    "hidden-host-2.18": ([], [("Socket", False, 2)], [("P2P/IPC", 2)]),
    "ib-disabled-2.18": ([("Socket", 1)], [], []),
    "mpirun-tags-2.4": ([("IB", 1)], [], []),
    "no-host-2.5": ([("IB", 1)], [("IB", False, 2)], [("P2P/IPC", 1), ("SHM", 1)]),
    "no-network-one-node-2.29": ([("Socket", 2)], [], []),
    "one-node-in-a-container-2.20": ([("Socket", 2)], [], []),
    "pdsh-sharp-2.18": ([("IBext", 1)], [], []),
    "rings-2.4": ([], [("IB", False, 3)], [("P2P/IPC", 3)]),
    "efa-2.24": ([("Libfabric", 1)], [], []),
    "one-container-2.5": ([("Socket", 2)], [], []),
    "sharp-loaded-2.20": ([("IBext", 1)], [], []),
    "warning-without-failure-2.4": ([("Socket", 1)], [], []),
}


@pytest.mark.parametrize("name", WAYS)
def test_ways(name: str) -> None:
    log = read(name)
    assert (uses(log.networks), channels(log), uses(log.intra_node)) == WAYS[name]


#: name → failures, root cause first; every other file shows none
FAILURES = {
    "efa-gdr-2.21": [("ofi_generic_warn", "6hgx3-8", 2)],
    "in-flowing-text-2.19": [("message_truncated", "rtx4090-07", 1)],
    "local-protection-2.18": [("ib_completion_local_protection", "Node-5", 2)],
    "retry-exceeded-2.20": [
        ("ib_completion_retry_exceeded", "computer-demo", 1),
        ("ib_completion_wr_flush", "computer-demo", 1),
    ],
    "warn-with-time-2.27": [("ib_modify_qp_timeout", "node-07.example.org", 1)],
    "shm-full-2.27": [("shm_no_space", "ci-m-x86iavx512-29-113-t4-4-kqrtz-runner-b7hxd-workflow", 2)],
    "duplicate-gpu-2.18": [("duplicate_gpu", "rgpu4063", 2)],
    "torch-last-error": [("bad_address_family", None, 1), ("internal_error", None, 1)],
    "torch-watchdog": [("torch_watchdog_timeout", None, 4)],
    "unknown-warning-2.21": [
        ("unrecognised_warning", "soak-nccl-p5-3-worker-0", 1),
        ("internal_error", "soak-nccl-p5-3-worker-0", 1),
    ],
}


@pytest.mark.parametrize("name", HEADS)
def test_failures(name: str) -> None:
    assert failed(read(name)) == FAILURES.get(name, [])


def test_hints() -> None:
    assert [(hint.id, hint.count) for hint in read("rings-2.4").hints] == [("gdr_disabled_distance", 2)]


def test_plugins() -> None:
    def plugins(name: str) -> list[tuple[str, str | None]]:
        return [(plugin.state, plugin.name) for plugin in read(name).plugins]

    assert plugins("hidden-host-2.18") == [("loaded", "IBext")]
    assert plugins("one-node-in-a-container-2.20") == [("loaded", "IBext_v8")]
    assert plugins("ib-disabled-2.18")[0] == ("not found", "libnccl-net.so")
    assert plugins("no-network-one-node-2.29") == [("not found", "librccl-net.so"), ("failed", "IB")]
    assert plugins("ray-rccl") == [("not found", "librccl-net.so")]


def test_hcas() -> None:
    (hca,) = read("no-host-2.5").hcas
    assert (hca.name, hca.port, hca.channels, hca.unused_on) == ("mlx5_0", 1, 2, ())
    assert [device.sharp for device in read("pdsh-sharp-2.18").ib_devices] == [True]
    assert [device.roce for device in read("mpirun-tags-2.4").ib_devices] == [True] * 4
    assert read("no-network-one-node-2.29").ib_devices == ()


def test_rails_that_are_crossed() -> None:
    rails = read("crossing-rails-2.11").rails
    assert rails is not None
    assert (rails.seen, rails.crossing) == (3, 2)
    straight = read("rings-2.4").rails
    assert straight is not None
    assert (straight.seen, straight.crossing) == (1, 0)


def test_environment_and_obstacles() -> None:
    log = read("ib-disabled-2.18")
    assert [(v.name, v.value, v.count) for v in log.environment] == [("NCCL_IB_DISABLE", "1", 2)]
    assert [line.number for line in log.obstacles] == [7]
    assert [line.number for line in read("no-network-one-node-2.29").obstacles] == [2, 3, 5]


def test_no_rank_is_missing_where_only_some_are_pasted() -> None:
    for name in ("pdsh-sharp-2.18", "ray-rccl", "glued-2.20", "one-node-of-two-2.18"):
        log = read(name)
        assert log.missing == ()
        assert [(u.completed, u.nranks) for u in log.unfinished] == [(0, log.nranks)]


def test_rings_trees_and_affinity() -> None:
    log = read("no-host-2.5")
    assert (log.ring_channels, log.tree_channels) == (2, 2)
    assert log.rings[0] == " ".join(str(rank) for rank in range(16))
    assert [(a.gpu, a.cpus) for a in log.affinity] == [(0, "ffff0000,ffff0000")]


def test_times_of_warnings() -> None:
    assert [w.time for w in read("warn-with-time-2.27").warnings] == ["2026-02-11 17:25:54"]
    assert [w.device for w in read("warn-with-time-2.27").warnings] == [5]


def test_ranks_of_failures() -> None:
    assert [failure.rank for failure in read("torch-watchdog").failures] == [13]
    assert [failure.rank for failure in read("duplicate-gpu-2.18").failures] == [6]
    assert [failure.rank for failure in read("unknown-warning-2.21").failures] == [2, 2]


def test_a_plug_in_that_is_loaded_is_no_use_of_it() -> None:
    log = read("sharp-loaded-2.20")
    assert [(plugin.state, plugin.name) for plugin in log.plugins] == [
        ("loaded", "NCCL RDMA Plugin v6"),
        ("loaded", "SHARP"),
        ("loaded", "IBext"),
    ]
    assert log.collnet == ()
    assert [(provider.name) for provider in [read("efa-2.24").ofi_provider] if provider] == ["efa"]


#: name → output of `preflight read`: network, between nodes, inside a node, GPUDirect RDMA
DOCUMENTS = {
    "crossing-rails-2.11": (None, ["IB"], [], True),
    "efa-2.24": ("Libfabric", ["Libfabric"], [], None),
    "efa-gdr-2.21": (None, ["AWS Libfabric"], [], True),
    "hidden-host-2.18": (None, ["Socket"], ["P2P"], None),
    "no-host-2.5": ("IB", ["RoCE"], ["P2P", "SHM"], False),
    "mpirun-tags-2.4": ("IB", ["RoCE"], [], None),
    "one-node-in-a-container-2.20": ("Socket", [], [], None),
    "pdsh-sharp-2.18": ("IBext", ["IB"], [], None),
    "rings-2.4": (None, ["IB"], ["P2P"], False),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(name: str) -> None:
    found = document(read(name))
    ways = found["transports"]
    network = found["network"] if read(name).networks else None
    assert (network, ways["inter_node"], ways["intra_node"], found["gpudirect_rdma"]) == DOCUMENTS[name]
    assert json.loads(json.dumps(found)) == found


def test_failures_of_a_document() -> None:
    first, second = document(read("retry-exceeded-2.20"))["failures"]
    assert (first["id"], first["host"], first["line"], first["echo"]) == (
        "ib_completion_retry_exceeded", "computer-demo", 1, False,
    )  # fmt: skip
    assert (second["id"], second["line"], second["echo"]) == ("ib_completion_wr_flush", 6, True)

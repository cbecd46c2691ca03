"""``preflight plan`` on the saved evidence of clusters: InfiniBand, RoCE and NVL72 racks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from tests.scenarios.test_layouts import LLAMA_8B, LLAMA_70B, MIXTRAL, SCHEMA, raised, script
from tests.support import layout_clusters
from tests.support.machines.lldp import LLDP

TREE = "[class.all.tree]\noversubscription = {}\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("clusters")
    return {
        "roce": layout_clusters.roce(folder / "roce", 12, layout_clusters.rail_leaves(4)),
        "one leaf each": layout_clusters.roce(folder / "flat", 6, layout_clusters.node_leaves(3)),
        "infiniband": layout_clusters.infiniband(folder / "ib", 8, layout_clusters.rail_leaves(4)),
        "racks": layout_clusters.nvl72(folder / "nvl72", 2, trays=6),
        "mixed racks": layout_clusters.nvl72(folder / "mixed", 2, 6, lambda rack, tray: f"tray{2 * tray + rack:02d}"),
    }  # fmt: skip


def plan(tmp_path: Path, text: str, evidence: Path, *more: str) -> dict[str, Any]:
    path = tmp_path / "train.sh"
    path.write_text(text)
    words = ["plan", str(path), "--evidence", str(evidence), "--json", *more]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.stdout, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def status(document: dict[str, Any], check: str) -> set[str]:
    return {finding["status"] for finding in document["findings"] if finding["check"] == check}


def message(document: dict[str, Any], check: str) -> str:
    return " ".join(finding["message"] for finding in document["findings"] if finding["check"] == check)


@pytest.mark.parametrize(("ratio", "pipeline"), [("1", "pass"), ("2", "warn"), ("", "unknown")])
def test_leaves_that_lldp_names(tmp_path: Path, saved: dict[str, Path], ratio: str, pipeline: str) -> None:
    more: list[str] = []
    if ratio:
        (tmp_path / "cluster.toml").write_text(TREE.format(ratio))
        more = ["--cluster", str(tmp_path / "cluster.toml")]
    document = plan(tmp_path, script(LLAMA_70B, tp=8, pp=4, gbs=96), saved["roce"], *more)
    assert document["cluster"]["part"] == "HGX H100"
    assert document["cluster"]["nodes"] == 12
    assert status(document, "layout.pipeline-rails") == {pipeline}
    assert document["exit_status"] == (3 if pipeline == "unknown" else 0)
    if ratio:
        assert "cluster.toml" in document["cluster"]["source"]
    crossing = {own["axis"]: own["crosses"] for own in document["axes"]}
    assert crossing == {"tensor": "NVLink", "pipeline": "spine", "data": "spine"}


def test_a_pipeline_below_its_leaves(tmp_path: Path, saved: dict[str, Path]) -> None:
    """Four nodes share their leaves, so the oversubscription of the spine is irrelevant."""
    document = plan(tmp_path, script(LLAMA_70B, tp=8, pp=4, gbs=96), saved["roce"], "--nodes", "gpu[005-008]")
    assert document["exit_status"] == 0
    assert document["cluster"]["source"] == "evidence of gpu[005-008]"
    assert {own["crosses"] for own in document["axes"]} == {"NVLink", "leaf"}


def test_stages_on_different_rails(tmp_path: Path, saved: dict[str, Path]) -> None:
    text = script(LLAMA_8B, tp=2, pp=2, gbs=504)
    document = plan(tmp_path, text, saved["roce"], "--gpus", "24", "--nodes", "gpu[001-003]")
    assert status(document, "layout.pipeline-rails") == {"warn"}
    assert "rank 0 is on rail 0 of gpu001, rank 12 on rail 4 of gpu002" in message(document, "layout.pipeline-rails")
    # below one leaf for all NICs of a node, rails do not matter
    document = plan(tmp_path, text, saved["one leaf each"], "--gpus", "24", "--nodes", "gpu[001-003]")
    assert status(document, "layout.pipeline-rails") == {"pass"}


def test_a_sweep_shows_leaves_and_their_uplinks(tmp_path: Path, saved: dict[str, Path]) -> None:
    """Each leaf of the sweep has four hosts and one uplink."""
    document = plan(tmp_path, script(LLAMA_70B, tp=8, pp=8, gbs=64), saved["infiniband"])
    assert status(document, "layout.pipeline-rails") == {"warn"}
    assert "oversubscribed 4:1" in message(document, "layout.pipeline-rails")
    (tmp_path / "cluster.toml").write_text(TREE.format("1"))  # the operator's declaration takes precedence
    more = ["--cluster", str(tmp_path / "cluster.toml")]
    declared = plan(tmp_path, script(LLAMA_70B, tp=8, pp=8, gbs=64), saved["infiniband"], *more)
    assert raised(declared) == set()


def test_domains_of_racks(tmp_path: Path, saved: dict[str, Path]) -> None:
    """Six trays of four GPUs in each rack."""
    healthy = plan(tmp_path, script(LLAMA_70B, tp=8, pp=1, gbs=48), saved["racks"])
    assert status(healthy, "layout.tensor-domain") == {"pass"}
    crossing = plan(tmp_path, script(LLAMA_70B, tp=16, pp=1, gbs=48), saved["racks"])
    assert status(crossing, "layout.tensor-domain") == {"fail"}
    assert "ranks 16-31 are on rack00-tray04, rack00-tray05, rack01-tray00 and 1 more" in message(
        crossing, "layout.tensor-domain"
    )
    mixed = plan(tmp_path, script(LLAMA_70B, tp=8, pp=1, gbs=48), saved["mixed racks"])
    assert status(mixed, "layout.tensor-domain") == {"fail"}
    assert "6 of the tensor-parallel groups" in message(mixed, "layout.tensor-domain")
    experts = plan(tmp_path, script(MIXTRAL, tp=1, pp=1, ep=8, gbs=48), saved["mixed racks"])
    assert status(experts, "layout.expert-domain") == {"fail"}


def test_the_order_of_a_hostfile(tmp_path: Path, saved: dict[str, Path]) -> None:
    """Alternating names of two racks, sorted into rack order; and slots distributed cyclically."""
    ordered, dealt = tmp_path / "ordered", tmp_path / "dealt"
    trays = [f"tray{2 * tray + rack:02d}" for rack in (0, 1) for tray in range(6)]
    ordered.write_text("".join(f"{name} slots=4\n" for name in trays))
    text = script(LLAMA_70B, tp=8, pp=1, gbs=48)
    document = plan(tmp_path, text, saved["mixed racks"], "--hostfile", str(ordered))
    assert status(document, "layout.tensor-domain") == {"pass"}
    dealt.write_text("# one rank in each line\n" + 8 * "gpu001\ngpu002\n")
    document = plan(tmp_path, text, saved["roce"], "--hostfile", str(dealt))
    assert status(document, "layout.tensor-domain") == {"fail"}
    assert "does not keep the ranks of a node together" in message(document, "layout.tensor-domain")
    (fix,) = {finding["fix"] for finding in document["findings"] if finding["check"] == "layout.tensor-domain"}
    assert "hostfile" in fix
    dealt.write_text("gpu001:4\ngpu002:4\n")
    document = plan(tmp_path, text, saved["roce"], "--hostfile", str(dealt), "--gpus", "16")
    assert "the hostfile or job has 8 ranks, but the layout has 16" in message(document, "layout.tensor-domain")


def _running(folder: Path, at: Callable[[int], int]) -> Path:
    """Write two nodes with ranks of a job; ``at`` returns the node of a rank."""
    layout_clusters.roce(folder, 2, layout_clusters.rail_leaves(2))
    for number, path in enumerate(sorted(folder.glob("*.json"))):
        document = json.loads(path.read_text())
        own = {
            "pids": [100], "count": 8, "name": "python3", "environment": {"WORLD_SIZE": "16"},
            "numbers": {"RANK": [rank for rank in range(16) if at(rank) == number]},
        }  # fmt: skip
        document["records"]["env:ranks"]["value"]["environments"] = [own]
        path.write_text(json.dumps(document))
    return folder


def test_the_order_of_running_ranks(tmp_path: Path) -> None:
    text = script(LLAMA_70B, tp=8, pp=1, gbs=48)
    apart = plan(tmp_path, text, _running(tmp_path / "apart", lambda rank: rank % 2), "--running")
    assert status(apart, "layout.tensor-domain") == {"fail"}
    assert "does not keep the ranks of a node together" in message(apart, "layout.tensor-domain")
    assert "ranks running in" in apart["cluster"]["source"]
    joined = plan(tmp_path, text, _running(tmp_path / "joined", lambda rank: rank // 8), "--running")
    assert status(joined, "layout.tensor-domain") == {"pass"}


def test_the_lowest_power_limit_sets_the_pace(tmp_path: Path) -> None:
    folder = layout_clusters.roce(tmp_path / "capped", 2, layout_clusters.rail_leaves(2))
    text = script(LLAMA_70B, tp=8, pp=1, gbs=48)
    full = plan(tmp_path, text, folder)
    path = sorted(folder.glob("*.json"))[1]
    path.write_text(path.read_text().replace('"power_enforced_mw": 700000', '"power_enforced_mw": 500000', 1))
    capped = plan(tmp_path, text, folder)
    assert 1.1 < capped["step"]["seconds"] / full["step"]["seconds"] < 1.4
    assert {"name": "power limit", "value": "500 W", "origin": "the clock falls to 78%"} in capped["rates"]


def test_nodes_of_two_kinds_are_named(tmp_path: Path, saved: dict[str, Path]) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    for path in [*sorted(saved["roce"].glob("*.json"))[:2], *sorted(saved["racks"].glob("*.json"))[:1]]:
        (folder / path.name).write_bytes(path.read_bytes())
    document = plan(tmp_path, script(LLAMA_8B, tp=2, pp=1, gbs=128), folder, "--gpus", "8")
    assert document["exit_status"] == 3
    assert document["cluster"] is None
    assert "part GB200 tray: rack00-tray00; part HGX H100: gpu[001-002]" in document["unknown"][0]
    document = plan(tmp_path, script(LLAMA_8B, tp=2, pp=1, gbs=128), folder, "--gpus", "8", "--nodes", "gpu001")
    assert document["exit_status"] == 0


def test_switches_that_share_a_name_show_no_leaf(tmp_path: Path) -> None:
    folder = layout_clusters.roce(tmp_path / "same", 4, lambda node, rail: "sonic")
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        record = document["records"][LLDP]
        record["out"] = record["out"].replace(f"Ethernet{int(document['node'][3:]) - 1}/", "Ethernet0/")
        path.write_text(json.dumps(document))
    document = plan(tmp_path, script(LLAMA_70B, tp=8, pp=4, gbs=32), folder)
    assert status(document, "layout.pipeline-rails") == {"unknown"}
    assert "may cross the spine" in message(document, "layout.pipeline-rails")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--nodes", "gpu[001-099]"], "has no evidence of gpu[013-099]"),
        (["--nodes", "gpu[001-"], "--nodes: "),
        (["--on", "4 x HGX H100"], "--on and --evidence both name the cluster"),
        (["--running"], "--running: no rank of a job was running"),
        (["--running", "--hostfile", "bad"], "--running needs --evidence DIR, and --hostfile does not apply"),
        (["--hostfile", "missing"], "missing cannot be read"),
        (["--hostfile", "bad"], "bad:2: 'gpu 002' is not a host"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, saved: dict[str, Path], more: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("gpu001\ngpu 002\n")
    job = script(LLAMA_8B, tp=2, pp=1, gbs=128)
    done = CliRunner().invoke(main, ["plan", job, "--evidence", str(saved["roce"]), *more], catch_exceptions=False)
    assert text in done.output
    assert done.exit_code == 2


def _all_reduce(gpu: str, busbw: float, ranks: int = 8, footer: bool = True) -> str:
    """Return an all_reduce_perf report, in the format of nccl-tests 2.17."""
    devices = [
        f"#  Rank {rank:2} Group  0 Pid  9{rank} on gpu{rank // 8 + 1:03} device {rank % 8} [0000:1{rank % 8}:00] {gpu}"
        for rank in range(ranks)
    ]
    half = f"  1690.5  158.79  {busbw:.2f}       0"
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22804 nccl-library=22804",
        "# Collective test starting: all_reduce_perf",
        "# Using devices",
        *devices,
        "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                              " + 2 * "     (us)  (GB/s)  (GB/s)       ",
        "   268435456      67108864     float     sum      -1" + half + half,
        *(["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {busbw}", "#"] if footer else []),
    ]
    return "\n".join(lines) + "\n"


def test_measured_bandwidths(tmp_path: Path, saved: dict[str, Path]) -> None:
    """Tensor parallelism without sequence parallelism uses all-reduce over NVLink."""
    text = script(LLAMA_70B, tp=8, pp=4, gbs=96).replace("--sequence-parallel", "")
    customary = plan(tmp_path, text, saved["roce"])
    log = tmp_path / "slow.log"
    log.write_text(_all_reduce("NVIDIA H100 80GB HBM3", 180.0))
    slow = plan(tmp_path, text, saved["roce"], "--log", str(log))
    parts = [{own["name"]: own for own in document["step"]["parts"]} for document in (customary, slow)]
    assert (parts[0]["tensor"]["basis"], parts[1]["tensor"]["basis"]) == ("customary", "measured")
    assert parts[0]["tensor"]["busbw_gbytes_s"] == 360
    assert parts[1]["tensor"]["busbw_gbytes_s"] == pytest.approx(180)
    assert parts[1]["data"]["basis"] == "customary"  # nothing was measured between nodes
    assert slow["step"]["seconds"] > customary["step"]["seconds"]
    assert slow["measured"] == {"all_reduce/NVLink": "slow.log:1: 180 GB/s over 8 GPUs"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_all_reduce("NVIDIA A100-SXM4-80GB", 230.0), "it ran on A100 SXM, but the plan is for H100 SXM"),
        (_all_reduce("NVIDIA H100 80GB HBM3", 230.0, footer=False), "it did not complete successfully"),
        (_all_reduce("NVIDIA H100 80GB HBM3", 230.0, ranks=9), "9 ranks on 2 hosts do not fit HGX H100"),
    ],
)
def test_a_run_on_other_hardware_is_not_used(tmp_path: Path, saved: dict[str, Path], text: str, why: str) -> None:
    (tmp_path / "run.log").write_text(text)
    job = script(LLAMA_70B, tp=8, pp=4, gbs=96)
    document = plan(tmp_path, job, saved["roce"], "--log", str(tmp_path / "run.log"))
    assert document["measured"] == {}
    assert f"run.log:1: not used: {why}" in document["gaps"]


def test_the_sweep_of_a_node_that_is_not_chosen_is_used(tmp_path: Path, saved: dict[str, Path]) -> None:
    """The first node swept the fabric; without it, the oversubscription used to be unknown."""
    job = script(LLAMA_70B, tp=8, pp=4, gbs=96)
    document = plan(tmp_path, job, saved["infiniband"], "--nodes", "gpu[003-006]", "--gpus", "32")
    assert status(document, "layout.pipeline-rails") == {"warn"}
    assert status(document, "layout.world-size") == {"pass"}


def test_a_job_that_is_larger_than_the_evidence(tmp_path: Path, saved: dict[str, Path]) -> None:
    document = plan(tmp_path, script(LLAMA_70B, tp=8, pp=4, gbs=96), saved["roce"], "--nodes", "gpu[001-002]",
                    "--gpus", "32")  # fmt: skip
    assert document["exit_status"] == 1
    assert "fail" in status(document, "layout.world-size")
    assert status(document, "layout.tensor-domain") == {"unknown"}

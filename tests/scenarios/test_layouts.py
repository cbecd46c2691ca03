"""``preflight plan`` on complete jobs: planted violations are found, healthy layouts have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preflight._startup.lightclass import fields
from preflight.cli.app import main
from preflight.expectations import job_table
from preflight.layout import costs
from preflight.layout.job import Parallelism, Schedule, Transformer
from preflight.parsers.job_config import deepspeed
from tests.support.paths import ROOT

SCHEMA = json.loads((ROOT / "preflight" / "schemas" / "layout-1.json").read_text())

INFINIBAND = "512 x HGX H100, rail-optimised, units of 32 nodes, 80 GB, 1:1"
ROCE = "128 x HGX H200, rail-optimised, units of 16 nodes, 8 x 400G, 2:1"
NVL72 = "8 x GB200 NVL72, 1:1"
A100 = "256 x HGX A100, rail-optimised, units of 20 nodes, 80 GB, 1:1"

#: Arguments of models of known shape.
LLAMA_8B = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --vocab-size 128256 --swiglu --untie-embeddings-and-output-weights --seq-length 8192"
)
LLAMA_70B = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention "
    "--num-query-groups 8 --vocab-size 128256 --swiglu --untie-embeddings-and-output-weights --seq-length 8192"
)
GPT_175B = (
    "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --vocab-size 50257 --seq-length 2048 "
    "--attention-backend flash"
)
MIXTRAL = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --vocab-size 32000 --swiglu --untie-embeddings-and-output-weights --seq-length 4096 "
    "--num-experts 8 --moe-router-topk 2 --expert-tensor-parallel-size 1"
)
DEEPSEEK_V3 = (
    "--num-layers 64 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --vocab-size 129280 --swiglu "
    "--untie-embeddings-and-output-weights --seq-length 4096 --num-experts 256 --moe-router-topk 8 "
    "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --expert-tensor-parallel-size 1 "
    "--moe-layer-freq ([0]*3+[1]*61) --recompute-granularity full"
)
COMMON = "--bf16 --use-distributed-optimizer --sequence-parallel --overlap-grad-reduce --overlap-param-gather"


def script(model: str, **sizes: int | str) -> str:
    names = {
        "tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size", "cp": "context-parallel-size",
        "ep": "expert-model-parallel-size", "vp": "num-virtual-stages-per-pipeline-rank", "mbs": "micro-batch-size",
        "gbs": "global-batch-size",
    }  # fmt: skip
    extra = str(sizes.pop("extra", ""))
    options = " ".join(f"--{names[name]} {size}" for name, size in {"mbs": 1, **sizes}.items())
    return f"torchrun --nproc-per-node 8 pretrain_gpt.py {model} {COMMON} {options} {extra}\n"


def plan(tmp_path: Path, text: str, on: str, gpus: int, *more: str) -> dict[str, Any]:
    path = tmp_path / "train.sh"
    path.write_text(text)
    words = ["plan", str(path), "--on", on, "--gpus", str(gpus), "--json", *more]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == document["exit_status"]
    jsonschema.validate(document, SCHEMA)
    return document


def raised(document: dict[str, Any]) -> set[str]:
    return {finding["check"] for finding in document["findings"] if finding["status"] in ("fail", "warn")}


PLANTED = {
    "tensor parallelism over two nodes": (
        script(LLAMA_70B, tp=16, pp=4, gbs=512), INFINIBAND, 512, "layout.tensor-domain"),
    "ranks dealt out cyclically": (
        script(LLAMA_70B, tp=8, pp=4, gbs=512), f"{INFINIBAND}, cyclic", 512, "layout.tensor-domain"),
    "a tensor-parallel group across two racks": (
        script(LLAMA_70B, tp=16, pp=1, gbs=540, extra="--recompute-granularity full"), NVL72, 576,
        "layout.tensor-domain"),
    "experts that fit a node, over several": (
        script(MIXTRAL, tp=1, pp=1, ep=8, gbs=512), f"{INFINIBAND}, cyclic", 64, "layout.expert-domain"),
    "experts over an oversubscribed spine": (
        script(DEEPSEEK_V3, tp=1, pp=4, ep=256, gbs=4096), ROCE, 1024, "layout.expert-domain"),
    "stages on different rails": (
        script(LLAMA_8B, tp=2, pp=2, gbs=504), INFINIBAND, 24, "layout.pipeline-rails"),
    "stages over an oversubscribed spine": (
        script(LLAMA_70B, tp=8, pp=4, gbs=512), ROCE, 1024, "layout.pipeline-rails"),
    "a context ring in the wrong order": (
        script(LLAMA_8B, tp=1, pp=1, cp=8, gbs=64), f"{INFINIBAND}, cyclic", 32, "layout.ring-order"),
    "context parallelism by all-gather between nodes": (
        script(LLAMA_70B, tp=8, pp=4, cp=4, gbs=512, extra="--cp-comm-type all_gather"), INFINIBAND, 512,
        "layout.context-domain"),
    "a group size that does not divide the GPUs": (
        script(LLAMA_70B, tp=8, pp=5, gbs=512), INFINIBAND, 512, "layout.world-size"),
    "a batch that does not divide": (script(LLAMA_70B, tp=8, pp=4, gbs=500), INFINIBAND, 512, "layout.global-batch"),
    "heads that do not divide": (script(LLAMA_70B, tp=8, pp=3, gbs=512), INFINIBAND, 384, "layout.divisibility"),
    "fewer microbatches than stages": (
        script(LLAMA_70B, tp=8, pp=8, gbs=32), INFINIBAND, 512, "layout.microbatches"),
    "full sharding over an oversubscribed spine": (
        script(LLAMA_8B, tp=1, pp=1, gbs=1024, extra="--use-torch-fsdp2"), ROCE, 1024, "layout.sharding"),
    "more memory than a GPU has": (script(LLAMA_70B, tp=8, pp=1, gbs=64), A100, 64, "layout.memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, name: str) -> None:
    text, on, gpus, check = PLANTED[name]
    document = plan(tmp_path, text, on, gpus)
    assert check in raised(document), [f["message"] for f in document["findings"]]


HEALTHY = {
    "8B, data parallel": (script(LLAMA_8B, tp=1, pp=1, gbs=128, extra="--recompute-granularity full"), INFINIBAND, 8),
    "8B, one node": (script(LLAMA_8B, tp=2, pp=1, gbs=128), INFINIBAND, 8),
    "8B, tensor 4": (script(LLAMA_8B, tp=4, pp=1, gbs=512), INFINIBAND, 256),
    "8B, context": (script(LLAMA_8B, tp=2, pp=1, cp=4, gbs=256), INFINIBAND, 64),
    "8B, context over nodes in a ring": (script(LLAMA_8B, tp=4, pp=1, cp=4, gbs=256), INFINIBAND, 64),
    "70B": (script(LLAMA_70B, tp=8, pp=4, gbs=512), INFINIBAND, 512),
    "70B, interleaved": (script(LLAMA_70B, tp=8, pp=4, vp=5, gbs=512), INFINIBAND, 512),
    "70B, tensor 4": (script(LLAMA_70B, tp=4, pp=8, gbs=1024, extra="--recompute-granularity full"), INFINIBAND, 512),
    "70B, 4,096 GPUs": (script(LLAMA_70B, tp=8, pp=4, gbs=4096), INFINIBAND, 4096),
    "70B, context 2": (script(LLAMA_70B, tp=8, pp=4, cp=2, gbs=512), INFINIBAND, 512),
    "175B": (script(GPT_175B, tp=8, pp=12, gbs=1536), INFINIBAND, 1536),
    "175B, interleaved": (script(GPT_175B, tp=8, pp=8, vp=3, gbs=1536), INFINIBAND, 512),
    "175B on A100": (script(GPT_175B, tp=8, pp=16, gbs=1536, extra="--recompute-granularity full"), A100, 1024),
    "Mixtral": (script(MIXTRAL, tp=1, pp=4, ep=8, gbs=1024), INFINIBAND, 256),
    "Mixtral, tensor 2": (script(MIXTRAL, tp=2, pp=4, ep=4, gbs=1024), INFINIBAND, 256),
    "8B on RoCE below one leaf group": (script(LLAMA_8B, tp=2, pp=1, gbs=512), ROCE, 128),
    "70B on RoCE below one leaf group": (script(LLAMA_70B, tp=8, pp=4, gbs=128), ROCE, 128),
    "70B in NVLink domains": (script(LLAMA_70B, tp=8, pp=4, gbs=576), NVL72, 576),
    "Mixtral in NVLink domains": (script(MIXTRAL, tp=1, pp=1, ep=8, gbs=576), NVL72, 576),
    "8B in one NVLink domain": (script(LLAMA_8B, tp=4, pp=1, gbs=144), NVL72, 72),
    "node-limited routing": (
        script(DEEPSEEK_V3, tp=1, pp=16, ep=64, gbs=8192, extra="--moe-router-group-topk 4"), INFINIBAND, 2048),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_layout_raises_nothing(tmp_path: Path, name: str) -> None:
    document = plan(tmp_path, *HEALTHY[name])
    assert raised(document) == set(), [f["message"] for f in document["findings"] if f["status"] in ("fail", "warn")]
    assert document["exit_status"] == 0
    assert document["step"]["low"] < document["step"]["seconds"] < document["step"]["high"]


def test_there_are_enough_of_both() -> None:
    assert len(PLANTED) >= 12
    assert len(HEALTHY) >= 20


def test_cyclic_and_block_distribution_are_named(tmp_path: Path) -> None:
    text = script(LLAMA_70B, tp=8, pp=4, gbs=512).replace("torchrun --nproc-per-node 8", "python")
    document = plan(tmp_path, text + "srun --distribution=cyclic train.sh\n", INFINIBAND, 512)
    (message,) = (f["message"] for f in document["findings"] if f["check"] == "layout.tensor-domain")
    assert "cyclic distribution" in message
    (fix,) = (f["fix"] for f in document["findings"] if f["check"] == "layout.tensor-domain")
    assert "--distribution=block" in fix
    assert raised(plan(tmp_path, text + "srun --distribution=block train.sh\n", INFINIBAND, 512)) == set()


def test_what_is_not_stated_is_requested_by_name(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("train.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size $MBS\n")
    done = CliRunner().invoke(main, ["plan", str(path)], catch_exceptions=False)
    assert done.exit_code == 3
    for name in ("gpus", "vocabulary", "sequence", "micro_batch", "global_batch"):
        assert name in done.stdout
    assert f"{path}:1: --micro-batch-size: '$MBS' is not a number" in done.stdout
    assert "MFU" not in done.stdout


def test_a_size_that_cannot_be_read_is_not_the_default(tmp_path: Path) -> None:
    """A variable that the environment sets: with tensor 1 every check used to pass."""
    text = script(LLAMA_70B, tp="$TP", pp=4, gbs=512)
    document = plan(tmp_path, text, INFINIBAND, 512)
    assert document["exit_status"] == 3
    assert document["missing"] == ["tensor"]
    without_input = {"layout.lost-work", "layout.measured"}
    assert {own["status"] for own in document["findings"] if own["check"] not in without_input} == {"unknown"}
    assert plan(tmp_path, text, INFINIBAND, 512, "--set", "tp=8")["exit_status"] == 0
    assert "layout.tensor-domain" in raised(plan(tmp_path, text, INFINIBAND, 512, "--set", "tp=16"))


def test_memory_fails_warns_and_passes_by_what_is_stated(tmp_path: Path) -> None:
    """Megatron's arguments state everything; with a model alone, recomputation is unknown."""

    def verdict(document: dict[str, Any]) -> tuple[str, str]:
        return next((f["status"], f["message"]) for f in document["findings"] if f["check"] == "layout.memory")

    text = script(LLAMA_70B, tp=8, pp=1, mbs=8, gbs=512)
    assert verdict(plan(tmp_path, text, INFINIBAND, 512))[0] == "fail"
    assert verdict(plan(tmp_path, script(LLAMA_70B, tp=8, pp=1, gbs=512), INFINIBAND, 512))[0] == "warn"
    assert verdict(plan(tmp_path, f"{text.strip()} --recompute-granularity full", INFINIBAND, 512))[0] == "pass"
    smaller = script(LLAMA_70B, tp=8, pp=4, gbs=512)
    assert verdict(plan(tmp_path, smaller, INFINIBAND, 512))[0] == "pass"
    config = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
              "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu", "model_type": "llama",
              "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}  # fmt: skip
    sizes = ["--set", "seq=8192", "--set", "mbs=1", "--set", "gbs=64", "--set", "sharding=full"]
    status, message = verdict(plan(tmp_path, json.dumps(config), INFINIBAND, 64, *sizes))
    assert status == "warn"
    assert "not stated (recompute" in message
    assert verdict(plan(tmp_path, json.dumps(config), INFINIBAND, 64, *sizes, "--set", "recompute=none"))[0] == "fail"
    assert verdict(plan(tmp_path, json.dumps(config), INFINIBAND, 64, *sizes, "--set", "recompute=full"))[0] == "pass"


def test_what_if_and_search(tmp_path: Path) -> None:
    text = script(LLAMA_70B, tp=8, pp=4, gbs=512)
    changed = plan(tmp_path, text, INFINIBAND, 512, "--what-if", "tp=4,pp=8")
    assert (changed["job"]["tensor"], changed["job"]["pipeline"]) == (4, 8)
    assert changed["settings"]["tensor"]["origin"] == "--set"
    searched = plan(tmp_path, text, INFINIBAND, 512, "--search")
    times = [own["seconds"] for own in searched["search"]]
    assert times == sorted(times)
    assert len(times) == 5
    assert times[0] <= searched["step"]["seconds"] * 1.001
    assert all(own["memory_gib"] < 80 for own in searched["search"])


def test_files_of_other_frameworks(tmp_path: Path) -> None:
    model, engine = tmp_path / "config.json", tmp_path / "ds.json"
    model.write_text(json.dumps({
        "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
    }))  # fmt: skip
    engine.write_text(json.dumps({
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }))  # fmt: skip
    words = ["plan", str(engine), str(model), "--on", INFINIBAND, "--gpus", "64", "--set", "seq=4096", "--json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    document = json.loads(done.stdout)
    assert document["job"]["parameters"] == pytest.approx(8.03e9, rel=0.01)
    assert document["settings"]["sharding"] == {"value": "full", "origin": f"{engine}: zero_optimization.stage"}
    assert document["settings"]["global_batch"]["value"] == 4 * 64
    assert {own["axis"] for own in document["axes"]} == {"data"}


def test_a_stated_data_parallel_size(tmp_path: Path) -> None:
    text = script(LLAMA_70B, tp=8, pp=4, gbs=512)
    document = plan(tmp_path, text, INFINIBAND, 512, "--set", "dp=8")
    (message,) = (f["message"] for f in document["findings"] if f["check"] == "layout.world-size")
    assert "data 16 = 512 GPUs, but data 8 is stated" in message
    path = tmp_path / "train.sh"
    words = ["plan", str(path), "--on", "1 x HGX H100", "--set", "dp=8", "--set", "pp=1", "--json"]
    document = json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout)
    assert document["settings"]["gpus"] == {"value": 64, "origin": "--set: data x 8"}
    assert "the job has 64 GPUs, but the cluster has 8" in [f["message"] for f in document["findings"]]


def test_the_job_of_the_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    job = "\n".join(
        f"{name} = {value}" for name, value in {
            "tensor": 8, "pipeline": 4, "layers": 80, "hidden": 8192, "feed_forward": 28672, "heads": 64,
            "kv_heads": 8, "vocabulary": 128256, "sequence": 8192, "micro_batch": 1, "global_batch": 512,
            "gated": "true", "tied": "false", "sharding": '"optimizer"', "sequence_parallel": "true", "gpus": 512,
        }.items()
    )  # fmt: skip
    path.write_text(f"[job]\n{job}\n")
    words = ["plan", "--on", INFINIBAND, "--cluster", str(path), "--json"]
    document = json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout)
    assert document["exit_status"] == 0
    assert document["settings"]["tensor"] == {"value": 8, "origin": f"{path}: job.tensor"}
    changed = json.loads(CliRunner().invoke(main, [*words, "--set", "tp=16"], catch_exceptions=False).stdout)
    assert "layout.tensor-domain" in raised(changed)
    path.write_text("[job]\ntensor = 8\ntensors = 4\n")
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 2
    assert "job.tensors: unknown key - did you mean tensor?" in done.output
    done = CliRunner().invoke(main, ["plan", "--on", INFINIBAND], catch_exceptions=False)
    assert done.exit_code == 2
    assert "name the job: a script" in done.output


def declared(tmp_path: Path, text: str, cluster: str, gpus: int, *more: str) -> dict[str, Any]:
    (tmp_path / "train.sh").write_text(text)
    (tmp_path / "cluster.toml").write_text(cluster)
    words = ["plan", str(tmp_path / "train.sh"), "--cluster", str(tmp_path / "cluster.toml"), "--gpus", str(gpus)]
    document: dict[str, Any] = json.loads(CliRunner().invoke(main, [*words, "--json", *more]).stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def test_declared_leaves_are_the_groups_of_leaves(tmp_path: Path) -> None:
    """Two stages on two nodes: below one leaf, or over a spine that is oversubscribed."""
    job = script(LLAMA_8B, tp=8, pp=2, gbs=64)
    nodes = '[class.h100]\npart = "HGX H100"\nnodes = "gpu[1-4]"\ngpus = 8\nhcas = 8\n'
    nodes += "[class.h100.tree]\noversubscription = 3\n"
    near = declared(tmp_path, job, nodes + '[leaves]\na = "gpu[1-2]"\nb = "gpu[3-4]"\n', 16)
    apart = declared(tmp_path, job, nodes + '[leaves]\na = "gpu[1,3]"\nb = "gpu[2,4]"\n', 16)
    crossed = [{own["axis"]: own["crosses"] for own in plan["axes"]}["pipeline"] for plan in (near, apart)]
    assert crossed == ["leaf", "spine"]
    assert "layout.pipeline-rails" in raised(apart) - raised(near)
    chosen = declared(tmp_path, job, nodes + '[leaves]\na = "gpu[1,3]"\nb = "gpu[2,4]"\n', 16, "--nodes", "gpu[1,3]")
    assert {own["crosses"] for own in chosen["axes"]} == {"NVLink", "leaf"}
    partial = declared(tmp_path, job, nodes + '[leaves]\na = "gpu1"\n', 16)
    assert next(own["bytes_of_step"] for own in partial["links"] if own["link"] == "leaf uplink") is None


def test_declared_racks_are_nvlink_domains(tmp_path: Path) -> None:
    """A group of 16 on four trays of one rack, or on two of each of two racks."""
    job = script(LLAMA_8B, tp=16, pp=1, gbs=64, extra="--kv-channels 128").replace("per-node 8", "per-node 4")
    nodes = '[class.tray]\npart = "GB200 tray"\nnodes = "t[1-8]"\n[racks]\n'
    together = declared(tmp_path, job, nodes + 'a = "t[1-4]"\nb = "t[5-8]"\n', 16)
    split = declared(tmp_path, job, nodes + 'a = "t[1-2,5-6]"\nb = "t[3-4,7-8]"\n', 16)
    assert "layout.tensor-domain" in raised(split) - raised(together)


def test_nodes_outside_the_cluster_file_are_named(tmp_path: Path) -> None:
    nodes = '[class.h100]\npart = "HGX H100"\nnodes = "gpu[1-4]"\ngpus = 8\nhcas = 8\n'
    document = declared(tmp_path, script(LLAMA_8B, tp=8, pp=1, gbs=64), nodes, 16, "--nodes", "gpu[3-6]")
    assert document["exit_status"] == 3
    assert any("not among the nodes of" in reason and "gpu[5-6]" in reason for reason in document["unknown"])
    words = ["plan", str(tmp_path / "train.sh"), "--on", INFINIBAND, "--nodes", "gpu1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "--on has none" in done.output


def test_a_cluster_file_beside_on_is_noted(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[class.h100]\npart = "HGX H100"\ngpus = 8\nhcas = 8\n')
    document = plan(
        tmp_path, script(LLAMA_70B, tp=8, pp=4, gbs=512), INFINIBAND, 512, "--cluster", str(tmp_path / "cluster.toml")
    )
    assert any("because --on defines the cluster" in gap for gap in document["gaps"])


def test_every_setting_of_a_job_can_be_declared() -> None:
    computed = {own.name for kind in (Transformer, Parallelism, Schedule) for own in fields(kind)}
    assert computed <= {*job_table.NUMBERS, *job_table.CHOICES, *job_table.SWITCHES, *job_table.TEXTS}
    assert set(costs.INPUTS) == set(job_table.COSTS)


@pytest.mark.parametrize("kind", ["cyclic", "plane=4", "cyclic:block"])
def test_a_distribution_that_srun_is_given(tmp_path: Path, kind: str) -> None:
    text = script(LLAMA_70B, tp=8, pp=4, gbs=512).replace("torchrun --nproc-per-node 8", "python")
    assert "layout.tensor-domain" in raised(plan(tmp_path, f"srun -m {kind} {text}", INFINIBAND, 512))
    exported = f"export SLURM_DISTRIBUTION={kind}\n{text}"
    assert "layout.tensor-domain" in raised(plan(tmp_path, exported, INFINIBAND, 512))
    assert raised(plan(tmp_path, exported, INFINIBAND, 512, "--set", "distribution=plane=8")) == set()
    document = plan(tmp_path, f"srun -m arbitrary python -m torch.distributed.run {text}", INFINIBAND, 512)
    assert document["exit_status"] == 3
    assert "the distribution 'arbitrary'" in document["unknown"][0]


def test_arithmetic_in_an_array(tmp_path: Path) -> None:
    text = script(LLAMA_70B, tp=8, pp=4, gbs="$((NNODES * 8))").replace("\n", " )\n")
    text = "NNODES=${SLURM_NNODES:-64}\nARGS=( " + text
    document = plan(tmp_path, text, INFINIBAND, 512)
    assert document["settings"]["global_batch"]["value"] == 512
    assert document["exit_status"] == 0


def test_one_missing_setting_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(script(LLAMA_70B, tp=8, pp=4, gbs="$BATCH"))
    done = CliRunner().invoke(main, ["plan", str(path), "--on", INFINIBAND, "--gpus", "512"], catch_exceptions=False)
    assert done.stdout.count("UNKNOWN") == 1
    assert "UNKNOWN layout.world-size and 10 more checks: the job does not state global_batch" in done.stdout


def test_a_command_line_longer_than_a_file_name(tmp_path: Path) -> None:
    words = ["plan", script(LLAMA_70B, tp=8, pp=4, gbs=512), "--on", INFINIBAND, "--gpus", "512", "--json"]
    assert json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout)["exit_status"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.sh"], "cannot be read"),
        (["train.py --num-layers 2 --hidden-size 8", "--on", "4 x TPU"], "not in the part catalogue"),
        (["train.py --num-layers 2 --hidden-size 8", "--set", "tp"], "is not a setting"),
        (["train.py --num-layers 2 --hidden-size 8", "--set", "tp=eight"], "tensor must be a number"),
        (["train.py --num-layers 2 --hidden-size 8", "--set", "precision=fp64"], "precision must be one of"),
        (["sleep --time 3"], "does not describe a job in a supported format"),
    ],
)
def test_wrong_arguments(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["plan", *words], catch_exceptions=False)
    assert done.exit_code == 2
    assert message in done.output


def test_experts_that_tensor_parallelism_divides_name_the_option(tmp_path: Path) -> None:
    """Megatron-LM divides each expert by the tensor-parallel size: 8 x 2 GPUs do not fit a node, 8 do."""
    divided = MIXTRAL.replace(" --expert-tensor-parallel-size 1", "")
    sizes: dict[str, int] = {"tp": 2, "pp": 4, "ep": 8, "gbs": 1024}
    document = plan(tmp_path, script(divided, **sizes), INFINIBAND, 512)
    (fix,) = (f["fix"] for f in document["findings"] if f["check"] == "layout.expert-domain")
    assert fix == "Use --expert-tensor-parallel-size 1 (it is 2): groups of 8 fit a domain."
    assert "layout.expert-domain" not in raised(plan(tmp_path, script(MIXTRAL, **sizes), INFINIBAND, 512))


@pytest.mark.parametrize(("accumulation", "gaps"), [(4, ()), ("auto", ("train_batch_size", "gradient_accumulation"))])
def test_a_batch_of_deepspeed_that_follows_from_others_is_no_gap(accumulation: Any, gaps: tuple[str, ...]) -> None:
    settings = deepspeed.parse(
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation},
        "ds.json",
    )
    assert len(settings.gaps) == len(gaps)
    assert all(name in gap for name, gap in zip(gaps, settings.gaps, strict=True))

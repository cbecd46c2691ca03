"""YAML of NeMo and Megatron-Bridge: settings, references, and unread parts. The texts are made by hand."""

from __future__ import annotations

import pytest

from preflight.parsers.job_config import reader
from preflight.parsers.job_config.settings import JobConfigError

NEMO = """\
name: gpt
trainer:
  devices: 8
  num_nodes: 16
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 5  # stages
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 80
  hidden_size: 8192
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 64
  num_query_groups: 8
  activation: fast-swiglu
  share_embeddings_and_output_weights: false
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  cpu_offloading: null
  optim:
    name: mcore_distributed_optim
    overlap_grad_sync: true
"""
BRIDGE = """\
model:
  tensor_model_parallel_size: 2
  num_layers: 48
  hidden_size: 4096
  seq_length: ${dataset.sequence_length}
  num_moe_experts: 128
train:
  micro_batch_size: 2
  global_batch_size: 512
dataset:
  sequence_length: 8192
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: true
"""


def test_settings_of_nemo() -> None:
    read = reader.parse(NEMO, "job.yaml")
    expected = {
        "tensor": 4, "pipeline": 8, "virtual_stages": 5, "sequence": 4096, "layers": 80, "hidden": 8192, "heads": 64,
        "query_groups": 8, "micro_batch": 1, "global_batch": 256, "nodes": 16, "gpus_per_node": 8, "gated": True,
        "tied": False, "sequence_parallel": True, "recompute": "selective", "sharding": "optimizer",
        "overlap_gradients": True, "precision": "bf16",
    }  # fmt: skip
    assert {name: setting.value for name, setting in read.values.items()} == expected
    assert read.values["sharding"].origin == "job.yaml: model.optim.name"
    assert read.unread == {"feed_forward"}
    (gap,) = read.gaps
    assert gap.startswith("job.yaml: model.ffn_hidden_size: '${multiply:4, ${.hidden_size}}' is not evaluated")


def test_settings_of_megatron_bridge() -> None:
    read = reader.parse(BRIDGE, "job.yaml")
    values = {name: setting.value for name, setting in read.values.items()}
    assert values["sequence"] == 8192
    assert values["experts"] == 128
    assert (values["micro_batch"], values["global_batch"]) == (2, 512)
    assert (values["sharding"], values["overlap_gradients"]) == ("optimizer", True)


def test_a_reference_to_a_number_of_another_section() -> None:
    text = NEMO.replace("num_nodes: 16", "num_nodes: ${model.tensor_model_parallel_size}")
    assert reader.parse(text, "job.yaml").get("nodes") == 4
    circle = NEMO.replace("num_nodes: 16", "num_nodes: ${trainer.num_nodes}")
    assert "nodes" in reader.parse(circle, "job.yaml").unread


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  num_layers: [\n", "job.yaml:3: invalid YAML"),
        ("model:\n  num_layers: 3\n  <<: *a\n", r"merge keys \(<<\) are not supported"),
        ("model:\n  num_layers: &a [1]\n" + "x" * 200_001, "has more than 200,000 characters"),
        ("model:\n  num_layers: !!python/object/apply:os.system ['id']\n", "job.yaml:2: invalid YAML"),
        ("model:\n  num_layers: " + "[" * 5000 + "\n", "is not valid YAML"),
        ("job:\n  num_layers: 3\n", "does not describe a job in a supported format"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(JobConfigError, match=message):
        reader.parse(text, "job.yaml")


def test_a_value_that_is_not_a_number() -> None:
    read = reader.parse("model:\n  num_layers: many\n  hidden_size: [1, 2]\n  micro_batch_size: true\n", "job.yaml")
    assert read.unread == {"layers", "hidden"}
    assert "model.hidden_size: a list is not a number" in " ".join(read.gaps)


def test_aliases_do_not_multiply() -> None:
    """Thirty levels of two references each expand to a thousand million entries."""
    levels = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 31))
    read = reader.parse(f"a0: &a0 [1]\n{levels}model:\n  num_layers: 2\n  hidden_size: *a30\n", "job.yaml")
    assert read.unread == {"hidden"}

"""Purposes of process groups by their descriptions: Megatron's, and meshes of PyTorch and torchtitan."""

from __future__ import annotations

from preflight.facts.trace.purposes import purpose
from preflight.facts.trace.waiting import GroupOfRanks

PURPOSES = {
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp",
    "EXPERT_DATA_PARALLEL_GROUP": "dp",
    "INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP": "dp",
    "DATA_MODULO_EXPERT_PARALLEL_GROUP": "dp",
    "mesh_dp_shard_cp": "dp",
    "mesh_dp_cp": "dp",
    "mesh_dp_shard_mod_ep": "dp",
    "mesh_fsdp": "dp",
    "mesh_efsdp": "dp",
    "mesh_dp_replicate": "dp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp",
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "mesh_cp": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "mesh_ep": "ep",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "mesh_pp": "pp",
    "default_pg": None,
}


def test_each_description() -> None:
    of = {name: purpose(GroupOfRanks("1", name, (0, 1), True, frozenset(("allreduce",)))) for name in PURPOSES}
    assert of == PURPOSES

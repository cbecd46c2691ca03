"""The purpose of a process group: which parallelism it serves."""

from __future__ import annotations

import re

from preflight.facts.trace.waiting import GroupOfRanks

#: Names of gradient groups that contain two dimensions: data and experts, or data and context parallelism.
_GRADIENTS = re.compile(
    r"^(?:int(?:ra|er) partial )?(?:expert )?data (?:parallel|modulo expert)"
    r"|(?<![a-z])dp(?: shard)?(?: cp| mod ep)(?![a-z])|(?<![a-z])efsdp(?![a-z])",
    re.I,
)
#: Abbreviation, name, and words in the descriptions of groups, as in Megatron, PyTorch's device meshes and DeepSpeed.
_PURPOSES = (
    ("ep", "expert-parallel", re.compile(r"expert|(?<![a-z])ep(?![a-z])|(?<![a-z])moe", re.I)),
    ("tp", "tensor-parallel", re.compile(r"tensor|(?<![a-z])tp(?![a-z])", re.I)),
    ("pp", "pipeline-parallel", re.compile(r"pipe|(?<![a-z])pp(?![a-z])", re.I)),
    ("cp", "context-parallel", re.compile(r"context|(?<![a-z])cp(?![a-z])", re.I)),
    ("dp", "data-parallel", re.compile(r"data|(?<![a-z])(?:h?dp|fsdp|ddp|dp_shard|dp_replicate)(?![a-z])", re.I)),
)
NAMES = {short: name for short, name, _ in _PURPOSES}
#: Abbreviations, in the order of the layers of a job.
PURPOSES = ("tp", "cp", "ep", "pp", "dp")


def purpose(group: GroupOfRanks) -> str | None:
    """Return the abbreviation of a group's purpose; None if unknown."""
    words = group.description.replace("_", " ").strip()
    if _GRADIENTS.search(words):
        return "dp"
    for short, _, pattern in _PURPOSES:
        if pattern.search(words):
            return short
    if group.kinds == {"sendrecv"}:
        return "pp"
    return "ep" if "alltoall" in group.kinds else None


def group_kind(group: GroupOfRanks) -> str:
    """Return the purpose of a process group in words."""
    short = purpose(group)
    return f"{NAMES[short]} group" if short else "process group"

"""The number of layers in each pipeline stage.

Source: Megatron-LM, ``--decoder-first-pipeline-num-layers``, ``--account-for-embedding-in-pipeline-split`` and
``--pipeline-model-parallel-layout`` (``megatron/core/transformer/pipeline_parallel_layer_layout.py``).
"""

from __future__ import annotations

import re

#: Maximum number of characters in an expanded layout.
_MOST = 20_000

_REPEATED = re.compile(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d{1,4})")


def layers_of(layout: str) -> tuple[int, ...] | None:
    """Return the number of layers in each virtual stage; None if unreadable.

    A layout is like ``Et*3|(tt|)*29,m|L``: E is the embedding, t a layer, m a layer for multi-token prediction, and L
    the loss.
    """
    text = re.sub(r"[\s,]", "", layout)
    for _ in range(8):
        if len(text) > _MOST:
            return None
        expanded = _REPEATED.sub(lambda match: (match[1] or match[2] or "") * int(match[3]), text)
        if expanded == text:
            break
        text = expanded
    if not re.fullmatch(r"[EtmL|]+", text) or len(text) > _MOST:
        return None
    return tuple(stage.count("t") for stage in text.split("|"))


def depths(
    layers: int,
    stages: int,
    layout: str = "",
    ends: tuple[int, int] = (0, 0),
    counted: tuple[bool, bool] = (False,) * 2,
) -> tuple[float, ...]:
    """Return the layers of each pipeline rank; a mean if they do not divide evenly.

    ``ends`` has the stated layers of the first and last stage (0: not stated). ``counted`` states whether the
    embedding and the loss count as layers of these stages.
    """
    listed = layers_of(layout) if layout else None
    if listed is not None and sum(listed) == layers and len(listed) % stages == 0:
        return tuple(float(sum(listed[stage::stages])) for stage in range(stages))
    first, last = ends
    if first or last:
        between = stages - bool(first) - bool(last)
        each = (layers - first - last) / between if between > 0 else 0.0
        inner = [each] * max(0, between)
        return (*([float(first)] if first else []), *inner, *([float(last)] if last else []))
    made = [(layers + sum(counted)) / stages] * stages
    made[0] -= counted[0]
    made[-1] -= counted[1]
    return tuple(made)

"""Every item of the documents' checklists, in printed order."""

from __future__ import annotations

from preflight.checklist import ai_network, fabric_primer, gpu_scaling, nccl_practice, network_tuning, parallelism

ITEMS = (
    *fabric_primer.ITEMS,
    *parallelism.ITEMS,
    *gpu_scaling.ITEMS,
    *network_tuning.ITEMS,
    *nccl_practice.ITEMS,
    *ai_network.ITEMS,
)

#: Ids that a check may answer; a check with any other id is an error.
KNOWN = frozenset(item.id for item in ITEMS)

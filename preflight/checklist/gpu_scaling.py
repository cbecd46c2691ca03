"""Items of the essay on scaling: performance that the hardware should reach."""

from __future__ import annotations

from preflight.checklist.item import NVLINK_DOMAIN, Checklist, lack, question

_LIST = Checklist("gpu-scaling")

ITEMS = (
    _LIST.item(
        "GS-1",
        "NVLink per GPU and direction: Ampere 300, Hopper 450, Blackwell 900 GB/s; NVSwitch domain size 8 or 72",
        "node",
        question("Number and rate of each GPU's links", "nvlink.links"),
        question("Every pair of GPUs of the node is in the domain", "topology.nvlink"),
        question("The nodes of a domain agree on its members", "fleet.nvlink-domain"),
        lack("A domain that spans nodes has all its GPUs", "the GPUs of each domain, counted over its nodes",
             where=NVLINK_DOMAIN),
    ),
    _LIST.item(
        "GS-2",
        "node, leaf and spine bandwidth of a fat tree: the smaller of link and switch capacity",
        "declared fabric",
        question("Links and switches of each level, per GPU", "scale.fat-tree"),
        within="the tree declared in the cluster file, with two levels of switches; it is not derived from a sweep",
    ),
    _LIST.item(
        "GS-3", "time of AllGather, ReduceScatter, AllReduce, AllToAll in a node and above it", "bench",
        question("Each was measured, within and between nodes", "nccl-tests.collectives"),
        question("The best measured bandwidth of each", "nccl-tests.busbw"),
        lack("Their time at each size, on each level of the "
             "tree", "the model's times, compared with each measured row"),
    ),
    _LIST.item(
        "GS-4",
        "smallest batch per GPU at which data, FSDP, tensor and expert parallelism stay compute-bound",
        "declared bench",
        question("Data, FSDP, tensor and expert parallelism: the declared batch is large enough", "scale.batch"),
    ),
    _LIST.item(
        "GS-5", "GPU specification table (SMs, memory, bandwidth, FLOPs) to recognise a wrong or throttled "
                "part", "node trace",
        question("All GPUs of the node are the same model", "gpu.same-model"),
        question("Memory size and cores match the model", "gpu.right-part"),
        question("FLOPs of a large matrix product in a profile are close to the model's", "torch.matrix-product"),
        question("Memory bandwidth of large copies in a profile is close to the model's", "torch.memory-bandwidth"),
    ),
)  # fmt: skip

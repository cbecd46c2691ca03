"""Tuning items, first part: fabric, container, NCCL, traces, bottlenecks."""

from __future__ import annotations

from preflight.checklist.item import CONTAINER, ENVIRONMENT, Checklist, question

_LIST = Checklist("network-tuning")


ITEMS = (
    # basic fabric validation
    _LIST.item(
        "NT-FAB-1", "Are the HCAs active? (ibstat, ibv_devinfo)", "node",
        question("All HCAs are present", "rdma.device-count"),
        question("Their ports are active", "rdma.port-state"),
    ),
    _LIST.item(
        "NT-FAB-2", "Is GPU-NIC locality right?", "node",
        question("Every GPU has a near NIC", "topology.nearest-nic"),
        question("The PCIe path between them is direct", "gpudirect.path"),
    ),
    _LIST.item(
        "NT-FAB-3", "Is the link speed between nodes what it should be?", "node fleet",
        question("Each port runs at the expected rate", "rdma.port-rate"),
        question("Rail i has the same rate on all nodes", "fleet.rails"),
    ),
    _LIST.item(
        "NT-FAB-4", "Are MTU, GID and subnet consistent?", "fleet",
        question("MTU: each port, its switch port, all nodes",
                 "rdma.active-mtu", "roce.chain", "switch.mtu", "fleet.mtu-equal"),
        question("GID: each exists, is unique, and has the same index on all nodes",
                 "roce.chain", "fleet.identity", "fleet.gid-index"),
        question("Subnet: rail i of all nodes is in one network", "fleet.rails"),
    ),
    # container and Kubernetes validation
    _LIST.item(
        "NT-CTR-1", "Does the container see the RDMA devices? (/dev/infiniband, ibv_devinfo)", "node",
        question("Every HCA has a device node that this user can open", "rdma.device-nodes", where=CONTAINER),
    ),
    _LIST.item(
        "NT-CTR-2", "Is an SR-IOV / RDMA device-plugin resource allocated?", "node",
        question("The pod was allocated an RDMA resource", "container.device-plugin"),
    ),
    _LIST.item(
        "NT-CTR-3", "Is the Multus secondary interface on the expected network?", "node",
        question("The pod is attached to the compute fabric's networks", "container.networks"),
    ),
    _LIST.item(
        "NT-CTR-4", "Did the CNI give the VF an address?", "node",
        question("Every RDMA device has a GUID, and at least one has an interface in this namespace",
                 "container.rdma-address", where=CONTAINER),
        question("The RoCE interfaces have separate addresses", "roce.chain", "rails.subnets", where=CONTAINER),
    ),
    # NCCL baseline
    _LIST.item(
        "NT-NCCL-1", "Does traffic use NET/IB?", "trace",
        question("The channels in the log use NET/IB", "nccl.transport"),
    ),
    _LIST.item(
        "NT-NCCL-2", "Is there no NET/Socket fallback?", "trace",
        question("No channel in the log uses TCP between nodes", "nccl.transport"),
    ),
    _LIST.item(
        "NT-NCCL-3", "Do algbw/busbw meet the hardware baseline?", "bench",
        question("The best bandwidth of large messages matches this hardware", "nccl-tests.busbw"),
    ),
    _LIST.item(
        "NT-NCCL-4", "Is the curve over message sizes normal?", "bench",
        question("Bandwidth rises with the size, without a dip", "nccl-tests.curve"),
    ),
    # training trace
    _LIST.item(
        "NT-TRN-1", "Do compute and NCCL overlap?", "trace",
        question("Time in which the GPU only communicates", "torch.overlap"),
        question("The share of overlapped communication, excluding idle time and waits for late ranks",
                 "torch.exposed-collectives"),
    ),
    _LIST.item(
        "NT-TRN-2", "Is the last bucket's tail too long?", "trace",
        question("Exposed communication after the backward pass of a step", "torch.overlap"),
    ),
    _LIST.item(
        "NT-TRN-3", ".item() or torch.cuda.synchronize() every step?", "trace",
        question("Time lost to synchronisation in the steps", "torch.synchronisation"),
    ),
    _LIST.item(
        "NT-TRN-4", "Is a data-loader or storage stall posing as an NCCL bottleneck?", "trace",
        question("Steps do not wait for the data loader", "torch.data-loader"),
        question("Steps do not wait for file writes, such as a checkpoint", "torch.pauses"),
    ),
    # inference trace
    _LIST.item(
        "NT-INF-1", "Is TTFT bound by prefill compute?", "trace",
        question("Shares of queue, prefill and other work in the time to the first token", "serving.first-token"),
    ),
    _LIST.item(
        "NT-INF-2", "Is TPOT bound by decode memory bandwidth?", "trace",
        question("The time per output token, relative to reading weights and KV cache", "serving.next-token",
                 needs="`weights_gib` and `gpus` in [class.NAME.serving] of the cluster file"),
    ),
    _LIST.item(
        "NT-INF-3", "Does KV-cache transfer cause tail latency?", "trace",
        question("Tail of the transfer times, and their share of the time to the first token", "serving.kv-transfer"),
    ),
    _LIST.item(
        "NT-INF-4", "Is prefill/decode placement topology-aware?", "declared",
        question("Leaves and NVLink domains of prefill and decode workers", "serving.placement",
                 needs="`role` in [class.NAME.serving] of the cluster file"),
    ),
    _LIST.item(
        "NT-INF-5", "Does KV offload leave the GPU for CPU or storage too much?", "trace",
        question("Time to load offloaded KV caches, compared with the time to the first token", "serving.offload"),
        within="vLLM's own offloading connector; others report it in their own metrics",
    ),
    _LIST.item("NT-INF-6", "Do decode workers queue?", "trace", question("Requests that wait", "serving.queue")),
    _LIST.item(
        "NT-INF-7", "Is GPU memory under pressure?", "node trace",
        question("Memory is free on each GPU", "gpu.memory-headroom"),
        question("The engine's own cache: use, preemptions", "serving.cache"),
    ),
    # bottlenecks
    _LIST.item(
        "NT-LENS-1", "bottleneck lens: no overlap of compute and communication", "trace",
        question("Time in which the GPU only communicates", "torch.overlap"),
        question("The cause: late ranks, for which their peers wait", "torch.straggler"),
    ),
    _LIST.item(
        "NT-LENS-2", "bottleneck lens: wrong backend", "trace",
        question("NCCL runs the collectives of GPU tensors", "torch.backend"),
    ),
    _LIST.item(
        "NT-LENS-3", "bottleneck lens: TCP fallback", "node trace",
        question("No channel uses TCP between nodes; otherwise, the cause", "nccl.transport"),
    ),
    _LIST.item(
        "NT-LENS-4", "bottleneck lens: P2P disabled", "node trace",
        question("No variable switches it off", "nccl.left-over-disables"),
        question("The job's log shows that the GPUs of a node use it", "nccl.within-node"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-LENS-5", "bottleneck lens: SHM disabled", "node trace",
        question("No variable switches it off", "nccl.left-over-disables"),
        question("The job's log shows that ranks of a node use it, or need none", "nccl.within-node"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-LENS-6", "bottleneck lens: topology mismatch (one rank slow)", "node trace",
        question("The CPUs and memory near each GPU may be used", "numa.affinity", "numa.memory"),
        question("No rank delays its peers", "torch.straggler"),
        question("No rank is late because of its place in the node", "torch.placement"),
    ),
    _LIST.item(
        "NT-LENS-7", "bottleneck lens: NICs underused", "window",
        question("All rails are balanced", "counters.balance"),
    ),
    _LIST.item(
        "NT-LENS-8", "bottleneck lens: congestion", "window",
        question("What delayed the ports: waits, pauses, ECN", "counters.congestion"),
        question("Effect on p95 and p99 of the step time", "counters.step-times"),
    ),
    _LIST.item(
        "NT-LENS-9", "bottleneck lens: NCCL hang (which rank, which collective)", "trace",
        question("Which rank hangs, and in which collective or message", "torch.hang"),
    ),
    _LIST.item(
        "NT-LENS-10", "bottleneck lens: KV transfer slow", "trace",
        question("Times of the transfers, relative to the time to the first token", "serving.kv-transfer"),
        question("Rate of the transfers, relative to the NICs", "serving.kv-rate"),
    ),
)  # fmt: skip

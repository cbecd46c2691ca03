"""Items of the chapter on parallelism: growing a job from 8 to 64 GPUs."""

from __future__ import annotations

from preflight.checklist.item import CHECKPOINT, COMPUTE, ENVIRONMENT, INFINIBAND, ROCE, Checklist, lack, question

_LIST = Checklist("parallelism")

#: Input of the checks that judge the costs of a job, and of those that judge its layout.
_COSTS = "`preflight plan JOB --set checkpoint_seconds=... --set mtbf_hours=... --set watts=...`"
_PLAN = "a job passed to `preflight plan`"

ITEMS = (
    _LIST.item(
        "PA-01", "GPU topology (nvidia-smi topo -m)", "node",
        question("All GPUs are on the PCI bus", "gpu.count"),
        question("The driver reports every GPU", "gpu.driver"),
        question("The matrix shows a near NIC for every GPU", "topology.nearest-nic"),
        question("The GPUs of all nodes are the same, with equal settings", "fleet.gpu-settings"),
    ),
    _LIST.item(
        "PA-02", "NVLink/NVSwitch links up", "node",
        question("Every GPU has all its links, at their rate", "nvlink.links"),
        question("Every pair of GPUs is connected by all their NVLinks", "topology.nvlink"),
        question("Every GPU has joined the NVSwitch fabric", "gpu.fabric-state", "nvlink.fabric-manager"),
    ),
    _LIST.item(
        "PA-03", "CUDA, NCCL and PyTorch versions agree", "node fleet",
        question("The driver's libraries match its kernel module", "versions.driver-files"),
        question("All nodes have the same driver, NCCL, PyTorch and CUDA toolkit",
                 "fleet.driver-equal", "fleet.nccl-equal", "fleet.software", "node.expected"),
        question("The driver supports the CUDA versions of PyTorch and its NCCL", "versions.compatibility"),
        question("The driver supports the CUDA version of the job's NCCL", "nccl.built-for"),
        within="the PyTorch installed where preflight runs, and jobs whose log is given",
    ),
    _LIST.item(
        "PA-04", "PCIe/NIC locality of each GPU", "node",
        question("Each PCIe link runs at full width and speed", "gpu.pcie-link"),
        question("Each GPU has a near NIC and a direct path to it", "topology.nearest-nic", "gpudirect.path"),
        question("The allowed CPUs cover each GPU's NUMA node", "numa.affinity"),
    ),
    _LIST.item(
        "PA-05", "GPU memory headroom", "node declared",
        question("No process of a previous job uses memory", "gpu.left-over-processes"),
        question("At least as much memory is free as the cluster file requires", "gpu.memory-headroom"),
        question("The job's parameters, gradients, optimizer, activations and fragmentation fit",
                 "layout.memory", needs=_PLAN),
    ),
    _LIST.item(
        "PA-06", "data-parallel group", "declared",
        question("The groups use all GPUs", "layout.world-size", needs=_PLAN),
        question("The ranks of a group are together on each node", "layout.ring-order", needs=_PLAN),
    ),
    _LIST.item(
        "PA-07", "tensor-parallel group stays inside one NVLink domain", "declared",
        question("The ranks of each group share an NVLink domain", "layout.tensor-domain", needs=_PLAN),
    ),
    _LIST.item(
        "PA-08", "pipeline stage mapping (neighbours on one rail)", "declared",
        question("Neighbouring stages are on one rail", "layout.pipeline-rails", needs=_PLAN),
    ),
    _LIST.item(
        "PA-09", "FSDP/ZeRO sharding policy", "declared",
        question("The policy fits the pipeline and the fabric", "layout.sharding", needs=_PLAN),
        question("With the policy, the job fits into the GPUs' memory", "layout.memory", needs=_PLAN),
    ),
    _LIST.item(
        "PA-10", "MoE expert placement", "declared",
        question("The links between the ranks that share the experts", "layout.expert-domain", needs=_PLAN),
    ),
    _LIST.item(
        "PA-11", "global batch = micro-batch x accumulation x data-parallel size", "declared",
        question("The product of the stated numbers is the global batch", "layout.global-batch", needs=_PLAN),
    ),
    _LIST.item(
        "PA-12", "NIC bandwidth 200G/400G/800G", "node",
        question("Each port runs at the expected rate", "rdma.port-rate"),
        question("The PCIe link of each NIC supports that rate", "pcie.nic-link"),
    ),
    _LIST.item(
        "PA-13", "RDMA/RoCE/InfiniBand works", "node pair",
        question("Modules are loaded and each NIC is an RDMA device", "kernel.modules", "rdma.registered"),
        question("The RDMA ports are active", "rdma.port-state"),
        question("Two nodes write to each other at line rate", "pair.write-bw"),
        within="host memory on both sides; GPU memory is in NT-GDR-2",
    ),
    _LIST.item(
        "PA-14", "MTU, PFC, ECN, DCQCN settings", "node fleet switch",
        question("MTU of each port", "rdma.active-mtu", "roce.chain"),
        question("MTU is the same on all nodes, and matches the switch ports", "fleet.mtu-equal", "switch.mtu"),
        question("PFC, ECN and DCQCN of each RoCE port of the host", "roce.chain"),
        question("These settings are the same on all nodes", "fleet.roce-ports", "fleet.roce-equal"),
        question("Switch port: PFC, as LLDP announces it", "switch.pfc"),
        question("Switch port: ECN marking, and the queue of the job's DSCP", "switch.ecn", "link.dscp", where=ROCE),
    ),
    _LIST.item(
        "PA-15", "NCCL interface binding: NCCL_SOCKET_IFNAME, NCCL_IB_HCA", "node fabric",
        question("NCCL_SOCKET_IFNAME selects an interface that is up", "nccl.socket-ifname"),
        question("NCCL_IB_HCA selects the ports of the compute fabric", "nccl.ib-hca", needs=COMPUTE),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "PA-16", "rail alignment", "node fleet",
        question("Each GPU is near the NIC of its rail", "topology.nearest-nic"),
        question("Rail i of all nodes is in one network, with one rate", "fleet.rails"),
        question("Ethernet: rail i of all nodes is on one leaf", "fleet.rail-leaf", where=ROCE),
        lack("InfiniBand: rail i of all nodes is on one leaf", "the leaf of each HCA, in a sweep", where=INFINIBAND),
    ),
    _LIST.item(
        "PA-17", "cross-rail traffic", "window trace",
        question("NCCL connects NICs that have the same index", "nccl.rails"),
        question("Ethernet: bytes that leave the leaf of their rail", "switch.rail-traffic", where=ROCE),
        lack("InfiniBand: bytes that leave the leaf of their rail", "the bytes of each leaf's uplinks in a sweep",
             where=INFINIBAND),
    ),
    _LIST.item(
        "PA-18", "AllReduce / AllGather / ReduceScatter benchmarked", "bench",
        question("Each was measured completely, with the job's number of GPUs", "nccl-tests.collectives"),
    ),
    _LIST.item(
        "PA-19", "egress congestion and packet-drop counters", "window switch fabric",
        question("Host: no packet is lost, no receiver is too slow", "counters.loss", "counters.receiver"),
        question("Host: causes of delays at the ports", "counters.congestion"),
        question("No node has more losses and delays than its peers", "fleet.rates"),
        question("Ethernet switches: depth of the lossless queues, and packets dropped there", "switch.queue-depth",
                 "switch.lossless-drops", where=ROCE),
        question("InfiniBand switches: waits for credits at each port, and discarded packets", "fabric.waits",
                 "fabric.link-errors", where=INFINIBAND),
    ),
    _LIST.item(
        "PA-20", "GPU utilisation", "trace window",
        question("Idle time of the GPUs in a profile of the job", "torch.idle"),
        question("The CPU launches kernels faster than they run", "torch.launch-bound"),
        question("SMs and tensor cores are busy, by DCGM's fields 1002 and 1004", "gpu.sm-activity",
                 needs="ten readings while the job runs: `dcgmi dmon -e 1002,1004 -c 60`"),
    ),
    _LIST.item(
        "PA-21", "step-time variance", "trace",
        question("The steps in a profile or a job's log take about the same time", "torch.steps"),
        question("No step is longer because the CPU paused: garbage collection, file writes", "torch.pauses"),
        within="a profiler trace of five steps or more, or a log of eight; only a trace shows pauses",
    ),
    _LIST.item(
        "PA-22", "communication/compute overlap", "trace",
        question("Time in which the GPU only communicates", "torch.overlap"),
        question("The overlap of each kind of collective", "torch.exposed-collectives"),
    ),
    _LIST.item(
        "PA-23", "straggler GPU", "bench trace",
        question("In each step and parallel group, no rank delays its peers", "torch.straggler"),
    ),
    _LIST.item(
        "PA-24", "pipeline-bubble ratio", "trace declared",
        question("How long the stages wait for each other, compared with (p-1)/(m+p-1)", "torch.bubble"),
        question("Before the job: the share of time that its schedule leaves idle", "layout.microbatches", needs=_PLAN),
        within="traces of all stages that name the peer of each message (PyTorch 2.6)",
    ),
    _LIST.item(
        "PA-25", "All-to-All time", "bench trace",
        question("In a benchmark: it was measured, and its bandwidth matches this hardware",
                 "nccl-tests.collectives", "nccl-tests.busbw"),
        question("In the job: its time and its share of the step", "torch.collective-share"),
        question("In the job: no rank receives more tokens than its peers", "torch.experts"),
    ),
    _LIST.item(
        "PA-26", "checkpoint interval", "declared",
        question("The newest checkpoint is within the declared interval", "checkpoint.age", needs=CHECKPOINT),
        question("Before the job: the interval costs little time for writing and for repeated work", "layout.lost-work",
                 needs=_COSTS),
    ),
    _LIST.item(
        "PA-N1",
        "the benchmark covers the job's own collectives (AllReduce; AllGather + ReduceScatter; All-to-All)",
        "bench declared",
        question("Each collective of the declared model was measured at its scale", "nccl-tests.job-collectives"),
        question("At the job's own message sizes", "nccl-tests.job-sizes"),
    ),
    _LIST.item(
        "PA-N3", "the job fits one NVLink domain (8, or 72 on NVL72), or crosses it knowingly", "declared",
        question("Tensor- and expert-parallel groups are in one domain, and context parallelism hides its exchange",
                 "layout.tensor-domain", "layout.expert-domain", "layout.context-domain", needs=_PLAN),
    ),
    _LIST.item(
        "PA-N2", "what a lost run costs: watts x GPUs x hours x price", "declared report",
        question("The product is computed", "layout.lost-work", needs=_COSTS),
    ),
)  # fmt: skip

"""Every item of the documents' checklists, with a stable id.

``by`` names the kinds of evidence that answer it (``checklist.SUPPLY``); ``uncovered`` what no
check covers yet, so that the item cannot pass.
"""

from __future__ import annotations

from preflight.lean import dataclass


@dataclass(frozen=True)
class Item:
    """One question of a document."""

    id: str
    document: str
    title: str
    evidence: str
    uncovered: str = ""

    @property
    def by(self) -> tuple[str, ...]:
        """Kinds of evidence that answer it."""
        return tuple(self.evidence.split())


ITEMS = (
    # fabric-primer
    Item("FP-BW-1", "fabric-primer", "Is there enough NIC bandwidth per GPU?", "node fabric"),
    Item("FP-BW-2", "fabric-primer", "Is the GPU-to-NIC mapping clear?", "node"),
    Item("FP-BW-3", "fabric-primer", "Is east-west bandwidth non-blocking or oversubscribed?", "bench fabric"),
    Item("FP-BW-4", "fabric-primer", "Can the fabric absorb the synchronisation burst?", "bench window"),
    Item("FP-LAT-1", "fabric-primer", "What are p99 and p99.9 during synchronisation?", "bench trace"),
    Item("FP-LAT-2", "fabric-primer", "Is there a slow path between groups of GPUs?", "node bench"),
    Item("FP-LAT-3", "fabric-primer", "Does job placement make hop counts uneven?", "fabric"),
    Item("FP-LAT-4", "fabric-primer", "Is collective completion time measured?", "bench trace"),
    Item("FP-LOSS-1", "fabric-primer", "InfiniBand or RoCEv2?", "node"),
    Item(
        "FP-LOSS-2",
        "fabric-primer",
        "RoCEv2: are PFC, ECN and DCQCN policies defined?",
        "node switch",
        "the switch's side",
    ),
    Item("FP-LOSS-3", "fabric-primer", "Are packet drops monitored?", "window"),
    Item("FP-LOSS-4", "fabric-primer", "Are checkpoints saved regularly?", "declared"),
    Item(
        "FP-CON-1",
        "fabric-primer",
        "Where can gradient synchronisation make incast?",
        "window fabric",
    ),
    Item("FP-CON-2", "fabric-primer", "Are switch buffers sized and monitored?", "node switch", "the switch's buffers"),
    Item("FP-CON-3", "fabric-primer", "Are ECN thresholds tuned?", "node switch", "the switch's thresholds"),
    Item("FP-CON-4", "fabric-primer", "Can PFC pause propagate through the fabric?", "window"),
    Item(
        "FP-CON-5",
        "fabric-primer",
        "Does the topology reduce hash polarisation?",
        "node window fabric",
    ),
    Item("FP-OBS-1", "fabric-primer", "GPU utilisation is visible", "node window"),
    Item("FP-OBS-2", "fabric-primer", "NCCL AllReduce duration is visible", "bench trace"),
    Item("FP-OBS-3", "fabric-primer", "NIC throughput is visible", "window"),
    Item("FP-OBS-4", "fabric-primer", "RDMA errors are visible", "window"),
    Item("FP-OBS-5", "fabric-primer", "ECN marking count is visible", "window"),
    Item("FP-OBS-6", "fabric-primer", "PFC pause frames are visible", "window"),
    Item("FP-OBS-7", "fabric-primer", "Switch queue depth is visible", "switch"),
    Item("FP-OBS-8", "fabric-primer", "Training step time is visible", "trace"),
    # parallelism
    Item("PA-01", "parallelism", "GPU topology (nvidia-smi topo -m)", "node"),
    Item("PA-02", "parallelism", "NVLink/NVSwitch links up", "node"),
    Item(
        "PA-03",
        "parallelism",
        "CUDA, NCCL and PyTorch versions agree",
        "node fleet",
    ),
    Item("PA-04", "parallelism", "PCIe/NIC locality of each GPU", "node"),
    Item("PA-05", "parallelism", "GPU memory headroom", "node declared"),
    Item("PA-06", "parallelism", "data-parallel group", "declared"),
    Item("PA-07", "parallelism", "tensor-parallel group stays inside one NVLink domain", "declared"),
    Item("PA-08", "parallelism", "pipeline stage mapping (neighbours on one rail)", "declared"),
    Item("PA-09", "parallelism", "FSDP/ZeRO sharding policy", "declared"),
    Item("PA-10", "parallelism", "MoE expert placement", "declared"),
    Item("PA-11", "parallelism", "global batch = micro-batch x accumulation x data-parallel size", "declared"),
    Item("PA-12", "parallelism", "NIC bandwidth 200G/400G/800G", "node"),
    Item("PA-13", "parallelism", "RDMA/RoCE/InfiniBand works", "node pair"),
    Item("PA-14", "parallelism", "MTU, PFC, ECN, DCQCN settings", "node fleet"),
    Item("PA-15", "parallelism", "NCCL interface binding: NCCL_SOCKET_IFNAME, NCCL_IB_HCA", "node fabric"),
    Item("PA-16", "parallelism", "rail alignment", "node fleet"),
    Item("PA-17", "parallelism", "cross-rail traffic", "window trace"),
    Item("PA-18", "parallelism", "AllReduce / AllGather / ReduceScatter benchmarked", "bench"),
    Item("PA-19", "parallelism", "egress congestion and packet-drop counters", "window"),
    Item("PA-20", "parallelism", "GPU utilisation", "trace"),
    Item("PA-21", "parallelism", "step-time variance", "trace"),
    Item("PA-22", "parallelism", "communication/compute overlap", "trace"),
    Item("PA-23", "parallelism", "straggler GPU", "bench trace"),
    Item("PA-24", "parallelism", "pipeline-bubble ratio", "trace declared"),
    Item("PA-25", "parallelism", "All-to-All time", "bench trace"),
    Item("PA-26", "parallelism", "checkpoint interval", "declared"),
    Item(
        "PA-N1",
        "parallelism",
        "the benchmark covers the job's own collectives (AllReduce; AllGather + ReduceScatter; All-to-All)",
        "bench declared",
    ),
    Item(
        "PA-N3",
        "parallelism",
        "the whole job fits one NVLink domain (8, or 72 on NVL72), or crosses it knowingly",
        "declared",
    ),
    Item("PA-N2", "parallelism", "what a lost run costs: watts x GPUs x hours x price", "declared report"),
    # gpu-scaling
    Item(
        "GS-1",
        "gpu-scaling",
        "NVLink per GPU and direction: Ampere 300, Hopper 450, Blackwell 900 GB/s; NVSwitch domain size 8 or 72",
        "node",
    ),
    Item(
        "GS-2",
        "gpu-scaling",
        "node, leaf and spine bandwidth of a fat tree: the smaller of its links' and its switches' capacity",
        "fabric declared",
    ),
    Item(
        "GS-3",
        "gpu-scaling",
        "time of AllGather, ReduceScatter, AllReduce, AllToAll in a node and above it",
        "bench",
    ),
    Item(
        "GS-4",
        "gpu-scaling",
        "smallest batch per GPU at which data, FSDP, tensor and expert parallelism stay compute-bound",
        "declared bench",
    ),
    Item(
        "GS-5",
        "gpu-scaling",
        "GPU specification table (SMs, memory, bandwidth, FLOPs) to tell a wrong or throttled part",
        "node",
        "memory bandwidth and FLOPs as measured",
    ),
    # network-tuning
    Item("NT-FAB-1", "network-tuning", "Are the HCAs active? (ibstat, ibv_devinfo)", "node"),
    Item("NT-FAB-2", "network-tuning", "Is GPU-NIC locality right?", "node"),
    Item(
        "NT-FAB-3",
        "network-tuning",
        "Is the link speed between nodes what it should be?",
        "node fleet",
    ),
    Item("NT-FAB-4", "network-tuning", "Are MTU, GID and subnet consistent?", "fleet"),
    Item(
        "NT-CTR-1",
        "network-tuning",
        "Does the container see the RDMA devices? (/dev/infiniband, ibv_devinfo)",
        "node",
    ),
    Item("NT-CTR-2", "network-tuning", "Is an SR-IOV / RDMA device-plugin resource allocated?", "node"),
    Item("NT-CTR-3", "network-tuning", "Is the Multus secondary interface on the expected network?", "node"),
    Item("NT-CTR-4", "network-tuning", "Did the CNI give the VF an address?", "node"),
    Item("NT-NCCL-1", "network-tuning", "Does traffic take NET/IB?", "trace"),
    Item("NT-NCCL-2", "network-tuning", "Is there no NET/Socket fallback?", "trace"),
    Item("NT-NCCL-3", "network-tuning", "Do algbw/busbw meet the hardware baseline?", "bench"),
    Item("NT-NCCL-4", "network-tuning", "Is the curve over message sizes normal?", "bench"),
    Item("NT-TRN-1", "network-tuning", "Do compute and NCCL overlap?", "trace"),
    Item("NT-TRN-2", "network-tuning", "Is the last bucket's tail too long?", "trace"),
    Item("NT-TRN-3", "network-tuning", ".item() or torch.cuda.synchronize() every step?", "trace"),
    Item(
        "NT-TRN-4",
        "network-tuning",
        "Is a data-loader or storage stall posing as an NCCL bottleneck?",
        "trace",
    ),
    Item("NT-INF-1", "network-tuning", "Is TTFT bound by prefill compute?", "trace"),
    Item("NT-INF-2", "network-tuning", "Is TPOT bound by decode memory bandwidth?", "trace"),
    Item("NT-INF-3", "network-tuning", "Does KV-cache transfer make tail latency?", "trace"),
    Item("NT-INF-4", "network-tuning", "Is prefill/decode placement topology-aware?", "declared"),
    Item("NT-INF-5", "network-tuning", "Does KV offload leave the GPU for CPU or storage too much?", "trace"),
    Item("NT-INF-6", "network-tuning", "Do decode workers queue?", "trace"),
    Item("NT-INF-7", "network-tuning", "Is GPU memory under pressure?", "node trace"),
    Item("NT-COM-1", "network-tuning", "Is the communicator created once and reused, not per step?", "trace"),
    Item("NT-COM-2", "network-tuning", "Are user buffers registered on all ranks or none?", "trace"),
    Item(
        "NT-DDP-1",
        "network-tuning",
        "DistributedDataParallel, one process per GPU, not DataParallel",
        "node trace",
    ),
    Item("NT-DDP-2", "network-tuning", "Is the gradient bucket size right (early start against tail)?", "trace"),
    Item(
        "NT-SCL-1",
        "network-tuning",
        "Share of collectives in the step time; scale-out efficiency",
        "bench trace",
    ),
    Item(
        "NT-CPU-1",
        "network-tuning",
        "CPU does not spike during collectives (staging, TCP, Gloo)",
        "window trace",
    ),
    Item(
        "NT-GDR-1",
        "network-tuning",
        "GPUDirect RDMA path: nvidia-peermem loaded or DMA-BUF supported",
        "node",
    ),
    Item("NT-GDR-2", "network-tuning", "baselines with ib_write_bw / ib_read_bw recorded", "pair"),
    Item("NT-PIT-1", "network-tuning", "wrong backend (gloo for GPU tensors)", "trace"),
    Item("NT-PIT-2", "network-tuning", "TCP fallback though RDMA exists", "node trace"),
    Item("NT-PIT-3", "network-tuning", "RDMA device missing in the container", "node"),
    Item("NT-PIT-4", "network-tuning", "bundled and system NCCL differ", "node fleet"),
    Item("NT-PIT-5", "network-tuning", "ephemeral port range too narrow for the rank count", "node"),
    Item(
        "NT-PIT-6",
        "network-tuning",
        "memory registration: memlock limit, registration cache, allocator fragmentation",
        "node trace",
        "registration cache, allocator fragmentation",
    ),
    Item("NT-ENV-1", "network-tuning", "NCCL_DEBUG left verbose in production", "node"),
    Item("NT-ENV-2", "network-tuning", "NCCL_SOCKET_IFNAME names an interface that exists", "node"),
    Item(
        "NT-ENV-3",
        "network-tuning",
        "NCCL_IB_HCA names HCAs that exist, are active and are the compute fabric",
        "node",
    ),
    Item("NT-ENV-4", "network-tuning", "NCCL_IB_DISABLE not left at 1", "node"),
    Item("NT-ENV-5", "network-tuning", "NCCL_P2P_DISABLE not left at 1", "node"),
    Item("NT-ENV-6", "network-tuning", "NCCL_SHM_DISABLE not left at 1", "node"),
    Item(
        "NT-ENV-7",
        "network-tuning",
        "async error handling on, under the name the installed PyTorch reads",
        "node",
    ),
    Item("NT-ENV-8", "network-tuning", "NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD <= 64", "node"),
    Item("NT-ENV-9", "network-tuning", "NCCL_MIN/MAX_NCHANNELS not forced on NVSwitch systems", "node"),
    Item(
        "NT-ENV-10",
        "network-tuning",
        "NCCL_TOPO_FILE readable and true; NCCL_TOPO_DUMP_FILE writable",
        "node",
    ),
    Item(
        "NT-ENV-11",
        "network-tuning",
        "NCCL_MNNVL_ENABLE only where the hardware has it (IMEX running)",
        "node",
    ),
    Item("NT-ENV-12", "network-tuning", "NCCL_IGNORE_CPU_AFFINITY fits the inherited affinity mask", "node"),
    Item("NT-ENV-13", "network-tuning", "SHARP switched off only for an A/B test", "node"),
    Item("NT-ENV-14", "network-tuning", "the same NCCL environment on every rank", "fleet"),
    Item("NT-SHP-1", "network-tuning", "SHARP-capable switches (on RoCE: does not apply, said so)", "fabric"),
    Item("NT-SHP-2", "network-tuning", "aggregation manager reachable", "node fabric"),
    Item("NT-SHP-3", "network-tuning", "NCCL RDMA SHARP plugin present and loadable", "node"),
    Item("NT-SHP-4", "network-tuning", "the NCCL log shows SHARP (CollNet) or NVLS in use", "trace"),
    Item("NT-SHP-5", "network-tuning", "fabric telemetry agrees", "fabric switch"),
    Item(
        "NT-REC-1",
        "network-tuning",
        "every result records GPU model, driver, CUDA, NCCL, PyTorch, image, NCCL variables, counts, topology",
        "report",
    ),
    Item(
        "NT-ROL-1",
        "network-tuning",
        "fabric roles kept apart: NCCL uses the compute fabric, not storage or management",
        "node trace",
    ),
    Item("NT-CNT-1", "network-tuning", "HCA and port counters: ibstat, perfquery, ethtool -S", "window"),
    # ai-network
    Item("AN-1", "ai-network", "backend 1:1, no oversubscription", "fabric"),
    Item("AN-2", "ai-network", "backend isolated from other traffic; frontend/storage apart", "node"),
    Item("AN-3", "ai-network", "point-to-point addressing (/30, /31, or IPv6) where routed to the host", "node"),
    Item("AN-4", "ai-network", "the host agent verifies PFC/ECN on host and switch port", "node switch"),
    Item("AN-5", "ai-network", "host RDMA errors correlated with the switch port's counters", "window switch"),
    Item("AN-6", "ai-network", "optics, transceivers and cables healthy", "node window"),
    Item(
        "AN-7",
        "ai-network",
        "load balancing has entropy (queue pairs, adaptive routing, per-collective balancing)",
        "node window",
    ),
    Item("AN-8", "ai-network", "consistent latency; losses under a bound", "pair window"),
    Item("AN-9", "ai-network", "early warning before the job suffers", "window"),
    Item("AN-10", "ai-network", "job completion time recorded per run", "report"),
    Item("AN-11", "ai-network", "power and thermal headroom: no power brake, no thermal throttle", "node"),
    # network-tuning
    Item("NT-LENS-1", "network-tuning", "bottleneck lens: no overlap of compute and communication", "trace"),
    Item("NT-LENS-2", "network-tuning", "bottleneck lens: wrong backend", "trace"),
    Item("NT-LENS-3", "network-tuning", "bottleneck lens: TCP fallback", "node trace"),
    Item("NT-LENS-4", "network-tuning", "bottleneck lens: P2P disabled", "node"),
    Item("NT-LENS-5", "network-tuning", "bottleneck lens: SHM disabled", "node"),
    Item("NT-LENS-6", "network-tuning", "bottleneck lens: topology mismatch (one rank slow)", "node"),
    Item("NT-LENS-7", "network-tuning", "bottleneck lens: NICs underused", "window"),
    Item("NT-LENS-8", "network-tuning", "bottleneck lens: congestion", "window"),
    Item("NT-LENS-9", "network-tuning", "bottleneck lens: NCCL hang (which rank, which collective)", "trace"),
    Item("NT-LENS-10", "network-tuning", "bottleneck lens: KV transfer slow", "trace"),
)

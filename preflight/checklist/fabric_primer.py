"""Items of the fabric primer: reasons for a dedicated training fabric."""

from __future__ import annotations

from preflight.checklist.item import CHECKPOINT, INFINIBAND, ROCE, Checklist, lack, question

_LIST = Checklist("fabric-primer")

ITEMS = (
    # bandwidth
    _LIST.item(
        "FP-BW-1", "Is there enough NIC bandwidth per GPU?", "node fabric",
        question("All HCAs of the compute fabric are present", "rdma.device-count"),
        question("Each port runs at its expected rate", "rdma.port-rate"),
        question("The NIC bandwidth per GPU is sufficient", "rdma.bandwidth-per-gpu"),
    ),
    _LIST.item(
        "FP-BW-2", "Is the GPU-to-NIC mapping clear?", "node",
        question("Every GPU has a near NIC; shared and distant ones are listed", "topology.nearest-nic"),
    ),
    _LIST.item(
        "FP-BW-3", "Is east-west bandwidth non-blocking or oversubscribed?", "bench fabric",
        question("InfiniBand: links below and above each leaf", "fabric.oversubscription", where=INFINIBAND),
        question("Ethernet: links below and above each leaf", "ethernet.oversubscription", where=ROCE),
        question("Measured: all pairs at once reach the bandwidth of one pair", "bench.shared-uplinks"),
    ),
    _LIST.item(
        "FP-BW-4", "Can the fabric absorb the synchronisation burst?", "window switch trace",
        question("Averaged over a window under load, no packet is dropped or delayed", "counters.congestion"),
        question("Highest level of the switches' lossless queues in any burst, and packets dropped there",
                 "switch.queue-depth", "switch.lossless-drops", where=ROCE),
        question("Within one burst: the transfer of each collective takes as long as usual, and as the hardware allows",
                 "torch.collective-times", "torch.busbw"),
    ),
    # latency
    _LIST.item(
        "FP-LAT-1", "What are p99 and p99.9 during synchronisation?", "bench trace",
        question("p99 and p99.9 of each collective in a profile, relative to its median", "torch.collective-times"),
        within="collectives of groups with traces of all ranks: 100 equal ones for p99, 1,000 for p99.9",
    ),
    _LIST.item(
        "FP-LAT-2", "Is there a slow path between groups of GPUs?", "node bench",
        question("Every measured pair of nodes is as fast as its peers, and no part explains slow pairs",
                 "bench.pairs", "bench.factor"),
        within="the pairs that were measured; `preflight bench` stops when each node, and with `--goal links` each "
        "rail and leaf, is cleared or named",
    ),
    _LIST.item(
        "FP-LAT-3", "Does job placement make hop counts uneven?", "fabric",
        question("InfiniBand: switches between the job's nodes", "fabric.hops", where=INFINIBAND),
        question("Ethernet: switches between the job's nodes", "ethernet.hops", where=ROCE),
    ),
    _LIST.item(
        "FP-LAT-4", "Is collective completion time measured?", "bench trace",
        question("A sweep is measured, and compared with the reference run in the cluster file", "nccl-tests.curve"),
    ),
    # loss
    _LIST.item(
        "FP-LOSS-1", "InfiniBand or RoCEv2?", "node",
        question("All compute ports have the expected link layer", "rdma.link-layer"),
        question("RoCE ports are addressed for RoCE v2", "roce.chain"),
    ),
    _LIST.item(
        "FP-LOSS-2", "RoCEv2: are PFC, ECN and DCQCN policies defined?", "node switch",
        question("Host: PFC, ECN and DCQCN of each port", "roce.chain"),
        question("Host: marking and congestion control are the same on all nodes", "fleet.roce-equal"),
        question("Switch port: PFC and DSCP, as LLDP announces them", "switch.pfc", "switch.dscp"),
        question("Both ends of each cable: PFC and DSCP, as configured", "link.pfc", "link.dscp", where=ROCE),
        question("Switch: ECN marking of the lossless queue", "switch.ecn", where=ROCE),
    ),
    _LIST.item(
        "FP-LOSS-3", "Are packet drops monitored?", "window",
        question("The loss counters of each port can be read", "counters.visible"),
        question("No loss counter grows", "counters.loss"),
        within="the counters of hosts; `switch.lossless-drops` judges those of switches",
    ),
    _LIST.item(
        "FP-LOSS-4", "Are checkpoints saved regularly?", "declared",
        question("The newest checkpoint is as recent as the site declares", "checkpoint.age", needs=CHECKPOINT),
        within="a path in the cluster file; object stores are not read",
    ),
    # congestion
    _LIST.item(
        "FP-CON-1", "Where can gradient synchronisation cause incast?", "window fabric",
        question("Hosts that cannot keep up with incoming data", "counters.receiver"),
        question("InfiniBand: receivers narrower than their senders", "fabric.fan-in", where=INFINIBAND),
        question("Ethernet: ports that receive more than they can send, in a window", "fabric.pause-root", where=ROCE),
        lack("The job's collectives that compete at one port",
             "switches count bytes by port and priority, not by collective; by hand: take a window during the job, "
             "compare the ranks below the port that `fabric.pause-root` names with the groups of `preflight plan`, and "
             "look in their profiles for collectives at the same time"),
    ),
    _LIST.item(
        "FP-CON-2", "Are switch buffers sized and monitored?", "node switch",
        question("Host: receive buffer of each RoCE port", "roce.chain"),
        question("Switch: headroom of the lossless buffers", "switch.headroom", "switch.buffer-pools", where=ROCE),
        question("Switch: room in the lossless buffers", "switch.queue-depth", where=ROCE),
    ),
    _LIST.item(
        "FP-CON-3", "Are ECN thresholds tuned?", "node switch",
        question("Host: DCQCN parameters of each port", "roce.chain"),
        question("Switch: lower and upper threshold of the lossless queue", "switch.ecn", where=ROCE),
        question("Switch: packets are marked before they are paused", "switch.ecn-before-pfc", where=ROCE),
    ),
    _LIST.item(
        "FP-CON-4", "Can PFC pause propagate through the fabric?", "window switch",
        question("Duration of pauses on each port, and whether they are global", "counters.congestion",
                 where=ROCE),
        question("Switch: a watchdog ends pause storms", "switch.watchdog", where=ROCE),
        question("Who paused whom", "fabric.pause-root", where=ROCE),
        question("Switch: no watchdog had to end a storm", "switch.watchdog-fired", where=ROCE),
    ),
    _LIST.item(
        "FP-CON-5", "Does the topology reduce hash polarisation?", "node window fabric",
        question("NCCL creates flows that the fabric can spread", "nccl.load-balancing"),
        question("The rails of each node are balanced", "counters.balance"),
        question("InfiniBand: the uplinks of each leaf are balanced", "fabric.uplink-balance", where=INFINIBAND),
        question("Ethernet: the uplinks of each leaf are balanced", "switch.uplink-balance", where=ROCE),
        question("Ethernet: no tier repeats the hash of another", "switch.hash", where=ROCE),
    ),
    # observability
    _LIST.item(
        "FP-OBS-1", "GPU utilisation is visible", "node window",
        question("The driver reports it for each GPU", "gpu.utilisation-visible"),
    ),
    _LIST.item(
        "FP-OBS-2", "NCCL AllReduce duration is visible", "bench trace",
        question("In a benchmark", "nccl-tests.collectives"),
        question("In the job", "torch.collective-share"),
    ),
    _LIST.item(
        "FP-OBS-3", "NIC throughput is visible", "window",
        question("Bytes sent and received by each port", "counters.visible"),
    ),
    _LIST.item(
        "FP-OBS-4", "RDMA errors are visible", "window",
        question("Retransmissions, time-outs and drops of each port", "counters.visible"),
    ),
    _LIST.item(
        "FP-OBS-5", "ECN marking count is visible", "window",
        question("Marked packets and CNPs of each port", "counters.visible"),
        within="the counters of hosts; `switch.marks` judges those of switches",
    ),
    _LIST.item(
        "FP-OBS-6", "PFC pause frames are visible", "window",
        question("Pauses of the lossless priority of each port", "counters.visible"),
        within="the counters of hosts; `fabric.pause-root` judges those of switches",
    ),
    _LIST.item(
        "FP-OBS-7", "Switch queue depth is visible", "switch",
        question("Ethernet: depth of each lossless queue of the switches", "switch.queue-depth", where=ROCE),
        question("InfiniBand: waits for credits at each port of the switches (no queue depth is counted)",
                 "fabric.waits", where=INFINIBAND),
    ),
    _LIST.item(
        "FP-OBS-8", "Training step time is visible", "trace",
        question("A job's log or a profiler trace shows the time of each step", "torch.steps"),
        within="a profiler trace with steps, or step lines of a training program that `preflight read` recognises",
    ),
)  # fmt: skip

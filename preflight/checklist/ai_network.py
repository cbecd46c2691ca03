"""Items of the talk on AI networks: requirements of an AI data-centre network."""

from __future__ import annotations

from preflight.checklist.item import INFINIBAND, ROCE, Checklist, lack, question

_LIST = Checklist("ai-network")

ITEMS = (
    _LIST.item(
        "AN-1", "backend 1:1, no oversubscription", "fabric switch",
        question("InfiniBand: links below and above each leaf", "fabric.oversubscription", where=INFINIBAND),
        question("Ethernet: links below and above each leaf", "ethernet.oversubscription", where=ROCE),
    ),
    _LIST.item(
        "AN-2", "backend isolated from other traffic; frontend and storage separate", "node",
        question("No default route and no other subnet on a compute port", "rails.isolated"),
        question("No storage is mounted over a compute port", "storage.network"),
        within="the main routing table, and current mounts; policy routes and open connections are not read",
    ),
    _LIST.item(
        "AN-3", "point-to-point addressing (/30, /31, or IPv6) where routed to the host", "node",
        question("Each rail is addressed point to point, unless the cluster file declares otherwise", "rails.subnets",
                 needs="`point_to_point` in [class.NAME.ports] of the cluster file"),
    ),
    _LIST.item(
        "AN-4", "the host agent verifies PFC/ECN on host and switch port", "node switch",
        question("PFC is on for the same priorities at both ends", "switch.pfc"),
        question("The job's DSCP has the same priority at both ends", "switch.dscp"),
        question("Both ends of each cable show each other, with the same settings", "link.join", "link.pfc",
                 "link.dscp", where=ROCE),
        question("ECN of the switch port", "switch.ecn", where=ROCE),
        question("Switches of one tier have the same settings", "ethernet.peers-equal", where=ROCE),
    ),
    _LIST.item(
        "AN-5", "host RDMA errors correlated with the switch port's counters", "window switch",
        question("No NIC pauses its switch without load", "fabric.host-storm"),
        question("Each end of a cable counts the bytes and pauses that the other sent", "link.counters-agree",
                 where=ROCE),
        question("Errors and drops of a switch port beside the RDMA errors of its host", "link.errors", where=ROCE),
    ),
    _LIST.item(
        "AN-6", "optics, transceivers and cables healthy", "node window",
        question("Modules raise no alarm", "optics.module"),
        question("FEC corrects nearly all errors", "optics.fec", "optics.ber"),
        question("During a window, no link damages packets or goes down", "counters.link-quality", "counters.flaps"),
        question("Ethernet: which end of a cable lost the link", "link.flaps", where=ROCE),
    ),
    _LIST.item(
        "AN-7", "load balancing has entropy (queue pairs, adaptive routing, per-collective balancing)",
        "node window fabric switch",
        question("NCCL creates flows that the fabric can spread", "nccl.load-balancing"),
        question("The rails of each node are balanced", "counters.balance"),
        question("InfiniBand: the uplinks of each leaf are balanced", "fabric.uplink-balance", where=INFINIBAND),
        question("Ethernet: the uplinks of each leaf are balanced", "switch.uplink-balance", where=ROCE),
        lack("The uplinks are balanced for each collective",
             "switches do not count bytes by collective; by hand: run one collective of nccl-tests alone, and read "
             "`switch.uplink-balance` of a window within it"),
    ),
    _LIST.item(
        "AN-8", "consistent latency; losses below a limit", "pair window",
        question("No packets are lost", "counters.loss"),
        question("Between two idle nodes, small writes have constant latency", "pair.write-lat"),
        question("Under load, no iteration of a benchmark takes much longer than the median", "bench.tail"),
        question("Small messages take equally long between all pairs of nodes", "bench.pair-times"),
        question("No port counts errors while pairs of nodes run", "bench.ports"),
    ),
    _LIST.item(
        "AN-9", "early warning before the job suffers", "window",
        question("Links, GPU memory and temperature do not get worse from day to day",
                 "trend.links", "trend.flaps", "trend.gpu-links", "trend.gpu-memory", "trend.temperature"),
        question("The kernel reports no memory, PCIe, disk or link fault", "kernel.events"),
        question("FEC has a margin at the switch's end of each cable", "optics.fec-margin"),
        question("BGP sessions of the switches are established", "switch.bgp", where=ROCE),
        question("Congestion and bit errors do not grow from day to day", "trend.congestion"),
    ),
    _LIST.item(
        "AN-10", "job completion time recorded per run", "report",
        question("Jobs take as long as before", "trend.job-time"),
        within="jobs that `preflight history job` recorded",
    ),
    _LIST.item(
        "AN-11", "power and thermal headroom: no power brake, no thermal throttling", "node",
        question("No GPU is slowed down by heat or power", "gpu.throttling"),
        question("No power limit is below its default", "gpu.power-limit"),
        question("Every GPU is well below its slowdown temperature, and stays there",
                 "gpu.temperature-margin", "trend.temperature"),
        question("No node is hotter than its peers", "fleet.outliers"),
    ),
)  # fmt: skip

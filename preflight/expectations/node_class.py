"""The tables of a node class in a cluster file: all keys and their values."""

from __future__ import annotations

from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.expectations import roofline_table, schema
from preflight.expectations.catalogue import PARTS
from preflight.expectations.serving_table import Serving
from preflight.expectations.values import DEVICE, VARIABLE, Firmware, GpuSettings, Host, Nvlink, Rail, Versions
from preflight.expectations.waivers import Chosen


@dataclass(frozen=True)
class Ports:
    """Roles and properties of the RDMA ports of a class's nodes."""

    compute: tuple[str, ...] | None = schema.key(schema.devices, 'RDMA devices of the compute fabric: "mlx5_[0,3-6]"')
    storage: tuple[str, ...] | None = schema.key(schema.devices, "RDMA devices of the storage network")
    management: tuple[str, ...] | None = schema.key(schema.devices, "RDMA devices of the management network")
    link_layer: str | None = schema.key(
        schema.one_of("InfiniBand", "Ethernet", "Unspecified"), "link layer of the compute ports"
    )
    rate_gbps: float | None = schema.key(schema.number(1, 3200), "rate of each compute port, Gb/s")
    mtu: int | None = schema.key(schema.choice(256, 512, 1024, 2048, 4096), "RDMA MTU of the compute ports, bytes")
    netdev_mtu: int | None = schema.key(schema.integer(576, 65535), "Ethernet MTU of the compute ports, bytes")
    load_balancing: str | None = schema.key(
        schema.one_of("hash", "adaptive", "spray", "one-path"), "how the switches spread flows over equal paths"
    )
    adaptive_sl: int | None = schema.key(
        schema.integer(0, 15), "InfiniBand service level on which the subnet manager routes adaptively"
    )
    point_to_point: bool | None = schema.key(schema.boolean, "whether rails are routed to the host: /30, /31 or IPv6")
    networks: tuple[str, ...] | None = schema.key(
        schema.texts, 'Multus networks of the compute ports in a pod: ["rdma/rail-0", "rdma/rail-1"]'
    )
    gid_index: int | None = schema.key(schema.integer(0, 255), "GID index of the routable RoCE v2 address")
    acs: str | None = schema.key(schema.line, 'ACS controls that are enabled between GPUs and NICs, or "off"')
    max_read_request_bytes: int | None = schema.key(
        schema.choice(128, 256, 512, 1024, 2048, 4096), "MaxReadReq of the compute NICs, bytes"
    )
    peer_memory: str | None = schema.key(schema.line, 'path to GPU memory: "nvidia_peermem", "DMA-BUF"')
    resources: tuple[str, ...] | None = schema.key(
        schema.texts, 'RDMA resources that a device plug-in allocates to a pod: ["rdma/hca_shared_devices_a"]'
    )


@dataclass(frozen=True)
class Qos:
    """The site's configuration of RoCE quality of service."""

    lossless: bool | None = schema.key(schema.boolean, "whether the fabric is lossless (PFC) by design")
    pfc_priority: int | None = schema.key(schema.integer(0, 7), "the one priority with PFC on")
    ecn: bool | None = schema.key(schema.boolean, "whether ECN is on for that priority")
    trust: str | None = schema.key(schema.one_of("dscp", "pcp"), "the packet field that sets the priority")
    traffic_class: int | None = schema.key(
        schema.integer(0, 255), "traffic class of jobs, as in NCCL_IB_TC: 4 x DSCP, plus 2 for ECN"
    )
    dscp: int | None = schema.key(schema.integer(0, 63), "DSCP of RDMA traffic")
    cnp_dscp: int | None = schema.key(schema.integer(0, 63), "DSCP of congestion notifications")
    dcbx: str | None = schema.key(schema.one_of("os", "firmware"), "what sets PFC and DSCP on a port")
    dscp_map: str | None = schema.key(schema.line, 'priority of each DSCP: "0-7 to 0, 8-15 to 1"')
    dcqcn: str | None = schema.key(schema.line, "DCQCN setting, as the report shows it")


@dataclass(frozen=True)
class Thresholds:
    """Thresholds that replace the built-in ones."""

    memlock_gib: float | None = schema.key(schema.number(0.001, 1e6), "minimum limit of locked memory, GiB")
    shm_gib: float | None = schema.key(schema.number(0.001, 1e6), "minimum size of /dev/shm, GiB")
    local_ports: int | None = schema.key(schema.integer(1, 65535), "minimum number of ephemeral ports")
    gpu_memory_gib: float | None = schema.key(
        schema.number(0.001, 1e6), "memory that the job needs on each GPU: weights, optimizer, activations, GiB"
    )
    all_reduce_busbw_gbytes_s: float | None = schema.key(
        schema.number(0.001, 10000), "minimum for the best busbw of all_reduce_perf, GB/s"
    )
    kernel_log_hours: float | None = schema.key(
        schema.number(0.1, 8760), "hours for which a past event in the kernel log is relevant"
    )
    nic_gbps_per_gpu: float | None = schema.key(
        schema.number(0.001, 12800), "NIC bandwidth that each GPU needs, in each direction, Gb/s"
    )


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint directory and interval of the jobs on a class's nodes."""

    path: str | None = schema.key(schema.absolute_path, "directory that holds the checkpoints")
    interval_min: float | None = schema.key(schema.number(0.1, 100_000), "minutes between two checkpoints")


@dataclass(frozen=True)
class NodeClass:
    """Nodes with the same hardware and settings."""

    nodes: tuple[str, ...] | None = schema.key(schema.nodes, 'node names, folded: "gpu[001-064]"; default: all others')
    part: str | None = schema.key(schema.one_of(*(part.name for part in PARTS)), "part of the nodes, if not recognised")
    gpus: int | None = schema.key(schema.integer(0, 1024), "GPUs of each node")
    hcas: int | None = schema.key(schema.integer(0, 1024), "RDMA devices of the compute fabric of each node")
    sudo: bool | None = schema.key(schema.boolean, "whether --sudo may be used on these nodes")
    tools: tuple[str, ...] | None = schema.key(schema.folders, 'additional folders of tools: ["/opt/site/bin"]')
    ports: Ports = schema.table(Ports)
    qos: Qos = schema.table(Qos)
    thresholds: Thresholds = schema.table(Thresholds)
    versions: Versions = schema.table(Versions)
    firmware: Firmware = schema.table(Firmware)
    gpu_settings: GpuSettings = schema.table(GpuSettings)
    host: Host = schema.table(Host)
    nvlink: Nvlink = schema.table(Nvlink)
    rails: Mapping[str, Rail] = schema.tables(Rail, DEVICE)
    nccl: Mapping[str, str] | None = schema.lines_by_name(
        VARIABLE, 'NCCL variables of all ranks: { NCCL_ALGO = "Ring" }'
    )
    checkpoint: Checkpoint = schema.table(Checkpoint)
    baseline: str | None = schema.key(schema.file_name, "file next to this one: nccl-tests output of a good run")
    tree: roofline_table.FatTreeTable = schema.table(roofline_table.FatTreeTable)
    model: roofline_table.Model = schema.table(roofline_table.Model)
    serving: Serving = schema.table(Serving)
    checks: Chosen = schema.table(Chosen)

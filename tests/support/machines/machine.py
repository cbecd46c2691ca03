"""Description of a node: its parts and settings; a fault is a change of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.machines.platform import CONNECTX_7, NicModel, Platform

DRIVER = "570.124.06"


@dataclass(frozen=True)
class Gpu:
    """One GPU on its PCIe switch."""

    bus: int
    numa: int  # -1: unknown to the kernel
    on_bus: bool = True
    answers: bool = True
    nvlink: bool = True
    nvlink_errors: Mapping[tuple[int, str], int] = field(default_factory=dict)  # by link and name, since boot
    nvlink_gains: Mapping[tuple[int, str], int] = field(default_factory=dict)  # within the window
    replay_gain: int = 0  # of PCIe, within the window
    health: Mapping[str, Any] = field(default_factory=dict)  # differences from an idle one of its platform
    domain: int = 0
    above: tuple[str, ...] = ()  # bridges above it, root port first; empty: an HGX board's
    memory_node: int | None = None  # NUMA node of its own memory (Grace)
    numa_affinity: str = ""  # as the matrix prints it; empty: the NUMA node

    @property
    def address(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:00.0"


@dataclass(frozen=True)
class Queues:
    """RoCE quality of service of one port, apart from PFC and ECN, as in NVIDIA's RoCE guide."""

    trust: str = "dscp"
    traffic_class: int | None = 106  # the driver's, for all queue pairs; None: not set
    dscp_priority: tuple[tuple[int, int], ...] = ()  # differences from DSCP / 8
    ecn_priorities: tuple[int, ...] | None = None  # None: all, as the vendor's scripts do
    reaction_point: bool = True
    cnp_dscp: int = 48
    pause: tuple[bool, bool] = (False, False)  # RX, TX
    dcbx: str = "OS"  # or Firmware
    buffers: tuple[int, ...] | None = None  # of each priority; None: 1 for those with PFC, else 0
    buffer_bytes: tuple[int, ...] = (130944, 130944, 0, 0, 0, 0, 0, 0)
    dcqcn: tuple[tuple[str, int], ...] = ()  # differences from the firmware's defaults
    vendor_driver: bool = True  # MLNX_OFED or DOCA, which show ECN and the traffic class in sysfs
    shown: bool = True  # False: a virtual function; tools answer "not supported"


@dataclass(frozen=True)
class Nic:
    """One RDMA device with one port."""

    device: str
    bus: int
    function: int = 0
    numa: int = 0  # -1: unknown to the kernel
    gpu: int | None = None  # index of the GPU below the same PCIe switch
    state: str = "ACTIVE"
    physical: str = "LinkUp"
    rate: str = "400 Gb/sec (4X NDR)"
    netdev_mtu: int = 9000
    partition_mtu: int = 4096  # RDMA MTU that the subnet manager gave it; of InfiniBand only
    link: str = ""  # operstate of its interface; empty: by the port's state
    pfc: tuple[int, ...] = (3,)
    ecn: bool = True
    qos: Queues = Queues()
    gid_index: int = 3  # row of the GID table with its RoCE v2 IPv4 address
    uverbs: bool = True
    bound: bool = True  # whether the RDMA driver registered it
    mode: str = "0666"
    lanes: int = 16  # PCIe lanes it trained, of its model's; 0: a virtual function, which has no link of its own
    speed: str = ""  # at which its PCIe link trained; empty: its model's
    max_read_request: int = 4096
    ip: str | None = None  # address of a RoCE rail; None: its own /31; empty: none
    domain: int = 0
    slot: int = 0  # PCI device number
    lid: int | None = None  # of an InfiniBand port; None: by its bus
    prefix: int = 0xFE80 << 48  # subnet prefix of an InfiniBand port, the upper half of its GID
    model: NicModel = CONNECTX_7
    layer: str = ""  # link layer; empty: the machine's
    interface: str = ""  # name of its network interface; empty: by its bus
    above: tuple[str, ...] = ()  # bridges above it, root port first; empty: an HGX board's
    guid: str = ""  # empty: by its address
    relaxed_ordering: bool = True
    here: bool = True  # whether its interface is in the collector's network namespace
    gbps: float | None = None  # what its port sends, and receives, in the window; None: 300 near a GPU, 0.2 elsewhere
    grows: Mapping[str, int] = field(default_factory=dict)  # counters that grow, in addition to those of traffic
    stands: Mapping[str, int] = field(default_factory=dict)  # counters that start at another value
    lacks: tuple[str, ...] = ()  # prefixes of counters that its driver lacks
    traffic_priority: int = 3  # priority of a RoCE port's RDMA
    module_c: float = 52.0  # temperature of its module, degrees C
    module_flags: tuple[str, ...] = ()  # active alarms and warnings of its module
    rx_mw: float = 0.9  # light that its module receives on channel 1, mW
    fec: str = "RS"
    raw_ber: float = 3e-9  # bit error ratio before FEC
    symbol_ber: float = 0.0
    leaf: str = ""  # switch at the other end; empty: its rail's
    vlan: int = 1  # VLAN assigned by the switch
    pkeys: tuple[int, ...] = (0xFFFF,)  # partitions of an InfiniBand port
    sm_lid: int = 1  # of an InfiniBand port that is active
    switch_pfc: tuple[int, ...] | None = None  # PFC that the switch announces; None: as here
    switch_dscp: tuple[tuple[int, int], ...] | None = None  # DSCP and priority that the switch announces; None: as here
    switch_ets: tuple[int, int] = (50, 50)  # announced percentages of the bandwidth: of other traffic, of the job's
    switch_frame: int = 9236  # largest frame that the switch announces, bytes

    @property
    def address(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function}"

    @property
    def efa(self) -> bool:
        return self.layer == "Unspecified"

    def ethernet(self, roce: bool) -> bool:
        return self.layer == "Ethernet" if self.layer else roce

    def netdev(self, roce: bool) -> str:
        kind = "en" if self.ethernet(roce) else "ib"
        return self.interface or f"{kind}p{self.bus}s0" + (f"f{self.function}" if self.gpu is None else "")


@dataclass(frozen=True)
class Machine:
    """A node: its parts and settings."""

    name: str
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    number: int = 0  # its number in a fleet: all values that must differ between nodes depend on it
    gpu_id: str = "2330"
    gpu_name: str = "NVIDIA H100 80GB HBM3"
    nvlinks: int = 18
    roce: bool = False
    cpus: tuple[str, ...] = ("0-55,112-167", "56-111,168-223")
    allowed_cpus: str = "0-223"
    nvswitches: tuple[int, ...] = (0x07, 0x08, 0x09, 0x0A)  # buses, with the PCI domain in the upper bits
    driver: str = DRIVER
    driver_loaded: bool = True
    fabric_manager: str = "active"
    fabric_manager_version: str = ""  # empty: the driver's
    imex: bool = False  # whether its service is installed
    imex_state: str = "active"
    imex_channel: bool = True
    kernel_log: tuple[str, ...] = ()  # lines after those of the boot, as `dmesg --raw` prints them
    env: Mapping[str, str] = field(default_factory=dict)
    nccl_conf: str = ""  # /etc/nccl.conf; empty: there is none
    memlock: str = "unlimited"
    shm_gib: float = 1008
    ports: str = "32768\t60999\n"
    where: str = "host"
    open_driver: bool = True  # the driver's open kernel modules, not the proprietary ones
    peer_modules: tuple[str, ...] = ("nvidia_peermem",)
    without_modules: tuple[str, ...] = ()
    acs: tuple[str, ...] = ()  # ACS controls that are on in every bridge, or in those of acs_on
    acs_on: tuple[str, ...] = ()
    management: str = "eno1"  # the interface used by ssh
    default_route: str = "eno1"
    arp: tuple[int, int] = (0, 0)  # arp_ignore, arp_announce
    numa_balancing: int = 0
    governor: str = "performance"  # empty: the kernel has no cpufreq
    clock_offset_s: float = 0.000014
    userland_driver: str = ""  # version of the driver's libraries, if not the kernel module's
    empty_library: str = ""
    bundled_nccl: str = ""  # version of a nvidia-nccl wheel
    checkpoint_age_min: int = 20
    open_files: int = 1048576
    memory_nodes: str = "0-1"
    iommu: str = "identity"  # type of every IOMMU group; empty: no IOMMU
    platform: Platform = Platform()  # noqa: RUF009
    every_path: str = ""  # code between every GPU and NIC, where the matrix does not show them
    boot_options: str = ""  # after those of the platform
    cpu_busy: float = 0.21  # share of the window that each CPU was busy
    cpu_interrupts: Mapping[int, float] = field(default_factory=dict)  # share of it in interrupts, by CPU
    cpu_stolen: float = 0.0
    settings: Mapping[str, str] = field(
        default_factory=dict
    )  # files of tests/support/machines/settings.py with other content
    records: Mapping[str, Any] = field(default_factory=dict)  # records of a container's view instead

    def local_cpus(self, numa: int) -> str:
        """Return the CPUs near a device; all of them if unknown to the kernel."""
        return self.cpus[numa] if numa >= 0 else ",".join(self.cpus)


def hgx_h100(name: str, roce: bool = False) -> Machine:
    """A DGX H100 wired as in its user guide: eight GPUs, eight compute and four storage ports."""
    gpu_buses = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
    compute = ((0, 0x18), (3, 0x40), (4, 0x4F), (5, 0x5E), (6, 0x9A), (9, 0xC0), (10, 0xCE), (11, 0xDC))
    nics = [Nic(f"mlx5_{number}", bus, 0, index // 4, index) for index, (number, bus) in enumerate(compute)]
    for number, bus, function, numa in ((1, 0x29, 0, 0), (2, 0x29, 1, 0), (7, 0xAA, 0, 1), (8, 0xAA, 1, 1)):
        nics.append(Nic(f"mlx5_{number}", bus, function, numa, state="DOWN", physical="Disabled",
                        rate="10 Gb/sec (4X SDR)" if not roce else "40 Gb/sec (4X QDR)"))  # fmt: skip
    nics.sort(key=lambda nic: int(nic.device.split("_")[1]))
    return Machine(name, tuple(Gpu(bus, index // 4) for index, bus in enumerate(gpu_buses)), tuple(nics), roce=roce)


def one_pair(name: str) -> Machine:
    """The smallest box with a GPU and a NIC: one of each behind one PCIe switch."""
    return Machine(name, (Gpu(0x1B, 0),), (Nic("mlx5_0", 0x18, gpu=0),), nvswitches=())


def with_nic(machine: Machine, device: str, **changes: Any) -> Machine:
    """Return a machine with one NIC changed."""
    nics = tuple(replace(nic, **changes) if nic.device == device else nic for nic in machine.nics)
    return replace(machine, nics=nics)


def with_gpu(machine: Machine, index: int, **changes: Any) -> Machine:
    """Return a machine with one GPU changed."""
    gpus = tuple(replace(gpu, **changes) if i == index else gpu for i, gpu in enumerate(machine.gpus))
    return replace(machine, gpus=gpus)

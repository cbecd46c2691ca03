"""Values that a class declares for its nodes: versions, firmware, settings."""

from __future__ import annotations

from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.expectations import schema
from preflight.expectations.schema import Alternatives


@dataclass(frozen=True)
class Versions:
    """Software versions required on all nodes of a class."""

    driver: str | None = schema.key(schema.line, 'NVIDIA driver: "570.86.15"')
    kernel_modules: str | None = schema.key(schema.one_of("open", "proprietary"), "flavour of NVIDIA's kernel modules")
    cuda: str | Alternatives | None = schema.key(
        schema.lines, 'CUDA toolkit of the node: "12.8.1"; "none" if not installed'
    )
    nccl: str | None = schema.key(schema.line, 'all installed versions of NCCL: "2.26.2"')
    nccl_plugins: str | None = schema.key(schema.line, 'NCCL plug-ins: "libnccl-net"; "none"')
    pytorch: str | None = schema.key(schema.line, 'PyTorch: "2.6.0"')
    kernel: str | Alternatives | None = schema.key(schema.lines, 'kernel, as uname -r prints it: "5.15.0-1053-nvidia"')
    os: str | Alternatives | None = schema.key(
        schema.lines, 'distribution, PRETTY_NAME of /etc/os-release: "Ubuntu 22.04.5 LTS"'
    )
    ofed: str | Alternatives | None = schema.key(
        schema.lines, 'OFED or DOCA, as ofed_info -s prints it; "not installed"'
    )
    mlx5_core: str | Alternatives | None = schema.key(
        schema.lines, 'driver of the NICs: "24.10-1.1.4"; "none" for the in-kernel driver'
    )
    efa: str | Alternatives | None = schema.key(schema.lines, "AWS EFA driver")
    container_toolkit: str | Alternatives | None = schema.key(
        schema.lines, 'NVIDIA container toolkit: "1.17.4"; "not installed"'
    )


@dataclass(frozen=True)
class Firmware:
    """Firmware versions required on all nodes of a class."""

    bios: str | Alternatives | None = schema.key(schema.lines, "BIOS version of the server")
    microcode: str | Alternatives | None = schema.key(schema.lines, 'microcode of the processors: "0x2b000603"')
    vbios: str | Alternatives | None = schema.key(schema.lines, 'VBIOS of the GPUs: "96.00.89.00.01"')
    inforom: str | Alternatives | None = schema.key(schema.lines, "InfoROM image of the GPUs")
    gsp: str | Alternatives | None = schema.key(
        schema.lines, "GSP firmware version; \"the driver's\" if it must have the driver's version"
    )
    nics: Mapping[str, str | Alternatives] | None = schema.lines_by_name(
        schema.named(r"[A-Za-z0-9_.-]{1,64}", "MT_0000000838, a board's PSID"),
        'firmware of NICs by board: { MT_0000000838 = "28.39.1002" }; each version in a list is accepted',
        schema.lines,
    )


@dataclass(frozen=True)
class GpuSettings:
    """Model and settings of the GPUs in the nodes of a class."""

    model: str | None = schema.key(schema.line, 'model: "NVIDIA H100 80GB HBM3"')
    memory_mib: int | None = schema.key(schema.integer(1, 10_000_000), "memory of each GPU, MiB")
    ecc: bool | None = schema.key(schema.boolean, "whether ECC is on")
    mig: bool | None = schema.key(schema.boolean, "whether MIG is on")
    persistence: bool | None = schema.key(schema.boolean, "whether persistence mode is on")
    compute_mode: str | None = schema.key(schema.line, "compute mode")
    power_limit_w: float | None = schema.key(schema.number(1, 10_000), "enforced power limit, W")
    application_clock_mhz: int | None = schema.key(schema.integer(1, 10_000), "application clock, MHz")
    sm_clock_max_mhz: int | None = schema.key(schema.integer(1, 10_000), "highest SM clock, MHz")


@dataclass(frozen=True)
class DeclaredMount:
    """A required mount, and the requirements on its file system."""

    type: str | None = schema.key(schema.line, 'type, as /proc/mounts shows it: "nfs4", "lustre", "xfs"')
    read_write: bool | None = schema.key(schema.boolean, "whether it must be writable; false if it must be read-only")
    min_free_pct: float | None = schema.key(schema.number(0, 100), "minimum free space for users, %")
    min_free_gib: float | None = schema.key(schema.number(0, 1e9), "minimum free space for users, GiB")
    min_free_inodes: int | None = schema.key(schema.integer(0, 10**15), "minimum number of free inodes")


#: Validators of mount points, systemd units, and names of processes and users.
PLACE = schema.named(r"/[^\x00-\x1f\x7f]{0,1000}", '"/scratch", a directory from the root')
UNIT = schema.named(r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]{0,200}", "slurmd, sssd.service or scratch.mount, a unit of systemd")
PROCESS = schema.named(r"[^\s\x00-\x1f\x7f/]{1,64}", "xmrig, a program name without its folder")
USER = schema.named(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}", "guest, a user name or UID")


@dataclass(frozen=True)
class Host:
    """Hardware and settings of the servers of a class."""

    server: str | None = schema.key(schema.line, "server model, as DMI shows it")
    cpu: str | None = schema.key(schema.line, "CPU model")
    sockets: int | None = schema.key(schema.integer(1, 1024), "CPU sockets")
    numa_nodes: int | None = schema.key(schema.integer(1, 1024), "NUMA nodes with CPUs (NPS)")
    memory_gib: float | None = schema.key(
        schema.number(1, 1e6),
        "memory reported by the kernel (MemTotal), GiB, within 1%; firmware and kernel reserve 1 to 3%",
    )
    cpus: int | None = schema.key(schema.integer(1, 100_000), "logical CPUs that are online")
    smt: bool | None = schema.key(schema.boolean, "whether simultaneous multithreading (hyper-threading) is on")
    nvme: int | None = schema.key(schema.integer(0, 1024), "working local NVMe drives")
    swap: bool | None = schema.key(schema.boolean, "whether swap must be on; false if it must be off")
    mounts: Mapping[str, DeclaredMount] = schema.tables(DeclaredMount, PLACE)
    services: tuple[str, ...] | None = schema.key(
        schema.each(UNIT), 'systemd units that must be active: ["slurmd", "scratch.mount"]'
    )
    may_fail: tuple[str, ...] | None = schema.key(schema.each(UNIT), 'systemd units that may fail: ["motd-news"]')
    forbidden_processes: tuple[str, ...] | None = schema.key(
        schema.each(PROCESS), 'programs that must not run (the first 15 characters are compared): ["xmrig"]'
    )
    forbidden_users: tuple[str, ...] | None = schema.key(
        schema.each(USER), 'users, by name or UID, who must not run processes: ["guest"]'
    )
    boot_options: tuple[str, ...] | None = schema.key(
        schema.texts, 'all boot options except those of the disk, the image or the node: ["iommu=pt"]'
    )
    governor: str | None = schema.key(schema.line, 'frequency governor: "performance"')
    transparent_huge_pages: str | None = schema.key(schema.line, 'transparent huge pages: "madvise"')
    huge_pages: int | None = schema.key(schema.integer(0, 10**9), "reserved huge pages")
    numa_balancing: int | None = schema.key(schema.integer(0, 3), "kernel.numa_balancing")
    rp_filter: int | None = schema.key(schema.integer(0, 2), "rp_filter of the rails")
    arp_ignore: int | None = schema.key(schema.integer(0, 8), "arp_ignore of the rails")
    arp_announce: int | None = schema.key(schema.integer(0, 2), "arp_announce of the rails")
    local_port_range: str | None = schema.key(schema.words, 'ephemeral ports: "32768 60999"')
    rmem_max: int | None = schema.key(schema.integer(0, 2**63 - 1), "net.core.rmem_max")
    wmem_max: int | None = schema.key(schema.integer(0, 2**63 - 1), "net.core.wmem_max")
    tcp_rmem: str | None = schema.key(schema.words, 'net.ipv4.tcp_rmem: "4096 131072 6291456"')
    tcp_wmem: str | None = schema.key(schema.words, "net.ipv4.tcp_wmem")
    rdma_namespaces: str | None = schema.key(schema.line, "RDMA network namespaces, as the report shows them")
    memlock: str | None = schema.key(schema.line, 'limit of locked memory: "unlimited", "64 GiB"')


@dataclass(frozen=True)
class Nvlink:
    """The NVLink domain of a class's nodes."""

    cluster_uuid: str | None = schema.key(schema.line, "cluster UUID of the domain")
    clique: int | None = schema.key(schema.integer(0, 2**32 - 1), "clique of the domain")
    imex_nodes: tuple[str, ...] | None = schema.key(schema.texts, "addresses in IMEX's nodes_config.cfg")


@dataclass(frozen=True)
class Rail:
    """The properties that a compute device has on all nodes of a class."""

    pci: str | None = schema.key(schema.line, 'PCI address: "0000:18:00.0"')
    leaf: str | None = schema.key(schema.line, "name that the switch of the rail announces")
    subnet: str | None = schema.key(schema.line, 'IP network of the rail: "10.1.0.0/16"; point to point: "/31"')
    ib_subnet: str | None = schema.key(schema.line, 'InfiniBand subnet: "prefix fe80:…, manager at LID 1"')
    partitions: str | None = schema.key(schema.line, 'InfiniBand partitions: "0xffff"')
    vlan: str | None = schema.key(schema.line, 'VLAN tag of the interface: "101"; "no tag"')
    switch_vlan: str | None = schema.key(schema.line, "VLAN that the switch announces for the port")


#: Validators of the names of NCCL variables and RDMA devices.
VARIABLE = schema.named(r"(?:TORCH_)?NCCL_[A-Z0-9_]{1,60}", "NCCL_ALGO, a variable of NCCL")
DEVICE = schema.named(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", "mlx5_0, an RDMA device")

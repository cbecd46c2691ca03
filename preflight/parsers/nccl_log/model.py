"""Values of a parsed NCCL log. An empty tuple or None: not in the log."""

from __future__ import annotations

from collections.abc import Sequence

from preflight._startup.lightclass import dataclass

_TCP = frozenset({"socket", "fastsocket"})


def is_tcp(network: str) -> bool:
    """Return whether a network is NCCL's own TCP transport.

    A plug-in over TCP has a name of its own.
    """
    return network.casefold() in _TCP


@dataclass(frozen=True)
class LogLine:
    """One line of a log, for quoting."""

    number: int  # from 1
    host: str | None  # None where the prefix was cut off or has none
    message: str  # without the prefix
    text: str  # the line as printed, at most 300 characters
    time: str | None = None  # as printed, `YYYY-MM-DD HH:MM:SS[.f]`; clocks of two hosts may differ
    pid: int | None = None
    device: int | None = None  # CUDA device of the calling thread, within CUDA_VISIBLE_DEVICES: not a local rank
    tag: str = ""  # its writer, as the launcher prints it: `1,0`, `rank3`, `pod/…`
    file: str = ""  # where several files were read

    def __str__(self) -> str:
        """Return the line with its number."""
        return f"{self.file}:{self.number}: {self.text}" if self.file else f"{self.number}: {self.text}"


@dataclass(frozen=True)
class Use:
    """Something that the log has once or more."""

    name: str
    count: int
    first: LogLine


@dataclass(frozen=True)
class NetChannels:
    """Connections over one network, with or without GPUDirect RDMA."""

    network: str  # IB, Socket, AWS Libfabric, …
    gpudirect: bool | None  # None: their lines are cut before that word
    count: int  # lines, one for each channel and direction
    first: LogLine


@dataclass(frozen=True)
class IbDevice:
    """One entry of ``NET/IB : Using``."""

    name: str
    port: int
    roce: bool
    sharp: bool  # the plug-in could use SHARP here
    first: LogLine


@dataclass(frozen=True)
class Hca:
    """An HCA in NCCL's log, over all hosts, and its network channels."""

    name: str
    port: int
    hosts: int  # on how many it was found
    channels: int | None  # connection lines that name it; None where the log shows no network channel of its host
    unused_on: tuple[str, ...]  # hosts that have network channels, but none over this one; at most 20


@dataclass(frozen=True)
class HostChannels:
    """The network channels that one host's processes opened."""

    host: str
    network: str
    gpudirect: bool | None
    count: int
    proxied: int  # of them through the NIC of another rank's process (PXN)


@dataclass(frozen=True)
class Rails:
    """Connections with both ends: between equal NIC indexes (rail), or not."""

    seen: int
    crossing: int
    example: str | None  # one that crosses
    sampled: bool = False  # True: of very many connections, a sample by name


@dataclass(frozen=True)
class ReportedVariable:
    """A variable that NCCL reported to have read."""

    name: str
    value: str
    first: LogLine
    hosts: tuple[str, ...] = ()  # that logged it; at most 20
    count: int = 1


@dataclass(frozen=True)
class PluginStatus:
    """State of a plug-in."""

    state: str  # "loaded", "not found", "internal", "failed", "unsupported"
    name: str | None
    first: LogLine
    count: int


@dataclass(frozen=True)
class Affinity:
    """CPUs that NCCL bound a GPU's threads to, as it prints them."""

    host: str | None
    gpu: int
    cpus: str


@dataclass(frozen=True)
class ChannelCounts:
    """``N coll channels, …`` of the communicator with most; None if not printed."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int


@dataclass(frozen=True)
class Communicators:
    """Communicators of one size."""

    nranks: int
    made: int  # different ones
    complete: int  # all ranks in the log reported that it is set up
    destroyed: int  # that a rank took down again
    most_by_one: int  # how many one rank set up


@dataclass(frozen=True)
class Unfinished:
    """A communicator that some rank began and did not finish."""

    id: str | None
    nranks: int
    started: int  # ranks
    completed: int
    first: LogLine


@dataclass(frozen=True)
class Missing:
    """A rank that never arrived at a communicator while its peers waited."""

    rank: int
    host: str | None
    why: str  # how it is known


@dataclass(frozen=True)
class Failure:
    """A failure signature that was found."""

    id: str
    layer: str
    severity: str  # "fatal", "warn", "info"
    echo: bool  # of another failure
    line: LogLine  # the first
    rank: int | None
    count: int  # lines
    hosts: tuple[str, ...]  # in the order of their lines; at most 20
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    collect: tuple[str, ...]

    @property
    def host(self) -> str | None:
        """Host of the first line."""
        return self.line.host


@dataclass(frozen=True)
class NcclLog:
    """Content of a log."""

    nccl_version: str | None
    versions: tuple[Use, ...]
    built_for: tuple[Use, ...]  # versions of CUDA that NCCL was built for: "12.4" of "2.21.5+cuda12.4"
    cuda_drivers: tuple[str, ...]  # as the driver's API counts: "12.8"
    nranks: int | None  # of the largest communicator
    nnodes: int | None
    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, str], ...]  # (rank of the largest communicator, host) where logged
    networks: tuple[Use, ...]  # "Using network X", one entry for each X
    chosen: tuple[tuple[str, str], ...]  # (host, network) of the same lines
    plugins: tuple[PluginStatus, ...]
    channels: tuple[NetChannels, ...]
    by_host: tuple[HostChannels, ...]
    intra_node: tuple[Use, ...]  # P2P/CUMEM, P2P/IPC, SHM, …
    collnet: tuple[Use, ...]  # channels over COLLNET, and communicators that SHARP was set up for
    proxied: int  # network channels through another rank's NIC (PXN)
    rails: Rails | None
    rings: tuple[str, ...]  # order of ranks of each channel of the largest communicator, as printed; at most 64
    ring_channels: int | None
    tree_channels: int | None
    channel_counts: ChannelCounts | None
    nvls: LogLine | None  # NVLS resources were set up
    nvls_support: bool | None  # what the devices could do; None also where hosts differ
    mnnvl: Use | None  # a clique over several nodes
    ib_devices: tuple[IbDevice, ...]
    hcas: tuple[Hca, ...]
    no_device_found: LogLine | None
    socket_interfaces: tuple[str, ...]  # NET/Socket was initialised, not: is used
    bootstrap_interfaces: tuple[str, ...]  # ranks find each other over them
    environment: tuple[ReportedVariable, ...]
    affinity: tuple[Affinity, ...]
    communicators: tuple[Communicators, ...]  # largest first
    unfinished: tuple[Unfinished, ...]  # largest first; at most 20
    missing: tuple[Missing, ...]
    warnings: tuple[LogLine, ...]  # in the order of time; at most MAX_WARNINGS
    warning_count: int
    failures: tuple[Failure, ...]  # root cause first, echoes last
    hints: tuple[Failure, ...]  # signatures of severity "info"
    obstacles: tuple[LogLine, ...]  # reasons that the log gives for not using RDMA, earliest first
    gpudirect_disabled: tuple[LogLine, ...]
    ofi_provider: Use | None  # libfabric provider that the AWS plug-in chose
    lines: int  # of NCCL
    unread: tuple[str, ...]  # what was not looked at, and why: the log may hold a failure there
    notes: tuple[str, ...]  # what is read and was counted only
    processes: int = 0  # that set up a communicator
    registering: int = 0  # of them, that registered user buffers (logged with NCCL_DEBUG_SUBSYS=REG only)

    @property
    def cuda_driver(self) -> str | None:
        """The CUDA of the driver that the log names first."""
        return self.cuda_drivers[0] if self.cuda_drivers else None

    def variable(self, name: str) -> ReportedVariable | None:
        """Return the first report of a variable."""
        return next((variable for variable in self.environment if variable.name == name), None)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Networks in use: of the channels, else those chosen."""
        named: Sequence[NetChannels | Use] = self.channels or self.networks
        return tuple(dict.fromkeys(entry.network if isinstance(entry, NetChannels) else entry.name for entry in named))

"""Values of a parsed NCCL log. An empty tuple or None: not in the log."""

from __future__ import annotations

from collections.abc import Sequence

from preflight._startup.lightclass import dataclass

_TCP = frozenset({"socket", "fastsocket"})


def is_tcp(network: str) -> bool:
    """Return whether a network is NCCL's own TCP transport.

    A plug-in over TCP has a different name.
    """
    return network.casefold() in _TCP


@dataclass(frozen=True)
class LogLine:
    """One line of a log, for quoting."""

    number: int  # from 1
    host: str | None  # None if the prefix is missing or incomplete
    message: str  # without the prefix
    text: str  # the line as printed, at most 300 characters
    time: str | None = None  # as printed, `YYYY-MM-DD HH:MM:SS[.f]`; clocks of two hosts may differ
    pid: int | None = None
    device: int | None = None  # CUDA device of the calling thread, within CUDA_VISIBLE_DEVICES: not a local rank
    tag: str = ""  # its writer, in the launcher's format: `1,0`, `rank3`, `pod/…`
    file: str = ""  # if several files were read

    def __str__(self) -> str:
        """Return the line with its number."""
        return f"{self.file}:{self.number}: {self.text}" if self.file else f"{self.number}: {self.text}"


@dataclass(frozen=True)
class Use:
    """An item that occurs in the log once or more."""

    name: str
    count: int
    first: LogLine


@dataclass(frozen=True)
class NetChannels:
    """Connections over one network, with or without GPUDirect RDMA."""

    network: str  # IB, Socket, AWS Libfabric, …
    gpudirect: bool | None  # None: their lines are truncated before that word
    count: int  # lines, one for each channel and direction
    first: LogLine


@dataclass(frozen=True)
class IbDevice:
    """One entry of ``NET/IB : Using``."""

    name: str
    port: int
    roce: bool
    sharp: bool  # the plug-in could use SHARP for it
    first: LogLine


@dataclass(frozen=True)
class Hca:
    """An HCA in NCCL's log, over all hosts, and its network channels."""

    name: str
    port: int
    hosts: int  # number of hosts that found it
    channels: int | None  # connection lines that name it; None if the log shows no network channel of its host
    unused_on: tuple[str, ...]  # hosts that have network channels, but none over this HCA; at most 20


@dataclass(frozen=True)
class HostHcas:
    """The HCAs of one host, if all its processes listed the same ones."""

    host: str
    names: tuple[str, ...]  # "mlx5_0:1", in the order of the list
    local_ranks: int | None  # ranks of the largest communicator on one node, as NCCL counts them
    first: LogLine


@dataclass(frozen=True)
class HostChannels:
    """The network channels opened by the processes of one host."""

    host: str
    network: str
    gpudirect: bool | None
    count: int
    proxied: int  # of these, through the NIC of another rank's process (PXN)


@dataclass(frozen=True)
class Rails:
    """Connections with both ends known: between NICs of equal index (a rail) or not."""

    seen: int
    crossing: int
    example: str | None  # one that crosses
    sampled: bool = False  # True: a sample of very many connections, by name


@dataclass(frozen=True)
class ReportedVariable:
    """A variable that NCCL reported reading."""

    name: str
    value: str
    first: LogLine
    hosts: tuple[str, ...] = ()  # hosts that logged it; at most 20
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
    """CPUs to which NCCL bound a GPU's threads, as printed."""

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
    made: int  # number of different ones
    complete: int  # all ranks in the log reported that it is set up
    destroyed: int  # number destroyed by a rank
    most_by_one: int  # number set up by one rank


@dataclass(frozen=True)
class Unfinished:
    """A communicator that some rank started but did not finish."""

    id: str | None
    nranks: int
    started: int  # number of ranks
    completed: int
    first: LogLine


@dataclass(frozen=True)
class Missing:
    """A rank that never arrived at a communicator while its peers waited."""

    rank: int
    host: str | None
    why: str  # evidence for it


@dataclass(frozen=True)
class ProcessFailure:
    """A failure in the lines of one process."""

    line: LogLine  # the first
    rank: int | None
    count: int  # number of lines


@dataclass(frozen=True)
class Failure:
    """A detected failure signature."""

    id: str
    layer: str
    severity: str  # "fatal", "warn", "info"
    echo: bool  # a consequence of another failure
    line: LogLine  # the first
    rank: int | None
    count: int  # number of lines
    hosts: tuple[str, ...]  # in line order; at most 20
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    collect: tuple[str, ...]
    processes: tuple[ProcessFailure, ...] = ()  # in line order; at most 20

    @property
    def host(self) -> str | None:
        """Host of the first line."""
        return self.line.host


@dataclass(frozen=True)
class NcclLog:
    """Content of a log."""

    nccl_version: str | None
    versions: tuple[Use, ...]
    built_for: tuple[Use, ...]  # CUDA versions of the NCCL builds: "12.4" of "2.21.5+cuda12.4"
    cuda_drivers: tuple[str, ...]  # as reported by the driver's API: "12.8"
    nranks: int | None  # of the largest communicator
    nnodes: int | None  # that the lines show
    job_nodes: int | None  # of the job; None if an excerpt may show only some
    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, str], ...]  # (rank of the largest communicator, host), if logged
    networks: tuple[Use, ...]  # "Using network X", one entry for each X
    chosen: tuple[tuple[str, str], ...]  # (host, network) of the same lines
    plugins: tuple[PluginStatus, ...]
    channels: tuple[NetChannels, ...]
    by_host: tuple[HostChannels, ...]
    intra_node: tuple[Use, ...]  # P2P/CUMEM, P2P/IPC, SHM, …
    collnet: tuple[Use, ...]  # channels over COLLNET, and communicators with SHARP
    proxied: int  # network channels through another rank's NIC (PXN)
    rails: Rails | None
    rings: tuple[str, ...]  # order of ranks in each channel of the largest communicator, as printed; at most 64
    ring_channels: int | None
    tree_channels: int | None
    channel_counts: ChannelCounts | None
    nvls: LogLine | None  # NVLS resources were set up
    nvls_support: bool | None  # capabilities of the devices; None also if hosts differ
    mnnvl: Use | None  # a clique over several nodes
    ib_devices: tuple[IbDevice, ...]
    hcas: tuple[Hca, ...]
    hcas_by_host: tuple[HostHcas, ...]  # of complete lists
    no_device_found: LogLine | None
    socket_interfaces: tuple[str, ...]  # NET/Socket was initialised, not necessarily used
    bootstrap_interfaces: tuple[str, ...]  # ranks use them to find each other
    environment: tuple[ReportedVariable, ...]
    affinity: tuple[Affinity, ...]
    communicators: tuple[Communicators, ...]  # largest first
    unfinished: tuple[Unfinished, ...]  # largest first; at most 20
    missing: tuple[Missing, ...]
    warnings: tuple[LogLine, ...]  # in time order; at most MAX_WARNINGS
    warning_count: int
    failures: tuple[Failure, ...]  # root cause first, consequences last
    hints: tuple[Failure, ...]  # signatures of severity "info"
    obstacles: tuple[LogLine, ...]  # reasons in the log for not using RDMA, earliest first
    gpudirect_disabled: tuple[LogLine, ...]
    ofi_provider: Use | None  # libfabric provider chosen by the AWS plug-in
    lines: int  # lines of NCCL
    unread: tuple[str, ...]  # unread text, and the reason: the log may have a failure in it
    notes: tuple[str, ...]  # text that was only counted
    processes: int = 0  # number of ranks that set up a communicator
    setups: tuple[tuple[int, ...], ...] = ()  # of each process: lines at which it had set up a communicator
    registering: int = 0  # of these, ranks that registered user buffers (logged only with NCCL_DEBUG_SUBSYS=REG)

    @property
    def cuda_driver(self) -> str | None:
        """The first CUDA version of the driver in the log."""
        return self.cuda_drivers[0] if self.cuda_drivers else None

    def variable(self, name: str) -> ReportedVariable | None:
        """Return the first report of a variable."""
        return next((variable for variable in self.environment if variable.name == name), None)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Networks in use: those of the channels, otherwise those chosen."""
        named: Sequence[NetChannels | Use] = self.channels or self.networks
        return tuple(dict.fromkeys(entry.network if isinstance(entry, NetChannels) else entry.name for entry in named))

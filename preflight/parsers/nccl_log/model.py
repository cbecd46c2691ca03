"""Values of a parsed NCCL log; None or an empty tuple if the log lacks them."""

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
    file: str = ""  # name of its file if several were read

    def __str__(self) -> str:
        """Return the line with its number, and its file if several were read."""
        return f"{self.file}:{self.number}: {self.text}" if self.file else f"{self.number}: {self.text}"


@dataclass(frozen=True)
class Use:
    """A name in the log, with its number of occurrences and its first line."""

    name: str
    count: int
    first: LogLine


@dataclass(frozen=True)
class NetChannels:
    """Connections over one network, with or without GPUDirect RDMA."""

    network: str  # IB, Socket, AWS Libfabric, …
    gpudirect: bool | None  # None: the lines are truncated before that word
    count: int  # number of lines; one for each channel and direction
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
    """An HCA in NCCL's log, across all hosts, and its network channels."""

    name: str
    port: int
    hosts: int  # number of hosts on which NCCL found it
    channels: int | None  # number of its connection lines; None if the log shows no network channels of its hosts
    unused_on: tuple[str, ...]  # hosts that have network channels, but none over this HCA; at most 20


@dataclass(frozen=True)
class HostHcas:
    """The HCAs of a host on which all processes listed the same ones."""

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
    proxied: int  # number of these through the NIC of another rank's process (PXN)


@dataclass(frozen=True)
class LocalChannels:
    """The channels within a host over one transport."""

    host: str | None  # None: the lines name no host
    transport: str  # P2P/CUMEM, P2P/IPC, SHM, …
    count: int
    first: LogLine


@dataclass(frozen=True)
class Rails:
    """Connections with known NICs at both ends; they cross if indexes differ."""

    seen: int
    crossing: int
    example: str | None  # a connection that crosses rails
    sampled: bool = False  # True: counted in a sample of very many connections


@dataclass(frozen=True)
class ReportedVariable:
    """A variable that NCCL reports as set."""

    name: str
    value: str
    first: LogLine
    hosts: tuple[str, ...] = ()  # hosts that logged it; at most 20
    count: int = 1


@dataclass(frozen=True)
class PluginStatus:
    """A plug-in's state, with the number of lines that report it."""

    state: str  # "loaded", "not found", "internal", "failed", "unsupported"
    name: str | None
    first: LogLine
    count: int


@dataclass(frozen=True)
class Affinity:
    """The CPUs to which NCCL bound the threads of a GPU, as printed."""

    host: str | None
    gpu: int
    cpus: str


@dataclass(frozen=True)
class ChannelCounts:
    """Channels of the communicator with the most; None if NCCL does not print a kind."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int


@dataclass(frozen=True)
class Communicators:
    """Counts of the communicators of one size."""

    nranks: int
    made: int  # number of communicators
    complete: int  # number of communicators that all ranks in the log had set up
    destroyed: int  # number of communicators that a rank destroyed
    most_by_one: int  # maximum number of communicators that one rank set up


@dataclass(frozen=True)
class Unfinished:
    """A communicator whose setup a rank started but did not finish."""

    id: str | None
    nranks: int
    started: int  # number of ranks that started or finished it
    completed: int  # number of ranks that finished it
    first: LogLine


@dataclass(frozen=True)
class Missing:
    """A rank that did not set up a communicator while its peers waited for it."""

    rank: int
    host: str | None
    why: str  # the evidence


@dataclass(frozen=True)
class ProcessFailure:
    """The occurrences of a failure in one process."""

    line: LogLine  # the first
    rank: int | None
    count: int  # number of lines


@dataclass(frozen=True)
class Failure:
    """A failure in the log, recognised by a signature."""

    id: str
    layer: str
    severity: str  # "fatal", "warn", "info"
    echo: bool  # a consequence of another failure
    line: LogLine  # the first
    rank: int | None
    count: int  # number of lines
    hosts: tuple[str, ...]  # in order of their lines; at most 20
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    collect: tuple[str, ...]
    processes: tuple[ProcessFailure, ...] = ()  # in order of their lines; at most 20

    @property
    def host(self) -> str | None:
        """The host of the first line; None if unknown."""
        return self.line.host


@dataclass(frozen=True)
class NcclLog:
    """The facts of one log."""

    nccl_version: str | None
    versions: tuple[Use, ...]
    built_for: tuple[Use, ...]  # CUDA versions of the NCCL builds, such as "12.4" of "2.21.5+cuda12.4"
    cuda_drivers: tuple[str, ...]  # CUDA versions that the drivers support, such as "12.8"
    nranks: int | None  # size of the largest communicator
    nnodes: int | None  # number of nodes that the lines show
    job_nodes: int | None  # number of the job's nodes; None if the log may show only some
    hosts: tuple[str, ...]
    ranks: tuple[tuple[int, str], ...]  # (rank in the largest communicator, host), if known
    networks: tuple[Use, ...]  # "Using network X", one entry for each X
    chosen: tuple[tuple[str, str], ...]  # (host, network), from the same lines
    plugins: tuple[PluginStatus, ...]
    channels: tuple[NetChannels, ...]
    by_host: tuple[HostChannels, ...]
    intra_node: tuple[Use, ...]  # P2P/CUMEM, P2P/IPC, SHM, …
    local: tuple[LocalChannels, ...]  # the same by host
    collnet: tuple[Use, ...]  # channels over COLLNET, and communicators with SHARP
    proxied: int  # network channels through another rank's NIC (PXN)
    rails: Rails | None
    rings: tuple[str, ...]  # order of ranks in each channel of the largest communicator, as printed; at most 64
    ring_channels: int | None
    tree_channels: int | None
    channel_counts: ChannelCounts | None
    nvls: LogLine | None  # the line that reports the setup of NVLS resources
    nvls_support: bool | None  # whether the GPUs support it; None also if they differ
    mnnvl: Use | None  # the size of a clique of GPUs over several nodes
    ib_devices: tuple[IbDevice, ...]
    hcas: tuple[Hca, ...]
    hcas_by_host: tuple[HostHcas, ...]  # only of hosts with complete lists
    no_device_found: LogLine | None
    socket_interfaces: tuple[str, ...]  # of NET/Socket, which is not necessarily used
    bootstrap_interfaces: tuple[str, ...]  # over which ranks find each other
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
    lines: int  # number of lines from NCCL
    unread: tuple[str, ...]  # descriptions of unread text, which may contain a failure
    notes: tuple[str, ...]  # descriptions of text that was only counted
    processes: int = 0  # number of ranks that set up a communicator
    setups: tuple[tuple[int, ...], ...] = ()  # for each process, the lines at which it had set up a communicator
    registering: int = 0  # of these, ranks that registered user buffers (logged only with NCCL_DEBUG_SUBSYS=REG)

    @property
    def cuda_driver(self) -> str | None:
        """The first CUDA driver version in the log, or None."""
        return self.cuda_drivers[0] if self.cuda_drivers else None

    def variable(self, name: str) -> ReportedVariable | None:
        """Return the first reported value of a variable, or None."""
        return next((variable for variable in self.environment if variable.name == name), None)

    @property
    def network_names(self) -> tuple[str, ...]:
        """The networks of the channels; if the log has no channels, the chosen ones."""
        named: Sequence[NetChannels | Use] = self.channels or self.networks
        return tuple(dict.fromkeys(entry.network if isinstance(entry, NetChannels) else entry.name for entry in named))

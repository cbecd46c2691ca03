"""NCCL's own log (NCCL_DEBUG=INFO): which network it chose, over what its channels run, what it warned of.

Formats of NCCL 2.4 … 2.30 (src/debug.cc, src/net.cc, src/transport/). The NET subsystem is off by
default: that a line is absent says nothing. A line that tells what *could* be used (a plug-in was
loaded, DMA-BUF is available, "use ring PXN 0 GDR 1") is no use of it; only channel lines are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from preflight.facts.nccl_lines import lines, unlaunched

#: How many warnings, and lines of one other kind, are kept of a log; one rank's INFO log repeats them.
KEPT = 1000

_LEVEL = re.compile(r"NCCL (INFO|WARN)(?: |$)")
_HOST = re.compile(r"(?<![\w.-])([A-Za-z0-9_][\w.-]{0,254}):(\d{1,10}):(\d{1,10})\s")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d\s")
_TABLE_ROW = re.compile(r"\d\s{1,40}\d{1,19}\s{1,40}[A-Za-z]\w{2,15}\s")
_ANONYMOUS = re.compile(
    r"(?:\S{1,255}:[\dXx*]{1,10}:[\dXx*]{1,10}\s+)?(?:\[\d{1,4}\]\s*)?(?:[\w./-]{1,128}:\d{1,6}\s+(?:\(\w{1,64}\)\s+)?)?"
)
_VERSION = re.compile(r"\bNCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_NETWORK = re.compile(r"(?:Using network|Assigned NET plugin) (?P<name>\S.{0,63}?)(?: to comm)?\s*")
_CHANNEL = re.compile(r"(?:Ring|Channel) \d+(?:/\d+)?\s*:\s*\d+(?:\[[0-9a-fA-F]+\])?\s*->\s*\d+.{0,64}? via (.{1,128})")
_NET = re.compile(r"NET/(?P<name>.{1,63}?)/\d+(?:\(\d+\))?(?P<gdr>/GDRDMA(?:\([^)]*\))?)?(?:/Shared)?(?:[/ ].*)?\s*")
_USING = re.compile(r"NET/(\S{1,32})\s*: Using (.*)")
_IB_DEVICE = re.compile(r"\[\d{1,3}\]\s?([^\s:={}\[\]]{1,63}):(\d{1,3})[^/\s]{0,16}/(IB|RoCE)(/SHARP)?")
_INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,63}):")
_ENVIRONMENT = re.compile(r"\b(NCCL_\w{1,64}) set (?:by environment )?to (.*)")
_RANK = re.compile(r"\brank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_NODES = re.compile(r"\bnNodes (\d{1,7})\b")
_GDR_DISABLED = re.compile(r"(?!NET/(?:Fast)?Socket).*GPU Direct RDMA (?:\(\S+\) )?Disabled for ")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]{1,32})")
_OBSTACLE = re.compile(
    r"NET/IB : No device found|Failed to open libibverbs|Could not open libibverbs"
    r"|Failed to initialize (?:NET plugin (?!Socket)|any NET plugin)|External network plugin \S+ is unsupported"
    r"|(?:Error:? )?[Nn]etwork \S.{0,60} not found"
)

_TCP = frozenset({"socket", "fastsocket"})


def is_tcp(network: str) -> bool:
    """Tell whether a network is NCCL's own TCP transport (a plug-in that speaks TCP has a name of its own)."""
    return network.casefold() in _TCP


@dataclass(frozen=True)
class Line:
    """One line of a log, for quoting."""

    number: int  # from 1
    host: str | None  # None where the prefix was cut off or tells none
    message: str  # without the prefix
    text: str  # the whole line, at most 300 characters

    def __str__(self) -> str:
        """Return the line with its number."""
        return f"{self.number}: {self.text}"


@dataclass(frozen=True)
class Use:
    """Something that the log says once or often."""

    name: str
    count: int
    first: Line


@dataclass(frozen=True)
class NetChannels:
    """Connections over one network, with or without GPUDirect RDMA."""

    network: str  # IB, Socket, AWS Libfabric, …
    gpudirect: bool
    count: int  # lines, one for each channel and direction
    first: Line


@dataclass(frozen=True)
class IbDevice:
    """One entry of ``NET/IB : Using``."""

    name: str
    port: int
    roce: bool
    sharp: bool  # the plug-in could use SHARP here
    first: Line


@dataclass(frozen=True)
class Variable:
    """A variable as NCCL says that it read it."""

    name: str
    value: str
    first: Line


@dataclass(frozen=True)
class NcclLog:
    """What a log says. An empty tuple or None: the log is silent about it."""

    nccl_version: str | None
    nranks: int | None  # of the largest communicator
    nnodes: int | None
    hosts: tuple[str, ...]
    networks: tuple[Use, ...]  # "Using network X", one entry for each X
    channels: tuple[NetChannels, ...]
    intra_node: tuple[Use, ...]  # P2P/CUMEM, P2P/IPC, SHM, …
    nvls: Line | None  # NVLS resources were set up
    ib_devices: tuple[IbDevice, ...]
    no_device_found: Line | None
    socket_interfaces: tuple[str, ...]  # NET/Socket was initialised, not: is used
    environment: tuple[Variable, ...]
    warnings: tuple[Line, ...]
    obstacles: tuple[Line, ...]  # reasons that the log gives for not using RDMA, earliest first
    gpudirect_disabled: tuple[Line, ...]
    ofi_provider: Use | None  # libfabric provider that the AWS plug-in chose
    lines: int  # of NCCL

    def variable(self, name: str) -> Variable | None:
        """Return what NCCL said of a variable first."""
        return next((variable for variable in self.environment if variable.name == name), None)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Networks in use: those of the channels; where there are no channel lines, those chosen."""
        named: Sequence[NetChannels | Use] = self.channels or self.networks
        return tuple(dict.fromkeys(entry.network if isinstance(entry, NetChannels) else entry.name for entry in named))


def parse(text: str) -> NcclLog | None:
    """Read a log, whatever else stands in it; None if no line of it is NCCL's. Never raises."""
    reader = _Reader()
    for number, line in lines(text, "NCCL"):
        reader.read(number, line)
    return reader.log() if reader.count else None


class _Reader:
    """Gathers facts; what repeats is counted, so that memory follows the number of hosts, not of lines."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.count = 0
        self.version: str | None = None
        self.nnodes: int | None = None
        self.nranks: int | None = None
        self.ranks: set[int] = set()
        self.hosts: dict[str, None] = {}
        self.networks: dict[str, Use] = {}
        self.channels: dict[tuple[str, bool], NetChannels] = {}
        self.intra_node: dict[str, Use] = {}
        self.nvls: Line | None = None
        self.ib_devices: dict[tuple[str | None, str, int], IbDevice] = {}
        self.interfaces: dict[str, None] = {}
        self.environment: dict[tuple[str, str], Variable] = {}
        self.warnings: list[Line] = []
        self.obstacles: dict[str, Line] = {}
        self.gpudirect_disabled: dict[str, Line] = {}
        self.ofi_provider: Use | None = None

    def read(self, number: int, text: str) -> None:
        """Take in one line."""
        if self.version is None and (match := _VERSION.search(text)):
            self.version = match[1]
            self.count += 1
        if not (level := _LEVEL.search(text)):
            return
        head = text[: level.start()]
        host = _host(head)
        if host is None and not _TABLE_ROW.search(head) and not _ANONYMOUS.fullmatch(unlaunched(head)[1]):
            return  # prose about NCCL
        self.count += 1
        line = Line(number, host, text[level.end() :].strip()[:1000], text.strip()[:300])
        if host is not None:
            self.hosts[host] = None
        if level[1] == "WARN":
            if len(self.warnings) < KEPT:
                self.warnings.append(line)
            self.obstacle(line)
        else:
            self.info(line, text[level.end() :])

    def info(self, line: Line, message: str) -> None:
        """Take in a message of level INFO."""
        if match := _CHANNEL.match(message):
            self.channel(match[1], line)
        elif match := _NETWORK.fullmatch(message):
            self.networks[match["name"]] = _counted(self.networks.get(match["name"]), match["name"], line)
        elif match := _USING.match(message):
            self.initialised(match[1], match[2], line)
        elif match := _ENVIRONMENT.search(message):
            self.variable(match[1], match[2], line)
        elif message.startswith("NVLS comm ") or message.startswith("Connected NVLS tree"):
            self.nvls = self.nvls or line
        elif match := _PROVIDER.match(message):
            self.ofi_provider = _counted(self.ofi_provider, match[1], line)
        elif _GDR_DISABLED.match(message) and len(self.gpudirect_disabled) < KEPT:
            self.gpudirect_disabled.setdefault(message, line)
        elif "rank " in message:
            self.communicator(message, line)
        else:
            self.obstacle(line)

    def channel(self, via: str, line: Line) -> None:
        """Take in a connection."""
        if match := _NET.fullmatch(via):
            key = (match["name"], match["gdr"] is not None)
            known = self.channels.get(key)
            made = NetChannels(*key, 1, line)
            self.channels[key] = replace(known, count=known.count + 1) if known else made
            return
        name = "SHM" if via.startswith(("SHM", "direct shared memory")) else "/".join(via.split("/")[:2]).strip()
        if name == "SHM" or name.startswith("P2P/"):
            self.intra_node[name] = _counted(self.intra_node.get(name), name, line)

    def initialised(self, transport: str, rest: str, line: Line) -> None:
        """Take in the devices of a transport that was initialised; an empty list is a list of none."""
        if is_tcp(transport):
            for name in _INTERFACE.findall(rest):
                self.interfaces[name] = None
            if self.version is not None and _numbers(self.version) < (2, 6, 4):
                # up to 2.6.3 no line says "Using network"; TCP is initialised only where InfiniBand failed
                self.networks["Socket"] = _counted(self.networks.get("Socket"), "Socket", line)
            return
        for name, port, layer, sharp in _IB_DEVICE.findall(rest.partition("; OOB")[0]):
            device = IbDevice(name, int(port), layer == "RoCE", bool(sharp), line)
            self.ib_devices.setdefault((line.host, name, int(port)), device)

    def variable(self, name: str, value: str, line: Line) -> None:
        """Take in a variable; NCCL ends those that it reads as numbers with a full stop."""
        value = value.strip()
        if re.fullmatch(r"-?\d{1,20}\.", value):
            value = value[:-1]
        if len(self.environment) < KEPT:
            self.environment.setdefault((name, value), Variable(name, value, line))
        off = name == "NCCL_IB_DISABLE" and value not in ("", "0")
        if off or (name == "NCCL_NET" and is_tcp(value)):
            self.obstacles.setdefault(name, line)

    def communicator(self, message: str, line: Line) -> None:
        """Take in ranks and nodes of a communicator."""
        if match := _NODES.search(message):
            self.nnodes = max(self.nnodes or 0, int(match[1]))
        if match := _RANK.search(message):
            rank, nranks = int(match[1]), int(match[2])
            if self.nranks is None or nranks > self.nranks:
                self.nranks, self.ranks = nranks, set()
            if nranks == self.nranks:
                self.ranks.add(rank)

    def obstacle(self, line: Line) -> None:
        """Keep the first line of each reason for not using RDMA."""
        if match := _OBSTACLE.search(line.message):
            self.obstacles.setdefault(match[0], line)

    def log(self) -> NcclLog:
        """Return what was gathered."""
        obstacles = sorted(self.obstacles.values(), key=lambda line: line.number)
        return NcclLog(
            nccl_version=self.version,
            nranks=self.nranks,
            nnodes=self._nnodes(),
            hosts=tuple(self.hosts),
            networks=tuple(self.networks.values()),
            channels=tuple(self.channels.values()),
            intra_node=tuple(self.intra_node.values()),
            nvls=self.nvls,
            ib_devices=tuple(self.ib_devices.values()),
            no_device_found=_first(line for line in obstacles if "No device found" in line.message),
            socket_interfaces=tuple(self.interfaces),
            environment=tuple(self.environment.values()),
            warnings=tuple(self.warnings),
            obstacles=tuple(obstacles),
            gpudirect_disabled=tuple(self.gpudirect_disabled.values()),
            ofi_provider=self.ofi_provider,
            lines=self.count,
        )

    def _nnodes(self) -> int | None:
        """Count nodes: NCCL's own number (2.20 on), else hosts, one of them only if all ranks are seen on it."""
        if self.nnodes is not None:
            return self.nnodes
        if len(self.hosts) > 1:
            return len(self.hosts)
        everyone = self.nranks is not None and len(self.ranks) == self.nranks
        return 1 if len(self.hosts) == 1 and everyone else None


def _host(head: str) -> str | None:
    """Find HOST:PID:TID before the level; a number of a table that NCCL wrote into may be glued to it."""
    found = [match for match in _HOST.finditer(head) if not _CLOCK.fullmatch(match[0])]
    if not found or _TABLE_ROW.search(head[: found[-1].start() + 1]):
        return None
    return found[-1][1]


def _counted(known: Use | None, name: str, line: Line) -> Use:
    return replace(known, count=known.count + 1) if known else Use(name, 1, line)


def _first(found: Iterable[Line]) -> Line | None:
    return next(iter(found), None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))

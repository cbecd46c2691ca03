"""One message of level INFO, as an event: what it says, without who says it.

Formats of NCCL 2.3 … 2.30 (src/init.cc, src/net.cc, src/plugin/, src/transport/) and of the plug-ins
rdma-sharp, aws-ofi-nccl and gIB. Read by pattern, never by version: vendors carry patches back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Event(NamedTuple):
    """What a message says: a kind, and the values that tell it from others of its kind."""

    kind: str
    values: tuple[object, ...] = ()


class Via(NamedTuple):
    """The way that a channel takes."""

    transport: str  # "NET", "COLLNET", "P2P/CUMEM", "SHM", …
    network: str  # with NET: IB, Socket, AWS Libfabric, …
    device: int | None  # index of the NIC among those of its network
    proxied: bool  # through the NIC of another rank's process
    gpudirect: bool


_NCCL_VERSION = re.compile(r"\b(?:NCCL version|RCCL version ?:?) ?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.]*[xX*])")
_NET = re.compile(
    r"(?P<kind>NET|COLLNET)/(?P<name>.{1,63}?)/(?P<device>\d{1,6})(?:\((?P<proxy>\d+)\))?"
    r"(?P<gdr>/GDRDMA(?:\([^)]*\))?)?(?:/Shared)?(?:[/ ].*)?\s*"
)
_CONNECTION = re.compile(
    r"(?:Ring|Channel|Coll|CollNet) (\d+(?:/\d+)?)\s*:\s*(\d+)(?:\[[0-9a-fA-F]+\]?)?"
    r"(?:\s*->\s*(\d+)(?:\[[0-9a-fA-F]+\]?)?)?(?: \[(send|receive|recv)\]?)?"
)
_NETWORK = re.compile(
    r"(?:Using network|Using internal Network|Assigned NET plugin) (?P<name>\S.{0,63}?)(?: to comm)?\s*"
)
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (.*)")
_ADDRESS = re.compile(r"(?:\[\d{1,3}\])?([^\s:\[\]]{1,63}):(\S{3,64}?)<\d+>")
_OLD_INTERFACE = re.compile(r"NET : Using interface (\S{1,63}?):(\S{3,64})<\d+>")  # up to 2.3
_USING = re.compile(r"NET/(\S{1,32})\s*: Using (.*)", re.DOTALL)
_IB_DEVICE = re.compile(r"\[(\d{1,3})\]\s?([^\s:={}\[\]]{1,63}):(\d{1,3})[^/\s]{0,16}/(IB|RoCE)(/SHARP)?")
_OUT_OF_BAND = re.compile(r"([^\s:]{1,63}):\S{2,64}<\d+>")
_OLD_DEVICE = re.compile(r"NET/IB: ((?:\[\d{1,3}\] \S{1,63}:\d{1,3}/(?:IB|RoCE)\s*)+)")  # up to 2.3
_OLD_CONNECTION = re.compile(r"Ring (\d+) : (\d+) -> (\d+) via (NET/\S.*)")  # up to 2.3
_COLLECTIVE_SIZE = re.compile(rb" \[nranks=(\d{1,7})\]")
_MERGED = re.compile(r"\[(\d{1,3})\]=\{([^}]{1,512})\}")
_INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,63}):([^\s<]{0,64})")
_ENVIRONMENT = re.compile(r"\b(NCCL_\w{1,64}) set (?:by environment )?to (.*)", re.DOTALL)
_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?:nccl\w+ )?comm (?:0x[0-9a-f]+|\(nil\)) rank (?P<rank>\d{1,7})"
    r" n[rR]anks (?P<nranks>\d{1,7})(?P<rest>.*)"
)
_COMM_ID = re.compile(r"\bcommId (0x[0-9a-f]+)")
_SPLIT = re.compile(r"\bparent (0x[0-9a-f]+)(?: (?:splitCount|childCount) (\d+))?(?: color (-?\d+))?")
_PHASE = re.compile(r"- (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)")
_SIZE = re.compile(r" nNodes (\d{1,7})(?: localRanks (\d{1,5}))?(?: localRank \d{1,5})?(?: MNNVL (\d))?")
_RANK = re.compile(r"\brank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_RING = re.compile(r"Channel (\d{1,3})(?:/(\d{1,3}))? ?:\s+(\d+(?:\s+\d+)*)\s*")
_TREE = re.compile(r"\[(\d{1,3})\] ")
_TREE_SIZE = re.compile(r" comm 0x[0-9a-f]+ nRanks (\d{1,7}) busId")  # RCCL
_COUNTS = re.compile(
    r"(\d{1,3}) coll channels, (?:(\d{1,3}) collnet channels, )?(?:(\d{1,3}) nvls channels, )?(\d{1,3}) p2p channels"
)
_AFFINITY = re.compile(
    r"Setting affinity for GPU (?P<gpu>\d{1,3}) to (?P<mask>\S+)"
    r"|ncclTopoGetCpuAffinity: Affinity for GPU (?P<index>\d{1,3}) is (?P<list>[^(.]*)"
)
_GDR_DISABLED = re.compile(r"(?!NET/(?:Fast)?Socket).*GPU Direct RDMA (?:\(\S+\) )?Disabled for ")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]{1,32})")
_OFI = re.compile(r"NET/OFI (?:Initializing|Using) (aws-ofi-nccl \S{1,32})")
_LOADED = re.compile(
    r"(?:NET/Plugin ?: |COLLNET/Plugin ?: )?(?:Loaded (?:net|coll|collnet) plugin|P2P plugin(?: v\d+)?"
    r"|Successfully loaded external network plugin) (\S.{0,63}?)(?: \(v\d+\))?\.?\s*"
)
_UNSUPPORTED = re.compile(r"External network plugin (\S.{0,63}?) is unsupported")
_FAILED = re.compile(r"Failed to initialize (?:NET plugin (\S{1,63})|any NET plugin)")
_NOT_FOUND = re.compile(
    r"NET/Plugin ?: (?:.*No plugin found|Could not find|Plugin load|dlerror)(?:[^(:]*[:(] ?(\S+?\.so[^\s,):]*))?"
)
_INTERNAL = re.compile(r"(?:NET/Plugin ?: )?.*[Uu]sing internal (?:network plugin|implementation)")
_SHARP = re.compile(r"(?:SHARP|Sharp) rank \d+/\d+ initialized on (\S{1,64})")
_NVLS_SUPPORT = re.compile(r"NVLS multicast support is (not )?available on dev")
_CLIQUE = re.compile(r"MNNVL 1 cliqueId \S+ cliqueSize (\d{1,5})")
_DRIVER = re.compile(r"cudaDriverVersion (\d{4,6})\b")
_REGISTER = re.compile(r"register comm 0x[0-9a-f]+ buffer 0x[0-9a-f]+ size \d")
_RING_USE = re.compile(r"Connected all rings(?:, use ring PXN (\d) GDR (\d))?")

#: What Ray writes behind a line that it shows once for many processes.
_REPEATED = re.compile(r"\s*\[repeated \d{1,7}x across [a-z ]{1,20}\].*")

_FRAMES = " \t│┃║`|"
_WRITTEN_OUT = ('\\n"', "\\n'", "\\n")
_LEFT_BEHIND = (*_FRAMES[2:], *_WRITTEN_OUT)

#: First words of messages that repeat by the million and tell nothing that is asked here.
_IGNORED = frozenset(
    b"AllReduce: AllGather: ReduceScatter: Broadcast: Reduce: Send: Recv: AllToAll: Gather: Scatter:".split()
)


def via(text: str) -> Via | None:
    """Read what follows "via" on a channel's line; None where it is cut or unknown."""
    text = trimmed(text).partition('"')[0]
    if match := _NET.fullmatch(text):
        return Via(
            match["kind"], match["name"], int(match["device"]), match["proxy"] is not None, match["gdr"] is not None
        )
    if text.startswith(("SHM", "direct shared memory")):
        return Via("SHM", "", None, False, False)
    if text.startswith("P2P/"):
        return Via("/".join(text.split("/")[:2]).strip()[:32], "", None, False, False)
    return None


def trimmed(text: str) -> str:
    """Take off what a terminal, a frame around it, a table or a written-out line end left behind a message."""
    text = text.partition("\r")[0].strip()
    if "[repeated " in text:
        text = _REPEATED.sub("", text)
    while text.endswith(_LEFT_BEHIND):
        text = text.rstrip(_FRAMES)
        for end in _WRITTEN_OUT:
            text = text.removesuffix(end)
    return text


def connection(text: str) -> tuple[str, int, int | None, bool | None] | None:
    """Read what stands before "via": (channel, from rank, to rank, whether sent; None where not said)."""
    if not (match := _CONNECTION.match(text)):
        return None
    sent = None if match[4] is None else match[4] == "send"
    return match[1], int(match[2]), None if match[3] is None else int(match[3]), sent


def version(text: str) -> str | None:
    """Return the version that a line names."""
    match = _NCCL_VERSION.search(text)
    return match[1] if match else None


def ignored(message: bytes) -> bool:
    """Tell a message that nothing is read from, by its first word."""
    return message[: message.find(b" ")] in _IGNORED


def marked(message: str) -> bool:
    """Tell whether a message may say something that is asked here."""
    return any(mark in message for mark, _ in _BY_MARK)


def collective_size(message: bytes) -> int | None:
    """Return the ranks of the communicator that a line of the subsystem COLL names."""
    match = _COLLECTIVE_SIZE.search(message)
    return int(match[1]) if match else None


def event(message: str) -> Event | None:
    """Return what a message says; None if nothing that is asked here."""
    for mark, read in _BY_MARK:
        if mark in message and (found := read(message)) is not None:
            return found
    return None


def _environment(message: str) -> Event | None:
    if not (match := _ENVIRONMENT.search(message)):
        return None
    value = match[2].strip()
    # NCCL ends those that it reads as numbers with a full stop
    return Event("env", (match[1], value[:-1] if re.fullmatch(r"-?\d{1,20}\.", value) else value[:512]))


def _comm(message: str) -> Event | None:
    if not (match := _COMM.match(message)):
        plain = _RANK.search(message)
        return Event("rank", (int(plain[1]), int(plain[2]))) if plain else None
    rank, nranks, rest = int(match["rank"]), int(match["nranks"]), match["rest"]
    if size := _SIZE.match(rest):
        local = None if size[2] is None else int(size[2])
        return Event("size", (rank, nranks, int(size[1]), local, size[3] == "1"))
    if not (phase := _PHASE.search(rest)):
        return Event("rank", (rank, nranks))
    name = None
    if known := _COMM_ID.search(rest):
        name = known[1]
    elif split := _SPLIT.search(rest):
        # a parent's address is its process's own: the order of the split and the colour are what ranks share
        name = f"split {split[2]} color {split[3]}"
    return Event("comm", (phase[1], rank, nranks, name))


def _nranks(message: str) -> Event | None:
    """Read how many GPUs one process drives that sets up all ranks itself (2.4 … 2.6)."""
    match = re.fullmatch(r"nranks (\d{1,7})", message)
    return Event("nranks", (int(match[1]),)) if match else None


def _using(message: str) -> Event | None:
    if not (match := _USING.match(message)):
        old = _OLD_INTERFACE.match(message)
        return Event("sockets", (old.groups(),)) if old else None
    name, rest = match[1], match[2]
    if name.casefold() in ("socket", "fastsocket"):
        return Event("sockets", tuple(_INTERFACE.findall(rest)))
    rest, _, outside = rest.partition("; OOB ")
    oob = _OUT_OF_BAND.match(outside)
    devices: list[tuple[int, str, int, bool, bool]] = []
    for index, members in _MERGED.findall(rest):
        devices += [(int(index), d[1], int(d[2]), d[3] == "RoCE", bool(d[4])) for d in _IB_DEVICE.findall(members)]
    if not devices:
        devices = [(int(d[0]), d[1], int(d[2]), d[3] == "RoCE", bool(d[4])) for d in _IB_DEVICE.findall(rest)]
    return Event("ib", (tuple(devices), oob[1] if oob else None))


def _bootstrap(message: str) -> Event | None:
    """Read over which interfaces ranks find each other: up to 2.7 all that could be, since then the one in use."""
    match = _BOOTSTRAP.match(message)
    found = tuple(_ADDRESS.findall(match[1])) if match else ()
    return Event("bootstrap", found) if found else None


def _old_devices(message: str) -> Event | None:
    if not (match := _OLD_DEVICE.match(message)):
        return None
    found = ((int(d[0]), d[1], int(d[2]), d[3] == "RoCE", False) for d in _IB_DEVICE.findall(match[1]))
    return Event("ib", (tuple(found), None))


def _old_connection(message: str) -> Event | None:
    way = via(match[4]) if (match := _OLD_CONNECTION.fullmatch(message)) else None
    return Event("via", tuple(way)) if way else None


def _affinity(message: str) -> Event | None:
    if not (match := _AFFINITY.match(message)):
        return None
    return Event(
        "affinity", (int(match["gpu"] or match["index"]), (match["mask"] or match["list"] or "").strip()[:512])
    )


def _plugin(message: str) -> Event | None:
    if match := _OFI.match(message):
        return Event("plugin", ("loaded", match[1]))
    if match := _LOADED.fullmatch(message):
        return Event("plugin", ("loaded", match[1]))
    if match := _UNSUPPORTED.search(message):
        return Event("plugin", ("unsupported", match[1]))
    if match := _FAILED.search(message):
        return Event("plugin", ("failed", match[1]))
    if match := _NOT_FOUND.match(message):
        return Event("plugin", ("not found", match[1].rstrip(".") if match[1] else None))
    return Event("plugin", ("internal", None)) if _INTERNAL.match(message) else None


def _ring(message: str) -> Event | None:
    match = _RING.fullmatch(message)
    return Event("ring", (int(match[1]), int(match[2] or 0), " ".join(match[3].split()))) if match else None


def _counts(message: str) -> Event | None:
    match = _COUNTS.search(message)
    return Event("counts", tuple(None if part is None else int(part) for part in match.groups())) if match else None


def _nvls(message: str) -> Event | None:
    if message.startswith(("NVLS comm ", "Connected NVLS tree")):
        return Event("nvls")
    match = _NVLS_SUPPORT.search(message)
    return Event("nvls support", (match[1] is None,)) if match else None


def _connected(message: str) -> Event | None:
    match = _RING_USE.match(message)
    return Event("connected", (match[1] == "1", match[2] == "1") if match[1] else ()) if match else None


def _matched(kind: str, pattern: re.Pattern[str]) -> Callable[[str], Event | None]:
    def read(message: str) -> Event | None:
        match = pattern.match(message)
        return Event(kind, match.groups()) if match else None

    return read


def _version(message: str) -> Event | None:
    found = version(message)
    return Event("version", (found,)) if found else None


def _network(message: str) -> Event | None:
    match = _NETWORK.fullmatch(message)
    return Event("network", (match["name"],)) if match else None


def _tree(message: str) -> Event | None:
    if "[0] " not in message:
        return None
    size = _TREE_SIZE.search(message)
    return Event("trees", (max(map(int, _TREE.findall(message))) + 1, int(size[1]) if size else None))


def _gdr(message: str) -> Event | None:
    return Event("gdr disabled", (message[:256],)) if _GDR_DISABLED.match(message) else None


def _registered(message: str) -> Event | None:
    return Event("registered") if _REGISTER.match(message) else None


#: Marks, one of which a message holds, and its reader.
_READERS: tuple[tuple[tuple[str, ...], Callable[[str], Event | None]], ...] = (
    ((" rank ",), _comm),
    (("nranks ",), _nranks),
    ((" set by environment to ", " set to "), _environment),
    (("CCL version ",), _version),
    (("Using network ", "Using internal Network ", "Assigned NET plugin "), _network),
    (("Bootstrap",), _bootstrap),
    (("NET/OFI Selected ",), _matched("provider", _PROVIDER)),
    ((": Using ",), _using),
    (("NET/IB: [",), _old_devices),
    ((" via NET/",), _old_connection),
    (("Channel ",), _ring),
    (("Trees [",), _tree),
    ((" coll channels",), _counts),
    (("ffinity for GPU",), _affinity),
    (("NVLS",), _nvls),
    (("Connected all rings",), _connected),
    (("cliqueSize",), _matched("clique", _CLIQUE)),
    (("SHARP rank ", "Sharp rank "), _matched("sharp", _SHARP)),
    (("cudaDriverVersion",), _matched("driver", _DRIVER)),
    (("GPU Direct RDMA",), _gdr),
    (("register comm ",), _registered),
    (("lugin", "internal implementation", "aws-ofi-nccl"), _plugin),
)
_BY_MARK = tuple((mark, read) for marks, read in _READERS for mark in marks)

"""Parsers of network messages: interfaces, HCAs, plug-ins, chosen network."""

from __future__ import annotations

import re

from preflight.parsers.nccl_log.event import LogEvent

_NETWORK = re.compile(
    r"(?:Using network|Using internal Network|Assigned NET plugin) (?P<name>[^\s\"<>][^\"<>]{0,63}?)"
    r"(?: t(?:o(?: c?o?m?m?)?)?)?\s*"
)
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (.*)")
#: An interface and its address. A web page may remove the <0> as if it were a tag.
_ADDRESS = re.compile(r"(?:\[\d{1,3}\])?([^\s:\[\]]{1,63}):(\S{3,64}?)(?:<\d+>|(?=\s|$))")
_OLD_INTERFACE = re.compile(r"NET : Using interface (\S{1,63}?):(\S{3,64})<\d+>")  # up to 2.3
_USING = re.compile(r"NET/(\S{1,32})\s*: Using (.*)", re.DOTALL)
_IB_DEVICE = re.compile(r"\[(\d{1,3})\]\s?([^\s:={}\[\]]{1,63}):(\d{1,3})(?!\d)[^/\s]{0,16}/(IB|RoCE)(/SHARP)?")
#: A device that NCCL_IB_HCA selects, logged by the subsystem NET since 2.28; its number counts all devices of the host.
_VERBS_DEVICE = re.compile(r"NET/IB ?: \[\d{1,3}\] ([^\s:]{1,63}):\S{1,63}:(\d{1,3})/(IB|RoCE) provider=")
_OUT_OF_BAND = re.compile(r"([^\s:]{1,63}):\S{2,64}")
_OLD_DEVICE = re.compile(r"NET/IB: ((?:\[\d{1,3}\] \S{1,63}:\d{1,3}/(?:IB|RoCE)\s*)+)")  # up to 2.3
_MERGED = re.compile(r"\[(\d{1,3})\]=\{([^}]{1,512})\}")
#: An interface; its address may be missing.
_INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,63})(?::([^\s<]{0,64})|(?= ?(?:\.{3}|…)))")
_GDR_DISABLED = re.compile(r"(?!NET/(?:Fast)?Socket).*GPU Direct RDMA (?:\(\S+\) )?Disabled for ")
_OFI = re.compile(r"NET/OFI (?:Initializing|Using) (aws-ofi-nccl \S{1,32})")
_GIB = re.compile(r"NET/gIB ?: Initializing (gIB) v\d")
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


def network(message: str) -> LogEvent | None:
    """Parse the network that NCCL chose."""
    match = _NETWORK.fullmatch(message)
    return LogEvent("network", (match["name"],)) if match else None


def bootstrap(message: str) -> LogEvent | None:
    """Parse the bootstrap interfaces: all candidates up to 2.7, later those in use."""
    match = _BOOTSTRAP.match(message)
    found = tuple(_ADDRESS.findall(match[1])) if match else ()
    return LogEvent("bootstrap", found) if found else None


def using(message: str) -> LogEvent | None:
    """Parse the interfaces or HCAs of a network."""
    if not (match := _USING.match(message)):
        old = _OLD_INTERFACE.match(message)
        return LogEvent("sockets", (old.groups(),)) if old else None
    name, rest = match[1], match[2]
    if name.casefold() in ("socket", "fastsocket"):
        return LogEvent("sockets", tuple(_INTERFACE.findall(rest)))
    rest, _, outside = rest.partition("; OOB ")
    oob = _OUT_OF_BAND.match(outside)
    devices: list[tuple[int, str, int, bool, bool]] = []
    for index, members in _MERGED.findall(rest):
        devices += [(int(index), d[1], int(d[2]), d[3] == "RoCE", bool(d[4])) for d in _IB_DEVICE.findall(members)]
    if not devices:
        devices = [(int(d[0]), d[1], int(d[2]), d[3] == "RoCE", bool(d[4])) for d in _IB_DEVICE.findall(rest)]
    return LogEvent("ib", (tuple(devices), oob[1] if oob else None))


def old_devices(message: str) -> LogEvent | None:
    """Parse HCAs as printed up to 2.3, or since 2.28 on one line each."""
    if match := _VERBS_DEVICE.match(message):
        return LogEvent("ib", (((None, match[1], int(match[2]), match[3] == "RoCE", False),), None))
    if not (match := _OLD_DEVICE.match(message)):
        return None
    found = ((int(d[0]), d[1], int(d[2]), d[3] == "RoCE", False) for d in _IB_DEVICE.findall(match[1]))
    return LogEvent("ib", (tuple(found), None))


def plugin(message: str) -> LogEvent | None:
    """Parse the state of a plug-in."""
    if match := _OFI.match(message) or _GIB.match(message):
        return LogEvent("plugin", ("loaded", match[1]))
    if match := _LOADED.fullmatch(message):
        return LogEvent("plugin", ("loaded", match[1]))
    if match := _UNSUPPORTED.search(message):
        return LogEvent("plugin", ("unsupported", match[1]))
    if match := _FAILED.search(message):
        return LogEvent("plugin", ("failed", match[1]))
    if match := _NOT_FOUND.match(message):
        return LogEvent("plugin", ("not found", match[1].rstrip(".") if match[1] else None))
    return LogEvent("plugin", ("internal", None)) if _INTERNAL.match(message) else None


def gdr(message: str) -> LogEvent | None:
    """Parse the message that GPUDirect RDMA is disabled for an HCA."""
    return LogEvent("gdr disabled", (message[:256],)) if _GDR_DISABLED.match(message) else None

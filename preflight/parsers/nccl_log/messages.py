"""Parsers of one INFO message, without its prefix.

They read the formats of NCCL 2.3 … 2.30 (src/init.cc, src/net.cc, src/plugin/, src/transport/) and of the plug-ins
rdma-sharp, aws-ofi-nccl and gIB. They do not depend on the version of NCCL, because vendors backport patches.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from preflight.parsers.nccl_log.channels import connected, counts, plain_connection, ring, shape, tree
from preflight.parsers.nccl_log.communicators import comm, nranks, tuned
from preflight.parsers.nccl_log.event import LogEvent, matched
from preflight.parsers.nccl_log.networks import bootstrap, gdr, network, old_devices, plugin, using

_NCCL_VERSION = re.compile(
    r"\b(?:NCCL version|RCCL version ?:?|vLLM is using nccl==) ?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.]*[xX*])"
)
#: The CUDA version of an NCCL build. Its minor version has one digit; a launcher's next word may follow directly.
_BUILT_FOR = re.compile(r"\bNCCL version \d[\d.]{2,10}[\w.-]{0,20}\+cuda(\d{1,2}\.\d)")
_ENVIRONMENT = re.compile(r"\b(NCCL_\w{1,64}) set (?:by environment )?to (.*)", re.DOTALL)
_AFFINITY = re.compile(
    r"Setting affinity for GPU (?P<gpu>\d{1,3}) to (?P<mask>\S+)"
    r"|ncclTopoGetCpuAffinity: Affinity for GPU (?P<index>\d{1,3}) is (?P<list>[^(.]*)"
)
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;.-]{1,32})")
_SHARP = re.compile(r"(?:SHARP|Sharp) rank \d+/\d+ initialized on (\S{1,64})")
_NVLS_SUPPORT = re.compile(r"NVLS multicast support is (not )?available on dev")
_CLIQUE = re.compile(r"MNNVL 1 cliqueId \S+ cliqueSize (\d{1,5})(?!\d)")
_DRIVER = re.compile(r"cudaDriverVersion (\d{4,6})\b")
_REGISTER = re.compile(r"register comm 0x[0-9a-f]+ buffer 0x[0-9a-f]+ size \d")


#: First words of messages that occur by the million and contain no fact.
_IGNORED = frozenset(
    b"AllReduce: AllGather: ReduceScatter: Broadcast: Reduce: Send: Recv: AllToAll: Gather: Scatter:".split()
)


def version(text: str) -> str | None:
    """Return the NCCL version that a line names, or None."""
    match = _NCCL_VERSION.search(text)
    return match[1] if match else None


def built_for(text: str) -> str | None:
    """Return the CUDA version of an NCCL build (12.4 of ``2.21.5+cuda12.4``), or None."""
    match = _BUILT_FOR.search(text)
    return match[1] if match else None


def ignored(message: bytes) -> bool:
    """Return whether a message is ignored, by its first word."""
    return message[: message.find(b" ")] in _IGNORED


def marked(message: str) -> bool:
    """Return whether a message may contain a known fact."""
    return any(mark in message for mark, _ in _BY_MARK)


def parse_message(message: str) -> LogEvent | None:
    """Parse a message; return None if it has no known fact."""
    for mark, read in _BY_MARK:
        if mark in message and (found := read(message)) is not None:
            return found
    return None


def _environment(message: str) -> LogEvent | None:
    if not (match := _ENVIRONMENT.search(message)):
        return None
    value = match[2].strip()
    # NCCL ends a message about a numeric variable with a full stop, before which a web page may insert a space
    number = re.fullmatch(r"(-?\d{1,20})\s?\.", value)
    return LogEvent("env", (match[1], number[1] if number else value[:512]))


def _affinity(message: str) -> LogEvent | None:
    if not (match := _AFFINITY.match(message)):
        return None
    return LogEvent(
        "affinity", (int(match["gpu"] or match["index"]), (match["mask"] or match["list"] or "").strip()[:512])
    )


def _nvls(message: str) -> LogEvent | None:
    if message.startswith(("NVLS comm ", "Connected NVLS tree")):
        return LogEvent("nvls")
    match = _NVLS_SUPPORT.search(message)
    return LogEvent("nvls support", (match[1] is None,)) if match else None


def _version(message: str) -> LogEvent | None:
    found = version(message)
    return LogEvent("version", (found, built_for(message))) if found else None


def _registered(message: str) -> LogEvent | None:
    return LogEvent("registered") if _REGISTER.match(message) else None


#: Parsers of messages, each with strings; a message must contain one of them.
_READERS: tuple[tuple[tuple[str, ...], Callable[[str], LogEvent | None]], ...] = (
    ((" rank ",), comm),
    (("nranks ",), nranks),
    ((" set by environment to ", " set to "), _environment),
    (("CCL version ",), _version),
    (("Using network ", "Using internal Network ", "Assigned NET plugin "), network),
    (("Bootstrap",), bootstrap),
    (("NET/OFI Selected ",), matched("provider", _PROVIDER)),
    ((": Using ",), using),
    (("NET/IB: [",), old_devices),
    ((" via NET/", " via P2P/", " via SHM", " via direct", " via COLLNET/"), plain_connection),
    (("Channel ",), ring),
    (("Trees [",), tree),
    ((" coll channels,",), counts),
    (("comm:",), shape),
    ((": comm with ",), tuned),
    (("ffinity for GPU",), _affinity),
    (("NVLS",), _nvls),
    (("Connected all rings",), connected),
    (("cliqueSize",), matched("clique", _CLIQUE)),
    (("SHARP rank ", "Sharp rank "), matched("sharp", _SHARP)),
    (("cudaDriverVersion",), matched("driver", _DRIVER)),
    (("GPU Direct RDMA",), gdr),
    (("register comm ",), _registered),
    (("lugin", "internal implementation", "aws-ofi-nccl", "NET/gIB"), plugin),
)
_BY_MARK = tuple((mark, read) for marks, read in _READERS for mark in marks)

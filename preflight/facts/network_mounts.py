"""Network storage: mounted file systems, NVMe over fabrics.

Sources: proc_pid_mountinfo(5); nfs(5), ``addr=``; Lustre's network identifiers, ``ADDRESS@o2ib``; ceph(8),
``mon_addr=``; Documentation/ABI/testing/sysfs-class-nvme (transport, address). No name is resolved.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.parsers.host import mounts

MOUNTS = mounts.MOUNTS
NVME = "file:/sys/class/nvme/*/{transport,address}"

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Network file systems, by their name in the table of mounts.
KINDS = (
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "wekafs", "ceph", "cifs", "smb3", "panfs", "pvfs2", "orangefs",
    "fuse.glusterfs", "fuse.ceph", "fuse.dfuse",
)  # fmt: skip
MAX_MOUNTS = 512


@dataclass(frozen=True)
class Storage:
    """One file system or device, and the known addresses of its servers."""

    kind: str  # nfs4, lustre, …; nvme-tcp, nvme-rdma
    place: str  # mount point, or name of a device
    source: str  # source as the mount states it
    servers: tuple[IpAddress, ...]  # addresses of the servers, without host names
    evidence: str


def parse_mounts(text: str) -> tuple[Storage, ...]:
    """Return the network file systems in ``/proc/self/mountinfo``.

    Each source is listed once. Raises ValueError.
    """
    found: dict[tuple[str, str], Storage] = {}
    for mount in mounts.parse(text):
        kind, source = mount.kind, mount.source
        if kind in KINDS and (kind, source) not in found and len(found) < MAX_MOUNTS:
            servers = tuple(dict.fromkeys(_servers(kind, source, mount.written_options)))
            found[kind, source] = Storage(kind, mount.place, source, servers, MOUNTS)
    return tuple(found.values())


def _servers(kind: str, source: str, options: str) -> Iterator[IpAddress]:
    """Yield the servers' addresses in the options and source of a mount."""
    if kind == "lustre":
        yield from _addresses(re.findall(r"([^:,@/\s]{1,60})@(?:o2ib|tcp|kfi)[0-9]{0,5}", source))
        return
    named = re.findall(r"(?:^|,)addr=([^,]{1,60})", options)
    for monitors in re.findall(r"(?:^|,)mon_addr=([^,]{1,2000})", options):
        named += [_host(monitor) for monitor in monitors.split("/")]
    if kind == "ceph":
        named += [_host(monitor) for monitor in source.partition(":/")[0].split(",")]
    if kind in ("wekafs", "cifs", "smb3"):
        named += source.strip("/").partition("/")[0].split(",")
    yield from _addresses(named or [_host(source.partition(":/")[0])])


def _host(text: str) -> str:
    """Return an address without its port: ``192.0.2.1:6789``, ``[2001:db8::1]:6789``."""
    match = re.fullmatch(r"\[([0-9a-fA-F:.]{2,45})\](?::[0-9]{1,5})?|([0-9.]{7,15})(?::[0-9]{1,5})?", text)
    return (match[1] or match[2]) if match else text


def _addresses(texts: Iterable[str]) -> Iterator[IpAddress]:
    for text in texts:
        try:
            yield ipaddress.ip_address(text.strip("[]").partition("%")[0])
        except ValueError:
            continue  # a name, which is never resolved


def nvme(evidence: Evidence) -> tuple[Storage, ...]:
    """Return the NVMe controllers over TCP or RDMA; raises EvidenceError."""
    found = []
    for key in evidence.keys("file:/sys/class/nvme/*/transport"):
        transport = evidence.text(key).strip()
        if transport not in ("tcp", "rdma"):
            continue
        name, at = key.split("/")[-2], key.replace("/transport", "/address")
        text = evidence.text(at).strip()
        named = re.findall(r"(?:^|,)traddr=([^,]{1,60})", text)
        if not named:
            raise EvidenceError(at, f"contains {text[:60]!r}, which has no address (traddr)")
        found.append(Storage(f"nvme-{transport}", name, named[0], tuple(_addresses(named)), at))
    return tuple(found)

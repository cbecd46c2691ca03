"""The GID table of an RDMA port, by index.

Source: Documentation/ABI/stable/sysfs-class-infiniband (gids, gid_attrs/types). An empty row reads as all zeros, and
its type as an error; so does a row of an interface in another network namespace.
"""

from __future__ import annotations

import ipaddress

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.rdma_ports import ROOT

#: Rows that are collected (``preflight.probes.node``).
COLLECTED_INDEXES = range(8)

#: Rows that are only tested for existence: drivers create tables of 16 to 1,024 rows (rxe), mostly 256.
MARKS = (15, 31, 63, 127, 255, 511, 1023, 2047)
MARKS_KEY = f"file:{ROOT}/*/ports/*/gids/{{{','.join(map(str, MARKS))}}}"

#: Kernel names of GID types.
TYPES = ("IB/RoCE v1", "RoCE v2")


@dataclass(frozen=True)
class Gid:
    """One row of a GID table."""

    index: int
    address: ipaddress.IPv6Address
    type: str  # "RoCE v2", "IB/RoCE v1"; empty: unknown to the kernel, an empty row

    @property
    def empty(self) -> bool:
        """Whether the row has no address usable in this network namespace."""
        return int(self.address) == 0 or not self.type

    @property
    def shown(self) -> str:
        """The address and type as printed: ``10.0.0.1 (RoCE v2)``."""
        return f"{self.address.ipv4_mapped or self.address} ({self.type or 'no type here'})"


def keys(device: str, port: int, index: int) -> tuple[str, str]:
    """Return the record keys of a row: address and type."""
    base = f"file:{ROOT}/{device}/ports/{port}"
    return f"{base}/gids/{index}", f"{base}/gid_attrs/types/{index}"


def rows_at_most(evidence: Evidence, device: str, port: int) -> int | None:
    """Return an upper bound on the number of rows in a port's table, or None."""
    if MARKS_KEY not in evidence or not evidence.record(MARKS_KEY).ok:
        return None
    for mark in MARKS:
        row = keys(device, port, mark)[0]
        if row not in evidence or evidence.record(row).status == "missing":
            return mark
    return None


def gid(evidence: Evidence, device: str, port: int, index: int) -> Gid:
    """Return a row of a port's GID table; it may be empty.

    Raises EvidenceError if the row was not read.
    """
    address_key, type_key = keys(device, port, index)
    text = evidence.text(address_key).strip()
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise EvidenceError(address_key, f"holds {text[:60]!r}, not a GID") from None
    record = evidence.record(type_key)
    if int(address) == 0 or (record.status == "error" and "Invalid argument" in record.why):
        return Gid(index, address, "")  # EINVAL: the row is empty, or another network namespace's
    kind = evidence.text(type_key).strip()
    if kind not in TYPES:
        raise EvidenceError(type_key, f"contains {kind[:60]!r}, not a GID type")
    return Gid(index, address, kind)

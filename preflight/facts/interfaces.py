"""Network interfaces (``/sys/class/net``)."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.textprep.plain_text import integer

ROOT = "/sys/class/net"


@dataclass(frozen=True)
class Netdev:
    """One network interface."""

    name: str
    mtu: int  # bytes, /sys/class/net/IF/mtu
    operstate: str  # up, down, unknown (loopback and some virtual interfaces), …


def netdevs(evidence: Evidence) -> dict[str, Netdev]:
    """Return the interfaces by name; raises EvidenceError if none was recorded."""
    found: dict[str, Netdev] = {}
    for key in evidence.keys(f"file:{ROOT}/*/mtu"):
        name = key.split("/")[-2]
        try:
            mtu = integer(evidence.text(key), "mtu")
        except ValueError as error:
            raise EvidenceError(key, str(error)) from None
        found[name] = Netdev(name, mtu, _operstate(evidence, name))
    if not found:
        raise EvidenceError(f"file:{ROOT}/*/mtu", "no network interface was recorded")
    return found


def _operstate(evidence: Evidence, name: str) -> str:
    try:
        return evidence.text(f"file:{ROOT}/{name}/operstate").strip()
    except EvidenceError:
        return "unknown"

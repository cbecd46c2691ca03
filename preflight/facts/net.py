"""Network interfaces (``/sys/class/net``) and what of RoCE's QoS a host can see.

PFC comes from ``dcb -j pfc show`` (upstream) or ``mlnx_qos`` (vendor tool); ECN per priority only
from the vendor driver's ``/sys/class/net/IF/ecn``: where those files are missing, ECN is unknown,
not off.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from preflight.evidence import Evidence, EvidenceError
from preflight.facts.text import integer, plain

ROOT = "/sys/class/net"
PRIORITIES = range(8)


@dataclass(frozen=True)
class Netdev:
    """One network interface."""

    name: str
    mtu: int  # bytes, /sys/class/net/IF/mtu
    operstate: str  # up, down, unknown (loopback and some virtual ones), …


def netdevs(evidence: Evidence) -> dict[str, Netdev]:
    """Return the interfaces by name; raises EvidenceError if none could be listed."""
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


@dataclass(frozen=True)
class Pfc:
    """Priority flow control of one interface."""

    enabled: frozenset[int]  # priorities 0…7 that are lossless
    evidence: str


def pfc(evidence: Evidence, netdev: str) -> Pfc:
    """Return an interface's PFC from whichever tool answered; raises EvidenceError naming both."""
    refusals = []
    for key, parse in (
        (f"cmd:dcb -j pfc show dev {netdev}", parse_dcb_pfc),
        (f"cmd:mlnx_qos -i {netdev}", parse_mlnx_qos_pfc),
    ):
        try:
            return Pfc(parse(evidence.text(key)), key)
        except EvidenceError as error:
            refusals.append(error)
        except ValueError as error:
            refusals.append(EvidenceError(key, str(error)))
    raise EvidenceError(refusals[0].key, "; ".join(f"{r.key.removeprefix('cmd:')} {r.why}" for r in refusals))


def parse_dcb_pfc(text: str) -> frozenset[int]:
    """Read ``dcb -j pfc show dev IF``; raises ValueError."""
    try:
        bits = json.loads(text)["prio_pfc"]
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{text.strip()[:80]!r} holds no prio_pfc") from None
    if not isinstance(bits, list) or len(bits) != 8 or not all(isinstance(bit, bool) for bit in bits):
        raise ValueError(f"prio_pfc is not eight booleans: {str(bits)[:80]}")
    return frozenset(priority for priority in PRIORITIES if bits[priority])


def parse_mlnx_qos_pfc(text: str) -> frozenset[int]:
    """Read the ``PFC configuration`` block of ``mlnx_qos -i IF``; raises ValueError."""
    match = re.search(r"PFC configuration:\s*\n\s*priority((?:\s+\d)+)\s*\n\s*enabled((?:\s+[01])+)", plain(text))
    if not match:
        raise ValueError("there is no PFC configuration in it")
    priorities, enabled = match[1].split(), match[2].split()
    if len(priorities) != len(enabled):
        raise ValueError("its PFC rows are of different length")
    return frozenset(int(p) for p, bit in zip(priorities, enabled, strict=True) if bit == "1")


@dataclass(frozen=True)
class Ecn:
    """Whether one priority takes part in ECN-based congestion control."""

    notification_point: bool  # roce_np: answers marked packets with CNPs
    reaction_point: bool  # roce_rp: slows down on CNPs
    evidence: tuple[str, ...]


def ecn(evidence: Evidence, netdev: str, priority: int) -> Ecn:
    """Return ECN of one priority; raises EvidenceError where the driver does not show it."""
    bits, keys = [], []
    for role in ("np", "rp"):
        key = f"file:{ROOT}/{netdev}/ecn/roce_{role}/enable/{priority}"
        text = evidence.text(key).strip()
        if text not in ("0", "1"):
            raise EvidenceError(key, f"holds {text[:60]!r}, neither 0 nor 1")
        bits.append(text == "1")
        keys.append(key)
    return Ecn(bits[0], bits[1], tuple(keys))

"""RoCE congestion control on the host: ECN, CNPs, DCQCN parameters.

Sources: MLNX_OFED's sysfs (``/sys/class/net/IF/ecn``); upstream's debugfs (``/sys/kernel/debug/mlx5/BDF/cc_params``),
which only root can read and which has no setting per priority: ECN is then unknown, not off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.interfaces import ROOT
from preflight.textprep.plain_text import integer

DEBUGFS = "/sys/kernel/debug/mlx5"

#: Firmware defaults of ConnectX (dumps of firmware 16 to 28): rates in Mb/s, times in µs, a factor in percent.
DEFAULTS: Mapping[str, int] = {
    "ai_rate": 5, "hai_rate": 50, "time_reset": 300, "byte_reset": 32767, "gd": 11, "dce_tcp_g": 1019,
    "initial_alpha_value": 1023, "rate_reduce_monitor_period": 4, "min_rate": 1, "min_dec_fac": 50,
    "rate_to_set_on_first_cnp": 0, "clamp_tgt_rate": 0, "min_time_between_cnps": 4,
}  # fmt: skip

#: DSCP of a congestion notification packet, unless it was changed.
CNP_DSCP = 48


@dataclass(frozen=True)
class Ecn:
    """Whether one priority takes part in ECN-based congestion control."""

    notification_point: bool  # roce_np: answers marked packets with CNPs
    reaction_point: bool  # roce_rp: slows down on CNPs
    evidence: tuple[str, ...]


def ecn(evidence: Evidence, netdev: str, priority: int) -> Ecn:
    """Return the ECN settings of one priority.

    Raises EvidenceError if the driver does not show them.
    """
    bits, keys = [], []
    for role in ("np", "rp"):
        key = f"file:{ROOT}/{netdev}/ecn/roce_{role}/enable/{priority}"
        text = evidence.text(key).strip()
        if text not in ("0", "1"):
            raise EvidenceError(key, f"holds {text[:60]!r}, neither 0 nor 1")
        bits.append(text == "1")
        keys.append(key)
    return Ecn(bits[0], bits[1], tuple(keys))


@dataclass(frozen=True)
class Parameters:
    """Parameters of a port's congestion control; rates in Mb/s, times in µs."""

    of: Mapping[str, int]
    evidence: tuple[str, ...]

    @property
    def changed(self) -> dict[str, int]:
        """Parameters that differ from the known defaults of the firmware."""
        return {name: value for name, value in sorted(self.of.items()) if DEFAULTS.get(name, value) != value}


def cnp_dscp(evidence: Evidence, netdev: str, function: str) -> tuple[int, str]:
    """Return the DSCP of CNPs, and its record key; raises EvidenceError.

    ``function`` is the port's PCI address.
    """
    key = f"file:{ROOT}/{netdev}/ecn/roce_np/cnp_dscp"
    upstream = f"file:{DEBUGFS}/{function}/cc_params/np_cnp_dscp"
    if key not in evidence and upstream in evidence:
        key = upstream
    found = _number(evidence, key)
    if found > 63:
        raise EvidenceError(key, f"contains {found}, which is not a DSCP")
    return found, key


def parameters(evidence: Evidence, netdev: str, function: str) -> Parameters:
    """Return the DCQCN parameters of a port.

    Raises EvidenceError if the driver does not show them to this user.
    """
    found: dict[str, int] = {}
    keys: list[str] = []
    for key, name in _files(evidence, netdev, function):
        found[name] = _number(evidence, key)
        keys.append(key)
    if not found:
        evidence.text(f"file:{ROOT}/{netdev}/ecn/roce_rp/rpg_ai_rate")  # raises
    return Parameters(found, tuple(keys))


def _files(evidence: Evidence, netdev: str, function: str) -> Iterator[tuple[str, str]]:
    """Yield the record key and name of each parameter; both drivers share the names."""
    for key in evidence.keys(f"file:{ROOT}/{netdev}/ecn/roce_rp/*"):
        name = key.rsplit("/", 1)[1]
        if name != "enable":
            yield key, _ONE_NAME.get(name, name.removeprefix("rpg_"))
    between = f"file:{ROOT}/{netdev}/ecn/roce_np/min_time_between_cnps"
    if between in evidence:
        yield between, "min_time_between_cnps"
        return
    for key in evidence.keys(f"file:{DEBUGFS}/{function}/cc_params/*"):
        name = key.rsplit("/", 1)[1]
        if name.startswith("rp_") or name == "np_min_time_between_cnps":
            yield key, _ONE_NAME.get(name, name[3:])


_ONE_NAME = {"rp_clamp_tgt_rate_ati": "clamp_tgt_rate_after_time_inc"}


def _number(evidence: Evidence, key: str) -> int:
    try:
        return integer(evidence.text(key), key.rsplit("/", 1)[1])
    except ValueError as error:
        raise EvidenceError(key, str(error)) from None

"""XIDs of GPUs and SXIDs of NVSwitches in the kernel's log.

``NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`` The address
has no function, the text after the code is free. Some faults are logged without a code; they get the one that
NVIDIA's catalogue has for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeVar

from preflight.facts.kernel_log import Line
from preflight.lean import dataclass

_Value = TypeVar("_Value")

_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
# with MIG the instance stands behind the address: ``(PCI:0000:01:00 GPU-I:05)``
_XID = re.compile(rf"NVRM: Xid \({_PCI}(?: GPU-C?I:[0-9]{{1,3}}){{0,2}}\): ([0-9]{{1,4}})(?:, ?(.*))?")
_SXID = re.compile(rf"SXid \({_PCI}\): ([0-9]{{1,6}}), (Non-fatal|Fatal)\b,? ?(.*)", re.I)
_CAUSE = re.compile(r"caused by previous Xid ([0-9]{1,4})")
_PID = re.compile(r"pid='?([0-9]{1,10})")

#: Lines without a code -> the code that the catalogue has for them.
_WITHOUT_CODE = (
    (re.compile(rf"NVRM: GPU {_PCI}: GPU has fallen off the bus"), 79),
    (re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at {_PCI}"), 119),
    (re.compile(rf"NVRM: GPU {_PCI}: RmInitAdapter failed!"), 143),
)
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}")
_FALLEN = "fallen off the bus and is not responding"
_LOADED = "NVRM: loading NVIDIA UNIX"
_CLEARED = re.compile(r"recovery action changed .{0,80}\bto 0x0 \(None\)", re.I)

#: Lines of one incident: the same code of the same GPU within this time counts once, seconds.
INCIDENT_S = 60


@dataclass(frozen=True)
class Event:
    """One XID of one GPU, or what the log says in its place."""

    at_s: float
    address: str  # of the GPU, in the kernel's form
    code: int
    text: str  # after the code
    line: str

    @property
    def cause(self) -> int | None:
        """The code of an earlier error that the line itself names."""
        match = _CAUSE.search(self.text)
        return int(match[1]) if match else None

    @property
    def pid(self) -> int | None:
        """The process that the line names."""
        match = _PID.search(self.text)
        return int(match[1]) if match else None


@dataclass(frozen=True)
class SwitchEvent:
    """One SXID of one NVSwitch."""

    at_s: float
    address: str
    code: int
    fatal: bool
    text: str
    line: str


@dataclass(frozen=True)
class Events:
    """What the log holds since the driver was loaded, and since each GPU's recovery was cleared."""

    gpus: tuple[Event, ...]
    switches: tuple[SwitchEvent, ...]

    @cached_property
    def counts(self) -> Mapping[tuple[str, int], int]:
        """How often each code came, by (address, code)."""
        return Counter((event.address, event.code) for event in self.gpus)

    @cached_property
    def gpus_by_code(self) -> Mapping[int, frozenset[str]]:
        """The addresses of the GPUs that each code came from."""
        return _grouped((event.code, event.address) for event in self.gpus)

    @cached_property
    def pids_by_code(self) -> Mapping[int, frozenset[int]]:
        """The processes that the lines of each code name."""
        return _grouped((event.code, event.pid) for event in self.gpus if event.pid is not None)


def _grouped(pairs: Iterable[tuple[int, _Value]]) -> Mapping[int, frozenset[_Value]]:
    found: dict[int, set[_Value]] = {}
    for code, value in pairs:
        found.setdefault(code, set()).add(value)
    return {code: frozenset(values) for code, values in found.items()}


def events(lines: Iterable[Line]) -> Events:
    """Find all events, without repetitions; what a driver load or a cleared recovery action ended is left out."""
    gpus: list[Event] = []
    switches: list[SwitchEvent] = []
    cleared: dict[str, int] = {}  # address -> how many events there were when its recovery was cleared
    probed: list[Event] = []  # found while the driver was being loaded, before it says that it is
    named = ""
    for line in lines:
        if _LOADED in line.text:
            gpus, switches, cleared, named, probed = probed, [], {}, "", []
        elif match := _SXID.search(line.text):
            fatal = match[3].lower() == "fatal"
            switches.append(SwitchEvent(line.at_s, _address(match[1]), int(match[2]), fatal, match[4], line.text))
        elif match := _NAMED.search(line.text):
            named = _address(match[1])
        elif named and _FALLEN in line.text:
            gpus.append(Event(line.at_s, named, 79, "GPU has fallen off the bus", line.text))
            probed.append(gpus[-1])
        elif (event := _event(line)) is not None:
            if event.code == 154 and _CLEARED.search(event.text):
                cleared[event.address] = len(gpus)
            else:
                gpus.append(event)
    left = (event for number, event in enumerate(gpus) if number >= cleared.get(event.address, 0))
    return Events(tuple(_once(left)), tuple(switches))


def _event(line: Line) -> Event | None:
    if match := _XID.search(line.text):
        return Event(line.at_s, _address(match[1]), int(match[2]), (match[3] or "").strip(), line.text)
    for pattern, code in _WITHOUT_CODE:
        if match := pattern.search(line.text):
            return Event(line.at_s, _address(match[1]), code, line.text.partition("NVRM: ")[2], line.text)
    return None


def _address(text: str) -> str:
    domain, bus, device = text.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device.partition('.')[0]}.0"


def _once(found: Iterable[Event]) -> Iterable[Event]:
    """Leave out what repeats: a code of a GPU within a minute of its last line."""
    last: dict[tuple[str, int], float] = {}
    for event in found:
        key = (event.address, event.code)
        if key not in last or event.at_s - last[key] > INCIDENT_S:
            yield event
        last[key] = event.at_s

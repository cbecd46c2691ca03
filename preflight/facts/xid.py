"""Xids of GPUs and SXids of NVSwitches in the kernel log since driver load.

Some faults are logged without a code; they get the code that NVIDIA's catalogue has for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from preflight._startup.lightclass import dataclass
from preflight.parsers.host.kernel_log import KernelLogLine
from preflight.parsers.nvidia import xid_marks
from preflight.parsers.nvidia.xid_marks import pid_in, sxids_in, xids_in

_Value = TypeVar("_Value")

#: Seconds within which a code of a GPU is counted once.
INCIDENT_S = 60


@dataclass(frozen=True)
class XidEvent:
    """One Xid of one GPU, or an equivalent message."""

    at_s: float
    address: str  # address of the GPU, in the kernel's form
    code: int
    text: str  # message after the code
    line: str
    number: int = 0  # line number in a pasted text

    @property
    def coded(self) -> bool:
        """Whether the line has the code, rather than an equivalent message."""
        return "Xid" in self.line

    @property
    def cause(self) -> int | None:
        """The code of an earlier error that the line names as its cause, or None."""
        return xid_marks.cause_in(self.text)

    @property
    def pid(self) -> int | None:
        """The process that the line names, or None."""
        return pid_in(self.text)


@dataclass(frozen=True)
class SwitchEvent:
    """One SXid of one NVSwitch."""

    at_s: float
    address: str
    code: int
    fatal: bool
    text: str
    line: str
    number: int = 0  # line number in a pasted text


@dataclass(frozen=True)
class Events:
    """Events since driver load, and since each GPU's recovery action was cleared."""

    gpus: tuple[XidEvent, ...]
    switches: tuple[SwitchEvent, ...]
    unread: tuple[str, ...] = ()  # lines of an Xid with an incomplete number or address
    unread_switches: tuple[str, ...] = ()  # the same of SXids

    @cached_property
    def counts(self) -> Mapping[tuple[str, int], int]:
        """Number of occurrences of each code, by (address, code)."""
        return Counter((event.address, event.code) for event in self.gpus)

    @cached_property
    def gpus_by_code(self) -> Mapping[int, frozenset[str]]:
        """Code -> addresses of the GPUs with that code."""
        return _grouped((event.code, event.address) for event in self.gpus)

    @cached_property
    def pids_by_code(self) -> Mapping[int, frozenset[int]]:
        """Code -> the processes that its lines name."""
        return _grouped((event.code, event.pid) for event in self.gpus if event.pid is not None)


def _grouped(pairs: Iterable[tuple[int, _Value]]) -> Mapping[int, frozenset[_Value]]:
    found: dict[int, set[_Value]] = {}
    for code, value in pairs:
        found.setdefault(code, set()).add(value)
    return {code: frozenset(values) for code, values in found.items()}


def events(lines: Iterable[KernelLogLine], *, pasted: bool = False) -> Events:
    """Return the events; an Xid that a GPU repeats within a minute counts once.

    Events before a driver load or a cleared recovery action are left out. From a pasted log, no event is left out,
    because it is unknown whether the log is up to date. Its addresses may be masked or short.
    """
    gpus: list[XidEvent] = []
    switches: list[SwitchEvent] = []
    unread: tuple[list[str], list[str]] = [], []
    cleared: dict[str, int] = {}  # address -> number of events when its recovery was cleared
    probed: list[XidEvent] = []  # logged while the driver was being loaded, before its own load message
    ungraded: list[tuple[tuple[str, int], str]] = []  # severity and data of an SXid, below the line with its grade
    named = ""
    for line in lines:
        if not xid_marks.is_drivers(line.text):
            continue
        if xid_marks.LOADED in line.text and not pasted:
            gpus, switches, cleared, named, probed, unread = probed, [], {}, "", [], ([], [])
        elif marks := sxids_in(line.text):
            for mark in marks:
                if (address := _place(mark.where, pasted)) is None or mark.code is None:
                    unread[1].append(line.text)
                elif mark.fatal is not None:
                    switches.append(
                        SwitchEvent(line.at_s, address, mark.code, mark.fatal, mark.text, line.text, line.number)
                    )
                elif pasted:
                    ungraded.append(((address, mark.code), line.text))
        elif address := xid_marks.named_gpu(line.text):
            named = address
        elif named and xid_marks.FALLEN in line.text:
            gpus.append(XidEvent(line.at_s, named, 79, "GPU has fallen off the bus", line.text, line.number))
            probed.append(gpus[-1])
        else:
            for event in _events(line, pasted):
                if event is None:
                    unread[0].append(line.text)
                elif event.code == 154 and xid_marks.is_cleared(event.text):
                    cleared[event.address] = 0 if pasted else len(gpus)
                else:
                    gpus.append(event)
    graded = {(event.address, event.code) for event in switches}
    unread[1].extend(text for code, text in ungraded if code not in graded)
    left = (event for number, event in enumerate(gpus) if number >= cleared.get(event.address, 0))
    return Events(tuple(_once(left)), tuple(switches), *map(tuple, unread))


def _events(line: KernelLogLine, pasted: bool) -> Iterator[XidEvent | None]:
    """Yield the Xids of a line, and None for one that cannot be parsed."""
    for mark in xids_in(line.text):
        address = _place(mark.where, pasted)
        if address is None or mark.code is None or (pasted and _is_stump(mark.code, mark.text)):
            yield None
        else:
            yield XidEvent(line.at_s, address, mark.code, mark.text, line.text, line.number)
    if uncoded := xid_marks.uncoded_in(line.text):
        address, code = uncoded
        yield XidEvent(line.at_s, address, code, line.text.partition("NVRM: ")[2], line.text, line.number)


def _is_stump(code: int, text: str) -> bool:
    """Return whether an NVLink unit's line was truncated before its severity."""
    return 144 <= code <= 150 and xid_marks.is_unit_stump(text)


def _place(text: str, pasted: bool) -> str | None:
    """Return an address in the kernel's form; None if it cannot be read.

    The address in a pasted log may be masked (empty) or short.
    """
    address = xid_marks.address_of(text)
    if address is None and pasted:
        return "" if xid_marks.is_masked(text) else text
    return address


def _once(found: Iterable[XidEvent]) -> Iterable[XidEvent]:
    """Drop repetitions: the same code of a GPU within a minute of the last.

    A line without a time is never dropped.
    """
    last: dict[tuple[str, int], float] = {}
    for event in found:
        key = (event.address, event.code)
        if key not in last or not event.at_s - last[key] <= INCIDENT_S:
            yield event
        last[key] = event.at_s

"""Xids of GPUs and SXids of NVSwitches in a line of the kernel log.

An example is ``NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`` The
address has no function number, and the text after the code is free. The driver puts a comma after every code: digits
without one are the start of a truncated code, and are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass

# with MIG, the instance follows the address: ``(PCI:0000:01:00 GPU-I:05)``; digits may have been masked
_WHERE = r"(?:PCI:)?([0-9a-fA-F:.]{1,24})(?: GPU-C?I:[0-9]{1,3}){0,2}"
_XID = re.compile(rf"NVRM: Xid \({_WHERE}\):(?: {{1,4}}([1-9][0-9]{{0,5}}),)?")
_SXID = re.compile(rf"SXid \({_WHERE}\):(?: {{1,4}}([1-9][0-9]{{0,5}}),)?")
#: Text that every line with such a code contains; it is searched first, because most lines have none.
_XID_WORD, _SXID_WORD = "NVRM: Xid (", "SXid ("
_FATAL = re.compile(r"\s*(?:(Non-fatal|Fatal)\b,?)?", re.I)
_PID = re.compile(r"\bpid='?([0-9]{1,10})(?![0-9A-Za-z])")
#: Maximum characters of the text after a code.
_LONGEST = 2000


@dataclass(frozen=True)
class LoggedXid:
    """One code in a line: an Xid, or the SXid of an NVSwitch."""

    where: str  # PCI address, as written
    code: int | None  # None if missing or truncated
    text: str  # after the code
    fatal: bool | None = None  # for an SXid; None if the line has neither "Fatal" nor "Non-fatal"


def xids_in(line: str) -> tuple[LoggedXid, ...]:
    """Read the Xids in a line; damaged lines may contain several."""
    if _XID_WORD not in line:
        return ()
    return tuple(LoggedXid(where, code, text.strip()) for where, code, text in _marks(_XID, line))


def sxids_in(line: str) -> tuple[LoggedXid, ...]:
    """Read the SXids in a line."""
    if _SXID_WORD not in line:
        return ()
    marks = []
    for where, code, text in _marks(_SXID, line):
        word = _FATAL.match(text)
        grade = word[1] if word else None
        rest = text[word.end() :] if word else text
        marks.append(LoggedXid(where, code, rest.strip(), None if grade is None else grade.lower() == "fatal"))
    return tuple(marks)


def _marks(pattern: re.Pattern[str], line: str) -> Iterator[tuple[str, int | None, str]]:
    matches = list(pattern.finditer(line))
    for number, match in enumerate(matches, 1):
        end = matches[number].start() if number < len(matches) else len(line)
        code = int(match[2]) if match[2] else None
        yield match[1], code, line[match.end() : min(end, match.end() + _LONGEST)]


_OF_PROCESS = re.compile(r"(?:(?:pid|name)=[^,]{0,80},? ?){1,2}")


def own_words(text: str) -> str:
    """Return the text after a code without the process ID and name at its start."""
    return text[match.end() :] if (match := _OF_PROCESS.match(text)) else text


def pid_in(text: str) -> int | None:
    """Return the process ID in the text after a code; None if there is none."""
    match = _PID.search(text)
    return int(match[1]) if match else None


_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_CAUSE = re.compile(r"caused by previous Xid ([0-9]{1,5})(?![0-9A-Za-z])")

#: Pattern of a line without a code, and the code of the error in the catalogue.
_WITHOUT_CODE = (
    (re.compile(rf"NVRM: GPU {_PCI}: GPU has fallen off the bus"), 79),
    (re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at {_PCI}"), 119),
    (re.compile(rf"NVRM: GPU {_PCI}: RmInitAdapter failed!"), 143),
)
_FULL_ADDRESS = re.compile(_PCI)
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}")
_CLEARED = re.compile(r"recovery action changed .{0,80}\bto 0x0 \(None\)", re.I)
_RECOVERY = re.compile(r"\bto 0x[0-9a-f]{1,4} \(([^)]{1,60})\)", re.I)
_SEVERITY = re.compile(r"\b(non-?)?fatal\b", re.I)
_UNIT_STUMP = re.compile(r"(?!.*\bFatal$)[A-Z]\w{1,24}(?: \w{0,7})?")

#: Text of the line after the one that names a lost GPU, and start of the driver's load message.
FALLEN = "fallen off the bus and is not responding"
LOADED = "NVRM: loading NVIDIA UNIX"
_WORDS = ("NVRM: ", _SXID_WORD, FALLEN)


def is_drivers(line: str) -> bool:
    """Return whether a line may contain anything that this module reads."""
    return any(word in line for word in _WORDS)


def cause_in(text: str) -> int | None:
    """Return the code of the Xid that caused this one; None if the text names none."""
    match = _CAUSE.search(text)
    return int(match[1]) if match else None


def uncoded_in(line: str) -> tuple[str, int] | None:
    """Return the address and code of an Xid reported without a code, else None.

    An incomplete address is returned as an empty string.
    """
    for pattern, code in _WITHOUT_CODE:
        if match := pattern.search(line):
            return address_of(match[1]) or "", code
    return None


def named_gpu(line: str) -> str | None:
    """Return the address of the GPU that the next lines describe; None if not named.

    An incomplete address is returned as an empty string.
    """
    match = _NAMED.search(line)
    return (address_of(match[1]) or "") if match else None


def no_row_left(text: str) -> bool:
    """Return whether the row remapper's line states that a bank has no reserved row."""
    return "all reserved rows" in text.lower()


def is_cleared(text: str) -> bool:
    """Return whether the text of an Xid 154 clears the required recovery action."""
    return _CLEARED.search(text) is not None


def required_recovery(text: str) -> str | None:
    """Return the recovery action that an Xid 154 requires; None if not named."""
    match = _RECOVERY.search(text)
    return match[1] if match else None


def is_fatal(text: str) -> bool | None:
    """Return whether the text after a code calls the error fatal.

    The result is None if the text contains neither word, fatal or non-fatal.
    """
    words = _SEVERITY.findall(text)
    return not any(words) if words else None


def is_unit_stump(text: str) -> bool:
    """Return whether the text of an NVLink error is truncated before its severity."""
    return _UNIT_STUMP.fullmatch(text) is not None


def is_masked(where: str) -> bool:
    """Return whether all digits of an address have been masked."""
    return re.search("[0-9a-fA-F]", where) is None


def address_of(where: str) -> str | None:
    """Return an address in the kernel's format, with function 0; None if incomplete."""
    if not _FULL_ADDRESS.fullmatch(where):
        return None
    domain, bus, device = where.lower().split(":")[-3:]
    return f"{int(domain, 16):04x}:{bus}:{device.partition('.')[0]}.0"

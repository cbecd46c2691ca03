"""``lspci -vv``: PCIe links, access control (ACS) and maximum read requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.pci import lspci_tree
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

#: ACS controls that redirect peer-to-peer requests or completions to the root complex.
REDIRECTS = frozenset({"ReqRedir", "CmpltRedir", "UpstreamFwd"})


#: Device classes by name and by number (pci.ids). In servers, the only 3D controllers are GPUs.
_NETWORK = re.compile(r"(?i)(?:ethernet|infiniband|network) controller|02(?:00|07)\b")
_GONE = re.compile(r"\(rev ff\)")
_GPU = re.compile(r"(?i)3D controller|0302\b")


@dataclass(frozen=True)
class PciFunction:
    """The configuration of one PCI function; a value that lspci did not print is None."""

    address: str | None = None
    line: int = 0
    class_name: str | None = None
    name: str | None = None
    denied: bool = False  # lspci had no permission to read the capabilities; root has it
    controls: Mapping[str, bool] | None = None  # ACSCtl; None without the capability
    speed: str | None = None
    width: str | None = None
    downgraded: bool | None = None
    max_speed: str | None = None
    max_width: str | None = None
    max_read_request_bytes: int | None = None  # DevCtl: MaxReadReq
    max_payload_bytes: int | None = None
    relaxed_ordering: bool | None = None  # DevCtl: RlxdOrd
    numa_node: int | None = None
    driver: str | None = None  # kernel driver in use
    errors: frozenset[str] = frozenset()  # DevSta: FatalErr, NonFatalErr; UESta: CmpltTO, …; since last cleared

    @property
    def is_gone(self) -> bool:
        """Whether the device is gone: its registers read as all ones."""
        return bool(self.name and _GONE.search(self.name))

    @property
    def is_network(self) -> bool:
        """Whether the function is a network controller."""
        return _NETWORK.match(self.class_name or "") is not None

    @property
    def is_gpu(self) -> bool:
        """Whether the function is a GPU of a server: a 3D controller."""
        return _GPU.match(self.class_name or "") is not None

    @property
    def acs(self) -> frozenset[str] | None:
        """The enabled ACS controls; None without the capability."""
        return None if self.controls is None else frozenset(name for name, on in self.controls.items() if on)

    @property
    def redirects(self) -> frozenset[str]:
        """The enabled ACS controls that redirect peer-to-peer traffic."""
        return (self.acs or frozenset()) & REDIRECTS

    @property
    def link(self) -> str:
        """The trained link, as in ``32GT/s x8``; empty if not shown."""
        return " ".join(part for part in (self.speed, self.width) if part)

    def document(self) -> dict[str, Any]:
        """Return the function as `preflight read --json` prints it."""
        return {
            "address": self.address, "class": self.class_name, "name": self.name, "acs_ctl": self.controls,
            "link": {
                "speed": self.speed, "width": self.width, "downgraded": self.downgraded, "max_speed": self.max_speed,
                "max_width": self.max_width,
            },
            "max_read_request": self.max_read_request_bytes, "max_payload": self.max_payload_bytes,
            "numa_node": self.numa_node, "driver": self.driver,
        }  # fmt: skip


#: ``81:00.0 Infiniband controller: Mellanox …``. With ``-n`` the class is a number; with ``-nn`` it includes one.
_DEVICE = re.compile(
    r"\s{0,12}((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"([A-Z0-9][^:\[\]]{2,60}(?: \[[0-9a-f]{4}\])?|[0-9a-f]{4}): (\S.*)"
)
#: An ``lspci`` command for a single device.
_COMMAND = re.compile(
    r"\blspci\s[^|]{0,80}?-s\s?[\"']?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b[^#$]{0,200}$"
)
#: Maximum lines of pasted text that are searched for ``(downgraded)``.
_MOST_LINES = 5000
_DEVICE_STUMP = re.compile(r"\s{0,4}(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?: [A-Z][^:]{0,60})?")
_LINK = re.compile(r"\s*Lnk(Cap|Sta):\s.*?Speed ([\w./]+)(?: \((\w+)\))?, Width (x\d{1,2})(?!\d)(?: \((\w+)\))?.*")
_ACS = re.compile(r"\s*ACSCtl:\s*(.*)")
_DEVCTL = re.compile(r"\s*(?:DevCtl:.*|.*MaxPayload (\d{2,4}) bytes, MaxReadReq (\d{3,4}) bytes.*)")


#: The start of a device's details, which identifies them if the indentation or the device's line is missing.
_DETAIL = re.compile(
    r"\s*(?:(?:Lnk|Dev|Slt|Root|ACS|AER|UE|CE)(?:Cap|Ctl|Sta|Msk|Svrt)\d?|Capabilities|Subsystem|Control|Status|Latency"
    r"|Interrupt|NUMA node|Region \d|Physical Slot|IOMMU group|Bus|Kernel (?:driver in use|modules)|Flags|BIST"
    r"|(?:\[virtual\] )?Expansion ROM at .*|Memory at [0-9a-f]{4,16}|I/O ports at [0-9a-f]{2,8}"
    r"|Secondary status|BridgeCtl|(?:Memory|I/O|Prefetchable memory) behind bridge"
    # extended capabilities
    r"|(?:IOV|ARI|PASID|PTM|TPH|ATS|PR|L1Sub|DPC|Phy\d{1,2}|AtomicOps|DOE|CXL)\w{0,6}(?:Cap|Ctl|Sta|Ctrl)\d?"
    r"|Initial VFs|VF (?:offset|Migration)|Supported Page Size|HeaderLog|First Error Pointer|Max (?:no )?snoop latency"
    r"|LaneErrStat|PBA|Vector table|Arb|Ctrl|Caps|VC\d|RootCmd|ErrorSrc"
    # names assigned by the card's manufacturer
    r"|Product Name|\[[A-Z][A-Z0-9]\] [A-Z][\w ()-]{2,40})\s?:?\s.*"
    r"|\s*(?:Read(?:-only|/write) fields:|End)"
)
#: A truncated name, or a flag without its sign.
_STUMP = re.compile(r"\s*[A-Z][A-Za-z]{0,11}|.*\s[A-Za-z0-9]{1,20}[+-] [A-Za-z]\w{0,14}")
#: A line with flags, a slot or a payload, which continues the line of a register.
_FLAGS = re.compile(r"[A-Za-z][\w/-]{1,24}[+-](?:[\s,;].*)?|(?:Slot #\d|MaxPayload \d|Address: |Vector table: ).*")
#: Registers that only PCI Express functions have. They identify an output that lacks the device's line.
_REGISTER = re.compile(
    r"\s*(?:Lnk(?:Cap|Ctl|Sta)|Dev(?:Cap|Ctl|Sta)|ACS(?:Cap|Ctl)|Slt(?:Cap|Ctl|Sta))2?:\s.*[+-](?:\s.*)?"
)
#: Strings; every line of a register contains one of them.
_REGISTERS = ("Lnk", "ACS", "Dev", "Slt", "MaxReadReq")
HINTS = (":", "]-", *_REGISTERS)


#: First lines of other outputs that are often pasted after lspci's.
_NEXT = re.compile(
    r"(?:CA:? '|hca_id:|Infiniband device '|link \S+/\d|driver:|NIC statistics:|Settings for |[A-Z][A-Za-z]+:\s*$).*"
)
#: Maximum characters of the rest of a line that an email broke.
_BROKEN_OFF = 60


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``lspci`` output begins at a line."""
    text = lines[at].text
    if _DEVICE.fullmatch(text) or lspci_tree.begins(text):
        return True
    if not any(name in text for name in _REGISTERS):
        return False
    if _LINK.fullmatch(text) or (text.lstrip().startswith("ACSCtl:") and _REGISTER.fullmatch(text)):
        return True
    if not (_REGISTER.fullmatch(text) or _DEVCTL.fullmatch(text)):
        return False
    if at and re.search(r"\blspci\b.*grep", lines[at - 1].text):
        return True
    return any(_REGISTER.fullmatch(line.text) or _LINK.fullmatch(line.text) for line in lines[at + 1 : at + 5])


def _function(match: re.Match[str] | None, line: int) -> PciFunction:
    return PciFunction(match[1], line, match[2], match[3]) if match else PciFunction(line=line)


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[PciFunction, ...]]:
    """Read the functions starting at a line."""
    if lspci_tree.begins(lines[at].text):
        end, result, gaps = lspci_tree.take(lines, at)
        return Parsed(
            tuple(PciFunction(address, lines[at].number, name=name) for address, name in result), tuple(gaps), end
        )
    devices: list[PciFunction] = []
    end, last, empty, acs = at, at, 0, False
    cut = list[ParseGap]()
    marks_downgrades = any("(downgraded)" in line.text or "(ok)" in line.text for line in lines[:_MOST_LINES])
    if not _DEVICE.fullmatch(lines[at].text):
        devices.append(PciFunction(_queried_device(lines, at), lines[at].number))
        cut.append(ParseGap(lines[at].number, "the line that names the device is missing"))
    while end < len(lines):
        text = lines[end].text
        if match := _DEVICE.fullmatch(text):
            devices.append(_function(match, lines[end].number))
            empty = 0
        elif not text.strip():
            empty += 1
            if empty > 2:
                break
        elif is_prompt(text) or not (text[:1].isspace() or _detailed(text) or _rest(lines, end)):
            break
        else:
            if _is_repeated(devices[-1], text):
                devices.append(PciFunction(line=lines[end].number))  # grep printed one register of each device
            controls = devices[-1].controls
            if acs and controls and _FLAGS.fullmatch(text.lstrip()):  # an email broke the line
                devices[-1] = replace(devices[-1], controls={**controls, **_flags(text)})
            devices[-1] = _detail(devices[-1], text, marks_downgrades)
            empty, acs = 0, text.lstrip().startswith("ACSCtl:")
        last = end if text.strip() else last
        end += 1
    rest = [line for line in lines[end:] if line.text.strip()] if end > len(lines) - 4 else []
    if len(rest) == 1 and _DEVICE_STUMP.fullmatch(rest[0].text):
        last = end
        cut.append(ParseGap(lines[end].number, "the line of the next device is truncated"))
    elif _STUMP.fullmatch(lines[last].text):
        cut.append(ParseGap(lines[last].number, "the line is truncated"))
    return Parsed(tuple(devices), tuple(cut), last + 1)


def facts(functions: tuple[PciFunction, ...]) -> dict[str, Any]:
    """Return the functions as `preflight read --json` prints them."""
    return {"devices": [function.document() for function in functions]}


def summary(functions: tuple[PciFunction, ...]) -> str:
    """Return a one-line summary of the functions and their links."""
    if functions and all(function.class_name is None and function.name for function in functions):
        return f"{counted(len(functions), 'device')} in a tree"
    down = [str(function.address) for function in functions if function.downgraded]
    return f"{counted(len(functions), 'device')}, links below their capability: {', '.join(down[:8]) or 'none shown'}"


def _queried_device(lines: Lines, at: int) -> str | None:
    """Return the device that the command above a line names; None if there is none."""
    before = " ".join(line.text for line in lines[max(0, at - 2) : at])
    match = _COMMAND.search(before)
    return match[1] if match else None


def _detailed(text: str) -> bool:
    return bool(_DETAIL.fullmatch(text) or _FLAGS.fullmatch(text))


def _rest(lines: Lines, at: int) -> bool:
    """Return whether a line is the wrapped rest of the previous one."""
    text = lines[at].text
    if len(text) >= _BROKEN_OFF or _NEXT.match(text):
        return False
    for line in lines[at + 1 : at + 3]:  # at most two breaks in one line
        if _DETAIL.fullmatch(line.text) or _FLAGS.fullmatch(line.text.lstrip()):
            return True
        if line.text[:1].isspace() and lines[at - 1].text.strip():
            return True
        if not line.text or len(line.text) >= _BROKEN_OFF or _NEXT.match(line.text):
            break
    return False


def _flags(text: str) -> dict[str, bool]:
    return {flag[:-1]: flag[-1] == "+" for flag in text.split() if flag[-1:] in "+-"}


def _is_repeated(function: PciFunction, text: str) -> bool:
    """Return whether the function already has the register on a line."""
    if match := _LINK.fullmatch(text):
        return (function.max_speed if match[1] == "Cap" else function.speed) is not None
    if _ACS.fullmatch(text):
        return function.controls is not None
    return "MaxReadReq" in text and function.max_read_request_bytes is not None


def _detail(function: PciFunction, text: str, marks_downgrades: bool) -> PciFunction:
    if match := _LINK.fullmatch(text):
        if match[1] == "Cap":
            return replace(function, max_speed=match[2], max_width=match[4])
        downgraded = "downgraded" in (match[3], match[5])
        if match[3] is None and match[5] is None and function.max_speed and not marks_downgrades:
            # lspci before 3.6 does not print "downgraded"; later versions print it, except for ports
            downgraded = (match[2], match[4]) != (function.max_speed, function.max_width)
        return replace(function, speed=match[2], width=match[4], downgraded=downgraded)
    if match := _ACS.fullmatch(text):
        return replace(function, controls=_flags(match[1]))
    if text.lstrip().startswith("DevSta:"):
        return replace(function, errors=function.errors | frozenset(_ERRORS.findall(text)))
    if text.lstrip().startswith("UESta:"):
        return replace(function, errors=function.errors | (frozenset(_UNCORRECTED.findall(text)) - _EXPECTED))
    if match := _NUMA_NODE.fullmatch(text):
        return replace(function, numa_node=int(match[1]))
    if match := _DRIVER.fullmatch(text):
        return replace(function, driver=match[1])
    if ordering := _ORDERING.search(text):
        function = replace(function, relaxed_ordering=ordering[1] == "+")
    if (match := _DEVCTL.fullmatch(text)) and match[2]:
        return replace(function, max_payload_bytes=int(match[1]), max_read_request_bytes=int(match[2]))
    return replace(function, denied=True) if _DENIED in text else function


_NUMA_NODE = re.compile(r"\s*NUMA node: (-?\d{1,4})\s*")
_DRIVER = re.compile(r"\s*Kernel driver in use: ([\w-]{1,60})\s*")
_ERRORS = re.compile(r"\b((?:Non)?FatalErr)\+")
_UNCORRECTED = re.compile(r"\b([A-Z]\w{1,20})\+")
#: Errors that probing for unsupported features causes.
_EXPECTED = frozenset({"UnsupReq", "ACSViol"})
_ORDERING = re.compile(r"\bRlxdOrd([+-])(?=\s|$)")
_DENIED = "Capabilities: <access denied>"

"""``mst status``: NICs, and with ``-v`` RDMA devices, interfaces, NUMA nodes."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("MST modules:", "DEVICE_TYPE")

_HEAD = re.compile(r"\s*DEVICE_TYPE\s+MST\s+PCI\s+RDMA\s+NET\s+NUMA\s*")
_ROW = re.compile(
    r"\s*(\S.{2,60}?)\s{2,}(NA|/dev/mst/\S{1,60})?\s+((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
    r"(?:\s+(?!\d{1,4}\s*$|net-)(\S{1,40}))?(?:\s+(net-\S{1,40}))?(?:\s+(-?\d{1,4}|N/A))?\s*"
)


#: A line of the form without -v.
_SHORT = re.compile(
    r"\s*(?:|-{4,}|(?:PCI|MST|I2C|Cables?) [Dd]evices:|MST PCI .{3,60}|Chip revision is: .{1,10}"
    r"|/dev/mst/(?P<type>mt\d{3,6})_pci\S{1,20}\s+- PCI .{1,60}"
    r"|domain:bus:dev\.fn=(?P<address>\S{7,12}) .{0,80}"
    r"|(?P<none>No (?:MST )?devices were found.{0,40}))\s*"
)


@dataclass(frozen=True)
class MstDevice:
    """One PCI function of a NIC; ``rdma`` and ``netdev`` are empty if there is none."""

    type: str  # such as ConnectX7(rev:0), with -v; else mt4129
    address: str
    rdma: str | None  # None without -v
    netdev: str
    numa: int | None


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``mst status`` output begins at a line."""
    text = lines[at].text
    if _HEAD.fullmatch(text):
        return True
    return text.strip() == "MST modules:" and any(" MST " in line.text for line in lines[at + 1 : at + 6])


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[MstDevice, ...]]:
    """Read the devices, in either form."""
    verbose = next((i for i in range(at, min(at + 12, len(lines))) if _HEAD.fullmatch(lines[i].text)), None)
    if verbose is None:
        return _short(lines, at)
    end = verbose + 1
    last = verbose
    result: list[MstDevice] = []
    while end < len(lines):
        text = lines[end].text
        if match := _ROW.fullmatch(text):
            rdma = match[4] or ""
            numa = int(match[6]) if match[6] and match[6] != "N/A" else None
            result.append(MstDevice(match[1], match[3], "" if rdma in ("NA", "-") else rdma,
                                    (match[5] or "").removeprefix("net-"), numa))  # fmt: skip
            last = end
        elif text.strip() or is_prompt(text):
            break
        end += 1
    gaps = () if result else (ParseGap(lines[at].number, "no device follows"),)
    return Parsed(tuple(result), gaps, last + 1)


def _short(lines: Lines, at: int) -> Parsed[tuple[MstDevice, ...]]:
    """Read the form without ``-v``: the address of a device follows its file."""
    result: list[MstDevice] = []
    none = False
    end = last = at + 1
    while end < len(lines) and (match := _SHORT.fullmatch(lines[end].text)):
        if match["type"]:
            result.append(MstDevice(match["type"], "", None, "", None))
        elif match["address"] and result:
            result[-1] = replace(result[-1], address=match["address"])
        none = none or bool(match["none"])
        if lines[end].text.strip():
            last = end
        end += 1
    gaps = () if result or none else (ParseGap(lines[last].number, "no device follows"),)
    return Parsed(tuple(result), gaps, last + 1)


def facts(devices: tuple[MstDevice, ...]) -> dict[str, Any]:
    """Return the devices as `preflight read --json` prints them."""
    return {
        "devices": [
            {"type": item.type, "address": item.address, "rdma": item.rdma or None, "netdev": item.netdev or None,
             "numa": item.numa}
            for item in devices
        ]
    }  # fmt: skip


def summary(devices: tuple[MstDevice, ...]) -> str:
    """Return a one-line summary of the devices."""
    shown = any(item.rdma is not None for item in devices)
    of_rdma = f", {sum(bool(item.rdma) for item in devices)} with an RDMA device" if shown else ""
    return f"{counted(len(devices), 'device')}{of_rdma}"

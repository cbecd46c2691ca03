"""``mst status -v``: NICs with their RDMA devices, interfaces and NUMA nodes."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

HINTS = ("MST modules:", "DEVICE_TYPE")

_HEAD = re.compile(r"\s*DEVICE_TYPE\s+MST\s+PCI\s+RDMA\s+NET\s+NUMA\s*")
_ROW = re.compile(
    r"\s*(\S.{2,60}?)\s{2,}(NA|/dev/mst/\S{1,60})?\s+((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
    r"(?:\s+(?!\d{1,4}\s*$|net-)(\S{1,40}))?(?:\s+(net-\S{1,40}))?(?:\s+(-?\d{1,4}|N/A))?\s*"
)


@dataclass(frozen=True)
class MstDevice:
    """One PCI function of a NIC; ``rdma`` and ``netdev`` are empty if not shown."""

    type: str  # such as ConnectX7(rev:0)
    address: str
    rdma: str
    netdev: str
    numa: int | None


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``mst status -v`` output begins at a line."""
    text = lines[at].text
    if _HEAD.fullmatch(text):
        return True
    return text.strip() == "MST modules:" and any(_HEAD.fullmatch(line.text) for line in lines[at + 1 : at + 12])


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[MstDevice, ...]]:
    """Read the rows below the header."""
    end = next(index for index in range(at, len(lines)) if _HEAD.fullmatch(lines[index].text)) + 1
    last = end - 1
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
    return f"{len(devices)} devices, {sum(bool(item.rdma) for item in devices)} with an RDMA device"

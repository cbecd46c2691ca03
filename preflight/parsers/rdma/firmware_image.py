"""``flint query`` and ``mlxfwmanager``: a NIC's running and flashed firmware."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed
from preflight.parsers.text_block import block, queried_device
from preflight.textprep.lines import Lines

HINTS = ("Image type:", "Image Type:", "Device Type:")

_HEAD = re.compile(r"\s*(?:Image [tT]ype|Device Type):\s+\S.{0,60}")
_FIELD = re.compile(r"\s*([A-Z][\w ()/-]{1,30}?):\s*(.{0,200})")
#: A row below "Versions:": a part of the image, its running version, and the available version.
_VERSION = re.compile(
    r"\s*(FW|PXE|UEFI|UEFI Virtio (?:blk|net)|FW \(Running\))\s+(\d\S{0,40}|N/A|--)\s+(\d\S{0,40}|N/A|--)\s*"
)


@dataclass(frozen=True)
class FirmwareImage:
    """The firmware of one NIC, as printed."""

    device: str | None
    line: int
    fields: Mapping[str, str]
    versions: Mapping[str, tuple[str, str]]  # from mlxfwmanager: current, available

    @property
    def burnt(self) -> str | None:
        """The version in flash; None if not printed."""
        return self.fields.get("FW Version")

    @property
    def running(self) -> str | None:
        """The running version, printed only if flash has another one; otherwise None."""
        return self.fields.get("FW Version(Running)") or self.fields.get("Running FW Version")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``flint`` or ``mlxfwmanager`` output begins at a line."""
    text = lines[at].text
    if not _HEAD.fullmatch(text):
        return False
    ahead = [line.text for line in lines[at + 1 : at + 12]]
    return any("FW Version" in text or "PSID:" in text for text in ahead)


def parse_lines(lines: Lines, at: int) -> Parsed[FirmwareImage]:
    """Read the fields of one NIC."""
    end, taken = block(
        lines, at, lambda text: bool(_FIELD.fullmatch(text) or _VERSION.fullmatch(text)),
        again=lambda text: bool(_HEAD.fullmatch(text)),
    )  # fmt: skip
    fields: dict[str, str] = {}
    versions: dict[str, tuple[str, str]] = {}
    for line in taken:
        if match := _VERSION.fullmatch(line.text):
            versions.setdefault(match[1], (match[2], match[3]))
        elif match := _FIELD.fullmatch(line.text):
            fields.setdefault(match[1], match[2].strip())
    device = fields.get("PCI Device Name") or queried_device(lines, at, "flint")
    return Parsed(FirmwareImage(device, lines[at].number, fields, versions), (), end)


def facts(image: FirmwareImage) -> dict[str, Any]:
    """Return the firmware as `preflight read --json` prints it."""
    versions = {name: {"current": now, "available": new} for name, (now, new) in image.versions.items()}
    return {"device": image.device, "psid": image.fields.get("PSID"), "firmware": image.burnt,
            "running": image.running, "versions": versions, "fields": dict(image.fields)}  # fmt: skip


def summary(image: FirmwareImage) -> str:
    """Return a one-line summary of the firmware."""
    version = image.burnt or next((now for now, _ in image.versions.values()), "unknown")
    return f"{image.device or 'a NIC'} {image.fields.get('PSID', '')}: firmware {version}"

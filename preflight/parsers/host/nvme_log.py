"""``nvme smart-log``: the health report of an NVMe disk.

Sources: nvme-smart-log(1); NVM Express base specification, SMART / Health Information log.
"""

from __future__ import annotations

import re

from preflight.parsers.host.disk_health import DiskHealth, facts, number, summary
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import fields_from
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ("Smart Log for NVME",)

_HEAD = re.compile(r"Smart Log for NVME device: ?(\S{1,60}) namespace-id: ?\S{1,20}")
_FIELD = re.compile(r"[\w %()./-]{2,60}?\s{0,40}:.*")
#: A bit of the critical warning, on a separate line below it.
_BIT = re.compile(r"\s{1,16}[A-Za-z][\w ./()-]{1,60}\[\d{1,2}\]\s{0,40}:.*")


def begins(lines: Lines, at: int) -> bool:
    """Return whether ``nvme smart-log`` output begins at a line."""
    return _HEAD.fullmatch(lines[at].text) is not None


def _is_field(text: str) -> bool:
    return _FIELD.fullmatch(text) is not None or _BIT.fullmatch(text) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[DiskHealth]:
    """Read the log that begins at a line."""
    head = _HEAD.fullmatch(lines[at].text)
    end, fields = fields_from(lines, at, lambda text: _is_field(text))
    fields = {" ".join(name.split()): value for name, value in fields.items() if not name.startswith("Smart Log")}
    shown = {name: number(fields.get(name)) for name in ("critical_warning", "available_spare", "media_errors")}
    lacking = [name for name, value in shown.items() if value is None]
    gaps = (ParseGap(lines[end - 1].number, f"{', '.join(lacking)}: not shown"),) if lacking else ()
    value = DiskHealth(
        None, None, None, shown["critical_warning"], shown["available_spare"],
        number(fields.get("available_spare_threshold")), number(fields.get("percentage_used")), shown["media_errors"],
        (), fields, lines[at].number, head[1] if head else None,
    )  # fmt: skip
    return Parsed(value, gaps, end)

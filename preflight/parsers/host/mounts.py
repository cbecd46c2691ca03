"""Mounted file systems and their space, from ``/proc/self/mountinfo`` and ``df``.

Sources: proc_pid_mountinfo(5); df(1) of GNU coreutils. df prints ``-`` for unknown numbers.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass

MOUNTS = "file:/proc/self/mountinfo"

#: File systems that the kernel can make read-only after an error.
_ON_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "reiserfs", "vfat", "bcachefs", "ocfs2", "gfs2")

_ESCAPE = re.compile(r"\\([0-7]{3})")
_ROW = re.compile(r"(\S{1,80})\s+([0-9]{1,20}|-)\s+([0-9]{1,20}|-)\s+([0-9]{1,20}|-)\s+([0-9]{1,20}|-)\s+(/.{0,4000})")


@dataclass(frozen=True)
class MountEntry:
    """One line of the mount table."""

    place: str
    kind: str
    source: str
    options: tuple[str, ...]  # of this mount
    of_system: tuple[str, ...]  # of the file system, independent of the mount
    written_options: str  # the same as one text, as printed
    number: str = ""  # device number, as major:minor

    @property
    def disk(self) -> str:
        """The block device as the kernel log names it; empty if there is none."""
        if self.source.startswith("/dev/mapper/"):
            return f"dm-{self.number.partition(':')[2]}" if self.number else ""
        return self.source.removeprefix("/dev/") if self.source.startswith("/dev/") else ""

    @property
    def read_only(self) -> bool:
        """Whether the mount or its file system is read-only."""
        return "ro" in self.options or "ro" in self.of_system or "emergency_ro" in self.of_system

    @property
    def turned_read_only(self) -> bool:
        """Whether the kernel made the file system read-only, not its mount options."""
        return self.kind in _ON_DISKS and self.read_only and "ro" not in self.options


@dataclass(frozen=True)
class Space:
    """The space of a file system; None if not reported."""

    kind: str
    place: str  # mount point
    size_bytes: int | None
    free_bytes: int | None  # available to unprivileged users
    inodes: int | None  # 0 if the file system creates inodes as needed
    free_inodes: int | None


def parse(text: str) -> tuple[MountEntry, ...]:
    """Read ``/proc/self/mountinfo`` in order; raises ValueError.

    At the same mount point, a later mount hides an earlier one.
    """
    entries = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        left, dash, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 3:
            raise ValueError(f"{line.strip()[:80]!r} is not a mount")
        place, source, options = _plain(fields[4]), _plain(rest[1]), rest[2]
        entries.append(
            MountEntry(
                place, rest[0], source, tuple(fields[5].split(",")), tuple(options.split(",")), options, fields[2]
            )
        )
    return tuple(entries)


def _plain(text: str) -> str:
    """Decode the octal escapes for spaces and other characters."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def parse_space(text: str) -> tuple[Space, ...]:
    """Read the table of ``df -B1 --output=…``; raises ValueError."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines or not re.match(r"Type\s+1B-blocks\s+Avail\s+Inodes\s+IFree\s+Mounted on$", lines[0]):
        raise ValueError(f"{lines[0][:80] if lines else ''!r} is not the header of df's table")
    entries = []
    for line in lines[1:]:
        if not (row := _ROW.fullmatch(line)):
            raise ValueError(f"{line[:80]!r} is not a line of df's table")
        size, free, inodes, free_inodes = (None if cell == "-" else int(cell) for cell in row.groups()[1:5])
        entries.append(Space(row[1], row[6], size, free, inodes, free_inodes))
    return tuple(entries)

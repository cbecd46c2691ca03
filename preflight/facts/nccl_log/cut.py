"""A text that somebody copied from the middle of a line on: its first host may have lost its beginning."""

from __future__ import annotations

import re

_HOST = re.compile(rb"[\w.-]*:\d{1,10}:\d{1,10} (?:\[\d{1,4}\] )?(?:\S{1,256}:\d{1,6} )?NCCL ")
_WHOLE = rb"(?<![\w.-])([A-Za-z0-9][\w.-]{0,254}?)%s(?=:\d{1,10}:\d{1,10} \[)"


def completed(lines: list[bytes]) -> list[bytes]:
    """Return the lines, the first with the host that others name in full; as they are if that is not certain."""
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is None or not _HOST.match(lines[first]):
        return lines
    end = lines[first].partition(b":")[0]
    rest = b"\n".join(lines[first + 1 :])
    if re.search(rb"(?<![\w.-])%s:\d" % re.escape(end), rest):
        return lines  # a host of its own
    begins = set(re.findall(_WHOLE % re.escape(end), rest))
    if len(begins) != 1:
        return lines
    return [*lines[:first], begins.pop() + lines[first], *lines[first + 1 :]]

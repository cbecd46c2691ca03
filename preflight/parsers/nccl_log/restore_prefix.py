"""Restoration of the level in NCCL lines that lost it.

NCCL writes ``HOST:PID:TID [DEVICE] NCCL INFO message``; up to 2.2, without its name. A user, a log shipper or a web
page may have removed the level. The remaining prefix or message identifies an NCCL line; prose has neither.
"""

from __future__ import annotations

import re

from preflight.parsers.nccl_log.prefix import LEVEL

#: Starts of messages that only NCCL writes.
_OWN = (
    rb"(?:NET/[\w ]{1,24} ?: (?:Using \[\d|No device found|GPU Direct RDMA |Made virtual device|\d interfaces found)"
    rb"|NET/OFI (?:Initializing aws-|Using aws-|Selected [Pp]rovider is |Using transport protocol|Running on \w)"
    rb"|(?:NET|COLLNET|TUNER|GIN)/Plugin ?: |NET/gIB ?: "
    rb"|Bootstrap ?: Using \S{1,80}:\S|Successfully loaded external network plugin \w|P2P plugin \w"
    rb"|(?:Channel|Ring|CollNet) \d{1,3}(?:/\d{1,3})? ?: ?\d{1,7}(?:\[\w{1,12}\])? -> \d{1,7}(?:\[\w{1,12}\])?"
    rb"(?: \[(?:send|receive)\])? via |Channel \d{2,3}/\d{2,3} ?:(?:\s+\d{1,7}){2,}\s*$"
    rb"|(?:Using network|Assigned NET plugin) [A-Z]\w*(?: [A-Z]\w*)?(?: to comm)?\s*$|Using network gIB\s*$"
    rb"|(?:\[(?:send|receive)\] )?via (?:NET/[\w ]{1,24}/\d|P2P/(?:IPC|CUMEM|direct|MNNVL)|SHM/direct|direct shared)"
    rb"|Using internal Network \w{1,32}\s*$|NET : Using interface \S"
    rb"|Connected all (?:rings|trees)\b|Trees \[0\] -?\d{1,7}/|\d{1,3} coll channels, \d"
    rb"|(?:nccl\w{1,40} )?comm 0x[0-9a-f]{4,16} rank \d{1,7} n[rR]anks \d|(?:NVLS|NVLink SHARP) comm 0x"
    rb"|NCCL_\w{2,64} set (?:by environment )?to |cudaDriverVersion \d{4,6}\s*$|NVLS multicast support is "
    rb"|Setting affinity for GPU \d|ncclTopoGetCpuAffinity: |Init timings - nccl|DMA-BUF is available on GPU )"
)
_MESSAGE = re.compile(_OWN)
#: Text before such a message if NCCL's prefix is missing: list markers, counts of `uniq -c`, remains of the level.
_LEFT = re.compile(
    rb"\s*(?:\d{1,7}\s+)?(?:(?:[>|*+#-]|//|\.{2,}|\xe2\x80\xa6|\[\s?\d{1,4}\s?\]"
    rb"|\[?(?:NCCL[ _:]?(?:INFO|WARN)?|INFO|WARN)\]?:?)\s*){0,4}(?P<message>%s.*)" % _OWN,
    re.DOTALL,
)
_PROCESS = re.compile(rb":\d{1,10}:\d{1,10} \[")
#: NCCL's prefix, and a damaged level after it.
_BEGUN = re.compile(
    rb"(?P<head>.{0,400}?(?<![\w.-])[A-Za-z0-9_][\w.-]{0,254}:\d{1,10}:\d{1,10} \[\s?\d{1,4}\s?\] )"
    rb"(?P<source>[\w./-]{1,256}:\d{1,6} (?!->))?"
    rb"(?P<level>\[?(?:(?:NCCL|nccl)\b[ _:|-]{0,3})?(?:INFO|WARN|info|warn)?\]?[:|]?\s+)?(?P<message>.*)",
    re.DOTALL,
)
#: A level in a spelling that NCCL does not use: with more spaces, a colon or brackets.
_SPELLED = re.compile(
    rb"\[?\bNCCL(?:\s{1,8}|[_:|-])\[?(?P<level>INFO|WARN)(?:\s?[:|]|\])?\s+(?=(?P<message>\S.*))", re.DOTALL
)
_WAY = re.compile(rb"\A(?:\[\w{4,7}\] )?(?=via )")
#: Characters that Markdown escapes with a backslash.
_ESCAPED = re.compile(rb"\\([\[\]<>_*#|~-])")
#: Words; every line that may be restored contains at least one.
_WORDS = (b"NCCL", b"nccl", b"NET", b" via ", b" [", b"Using ", b"rings", b"trees", b"Driver", b"comm 0x", b"plugin",
          b"channels", b"ffinity", b"GPU ", b"Channel")  # fmt: skip
#: Minimum number of messages for a text to be an NCCL log, rather than a text that quotes one.
_ENOUGH = 2
_LONGEST = 8192


def restore_prefixes(lines: list[bytes]) -> list[bytes]:
    """Restore the level in NCCL lines that lost it."""
    lines = [_plain(line) for line in lines]
    has_own_level = any((level := LEVEL.search(line)) and _is_own_level(line, level.end()) for line in lines)
    with_levels = [line if LEVEL.search(line) else _line(line) for line in lines]
    if has_own_level or any(new is not old for new, old in zip(with_levels, lines, strict=True)):
        return with_levels
    bare = [_bare(line) for line in lines]
    # "set to" may also be prose
    restored_count = sum(new is not old and b" set to " not in new for new, old in zip(bare, lines, strict=True))
    return bare if restored_count >= _ENOUGH else lines


def _is_own_level(line: bytes, end: int) -> bool:
    """Return whether a level follows NCCL's prefix or precedes an NCCL message."""
    return _PROCESS.search(line, 0, end) is not None or _MESSAGE.match(line, end) is not None


def _plain(line: bytes) -> bytes:
    """Remove the backslashes that Markdown adds to an NCCL line."""
    return _ESCAPED.sub(rb"\1", line) if b"\\" in line and b"NCCL" in line else line


def _line(line: bytes) -> bytes:
    """Restore a missing level after NCCL's prefix, or one in another spelling.

    Any other line is returned unchanged.
    """
    if len(line) > _LONGEST or (b"NCCL" not in line and b" [" not in line):
        return line
    if (spelled := _SPELLED.search(line)) and _MESSAGE.match(spelled["message"]):
        return line[: spelled.start()] + b"NCCL " + spelled["level"] + b" " + spelled["message"]
    if not _PROCESS.search(line) or not (begun := _BEGUN.fullmatch(line)):
        return line
    printed_level = (begun["level"] or b"").upper()
    warns = begun["source"] or b"WARN" in printed_level
    if warns or b"INFO" in printed_level or _MESSAGE.match(begun["message"]):
        level = b"WARN" if warns else b"INFO"
        return begun["head"] + (begun["source"] or b"") + b"NCCL " + level + b" " + begun["message"]
    return line


def _bare(line: bytes) -> bytes:
    """Restore the level of a line that has only the message; return others unchanged."""
    if not line or len(line) > _LONGEST or not any(word in line for word in _WORDS):
        return line
    if not (left := _LEFT.fullmatch(line)):
        return line
    # channel lines often show only the transport
    return b"NCCL INFO " + _WAY.sub(b"Channel 00 ", left["message"], count=1)

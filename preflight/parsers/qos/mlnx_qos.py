"""``mlnx_qos -i IF`` (mlnx-tools, MLNX_OFED): trust state, DSCP map, PFC, receive buffers, DCBX mode.

Needs root. What a version or a function does not show is None, not zero.
"""

from __future__ import annotations

import re
from functools import lru_cache

from preflight._startup.lightclass import dataclass
from preflight.parsers.qos.dcb import PRIORITIES, Buffers, DscpMap
from preflight.textprep.plain_text import normalize_text


@dataclass(frozen=True)
class MlnxQos:
    """What the tool shows of one port."""

    pfc: frozenset[int]  # priorities with PFC on
    trust: str | None  # dscp or pcp
    dscp: DscpMap | None  # shown while DSCP is trusted
    buffers: Buffers | None
    dcbx: str | None  # os or firmware


_ROW = re.compile(r"(priority|enabled|buffer)((?:[ \t]+[0-9]{1,2})+)")


@lru_cache(maxsize=64)  # each of its values is asked for by itself, and ports and nodes are set up alike
def parse(text: str) -> MlnxQos:
    """Read the tool's output; raises ValueError if it holds no PFC configuration, or half of one."""
    lines = [line.strip() for line in normalize_text(text).split("\n")]
    if "PFC configuration:" not in lines:
        raise ValueError("there is no PFC configuration in it")
    rows = dict[str, list[int]]()
    for line in lines[lines.index("PFC configuration:") + 1 :]:
        if not (match := _ROW.fullmatch(line)):
            break
        rows[match[1]] = [int(number) for number in match[2].split()]
    if not {"priority", "enabled"} <= rows.keys():
        raise ValueError("there is no PFC configuration in it")
    if len({len(row) for row in rows.values()}) != 1:
        raise ValueError("its PFC rows are of different length")
    if rows["priority"] != list(PRIORITIES) or not set(rows["enabled"]) <= {0, 1}:
        raise ValueError("its PFC rows are not those of priorities 0 to 7")
    trust = _word(lines, r"Priority trust state: (dscp|pcp)")
    return MlnxQos(
        pfc=frozenset(priority for priority, on in zip(rows["priority"], rows["enabled"], strict=True) if on),
        trust=trust,
        dscp=_dscp(lines) if trust == "dscp" else None,
        buffers=_buffers(lines, rows.get("buffer")),
        dcbx={"OS": "os", "Firmware": "firmware", None: None}[_word(lines, r"DCBX mode: (OS|Firmware) controlled")],
    )


def _word(lines: list[str], pattern: str) -> str | None:
    return next((match[1] for line in lines if (match := re.fullmatch(pattern, line))), None)


def _dscp(lines: list[str]) -> DscpMap | None:
    """Read the map; a DSCP that is in no row, or in two, is one that the output does not settle."""
    of: dict[int, frozenset[int]] = {}
    for line in lines:
        if match := re.fullmatch(r"prio:([0-7]) dscp:([0-9,]*)", line):
            for number in re.findall("[0-9]{1,2}", match[2]):
                if int(number) > 63:
                    raise ValueError(f"DSCP {number} is out of range")
                of[int(number)] = of.get(int(number), frozenset()) | {int(match[1])}
    return DscpMap(of) if of else None


def _buffers(lines: list[str], row: list[int] | None) -> Buffers | None:
    found = _word(lines, r"Receive buffer size \(bytes\): ((?:[0-9]{1,12},){8})(?:max_buffer_size=[0-9]+)?")
    if row is None or found is None:
        return None
    if not set(row) <= set(PRIORITIES):
        raise ValueError("its row of buffers names one that is not there")
    return Buffers(tuple(row), tuple(int(size) for size in found.rstrip(",").split(",")))

"""``nvidia-smi topo -p2p``: peer access between GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.nvidia.topo_lines import LEGEND_LINE, PEER, ROW, cleaned, first_row, header, is_p2p
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines


@dataclass(frozen=True)
class PeerAccess:
    """Peer access between GPUs: OK, or the code of the reason why there is none."""

    gpus: tuple[str, ...]
    access: Mapping[str, Mapping[str, str]]  # GPU -> other GPU -> code


def begins(lines: Lines, at: int) -> bool:
    """Return whether a matrix of peer access begins at a line."""
    if "GPU" not in lines[at].text:
        return False
    names, _, end = header(lines, at)
    return bool(names) and is_p2p(first_row(lines, end)[: len(names)])


def parse_lines(lines: Lines, at: int) -> Parsed[PeerAccess]:
    """Read the matrix that begins at a line."""
    names, _, end = header(lines, at)
    access: dict[str, dict[str, str]] = {}
    gaps: list[ParseGap] = []
    while end < len(lines):
        text = cleaned(lines[end].text)
        match = ROW.fullmatch(text)
        if match and match[1] not in access:
            cells = list(itertools.takewhile(PEER.fullmatch, match[2].split()))
            if len(cells) < len(names):
                gaps.append(ParseGap(lines[end].number, f"the row of {match[1]} is truncated"))
            row = zip(names, cells, strict=False)
            access[match[1]] = {other: cell for other, cell in row if other != match[1]}
        elif text.strip() and not LEGEND_LINE.fullmatch(text):
            break
        end += 1
    missing = [name for name in names if name not in access]
    gaps += [ParseGap(lines[end - 1].number, f"the row of {name} is missing") for name in missing]
    return Parsed(PeerAccess(tuple(names), access), tuple(gaps), end)


HINTS = ("GPU",)

"""Text summary of an NVLink matrix: one sentence, and the pairs that differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_ARCS = 64
_BONDED = re.compile(r"NV([0-9]{1,3})")

Pair = tuple[str, str]


@dataclass(frozen=True)
class NvLink:
    """NVLink between a node's GPUs."""

    kind: str  # "even": the same code for all pairs; "weak": some have fewer links; "some": few are linked; "none"
    summary: str
    gpus: tuple[str, ...] = ()
    arcs: tuple[tuple[str, str, str], ...] = ()  # pairs to draw: GPU, GPU, code
    standing_out: tuple[tuple[str, tuple[Pair, ...]], ...] = ()  # code -> pairs that differ from most

    @classmethod
    def of(cls, groups: Iterable[Mapping[str, Any]]) -> NvLink:
        """Summarise ``topology["nvlink"]``: pairs grouped by code, most common first."""
        codes = {str(group["code"]): tuple((str(a), str(b)) for a, b in group["pairs"]) for group in groups}
        codes = {code: pairs for code, pairs in codes.items() if pairs}
        if not codes:
            return cls("none", "not read")
        gpus = tuple(sorted({name for pairs in codes.values() for pair in pairs for name in pair}, key=_natural))
        read, planned = sum(map(len, codes.values())), len(gpus) * (len(gpus) - 1) // 2
        every = f"all {read} pairs of {len(gpus)} GPUs" if read == planned else f"{read} of {planned} pairs read"
        counts = ", ".join(f"{code} on {len(pairs)}" for code, pairs in codes.items())
        base = next(iter(codes))
        if not any(map(links, codes)):
            return cls("none", f"none; GPUs reach each other over PCIe ({counts} of {planned} pairs)", gpus)
        if len(codes) == 1:
            words = f"{base} all-to-all, {every}" if read == planned else f"{base}, {every}"
            return cls("even", words, gpus)
        if links(base):
            apart = {code: pairs for code, pairs in codes.items() if links(code) < links(base)}
            kind = "weak" if apart else "some"
        else:
            apart = {code: pairs for code, pairs in codes.items() if links(code)}
            kind = "some"
        arcs = [(a, b, code) for code, pairs in apart.items() for a, b in pairs]
        return cls(kind, f"{counts} of {planned} pairs", gpus, tuple(arcs[:MOST_ARCS]), tuple(apart.items()))

    def lines(self) -> list[str]:
        """Describe the pairs that differ, one sentence per code."""
        verb = "fewer links than most" if self.kind == "weak" else "linked"
        return [f"{code} ({verb if links(code) else 'over PCIe'}): {_named(p)}." for code, p in self.standing_out]


def links(code: str) -> int:
    """Return the number of bonded links of a code; 0 for a path over PCIe."""
    match = _BONDED.fullmatch(code)
    return int(match[1]) if match else 0


def _named(pairs: Sequence[Pair], most: int = 12) -> str:
    shared = set(pairs[0]).intersection(*map(set, pairs))
    if len(pairs) > 2 and shared:
        hub = shared.pop()
        others = [b if a == hub else a for a, b in pairs]
        return f"{hub} with {_some(others, most)}"
    return _some([f"{a}–{b}" for a, b in pairs], most)


def _some(names: Sequence[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    parts = re.split(r"([0-9]{1,9})", name)
    return tuple((int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts if part)

"""Baselines: rates of good runs, for comparison on the same hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from preflight.bench.comparison import Comparison, References
from preflight.bench.observation import RunKind
from preflight.bench.reference import UsualRate
from preflight.schemas.conform import find_error

SCHEMA = "preflight.bench.baseline/1"

#: Minimum number of launches of one kind.
_FEWEST = 3


@dataclass(frozen=True)
class BaselineEntry:
    """The usual rate of one kind of run."""

    collective: str
    ranks: int
    nodes: int
    load: str
    bytes: int
    busbw_gbytes_s: float
    noise: float  # relative noise of one launch
    launches: int
    gpu: str  # model of the GPUs
    nccl: str  # version of NCCL

    @property
    def key(self) -> tuple[RunKind, int]:
        """The kind and the message size."""
        return RunKind(self.collective, self.ranks, self.nodes, self.load), self.bytes


def learn(comparisons: Iterable[Comparison], nccl: Sequence[str]) -> tuple[BaselineEntry, ...]:
    """Return the usual rate of each kind of run.

    Raises ValueError unless all runs are good, and of one GPU model and NCCL version.
    """
    entries: list[BaselineEntry] = []
    for comparison in comparisons:
        if comparison.slow.named or comparison.stopped.named or comparison.low or any(
            held.slow or not held.run.complete for held in comparison.held
        ) or not all(level.usual for level in comparison.levels):  # fmt: skip
            raise ValueError("a run was slow or did not end")
        models = sorted({model for held in comparison.held for model in held.run.models})
        if len(models) != 1 or len(nccl) != 1:
            raise ValueError("the runs do not all have the same GPU model and NCCL version")
        for size in sorted({held.bytes for held in comparison.judged if held.bytes is not None}):
            own = [held for held in comparison.judged if held.bytes == size and held.reference is not None]
            if len(own) >= _FEWEST:
                rates = [held.run.busbw[size] for held in own]
                noise = max(held.reference.sigma for held in own if held.reference is not None)
                kind, usual = comparison.kind, round(median(rates), 3)
                entries.append(BaselineEntry(kind.collective, kind.ranks, kind.nodes, kind.load, size, usual,
                                             round(noise, 5), len(own), models[0], nccl[0]))  # fmt: skip
    if not entries:
        raise ValueError(f"fewer than {_FEWEST} launches of one kind could be judged")
    return tuple(entries)


def document(entries: Sequence[BaselineEntry]) -> dict[str, Any]:
    """Return a baseline as a JSON document."""
    return {"schema": SCHEMA, "entries": [asdict(entry) for entry in entries]}


def from_document(value: Any) -> tuple[BaselineEntry, ...]:
    """Return the entries of a document. Raises ValueError if it is invalid."""
    if wrong := find_error(value, "bench-baseline-1", exact=True):
        raise ValueError(wrong)
    return tuple(BaselineEntry(**entry) for entry in value["entries"])


def references(entries: Sequence[BaselineEntry], models: Iterable[str], nccl: Iterable[str]) -> References:
    """Return the references for these GPU models and NCCL versions; may be empty."""
    wanted = (frozenset(models), frozenset(nccl))
    return {entry.key: UsualRate(entry.busbw_gbytes_s, entry.noise) for entry in entries
            if (frozenset({entry.gpu}), frozenset({entry.nccl})) == wanted}  # fmt: skip

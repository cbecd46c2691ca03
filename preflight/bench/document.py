"""The JSON document of a comparison of runs: ``preflight.bench/1``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight.bench import factors
from preflight.bench.comparison import ComparedRun, Comparison
from preflight.bench.distance import RateLevel
from preflight.bench.explanation import FactorEvidence
from preflight.bench.factors import Factor
from preflight.bench.observation import RunEnd, RunKind

SCHEMA = "preflight.bench/1"

#: Kind of a factor -> the runs that separate such a factor from its rivals.
_NEXT = {
    factors.NODE: "the node with two other nodes, in new launches",
    factors.GPU: "the GPU with two other nodes, and another GPU of the node",
    factors.RAIL: "other pairs on this rail, and the same pairs on another one",
    factors.TO_OTHER_RAIL: "pairs with this rail at both ends",
    factors.LEAF: "pairs within the leaf, and from it to other leaves",
    factors.UPLINKS: "other nodes of the leaf to other leaves, one pair at a time",
    factors.LEAF_PAIR: "other nodes of these leaves, one pair at a time",
    factors.UPLINK: "other pairs that use this link, one at a time",
}  # fmt: skip


def document(comparisons: Iterable[Comparison]) -> dict[str, Any]:
    """Return the document of comparisons; runs are in the order of the input."""
    everything = list(comparisons)
    return {
        "schema": SCHEMA,
        "observations": [_observation(held) for item in everything for held in item.held],
        "factors": [entry for item in everything for entry in _factors(item)],
        "levels": [_level(item.kind, level) for item in everything for level in item.levels],
        "coverage": _coverage(everything),
    }


def what(kind: RunKind) -> dict[str, Any]:
    """Return the description of a kind of run."""
    return {"collective": kind.collective, "ranks": kind.ranks, "nodes": kind.nodes}


def next_step(cause: FactorEvidence) -> str:
    """Return, as text, the runs that separate a cause from its rivals or confirm it."""
    rival = next((rival.kind for rival in cause.alike), cause.factor.kind)
    return _NEXT.get(rival, _NEXT[factors.NODE])


def _observation(held: ComparedRun) -> dict[str, Any]:
    run, limit = held.run, held.reference
    return {
        "source": run.source,
        **what(run.kind),
        "group": list(run.nodes),
        "ends": [_end(end) for end in run.ends],
        "outcome": run.outcome,
        "why": run.why or None,
        "bytes": held.bytes,
        "busbw_gbytes_s": run.busbw[held.bytes] if held.bytes is not None else None,
        "ref": round(limit.busbw, 3) if limit else None,
        "ref_from": None if limit is None else "baseline" if limit.given else "these runs",
        "share": None if held.share is None else round(held.share, 4),
        "slow": held.slow if limit else None,
    }


def _end(end: RunEnd) -> dict[str, Any]:
    return {"node": end.node, "gpu": list(end.gpus), "leaf": end.leaf}


def _factors(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for effect, explanation in (("slow", comparison.slow), ("does not run", comparison.stopped)):
        for cause in explanation.named:
            if cause.factor.kind in factors.RELATIONS:
                continue
            yield {
                **what(comparison.kind),
                "effect": effect,
                **_factor(cause.factor),
                "slow": cause.slow,
                "runs": cause.runs,
                "elsewhere": list(cause.elsewhere),
                "bits": round(cause.bits, 1),
                "same_as": [_factor(rival) for rival in cause.alike],
                "next": next_step(cause),
            }


def _factor(factor: Factor) -> dict[str, Any]:
    return {"kind": factor.kind, "of": factor.of, **({"node": factor.node} if factor.node else {})}


def _level(kind: RunKind, level: RateLevel) -> dict[str, Any]:
    return {
        **what(kind),
        "relation": level.relation,
        "share": round(level.share, 3),
        "runs": level.runs,
        "bits": round(level.bits, 1),
        "usual": level.usual,
        "blocks": [list(block) for block in level.blocks],
    }


def _coverage(comparisons: Sequence[Comparison]) -> Mapping[str, Any]:
    runs = [held for item in comparisons for held in item.held]
    nodes = {node for held in runs for node in held.run.nodes}
    pairs = {frozenset(held.run.nodes) for held in runs if len(held.run.nodes) == 2}
    return {
        "runs": len(runs),
        "judged": sum(held.reference is not None for held in runs),
        "stopped": sum(not held.run.complete for held in runs),
        "nodes": len(nodes),
        "pairs": [len(pairs), len(nodes) * (len(nodes) - 1) // 2],
        "gpus": len({(end.node, gpu) for held in runs for end in held.run.ends for gpu in end.gpus}),
    }

"""A simulated fabric: nodes on leaves, rails, uplinks, intermittent faults, noise, collisions of flows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.bench import factors
from preflight.bench.factors import Factor
from preflight.bench.observation import Observation, RunEnd, RunKind
from preflight.bench.planner import BenchPlan, Past, Round, assess, next_round

BYTES = 2**30


@dataclass(frozen=True)
class SimulatedFault:
    """A slow part: ``share`` of the rate remains in ``theta`` of its runs."""

    factor: Factor
    share: float
    theta: float = 1.0


@dataclass
class SimulatedFabric:
    """A fabric that executes a planner's runs; the same seed gives the same rates."""

    faults: Sequence[SimulatedFault] = ()
    seed: int = 1
    sigma: float = 0.01
    uplinks: int = 8  # of each leaf, over which flows are hashed
    false_slow: float = 0.0

    def run(self, made: Round) -> list[Observation]:
        """Return the measurements of a round's runs."""
        draw = random.Random(f"{self.seed}:{made.number}")
        collisions = self._collisions(made, draw)
        results = []
        for ends in made.runs:
            kind = RunKind("alltoall", sum(len(end.gpus) for end in ends) or len(ends), len(ends), made.load)
            run = Observation(kind, ends, source=str(made.number))
            rate = 40.0 * (0.92 if len({end.leaf for end in ends}) > 1 else 1.0) / collisions.get(ends, 1)
            rails = factors.RailAddresses([run])
            parts = {*factors.of(run, rails, {})} | {Factor(factors.RAIL, gpu) for end in ends for gpu in end.gpus}
            for fault in self.faults:
                if fault.factor in parts and draw.random() < fault.theta:
                    rate *= fault.share
            if draw.random() < self.false_slow:
                rate *= 0.8
            results.append(Observation(kind, ends, {BYTES: rate * (1 + draw.gauss(0, self.sigma))},
                                       source=str(made.number)))  # fmt: skip
        return results

    def _collisions(self, made: Round, draw: random.Random) -> dict[tuple[RunEnd, ...], int]:
        """Return the number of flows on the uplink of each run if all nodes of a leaf send at once."""
        if made.load != "loaded":
            return {}
        hashed = {ends: (ends[0].leaf, draw.randrange(self.uplinks)) for ends in made.runs}
        counts = Counter(hashed.values())
        return {ends: counts[uplink] for ends, uplink in hashed.items()}


def cluster(nodes: int, leaf: int, rails: int = 8, **options: object) -> BenchPlan:
    """Return the plan of a cluster with this many nodes, and this many on a leaf."""
    names = tuple(f"node{number:05d}" for number in range(nodes))
    leaves = {name: f"leaf{number // leaf:03d}" for number, name in enumerate(names)}
    addresses = tuple(f"0000:{16 * (rail + 1):02x}:00" for rail in range(rails))
    return BenchPlan(names, leaves, addresses, **options)  # type: ignore[arg-type]


def campaign(plan: BenchPlan, fabric: SimulatedFabric, most: int = 40) -> list[tuple[Round, list[Observation]]]:
    """Run a planner on a fabric to its end."""
    past: list[tuple[Round, list[Observation]]] = []
    while len(past) < most and (made := next_round(plan, past)) is not None:
        past.append((made, fabric.run(made)))
    return past


def named(past: Past) -> list[set[Factor]]:
    """Return the parts that a campaign names, each with its rivals."""
    return [{cause.factor, *cause.alike} for cause in assess(past).explanation.named]

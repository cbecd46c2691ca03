"""Cost of planning a campaign of 10,000 nodes, and of explaining all pairs of 512.

Run ``python -m benchmarks.bench_planning`` from the top of the repository. It exits with 1 if a cost is above its
limit, or if other parts than the faulty ones are named.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Sequence
from itertools import combinations

from preflight.bench.comparison import compare
from preflight.bench.factors import NODE, RAIL, UPLINKS, Factor
from preflight.bench.observation import RunEnd
from preflight.bench.planner import BenchPlan, Round, next_round
from tests.support.simulated_fabric import SimulatedFabric, SimulatedFault, cluster

#: Limits: seconds of CPU and megabytes of a plan, seconds of CPU of an explanation.
PLAN_S, PLAN_MB, EXPLAIN_S = 0.5, 100, 10.0

#: Purpose and number of the simulated round that has all pairs.
_ALL_PAIRS = "all pairs"


def main() -> int:
    """Measure all costs; return the exit status."""
    started = time.process_time()
    planned = next_round(cluster(10_000, 32), [])
    seconds = time.process_time() - started
    tracemalloc.start()
    next_round(cluster(10_000, 32), [])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"plan, 10,000 nodes: {len(planned.runs) if planned else 0:,} runs, {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB"
    )
    missed = seconds > PLAN_S or peak > PLAN_MB * 1e6
    plan = cluster(512, 32)
    draw = random.Random(1)
    nodes = [SimulatedFault(Factor(NODE, node), 0.5) for node in draw.sample(plan.nodes, 30)]
    rail = SimulatedFault(Factor(RAIL, plan.rails[4]), 0.07, 0.26)
    uplinks = SimulatedFault(Factor(UPLINKS, "leaf003"), 1 / 3)
    for faults, false_slow in (([], 0.0), ([rail], 0.0), ([uplinks], 0.01), (nodes, 0.0), ([*nodes, rail], 0.01)):
        missed |= not _explained(plan, faults, false_slow, draw)
    return int(missed)


def _explained(plan: BenchPlan, faults: Sequence[SimulatedFault], false_slow: float, draw: random.Random) -> bool:
    """Explain runs of all pairs, each on one rail; return whether limits are met."""
    ends = [tuple(RunEnd(node, (draw.choice(plan.rails),), plan.leaves[node]) for node in pair)
            for pair in combinations(plan.nodes, 2)]  # fmt: skip
    runs = SimulatedFabric(faults, false_slow=false_slow).run(Round(1, _ALL_PAIRS, tuple(ends)))
    started = time.process_time()
    (comparison,) = compare(runs)
    seconds = time.process_time() - started
    named = {cause.factor for cause in comparison.slow.named}
    wanted = {fault.factor for fault in faults}
    print(f"explanation, {len(runs):,} runs, {len(faults)} faults, {false_slow:.0%} slow by chance: {seconds:.1f} s of "
          f"CPU, {len(named & wanted)} of {len(wanted)} named, {len(named - wanted)} others")  # fmt: skip
    return seconds <= EXPLAIN_S and named == wanted


if __name__ == "__main__":
    sys.exit(main())

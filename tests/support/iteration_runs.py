"""Output of nccl-tests with single iterations (-I, -J), in the format of 2.19.6, with given figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from preflight.bench.planner import circle
from tests.support.pair_runs import GIB, NODES, log
from tests.support.paths import ROOT

#: Column names of -I, and their places in a table row.
_COLUMNS = "  {:>7}  {:>7}  {:>7}  {:>7}"


def table(times: Sequence[float]) -> str:
    """Return the text of a run of two nodes with these iteration times, µs."""
    mean, ordered = sum(times) / len(times), sorted(times)
    deviation = math.sqrt(sum((time - mean) ** 2 for time in times) / len(times))
    p99 = ordered[math.ceil(0.99 * len(times)) - 1]
    own = _COLUMNS.format(*(f"{value:.2f}" for value in (ordered[0], ordered[-1], p99, deviation / mean * 100)))
    text = log("alltoall", {"gpu001": ["0000:1a:00"], "gpu002": ["0000:1a:00"]}, {GIB: GIB / mean / 2000})
    lines = []
    for line in text.replace("iters: 20 ", f"iters: {len(times)} ").splitlines():
        if line.endswith("#wrong"):
            line = line.replace("#wrong", f"#wrong{_COLUMNS.format('i_min', 'i_max', 'i_p99', 'i_cv%')}")
        elif line.lstrip().startswith(f"{GIB} "):
            out, _, rest = line.rpartition("       0  ")
            line = f"{out}       0{own}  {rest}{own}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def document(
    groups: Sequence[Sequence[str]],
    times: Sequence[Sequence[float]],
    skipped: int = 0,
    gpus: int = 1,
    wrong: int = 0,
    size: int = GIB,
) -> dict[str, Any]:
    """Return the JSON of an alltoall of one size; ``groups`` are the hosts of each communicator, one process each.

    ``times`` are the times of each process, µs, first the ``skipped`` ones.
    """
    hosts = [(group, host) for group, own in enumerate(groups) for host in own]
    slowest = [max(column) for column in zip(*times, strict=True)]
    counted = sorted(slowest[skipped:])
    mean = sum(counted) / len(counted)
    deviation = math.sqrt(sum((time - mean) ** 2 for time in counted) / len(counted))
    single = {
        "skipped_iterations": skipped, "min_us": counted[0], "max_us": counted[-1], "avg_us": mean,
        "p50_us": counted[len(counted) // 2], "p95_us": counted[(len(counted) * 95 + 99) // 100 - 1],
        "p99_us": counted[(len(counted) * 99 + 99) // 100 - 1], "stdev_us": deviation,
        "cv_pct": deviation / mean * 100, "times_us": slowest, "per_process_max_times_us": [list(row) for row in times],
    }  # fmt: skip
    ranks = len(groups[0]) * gpus
    algbw = size / mean / 1000
    half = {"time": mean, "alg_bw": algbw, "bus_bw": algbw * (ranks - 1) / ranks, "nwrong": wrong}
    return {
        "version": 4, "args": ["alltoall_perf"], "env": [], "nccl_version": 23007,
        "config": {
            "nthreads": 1, "ngpus": gpus, "iterations": len(slowest), "validation": 1, "per_iter_timing": "true",
            "per_iter_skip": skipped,
            "devices": [
                {"rank": place * gpus, "group": group, "pid": 4000 + place, "hostname": host, "device": 0,
                 "device_hex": "0000:1a:00", "device_info": "NVIDIA H100 80GB HBM3"}
                for place, (group, host) in enumerate(hosts)
            ],
        },
        "results": [{
            "size": size, "count": size // 8 // ranks, "type": "double", "redop": "none", "root": "    -1",
            "out_of_place": half, "out_of_place_per_iter": single, "in_place": half, "in_place_per_iter": single,
            "actual_iterations": len(slowest), "experiment_name": "",
        }],
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": half["bus_bw"], "okay": "unchecked"}, "errors": [""],
    }  # fmt: skip


def pairs(slow: str = "", count: int = 10, seconds: float = 0.0134, iterations: int = 20) -> str:
    """Return the JSON of a split run over ``count`` pairs; the pairs of a slow node take four times as long."""
    groups = [[f"gpu{2 * number + 1:03d}", f"gpu{2 * number + 2:03d}"] for number in range(count)]
    times = [
        [seconds * 1e6 * (4 if slow in group and slow else 1) * (1 + 0.001 * ((place * 7 + turn * 3) % 5))
         for turn in range(iterations)]
        for place, group in enumerate(groups) for _ in group
    ]  # fmt: skip
    return json.dumps(document(groups, times), indent=1)


def tail_times(count: int, slow: int, factor: float) -> list[float]:
    """Return times of 30 µs, with this many longer ones spread evenly."""
    every = count // slow if slow else count + 1
    return [30.0 * (factor if turn % every == every // 2 and turn // every < slow else 1 + 0.002 * (turn % 7))
            for turn in range(count)]  # fmt: skip


#: Case of ``bench.tail`` -> (output, findings).
CASES: dict[str, tuple[str, list[dict[str, str]]]] = {
    "healthy": (table(tail_times(500, 3, 3.0)), [{"status": "pass", "message": "1 GiB: mean 30.5 µs, p99 30.36 µs"}]),
    "long-tail": (
        table(tail_times(500, 20, 4.0)),
        [{"status": "warn", "message": "1 GiB: mean 33.8 µs, p99 120 µs"}],
    ),
    "few-iterations": (
        table(tail_times(100, 20, 4.0)),
        [{"status": "unknown", "message": "100 iterations do not show a 99th percentile"}],
    ),
    "no-iterations": (
        log("alltoall", {"gpu001": ["0000:1a:00"], "gpu002": ["0000:1a:00"]}, {GIB: 40.0}), [{"status": "skip"}],
    ),
}  # fmt: skip


def all_pairs(
    slow: Sequence[tuple[str, str]] = (), tail: Sequence[tuple[str, str]] = (), count: int = 300, without: int = 0
) -> dict[str, object]:
    """Return the JSON of split runs over all pairs of four nodes, three turns, messages of 8 KiB.

    Iterations of a ``slow`` pair take three times as long; of a ``tail`` pair, 1 in 40 takes eight times as long. The
    last turns are omitted.
    """
    made: dict[str, object] = {}
    nodes = NODES[:4]
    for turn in range(len(nodes) - 1 - without):
        groups = [tuple(sorted(pair)) for pair in circle(nodes, turn)]
        times = []
        for group in groups:
            own = [(60.0 if group in slow else 20.0) * (8 if group in tail and number % 40 == 7 else 1)
                   * (1 + 0.002 * ((number * 7 + turn) % 11)) for number in range(count)]  # fmt: skip
            times += [[round(time, 2) for time in own], [round(time * 0.99, 2) for time in own]]
        made[f"log:turn{turn}.json"] = json.dumps(document(groups, times, size=8192), separators=(",", ":"))
    return made


_ONE = [("gpu002", "gpu003")]

#: Case of ``bench.pair-times`` -> (records, findings).
PAIR_CASES: dict[str, tuple[dict[str, object], list[dict[str, str]]]] = {
    "all-pairs": (all_pairs(), [{"status": "pass", "message": "all 6 pairs of 4 nodes take at most 20.2 µs"}]),
    "one-slow-pair": (
        all_pairs(slow=_ONE),
        [{"status": "warn", "message": "gpu002 and gpu003: alltoall over 2 GPUs at 8 KiB takes 60.6 µs",
          "subject": "gpu002 - gpu003"}],
    ),
    "one-tail": (
        all_pairs(tail=_ONE),
        [{"status": "warn", "message": "takes 20.2 µs, 99% within 16", "subject": "gpu002 - gpu003"}],
    ),
    "two-kinds-of-paths": (
        all_pairs(slow=[(a, b) for a, b in combinations(NODES[:4], 2) if (a > "gpu002") is not (b > "gpu002")]),
        [{"status": "unknown", "message": "4 of 6 pairs take more than 2 times the 20.2 µs"}],
    ),
    "a-turn-is-missing": (
        all_pairs(without=1), [{"status": "unknown", "message": "2 of 6 pairs of nodes were not measured"}],
    ),
    "few-iterations": (
        all_pairs(count=100), [{"status": "unknown", "message": "no pair of nodes ran 299 iterations of one"}],
    ),
    "large-messages": ({"log:run.json": pairs(count=2)}, [{"status": "skip"}]),
}  # fmt: skip


def main() -> None:
    """Write the fixtures."""
    origin = "made by hand: figures invented, in the format of nccl-tests 2.19.6 (tests/support/iteration_runs.py)"
    (folder := ROOT / "fixtures/bench.pair-times").mkdir(exist_ok=True)
    for name, (records, findings) in PAIR_CASES.items():
        fixture = {"origin": origin, "records": records, "findings": findings}
        (folder / f"{name}.json").write_text(json.dumps(fixture, indent=1) + "\n")
    (folder := ROOT / "fixtures/bench.tail").mkdir(exist_ok=True)
    for name, (text, findings) in CASES.items():
        fixture = {"origin": origin, "records": {"log:run.out": text}, "findings": findings}
        (folder / f"{name}.json").write_text(json.dumps(fixture, indent=1) + "\n")


if __name__ == "__main__":
    main()

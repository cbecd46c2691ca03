"""Output of nccl-tests over pairs of nodes, in the format of 2.19.6, with given figures.

``python -m tests.support.pair_runs`` writes the fixtures of the checks of pairwise runs.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from tests.support.paths import ROOT

GIB = 2**30

_GPU = "NVIDIA H100 80GB HBM3"

_HEAD = (
    f"#{'out-of-place':>74}{'in-place':>31}          ",
    f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    + 2 * f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  #wrong",
    f"# {'(B)':>10}  {'(elements)':>12}{'':26}" + 2 * f"  {'(us)':>7}  (GB/s)  (GB/s)        ",
)

#: Nodes and rails of the cluster in the fixtures.
NODES = tuple(f"gpu{number:03d}" for number in range(1, 9))
RAILS = tuple(f"0000:{bus}:00" for bus in ("1a", "3c", "4d", "5e", "9a", "bc", "cd", "de"))


def log(
    collective: str,
    ends: Mapping[str, Sequence[str]],
    busbw: Mapping[int, float | None],
    ended: str = "ok",
) -> str:
    """Return the output of one run: ``ends`` are the bus addresses by node, ``busbw`` GB/s by bytes.

    ``ended`` is "ok", "failed" (NCCL reports an error) or "cut" (the output stops).
    """
    first, *_ = ends
    lines = [
        "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007",
        f"# Collective test starting: {collective}_perf",
        f"# nThread 1 nGpus 1 minBytes {min(busbw)} maxBytes {max(busbw)} step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
    ]
    rank = 0
    for node, gpus in ends.items():
        for index, gpu in enumerate(gpus):
            lines.append(f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on {node:>10} device {index:2d} [{gpu}] {_GPU}")
            rank += 1
    lines += ["#", *_HEAD]
    if ended == "failed":
        lines.append(
            f"{first}: Test NCCL failure {collective}.cu:274 'remote process exited or there was a network error / '"
        )
        return "\n".join(lines) + "\n"
    if ended == "cut" and all(value is None for value in busbw.values()):
        return "\n".join(lines) + "\n"
    factor = (rank - 1) / rank if collective == "alltoall" else 1.0
    count, redop = (rank * 8, "none") if collective == "alltoall" else (8, "sum")
    values = []
    for size, value in busbw.items():
        if value is None:
            continue
        algbw = value / factor
        half = f"  {size / algbw / 1000:7.1f}  {algbw:6.2f}  {value:6.2f}"
        lines.append(f"{size:12d}  {size // count:12d}    double  {redop:>6}      -1{half}       0{half}     N/A")
        values.append(value)
    if ended == "cut":
        return "\n".join(lines) + "\n"
    lines += [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sum(values) / len(values):g} ",
        "#",
        f"# Collective test concluded: {collective}_perf",
        "#",
    ]
    return "\n".join(lines) + "\n"


def records(rate: Callable[[str, str, str, str], float | None], seed: int = 7, repeats: int = 1) -> dict[str, str]:
    """Return a log for each pair of ``NODES`` on random rails: ``rate`` takes (node, rail, node, rail).

    A rate of None is a run that fails.
    """
    draw = random.Random(seed)
    made = {}
    for number in range(repeats):
        for node, other in combinations(NODES, 2):
            a, b = draw.choice(RAILS), draw.choice(RAILS)
            value = rate(node, a, other, b)
            noisy = None if value is None else value * (1 + draw.gauss(0, 0.004))
            text = log("alltoall", {node: [a], other: [b]}, {GIB: noisy}, "ok" if value is not None else "failed")
            made[f"log:{node}-{other}{f'-{number}' if number else ''}.out"] = text
    return made


def _healthy(node: str, a: str, other: str, b: str) -> float:
    return 44.0 if a == b else 40.0


def _bad_node(node: str, a: str, other: str, b: str) -> float:
    return 11.0 if "gpu003" in (node, other) else _healthy(node, a, other, b)


def _bad_rail(node: str, a: str, other: str, b: str) -> float:
    return 7.0 if RAILS[4] in (a, b) else _healthy(node, a, other, b)


def _one_pair(node: str, a: str, other: str, b: str) -> float:
    return 20.0 if (node, other) == ("gpu002", "gpu006") else _healthy(node, a, other, b)


def _older_half(node: str, a: str, other: str, b: str) -> float:
    return 20.0 if max(node, other) > "gpu004" else _healthy(node, a, other, b)


def _scattered(node: str, a: str, other: str, b: str) -> float:
    """Return evenly spaced rates from 13 to 40 GB/s: other jobs used the fabric at the same time."""
    return 40.0 * 3 ** -(int.from_bytes(hashlib.sha256(f"{node}{a}{other}{b}".encode()).digest()[:4], "big") / 2**32)


def _two_fail(node: str, a: str, other: str, b: str) -> float | None:
    return None if (node, other) in (("gpu002", "gpu006"), ("gpu001", "gpu008")) else _healthy(node, a, other, b)


def _halves(node: str, a: str, other: str, b: str) -> float:
    return 40.0 if (node > "gpu004") is (other > "gpu004") else 10.0


def _lost_rail(node: str, a: str, other: str, b: str) -> float:
    """Return the rate of a pair; gpu003 lost one of eight rails."""
    return 35.0 if "gpu003" in (node, other) else 40.0


def _outside_nvlink(node: str, a: str, other: str, b: str) -> float:
    """Return the rate of a pair; only gpu001 to gpu006 share an NVLink domain."""
    return 42.0 if max(node, other) > "gpu006" else 700.0


_ORIGIN = "made by hand: figures invented, in the format of nccl-tests 2.19.6 (tests/support/pair_runs.py)"

#: Check -> case -> (records, findings).
CASES: dict[str, dict[str, tuple[Mapping[str, object], list[dict[str, str]]]]] = {
    "bench.pairs": {
        "healthy": (records(_healthy), [{"status": "pass", "message": "28 runs, none slow"}]),
        "one-slow-pair": (
            records(_one_pair), [{"status": "warn", "message": "gpu002 and gpu006", "subject": "gpu002 - gpu006"}],
        ),
        "two-that-do-not-run": (
            records(_two_fail),
            [{"status": "warn", "message": "gpu001 and gpu008: alltoall over 2 GPUs on 2 nodes does not run"},
             {"status": "warn", "message": "gpu002 and gpu006: alltoall over 2 GPUs on 2 nodes does not run"}],
        ),
        "two-halves": (
            records(_halves),
            [{"status": "warn", "message": "the rate between blocks of nodes is 25% of the rate within a block"}],
        ),
        "scattered": (
            records(_scattered, repeats=4),
            [{"status": "unknown", "message": "a part at half its rate would go unnoticed"}],
        ),
        "lost-rail": (records(_lost_rail), [{"status": "pass", "message": "21 runs, none slow"}]),
        "four-pairs": (dict(list(records(_healthy).items())[:4]), [{"status": "unknown", "message": "too few"}]),
        "one-run": (dict(list(records(_healthy).items())[:1]), [{"status": "skip"}]),
    },
    "bench.factor": {
        "healthy": (records(_healthy), [{"status": "pass", "message": "none of the 28 runs is slow"}]),
        "one-node": (
            records(_bad_node),
            [{"status": "fail", "message": "node gpu003: all 7 of its runs", "subject": "node gpu003"}],
        ),
        "one-rail": (
            records(_bad_rail, repeats=2),
            [{"status": "fail", "message": f"rail {RAILS[4]}", "subject": f"rail {RAILS[4]}"}],
        ),
        "one-slow-pair": (records(_one_pair), [{"status": "unknown", "message": "1 of 28 runs is slow"}]),
        "two-halves": (records(_halves), [{"status": "pass"}]),
        "scattered": (
            records(_scattered, repeats=4), [{"status": "unknown", "message": "vary too much to judge any part"}],
        ),
        "other-hardware": (
            records(_older_half, repeats=2), [{"status": "warn", "message": "4 of 8 nodes are slow", "subject": ""}],
        ),
        "lost-rail": (
            records(_lost_rail),
            [{"status": "unknown", "message": "its 7 runs of alltoall over 2 GPUs on 2 nodes all reach only 8",
              "subject": "node gpu003"}],
        ),
        "outside-nvlink": (
            records(_outside_nvlink),
            [{"status": "warn", "message": "2 of 8 nodes .gpu007, gpu008. run alltoall", "subject": ""}],
        ),
    },
}  # fmt: skip


def campaign(out: str = "", end: str = "complete", left: Sequence[str] = ()) -> dict[str, object]:
    """Return the records of a campaign over four nodes, one round; ``out`` is an omitted node."""
    nodes = NODES[:4]
    plan = {
        "schema": "preflight.bench.plan/1", "id": "0a1b2c3d", "seed": 1, "nodes": list(nodes), "leaves": {},
        "goal": "nodes", "collective": "alltoall", "bytes": GIB, "iterations": 20, "gpus": 1, "budget_s": 900.0,
        "run_limit_s": 60.0, "at_once": 64, "via": "mpirun", "job": None, "binary": "alltoall_perf", "mpi": "pmix",
        "ssh_config": None, "environment": {},
    }  # fmt: skip
    pairs = [pair for pair in (nodes[:2], nodes[2:]) if out not in pair]
    journal: list[dict[str, object]] = [{
        "schema": "preflight.bench.round/1", "round": 1, "purpose": "screen", "load": "",
        "runs": [[{"node": node, "gpus": []} for node in pair] for pair in pairs],
        "left_out": [{"node": out, "why": "its GPUs are in use (process 4711, python)"}] if out else [],
    }]  # fmt: skip
    made: dict[str, object] = {}
    for number, pair in enumerate(pairs, 1):
        launch = {"schema": "preflight.bench.launch/1", "n": number, "round": 1, "run": number - 1,
                  "group": list(pair), "at": "2026-11-20T12:00:00Z"}  # fmt: skip
        journal += [{**launch, "state": "started"},
                    {**launch, "state": "ended", "status": "ok", "exit": 0, "seconds": 7.5, "why": ""}]  # fmt: skip
        made[f"log:{number:04d}.txt"] = log("alltoall", {node: [RAILS[0]] for node in pair}, {GIB: 44.0})
    if end:
        journal.append({"schema": "preflight.bench.end/1", "why": end, "left_behind": list(left),
                        "at": "2026-11-20T12:01:00Z"})  # fmt: skip
    return {**made, "bench:campaign": {"status": "ok", "value": {"plan": plan, "journal": journal}}}


CASES["bench.coverage"] = {
    "complete": (campaign(), [{"status": "pass", "message": "all 4 nodes were measured in 1 round and 2 launches"}]),
    "a-node-in-use": (
        campaign(out=NODES[3]),
        [{"status": "unknown", "message": "gpu003 was not measured: no run with it was started"},
         {"status": "unknown", "message": "gpu004 was excluded: its GPUs are in use"}],
    ),
    "out-of-time": (campaign(end="budget"), [{"status": "unknown", "message": "its time limit was reached"}]),
    "killed": (campaign(end=""), [{"status": "unknown", "message": "it was killed"}]),
    "left-behind": (
        campaign(left=["gpu002: not searched: no answer"]),
        [{"status": "warn", "message": "gpu002 was not searched for leftovers: no answer"}],
    ),
    "no-campaign": (records(_healthy), [{"status": "skip"}]),
}  # fmt: skip


def _spines(
    share: float = 1.0, skew_s: int = 0, at_once: int = 64, without: str = "", alone: int = 3
) -> dict[str, object]:
    """Return the records of a campaign whose last round loads all uplinks between two leaves of four nodes.

    ``share`` is the fraction of one pair's rate that remains; the second run of the round ends ``skew_s`` later. A node
    took no part in it. ``alone`` is the number of runs of one pair.
    """
    made = campaign()
    value: Any = made["bench:campaign"]
    value = value["value"]
    left, right = NODES[:4], NODES[4:]
    leaves = {node: "leaf1" if node in left else "leaf2" for node in NODES}
    value["plan"].update(nodes=list(NODES), leaves=leaves, goal="links", loaded=True, at_once=at_once)
    shared: list[tuple[str, ...]] = [pair for pair in zip(left, right, strict=True) if without not in pair]
    rounds: list[tuple[str, str, list[tuple[str, ...]]]] = [("screen", "", [left[:2], left[2:], right[:2], right[2:]])]
    rounds += [("across", "quiet", [(left[turn], right[turn])]) for turn in range(alone)]
    rounds.append(("loaded", "loaded", shared))
    journal: list[dict[str, object]] = []
    outputs: dict[str, object] = {}
    number = 0
    for index, (purpose, load, pairs) in enumerate(rounds, 1):
        runs = [[{"node": node, "gpus": []} for node in pair] for pair in pairs]
        journal.append({"schema": "preflight.bench.round/1", "round": index, "purpose": purpose, "load": load,
                        "runs": runs, "left_out": [], **({"iterations": 200} if load == "loaded" else {})})  # fmt: skip
        for place, pair in enumerate(pairs):
            number += 1
            late = skew_s if load == "loaded" and place == 1 else 0
            launch = {"schema": "preflight.bench.launch/1", "n": number, "round": index, "run": place,
                      "group": list(pair)}  # fmt: skip
            journal += [{**launch, "state": "started", "at": f"2026-11-20T12:{index:02d}:00Z"},
                        {**launch, "state": "ended", "at": f"2026-11-20T12:{index:02d}:{30 + late:02d}.250Z",
                         "status": "ok", "exit": 0, "seconds": 28.5, "why": ""}]  # fmt: skip
            rate = 44.0 * (share if load == "loaded" else 1.0) * (1 + 0.002 * (number % 3))
            text = log("alltoall", {node: [RAILS[0]] for node in pair}, {GIB: rate})
            outputs[f"log:{number:04d}.txt"] = text.replace(
                "iters: 20", "iters: 600" if load == "loaded" else "iters: 20"
            )
    journal.append({"schema": "preflight.bench.end/1", "why": "complete", "left_behind": [],
                    "at": "2026-11-20T12:20:00Z"})  # fmt: skip
    return {**outputs, "bench:campaign": {"status": "ok", "value": {**value, "journal": journal}}}


CASES["bench.shared-uplinks"] = {
    "as-fast-as-one-pair": (
        _spines(), [{"status": "pass", "message": "4 pairs at once reach at least 100% of the 44"}],
    ),
    "half-of-one-pair": (
        _spines(share=0.5),
        [{"status": "warn", "message": "all pairs at once reach 50% of the 44", "found": "50% of one pair"}],
    ),
    "not-at-the-same-time": (
        _spines(skew_s=8), [{"status": "unknown", "message": "all pairs were active at once for only 45% of the time"}],
    ),
    "side-by-side": (_spines(at_once=2), [{"status": "unknown", "message": "only 2 runs were started side by side"}]),
    "without-a-node": (
        _spines(without=NODES[1]), [{"status": "unknown", "message": "2 nodes took no part, such as gpu002"}],
    ),
    "two-runs-of-one-pair": (_spines(alone=2), [{"status": "unknown", "message": "2 runs were of a single pair"}]),
    "uplinks-not-loaded": (campaign(), [{"status": "skip"}]),
}  # fmt: skip


def _rounds_with_ports(
    readings: Callable[[int, str], list[dict[str, object]]], slow: str = "", why: str = ""
) -> dict[str, object]:
    """Return the records of a campaign of seven rounds, all pairs of eight nodes.

    ``readings`` returns the ports of a node in a round; a node is ``slow`` in all of its runs. ``why`` is the reason
    why the counters of the last node were not read; empty if they were.
    """
    made = campaign()
    record: Any = made["bench:campaign"]
    value = record["value"]
    value["plan"]["nodes"] = list(NODES)
    journal: list[dict[str, object]] = []
    outputs: dict[str, object] = {}
    ring = list(NODES[:-1])
    for number in range(1, 8):
        turned = [*ring[number - 1 :], *ring[: number - 1]]
        pairs = [(turned[0], NODES[-1]), *zip(turned[1:4], reversed(turned[4:]), strict=True)]
        journal.append({"schema": "preflight.bench.round/1", "round": number, "purpose": "screen", "load": "",
                        "runs": [[{"node": node, "gpus": []} for node in pair] for pair in pairs],
                        "left_out": []})  # fmt: skip
        for place, pair in enumerate(pairs):
            n = 4 * number - 3 + place
            journal.append({"schema": "preflight.bench.launch/1", "n": n, "round": number, "run": place,
                            "group": list(pair), "state": "ended", "status": "ok", "exit": 0, "seconds": 7.5,
                            "why": "", "at": f"2026-11-20T12:{number:02d}:30Z"})  # fmt: skip
            rate = (11.0 if slow in pair else 44.0) * (1 + 0.002 * (n % 3))
            outputs[f"log:{n:04d}.txt"] = log("alltoall", {node: [RAILS[0]] for node in pair}, {GIB: rate})
        nodes = [{"node": node, "why": why if node == NODES[-1] else "",
                  "ports": [] if why and node == NODES[-1] else readings(number, node)} for node in NODES]  # fmt: skip
        journal.append({"schema": "preflight.bench.ports/1", "round": number, "nodes": nodes})
    journal.append({"schema": "preflight.bench.end/1", "why": "complete", "left_behind": [],
                    "at": "2026-11-20T12:20:00Z"})  # fmt: skip
    return {**outputs, "bench:campaign": {"status": "ok", "value": {**value, "journal": journal}}}


def _port_of(
    grown: int = 0, source: str = "counters", name: str = "symbol_error", unread: str = ""
) -> dict[str, object]:
    counters = [{"source": source, "name": name, "before": 7, "after": 7 + grown}] if grown else []
    return {"device": "mlx5_3", "port": 1, "seconds": 9.5, "packets": 5_000_000, "grown": counters, "unread": unread}


def _errors_of(node: str, grown: int, rounds: int = 7, **more: str) -> Callable[[int, str], list[dict[str, object]]]:
    return lambda number, own: [_port_of(grown, **more) if own == node and number <= rounds else _port_of()]


CASES["bench.factor"]["one-node-with-errors"] = (
    _rounds_with_ports(_errors_of("gpu003", 120), slow="gpu003"),
    [
        {
            "status": "fail",
            "message": r"meanwhile mlx5_3:1 of gpu003 counted symbol_error \+840",
            "subject": "node gpu003",
        }
    ],
)
CASES["bench.ports"] = {
    "no-errors": (
        _rounds_with_ports(_errors_of("", 0)),
        [{"status": "pass", "message": "8 ports of 8 nodes counted no error in 7 rounds"}],
    ),
    "errors-in-slow-runs": (
        _rounds_with_ports(_errors_of("gpu003", 120), slow="gpu003"),
        [{"status": "fail", "message": r"mlx5_3:1 of gpu003 counted errors in all 7 rounds: symbol_error \+840; 7 of "
          "these runs were slow", "subject": "gpu003 mlx5_3:1"}],
    ),
    "one-symbol-error": (
        _rounds_with_ports(_errors_of("gpu003", 1, rounds=1)),
        [{"status": "warn", "message": r"counted errors in 1 of 7 rounds: symbol_error \+1$"}],
    ),
    "carrier-lost": (
        _rounds_with_ports(_errors_of("gpu003", 2, rounds=1, source="carrier", name="carrier_changes")),
        [{"status": "fail", "message": r"carrier_changes \+2", "subject": "gpu003 mlx5_3:1"}],
    ),
    "rare-retransmissions": (
        _rounds_with_ports(_errors_of("gpu003", 2, source="hw_counters", name="out_of_sequence")), [{"status": "pass"}],
    ),
    "a-node-not-read": (
        _rounds_with_ports(_errors_of("", 0), why="no answer: timed out"),
        [{"status": "unknown", "message": "whether errors grew is unknown for gpu008: no answer: timed out"}],
    ),
    "a-counter-not-read": (
        _rounds_with_ports(lambda number, node: [_port_of(unread="symbol_error is at its maximum, 65535")]),
        [{"status": "unknown", "message": "for 8 ports .gpu001 mlx5_3:1, gpu002 mlx5_3:1, gpu003 mlx5_3:1, ….: s"}],
    ),
    "no-ports": (_rounds_with_ports(lambda number, node: []), [{"status": "skip"}]),
    "script": (campaign(end="script"), [{"status": "skip"}]),
}  # fmt: skip


def main() -> None:
    """Write the fixtures."""
    for check, cases in CASES.items():
        folder = ROOT / "fixtures" / check
        folder.mkdir(exist_ok=True)
        for name, (made, findings) in cases.items():
            fixture = {"origin": _ORIGIN, "records": made, "findings": findings}
            (folder / f"{name}.json").write_text(json.dumps(fixture, indent=1) + "\n")


if __name__ == "__main__":
    main()

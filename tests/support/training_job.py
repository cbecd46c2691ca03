"""Traces of all ranks of a training job, made up in the format of PyTorch's profiler (Kineto).

A simulation decides when each kernel runs: it has a compute stream for each rank and a stream for each process group;
collectives end for all ranks after the last one arrives, and sends end with their receive. Names of fields are those of
PyTorch's ``record_param_comms`` as Kineto attaches them to NCCL's kernels (PyTorch 2.5; ``Seq``, ``Src Rank`` and ``Dst
Rank`` of 2.6 on request). ``python -m tests.support.training_job DIR --data 4`` writes traces; ``--events 1000000`` a
long one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.kineto_trace import GEMM

#: When the CPU launches the kernels of each part of a step, in milliseconds after the start of the step.
_PHASES = {"forward": 0.0, "loss": 0.05, "backward": 0.1, "optimizer": 0.2}
BYTES_PER_MS = 200e6  # transfer of a collective: 200 GB/s
_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_allv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


@dataclass(frozen=True)
class Layout:
    """Ranks by tensor, data and pipeline parallelism; tensor-parallel ranks are neighbours, then data, then stages."""

    tensor: int = 1
    data: int = 1
    stages: int = 1
    experts: bool = False  # all-to-all over the data-parallel ranks
    expert_ranks: int = 0  # the ranks of one all-to-all, if fewer than all data-parallel ranks

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.data * self.stages

    def group(self, kind: str, rank: int) -> tuple[int, ...]:
        """Return the ranks in a rank's group; ``kind`` is ``tp``, ``dp``, ``ep``, ``pp`` or ``all``."""
        if kind == "all":
            return tuple(range(self.ranks))
        inside, rest = rank % self.tensor, rank // self.tensor
        across, stage = rest % self.data, rest // self.data
        if kind == "tp":
            return tuple(rank - inside + other for other in range(self.tensor))
        if kind in ("dp", "ep"):
            size = self.expert_ranks if kind == "ep" and self.expert_ranks else self.data
            first = across // size * size
            return tuple((stage * self.data + first + other) * self.tensor + inside for other in range(size))
        return tuple((other * self.data + across) * self.tensor + inside for other in range(self.stages))


@dataclass(frozen=True)
class JobPlan:
    """The work of the job and its faults; times in milliseconds."""

    layout: Layout
    steps: int = 8
    layers: int = 16
    layer_ms: float = 1.0  # of the forward pass; the backward pass takes twice as long
    megabytes: float = 4.3  # of each collective
    jitter: float = 0.0  # standard deviation of each kernel's time, as a fraction
    slow: Mapping[int, float] = field(default_factory=dict)  # rank: factor on its compute kernels
    slow_steps: frozenset[int] = frozenset()  # empty: all
    paused: Mapping[int, float] = field(default_factory=dict)  # rank: how long its GPU is idle before each microbatch
    paused_early: Mapping[int, float] = field(default_factory=dict)  # rank: the same before the first message of a step
    stall_ms: float = 0.0  # of the CPU of each rank at the start of some steps, with a standard deviation of a tenth
    stall_steps: frozenset[int] = frozenset()
    stall_ranks: frozenset[int] = frozenset()  # empty: all
    tokens: Mapping[int, float] = field(default_factory=dict)  # rank: factor on its experts
    microbatches: int = 4
    loss_ms: float = 0.0  # of all microbatches, on the last stage
    loss_kernel: str = "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT"
    last_layers: int | None = None  # of the last stage, if it has fewer
    slow_groups: Mapping[tuple[str, int], float] = field(default_factory=dict)  # kind, first rank: factor on transfers
    overlapped: bool = True  # data-parallel collectives under the backward pass
    gradient_norm: bool = False  # a collective of all ranks at the end of each step
    ahead_ms: float = 0.0  # how long before its kernels a step begins on the CPU
    clock_ms: float = 0.0  # maximum offset of the ranks' clocks
    ranks_per_host: int = 0  # 0: the traces name no host; otherwise hosts of 8 GPUs
    numbered: bool = False  # with Seq and the peers of sends
    seed: int = 0


Operation = tuple[Any, ...]


def operations(plan: JobPlan, rank: int, chance: random.Random) -> Iterator[Operation]:
    """Yield a rank's operations: compute, call a collective, wait for one, begin a step."""
    layout = plan.layout
    stage = layout.group("pp", rank).index(rank)
    slow = plan.slow.get(rank, 1.0)
    pipeline = layout.group("pp", rank)

    def work(step: int, length: float, phase: str, factor: float = 1.0) -> Operation:
        slowed = slow if not plan.slow_steps or step in plan.slow_steps else 1.0
        return phase, length * factor * slowed * max(0.2, chance.gauss(1, plan.jitter))

    def layer(step: int, length: float, phase: str) -> Iterator[Operation]:
        yield work(step, length, phase)
        if layout.tensor > 1:
            yield "call", "allreduce", "tp", layout.group("tp", rank), True
        if layout.experts:
            yield "call", "all_to_allv", "ep", layout.group("ep", rank), True
            yield work(step, length / 2, phase, plan.tokens.get(rank, 1.0))
            yield "call", "all_to_allv", "ep", layout.group("ep", rank), True

    layers = max(1, plan.layers // layout.stages)
    if stage == layout.stages - 1 and plan.last_layers is not None:
        layers = plan.last_layers
    batches = plan.microbatches if layout.stages > 1 else 1
    for step in range(plan.steps):
        yield "step", step
        yield "pause", plan.paused_early.get(rank, 0.0)
        if step in plan.stall_steps and (not plan.stall_ranks or rank in plan.stall_ranks):
            yield "pause", plan.stall_ms * chance.gauss(1, 0.1)
        for _ in range(batches):
            if stage > 0:
                yield "call", "recv", "pp", (pipeline[stage - 1], rank), True
            yield "pause", plan.paused.get(rank, 0.0)
            for _ in range(layers):
                yield from layer(step, plan.layer_ms / batches, "forward")
            if plan.loss_ms and stage == layout.stages - 1:
                yield work(step, plan.loss_ms / batches, "loss")
            if stage < layout.stages - 1:
                yield "call", "send", "pp", (rank, pipeline[stage + 1]), False
        for batch in range(batches):
            if stage < layout.stages - 1:
                yield "call", "recv", "pp", (pipeline[stage + 1], rank), True
            for _ in range(layers):
                yield from layer(step, 2 * plan.layer_ms / batches, "backward")
                if plan.overlapped and layout.data > 1 and batch == batches - 1:
                    yield "call", "allreduce", "dp", layout.group("dp", rank), False
            if stage > 0:
                yield "call", "send", "pp", (rank, pipeline[stage - 1]), False
        if not plan.overlapped and layout.data > 1:
            for _ in range(layers):
                yield "call", "allreduce", "dp", layout.group("dp", rank), True
        yield ("wait",)
        if plan.gradient_norm:
            yield "call", "allreduce", "all", layout.group("all", rank), True
        yield "optimizer", 0.2
    yield "step", plan.steps


class _Rank:
    """State of one rank during the simulation."""

    def __init__(self, plan: JobPlan, rank: int) -> None:
        self.todo = operations(plan, rank, random.Random(f"{plan.seed}:{rank}"))
        self.operation: Operation | None = next(self.todo)
        self.now = 0.0
        self.pending = 0
        self.latest = 0.0  # end of calls that nothing waits for yet
        self.count: dict[tuple[Any, ...], int] = defaultdict(int)
        self.kernels: list[tuple[str, float, float, int, Operation, int]] = []
        self.steps: list[float] = []
        self.number = 0


def simulate(plan: JobPlan) -> list[_Rank]:
    """Return the ranks with their kernels: kind, begin, length, step, call and its number."""
    ranks = [_Rank(plan, rank) for rank in range(plan.layout.ranks)]
    calls: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)  # when each rank is ready
    free: dict[tuple[Any, ...], float] = defaultdict(float)  # a rank's stream of a group
    ends: dict[tuple[Any, ...], float] = {}
    transfer = plan.megabytes * 1e6 / BYTES_PER_MS
    moved = True
    while moved:
        moved = False
        for rank, one_rank in enumerate(ranks):
            while one_rank.operation is not None:
                name, *rest = one_rank.operation
                if name == "call":
                    kind, group_kind, members, wait = rest
                    stream = ("p2p" if group_kind == "pp" else group_kind, members)
                    identity = (*stream, one_rank.count[stream])
                    if rank not in calls[identity]:
                        calls[identity][rank] = one_rank.now
                        one_rank.pending += 1
                    waiting = wait and identity not in ends
                    if not waiting:
                        one_rank.count[stream] += 1
                        if wait:
                            one_rank.now = max(one_rank.now, ends[identity])
                    if len(calls[identity]) == len(members) and identity not in ends:
                        begins = {member: max(ready, free[stream, member]) for member, ready in calls[identity].items()}
                        factor = plan.slow_groups.get((group_kind, members[0]), 1.0)
                        end = max(begins.values()) + factor * transfer * max(
                            0.5, random.Random(f"{identity}").gauss(1, 0.02)
                        )
                        ends[identity] = end
                        for member, begin in begins.items():
                            free[stream, member] = end
                            other = ranks[member]
                            other.pending -= 1
                            other.latest = max(other.latest, end)
                            own = kind
                            if group_kind == "pp":
                                own = "send" if members[0] == member else "recv"
                            until = end + random.Random(f"{identity}:{member}").uniform(0, 0.004)
                            other.kernels.append(
                                (own, begin, until - begin, len(other.steps) - 1, (group_kind, members), identity[-1])
                            )
                        moved = True
                    if waiting and identity not in ends:
                        break
                    if waiting:
                        continue
                elif name == "wait":
                    if one_rank.pending:
                        break
                    one_rank.now = max(one_rank.now, one_rank.latest)
                elif name == "pause":
                    one_rank.now += rest[0]
                elif name == "step":
                    one_rank.steps.append(one_rank.now)
                else:
                    one_rank.kernels.append((name, one_rank.now, rest[0], len(one_rank.steps) - 1, (), 0))
                    one_rank.now += rest[0]
                one_rank.operation = next(one_rank.todo, None)
                moved = True
    assert all(one_rank.operation is None for one_rank in ranks), "the job hangs"
    return ranks


def traces(plan: JobPlan) -> list[str]:
    """Return the trace of each rank."""
    chance = random.Random(f"{plan.seed}:clock")
    return [
        _trace(plan, rank, simulated, chance.uniform(-plan.clock_ms, plan.clock_ms))
        for rank, simulated in enumerate(simulate(plan))
    ]


def _trace(plan: JobPlan, rank: int, simulated: _Rank, offset: float) -> str:
    base = 1_700_000_000_000_000.0 + offset * 1000
    events: list[dict[str, Any]] = []

    def add(kind: str, name: str, begin: float, length: float, stream: int | None, args: dict[str, Any]) -> None:
        begin -= plan.ahead_ms if stream is None else 0.0
        events.append({
            "ph": "X", "cat": kind, "name": name, "pid": 0 if stream is not None else 4711,
            "tid": stream if stream is not None else 4711, "ts": round(base + begin * 1000, 3),
            "dur": round(length * 1000, 3), "args": args,
        })  # fmt: skip

    steps = simulated.steps
    for number in range(len(steps) - 1):
        add("user_annotation", f"ProfilerStep#{number}", steps[number], steps[number + 1] - steps[number], None, {})
    streams: dict[Any, int] = {}
    sequence: dict[Any, int] = defaultdict(int)
    launched: dict[tuple[int, str], int] = defaultdict(int)
    exchanges = 0
    for start in steps[:-1]:  # the CPU runs ahead: it launches a step at its start
        add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", start + 0.1, 0.1, None, {})
        add("user_annotation", "Optimizer.step#AdamW.step", start + 0.2, 0.1, None, {})
    for correlation, (kind, begin, length, step, call, _) in enumerate(
        sorted(simulated.kernels, key=lambda kernel: kernel[1]), 1
    ):
        args: dict[str, Any] = {"device": 0, "correlation": correlation}
        step = max(0, step)
        phase = kind if kind in _PHASES else "forward"
        launch = steps[step] + _PHASES[phase] + launched[step, phase] * 0.0001
        launched[step, phase] += 1
        add("cuda_runtime", "cudaLaunchKernel", launch, 0.0001, None, {"correlation": correlation})
        if not call:
            name = {"optimizer": "multi_tensor_apply_kernel", "loss": plan.loss_kernel}.get(kind, GEMM)
            add("kernel", name, begin, length, 7, args | {"stream": 7})
            continue
        group_kind, members = call
        group = plan.layout.group(group_kind, rank)
        stream = streams.setdefault((group_kind, members if group_kind == "pp" else group), 20 + len(streams))
        elements = received = int(plan.megabytes * 1e6 / 2)
        if kind == "all_to_allv":  # dispatch and combine in turn
            share = plan.tokens.get(rank, 1.0) * len(group) / sum(plan.tokens.get(member, 1.0) for member in group)
            received = int(elements * share)
            elements, received = (received, elements) if exchanges % 2 else (elements, received)
            exchanges += 1
        args |= {
            "stream": stream, "Collective name": kind, "In msg nelems": elements, "Out msg nelems": received,
            "Group size": len(group), "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]",
            "Process Group Name": f"{group_kind}{group[0]}",
            "Process Group Description": {"dp": "DATA_PARALLEL_GROUP", "tp": "TENSOR_MODEL_PARALLEL_GROUP",
                                          "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
                                          "ep": "EXPERT_MODEL_PARALLEL_GROUP", "all": "default_pg"}[group_kind],
            "Process Group Ranks": f"[{', '.join(map(str, group))}]",
        }  # fmt: skip
        if plan.numbered:
            sequence[group_kind, group] += 1
            args["Seq"] = sequence[group_kind, group]
            if kind in ("send", "recv"):
                peer = next(member for member in members if member != rank)
                args["Dst Rank" if kind == "send" else "Src Rank"] = peer
        add("kernel", _KERNELS[kind], begin, length, stream, args)
    head: dict[str, Any] = {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": plan.layout.ranks},
    }  # fmt: skip
    if plan.ranks_per_host:
        head["host_name"] = f"gpu{rank // plan.ranks_per_host:03}"
        head["deviceProperties"] = [{"id": device, "name": "NVIDIA H100 80GB HBM3"} for device in range(8)]
    return json.dumps({**head, "traceEvents": events}, separators=(",", ":"))


def write_long(stream: IO[str], events: int) -> None:
    """Write a trace with about 300 bytes per event: CPU operators, launches and kernels."""
    stream.write('{"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":0,"world_size":8},"traceEvents":[')
    for number in range(events // 4):
        at = 1e15 + number * 20
        kernel = {"External id": number, "device": 0, "context": 1, "stream": 7, "correlation": number,
                  "registers per thread": 96, "shared memory": 42024, "blocks per SM": 0.5, "warps per SM": 4.0,
                  "grid": [264, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12}  # fmt: skip
        shapes = {"External id": number, "Record function id": 0, "Sequence number": number, "Fwd thread id": 0,
                  "Input Dims": [[4096, 8192], [8192, 8192], []], "Input type": ["c10::BFloat16", "c10::BFloat16", ""],
                  "Concrete Inputs": ["", "", "1"], "Ev Idx": number}  # fmt: skip
        for event in (
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711, "ts": at, "dur": 9.5,
             "args": shapes},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 4711, "ts": at + 2,
             "dur": 4.25, "args": {"External id": number, "cbid": 211, "correlation": number}},
            {"ph": "f", "id": number, "pid": 0, "tid": 7, "ts": at + 3, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            {"ph": "X", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 7, "ts": at + 3, "dur": 17.5, "args": kernel},
        ):  # fmt: skip
            stream.write(f"{',' if number or event['cat'] != 'cpu_op' else ''}\n{json.dumps(event, indent=1)}")
    stream.write("]}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write traces into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--data", type=int, default=4)
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--slow", type=int, help="a rank that computes a quarter slower")
    parser.add_argument("--events", type=int, help="write one long trace of so many events instead")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.events:
        for path, opened in ((chosen.folder / "rank0.json", open), (chosen.folder / "rank0.json.gz", gzip.open)):
            with opened(path, "wt") as stream:
                write_long(stream, chosen.events)
        return
    layout = Layout(chosen.tensor, chosen.data, chosen.stages, chosen.experts)
    plan = JobPlan(layout, slow={} if chosen.slow is None else {chosen.slow: 1.25}, jitter=0.01, clock_ms=2)
    for rank, text in enumerate(traces(plan)):
        (chosen.folder / f"rank{rank}.json").write_text(text)


if __name__ == "__main__":
    main()

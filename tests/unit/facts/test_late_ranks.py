"""Several slow ranks, ranks that are slow at times, and ranks that only wait for slow transfers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from preflight.checks import registry
from preflight.checks.job.torch_collectives import straggler
from preflight.checks.job.torch_gpu import overlap
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts.job import RunFacts
from preflight.facts.trace import late_stages, stragglers
from preflight.facts.trace.job import JobTrace
from preflight.judge import judge
from preflight.model import Check, Finding, Status
from tests.support.kineto_trace import GEMM
from tests.support.training_job import JobPlan, Layout, traces
from tests.unit.facts.test_job_trace import joined, step_ms


def judged(texts: Sequence[str], check: Check = straggler) -> list[Finding]:
    """Return the findings of a check."""
    records = {f"log:rank{rank}.json": {"status": "ok", "out": text} for rank, text in enumerate(texts)}
    run = RunFacts(Evidence("@run", "", records))
    return list(check.run(run, Cluster().run_site([])))


def late(job: JobTrace) -> dict[int, tuple[int, ...]]:
    return {straggler.rank: straggler.together for straggler in job.stragglers}


@pytest.mark.parametrize(("size", "slow"), [(16, (2, 9)), (4, (0, 3)), (32, tuple(range(8, 16)))])
def test_several_slow_ranks_of_a_group_are_named_together(size: int, slow: tuple[int, ...]) -> None:
    plan = JobPlan(Layout(data=size), steps=6, layers=4, jitter=0.02, clock_ms=2, slow=dict.fromkeys(slow, 1.09))
    assert late(joined(plan)) == dict.fromkeys(slow, slow)


@pytest.mark.parametrize("layout", [Layout(data=16), Layout(tensor=8, data=2)])
def test_a_slow_host_is_named_once(layout: Layout) -> None:
    plan = JobPlan(layout, steps=6, layers=4, jitter=0.02, slow=dict.fromkeys(range(8, 16), 1.1), ranks_per_host=8)
    (finding,) = judged(traces(plan))
    assert finding.status is Status.WARN
    assert "ranks 8 to 15 on gpu001" in finding.message


@pytest.mark.parametrize(
    ("layout", "rank", "factor", "when"),
    [(Layout(tensor=8), 5, 1.08, range(5, 10)), (Layout(data=8), 2, 1.12, range(3, 16, 4))],
)
def test_a_rank_that_is_slow_in_some_steps(layout: Layout, rank: int, factor: float, when: range) -> None:
    plan = JobPlan(layout, steps=max(when.stop, 10), layers=4, jitter=0.02, slow={rank: factor},
                   slow_steps=frozenset(when))  # fmt: skip
    (named,) = joined(plan).stragglers
    assert (named.rank, named.steps) == (rank, tuple(when))


def test_a_rank_that_waits_for_slow_transfers_is_not_blamed() -> None:
    """One of two data-parallel groups transfers at a quarter of the rate of the other."""
    plan = JobPlan(Layout(tensor=2, data=4), steps=8, layers=8, jitter=0.02, megabytes=40, numbered=True,
                   overlapped=False)  # fmt: skip
    assert not joined(plan).slow_transfers
    plan = replace(plan, slow_groups={("dp", 1): 4.0})
    job = joined(plan)
    assert not job.stragglers
    (slow,) = job.slow_transfers
    assert (slow.group.ranks, slow.kind) == ((1, 3, 5, 7), "all_reduce")
    assert slow.length_us / slow.usual_us == pytest.approx(4, rel=0.05)
    (finding,) = judged(traces(plan))
    assert finding.message.startswith("transfers in the data-parallel group of ranks 1, 3, 5, 7 delay its ranks")


@pytest.mark.parametrize(("layout", "first", "factor"), [(Layout(2, 2), 2, 5.0), (Layout(4, 2), 0, 10.0)])
def test_transfers_are_the_cause_also_behind_hidden_collectives(layout: Layout, first: int, factor: float) -> None:
    """Gradients are reduced under the backward pass, so ranks do not wait for late peers until its end."""
    plan = JobPlan(layout, steps=5, layers=6, jitter=0.02, clock_ms=2, megabytes=20, gradient_norm=True)
    assert not joined(plan).slow_transfers
    job = joined(replace(plan, slow_groups={("tp", first): factor}))
    assert not job.stragglers
    assert [slow.group.ranks[0] for slow in job.slow_transfers] == [first]
    sick = replace(plan, slow={first: 1.2})
    assert set(late(joined(sick))) == {first}
    assert not joined(sick).slow_transfers


def test_what_may_be_chance_does_not_pass() -> None:
    """One of two ranks is always later, and nothing shows which of them is normal."""
    plan = JobPlan(Layout(data=2), steps=12, layers=4, jitter=0.02, slow={0: 1.12}, slow_steps=frozenset(range(6, 12)))
    (finding,) = judged(traces(plan))
    assert finding.status is Status.UNKNOWN
    assert finding.message.startswith("rank 0 causes 97% of the waiting of a data-parallel group")


def test_ranks_without_a_common_collective_are_not_counted() -> None:
    (finding,) = judged(traces(JobPlan(Layout(data=2), steps=2, layers=1, megabytes=200)))
    assert finding.status is Status.UNKNOWN
    assert finding.message.startswith("the traces do not show who waits for whom: all_reduce of ranks (0, 1): fewer")


def test_a_trace_that_breaks_off_passes_nothing() -> None:
    texts = traces(JobPlan(Layout(data=2), steps=6))
    cut = texts[1][: len(texts[1]) // 2]
    records = {key: {"status": "ok", "out": text} for key, text in (("log:a.json", texts[0]), ("log:b.json", cut))}
    checks = [check for check in registry().checks if check.id.startswith("torch.")]
    report = judge([], checks, run=Evidence("@run", "", records))
    by_key = {
        key: {finding["status"] for finding in report["findings"] if finding["evidence"] == [key]}
        for key in ("log:a.json", "log:b.json")
    }
    assert "pass" in by_key["log:a.json"]
    assert by_key["log:b.json"] <= {"unknown", "skip"}
    assert any("b.json is incomplete" in finding["message"] for finding in report["findings"])


PIPELINE = JobPlan(Layout(stages=4), steps=6, layers=8, layer_ms=4, jitter=0.02, clock_ms=2, numbered=True)
EQUAL = dict.fromkeys(range(4), 1.0)


@pytest.mark.parametrize("rank", range(4))
def test_a_stage_with_an_idle_gpu_is_named_if_others_wait(rank: int) -> None:
    (finding,) = judged(traces(replace(PIPELINE, paused={rank: 1.0})))
    assert finding.status is Status.WARN
    assert f"wait in receives for rank {rank}, whose GPU is idle meanwhile" in finding.message


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_that_begins_its_steps_late_is_named_with_what_it_costs(rank: int) -> None:
    """Its GPU is idle from the end of the step before; it sends and receives again as soon as it has computed."""
    plan = replace(PIPELINE, steps=7, ahead_ms=-0.1)
    sick = replace(plan, paused_early={rank: 9.0})
    (named,) = joined(sick).stragglers
    assert (named.rank, named.idle) == (rank, True)
    assert named.lost_us / 1000 == pytest.approx(step_ms(sick) - step_ms(plan), rel=0.2)


@pytest.mark.parametrize(("stages", "rank", "factor", "uneven"), [
    (4, 2, 1.3, {"loss_ms": 6}), (4, 1, 1.3, {"last_layers": 1}), (2, 1, 1.15, {}),
    (4, 3, 1.2, {"gradient_norm": True}),
])  # fmt: skip
def test_a_slow_stage_costs_what_its_step_is_longer_than_without_it(
    stages: int, rank: int, factor: float, uneven: dict[str, float]
) -> None:
    plan = replace(PIPELINE, layout=Layout(stages=stages), microbatches=8, **uneven)  # type: ignore[arg-type]
    sick = replace(plan, slow={rank: factor})
    (named,) = joined(sick).stragglers
    true = step_ms(sick) - step_ms(plan)
    assert named.rank == rank
    assert named.lost_us / 1000 == pytest.approx(true, rel=0.1, abs=0.1)
    assert named.more_us > 1.5 * named.lost_us or "loss_ms" not in uneven


def test_a_slow_stage_that_others_wait_for_anyway_is_named_without_a_cost() -> None:
    (finding,) = judged(traces(replace(PIPELINE, loss_ms=60, microbatches=8, slow={2: 1.05})))
    assert finding.status is Status.WARN
    assert "rank 2 takes longer for equal kernels" in finding.message
    assert "it costs less than 1% of a step" in finding.message


def test_few_steps_name_a_stage_that_is_late_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_stages, "beyond_chance", lambda sample, beyond: False)
    assert set(late(joined(replace(PIPELINE, paused_early={1: 9.0})))) == {1}
    assert not late(joined(replace(PIPELINE, paused_early={1: 9.0}, steps=5)))
    assert not late(joined(replace(PIPELINE, paused_early=EQUAL)))


def test_a_stage_that_may_be_idle_by_chance_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stragglers, "BY_CHANCE", 1e-15)
    monkeypatch.setattr(late_stages, "_EACH_STEP", 6)
    for pauses, status in (({}, Status.PASS), ({1: 9.0}, Status.UNKNOWN)):
        (finding,) = judged(traces(replace(PIPELINE, paused_early=pauses)))
        assert finding.status is status
    assert "other stages wait in receives for rank 1 with an idle GPU" in finding.message


@pytest.mark.parametrize(
    ("layout", "rank"),
    [(Layout(tensor=2, stages=2), 3), (Layout(tensor=2, stages=4), 7), (Layout(tensor=4, stages=2), 7)],
)
def test_idle_time_counts_after_a_wait_for_a_peer_that_it_had_delayed(layout: Layout, rank: int) -> None:
    """The tensor-parallel peer of an idle rank is late because of it, and now and then the later one of both."""
    plan = replace(PIPELINE, layout=layout, layer_ms=1, jitter=0.03, microbatches=2, seed=1)
    pause = 2.0 if layout.stages == 4 else 1.0
    assert set(late(joined(replace(plan, paused={rank: pause})))) == {rank}
    assert not late(joined(replace(plan, paused=dict.fromkeys(range(layout.tensor * layout.stages), pause))))


def launched_just_in_time(text: str) -> str:
    """Launch each kernel 10 µs before it begins, unlike a CPU that is far ahead."""
    raw = json.loads(text)
    begins = {event["args"]["correlation"]: event["ts"] for event in raw["traceEvents"] if event["cat"] == "kernel"}
    for event in raw["traceEvents"]:
        if event["cat"] == "cuda_runtime":
            event["ts"] = begins[event["args"]["correlation"]] - 10
    return json.dumps(raw)


@pytest.mark.parametrize("rank", range(3))
def test_a_stage_that_stalls_once_is_named_with_its_cost(rank: int) -> None:
    """But none is if all stages stall."""
    plan = replace(PIPELINE, steps=8, stall_ms=20, stall_steps=frozenset((4,)))
    sick = replace(plan, stall_ranks=frozenset((rank,)))
    (named,) = joined(sick).stragglers
    assert (named.rank, named.steps) == (rank, (4,))
    assert named.lost_us / 1000 == pytest.approx(step_ms(sick) - step_ms(replace(plan, stall_ms=0.0)), rel=0.1)
    assert not joined(plan).stragglers
    finding, *_ = judged(list(map(launched_just_in_time, traces(sick))))
    cause = f"wait in receives for rank {rank}, whose GPU is idle meanwhile, because its CPU launches nothing in step 4"
    assert cause in finding.message


@pytest.mark.parametrize(
    "pauses", [{"paused": EQUAL}, {"paused_early": EQUAL}, {"paused_early": {3: 4.0}}]
)  # fmt: skip
def test_idle_time_that_delays_no_stage_names_none(pauses: dict[str, dict[int, float]]) -> None:
    (finding,) = judged(traces(replace(PIPELINE, **pauses)))  # type: ignore[arg-type]
    assert finding.status is Status.PASS


@pytest.mark.parametrize("layout", [Layout(data=2, stages=2), Layout(tensor=2, stages=4), Layout(data=2, stages=4)])
def test_messages_of_pipelines_beside_other_groups_are_matched(layout: Layout) -> None:
    """PyTorch records the peer of a message by its rank in the job, not in the process group."""
    plan = replace(PIPELINE, layout=layout, layer_ms=1, steps=12)
    (finding,) = judged(traces(plan))
    assert finding.status is Status.PASS, finding.message
    pipelines = {layout.group("pp", rank) for rank in range(layout.ranks)}
    assert {bubble.ranks for bubble in joined(plan).bubbles} == pipelines


@pytest.mark.parametrize(("rank", "seed"), [(3, 1), (4, 0)])
def test_the_replica_of_a_slow_stage_is_not_blamed(rank: int, seed: int) -> None:
    """Its tensor-parallel peer is late for the next stage, and that for the other replica."""
    plan = JobPlan(Layout(tensor=2, data=2, stages=2), steps=6, layers=8, jitter=0.02, clock_ms=2, numbered=True,
                   microbatches=2, slow={rank: 1.25}, seed=seed)  # fmt: skip
    assert set(late(joined(plan))) == {rank}


def test_a_second_slow_rank_of_the_replica_is_named() -> None:
    plan = JobPlan(Layout(tensor=4, data=2, stages=2), steps=6, layers=8, jitter=0.02, clock_ms=2, numbered=True,
                   microbatches=2, slow={0: 1.3, 10: 1.3})  # fmt: skip
    assert set(late(joined(plan))) >= {0, 10}


#: Stages with different work: a loss in kernels of its own or of layers, long or short, and fewer layers.
UNEVEN = [
    replace(PIPELINE, loss_ms=12), replace(PIPELINE, loss_ms=12, loss_kernel=GEMM),
    replace(PIPELINE, loss_ms=2, loss_kernel=GEMM), replace(PIPELINE, last_layers=1),
    replace(PIPELINE, loss_ms=60),
]  # fmt: skip


@pytest.mark.parametrize("plan", UNEVEN)
@pytest.mark.parametrize("rank", [None, 1, 3])
def test_a_stage_with_more_work_is_not_blamed_but_a_slow_one_is(plan: JobPlan, rank: int | None) -> None:
    job = joined(plan if rank is None else replace(plan, slow={rank: 1.1}))
    assert [straggler.rank for straggler in job.stragglers] == ([] if rank is None else [rank])
    assert not job.suspects


def test_what_uneven_stages_report() -> None:
    first, second = judged(traces(replace(PIPELINE, loss_ms=12)))
    assert first.status is second.status is Status.PASS
    assert "rank 3 computes longer than the other stages of ranks 0 to 3, by 12" in second.message
    for plan in (replace(PIPELINE, loss_ms=60), replace(PIPELINE, last_layers=1, loss_ms=14, loss_kernel=GEMM)):
        (unlike,) = judged(traces(plan))
        assert unlike.status is Status.UNKNOWN
        assert "mostly in kernels that other stages do not have" in unlike.message


def test_a_few_kernels_that_take_longer_are_no_slow_stage() -> None:
    """Two programs may have kernels of one name that do different work."""
    texts = traces(PIPELINE)
    raw = json.loads(texts[2])
    for event in raw["traceEvents"]:
        if event["name"] == "multi_tensor_apply_kernel":
            event["dur"] += 2000
    (finding,) = judged([*texts[:2], json.dumps(raw), texts[3]])
    assert finding.status is Status.UNKNOWN
    assert finding.message.startswith("some kernels take longer on rank 2 than on other stages")


STALLED = JobPlan(Layout(data=4), steps=12, layers=4, layer_ms=2, jitter=0.02, clock_ms=2, stall_ms=25)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("when", [(1, 4, 7, 10), range(12), (5,), (2, 3, 4)])
def test_a_stall_of_all_ranks_names_none_of_them(when: Sequence[int], seed: int) -> None:
    """Garbage collection on all ranks, or storage that all wait for: one of them is the last by chance."""
    job = joined(replace(STALLED, stall_steps=frozenset(when), seed=seed))
    assert not job.stragglers
    assert not job.suspects
    assert list(job.stalled) == ([] if len(when) == 12 else list(when))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_stall_of_one_rank_names_it(rank: int) -> None:
    when = (3, 4, 9)
    (named,) = joined(replace(STALLED, stall_steps=frozenset(when), stall_ranks=frozenset([rank]))).stragglers
    assert (named.rank, named.steps) == (rank, when)


def test_a_rank_that_is_slow_beside_stalls_of_all_is_named() -> None:
    plan = replace(STALLED, stall_steps=frozenset((1, 10)), slow={2: 1.5}, slow_steps=frozenset((4, 6, 8)))
    (named,) = joined(plan).stragglers
    assert (named.rank, named.steps) == (2, (4, 6, 8))


def test_waits_for_messages_without_peers_are_unknown() -> None:
    plan = JobPlan(Layout(data=2, stages=4), steps=6, layers=8, microbatches=4, jitter=0.02)
    bare = replace(plan, overlapped=False, megabytes=300, microbatches=2, layers=32)
    for made, status in ((plan, "unknown"), (replace(plan, numbered=True), "pass"), (bare, "warn")):
        of_item = [each for each in judged(traces(made), overlap) if "PA-22" in (each.answers or ())]
        assert {each.status.value for each in of_item} == {status}

"""Faults of jobs, from traces and benchmarks: one incident for each cause, with its owner and impact."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from preflight._startup.lightclass import replace
from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.judge import judge
from preflight.reports.sanitize import fold
from tests.scenarios.incidents.test_situations import Situation
from tests.scenarios.test_layouts import LLAMA_70B, script
from tests.support.engine_metrics import EngineLoad, text
from tests.support.fixture import cases
from tests.support.planted_fleet import CLUSTER
from tests.support.training_job import JobPlan, Layout, traces
from tests.support.whole_nodes import Fault, nic
from tests.unit.facts.test_planted_jobs import CHECKS, PLANTED

#: Job of ``test_planted_jobs`` -> checks of the causes, in the order of the report.
CAUSES: Mapping[str, list[str]] = {
    "healthy": [],
    "all-reduce after the backward pass": ["torch.bucket-start"],  # on all ranks: one setting
    "a slow data-parallel rank": ["torch.straggler"],
    "a slow tensor-parallel rank": ["torch.straggler"],
    "an expert rank with twice the tokens": ["torch.experts"],
    "a pipeline of four stages with few parts": ["torch.bubble"],  # the steps of the last stage vary with it
    ".item() three times a step": ["torch.synchronisation"],
    ".item() of tensors on the CPU": [],
    "a slow data loader": ["torch.data-loader"],
    "a slow data loader without a name": ["torch.idle"],
    "a step that takes a quarter longer": ["torch.steps"],
    "a long first step of the profile": ["torch.pauses"],  # the CPU runs nothing in that step
    "a long first step, and another": ["torch.pauses"],
}

#: Jobs of several pipelines, and the subjects of their causes.
PIPELINES: Mapping[str, tuple[JobPlan, list[str]]] = {
    "few microbatches": (JobPlan(Layout(data=4, stages=4), jitter=0.03, seed=1), ["torch.bubble"]),  # one setting
    "a slow rank delays its pipeline, and through the all-reduce all ranks": (
        JobPlan(Layout(data=4, stages=2), jitter=0.02, microbatches=16, slow={1: 1.6}), ["torch.straggler rank 1"],
    ),
    "slow ranks of two pipelines": (
        JobPlan(Layout(data=4, stages=2), jitter=0.02, microbatches=16, slow={1: 1.6, 6: 1.6}),
        ["torch.straggler rank 1", "torch.straggler rank 6"],
    ),
    "a slow rank, and few microbatches": (
        JobPlan(Layout(data=4, stages=4), jitter=0.03, numbered=True, slow={1: 1.6}),
        ["torch.bubble", "torch.straggler rank 1"],
    ),
    "slow messages of a pipeline": (
        JobPlan(Layout(data=4, stages=2), jitter=0.02, microbatches=16, megabytes=100, slow_groups={("pp", 2): 4}),
        ["torch.straggler rank 6"],
    ),
    "a slow rank, and slow messages of another pipeline": (
        JobPlan(Layout(data=4, stages=2), jitter=0.02, microbatches=16, megabytes=100, slow={1: 1.6},
                slow_groups={("pp", 2): 4}),
        ["torch.straggler rank 1", "torch.straggler rank 6"],
    ),
}  # fmt: skip

LATE = {"first_token": 1.9, "queue": 1.5, "prefill": 0.3}
MOVED = {"first_token": 1.2, "queue": 0.01, "prefill": 0.25, "transfer": 0.9, "transfer_bytes": 2.5e8}
FULL = EngineLoad(cache_used=0.97, waiting=40, preemptions=50, means=LATE)
BUSY = EngineLoad(waiting=40, means=LATE)

#: Scrapes of serving engines, one log each, and the causes.
SERVED: Mapping[str, tuple[list[EngineLoad], list[str]]] = {
    "a full cache delays requests and first tokens": ([FULL], ["serving.cache"]),
    "requests wait for a place": ([BUSY], ["serving.queue"]),
    "one engine has a full cache, another too many requests": ([FULL, BUSY], ["serving.cache", "serving.queue"]),
    "slow transfers delay first tokens": ([EngineLoad(means=MOVED)], ["serving.kv-transfer"]),
    "transfers fail and are slow": ([EngineLoad(failed_transfers=20, means=MOVED)], ["serving.kv-transfer"]),
    "slow transfers, and too many requests": (
        [EngineLoad(waiting=40, means={**MOVED, "queue": 2.0, "first_token": 3.2})],
        ["serving.kv-transfer", "serving.queue"],
    ),
    "loads of offloaded caches delay first tokens": (
        [EngineLoad(saved_bytes=1e12, loaded_bytes=1e12, loaded_s=300,
                    means={"first_token": 1.2, "queue": 0.01, "prefill": 0.2})], ["serving.offload"],
    ),
    "healthy": ([EngineLoad(), EngineLoad()], []),
}  # fmt: skip

INFINIBAND = "64 x HGX H100, rail-optimised, units of 32 nodes, 1:1"

#: Sizes of a job, where it runs, and the causes.
PLANS: Mapping[str, tuple[dict[str, int], str, list[str]]] = {
    "groups that do not divide the GPUs leave no data-parallel size": (
        {"tp": 8, "pp": 5, "gbs": 512}, INFINIBAND, ["layout.world-size"],
    ),
    "a batch that does not divide": ({"tp": 8, "pp": 4, "gbs": 500}, INFINIBAND, ["layout.global-batch"]),
    "ranks dealt out cyclically": (
        {"tp": 8, "pp": 4, "gbs": 512}, f"{INFINIBAND}, cyclic", ["layout.tensor-domain"],
    ),
    "tensor parallelism over two nodes, and a batch that does not divide": (
        {"tp": 16, "pp": 4, "gbs": 500}, INFINIBAND, ["layout.global-batch", "layout.tensor-domain"],
    ),
}  # fmt: skip

#: A campaign whose runs on gpu003 are slow, with errors of its mlx5_3: faults of nodes, and the incidents.
CAMPAIGNS: Mapping[str, tuple[Mapping[int, Fault], list[str]]] = {
    "the port counts errors in the slow runs": ({}, ["bench.ports @the run's logs"]),
    "the port still damages packets": (
        {3: nic("mlx5_3", grows={"symbol_error": 60})}, ["counters.link-quality @gpu003"],
    ),
    "another port of the node damages packets": (
        {3: nic("mlx5_9", grows={"symbol_error": 60})},
        ["bench.ports @the run's logs", "counters.link-quality @gpu003"],
    ),
    "the same port of another node damages packets": (
        {2: nic("mlx5_3", grows={"symbol_error": 60})},
        ["bench.ports @the run's logs", "counters.link-quality @gpu002"],
    ),
}  # fmt: skip

#: Check -> owner, impact of a failure, impact of a warning (empty: no fixture has it). Written by hand.
EXPECTED: Mapping[str, tuple[str, str, str]] = {
    "bench.coverage": ("site", "", "drifts"),
    "bench.factor": ("network", "slows-job", "slows-job"),
    "bench.pair-times": ("network", "", "slows-job"),
    "bench.pairs": ("network", "", "slows-job"),
    "bench.ports": ("network", "slows-job", "slows-job"),
    "bench.shared-uplinks": ("network", "", "slows-job"),
    "bench.tail": ("network", "", "slows-job"),
    "layout.context-domain": ("job", "", "slows-job"),
    "layout.divisibility": ("job", "blocks-job", ""),
    "layout.expert-domain": ("job", "slows-job", "slows-job"),
    "layout.global-batch": ("job", "blocks-job", ""),
    "layout.lost-work": ("job", "", "slows-job"),
    "layout.measured": ("job", "", "slows-job"),
    "layout.memory": ("job", "blocks-job", "drifts"),
    "layout.microbatches": ("job", "slows-job", "slows-job"),
    "layout.pipeline-rails": ("job", "", "slows-job"),
    "layout.ring-order": ("job", "slows-job", "slows-job"),
    "layout.sharding": ("job", "slows-job", "slows-job"),
    "layout.tensor-domain": ("job", "slows-job", ""),
    "layout.world-size": ("job", "blocks-job", ""),
    "serving.cache": ("job", "", "slows-job"),
    "serving.first-token": ("job", "", "slows-job"),
    "serving.kv-rate": ("job", "", "slows-job"),
    "serving.kv-transfer": ("job", "", "slows-job"),
    "serving.next-token": ("job", "", "slows-job"),
    "serving.queue": ("job", "", "slows-job"),
    "torch.backend": ("job", "slows-job", ""),
    "torch.bubble": ("job", "", "slows-job"),
    "torch.bucket-start": ("job", "", "slows-job"),
    "torch.busbw": ("node", "", "slows-job"),
    "torch.collective-share": ("job", "", "slows-job"),
    "torch.collective-times": ("job", "", "slows-job"),
    "torch.data-loader": ("job", "", "slows-job"),
    "torch.data-parallel": ("job", "", "slows-job"),
    "torch.experts": ("job", "", "slows-job"),
    "torch.exposed-collectives": ("job", "", "slows-job"),
    "torch.hang": ("job", "blocks-job", "drifts"),
    "torch.idle": ("job", "", "slows-job"),
    "torch.launch-bound": ("job", "", "slows-job"),
    "torch.matrix-product": ("node", "", "slows-job"),
    "torch.memory": ("job", "", "drifts"),
    "torch.memory-bandwidth": ("node", "", "slows-job"),
    "torch.overlap": ("job", "", "slows-job"),
    "torch.pauses": ("job", "", "slows-job"),
    "torch.placement": ("node", "", "slows-job"),
    "torch.stacks": ("job", "", "drifts"),
    "torch.steps": ("job", "", "slows-job"),
    "torch.straggler": ("node", "", "slows-job"),
    "torch.synchronisation": ("job", "", "slows-job"),
}

#: Fixtures with two faults: pairs of nodes that do not run, each with a separate log.
SEVERAL = {"bench.pairs/two-that-do-not-run": 2}

RUN_CHECKS = {
    check.id: check for check in registry().checks
    if check.id.partition(".")[0] in ("bench", "layout", "serving", "torch")
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_of_a_job_is_one_incident(name: str) -> None:
    planted = PLANTED[name](random.Random(name))
    records = {key: {"status": "ok", "out": trace} for key, trace in planted.texts.items()}
    report = judge([], CHECKS, run=Evidence("@run", "", records))
    causes = [report["findings"][incident["findings"][0]]["check"] for incident in report["incidents"]]
    assert sorted(causes) == CAUSES[name]


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_that_wait_for_one_cause_are_one_incident(name: str) -> None:
    plan, expected = PIPELINES[name]
    records = {f"log:rank{rank}.json": {"status": "ok", "out": trace} for rank, trace in enumerate(traces(plan))}
    report = judge([], CHECKS, run=Evidence("@run", "", records))
    causes = [(report["findings"][incident["findings"][0]]["check"], incident) for incident in report["incidents"]]
    named = [
        f"{check} {incident['subjects'][0]}" if check == "torch.straggler" else check for check, incident in causes
    ]
    assert sorted(named) == expected


def causes(run: Evidence, nodes: Sequence[Evidence] = (), cluster: Cluster | None = None) -> list[str]:
    """Return the check of each incident's cause, with its nodes if there are any."""
    report = judge(nodes, registry().checks, cluster, run=run)
    where = {number: incident["nodes"] for incident in report["incidents"] for number in incident["findings"][:1]}
    return sorted(
        report["findings"][number]["check"] + (f" @{fold(names)}" if nodes else "") for number, names in where.items()
    )


@pytest.mark.parametrize("name", SERVED)
def test_delays_of_an_engine_have_one_cause(name: str) -> None:
    loads, expected = SERVED[name]
    records = {f"log:{number}.txt": {"status": "ok", "out": text("vllm", load)} for number, load in enumerate(loads)}
    assert causes(Evidence("@run", "", records)) == expected


@pytest.mark.parametrize("name", PLANS)
def test_wrong_sizes_of_a_job_have_one_cause(name: str) -> None:
    sizes, cluster, expected = PLANS[name]
    sources = {"train.sh": script(LLAMA_70B, **sizes)}
    described = {"sources": sources, "set": {"gpus": 512}, "on": cluster, "nodes": None}
    assert causes(Evidence("@run", "", {"job:description": {"status": "ok", "value": described}})) == expected


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_slow_runs_belong_to_the_fault_of_their_node(name: str) -> None:
    faults, expected = CAMPAIGNS[name]
    (case,) = (case for case in cases("bench.factor") if case.name == "bench.factor/one-node-with-errors")
    nodes = [from_document(node, node["node"]) for node in Situation([("roce", 4)], faults).documents()]
    assert causes(case.run()[0], nodes, decode(CLUSTER.encode(), "cluster.toml")) == expected


#: Fixtures with a fault that other checks of the job show as well, and the causes.
ALSO_SHOWN: Mapping[str, tuple[list[str], list[str]]] = {
    "a rank reads a file, its peers time out": (
        ["torch.stacks/one-rank-reads-a-file", "torch.hang/watchdog-rank-2-is-behind"], ["torch.stacks"],
    ),
    "a rank stays behind, and NCCL's RAS names it": (
        ["nccl.ras/rank-stays-behind", "torch.hang/watchdog-rank-2-is-behind"], ["nccl.ras"],
    ),
    "a paused port lengthens steps": (["counters.step-times/slow-steps-while-paused"], ["counters.congestion"]),
    "KV caches move over TCP": (["serving.kv-rate/over-tcp"], ["serving.kv-rate"]),
    "wrong values stop nccl-tests": (["nccl-tests.busbw/only-small-messages"], ["nccl-tests.wrong-values"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ALSO_SHOWN)
def test_what_other_checks_show_is_one_incident(name: str) -> None:
    names, expected = ALSO_SHOWN[name]
    given = [case for each in names for case in cases(each.partition("/")[0]) if case.name == each]
    records = {key: record for case in given for key, record in case.run()[0].records.items()}
    run, nodes = given[0].run()
    shown = causes(replace(run, records=records), nodes, given[0].cluster())
    assert [cause.partition(" @")[0] for cause in shown] == expected


@pytest.mark.parametrize("check", EXPECTED)
def test_fault_of_a_job_has_its_owner(check: str) -> None:
    given = set()
    for case in cases(check):
        run, nodes = case.run()
        report = judge(nodes, [RUN_CHECKS[check]], case.cluster(), run=run)
        loud = any(finding["status"] in ("fail", "warn") for finding in report["findings"])
        assert len(report["incidents"]) == SEVERAL.get(case.name, int(loud)), case.name
        given |= {(incident["owner"], incident["status"], incident["impact"]) for incident in report["incidents"]}
    owner, *impacts = EXPECTED[check]
    assert given == {(owner, *pair) for pair in zip(("fail", "warn"), impacts, strict=True) if pair[1]}

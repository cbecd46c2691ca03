"""Check of benchmarks against the collectives that the job uses."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.job.benchmark_scale import DECLARE, short
from preflight.checks.job.nccl_tests import no_report, reports
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, verb, warned


@check(
    "nccl-tests.job-collectives",
    title="The benchmark covers the collectives of the job",
    fault="The benchmark misses a collective of the job",
    impact="drifts",
    source="PyTorch DDP: AllReduce; FSDP and ZeRO: AllGather and ReduceScatter; mixtures of experts: All-to-All",
    fix="Run `all_gather_perf`, `reduce_scatter_perf` and `alltoall_perf` in addition to `all_reduce_perf`, as "
    "the job needs.",
    action="fix-job",
    answers=("PA-N1",),
    scope="run",
    gating=False,
    unless=(no_report,),
)
def job_collectives(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the measured collectives with those that the declared model uses.

    ## Why it matters
    A fabric that was only measured with all_reduce may still be slow for the job: all-to-all loads the spine, which
    all_reduce hardly uses.

    ## Verdicts
    The collectives follow from [class.NAME.model]: all_reduce for sharding "data" or tensor_ways above 1, all_gather
    and reduce_scatter for "fsdp", and alltoall for experts. A collective without a complete run warns. Without a
    declared layout, the result is unknown, and so is a run smaller than the job (see nccl-tests.collectives).

    ## False alarms
    A benchmark of another job's fabric that was passed by accident.
    """
    keys = list(run.nccl_tests)
    model = site.members.model
    needed = {
        "data": ["all_reduce"], "fsdp": ["all_gather", "reduce_scatter"], None: list[str](),
    }[model.sharding]  # fmt: skip
    needed += ["alltoall"] * (model.experts is not None) + ["all_reduce"] * ((model.tensor_ways or 1) > 1)
    if not needed:
        yield unknown("the collectives that the job uses are not declared", evidence=keys,
                      fix="declare the model in the cluster file: sharding, experts and tensor_ways in "
                          "[class.NAME.model]")  # fmt: skip
        return
    measured = {
        report.collective: short(report, site)
        for _, _, report in sorted(reports(run), key=lambda one: one[2].nranks or 0)
        if report.collective and report.complete and report.rows and report.status != "failed"
    }
    lacks = [one for one in dict.fromkeys(needed) if one not in measured]
    small = [f"{one}: {measured[one]}" for one in dict.fromkeys(needed) if measured.get(one)]
    found = ", ".join(sorted(measured)) or "none"
    lead = f"the job uses {' and '.join(dict.fromkeys(needed))}"
    if lacks:
        yield warned(f"{lead}, but {' and '.join(lacks)} {verb(len(lacks), 'was')} not measured", found=found,
                     expected=", ".join(dict.fromkeys(needed)), evidence=keys)  # fmt: skip
    elif small:
        yield unknown(f"{lead}, but the runs are smaller than the job: {'; '.join(small)}", found=found, evidence=keys,
                      fix=DECLARE)  # fmt: skip
    else:
        yield passed(f"{lead}, which {verb(len(set(needed)), 'was')} measured", found=found, evidence=keys)

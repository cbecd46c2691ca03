"""Checks of a described job: consistent numbers, and memory that fits the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.job_description import RECORD
from preflight.layout.job import TrainingJob
from preflight.layout.memory import FRAGMENTATION, FUSED, GIB, OVERHEAD_GIB, PARTS, least, most, open_settings
from preflight.layout.plan import Plan
from preflight.layout.stages import layers_of
from preflight.layout.step import bubble_share
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

ARGUMENTS = "Megatron-LM megatron/training/arguments.py"
_KNOWLEDGE = "Megatron-LM theoretical_memory_usage.py; V. Korthikanti et al., arXiv 2205.05198"

#: Share of a step above which a pipeline bubble warns (judgement call).
BUBBLE = 0.20


def plan_of(run: RunFacts, site: Site) -> Plan:
    """Return the plan of a run; raises EvidenceError for an unreadable description."""
    assert run.description is not None  # guaranteed by `needs`
    return Plan(run.description, site, run.nccl_tests)


def unreadable_setting(run: RunFacts, site: Site) -> Finding | None:
    """Return *unknown* if a setting is stated but unreadable, else None."""
    # whether layers are gated matters for memory and time only
    return undescribed(run, site) if plan_of(run, site).described.unread - {"gated"} else None


def undescribed(run: RunFacts, site: Site) -> Finding | None:
    """Return *unknown* for a job with a missing setting or inconsistent numbers."""
    plan = plan_of(run, site)
    return None if plan.job else unknown(f"{plan.why_no_job}, so the layout cannot be judged", fix=plan.fix_no_job)


def job_of(run: RunFacts, site: Site) -> TrainingJob:
    """Return the job of a run; `unless` guarantees that it is known."""
    job = plan_of(run, site).job
    assert job is not None
    return job


def no_pipeline(run: RunFacts, site: Site) -> Finding | None:
    """Skip a job without a pipeline."""
    absent = job_of(run, site).parallel.pipeline == 1
    return skipped("the job has no pipeline", evidence=[RECORD]) if absent else None


def no_cluster(plan: Plan) -> Finding:
    """Return *unknown* for an unknown cluster or rank placement."""
    return unknown(f"{plan.no_hardware or plan.unplaced}, so the layout cannot be judged", fix=plan.fix_unplaced)


@check(
    "layout.world-size",
    title="The sizes of the parallel groups multiply to the number of GPUs",
    fault="The sizes of the parallel groups do not divide the number of GPUs",
    impact="blocks-job",
    owner="job",
    explains=(("layout.global-batch", "node"),),
    source=ARGUMENTS,
    fix="Change a group size (`--set`, `--what-if`) or the number of GPUs (`--gpus`).",
    action="fix-job",
    answers=("PA-06",),
    scope="run",
    needs=("layout",),
    unless=(unreadable_setting,),
)
def world_size(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that tensor, pipeline, context and data parallelism use all GPUs.

    ## Why it matters
    A job whose number of ranks does not match the layout stops at its start, after it has waited in the queue and
    started on every node.

    ## Verdicts
    The check fails if tensor x pipeline x context, or expert x expert-tensor x pipeline, does not divide the number of
    GPUs. It also fails if the stated data-parallel size differs from the resulting one, or if the job has more GPUs
    than the cluster. The message states the resulting data-parallel size.

    ## False alarms
    A framework that leaves GPUs idle on purpose.
    """
    plan = plan_of(run, site)
    values = plan.described.values
    gpus = values.get("gpus")
    if not gpus:
        yield unknown("the number of GPUs is not stated", fix="state it: --gpus N, or name the cluster with --on")
        return
    sizes = {name: int(values.get(name) or 1) for name in ("tensor", "pipeline", "context")}
    ranks = prod(sizes.values())
    product = " x ".join(f"{name} {size}" for name, size in sizes.items())
    if ranks == 0 or gpus % ranks:
        yield failed(
            f"{product} = {ranks} does not divide {gpus} GPUs", found=f"{ranks}", expected=f"a divisor of {gpus}"
        )
    elif values.get("data") not in (None, gpus // ranks):
        yield failed(f"{product} x data {gpus // ranks} = {gpus} GPUs, but data {values['data']} is stated",
                     found=f"data {gpus // ranks}", expected=f"data {values['data']}")  # fmt: skip
    else:
        yield passed(f"{product} x data {gpus // ranks} = {gpus} GPUs", found=f"data {gpus // ranks}")
    if values.get("experts"):
        yield _expert_ranks(values, gpus)
    available = plan.hardware.gpus if plan.hardware is not None else None
    if available is not None and gpus > available:
        yield failed(
            f"the job has {gpus} GPUs, but the cluster has {available}",
            found=f"{gpus}",
            expected=f"at most {available}",
        )


def _expert_ranks(values: Any, gpus: int) -> Finding:
    sizes = {name: int(values.get(name) or 1) for name in ("expert", "expert_tensor", "pipeline")}
    ranks = prod(sizes.values())
    product = " x ".join(f"{name.replace('_', '-')} {size}" for name, size in sizes.items())
    if ranks == 0 or gpus % ranks:
        return failed(f"{product} = {ranks} does not divide {gpus} GPUs", found=f"{ranks}",
                      expected=f"a divisor of {gpus}", subject="experts")  # fmt: skip
    return passed(f"{product} x data {gpus // ranks} = {gpus} GPUs", found=f"data {gpus // ranks}", subject="experts")


@check(
    "layout.global-batch",
    title="The global batch is micro-batch x accumulation x data-parallel size",
    fault="The global batch is not micro-batch x accumulation x data-parallel size",
    impact="blocks-job",
    owner="job",
    source=ARGUMENTS,
    fix="Choose a `--global-batch-size` that is a multiple of micro-batch x data-parallel size.",
    action="fix-job",
    answers=("PA-11",),
    scope="run",
    needs=("layout",),
    unless=(unreadable_setting,),
)
def global_batch(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that the global batch results from the other batch settings.

    ## Why it matters
    Megatron-LM refuses a batch that is not divisible; other frameworks round it silently, and the run then trains with
    a batch that its learning rate was not chosen for.

    ## Verdicts
    The check fails if the global batch is not a multiple of micro-batch x data-parallel size, or if a stated
    accumulation contradicts it.

    ## False alarms
    A schedule that raises the batch during training, if only its last value is stated.
    """
    plan = plan_of(run, site)
    values = plan.described.values
    wanted = ("gpus", "micro_batch", "global_batch")
    if absent := [name for name in wanted if not values.get(name)]:
        yield unknown(f"the job does not state {', '.join(absent)}",
                      fix="state it: " + " ".join(f"--set {name}=..." for name in absent))  # fmt: skip
        return
    ranks = prod(int(values.get(name) or 1) for name in ("tensor", "pipeline", "context"))
    replicas = values["gpus"] // ranks if ranks else 0
    micro, batch = values["micro_batch"], values["global_batch"]
    if not replicas:
        yield unknown("no data-parallel group follows from the sizes (layout.world-size)",
                      fix="correct the sizes of the groups or the number of GPUs")  # fmt: skip
        return
    each = micro * replicas
    if batch % each or batch < each:
        yield failed(
            f"the global batch {batch} is not a multiple of micro-batch {micro} x data-parallel {replicas} = {each}",
            found=f"{batch}", expected=f"{max(1, round(batch / each)) * each}",
        )  # fmt: skip
        return
    steps, stated = batch // each, values.get("accumulation")
    message = f"global batch {batch} = micro-batch {micro} x accumulation {steps} x data-parallel {replicas}"
    if stated is not None and stated != steps:
        yield failed(f"{message}, but an accumulation of {stated} is stated", found=f"{stated}", expected=f"{steps}")
        return
    yield passed(message, found=f"{batch}")


#: Settings that cannot exceed another setting, and the message for each.
_PARTS = (
    ("active_experts", "experts", "{} experts are active, but the model has only {}"),
    ("dense_layers", "layers", "{} layers are dense, but the model has only {}"),
    ("kv_heads", "heads", "{} key-value heads are stated for {} heads"),
    ("offload_layers", "layers", "{} layers are offloaded, but the model has only {}"),
)


@check(
    "layout.divisibility",
    title="Heads, layers, experts and the sequence are divisible by their group sizes",
    fault="Heads, layers, experts or the sequence are not divisible by their group size",
    impact="blocks-job",
    owner="job",
    source=f"{ARGUMENTS} and megatron/core/transformer/transformer_config.py",
    fix="Choose group sizes that divide the model; try them with `--what-if`.",
    action="fix-job",
    scope="run",
    needs=("layout",),
    unless=(unreadable_setting,),
)
def divisibility(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check that each group size divides what the group shares.

    ## Why it matters
    Some frameworks check this and stop when the job starts; others pad, and some ranks compute padding.

    ## Verdicts
    The check fails if heads or the feed-forward width are not divisible by tensor, layers by pipeline x virtual stages,
    experts by expert, or the sequence by 2 x context (with sequence parallelism, also by tensor x context). With
    all-to-all context parallelism, heads must be divisible by tensor x context. Either key-value heads or tensor must
    be a multiple of the other. Active experts, dense layers, key-value heads and offloaded layers cannot exceed their
    total. Stated layers of the first and last stage, an embedding or loss that counts as a layer, and a pipeline layout
    are taken into account; a layout that cannot be read is *unknown*.

    ## False alarms
    A framework that pads heads or the vocabulary by itself, without an option in the script.
    """
    plan = plan_of(run, site)
    values = {name: int(value) for name, value in plan.described.values.items() if type(value) is int}

    def size(name: str) -> int:
        return values.get(name) or 1

    rules = [
        ("heads", size("tensor"), "tensor"),
        ("feed_forward", size("tensor"), "tensor"),
        ("experts", size("expert"), "expert"),
        ("sequence", 2 * size("context") if size("context") > 1 else 1, "2 x context"),
    ]
    if plan.described.values.get("sequence_parallel"):
        rules.append(("sequence", size("tensor") * size("context"), "tensor x context (sequence parallelism)"))
    if plan.described.values.get("context_exchange") == "a2a":
        rules.append(("heads", size("tensor") * size("context"), "tensor x context (all-to-all)"))
    failures = 0
    balanced = plan.described.values.get("balanced_stages")  # DeepSpeed splits any number of layers
    if "layers" in values and not balanced and (finding := _stage_layers(plan.described.values)) is not None:
        failures += 1
        yield finding
    for name, parts, what in rules:
        if name in values and values[name] % parts:
            failures += 1
            label = name.replace("_", "-")
            yield failed(f"{label} = {values[name]} is not a multiple of {what} = {parts}", subject=label,
                         found=f"{values[name]}", expected=f"a multiple of {parts}")  # fmt: skip
    for name, limit, message in _PARTS:
        if name in values and limit in values and values[name] > values[limit]:
            failures += 1
            yield failed(message.format(values[name], values[limit]), subject=name.replace("_", "-"),
                         found=f"{values[name]}", expected=f"at most {values[limit]}")  # fmt: skip
    groups, tensor = values.get("kv_heads"), size("tensor")
    ways = tensor * size("context")
    alltoall = plan.described.values.get("context_exchange") == "a2a"
    if alltoall and groups and groups != values.get("heads") and groups % ways:
        failures += 1
        yield failed(f"{groups} key-value heads are not a multiple of tensor x context (all-to-all) = {ways}",
                     subject="kv-heads", found=f"{groups}", expected=f"a multiple of {ways}")  # fmt: skip
    elif groups and groups != values.get("heads") and groups % tensor and tensor % groups:
        failures += 1
        yield failed(f"{groups} key-value heads are neither a multiple nor a divisor of tensor {tensor}",
                     subject="kv-heads", found=f"{groups}", expected=f"a multiple or divisor of {tensor}")  # fmt: skip
    absent = [name for name in ("layers", "heads") if name not in values]
    if absent:
        yield unknown(f"the job does not state {' and '.join(absent)}",
                      fix="state it: " + " ".join(f"--set {name}=..." for name in absent))  # fmt: skip
    elif not failures:
        yield passed("each stated size of the model is divisible by the size of its groups")


def _stage_layers(values: Mapping[str, Any]) -> Finding | None:
    """Judge how the layers divide into pipeline stages; None if they fit."""
    stages, virtual = (int(values.get(name) or 1) for name in ("pipeline", "virtual_stages"))
    layers, layout = int(values["layers"]), values.get("stage_layout")
    if layout:
        listed = layers_of(str(layout))
        if listed is None:
            return unknown(f"the pipeline layout {str(layout)[:60]!r} cannot be parsed", subject="layers")
        if sum(listed) == layers and len(listed) % stages == 0:
            return None
        return failed(f"the pipeline layout has {sum(listed)} layers in {len(listed)} parts, but the model has "
                      f"{layers} layers and {stages} stages", subject="layers", found=f"{sum(listed)} in {len(listed)}",
                      expected=f"{layers} in a multiple of {stages}")  # fmt: skip
    ends = [int(values.get(name) or 0) for name in ("first_layers", "last_layers")]
    if any(ends):
        between = stages - sum(map(bool, ends))
        rest, parts = layers - sum(ends), between * virtual
        what, label = (
            f"middle layers = {layers} - {' - '.join(str(end) for end in ends if end)} = {rest}",
            "the middle stages",
        )
    else:
        counted = sum(bool(values.get(name)) for name in ("embedding_layer", "loss_layer"))
        rest, parts = layers + counted, stages * virtual
        what = f"layers = {layers}" + (f" (+ {counted} for embedding and loss)" if counted else "")
        label = "pipeline x virtual stages" if virtual > 1 else "pipeline"
    if rest >= 0 and (rest % parts == 0 if parts > 0 else rest == 0):
        return None
    return failed(f"{what} is not a multiple of {label} = {parts}", subject="layers", found=f"{rest}",
                  expected=f"a multiple of {parts}")  # fmt: skip


@check(
    "layout.microbatches",
    title="There are enough microbatches to fill the pipeline",
    fault="There are too few microbatches to fill the pipeline",
    impact="slows-job",
    owner="job",
    source="D. Narayanan et al., arXiv 2104.04473; judgement: a bubble of a fifth of the step",
    fix="Raise `--global-batch-size`, lower `--micro-batch-size` or use fewer stages.",
    action="fix-job",
    answers=("PA-24",),
    scope="run",
    needs=("layout",),
    unless=(undescribed, no_pipeline),
)
def microbatches(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Check the share of a step in which a pipeline stage is idle.

    ## Why it matters
    With p stages, each split into v virtual ones, every stage waits for (p-1)/v microbatches in each step, on any
    hardware.

    ## Verdicts
    With p stages, v virtual ones and m microbatches, the bubble takes (p-1)/(v m + p - 1) of the step. The check fails
    if there are fewer microbatches than stages, or if an interleaved schedule gets a number that is not a multiple of
    the stages, which Megatron-LM refuses. A bubble above 20% warns.

    ## False alarms
    Schedules that fill the bubble (zero bubble, DualPipe), which the arguments of a job do not show.
    """
    job = job_of(run, site)
    stages, virtual, count = job.parallel.pipeline, job.parallel.virtual_stages, job.microbatches
    share = bubble_share(stages, virtual, count)
    message = f"with {count} microbatches over {stages} stages"
    message += f" of {virtual} virtual stages each" if virtual > 1 else ""
    message += f", the bubble takes {share:.1%} of the step"
    if virtual > 1 and count % stages:
        yield failed(f"{message}; the interleaved schedule needs a multiple of {stages}", found=f"{count}",
                     expected=f"a multiple of {stages}")  # fmt: skip
    elif count < stages:
        yield failed(
            f"{message}; stages are idle even in the steady state", found=f"{count}", expected=f"at least {stages}"
        )
    elif share > BUBBLE:
        yield warned(message, found=f"{share:.1%}", expected=f"at most {BUBBLE:.0%}")
    else:
        yield passed(message, found=f"{share:.1%}")


#: Changes that reduce the memory of a job, in the words of its framework.
_SMALLER = {
    "deepspeed": "Use a higher `zero_optimization.stage`, checkpoint activations (`gradient_checkpointing=True`), or "
    "lower `train_micro_batch_size_per_gpu`.",
    "torchtitan": 'Set `activation_checkpoint.mode = "full"`, raise `tensor_parallel_degree`, or lower '
    "`training.local_batch_size`.",
}


@check(
    "layout.memory",
    title="The job fits the memory of a GPU",
    fault="The job does not fit the memory of a GPU",
    impact="blocks-job",
    owner="job",
    source=f"{_KNOWLEDGE}; judgement: {OVERHEAD_GIB:g} GiB and {FRAGMENTATION:.0%} in addition to tensors",
    fix="Raise `--tensor-model-parallel-size` or `--pipeline-model-parallel-size`, shard the optimizer "
    "(`--use-distributed-optimizer`), recompute (`--recompute-granularity full`) or lower `--micro-batch-size`.",
    action="fix-job",
    answers=("PA-05", "PA-09"),
    scope="run",
    needs=("layout",),
    unless=(undescribed,),
)
def memory_fits(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the memory that the job needs with that of a GPU.

    ## Why it matters
    A job that does not fit stops in its first step; one that barely fits stops later, at the first longer sequence.

    ## Verdicts
    The requirement is the sum of weights, gradients, Adam's states, activations of the microbatches in flight and
    logits on the most loaded GPU, the first or last pipeline stage. The check fails if the minimum for the stated
    settings in any framework exceeds the GPU's memory. It passes only if the requirement fits with a reserve of 4 GiB
    (driver, context, NCCL, workspace) and 15% for fragmentation. In Megatron-LM, the 15% apply only to memory that is
    allocated repeatedly; in other frameworks, the buffers of unfused kernels must fit as well. Everything in between
    warns, and names the decisive settings. The expert router is assumed to be balanced.

    ## False alarms
    A framework that offloads to host memory by itself.
    """
    plan = plan_of(run, site)
    assert plan.memory is not None  # guaranteed by `unless`
    need = plan.memory.total / GIB
    parts = ", ".join(f"{name} {getattr(plan.memory, name) / GIB:.1f}" for name in PARTS if getattr(plan.memory, name))
    message = f"tensors need {need:.1f} GiB on the most loaded GPU ({parts})"
    if plan.hardware is None or plan.hardware.memory_gib is None:
        what = (
            plan.no_hardware or f"the memory of the {plan.hardware.gpu.name if plan.hardware else 'GPU'} is not known"
        )
        yield unknown(f"{message}; {what}", found=f"{need:.1f} GiB", fix="state the memory of a GPU: --on '…, 80 GB'")
        return
    available = plan.hardware.memory_gib
    statement = f"{message}; the GPU has {available:g} GiB"
    job = job_of(run, site)
    smaller = {"fix": fix} if (fix := _SMALLER.get(job.schedule.framework)) else {}
    limits: dict[str, Any] = {"found": f"{need:.1f} GiB", "expected": f"at most {available:g} GiB"}
    if least(job) > available * GIB:
        yield failed(statement, **limits, **smaller)
    elif most(job) <= available * GIB:
        yield passed(statement, found=limits["found"])
    elif need > available and (names := open_settings(job)):
        yield warned(f"{statement}; the job fits only with settings that are not stated ({', '.join(names)})",
                     fix="state them: " + " ".join(f"--set {name}=..." for name in names), **limits)  # fmt: skip
    elif need > available:
        yield warned(f"{statement}; the difference is within the accuracy of this estimate", **limits, **smaller)
    else:
        yield warned(f"{statement}; with {_others(job)}, the job may need {most(job) / GIB:.0f} GiB", **limits,
                     **smaller)  # fmt: skip


def _others(job: TrainingJob) -> str:
    """Name what a framework stores in addition to the tensors."""
    unfused = "" if job.schedule.framework in FUSED else ", unfused kernels"
    return f"NCCL, workspace{unfused} and fragmentation"

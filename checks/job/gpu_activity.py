"""Check of the activity of SMs and tensor cores while a job runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.nvidia.activity import GpuActivity
from preflight.model import Finding, check, passed, unknown, warned

#: NVIDIA's bounds of SM activity: effective use needs the first; below the second it is unlikely.
_EFFECTIVE, _INEFFECTIVE = 0.8, 0.5
#: Tensor activity below which the tensor cores are unused, SM activity below which a GPU is idle, and minimum number of
#: readings: judgement calls.
_UNUSED, _IDLE, _ENOUGH = 0.01, 0.02, 10
#: Maximum number of GPUs named in a finding.
_NAMED = 8
_MORE = "Run `dcgmi dmon -e 1002,1004 -d 1000 -c 60 > activity.txt` while the job trains, and judge that file."


@check(
    "gpu.sm-activity",
    title="SMs and tensor cores are busy during the job",
    fault="SMs or tensor cores are hardly used during the job",
    impact="slows-job",
    source="NVIDIA DCGM user guide, profiling metrics: SM activity of 0.8 is necessary for effective use, and a value "
    "below 0.5 is likely ineffective; the other bounds are judgements",
    fix="Profile a few steps and run `preflight trace`: it shows whether the GPUs wait for the CPU, for data or for "
    "each other.",
    answers=("PA-20",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("activity",),
)
def sm_activity(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the mean activity of SMs and tensor cores with NVIDIA's bounds.

    ## Why it matters
    The GPU utilisation of `nvidia-smi` is the share of time with any kernel: a single small kernel, or a kernel of NCCL
    that only waits, counts as 100%. SM and tensor activity show how much of the GPU is busy.

    ## Verdicts
    The sources are `dcgmi dmon -e 1002,1004` and the metrics of dcgm-exporter, measured while the job runs. A GPU whose
    SMs are active for less than half of the time warns, and so does one with active SMs and unused tensor cores, which
    happens to a job in FP32. An SM activity of 0.8 or more on all GPUs, with tensor cores in use, passes; values in
    between are unknown. So are fewer than ten readings, which may coincide with a checkpoint, and GPUs whose SMs are
    not active at all: the job may not use them.

    ## False alarms
    Decode phases of inference, which memory bandwidth limits. Computations in FP64 or FP32 on purpose.
    """
    for key, gpus in run.activity.items():
        yield from judge_activity(gpus, [key])


def judge_activity(gpus: Sequence[GpuActivity], evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the GPUs of one source together."""
    busy = [gpu for gpu in gpus if gpu.sm >= _IDLE]
    slow = [gpu for gpu in busy if gpu.sm < _INEFFECTIVE]
    scalar = [gpu for gpu in busy if gpu.sm >= _INEFFECTIVE and gpu.tensor is not None and gpu.tensor < _UNUSED]
    between = [gpu for gpu in busy if _INEFFECTIVE <= gpu.sm < _EFFECTIVE and gpu not in scalar]
    idle = [gpu for gpu in gpus if gpu.sm < _IDLE]
    if few := [gpu for gpu in busy if gpu.readings < _ENOUGH]:
        yield unknown(f"{_busy(few)}, in fewer than {_ENOUGH} readings", found=_sm(few), evidence=evidence, fix=_MORE)
        return
    if slow:
        yield warned(_busy(slow), found=_sm(slow), expected=f"at least {_INEFFECTIVE:.0%}", evidence=evidence)
    if scalar:
        yield warned(f"{_busy(scalar)}, but the tensor cores are not used", found=_sm(scalar),
                     expected="tensor cores in use", evidence=evidence)  # fmt: skip
    if between:
        yield unknown(f"{_busy(between)}, which shows neither effective nor ineffective use", found=_sm(between),
                      expected=f"at least {_EFFECTIVE:.0%}", evidence=evidence,
                      fix="Profile a few steps and run `preflight trace`: it shows the waits.")  # fmt: skip
    if idle:
        yield unknown(f"{_names(idle)}: SMs are not active, because the job does not use these GPUs or does not run",
                      found=_sm(idle), evidence=evidence, fix=_MORE)  # fmt: skip
    if not busy or slow or scalar or between:
        return
    tensor = [gpu.tensor for gpu in busy if gpu.tensor is not None]
    if len(tensor) < len(busy):
        yield unknown(f"{_busy(busy)}; the activity of the tensor cores is not shown", found=_sm(busy),
                      evidence=evidence, fix=_MORE)  # fmt: skip
        return
    yield passed(f"{_busy(busy)}, tensor cores for {_span(tensor)}", found=_sm(busy), evidence=evidence)


def _names(gpus: Sequence[GpuActivity]) -> str:
    names = [gpu.gpu for gpu in gpus]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _busy(gpus: Sequence[GpuActivity]) -> str:
    return f"{_names(gpus)}: SMs are active for {_sm(gpus)} of the time"


def _sm(gpus: Sequence[GpuActivity]) -> str:
    return _span([gpu.sm for gpu in gpus])


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0%}", f"{max(values):.0%}"
    return low if low == high else f"{low} to {high}"

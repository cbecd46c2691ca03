"""Check of a job's collectives in traces: how much of each kind is exposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.exposure import ExposedCalls, exposures
from preflight.model import Finding, check, passed, unknown, warned

#: Judgement calls, as fractions: minimum overlap of gradients; exposed share of a GPU's busy time, for gradients and
#: for other collectives.
OVERLAPPED, GRADIENTS, OTHERS = 0.50, 0.05, 0.10
_REDUCTIONS = ("all_reduce", "reduce_scatter")


class _Exposed(NamedTuple):
    """Calls of one kind on one rank, with their exposed share of its GPU's busy time."""

    calls: ExposedCalls
    share: float
    name: str
    key: str

    @property
    def much(self) -> bool:
        """Whether too much is exposed."""
        if self.calls.purpose == "dp":
            return self.share > GRADIENTS and self.calls.overlapped < OVERLAPPED
        return self.share > OTHERS


@check(
    "torch.exposed-collectives",
    title="Each kind of collective overlaps with computation",
    fault="One kind of collective does not overlap with computation",
    impact="slows-job",
    explains=(("torch.overlap", "node"),),
    source="Kineto's kernels with their process groups (PyTorch 2.2); matching of collectives across ranks; the "
    "shares are judgements",
    fix="For data parallelism, use `--overlap-grad-reduce`, `bucket_cap_mb` or FSDP's prefetch; for tensor "
    "parallelism, "
    "`--tp-comm-overlap` or smaller groups.",
    action="fix-job",
    answers=("NT-TRN-1", "PA-22"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def exposed_collectives(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure the overlap of each kind of collective, by the purpose of its group.

    Idle time and waits for late ranks are excluded.

    ## Why it matters
    The sum over all collectives does not show which of them to change. Gradients can overlap with the backward pass;
    the all-reduces of a tensor-parallel layer hardly overlap with anything.

    ## Verdicts
    Times run from the arrival of the last rank, and shares are of the time in which a GPU is neither idle nor waiting.
    Data-parallel collectives, and reductions of gradients in groups without a name, warn if they are exposed for more
    than 5% of that time, and less than half of their own time is overlapped. Other collectives warn above 10%. The
    rank with the largest share is judged. If ranks of its group have no trace, too large a share is unknown instead,
    because it may be waiting; a small one passes. Messages between the stages of a pipeline are judged by torch.bubble.

    ## False alarms
    Inference with tensor parallelism: its layers wait for each other by design.
    """
    worst: dict[tuple[str | None, str], list[_Exposed]] = {}
    silent = []
    for key, name, facts in each(run):
        own = [exposed for exposed in _exposed(run, key, name) if exposed.calls.kind != "sendrecv"]
        if not own:
            silent.append((key, name, facts))
        for exposed in own:
            worst.setdefault((exposed.calls.purpose, exposed.calls.kind), []).append(exposed)
    for key, name, facts in silent:
        many = facts["gpu"] is not None and facts["gpu"]["gpus"] > 1
        only = "no collective but sends and receives" if facts["gpu"] and facts["gpu"]["communication_ms"] else ""
        what = "several GPUs" if many else only or "no communication kernel"
        yield unknown(f"{name}: the trace has {what}", subject=name, evidence=[key],
                      fix="profile ProfilerActivity.CUDA on a rank of the job, one process for each GPU")  # fmt: skip
    for ranks in worst.values():
        yield _judged(ranks)


def _exposed(run: RunFacts, key: str, name: str) -> Iterator[_Exposed]:
    """Yield the kinds of calls of a trace, with their exposed shares."""
    trace, job = run.traces[key], run.job_trace
    gpu = trace.document["gpu"]
    rank = next((rank for rank in job.compared if job.ranks[rank].key == key), None)
    waited = None if rank is None else job.waited(rank)
    for calls in exposures(trace, job, rank):
        busy = gpu["span_ms"] - gpu["idle_ms"] - (waited or 0.0) / 1000
        if calls.purpose is None and calls.kind in _REDUCTIONS and gpu["buckets"]:
            calls = calls._replace(purpose="dp")
        yield _Exposed(calls, calls.exposed / 1000 / busy if busy > 0 else 1.0, name, key)


def _judged(ranks: list[_Exposed]) -> Finding:
    """Judge one kind of calls by the rank on which most is exposed."""
    certain = [exposed for exposed in ranks if exposed.much and exposed.calls.complete]
    worst = max(certain or ranks, key=lambda exposed: (exposed.much, exposed.share))
    calls = worst.calls
    kind = calls.what
    message = f"{kind}: {calls.overlapped:.0%} of {calls.took / 1000:.4g} ms in {calls.calls} calls overlaps with "
    message += f"computation; exposed for {worst.share:.1%} of the busy time of {worst.name}"
    traces = len({exposed.key for exposed in ranks})
    message += f", the most of {traces} traces" if traces > 1 else ""
    message += ", without the wait for late ranks" if calls.complete else ", including the wait for late ranks"
    bound = (
        f"at most {GRADIENTS:.0%}, or {OVERLAPPED:.0%} overlapped" if calls.purpose == "dp" else f"at most {OTHERS:.0%}"
    )
    at: dict[str, Any] = {"subject": kind, "evidence": [worst.key], "found": f"{worst.share:.1%} exposed"}
    if not worst.much:
        return passed(message, **at)
    if not calls.complete:
        return unknown(
            message, expected=bound, fix="pass the traces of all ranks of the group, of the same steps", **at
        )
    return warned(message, expected=bound, **at)

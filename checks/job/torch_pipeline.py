"""Check of a job's pipelines in traces: how long stages wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from preflight.checks.job.torch_collectives import listed
from preflight.checks.job.torch_exchange import ANY, absent
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.pipelines import between_stages
from preflight.model import Finding, check, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.trace.pipelines import Bubble
    from preflight.facts.trace.stragglers import Straggler

#: Judgement calls, as fractions of the step time: bubble of a pipeline, and its excess over the schedule.
BUBBLE, ABOVE_IDEAL = 0.20, 0.05
#: Maximum number of kinds of process groups listed in one message.
_MOST_KINDS = 6
_SENT = ("send", "recv")


def no_message(run: RunFacts, site: Site) -> Finding | None:
    """Skip a job whose traces have no message between stages of a pipeline."""
    if absent(run, *_SENT):
        return skipped("no send or receive is in the traces", evidence=list(run.traces))
    calls = [[key for key, _ in trace.calls] for trace in run.traces.values()]
    messages = [key for keys in calls for key in keys if key.kind in (*_SENT, *ANY)]
    if all(calls) and messages and not any(map(between_stages, messages)):
        groups = " and ".join(sorted({key.group.description for key in messages})[:_MOST_KINDS])
        return skipped(f"all sends and receives in the traces are in {groups}, not between stages of a pipeline",
                       evidence=list(run.traces))  # fmt: skip
    return None


@check(
    "torch.bubble",
    title="Pipeline stages rarely wait for each other",
    fault="Pipeline stages wait for each other",
    impact="slows-job",
    explains=(("torch.overlap", "node"), ("torch.collective-times", "node"), ("torch.steps", "node")),
    source="D. Narayanan et al., arXiv 2104.04473, section 2.2; a fifth and 5 points are judgements",
    fix="Use more microbatches per step, interleave stages (Megatron: `--num-layers-per-virtual-pipeline-"
    "stage`), or move layers off the slow stage.",
    action="fix-job",
    answers=("PA-24",),
    scope="run",
    unless=(no_message,),
    gating=False,
    needs=("trace",),
)
def bubble(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the waiting of pipeline stages with the schedule.

    ## Why it matters
    A pipeline fills and drains in each step. With p stages and m microbatches, (p-1)/(m+p-1) of the time is lost even
    if all stages are equally fast; with v interleaved chunks on each stage, (p-1)/(v m+p-1).

    ## Verdicts
    Waiting for other stages is counted while a GPU computes nothing, in messages and in collectives of several stages;
    the mean over the stages, without what a rank costs that torch.straggler reports, is the bubble. The check warns if
    the bubble exceeds 20% of the steps, or exceeds that of the schedule by more than 5 points, because stages differ or
    messages are slow. The number of microbatches is the number of messages that the first stage sends to the second in
    a step; if the first of more than two stages also sends to the last, stages are interleaved. Stages without a trace,
    messages without their peers (PyTorch 2.6 names them), and unmarked steps are unknown. The check is skipped if all
    messages are of groups with another purpose, such as context parallelism.

    ## False alarms
    Two stages with many microbatches and a long first or last layer.
    """
    job = run.job_trace
    if not job.bubbles:
        yield unknown("no pipeline with the messages of all its stages is in the traces", evidence=list(run.traces),
                      fix="pass the traces of all stages, of PyTorch 2.6 or later, with profiler.step()")  # fmt: skip
    for pipeline in job.bubbles:
        keys = [job.ranks[rank].key for rank in pipeline.ranks]
        late = [straggler for straggler in job.stragglers if straggler.rank in pipeline.ranks]
        share = _without(pipeline, late, job.step_us)
        message = f"the stages of ranks {listed(pipeline.ranks)} wait for each other for {pipeline.share:.0%} of the "
        message += "step time"
        message += f", without what torch.straggler reports for {share:.0%} of a step" if late else ""
        message += f"; {len(pipeline.ranks)} stages with {pipeline.microbatches:g} microbatches"
        message += f" and {pipeline.chunks} interleaved chunks each" if pipeline.chunks > 1 else ""
        message += f" need {pipeline.ideal:.0%}"
        at: dict[str, Any] = {
            "subject": f"ranks {listed(pipeline.ranks)}", "found": f"{share:.1%}", "evidence": keys,
        }  # fmt: skip
        if share > pipeline.ideal + ABOVE_IDEAL:
            yield warned(f"{message}: stages differ, or messages are slow",
                         expected=f"at most {pipeline.ideal + ABOVE_IDEAL:.0%}", **at)  # fmt: skip
        elif share > BUBBLE:
            yield warned(message, expected=f"at most {BUBBLE:.0%}", **at)
        else:
            yield passed(message, **at)


def _without(pipeline: Bubble, late: Sequence[Straggler], step_us: float | None) -> float:
    """Return the share of the steps for which stages wait without their late ranks."""
    more = sum(straggler.more_us for straggler in late) / step_us / len(pipeline.ranks) if step_us else 0.0
    lost = sum(straggler.lost_share for straggler in late)
    return min(pipeline.share, max(0.0, 1 - (1 - pipeline.share - more) / (1 - lost))) if lost < 1 else 0.0

"""Checks of serving engines' metrics: time to the first token, and queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.checks.job.serving_engines import (
    ENOUGH,
    MORE,
    SCRAPES,
    SOURCE,
    STEPS,
    each_engine,
    seconds,
    waits_briefly,
)
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.training.serving_metrics import ServingMetrics

#: Maximum share of the time to the first token in the queue, and minimum share in the prefill; share of the running
#: requests that may wait for the next step of the engine when the metrics are read. Judgement calls.
_QUEUED, _PREFILL, _ARRIVED = 0.5, 0.5, 0.05


@check(
    "serving.first-token",
    title="The time to the first token is spent in prefill, not in a queue",
    fault="Requests wait long before their prefill",
    impact="slows-job",
    source=SOURCE,
    fix="Add replicas, or prefill workers if they are separate; check `--max-num-seqs` and the router's policy.",
    answers=("NT-INF-1",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def first_token(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare queue and prefill with the mean time to the first token.

    ## Why it matters
    Only the prefill computes. A slow first token with short prefills needs more replicas or another router, not faster
    GPUs.

    ## Verdicts
    The check warns if requests spend more than half of the time in the queue, or if queue and prefill together explain
    less than half of it (tokeniser, frontend, transfer of the KV cache). It passes if prefill takes at least half, or
    if the queue takes no longer than two steps of the engine and the transfer of a KV cache, which every request waits
    for. The result is unknown below 20 requests, and for engines that report no queue or prefill time. Means cover the
    requests between the first and the last scrape, or since the start of the engine if there is one scrape. Several
    engines, models or replicas in one text are judged individually.

    ## False alarms
    A benchmark that sends all requests at once, which fills the queue on purpose.
    """
    for key, metrics in run.serving.items():
        yield from judge_first_token(metrics, [key])


def judge_first_token(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the parts of each engine's time to the first token."""
    return each_engine(metrics, evidence, _first_token)


def _first_token(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    first = metrics.between("first_token")
    if first is None:
        yield unknown(f"{metrics.name}: the text has no time to the first token", evidence=evidence, fix=MORE)
        return
    if first.mean is None or first.observations < ENOUGH:
        yield unknown(f"{metrics.name}: fewer than {ENOUGH} requests got a first token", evidence=evidence, fix=MORE)
        return
    queue, prefill, transfer = metrics.mean("queue"), metrics.mean("prefill"), metrics.mean("transfer")
    tail = first.bounds(0.99)
    shown = f"the first token takes {seconds(first.mean)} (mean of {first.observations:.0f}"
    shown += f"; the 99th percentile is above {seconds(tail[0])})" if tail is not None and tail[0] > first.mean else ")"
    if queue is None:
        yield unknown(f"{metrics.name}: {shown}; no queue time is reported", found=seconds(first.mean),
                      evidence=evidence, fix="Read the metrics of the engine itself, not of its frontend; older "
                      "versions of an engine do not report it.")  # fmt: skip
        return
    waits = min(queue / first.mean, 1.0) if first.mean else 0.0
    inevitable = STEPS * (metrics.mean("next_token") or 0.0) + (transfer or 0.0)
    share = None if prefill is None else prefill / first.mean if first.mean else 0.0
    parts = f"{100 * waits:.0f}% queue" if share is None else f"{100 * share:.0f}% prefill, {100 * waits:.0f}% queue"
    if waits > _QUEUED and queue > inevitable:
        yield warned(
            f"{metrics.name}: {shown}, of which {seconds(queue)} in the queue", found=f"{100 * waits:.0f}% queue",
            expected=f"at most {100 * _QUEUED:.0f}%", evidence=evidence,
        )  # fmt: skip
    elif waits > _QUEUED:
        why = "until its KV cache arrives and a step begins" if transfer else "until the next steps begin"
        yield passed(f"{metrics.name}: {shown}: {parts}, no longer than {why}", found=f"{100 * waits:.0f}% queue",
                     evidence=evidence)  # fmt: skip
    elif share is None:
        yield unknown(f"{metrics.name}: {shown}, {100 * waits:.0f}% of it in the queue; the time of the prefill "
                      "is not reported",
                      found=f"{100 * waits:.0f}% queue", evidence=evidence,
                      fix="Compare with the first token of a single request on an idle engine.")  # fmt: skip
    elif share < _PREFILL and share + waits < _PREFILL:
        yield warned(
            f"{metrics.name}: {shown}: {parts}, and {100 * (1 - share - waits):.0f}% is not explained",
            found=f"{100 * (1 - share - waits):.0f}% elsewhere", expected="prefill or queue", evidence=evidence,
            fix="Look at the frontend's and tokeniser's CPU, and at the transfer of the KV cache.",
        )  # fmt: skip
    else:
        yield passed(f"{metrics.name}: {shown}: {parts}", found=f"{100 * share:.0f}% prefill", evidence=evidence)


@check(
    "serving.queue",
    title="Requests do not wait for a place in the batch",
    fault="Requests wait for a place in the batch",
    impact="slows-job",
    explains=(("serving.first-token", "node", "*", "*in the queue"),),
    source=SOURCE,
    fix="Add decode workers or replicas, or raise `--max-num-seqs` unless the KV cache is full (serving.cache).",
    answers=("NT-INF-6",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def queue(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the numbers of waiting and running requests in the scrapes.

    ## Why it matters
    A request that waits gets no token. Its time to the first token grows with the queue, even on fast GPUs.

    ## Verdicts
    With three scrapes or more, the check warns if requests wait in more than half of them. It does not warn if fewer
    requests wait than run, and they wait only for two steps of the engine or a tenth of the time to the first token.

    One or two scrapes show moments. The check warns if as many requests wait as run, or if some wait and requests spend
    more than half of the time to the first token in the queue. It passes if none waits, if requests between two scrapes
    waited as briefly as above, or if at most one request, or 5% of the running ones, waits: each new request waits for
    the next step. Otherwise the result is unknown.

    Dynamo's frontend counts requests until their first token, prefill included: zero passes, and any other number is
    unknown.

    ## False alarms
    A burst of requests just before the only scrape.
    """
    for key, metrics in run.serving.items():
        yield from judge_queue(metrics, [key])


def judge_queue(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the number of waiting requests of each engine."""
    return each_engine(metrics, evidence, _queue)


def _queue(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    waiting = [scrape.waiting for scrape in metrics.scrapes if scrape.waiting is not None]
    running = max((scrape.running for scrape in metrics.scrapes if scrape.running is not None), default=None)
    if not waiting:
        yield _until_first_token(metrics, evidence)
        return
    queued = sum(count > 0 for count in waiting)
    most, spent = max(waiting), metrics.mean("queue")
    run = "" if running is None else f", and {running} run"
    shown = f"{metrics.name}: {_wait(most)}{'' if running is None else f' and {running} run'}"
    if len(waiting) >= SCRAPES:
        message = f"{metrics.name}: requests wait in {queued} of {len(waiting)} scrapes, at most {most} at once"
        share = f"{queued} of {len(waiting)}"
        if 2 * queued <= len(waiting):
            yield passed(message, found=share, evidence=evidence)
        elif waits_briefly(metrics):
            yield passed(f"{message}{run}, for {seconds(spent or 0.0)}", found=share, evidence=evidence)
        else:
            yield warned(message, found=share, expected="at most half", evidence=evidence)
    elif most and running is not None and most >= running:
        yield warned(shown, found=most, expected="fewer than run", evidence=evidence)
    elif most and spent is not None and spent > _QUEUED * (metrics.mean("first_token") or spent):
        yield warned(f"{shown}; requests spend {seconds(spent)} in the queue", found=most, expected="0",
                     evidence=evidence)  # fmt: skip
    elif most and waits_briefly(metrics):
        yield passed(f"{shown}, for {seconds(spent or 0.0)}", found=most, evidence=evidence)
    elif most and (running is None or most > max(1.0, _ARRIVED * running)):
        yield unknown(f"{shown} at the time of the scrape", found=most, expected="0", evidence=evidence, fix=MORE)
    elif most:
        yield passed(shown, found=most, evidence=evidence)
    else:
        yield passed(f"{metrics.name}: no request waits{run}", found=0, evidence=evidence)


def _wait(count: int) -> str:
    return f"{count} request{'s wait' if count != 1 else ' waits'}"


def _until_first_token(metrics: ServingMetrics, evidence: Sequence[str]) -> Finding:
    """Judge a count that includes requests in prefill."""
    counts = [scrape.until_first_token for scrape in metrics.scrapes if scrape.until_first_token is not None]
    if not counts:
        return unknown(f"{metrics.name}: no number of waiting requests is reported", evidence=evidence)
    if not any(counts):
        return passed(f"{metrics.name}: no request waits for its first token", found=0, evidence=evidence)
    return unknown(f"{metrics.name}: up to {max(counts)} requests have no token yet; the count includes prefill",
                   found=max(counts), expected="0", evidence=evidence,
                   fix="Read the metrics of the engine itself: they count waiting requests separately.")  # fmt: skip

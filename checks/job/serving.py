"""Metrics of serving engines: first token, queue, KV cache and its transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.training.serving_metrics import Distribution, ServingMetrics

_SOURCE = (
    "https://docs.vllm.ai/en/stable/usage/metrics/; https://docs.sglang.io/references/production_metrics.html; "
    "https://docs.nvidia.com/dynamo (metrics)"
)
#: Requests or transfers that a mean needs; scrapes that show how often requests wait. The limits below are judgements.
_ENOUGH, _SCRAPES = 20, 3
_QUEUED, _PREFILL = 0.5, 0.5
_FULL, _PREEMPTED = 0.9, 0.01
_TRANSFER_SHARE, _TAIL = 0.2, 10.0
_MORE = "Save two scrapes some minutes apart, under load: `curl -s http://HOST:PORT/metrics >> metrics.txt`."


@check(
    "serving.first-token",
    title="The time to the first token is spent in prefill, not in a queue",
    fault="Requests wait long before their prefill",
    impact="slows-job",
    source=_SOURCE,
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
    Warns if requests spend more than half of the time in the queue, or if queue and prefill together explain less than
    half of it (tokeniser, frontend, transfer of the KV cache). Passes if prefill takes at least half. Unknown below 20
    requests, and for engines that report no queue or prefill time. Means are of the requests between the first and
    the last scrape, or since the start of the engine if there is one scrape.

    ## False alarms
    A benchmark that sends all requests at once fills the queue on purpose.
    """
    for key, metrics in run.serving.items():
        yield from judge_first_token(metrics, [key])


def judge_first_token(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the parts of the time to the first token."""
    first = _between(metrics, "first_token")
    if first is None or first.mean is None or first.observations < _ENOUGH:
        yield unknown(
            f"{metrics.program}: fewer than {_ENOUGH} requests got a first token", evidence=evidence, fix=_MORE
        )
        return
    queue, prefill = _mean(_between(metrics, "queue")), _mean(_between(metrics, "prefill"))
    tail = first.bounds(0.99)
    shown = f"first token after {_seconds(first.mean)} (mean of {first.observations:.0f}"
    shown += f", p99 above {_seconds(tail[0])})" if tail is not None and tail[0] else ")"
    if queue is None:
        yield unknown(f"{metrics.program}: {shown}; no time of the queue is reported", found=_seconds(first.mean),
                      evidence=evidence, fix="Read the metrics of the engine itself, not of its frontend.")  # fmt: skip
        return
    waits = queue / first.mean if first.mean else 0.0
    if waits > _QUEUED:
        yield warned(
            f"{metrics.program}: {shown}, of which {_seconds(queue)} in the queue", found=f"{100 * waits:.0f} % queue",
            expected=f"at most {100 * _QUEUED:.0f} %", evidence=evidence,
        )  # fmt: skip
    elif prefill is None:
        yield unknown(f"{metrics.program}: {shown}, {100 * waits:.0f} % in the queue; prefill time is not reported",
                      found=f"{100 * waits:.0f} % queue", evidence=evidence)  # fmt: skip
    elif (share := prefill / first.mean if first.mean else 0.0) >= _PREFILL:
        yield passed(f"{metrics.program}: {shown}: {100 * share:.0f} % prefill, {100 * waits:.0f} % queue",
                     found=f"{100 * share:.0f} % prefill", evidence=evidence)  # fmt: skip
    elif share + waits < _PREFILL:
        yield warned(
            f"{metrics.program}: {shown}: {100 * share:.0f} % prefill, {100 * waits:.0f} % queue; the rest is neither",
            found=f"{100 * (1 - share - waits):.0f} % elsewhere", expected="prefill or queue", evidence=evidence,
            fix="Look at the frontend's and tokeniser's CPU, and at the transfer of the KV cache.",
        )  # fmt: skip
    else:
        yield passed(f"{metrics.program}: {shown}: {100 * share:.0f} % prefill, {100 * waits:.0f} % queue",
                     found=f"{100 * share:.0f} % prefill", evidence=evidence)  # fmt: skip


@check(
    "serving.queue",
    title="Requests do not wait for a place in the batch",
    fault="Requests wait for a place in the batch",
    impact="slows-job",
    source=_SOURCE,
    fix="Add decode workers or replicas, or raise `--max-num-seqs` unless the KV cache is full (serving.cache).",
    answers=("NT-INF-6",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def queue(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare waiting with running requests over the scrapes.

    ## Why it matters
    A request that waits gets no token. Its time to the first token grows with the queue, even on fast GPUs.

    ## Verdicts
    From three scrapes on, warns if requests wait in more than half of them. With fewer, warns if as many wait as run,
    passes if none waits, and is unknown in between: one moment does not show how often.

    ## False alarms
    A burst of requests just before the only scrape.
    """
    for key, metrics in run.serving.items():
        yield from judge_queue(metrics, [key])


def judge_queue(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the numbers of waiting requests."""
    waiting = [scrape.waiting for scrape in metrics.scrapes if scrape.waiting is not None]
    if not waiting:
        yield unknown(f"{metrics.program}: no number of waiting requests is reported", evidence=evidence)
        return
    queued = sum(count > 0 for count in waiting)
    most = max(waiting)
    if len(waiting) >= _SCRAPES:
        message = f"{metrics.program}: requests wait in {queued} of {len(waiting)} scrapes, at most {most}"
        if 2 * queued > len(waiting):
            yield warned(message, found=f"{queued} of {len(waiting)}", expected="at most half", evidence=evidence)
        else:
            yield passed(message, found=f"{queued} of {len(waiting)}", evidence=evidence)
        return
    running = max((scrape.running or 0 for scrape in metrics.scrapes), default=0)
    if most and most >= running:
        yield warned(f"{metrics.program}: {most} requests wait and {running} run", found=most,
                     expected="fewer than run", evidence=evidence)  # fmt: skip
    elif most:
        yield unknown(f"{metrics.program}: {most} requests wait at the time of the scrape, {running} run", found=most,
                      expected="0", evidence=evidence, fix=_MORE)  # fmt: skip
    else:
        yield passed(f"{metrics.program}: no request waits, {running} run", found=0, evidence=evidence)


@check(
    "serving.cache",
    title="The KV cache has room for the requests that run",
    fault="The KV cache is full: requests are preempted or wait",
    impact="slows-job",
    source=_SOURCE,
    fix="Add replicas or GPUs, lower `--max-model-len` or `--max-num-seqs`, or quantise the KV cache.",
    answers=("NT-INF-7",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def cache(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the use of the KV cache with preemptions and waiting requests.

    ## Why it matters
    An engine without free blocks preempts a request and computes its cache again later: work that is done twice.

    ## Verdicts
    Warns if more than 1 % of the requests were preempted (vLLM) or retracted (SGLang): between the first and the last
    scrape, or since the start of the engine. Warns if at least 90 % of the cache are used while requests wait. A full
    cache without either passes. Unknown if the engine reports neither use nor preemptions.

    ## False alarms
    With one scrape, preemptions of a past overload count.
    """
    for key, metrics in run.serving.items():
        yield from judge_cache(metrics, [key])


def judge_cache(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge preemptions and the use of the KV cache."""
    used = [scrape for scrape in metrics.scrapes if scrape.cache_used is not None]
    preempted, finished = _grown(metrics, "preemptions"), _grown(metrics, "finished")
    fullest = max(used, key=lambda scrape: scrape.cache_used or 0.0, default=None)
    share = fullest.cache_used if fullest is not None else None
    full = "" if share is None else f"; the KV cache is {'up to ' * (len(used) > 1)}{100 * share:.0f} % full"
    since = "between the scrapes" if len(metrics.scrapes) > 1 else "since the start"
    waits = [scrape for scrape in used if (scrape.cache_used or 0.0) >= _FULL and scrape.waiting]
    if preempted and preempted > _PREEMPTED * (finished or 0.0):
        of = f" of {finished:.0f} finished" if finished else ""
        yield warned(f"{metrics.program}: {preempted:.0f} preemptions{of} {since}{full}", found=f"{preempted:.0f}",
                     expected=f"at most {100 * _PREEMPTED:.0f} % of the requests", evidence=evidence)  # fmt: skip
    elif waits:
        worst = max(waits, key=lambda scrape: scrape.waiting or 0)
        yield warned(f"{metrics.program}: {worst.waiting} requests wait{full}", found=f"{100 * (share or 0):.0f} %",
                     expected=f"below {100 * _FULL:.0f} %, or no request waits", evidence=evidence)  # fmt: skip
    elif preempted is None and share is None:
        yield unknown(f"{metrics.program}: neither use of the KV cache nor preemptions are reported",
                      evidence=evidence, fix="Read the metrics of the engine itself, not of its frontend.")  # fmt: skip
    elif preempted is None and share is not None and share >= _FULL:
        yield unknown(f"{metrics.program}: no preemptions are reported{full}", found=f"{100 * share:.0f} %",
                      expected=f"below {100 * _FULL:.0f} %", evidence=evidence)  # fmt: skip
    else:
        count = "no request waits for it" if preempted is None else f"{preempted:.0f} preemptions {since}"
        yield passed(f"{metrics.program}: {count}{full}",
                     found="" if share is None else f"{100 * share:.0f} %", evidence=evidence)  # fmt: skip


@check(
    "serving.kv-transfer",
    title="KV caches reach the decode workers in time",
    fault="The transfer of KV caches fails, or delays first tokens",
    impact="slows-job",
    source=_SOURCE,
    fix="Compare the rate with the NICs (`preflight pair`), and check that NIXL or Mooncake uses RDMA.",
    answers=("NT-INF-3", "NT-LENS-10"),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def kv_transfer(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the transfers of KV caches with the time to the first token.

    ## Why it matters
    With separate prefill and decode workers each request waits for its cache to cross the network. A transfer over TCP
    or by one rail takes many times as long.

    ## Verdicts
    Warns if transfers failed or expired, if their mean exceeds a fifth of the mean time to the first token, or if
    their p99 exceeds ten times their mean: the lower bound of its bucket counts. Passes otherwise, and shows the rate.
    Unknown below 20 transfers: most engines do not separate prefill and decode.

    ## False alarms
    Very short first tokens, of small models: then a fifth is some milliseconds.
    """
    for key, metrics in run.serving.items():
        yield from judge_transfer(metrics, [key])


def judge_transfer(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge failed, long and late transfers of KV caches."""
    lost = [
        f"{count:.0f} {word}"
        for name, word in (("failed_transfers", "failed"), ("expired_transfers", "expired"))
        if (count := _grown(metrics, name))
    ]
    if lost:
        yield warned(f"{metrics.program}: transfers of KV caches: {', '.join(lost)}", found=", ".join(lost),
                     expected="none", evidence=evidence,
                     fix="The engine's log names the peer and the reason; check the network to it.")  # fmt: skip
    transfer = _between(metrics, "transfer")
    if transfer is None or transfer.mean is None or transfer.observations < _ENOUGH:
        if not lost:
            yield unknown(f"{metrics.program}: fewer than {_ENOUGH} transfers of KV caches between engines are "
                          "reported", evidence=evidence)  # fmt: skip
        return
    amount, first = _between(metrics, "transfer_bytes"), _mean(_between(metrics, "first_token"))
    rate = f" at {amount.total / transfer.total / 1e9:.1f} GB/s" if amount is not None and transfer.total else ""
    message = (
        f"{metrics.program}: a KV cache takes {_seconds(transfer.mean)}{rate} (mean of {transfer.observations:.0f})"
    )
    tail = transfer.bounds(0.99)
    if first and transfer.mean > _TRANSFER_SHARE * first:
        yield warned(f"{message}: {100 * transfer.mean / first:.0f} % of the time to the first token",
                     found=f"{100 * transfer.mean / first:.0f} %", expected=f"at most {100 * _TRANSFER_SHARE:.0f} %",
                     evidence=evidence)  # fmt: skip
    elif tail is not None and tail[0] > _TAIL * transfer.mean:
        yield warned(f"{message}, p99 above {_seconds(tail[0])}", found=f"above {_seconds(tail[0])}",
                     expected=f"at most {_TAIL:.0f} times the mean", evidence=evidence)  # fmt: skip
    elif not lost:
        yield passed(message, found=_seconds(transfer.mean), evidence=evidence)


def transfers_caches(metrics: ServingMetrics) -> bool:
    """Return whether an engine reports transfers of KV caches."""
    return any(
        scrape.failed_transfers is not None or (scrape.transfer is not None and scrape.transfer.observations)
        for scrape in metrics.scrapes
    )


def _grown(metrics: ServingMetrics, name: str) -> float | None:
    """Return how much a counter grew between the scrapes; of one, its value."""
    values = [value for scrape in metrics.scrapes if (value := getattr(scrape, name)) is not None]
    if len(values) < 2 or values[-1] < values[0]:  # started anew in between
        return values[-1] if values else None
    grown: float = values[-1] - values[0]
    return grown


def _between(metrics: ServingMetrics, name: str) -> Distribution | None:
    """Return the observations between the first and the last scrape; of one, all."""
    scrapes = [scrape for scrape in metrics.scrapes if getattr(scrape, name) is not None]
    if not scrapes:
        return None
    last: Distribution = getattr(scrapes[-1], name)
    first: Distribution = getattr(scrapes[0], name)
    if len(scrapes) < 2 or last.observations <= first.observations or last.total < first.total:
        return last
    before = dict(first.buckets)
    buckets = tuple((upper, below - before.get(upper, 0.0)) for upper, below in last.buckets)
    return type(last)(last.observations - first.observations, last.total - first.total, buckets)


def _mean(sample: Distribution | None) -> float | None:
    return None if sample is None else sample.mean


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"

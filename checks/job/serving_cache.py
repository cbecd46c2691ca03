"""Checks of serving engines' metrics: KV cache use, transfer and offloading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.checks.job.serving_engines import ENOUGH, MORE, SOURCE, STEPS, each_engine, seconds, waits_briefly
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.training.engine_metrics import Distribution
    from preflight.parsers.training.serving_metrics import ServingMetrics

#: Judgement calls: use of a full cache, share of preempted requests, share of the time to the first token, ratio of p99
#: to mean, share of failed transfers.
_FULL, _PREEMPTED = 0.9, 0.01
_SHARE, _TAIL, _LOST = 0.2, 10.0, 0.001
#: Number of saved bytes above which some should have been loaded again.
_UNUSED = float(1 << 30)


@check(
    "serving.cache",
    title="The KV cache has room for the running requests",
    fault="The KV cache is full: requests are preempted or wait",
    impact="slows-job",
    explains=(("serving.queue", "node"), ("serving.first-token", "node", "*", "*in the queue")),
    source=SOURCE,
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
    An engine without free blocks preempts a request and computes its cache again later, so work is done twice.

    ## Verdicts
    The check warns if more than 1% of finished and running requests were preempted (vLLM) or retracted (SGLang),
    between the first and the last scrape or since the start of the engine. It also warns if at least 90% of the cache
    is used while requests wait, as judged by serving.queue. A full cache without either passes. The result is unknown
    if the engine reports neither use nor preemptions, or preemptions without a number of requests, or an impossible
    value.

    ## False alarms
    Preemptions during a past overload, which count if there is only one scrape.
    """
    for key, metrics in run.serving.items():
        yield from judge_cache(metrics, [key])


def judge_cache(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the preemptions and the KV cache use of each engine."""
    return each_engine(metrics, evidence, _cache)


def _cache(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    used = [scrape for scrape in metrics.scrapes if scrape.cache_used is not None]
    preempted, finished = metrics.grown("preemptions"), metrics.grown("finished")
    running = max((scrape.running for scrape in metrics.scrapes if scrape.running is not None), default=None)
    requests = None if finished is None and running is None else (finished or 0.0) + (running or 0)
    fullest = max(used, key=lambda scrape: scrape.cache_used or 0.0, default=None)
    share = fullest.cache_used if fullest is not None else None
    full = "" if share is None else f"; the KV cache is {'up to ' * (len(used) > 1)}{100 * share:.0f}% full"
    since = "between the scrapes" if len(metrics.scrapes) > 1 else "since the start"
    waits = [scrape for scrape in used if (scrape.cache_used or 0.0) >= _FULL and scrape.waiting]
    if preempted and requests is not None and preempted > _PREEMPTED * requests:
        of = f" for {finished:.0f} finished requests" if finished else ""
        yield warned(f"{metrics.name}: {preempted:.0f} preemptions{of} {since}{full}", found=f"{preempted:.0f}",
                     expected=f"at most {100 * _PREEMPTED:.0f}% of the requests", evidence=evidence)  # fmt: skip
    elif waits and not waits_briefly(metrics):
        worst = max(waits, key=lambda scrape: scrape.waiting or 0)
        yield warned(f"{metrics.name}: {worst.waiting} requests wait{full}", found=f"{100 * (share or 0):.0f}%",
                     expected=f"below {100 * _FULL:.0f}%, or no request waits", evidence=evidence)  # fmt: skip
    elif strange := sorted({name for scrape in metrics.scrapes for name in scrape.unusable}):
        yield unknown(f"{metrics.name}: impossible value of {', '.join(strange)}",
                      expected="a share from 0 to 1, or a count", evidence=evidence)  # fmt: skip
    elif preempted and requests is None:
        yield unknown(f"{metrics.name}: {preempted:.0f} preemptions {since}, of an unknown number of requests{full}",
                      found=f"{preempted:.0f}", evidence=evidence)  # fmt: skip
    elif preempted is None and share is None:
        yield unknown(f"{metrics.name} reports neither the use of its KV cache nor preemptions",
                      evidence=evidence, fix="Read the metrics of the engine itself, not of its frontend.")  # fmt: skip
    elif preempted is None and share is not None and share >= _FULL:
        yield unknown(f"{metrics.name}: no preemptions are reported{full}", found=f"{100 * share:.0f}%",
                      expected=f"below {100 * _FULL:.0f}%", evidence=evidence)  # fmt: skip
    else:
        count = "no request waits for it" if preempted is None else f"{preempted:.0f} preemptions {since}"
        yield passed(f"{metrics.name}: {count}{full}",
                     found="" if share is None else f"{100 * share:.0f}%", evidence=evidence)  # fmt: skip


@check(
    "serving.kv-transfer",
    title="KV caches reach the decode workers in time",
    fault="The transfer of KV caches fails, or delays first tokens",
    impact="slows-job",
    explains=(
        ("serving.first-token", "node", "*", "*% is not explained"),
        ("serving.kv-transfer", "node", "*transfers of KV caches, *", "*takes*"),
    ),
    source=SOURCE,
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
    With separate prefill and decode workers, each request waits for its cache to cross the network. A transfer over TCP
    or a single rail takes many times as long.

    ## Verdicts
    The check warns if more than one transfer in 1000 failed or expired, or if the mean time of a transfer exceeds a
    fifth of the mean time to the first token. It also warns if the p99 of the transfers (the lower bound of its bucket)
    exceeds ten times their mean, and the sizes of the caches do not explain it. Otherwise it passes, and shows the
    rate. The result is unknown below 20 transfers: most engines do not separate prefill and decode. For a decode
    worker, whose prefill takes no longer than two of its steps, the first token is mostly transfer by design: only the
    rate is shown, and the result is unknown.

    ## False alarms
    Small models with very short times to the first token: a fifth is then a few milliseconds.
    """
    for key, metrics in run.serving.items():
        yield from judge_transfer(metrics, [key])


def judge_transfer(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge failed, long and late KV cache transfers of each engine."""
    return each_engine(metrics, evidence, _transfer)


def _transfer(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    transfer = metrics.between("transfer")
    counts = {word: metrics.grown(name) or 0.0
              for name, word in (("failed_transfers", "failed"), ("expired_transfers", "expired"))}  # fmt: skip
    every = (transfer.observations if transfer is not None else 0.0) + sum(counts.values())
    lost = ", ".join(f"{count:.0f} {word}" for word, count in counts.items() if count)
    many = sum(counts.values()) > _LOST * every
    if many:
        yield warned(f"{metrics.name}: of {every:.0f} transfers of KV caches, {lost}", found=lost,
                     expected="at most one in 1000", evidence=evidence,
                     fix="The engine's log names the peer and the reason; check the network to it.")  # fmt: skip
    if transfer is None or transfer.mean is None or transfer.observations < ENOUGH:
        if not many:
            yield unknown(f"{metrics.name}: fewer than {ENOUGH} transfers of KV caches between engines are "
                          "reported", evidence=evidence)  # fmt: skip
        return
    amount, first = metrics.between("transfer_bytes"), metrics.mean("first_token")
    rate = f" at {amount.total / transfer.total / 1e9:.1f} GB/s" if amount is not None and transfer.total else ""
    message = f"{metrics.name}: a KV cache takes {seconds(transfer.mean)}{rate} (mean of {transfer.observations:.0f})"
    late = _late(transfer, amount)
    share = transfer.mean / first if first else 0.0
    of_first = f"{100 * share:.0f}% of the time to the first token"
    if share > _SHARE and not _decodes_only(metrics):
        yield warned(f"{message}, which is {of_first}", found=f"{100 * share:.0f}%",
                     expected=f"at most {100 * _SHARE:.0f}%", evidence=evidence)  # fmt: skip
    elif late is not None:
        yield warned(f"{message}; the 99th percentile is above {seconds(late)}", found=f"above {seconds(late)}",
                     expected=f"at most {_TAIL:.0f} times the mean", evidence=evidence)  # fmt: skip
    elif share > _SHARE:
        yield unknown(f"{message}: {of_first} of this engine, which computes no prefill", found=rate.strip(),
                      evidence=evidence)  # fmt: skip
    elif not many:
        yield passed(f"{message}{'; ' if lost else ''}{lost}", found=seconds(transfer.mean), evidence=evidence)


def _late(transfer: Distribution, amount: Distribution | None) -> float | None:
    """Return the lower bound of the p99 in seconds, if it is far above the mean.

    None if it is not, or if large caches explain it.
    """
    tail, sizes = transfer.bounds(0.99), amount.bounds(0.99) if amount is not None else None
    if tail is None or not transfer.mean or tail[0] <= _TAIL * transfer.mean:
        return None
    if amount is None or not amount.mean or sizes is None:
        return tail[0]
    largest = sizes[1] if sizes[1] is not None else float("inf")
    return None if largest / amount.mean >= tail[0] / transfer.mean else tail[0]


def _decodes_only(metrics: ServingMetrics) -> bool:
    """Return whether an engine only decodes: prefill takes at most two steps."""
    prefill, step = metrics.mean("prefill"), metrics.mean("next_token")
    return prefill is not None and step is not None and prefill <= STEPS * step


@check(
    "serving.offload",
    title="Offloaded KV caches come back faster than a prefill",
    fault="Loading offloaded KV caches delays first tokens",
    impact="slows-job",
    explains=(("serving.first-token", "node"),),
    source="https://docs.vllm.ai (KV offloading connector, metrics); the limit of 20% is a judgement call",
    fix="Keep more of the cache on the GPU (`--gpu-memory-utilization`, a quantised cache), and check the PCIe link "
    "and the NUMA node of the host's memory (`preflight check`).",
    answers=("NT-INF-5",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def offload(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the time to load offloaded KV caches with the time to the first token.

    ## Why it matters
    A cache that left the GPU for host memory or storage has to cross PCIe before its request continues. Loading is
    worth it only while it is much faster than computing the prefill again.

    ## Verdicts
    The check warns if loads take more than a fifth of the sum of all times to the first token. Below that it passes,
    and shows the rate and how much of the saved data was loaded again. If more than 1 GiB was saved and none of it was
    loaded, the result is unknown: so far, offloading has only cost bandwidth. Metrics without offloading, or without 20
    first tokens, are also unknown: only the metrics of vLLM's own offloading connector are read, not those of other
    engines and connectors.

    ## False alarms
    Loads that overlap with the prefill of other requests: they delay no first token, but their time counts.
    """
    for key, metrics in run.serving.items():
        yield from judge_offload(metrics, [key])


def judge_offload(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the loads of offloaded KV caches of each engine."""
    return each_engine(metrics, evidence, _offload)


def _offload(metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    saved, loaded, time = (metrics.grown(name) for name in ("saved_bytes", "loaded_bytes", "loaded_s"))
    first = metrics.between("first_token")
    if saved is None and loaded is None:
        yield unknown(f"{metrics.name}: no offloading of KV caches is reported", evidence=evidence)
        return
    if not loaded:
        amount = f"{(saved or 0) / (1 << 30):.3g} GiB"
        if saved and saved > _UNUSED:
            yield unknown(f"{metrics.name}: {amount} of KV caches were saved, and nothing was loaded", found=amount,
                          evidence=evidence, fix=MORE)  # fmt: skip
        else:
            yield passed(f"{metrics.name}: {amount} of KV caches were saved, and nothing was loaded", evidence=evidence)
        return
    if time is None or first is None or first.observations < ENOUGH or not first.total:
        yield unknown(f"{metrics.name}: the time of the loads, or of {ENOUGH} first tokens, is not reported",
                      evidence=evidence, fix=MORE)  # fmt: skip
        return
    share = time / first.total
    rate = f" at {loaded / time / 1e9:.1f} GB/s" if time else ""
    message = (f"{metrics.name}: {loaded / (1 << 30):.3g} GiB of offloaded KV caches were loaded{rate}, which took "
               f"{100 * share:.0f}% of the time to the first tokens")  # fmt: skip
    if share > _SHARE:
        yield warned(message, found=f"{100 * share:.0f}%", expected=f"at most {100 * _SHARE:.0f}%",
                     evidence=evidence)  # fmt: skip
    else:
        yield passed(message, found=f"{100 * share:.0f}%", evidence=evidence)


def offloads_caches(metrics: ServingMetrics) -> bool:
    """Return whether an engine reports offloaded KV caches."""
    return any(scrape.saved_bytes is not None or scrape.loaded_bytes is not None for scrape in metrics.scrapes)


def transfers_caches(metrics: ServingMetrics) -> bool:
    """Return whether an engine reports transfers of KV caches."""
    return any(
        scrape.failed_transfers is not None or (scrape.transfer is not None and scrape.transfer.observations)
        for scrape in metrics.scrapes
    )

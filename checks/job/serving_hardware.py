"""Checks of serving engines against the hardware: decode steps, KV transfers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from preflight.checks.job.bus_bandwidth import nics_of
from preflight.checks.job.serving_engines import ENOUGH, MORE, SOURCE, each_engine, seconds
from preflight.expectations import Site
from preflight.expectations.roofline.datasheets import BF16_FLOPS, memory_bandwidth
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.training.serving_metrics import ServingMetrics

#: Judgement calls: a decode step below this multiple of its bound is explained by it, one above the second multiple is
#: not; below the third, the declaration or the count of tokens per step is wrong.
BOUND, UNEXPLAINED, IMPOSSIBLE = 1.5, 3.0, 0.9
#: Judgement calls: minimum share of a NIC's line rate, and bytes of a cache below which latency limits the rate.
OF_LINE, SMALL_CACHE = 0.10, float(8 << 20)
#: Judgement calls: share by which two counts of the same transfers may differ in one scrape; maximum number of NICs.
DIFFERENT, MOST_NICS = 0.01, 16
_GIB = float(1 << 30)


class _DecodeBound(NamedTuple):
    """Lower bounds for the time of a decode step, in seconds."""

    weights: float  # to read the weights
    memory: float  # to read weights and KV cache
    arithmetic: float | None
    full: float | None  # with a full KV cache; None without its declared size
    without_cache: str  # why the used part of the KV cache is unknown; empty if it is known

    @property
    def longest(self) -> float:
        """The time of the tighter bound."""
        return max(self.memory, self.arithmetic or 0.0)


@check(
    "serving.next-token",
    title="The time per output token is that of reading the weights",
    fault="Decode steps take much longer than reading weights and KV cache",
    impact="slows-job",
    source=f"{SOURCE}; NVIDIA's datasheets (memory bandwidth, FLOP/s); 1.5 and 3 times are judgements",
    fix="Profile a decode worker: CPU gaps (CUDA graphs off?), all-reduces of tensor parallelism, prefill in the "
    "same batch (`--max-num-batched-tokens`, or separate prefill workers).",
    answers=("NT-INF-2",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def next_token(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the mean time per output token with the memory bandwidth of the GPUs.

    ## Why it matters
    A decode step reads all weights and the KV cache of its batch once. If memory bandwidth explains its time, only
    fewer bytes (quantisation), more GPUs per replica or faster memory help; if it does not, the time is lost elsewhere.

    ## Verdicts
    The bound is the larger of two times: the weights and the used part of the KV cache over the memory bandwidth of the
    replica's GPUs, and the arithmetic of the running requests over their FLOP/s. The gauges of the cache and of the
    requests show one moment and the mean may cover hours. So only a mean of at most 1.5 times the time of reading the
    weights passes, and only one above three times the bound with a full cache warns; in between it is unknown. So is a
    mean below 0.9 times the time of the weights: several tokens per step (speculative decoding), or wrong sizes in the
    cluster file. If the size of the KV cache is not declared, long contexts may explain a slow step, so it does not
    warn. The metrics do not show the sizes: without `weights_gib` and `gpus` in [class.NAME.serving], the result is
    unknown.

    ## False alarms
    Engines that mix long prefills into their decode steps.
    """
    for key, metrics in run.serving.items():
        yield from each_engine(metrics, [key], partial(_next_token, site))


def _next_token(site: Site, metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    tokens = metrics.between("next_token")
    if tokens is None or not tokens.mean or tokens.observations < ENOUGH:
        yield unknown(f"{metrics.name}: fewer than {ENOUGH} measurements of the time per output token are reported",
                      evidence=evidence, fix=MORE)  # fmt: skip
        return
    shown = f"{metrics.name}: an output token takes {seconds(tokens.mean)} (mean of {tokens.observations:.0f})"
    bound = _bound(site, metrics)
    if isinstance(bound, str):
        declare = "gpu_memory_gbytes_s" if "gpu_memory" in bound else "weights_gib, gpus and kv_cache_gib"
        yield unknown(f"{shown}; there is no bound to compare it with, because {bound}", evidence=evidence,
                      found=seconds(tokens.mean),
                      fix=f"declare {declare} in [class.NAME.serving]")  # fmt: skip
        return
    of_weights, ratio = tokens.mean / bound.weights, tokens.mean / bound.longest
    if of_weights <= BOUND:
        message = f"{shown}, {of_weights:.2g} times the {seconds(bound.weights)} that reading the weights takes"
        if of_weights >= IMPOSSIBLE:
            yield passed(message, found=f"{of_weights:.2g} times", evidence=evidence)
        else:
            yield unknown(f"{message}; a step may produce several tokens, or the sizes differ from the declared ones",
                          found=f"{of_weights:.2g} times", expected="at least 1", evidence=evidence)  # fmt: skip
        return
    what = "reading the weights" if bound.without_cache else "reading the weights and the KV cache"
    if bound.longest > bound.memory:
        what = "the arithmetic of its batch"
    message = f"{shown}, {ratio:.2g} times the {seconds(bound.longest)} that {what} takes"
    if bound.full is not None and tokens.mean > UNEXPLAINED * max(bound.full, bound.longest):
        yield warned(message, found=f"{ratio:.2g} times", expected=f"at most {BOUND:g}", evidence=evidence)
        return
    why = "; the rest of the time is not explained"
    if ratio <= BOUND:
        why = " at the moment of the scrape; the mean covers a longer time"
    elif bound.full is not None and ratio > UNEXPLAINED:
        full = max(bound.full, bound.longest)
        why = f", and {tokens.mean / full:.2g} times the {seconds(full)} with a full KV cache"
    missing = f"; {bound.without_cache}" if bound.without_cache else ""
    fix = "declare kv_cache_gib in [class.NAME.serving]" if "declared" in missing else MORE
    yield unknown(f"{message}{why}{missing}", found=f"{ratio:.2g} times",
                  expected=f"at most {BOUND:g}", evidence=evidence, fix=fix)  # fmt: skip


def _bound(site: Site, metrics: ServingMetrics) -> _DecodeBound | str:
    """Return the bound of a decode step, or the reason why it is unknown."""
    serving = site.members.serving
    if serving.weights_gib is None or serving.gpus is None:
        return "the size of the model is not declared for its nodes"
    gpu = site.part.gpu if site.part is not None else None
    rate = serving.gpu_memory_gbytes_s * 1e9 if serving.gpu_memory_gbytes_s else gpu and memory_bandwidth(gpu)
    if not rate:
        return "the memory bandwidth of the GPU is not known (gpu_memory_gbytes_s)"
    used = [scrape.cache_used for scrape in metrics.scrapes if scrape.cache_used is not None]
    size, weights, speed = serving.kv_cache_gib, serving.weights_gib * _GIB, serving.gpus * rate
    cache = size * sum(used) / len(used) if size is not None and used else 0.0
    why = (
        "the size of the KV cache is not declared"
        if size is None
        else ""
        if used
        else "the use of the KV cache is unknown"
    )
    running = [scrape.running for scrape in metrics.scrapes if scrape.running is not None]
    flops = BF16_FLOPS.get(gpu.name) if gpu is not None else None
    # 2 operations per weight of 2 bytes; narrower types have as many times more FLOP/s
    arithmetic = weights * max(running) / (serving.gpus * flops) if running and flops else None
    full = None if size is None else (weights + size * _GIB) / speed
    return _DecodeBound(weights / speed, (weights + cache * _GIB) / speed, arithmetic, full, why)


@check(
    "serving.kv-rate",
    title="KV caches move at the rate of the network",
    fault="KV caches move far below the rate of the network",
    impact="slows-job",
    explains=(("serving.kv-transfer", "node", "*", "*takes*"),),
    source=f"{SOURCE}; a tenth of one NIC's line rate is a judgement",
    fix="Check that NIXL or Mooncake uses RDMA with GPUDirect (`UCX_TLS`, `UCX_NET_DEVICES`), then run `preflight "
    "pair`.",
    answers=("NT-LENS-10",),
    action="fix-job",
    scope="run",
    gating=False,
    needs=("serving",),
)
def kv_rate(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the mean rate of KV cache transfers with the line rate of one NIC.

    ## Why it matters
    Over TCP, or staged through host memory, a transfer reaches a fraction of the NIC's rate, and each request waits for
    it.

    ## Verdicts
    The rate is the sum of all transferred bytes over the sum of the transfers' times. A rate below a tenth of the line
    rate of one NIC warns. The line rate is that of the cluster file, else the lowest of the compute ports of the judged
    nodes. The result is unknown below 20 transfers, for caches below 8 MiB on average, which latency slows down, and
    without a line rate or the bytes. It is also unknown if bytes and times cover different numbers of transfers, or if
    the rate is above that of all NICs of a node.

    ## False alarms
    More than ten transfers at the same time over one NIC.
    """
    for key, metrics in run.serving.items():
        yield from each_engine(metrics, [key], partial(_kv_rate, run, site))


def _kv_rate(run: RunFacts, site: Site, metrics: ServingMetrics, evidence: Sequence[str]) -> Iterator[Finding]:
    transfer, amount = metrics.between("transfer"), metrics.between("transfer_bytes")
    if transfer is None or not transfer.total or transfer.observations < ENOUGH or amount is None or not amount.mean:
        yield unknown(f"{metrics.name}: bytes and times of {ENOUGH} transfers of KV caches are not reported",
                      evidence=evidence)  # fmt: skip
        return
    if abs(amount.observations - transfer.observations) > DIFFERENT * transfer.observations:
        yield unknown(f"{metrics.name} reports the times of {transfer.observations:.0f} transfers of KV caches, "
                      f"but the bytes of {amount.observations:.0f}", evidence=evidence, fix=MORE)  # fmt: skip
        return
    rate = amount.total / transfer.total
    message = f"{metrics.name}: KV caches of {amount.mean / (1 << 20):.3g} MiB (mean) move at {rate / 1e9:.3g} GB/s"
    line = _line_rate(run, site)
    if line is None:
        fix = "declare ports.rate_gbps in the cluster file, or judge the metrics with the engine's nodes"
        yield unknown(f"{message}; the line rate of the NICs is not known", found=f"{rate / 1e9:.3g} GB/s",
                      evidence=evidence, fix=fix)  # fmt: skip
        return
    message += f", {rate / line:.0%} of a NIC's {line / 1e9:g} GB/s"
    if rate > _nics(run, site) * line:
        yield unknown(f"{message}; this is more than all NICs of a node carry, so the transfers do not use the network",
                      found=f"{rate / 1e9:.3g} GB/s", evidence=evidence)  # fmt: skip
    elif rate >= OF_LINE * line:
        yield passed(message, found=f"{rate / 1e9:.3g} GB/s", evidence=evidence)
    elif amount.mean < SMALL_CACHE:
        yield unknown(
            f"{message}; they are too small to reach that rate", found=f"{rate / 1e9:.3g} GB/s", evidence=evidence
        )
    else:
        yield warned(message, found=f"{rate / 1e9:.3g} GB/s", expected=f"at least {OF_LINE * line / 1e9:.3g} GB/s",
                     evidence=evidence)  # fmt: skip


def _nics(run: RunFacts, site: Site) -> int:
    """Return the number of compute NICs of a node; a usual maximum if unknown."""
    ports = [len([port for port in site.roles(node).compute if port.active]) for node in run.nodes]
    return nics_of(site, site.gpus.value) or max(ports, default=0) or MOST_NICS


def _line_rate(run: RunFacts, site: Site) -> float | None:
    """Return the line rate of one compute NIC, bytes/s; None if unknown."""
    gpus = site.gpus.value
    gbps = site.rate_of_each(nics_of(site, gpus) or 0, gpus or 0).value
    if gbps is None:
        ports = [port for node in run.nodes for port in site.roles(node).compute if port.active]
        rates = [port.rate_gbps for port in ports if port.rate_gbps]
        gbps = min(rates, default=None)
    return gbps * 1e9 / 8 if gbps else None

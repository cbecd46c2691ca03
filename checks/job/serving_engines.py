"""Judgement of each serving engine, and limits that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.model import Finding, Status, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.training.serving_metrics import ServingMetrics

SOURCE = (
    "https://docs.vllm.ai/en/stable/usage/metrics/; https://docs.sglang.io/references/production_metrics.html; "
    "https://docs.nvidia.com/dynamo (metrics); https://github.com/triton-inference-server/tensorrtllm_backend"
)
#: Minimum requests or transfers for a mean; minimum scrapes to show how often requests wait. Judgement calls.
ENOUGH, SCRAPES, _TWO = 20, 3, 2
#: Number of engine steps that every request waits for: the running one and the next one, which includes the request.
#: The second value is the share of the time to the first token below which a queue is ignored.
STEPS, _BRIEF = 2.0, 0.1
#: Maximum number of engines of one text reported individually.
_LISTED = 8
MORE = "Save two scrapes some minutes apart, under load: `curl -s http://HOST:PORT/metrics >> metrics.txt`."


def each_engine(
    metrics: ServingMetrics,
    evidence: Sequence[str],
    judge: Callable[[ServingMetrics, Sequence[str]], Iterator[Finding]],
) -> Iterator[Finding]:
    """Judge each engine of a text separately.

    A mean over all engines hides an overloaded one. If no engine is at fault, or none has enough data, the findings are
    for all engines together.
    """
    if metrics.cut:
        yield unknown(f"{metrics.program}: only part of the metrics was read", evidence=evidence,
                      fix="Pass the last scrapes alone: `tail -c 5M metrics.txt`.")  # fmt: skip
        return
    own = [(engine, finding) for engine in metrics.engines for finding in judge(engine, evidence)]
    bad = [(engine, finding) for engine, finding in own if finding.status is Status.WARN]
    for engine, finding in bad[:_LISTED]:
        yield replace(finding, subject=engine.place)
    if len(bad) > _LISTED:
        yield warned(f"{metrics.program}: {len(bad) - _LISTED} more engines have problems", evidence=evidence)
    if bad:
        return
    together = list(judge(metrics, evidence))
    good = [finding for _, finding in own if finding.status is Status.PASS]
    if good and any(finding.status is Status.WARN for finding in together):
        together = good[:_LISTED]
    yield from together


def seconds(value: float) -> str:
    """Format a time in seconds or milliseconds."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def waits_briefly(metrics: ServingMetrics) -> bool:
    """Return whether requests wait only briefly, as under normal load.

    Two scrapes are needed: the mean wait since the start of an engine is that of the past.
    """
    queue, first, step = metrics.mean("queue"), metrics.mean("first_token"), metrics.mean("next_token")
    if len(metrics.scrapes) < _TWO:
        return False
    fewer = all(scrape.running is not None and (scrape.waiting or 0) < scrape.running
                for scrape in metrics.scrapes if scrape.waiting)  # fmt: skip
    return fewer and queue is not None and (queue <= _BRIEF * (first or 0.0) or queue <= STEPS * (step or 0.0))

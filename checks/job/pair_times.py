"""Check of the times of single iterations between all pairs of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from preflight.bench.observation import PairTimes
from preflight.checks.job.nccl_tests import no_report, size_of
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, passed, skipped, unknown, verb, warned
from preflight.parsers.nccl_tests.model import fewest_iterations

#: Multiple of a pair's median above which its slowest iterations are a tail, and multiple of the faster pairs' time
#: above which a pair is slow; judgement calls.
_TAIL, _APART = 2.0, 2.0

#: If at least this fraction of the pairs is slower, those pairs take another kind of path.
_KIND = 0.2

#: Largest message whose time is latency, in bytes.
_SMALL = 65536

#: Maximum number of pairs listed separately.
_MOST_LISTED = 20


class _Measured(NamedTuple):
    """Runs of one collective at one message size, by pair of nodes."""

    label: str
    pairs: dict[tuple[str, ...], PairTimes]


def no_pair_times(run: RunFacts, site: Site) -> Finding | None:
    """Skip logs without single iterations of small messages between two nodes."""
    if not any(pair.bytes <= _SMALL for pair in run.pair_times):
        return skipped(f"no run shows single iterations (-I 1) of messages up to {size_of(_SMALL)} between two nodes",
                       evidence=list(run.nccl_tests)).about()  # fmt: skip
    return None


@check(
    "bench.pair-times",
    title="Small messages take equally long between all pairs of nodes",
    fault="Small messages take longer between some pairs of nodes",
    impact="slows-job",
    owner="network",
    explains=(("bench.tail", "node"),),
    source="NVIDIA/nccl-tests 2.19 (-I): per_process_max_times_us; the limits are judgements",
    fix="Run `preflight pair` between the two nodes, then each of them with another node.",
    action="fix-site",
    scope="run",
    gating=False,
    answers=("AN-8",),
    unless=(no_report, no_pair_times),
)
def pair_times(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare single iterations of small messages between all pairs of nodes.

    ## Why it matters
    One pair with a long path or a lossy cable delays each small collective of a job, and a run over all nodes does not
    show which pair it is.

    ## Verdicts
    The check passes if every pair of nodes was measured, with at least 299 iterations of a message up to 64 KiB. A pair
    whose median is above twice the first quartile of all medians warns, and so does one whose 99th percentile is above
    twice its own median. If a fifth of the pairs or more take that long, they take another kind of path, and are
    *unknown*. So are pairs that were not measured.

    ## False alarms
    A cluster in which NVLink connects only some of the nodes.
    """
    for measured in _measured(run.pair_times):
        yield from _judged(measured, list(run.nccl_tests))


def _measured(times: Sequence[PairTimes]) -> Iterator[_Measured]:
    """Yield each collective at the size with the most pairs, the smallest of several."""
    kinds: dict[tuple[str, int], dict[int, dict[tuple[str, ...], PairTimes]]] = {}
    for pair in times:
        if pair.bytes <= _SMALL and pair.iterations >= fewest_iterations(0.99):
            sizes = kinds.setdefault((pair.collective, pair.ranks), {})
            sizes.setdefault(pair.bytes, {})[tuple(sorted(pair.nodes))] = pair
    if not kinds:
        yield _Measured("", {})
    for (name, ranks), sizes in kinds.items():
        size = max(sizes, key=lambda size: (len(sizes[size]), -size))
        yield _Measured(f"{name} over {ranks} GPUs at {size_of(size)}", sizes[size])


def _judged(measured: _Measured, keys: Sequence[str]) -> Iterator[Finding]:
    pairs = measured.pairs
    if not pairs:
        yield unknown(f"no pair of nodes ran {fewest_iterations(0.99)} iterations of one message size", evidence=keys,
                      fix="run each pair with `-b 8 -e 64K -n 3000 -I 1`")  # fmt: skip
        return
    usual = sorted(pair.middle_us for pair in pairs.values())[len(pairs) // 4]
    late = {nodes: pair for nodes, pair in pairs.items() if pair.middle_us > _APART * usual}
    tails = {nodes: pair for nodes, pair in pairs.items() if pair.p99_us > _TAIL * pair.middle_us}
    kind = len(late) >= _KIND * len(pairs) and len(late) > 1
    shown = {**tails, **({} if kind else late)}
    for nodes, pair in list(shown.items())[:_MOST_LISTED]:
        yield warned(
            f"{' and '.join(nodes)}: {measured.label} takes {pair.middle_us:.4g} µs (p99 {pair.p99_us:.4g} µs), the "
            f"faster pairs {usual:.4g} µs",
            subject=" - ".join(nodes), found=f"{pair.middle_us:.4g} µs, p99 {pair.p99_us:.4g} µs",
            expected=f"up to {_APART:g} times the faster pairs, p99 up to {_TAIL:g} times the median",
            evidence=[f"log:{pair.source}"],
        )  # fmt: skip
    if len(shown) > _MOST_LISTED:
        yield warned(f"{measured.label}: {len(shown) - _MOST_LISTED} more pairs take longer", evidence=keys)
    if kind:
        yield unknown(f"{measured.label}: {len(late)} of {len(pairs)} pairs take more than {_APART:g} times the "
                      f"{usual:.4g} µs of the faster pairs: their path is of a different kind", evidence=keys,
                      fix="compare with the leaves and NVLink domains; look for TCP instead of RDMA")  # fmt: skip
    names = sorted({node for nodes in pairs for node in nodes})
    missing = [both for both in combinations(names, 2) if both not in pairs]
    if missing:
        yield unknown(f"{measured.label}: {len(missing)} of {len(missing) + len(pairs)} pairs of nodes were not "
                      f"measured, such as {' and '.join(missing[0])}", evidence=keys,
                      fix="run these pairs with `-b 8 -e 64K -n 3000 -I 1`")  # fmt: skip
    elif not shown and not kind:
        slowest = max(pair.middle_us for pair in pairs.values())
        yield passed(f"{measured.label}: {all_of(len(pairs), 'pair')} of {len(names)} nodes "
                     f"{verb(len(pairs), 'takes')} at most {slowest:.4g} µs, without a long tail",
                     evidence=keys)  # fmt: skip

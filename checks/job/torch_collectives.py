"""Checks of collectives in traces of several ranks: waiting and transfer times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.durations import Pool, of_job, of_rank
from preflight.facts.trace.purposes import NAMES, group_kind
from preflight.facts.trace.stragglers import LONGER, OF_A_STEP
from preflight.model import Finding, check, counted, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.trace.equal_kernels import UnevenStage
    from preflight.facts.trace.job import JobTrace
    from preflight.facts.trace.stragglers import SlowTransfers, Straggler

#: Share of a GPU's time below which communication, and so waiting for other ranks, is negligible.
HARDLY = 0.01
#: Maximum ratio of the 99th percentile of a collective's times to the median, and of the 99.9th.
SPREAD, RARE = 3.0, 10.0
#: Maximum number of kinds and sizes with reported percentiles.
_MOST_SIZES = 5
#: Maximum number of ranks and steps in a list.
_LISTED = 8


def listed(ranks: Sequence[int]) -> str:
    """Return ranks or steps as text; only the first if there are many."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    more = f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
    return ", ".join(map(str, ranks[:_LISTED])) + more


@check(
    "torch.straggler",
    title="No rank delays its process group",
    fault="One rank delays all others",
    impact="slows-job",
    explains=(
        ("torch.overlap", "node"),
        ("torch.exposed-collectives", "node"),
        ("torch.collective-times", "node"),
        ("torch.bubble", "node", "*", "*: stages differ, or messages are slow"),
        ("torch.bubble", "node", "*", "*, without what torch.straggler reports for *"),
        ("torch.collective-share", "names"),
    ),
    source="Matching of collectives across ranks, as in arXiv 2505.05713; bounds of a half and of 1%: judgements",
    fix="Check that rank's node: clocks, throttling, NIC, CPUs and input data (`preflight check --hosts NODE`).",
    answers=("PA-23", "NT-LENS-6", "NT-LENS-1"),
    scope="run",
    needs=("trace",),
)
def straggler(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure which rank is last in each collective, and how long its peers wait.

    ## Why it matters
    A collective ends for all ranks at the same time. A rank that is late in every step sets the pace of the job, and
    all other GPUs are idle.

    ## Verdicts
    Collectives are matched by process group, kind and number; the clocks of the ranks are aligned by the ends of
    collectives. Waiting counts only while the waiting GPU computes nothing. A rank that is late because it waited in
    another group is not reported; its delay is attributed to the rank it waited for. A rank warns if it causes more
    than half of its group's waiting and costs a step at least 1% more than its peers, beyond the variation of the
    steps. It also warns if it costs single steps more than 15%, or three steps far more than usual, unless all GPUs are
    idle for twice as long in such a step. Several ranks, at most half of a group, warn together; if they are most ranks
    of a host, the host is named. If ranks are late because the transfers of their other group take 1.5 times as long as
    in its sibling groups, that group warns instead. In a pipeline, where stages wait by design, a rank warns if it
    takes longer than other stages for equal kernels (same name and number of thread blocks). It also warns if its GPU
    is idle, longer than theirs, while they wait for its messages. Its cost is the time by which a replay of the job is
    shorter without this excess; if the traces do not show when messages were ready, that is an upper bound ("up to").
    Waiting in collectives of several stages is not judged. A stage with more kernels, such as those of the loss, is
    reported, but does not warn; it is unknown if most of its kernels have no equal. A job without such a rank is
    unknown if traces are missing, if collectives cannot be matched, or if a few ranks cause three quarters of the
    waiting, but no more than chance explains. A job passes if
    communication takes at most 1% of each GPU's time.

    ## False alarms
    Experts that have more work by design.
    """
    traces = list(each(run))
    keys = [key for key, _, _ in traces]
    talking = [facts for _, _, facts in traces if facts["gpu"] and facts["gpu"]["communication_ms"]]
    if len(talking) < 2:
        yield unknown(f"{counted(len(talking), 'trace')} with communication kernels: needs at least two ranks",
                      evidence=keys,
                      fix="pass the traces of several ranks: --log rank0.json --log rank1.json")  # fmt: skip
        return
    job = run.job_trace
    if job.repeated:
        yield unknown(f"several traces are of the same rank: {', '.join(map(_name, job.repeated[:_LISTED]))}",
                      evidence=list(job.repeated), fix="pass one trace of each rank, of the same steps")  # fmt: skip
        return
    for slow in job.slow_transfers:
        yield _slow_transfers(job, slow)
    for together in _by_host(job):
        yield _late(run, *together)
    if job.stragglers or job.slow_transfers:
        return
    most = max(facts["gpu"]["communication_share"] for facts in talking)
    gaps = [*job.missing, *job.refused]
    if job.unnamed:
        gaps.append(f"the rank of {_name(job.unnamed[0])} is unknown")
    compared = f"{counted(job.matched, 'collective')} of {len(job.compared)} ranks, clocks compared within "
    compared += f"{job.error_us():.0f} µs"
    if most <= HARDLY:
        yield passed(f"no rank delays others: communication takes at most {most:.1%} of a GPU's time", evidence=keys)
    elif job.suspects:
        ranks = listed([suspect.rank for suspect in job.suspects])
        share, lost = job.suspects[0].share, job.suspects[0].lost_share
        kind = group_kind(job.suspects[0].group)
        what = f"{_ranks(ranks)} {_verb(ranks, 'cause')} {share:.0%} of the waiting of a {kind}, {lost:.1%} of a step"
        why = "in too few steps to rule out chance"
        if job.suspects[0].idle:
            what = f"other stages wait in receives for {_ranks(ranks)} with an idle GPU, {lost:.1%} of a step"
        elif job.suspects[0].group.kinds == {"sendrecv"}:
            what = f"some kernels take longer on {_ranks(ranks)} than on other stages, {lost:.1%} of a step"
            why = "too few kernels or steps to rule out chance"
        yield unknown(f"{what}, {why}", evidence=keys, fix="profile more steps on all ranks")
    elif unlike := [stage for stage in job.uneven if not stage.by_design]:
        yield unknown(f"{_uneven(unlike[0])}, mostly in kernels that other stages do not have, so its speed "
                      "cannot be compared", evidence=keys,
                      fix="compare with the same stage of another replica or run")  # fmt: skip
    elif gaps or not job.matched:
        shown = "; ".join(gaps[:3]) or "no collective could be matched"
        more = f"; and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        what = f"no rank in these traces delays others ({compared}), but not all can be compared"
        yield unknown(f"{what if job.matched else 'the traces do not show who waits for whom'}: {shown}{more}",
                      evidence=keys, fix="pass the traces of all ranks, of the same steps")  # fmt: skip
    else:
        yield passed(f"no rank delays others in every step: {compared}", evidence=keys)
    if job.stalled:
        least = min(job.stalled.values()) / 1000
        yield passed(f"in {_steps(sorted(job.stalled))} all ranks stall together: their GPUs are idle for at least "
                     f"{least:.3g} ms longer than in the median step", subject="all ranks", evidence=keys)  # fmt: skip
    for stage in job.uneven:
        if stage.by_design:
            yield passed(f"{_uneven(stage)}, because it has more kernels; equal kernels take as long as elsewhere",
                         subject=f"stage of rank {stage.rank}", evidence=[job.ranks[stage.rank].key])  # fmt: skip


def _uneven(stage: UnevenStage) -> str:
    return (
        f"rank {stage.rank} computes longer than the other stages of ranks {listed(stage.stages.ranks)}, by "
        f"{stage.more_us / 1000:.3g} ms of each step"
    )


def _name(key: str) -> str:
    return key.removeprefix("log:")


def _ranks(ranks: str) -> str:
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}"


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {listed(steps)}"


def _verb(ranks: str, verb: str) -> str:
    return f"{verb}s" if ranks.isdigit() else verb


def _by_host(job: JobTrace) -> Iterator[tuple[list[Straggler], str]]:
    """Yield the stragglers of each warning, with their host if they share one."""
    left = list(job.stragglers)
    members: dict[str, list[int]] = {}
    for rank, trace in job.ranks.items():
        if trace.host:
            members.setdefault(trace.host, []).append(rank)
    for host, ranks in members.items():
        late = [straggler for straggler in left if straggler.rank in ranks]
        if len(late) > 1 and 2 * len(late) > len(ranks):
            yield late, host
            left = [straggler for straggler in left if straggler not in late]
    while left:
        first = left[0]
        together = [straggler for straggler in left if straggler.rank in (first.together or (first.rank,))]
        together = [straggler for straggler in together if straggler.group == first.group] or [first]
        hosts = {job.ranks[straggler.rank].host for straggler in together}
        yield together, (hosts.pop() or "") if len(hosts) == 1 else ""
        left = [straggler for straggler in left if straggler not in together]


def _waits_for_cpu(run: RunFacts, late: Straggler, job: JobTrace) -> bool:
    """Return whether most of the idle time of a rank's GPU is for lack of launches."""
    budget = run.step_budget(job.ranks[late.rank].key) or {}
    idle = {part: share for part, share in budget.items() if part.startswith("idle_")}
    return 2 * idle.get("idle_other", 0.0) < sum(idle.values())


def _late(run: RunFacts, late: Sequence[Straggler], host: str) -> Finding:
    job = run.job_trace
    worst = max(late, key=lambda straggler: straggler.lost_us)
    names = sorted(straggler.rank for straggler in late)
    ranks = listed(names)
    waiting = listed([rank for rank in worst.group.ranks if rank not in names])
    kind = group_kind(worst.group)
    length = (
        f"{worst.lost_us / 1000:.3g} of {job.step_us / 1000:.4g} ms ({worst.lost_share:.1%})"
        if job.step_us
        else (f"{worst.lost_share:.1%}")
    )
    bound = "up to " * worst.at_most
    at: dict[str, Any] = {
        "subject": _ranks(ranks), "found": f"{bound}{worst.lost_share:.1%} of a step", "expected": "at most 1%",
        "evidence": [job.ranks[rank].key for rank in names],
    }  # fmt: skip
    where = f" on {host}" if host else ""
    if worst.group.kinds == {"sendrecv"}:
        more = f"{worst.more_us / 1000:.3g} ms"
        longer = f"which {_verb(ranks, 'compute')} longer"
        if not worst.steps:
            longer = f"which {_verb(ranks, 'take')} longer for equal kernels"
        if worst.idle:
            longer = "whose GPU is idle meanwhile"
            longer += ", because its CPU launches nothing" if _waits_for_cpu(run, worst, job) else ""
        when = f" in {_steps(worst.steps)}" if worst.steps else ""
        if worst.lost_share < OF_A_STEP:
            longer = longer.removeprefix("which ") if not worst.idle else "has an idle GPU"
            at |= {"found": f"{more} more", "expected": "as other stages"}
            return warned(f"{_ranks(ranks)}{where} {longer}{when}, by {more} of each step on average; it costs less "
                          "than 1% of a step, because other stages take longer by design", **at)  # fmt: skip
        verb = "waits" if waiting.isdigit() else "wait"
        stages = f"the stage of rank {waiting}" if waiting.isdigit() else f"the stages of ranks {waiting}"
        cost = f"; on average over all steps: {bound}{length}" if worst.steps else f": {bound}{length} of each step"
        return warned(f"{stages} {verb} in receives for {_ranks(ranks)}{where}, {longer}{when}{cost}", **at)
    if any(straggler.group != worst.group for straggler in late):
        return warned(f"the process groups of {_ranks(ranks)}{where} wait for them, up to {length} of each step", **at)
    subject = f"{_ranks(ranks)} causes" if len(names) == 1 else "they cause"
    cause = f"{subject} {worst.share:.0%} of the waiting in their {kind}"
    waits = f"{_ranks(waiting)} {_verb(waiting, 'wait')} for {_ranks(ranks)}{where}"
    if steps := sorted({step for straggler in late for step in straggler.steps}):
        return warned(f"{waits} in {_steps(steps)}: {cause}; on average over all steps "
                      f"{'it costs' if len(names) == 1 else 'they cost'} {length}", **at)  # fmt: skip
    return warned(f"{waits} for {length} of each step: {cause}", **at)


def _slow_transfers(job: JobTrace, slow: SlowTransfers) -> Finding:
    ranks = listed(slow.group.ranks)
    return warned(
        f"transfers in the {group_kind(slow.group)} of ranks {ranks} delay its ranks: {slow.kind} of "
        f"{slow.bytes / 1e6:.3g} MB takes {slow.length_us / 1000:.3g} ms, {slow.length_us / slow.usual_us:.1f} times "
        f"as long as in the fastest of its sibling groups; their peers wait for {slow.lost_share:.0%} of a step",
        subject=f"transfers of ranks {ranks}", found=f"{slow.length_us / slow.usual_us:.1f} times",
        expected=f"at most {LONGER:g} times", evidence=[job.ranks[rank].key for rank in slow.group.ranks],
        fix="Check the links of these ranks: rate and errors of their NICs and NVLinks (`preflight check`).",
    )  # fmt: skip


@check(
    "torch.collective-times",
    title="The times of a collective vary little",
    fault="The times of a collective vary widely",
    impact="slows-job",
    source="Nearest-rank percentiles: p99 of at least 100, p99.9 of at least 1000; three times the median: a judgement",
    fix="Check for congestion while the job runs: `preflight check --window 60`.",
    action="fix-job",
    answers=("FP-LAT-1", "FP-BW-4"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def collective_times(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the p99 of the times of each collective and size with their median.

    ## Why it matters
    Synchronisation takes as long as its slowest rank: the tail of the distribution, not its mean, determines the step
    time.

    ## Verdicts
    A p99 above three times the median warns, and so does a p99.9 above ten times. If collectives of all ranks of a
    group are matched, the time is that of the transfer, from the arrival of the last rank. Otherwise it is that of one
    rank's kernels; since they include waiting for other ranks, such a tail is unknown. Times of one kind and size are
    combined over all ranks, and over process groups of one purpose whose medians are similar: groups within and between
    nodes are judged separately. Too few samples for a p99 are unknown.

    ## False alarms
    Different sizes under one name, in traces without sizes (before PyTorch 2.2).
    """
    job = run.job_trace
    if job.matched:
        yield from _spread("transfers", of_job(job), {"subject": "transfers", "evidence": list(run.traces)})
        return
    for key, name, _ in each(run):
        yield from _spread(name, of_rank(run.traces[key]), {"subject": name, "evidence": [key]})


def _spread(name: str, pools: Sequence[Pool], at: Mapping[str, Any]) -> Iterator[Finding]:
    enough = [pool for pool in pools if pool.sample["p99_ms"] is not None]
    if not enough:
        most = max((int(pool.sample["count"]) for pool in pools), default=0)
        few = (
            f"at most {counted(most, 'collective')} of one kind and size: too few" if most else "no collective is timed"
        )
        yield unknown(f"{name}: {few} for a 99th percentile",
                      fix="profile more steps: 100 collectives for p99, 1000 for p99.9", **at)  # fmt: skip
    for pool in sorted(enough, key=lambda pool: (-max(pool.tail, pool.rare), -pool.sample["count"]))[:_MOST_SIZES]:
        times = pool.sample
        last = f", p99.9 {times['p999_ms']:g}" if times["p999_ms"] is not None else ""
        size = f" of {pool.bytes} bytes" if pool.bytes is not None else ""
        message = f"{name}: {pool.name}{size}{_where(pool)}: "
        message += f"median {times['p50_ms']:g} ms, p99 {times['p99_ms']:g}{last}"
        if pool.tail > SPREAD:
            tail = {"found": f"{pool.tail:.1f} times the median", "expected": f"at most {SPREAD:g} times"}
        elif pool.rare > RARE:
            tail = {"found": f"p99.9 is {pool.rare:.1f} times the median", "expected": f"at most {RARE:g} times"}
        else:
            yield passed(message, found=f"{times['p99_ms']:g} ms", **at)
            continue
        if pool.transfers:
            yield warned(message, **tail, **at)
        else:
            yield unknown(f"{message}; only the traces of all ranks show how much of it is waiting for them",
                          found=tail["found"], fix="pass the traces of all ranks, of the same steps", **at)  # fmt: skip


def _where(pool: Pool) -> str:
    """Return the process groups of a pool in words, if their purpose is known."""
    return f" in {counted(pool.groups, f'{NAMES[pool.purpose]} group')}" if pool.purpose else ""

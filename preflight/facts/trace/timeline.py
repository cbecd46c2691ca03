"""The longest step of a job across its ranks, on one clock, as data for a picture.

Each rank is one row of a fixed number of parts. A part has the shares of computation, exposed transfer, exposed waiting
and exposed copies; for the remainder, the GPU is idle. Without the traces of all ranks, transfer and waiting are one
share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from preflight.facts.trace.job import JobTrace
from preflight.facts.trace.purposes import group_kind, purpose
from preflight.parsers.torch.intervals import Coverage
from preflight.parsers.torch.step_shades import PARTS, UNMARKED, StepShades, percent

#: Maximum number of drawn ranks, and of stragglers drawn before all others.
MOST_RANKS, _MOST_LATE = 64, 16
#: The median step is drawn too if the longest one is this many times as long.
_LONGER = 1.1


def timelines(job: JobTrace, only: str | None = None) -> list[dict[str, Any]]:
    """Return the longest step, and the median one if it is clearly shorter.

    With ``only`` (``tp``, ``dp``, ...), ranks are in the order of these groups, and only waiting in them counts.
    """
    groups = _groups(job, only)
    if only and not groups:
        return []
    ranks = _chosen(job, groups if only else {})
    steps = set.intersection(*(set(job.ranks[rank].shades) for rank in ranks)) if ranks else set()
    lengths = {step: max(_length(job.ranks[rank].shades[step]) for rank in ranks) for step in steps}
    if not lengths:
        return []
    longest = max(lengths, key=lambda step: (lengths[step], step))
    usual = median(lengths.values())
    middle = min(lengths, key=lambda step: (abs(lengths[step] - usual), step))
    drawn = [(longest, "longest")]
    if lengths[longest] > _LONGER * lengths[middle]:
        drawn.append((middle, "median"))
    return [_timeline(job, ranks, step, which, groups if only else None) for step, which in drawn]


def _groups(job: JobTrace, only: str | None) -> dict[int, str]:
    """Return the numbers of the chosen process groups, with their names."""
    return {
        number: f"{group_kind(group)} of ranks {', '.join(map(str, group.ranks[:8]))}"
        + (" and others" if len(group.ranks) > 8 else "")
        for number, group in enumerate(job.waits.groups)
        if only in (None, purpose(group))
    }


def _chosen(job: JobTrace, groups: Mapping[int, str]) -> list[int]:
    """Return the drawn ranks: by groups if there are any, else in order."""
    ordered = list(dict.fromkeys(rank for number in groups for rank in job.waits.groups[number].ranks))
    ordered = [rank for rank in ordered or sorted(job.ranks) if job.ranks[rank].shades]
    if len(ordered) <= MOST_RANKS:
        return ordered
    late = [straggler.rank for straggler in job.stragglers if straggler.rank in ordered][:_MOST_LATE]
    peers = [rank for straggler in job.stragglers[:_MOST_LATE] for rank in straggler.group.ranks]
    even = ordered[:: -(-len(ordered) // (MOST_RANKS // 2))]
    drawn = set(list(dict.fromkeys([*late, *even, *peers, *ordered]))[:MOST_RANKS])
    return [rank for rank in ordered if rank in drawn]


def _length(shades: StepShades) -> float:
    return shades.end - shades.begin


def _timeline(
    job: JobTrace, ranks: Sequence[int], step: int, which: str, groups: Mapping[int, str] | None
) -> dict[str, Any]:
    """Return the picture of one step as data."""
    bases = Counter(job.clocks[rank].base for rank in ranks if rank in job.clocks)
    base = max(bases, key=bases.__getitem__, default=None)
    on_one_clock = [rank for rank in ranks if rank in job.clocks and job.clocks[rank].base == base]
    windows = {rank: job.ranks[rank].shades[step] for rank in ranks}
    begins = {rank: windows[rank].begin + job.clocks[rank].offset for rank in on_one_clock}
    first = min(begins.values(), default=0.0)
    places = {rank: begins.get(rank, first) - first for rank in ranks}
    length = max(places[rank] + _length(windows[rank]) for rank in ranks)
    late = {straggler.rank for straggler in job.stragglers}
    group_of = {rank: name for number, name in (groups or {}).items() for rank in job.waits.groups[number].ranks}
    return {
        "step": None if step == UNMARKED else step,
        "which": which,
        "length_ms": round(length / 1000, 4),
        "clock_error_us": round(job.error_us(), 1) if on_one_clock else None,
        "ranks": len(job.ranks),
        "rows": [
            {
                "rank": rank, "host": job.ranks[rank].host, "group": group_of.get(rank),
                "late": rank in late, "same_clock": rank in on_one_clock,
                "begin": round(places[rank] / length, 5),
                "end": round((places[rank] + _length(windows[rank])) / length, 5),
                "parts": _parts(job, rank, windows[rank], groups),
            }
            for rank in ranks
        ],
    }  # fmt: skip


def _parts(job: JobTrace, rank: int, window: StepShades, groups: Collection[int] | None) -> dict[str, list[int]]:
    """Return the shares of each kind in percent, part by part.

    Kinds that do not occur are left out.
    """
    exposed = list(percent(job.ranks[rank].bare, window.begin, window.end))
    shares = {"compute": list(window.compute)}
    if rank not in job.compared or job.missing:
        shares["communication"] = exposed
    else:
        waiting = _waiting(job, rank, window, groups)
        shares["waiting"] = [min(total, part) for total, part in zip(exposed, waiting, strict=True)]
        rest = "transfer" if groups is None else "communication"  # which includes waiting in other groups
        shares[rest] = [total - part for total, part in zip(exposed, shares["waiting"], strict=True)]
    shares["copies"] = list(window.copies)
    return {kind: parts for kind, parts in shares.items() if any(parts)}


def _waiting(job: JobTrace, rank: int, window: StepShades, groups: Collection[int] | None) -> list[int]:
    """Return the exposed waiting in each part, in percent."""
    bare, width = job.ranks[rank].bare, _length(window) / PARTS
    waited = [0.0] * PARTS
    waits = job.waits.waited(rank, groups)
    inside = slice(bisect_right(waits.ends, window.begin), bisect_left(waits.begins, window.end))
    for begin, end in zip(waits.begins[inside], waits.ends[inside], strict=True):
        for part, left, right in _pieces((begin - window.begin) / width, (end - window.begin) / width):
            waited[part] += bare.within(window.begin + left * width, window.begin + right * width)
    return [round(100 * time / width) for time in waited]


def _pieces(begin: float, end: float) -> Iterator[tuple[int, float, float]]:
    """Yield each part that an interval touches, with the interval's limits in it."""
    for part in range(max(0, int(begin)), min(PARTS, int(end) + 1)):
        left, right = max(begin, part), min(end, part + 1.0)
        if right > left:
            yield part, left, right


def group_waits(job: JobTrace, only: str) -> list[str]:
    """Describe the waiting in each process group of a kind, the longest first."""
    described = []
    for number, name in _groups(job, only).items():
        group = job.waits.groups[number]
        steps = {rank: Coverage(sorted(job.ranks[rank].steps.values())) for rank in group.ranks}
        if not all(step.total for step in steps.values()):
            described.append((0.0, f"{name}: steps are not marked"))
            continue
        shares = [_exposed_wait(job, rank, number, steps[rank]) / steps[rank].total for rank in group.ranks]
        mean = sum(shares) / len(shares)
        missing = "" if group.complete else "; some of its ranks have no trace"
        text = f"{name}: its ranks wait for {mean:.1%} of a step{_most_by(job, number)}{missing}"
        described.append((mean, text))
    return [text for _, text in sorted(described, reverse=True)]


def _exposed_wait(job: JobTrace, rank: int, group: int, steps: Coverage) -> float:
    bare = job.ranks[rank].bare
    return sum(bare.within(begin, end) for begin, end in job.waits.waited(rank, (group,)) if steps.within(begin, end))


def _most_by(job: JobTrace, group: int) -> str:
    """Name the rank, or the group whose transfers, cause most of a group's waiting."""
    caused: dict[int, float] = defaultdict(float)
    for key, charges in job.waits.caused.items():
        if key.group == group:
            for cause, amount in charges.items():
                caused[cause] += amount
    if not (everything := sum(caused.values())):
        return ""
    most = max(caused, key=caused.__getitem__)
    what = f"rank {most} causes" if most >= 0 else f"transfers in the {group_kind(job.waits.groups[-1 - most])} cause"
    return f"; {what} {caused[most] / everything:.0%} of it"

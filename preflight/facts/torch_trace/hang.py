"""Which rank holds the others up, and in which collective: by dumps of several ranks, or by their watchdogs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from preflight.facts.torch_trace.recording import Entry, Recording, memberships
from preflight.facts.torch_trace.watchdog import Watchdog
from preflight.lean import dataclass


@dataclass(frozen=True)
class Hang:
    """Ranks that wait in a collective, and those that they wait for."""

    group: str
    seq: int
    op: str | None  # what those who wait called
    waiting: tuple[int, ...]
    behind: tuple[int, ...]  # have not come to it, as they say themselves
    silent: tuple[int, ...]  # members of which nothing was handed over
    differ: tuple[tuple[int, str], ...]  # (rank, what it called there) where that is not what most called


def of_recordings(recordings: Mapping[int, Recording]) -> tuple[Hang, ...]:
    """Compare the dumps of several ranks, process group by process group; the earliest work that is not done counts."""
    by_group: dict[tuple[str, tuple[int, ...]], dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    members = memberships(recordings)
    for rank, recording in recordings.items():
        for entry in recording.settled:
            if not entry.p2p and entry.seq >= 0:
                by_group[entry.group, members[rank, entry.group]][rank].append(entry)
    found = (_hang(group, ranks, everybody or sorted(ranks)) for (group, everybody), ranks in sorted(by_group.items()))
    return tuple(hang for hang in found if hang)


def _hang(group: str, ranks: Mapping[int, Sequence[Entry]], everybody: Sequence[int]) -> Hang | None:
    called = {rank: {entry.seq: entry for entry in entries} for rank, entries in ranks.items()}
    open_at = {rank: min((e.seq for e in entries if not e.done), default=None) for rank, entries in ranks.items()}
    if (mismatch := _mismatch(called)) is None and not any(seq is not None for seq in open_at.values()):
        return None
    seq = min(seq for seq in (mismatch, *open_at.values()) if seq is not None)
    here = {rank: entries[seq] for rank, entries in called.items() if seq in entries}
    usual = Counter(entry.op for entry in here.values()).most_common(1)
    op = usual[0][0] if usual else None
    says = Counter(_signature(entry) for entry in here.values()).most_common(1)
    differ = tuple((r, e.says) for r, e in sorted(here.items()) if says and _signature(e) != says[0][0])
    waiting = tuple(sorted(rank for rank, entry in here.items() if not entry.done))
    behind = tuple(sorted(rank for rank, entries in called.items() if max(entries) < seq))
    silent = tuple(sorted(set(everybody) - set(ranks)))
    return Hang(group, seq, op, waiting, behind, silent, differ)


def _mismatch(called: Mapping[int, Mapping[int, Entry]]) -> int | None:
    """Return the first work of which the ranks called different things, sizes or types."""
    seen: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    for entries in called.values():
        for seq, entry in entries.items():
            seen[seq].add(_signature(entry))
    return min((seq for seq, signatures in seen.items() if len(signatures) > 1), default=None)


def _signature(entry: Entry) -> tuple[str, ...]:
    """Return what must agree over ranks; in an all-to-all, a gather and a scatter the sizes need not."""
    op = entry.op.partition(":")[2] or entry.op
    sized = op.startswith(("all_reduce", "allreduce", "broadcast", "reduce")) and "scatter" not in op
    return (op, str(entry.sizes) if sized else "", *sorted(set(entry.dtypes)))


def of_watchdog(told: Watchdog) -> tuple[Hang, ...]:
    """Compare how far the ranks were; those that had enqueued least are those that the others wait for."""
    by_group: dict[str, dict[int, tuple[int, int, int | None]]] = defaultdict(dict)
    for one in told.progress:
        by_group[one.group][one.rank] = (one.enqueued, one.completed, one.at)
    ops = {(one.rank, one.seq): one.op for one in told.timed_out}
    found = []
    for group, ranks in sorted(by_group.items()):
        named = [at for _, _, at in ranks.values() if at is not None]
        begun = [completed + 1 for enqueued, completed, _ in ranks.values() if enqueued > completed]
        if not (named or begun):
            continue
        seq = min(named or begun)
        behind = tuple(sorted(rank for rank, (enqueued, _, _) in ranks.items() if enqueued < seq))
        waiting = tuple(sorted(rank for rank, (enqueued, done, _) in ranks.items() if enqueued >= seq > done))
        op = next((ops[rank, seq] for rank in waiting if ops.get((rank, seq))), None)
        differ = tuple((rank, called) for rank in waiting if (called := ops.get((rank, seq))) and called != op)
        found.append(Hang(group, seq, op, waiting, behind, (), differ))
    if not found:
        found = _of_timeouts(told)
    return tuple(found)


def _of_timeouts(told: Watchdog) -> list[Hang]:
    """Older versions tell no progress: only what ran out of time, and where; of whom nobody knows says nothing."""
    seqs = [one.seq for one in told.timed_out if one.seq is not None and one.rank is not None]
    if not seqs:
        return []
    seq = min(seqs)
    here = [one for one in told.timed_out if one.seq == seq]
    op = Counter(one.op for one in here).most_common(1)[0][0]
    known = {one.rank: one.op for one in here if one.rank is not None}
    differ = sorted((rank, called) for rank, called in known.items() if called is not None and called != op)
    return [Hang("", seq, op, tuple(sorted(known)), (), (), tuple(differ))]

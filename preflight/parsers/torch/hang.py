"""Hanging collectives and their ranks, from dumps or watchdog messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch.flight_recorder import RecordedCall, Recording, memberships
from preflight.parsers.torch.watchdog import RankProgress, Watchdog

#: The calls of a group: rank → number → call.
_Called = Mapping[int, Mapping[int, RecordedCall]]


@dataclass(frozen=True)
class Hang:
    """The ranks that wait in a collective, and the ranks for which they wait."""

    group: str
    seq: int
    op: str | None  # the call in which the ranks wait; None if unknown, or if they differ
    waiting: tuple[int, ...]
    behind: tuple[int, ...]  # ranks that have not reached it, according to their own output
    silent: tuple[int, ...]  # members of the group without any output
    differ: tuple[tuple[int, str], ...]  # (rank, its call), if ranks made different calls with this number
    passed: tuple[int, ...] = ()  # ranks that have completed it, according to their own output
    shown: tuple[int, ...] = ()  # ranks that occur in the text
    complete: bool = True  # whether ``shown`` is known to have all members of the group
    messages: tuple[tuple[int, str], ...] = ()  # (rank, send or receive in which it waits), instead of a collective
    cut: tuple[int, ...] = ()  # ranks whose dumps are truncated before it, so they may have reached it
    unstarted: tuple[int, ...] = ()  # ranks whose GPUs have not started it, unlike those of most ranks
    usual: str = ""  # the call of most ranks, if other ranks made a different one
    totals: tuple[int, ...] = ()  # numbers of elements that all ranks send and receive, if they differ
    old: tuple[int, ...] = ()  # ranks whose dumps are older than ``joined``, so they may have reached it
    late: tuple[int, ...] = ()  # ranks that have not completed ``joined``
    joined: int = -1  # the last collective before it that needs all ranks and that a rank completed
    #: (rank, collective that timed out), if the text lacks its group; with a lower number, if it lacks all groups
    ungrouped: tuple[tuple[int, str], ...] = ()
    stacks: tuple[tuple[int, str, tuple[str, ...]], ...] = ()  # (rank, its call or the last one before it, its frames)


def of_recordings(recordings: Mapping[int, Recording]) -> tuple[Hang, ...]:
    """Return the hangs of each process group, from the dumps of several ranks.

    A hang is at the first call that differs between ranks, and at the first one that is unfinished.
    """
    by_group: dict[tuple[str, tuple[int, ...]], dict[int, list[RecordedCall]]] = defaultdict(lambda: defaultdict(list))
    members = memberships(recordings)
    for rank, recording in recordings.items():
        for entry in recording.resolved_entries:
            if not entry.p2p and entry.seq >= 0:
                by_group[entry.group, members[rank, entry.group]][rank].append(entry)
    return tuple(
        hang
        for (group, everybody), ranks in sorted(by_group.items())
        for hang in _hangs(
            group, {rank: {e.seq: e for e in ranks[rank]} for rank in sorted(ranks)}, everybody, recordings
        )
    )


def _hangs(
    group: str, called: _Called, everybody: Sequence[int], recordings: Mapping[int, Recording]
) -> Iterator[Hang]:  # fmt: skip
    """Yield the hangs of a group: where calls differ, then where ranks wait.

    Calls that differ explain why ranks wait in them, but not a later wait if all ranks completed them.
    """
    members = set(everybody) if all(recording.sizes_exchanges for recording in recordings.values()) else None
    joined = _joined(called) if everybody else -1
    mismatch, stuck = _mismatch(called, members), _stuck(called, joined)
    for seq in sorted({seq for seq in (mismatch, stuck) if seq is not None}):
        yield _hang(group, seq, called, everybody, recordings, members, joined)
        if seq == stuck or not all(entries[seq].done for entries in called.values() if seq in entries):
            return


def _hang(
    group: str, seq: int, called: _Called, everybody: Sequence[int], recordings: Mapping[int, Recording],
    members: Set[int] | None, joined: int,
) -> Hang:  # fmt: skip
    here = {rank: entries[seq] for rank, entries in called.items() if seq in entries}
    op, differ = _calls_at(here)
    outside = {rank for rank, _ in differ}
    usual = next((entry.call_text for rank, entry in here.items() if rank not in outside), "") if differ else ""
    totals = () if differ else _totals(list(here.values()), members)
    waiting = tuple(rank for rank, entry in here.items() if not entry.done)
    idle = {rank for rank in set(everybody or called) - set(called) if rank in recordings}
    short = {rank for rank, entries in called.items() if max(entries) < seq} | idle
    cut = {rank for rank in short if recordings[rank].cut}
    # all ranks have called ``joined``: a dump without it is older, unless the call has left the ring buffer
    old = {rank for rank in short - cut if joined >= 0
           and (max(called[rank]) < joined if rank in called else recordings[rank].from_first_call)}  # fmt: skip
    behind = short - cut - old
    late = {rank: entries[joined] for rank, entries in called.items()
            if joined < seq and joined in entries and not entries[joined].done}  # fmt: skip
    last = late | {rank: max(called[rank].items())[1] for rank in behind if rank in called}
    silent = tuple(sorted(set(everybody or called) - set(called) - set(recordings)))
    completed = tuple(rank for rank, entry in here.items() if entry.done)
    return Hang(group, seq, op, waiting, tuple(sorted(behind)), silent, differ, completed,
                cut=tuple(sorted(cut)), unstarted=_unstarted(here), usual=usual, totals=totals, old=tuple(sorted(old)),
                late=tuple(late), joined=joined, stacks=_stacks(last, here))  # fmt: skip


def _stuck(called: _Called, joined: int) -> int | None:
    """Return the collective in which ranks wait, or None.

    Even a rank that does not show the end of a call has completed it if it has completed a later one, or if any rank
    has completed a later one that needs all ranks: the rank records the end later, or its dump is older.
    """
    later, late = [], False
    for entries in called.values():
        done = max((seq for seq, entry in entries.items() if _in_order(entry)), default=-1)
        waiting = [seq for seq, entry in entries.items() if not entry.done and seq > done]
        late |= bool(waiting) and (joined in waiting or max(entries) < joined)
        later += [seq for seq in waiting if seq > joined]
    at_joined = [(rank, entries[joined].done) for rank, entries in called.items() if joined in entries]
    moved_on = {rank for rank, done in at_joined if done}
    most_are_late = late and 2 * len(moved_on) <= len(at_joined)
    if later and not (most_are_late and all(max(called[rank]) >= min(later) for rank in moved_on)):
        return min(later)
    return joined if late else None


def _joined(called: _Called) -> int:
    """Return the last collective that needs all ranks and that a rank completed.

    All ranks have called it, and completed those before it. -1 without one.
    """
    at = _by_number(called)
    return max((seq for seq, calls in at.items() if any(map(_needs_all, calls)) and _all_agree(calls)), default=-1)


#: Collectives that no rank completes before all ranks have called them: those of one root are different, and in an
#: all-to-all a rank may have nothing for another one.
_OF_ALL_RANKS = ("all_reduce", "allreduce", "all_gather", "allgather", "_all_gather", "_allgather", "reduce_scatter",
                 "_reduce_scatter", "barrier")  # fmt: skip


def _needs_all(entry: RecordedCall) -> bool:
    """Return whether the call is complete, which proves that all ranks have called it."""
    backend, _, op = entry.op.partition(":")
    completed = entry.done if backend == "gloo" else entry.state == "completed"  # NCCL retires failed calls as well
    return completed and 0 not in entry.elements and op.lower().startswith(_OF_ALL_RANKS)


def _in_order(entry: RecordedCall) -> bool:
    """Return whether the rank has completed a call, and thus those before it.

    Gloo works at several calls at a time.
    """
    return entry.state == "completed" and not entry.op.startswith("gloo")


def _unstarted(here: Mapping[int, RecordedCall]) -> tuple[int, ...]:
    """Return the ranks whose GPUs have not started the call, if most have."""
    scheduled = tuple(rank for rank, entry in here.items() if not entry.done and entry.state == "scheduled")
    started = sum(entry.done or entry.state == "started" for entry in here.values())
    return scheduled if len(scheduled) < started else ()


def apart(recordings: Mapping[int, Recording]) -> tuple[int, int] | None:
    """Return two ranks whose sequence numbers in a group do not overlap, or None.

    Their dumps are from different attempts of the job.
    """
    members = memberships(recordings)
    spans: dict[tuple[str, tuple[int, ...]], dict[int, tuple[int, int]]] = defaultdict(dict)
    for rank, recording in recordings.items():
        numbers: dict[str, list[int]] = defaultdict(list)
        for entry in recording.resolved_entries:
            if not entry.p2p and entry.seq >= 0:
                numbers[entry.group].append(entry.seq)
        for group, seqs in numbers.items():
            spans[group, members[rank, group]][rank] = (min(seqs), max(seqs))
    for of_ranks in spans.values():
        first = min(of_ranks, key=lambda rank: of_ranks[rank][1])
        last = max(of_ranks, key=lambda rank: of_ranks[rank][0])
        if of_ranks[first][1] < of_ranks[last][0]:
            return first, last
    return None


def _stacks(
    last: Mapping[int, RecordedCall], here: Mapping[int, RecordedCall]
) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """Return (rank, call, frames) for each different stack.

    The ranks that are behind or late, in their last call, precede those that wait.
    """
    by_stack: dict[tuple[str, ...], tuple[int, str]] = {}
    for rank, entry in [*sorted(last.items()), *here.items()]:
        if entry.stack:
            by_stack.setdefault(entry.stack, (rank, entry.op))
    return tuple((rank, op, stack) for stack, (rank, op) in by_stack.items())


def _calls_at(here: Mapping[int, RecordedCall]) -> tuple[str | None, tuple[tuple[int, str], ...]]:
    """Return the majority's call, and (rank, call) of the ranks that differ.

    Without a majority, return None and the calls of all ranks.
    """
    alike: list[list[tuple[int, RecordedCall]]] = []
    for rank, entry in here.items():
        for group in alike:
            if _agree(group[0][1], entry):
                group.append((rank, entry))
                break
        else:
            alike.append([(rank, entry)])
    most = max(alike, key=len, default=[])
    if len(alike) > 1 and 2 * len(most) <= len(here):
        return None, tuple((rank, entry.call_text) for rank, entry in here.items())
    usual = {rank for rank, _ in most}
    return (most[0][1].op if most else None), tuple((r, e.call_text) for r, e in here.items() if r not in usual)


def _mismatch(called: _Called, members: Set[int] | None) -> int | None:
    """Return the first number at which calls, sizes or types of ranks differ."""
    return min(
        (seq for seq, calls in _by_number(called).items() if not _all_agree(calls) or _totals(calls, members)),
        default=None,
    )


def _by_number(called: _Called) -> dict[int, list[RecordedCall]]:
    at: dict[int, list[RecordedCall]] = defaultdict(list)
    for entries in called.values():
        for seq, entry in entries.items():
            at[seq].append(entry)
    return at


def _all_agree(calls: Sequence[RecordedCall]) -> bool:
    kinds = list({(_signature(call), _typed(call)): call for call in calls}.values())
    return all(_agree(first, second) for at, first in enumerate(kinds) for second in kinds[at + 1 :])


def _agree(first: RecordedCall, second: RecordedCall) -> bool:
    """Return whether two calls match; a missing type or size matches any other."""
    (op, *sizes), (other_op, *other_sizes) = _signature(first), _signature(second)
    types = _typed(first), _typed(second)
    return (
        op == other_op
        and all(size == other or None in (size, other) for size, other in zip(sizes, other_sizes, strict=True))
        and (types[0] == types[1] or not all(types))
    )


def _typed(entry: RecordedCall) -> tuple[str, ...]:
    """Return the types of a call's tensors; empty without tensors."""
    return tuple(sorted({dtype for dtype in entry.dtypes if dtype != "Undefined"}))


#: Collectives with inputs, or outputs, that may differ between ranks.
_FREE_IN, _FREE_OUT = ("all_to_all", "alltoall", "scatter"), ("all_to_all", "alltoall", "gather", "reduce")


def _signature(entry: RecordedCall) -> tuple[str, int | None, int | None]:
    """Return what ranks must agree on: operation, input and output elements.

    A number that may differ is None. NCCL and Gloo count elements, so tensors of different shapes match if their
    numbers of elements are equal.
    """
    op = entry.op.partition(":")[2] or entry.op
    inside, outside = entry.elements
    free_out = op.startswith(_FREE_OUT) and not op.startswith("reduce_scatter")
    return op, None if op.startswith(_FREE_IN) else inside, None if free_out else outside


def _totals(calls: Sequence[RecordedCall], members: Set[int] | None) -> tuple[int, ...]:
    """Return the numbers of elements that ranks of an all-to-all send and receive.

    Empty if they are equal or unknown.
    """
    if members is None or len(calls) != len(members) or not all(map(_is_exchange, calls)):
        return ()
    sides = [[elements for call in calls if (elements := call.elements[side]) is not None] for side in (0, 1)]
    sent, received = map(sum, sides)
    return (sent, received) if sent != received and all(len(side) == len(calls) for side in sides) else ()


def _is_exchange(call: RecordedCall) -> bool:
    return call.op.partition(":")[2].startswith(("all_to_all", "alltoall"))


def of_watchdog(watchdog: Watchdog, nranks: int | None = None) -> tuple[Hang, ...]:
    """Return the hang of each group, from watchdog messages of several ranks.

    ``nranks`` is the number of ranks in the job, if known. The order of lines is ignored. Whether ranks are missing is
    only known for the group of all ranks, in a job of known size.
    """
    by_group: dict[str, dict[int, RankProgress]] = defaultdict(dict)
    for one in watchdog.progress:
        by_group[one.group][one.rank] = one
    calls = _calls(watchdog)
    grouped = {progress.rank for progress in watchdog.progress}
    ungrouped = tuple((rank, _numbered(seq, named)) for rank, (seq, named) in sorted(_firsts(watchdog).items())
                      if rank not in grouped)  # fmt: skip
    found: list[Hang] = []
    for group, ranks in sorted(by_group.items()):
        if messages := _messages(ranks, calls):
            found.append(Hang(group, messages[0][0], None, tuple(rank for _, rank, _ in messages), (), (), (), (),
                              tuple(sorted(ranks)), False, tuple((rank, op) for _, rank, op in messages)))  # fmt: skip
            continue
        named = [one.at for one in ranks.values() if one.at is not None and one.at > one.completed]
        begun = [one.completed + 1 for one in ranks.values() if one.enqueued > one.completed]
        if not (named or begun):
            continue
        seq = min(named or begun)
        behind = tuple(sorted(rank for rank, one in ranks.items() if one.enqueued < seq))
        waiting = tuple(sorted(rank for rank, one in ranks.items() if one.enqueued >= seq > one.completed))
        passed = tuple(sorted(rank for rank, one in ranks.items() if one.completed >= seq))
        op, differ = _agreed({rank: calls.get((rank, seq), ()) for rank in waiting})
        of_all = _OF_ALL in group and nranks is not None and max(ranks) < nranks
        timed_out = {rank for rank, _ in ungrouped}
        rest = set(range(min(nranks or 0, _MOST_RANKS))) - set(ranks)
        silent = tuple(sorted(rest - timed_out)) if of_all else ()
        shown = tuple(sorted({*ranks, *timed_out}))
        complete = of_all and not rest
        found.append(Hang(group, seq, op, waiting, behind, silent, differ, passed, shown, complete,
                          ungrouped=ungrouped))  # fmt: skip
    return tuple(found or _of_timeouts(watchdog, calls))


def _messages(
    ranks: Mapping[int, RankProgress], calls: Mapping[tuple[int, int], tuple[_Call, ...]]
) -> list[tuple[int, int, str]]:
    """Return (number, rank, call) of the ranks that wait in sends and receives.

    Empty for a group without them. Each rank counts its own messages, so numbers of different ranks cannot be
    compared.
    """
    found = []
    for rank, one in sorted(ranks.items()):
        seq = one.completed + 1 if one.at is None else one.at
        if one.at is not None or one.enqueued > one.completed:
            named = " and ".join(sorted({call[0] for call in calls.get((rank, seq), ())})) or "a call without a name"
            found.append((seq, rank, f"{named} {seq}"))
    return found if any(op.startswith(_OF_TWO) for _, _, op in found) else []


#: Calls that only some ranks of a group make: sends, receives, and batches of them.
_OF_TWO = ("SEND", "RECV", "COALESCED")

#: The description of the group of all ranks, and its maximum number of ranks.
_OF_ALL, _MOST_RANKS = "default_pg", 1 << 17

#: A rank's call: the collective, and its sizes if they must agree between ranks, else None.
_Call = tuple[str, "int | None", "int | None"]
_SIZED = ("ALLREDUCE", "BROADCAST", "REDUCE")


def _calls(watchdog: Watchdog) -> dict[tuple[int, int], tuple[_Call, ...]]:
    """Return the timed-out calls, by (rank, number).

    A rank in several groups may have several with the same number.
    """
    found: dict[tuple[int, int], set[_Call]] = defaultdict(set)
    for one in watchdog.timed_out:
        if one.rank is not None and one.seq is not None and one.op is not None:
            sizes = (one.numel_in, one.numel_out) if one.op in _SIZED else (None, None)
            found[one.rank, one.seq].add((one.op, *sizes))
    return {where: tuple(sorted(calls, key=repr)) for where, calls in found.items()}


def _agreed(calls: Mapping[int, tuple[_Call, ...]]) -> tuple[str | None, tuple[tuple[int, str], ...]]:
    """Return the common call, or None; and (rank, call) of each if they differ."""
    known = {rank: candidates for rank, candidates in calls.items() if candidates}
    if len(set(known.values())) <= 1 and all(len(candidates) == 1 for candidates in known.values()):
        op = next((candidates[0][0] for candidates in known.values()), None)
        return op if len(known) == len(calls) else None, ()
    return None, tuple((rank, " and ".join(map(_named, candidates))) for rank, candidates in sorted(known.items()))


def _named(call: _Call) -> str:
    op, numel_in, numel_out = call
    return op if numel_in is None else f"{op} of {numel_in} elements" + (
        f" into {numel_out}" if numel_out not in (None, numel_in) else "")  # fmt: skip


def _firsts(watchdog: Watchdog) -> dict[int, tuple[int, str]]:
    """Return (number, name) of each rank's first collective that timed out."""
    first: dict[int, tuple[int, str]] = {}
    for timeout in watchdog.timed_out:
        if timeout.rank is not None and timeout.seq is not None:
            first[timeout.rank] = min(
                (timeout.seq, timeout.op or ""), first.get(timeout.rank, (timeout.seq, timeout.op or ""))
            )
    return first


def _numbered(seq: int, name: str) -> str:
    return f"collective {seq}{f' ({name})' if name else ''}"


def _of_timeouts(watchdog: Watchdog, calls: Mapping[tuple[int, int], tuple[_Call, ...]]) -> list[Hang]:
    """Return hangs from older versions, which print neither progress nor group.

    Ranks in equal calls with different numbers may be in one group: those with lower numbers are then behind.
    """
    firsts = _firsts(watchdog)
    found: dict[str | int, Hang] = {}
    for seq in sorted({seq for seq, _ in firsts.values()})[:_MOST_NUMBERS]:
        waiting = tuple(sorted(rank for rank, (at, _) in firsts.items() if at == seq))
        op, differ = _agreed({rank: calls.get((rank, seq), ()) for rank in waiting})
        kind = seq if op is None or op.startswith(_OF_TWO) else op
        before = found.pop(kind, None)
        lower = [] if before is None else [*before.waiting, *(rank for rank, _ in before.ungrouped)]
        found[kind] = Hang("", seq, op, waiting, (), (), differ, (), tuple(sorted(firsts)), False,
                           ungrouped=tuple((rank, _numbered(*firsts[rank])) for rank in sorted(lower)))  # fmt: skip
    return list(found.values())


#: Maximum number of hangs that are reported from the timeouts of older versions.
_MOST_NUMBERS = 8

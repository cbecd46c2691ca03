"""Checks of PyTorch's records: backends, hanging ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preflight import parsers
from preflight.checks.job.cause import AFTER_FAILURE
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, counted, failed, passed, unknown, warned
from preflight.parsers.torch import messages

if TYPE_CHECKING:
    from preflight.parsers.torch.hang import Hang
    from preflight.parsers.torch.messages import Stall

RECORDER = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
BACKENDS = "https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use"

#: Start of the messages about dumps.
_DUMPS = "the dumps"

#: Maximum number of ranks named in a finding.
_NAMED = 8
#: Maximum number of quoted stack frames.
_FRAMES = 8

_WHICH = "Check that rank first: its log and stack (`py-spy dump --pid PID`), its node's Xids, its data loader."


@check(
    "torch.backend",
    title="NCCL carries the collectives of GPU tensors",
    fault="NCCL does not carry the collectives of GPU tensors",
    impact="slows-job",
    source=BACKENDS,
    fix='Call `init_process_group("nccl")`, or use "cpu:gloo,cuda:nccl", so that Gloo does not handle GPU tensors.',
    action="fix-job",
    answers=("NT-PIT-1", "NT-LENS-2"),
    scope="run",
    gating=False,
    needs=("trace", "recording"),
)
def backend(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for the backend of collectives in traces and flight-recorder dumps.

    ## Why it matters
    Gloo copies GPU tensors through the CPU and over TCP: the job runs without an error, but far more slowly.

    ## Verdicts
    A trace with GPU kernels but only Gloo or MPI collectives fails. Gloo in addition to NCCL is usual (barriers,
    checkpoints, metrics) and passes. A trace without GPU kernels is unknown. Dumps pass if NCCL ran collectives;
    otherwise they are unknown, because dumps do not show whether tensors are on GPUs.

    ## False alarms
    A run on one GPU that uses a process group only to order its processes.
    """
    for key, trace in run.traces.items():
        document = trace.document
        name = key.removeprefix("log:")
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        used, config = document["collective_backends"], document["backend_config"] or document["backend"]
        counts = ", ".join(f"{count} by {one}" for one, count in used.items())
        others = [one for one in used if one != "nccl"]
        if document["gpu"] is None:
            yield unknown(f"{name}: no GPU kernel in the trace; configured: {config or 'not reported'}",
                          fix="profile ProfilerActivity.CUDA on a rank of the job", **at)  # fmt: skip
        elif used.get("nccl"):
            yield passed(f"{name}: collectives: {counts}", found=counts, **at)
        elif others or (config and "nccl" not in config.lower()):
            carriers = counts or f"configured: {config}"
            yield failed(
                f"{name}: the GPUs compute, but {', '.join(others) or config} instead of NCCL "
                f"carries the collectives ({carriers})",
                found=carriers,
                expected="nccl",
                **at,
            )
        else:
            yield unknown(f"{name}: no collective in the trace; configured: {config or 'not reported'}", **at)
    if run.recordings:
        every = Counter[str]()
        for key, recording in run.recordings.items():
            every.update(recording.document(key)["backends"])
        at = {"subject": "dumps", "evidence": list(run.recordings)}
        summary = ", ".join(f"{count} by {one}" for one, count in every.most_common())
        if every.get("nccl"):
            yield passed(f"collectives in {len(run.recordings)} dumps: {summary}", found=summary, **at)
        else:
            yield unknown(f"collectives in {len(run.recordings)} dumps: {summary or 'none'}; dumps do not show whether "
                          "their tensors are on GPUs", fix="pass a profiler trace", **at)  # fmt: skip


@check(
    "torch.hang",
    title="No rank hangs in a collective, a send or a receive",
    fault="A rank hangs in a collective, a send or a receive",
    impact="blocks-job",
    explains=AFTER_FAILURE[1:],
    source=f"{RECORDER}; messages of ProcessGroupNCCL's watchdog, PyTorch 1.7 … 2.13",
    fix=_WHICH,
    action="fix-job",
    answers=("NT-LENS-9",),
    scope="run",
    needs=("recording", "watchdog"),
)
def hang(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the collectives and messages that each rank called and completed.

    The source is the flight-recorder dumps, or else the watchdog's lines in a log.

    ## Why it matters
    All ranks wait in the same collective for one that never arrives. Their logs look the same, and a time-out, minutes
    later, names every rank but the right one.

    ## Verdicts
    A rank that has not reached the collective where others wait fails, and so do ranks that called different
    collectives, sizes or types with the same number. If all ranks with dumps wait and some ranks have no dump, the
    result is unknown and lists those ranks: a missing rank is often the one that died. A dump that ends before the
    collective is unknown as well, and so are different dumps of one rank. Complete dumps of all ranks without
    unfinished operations pass. From watchdog lines, a rank is reported only if the log shows the job's size and
    all ranks.

    A rank may record the end of a collective late, or write its dump earlier than other ranks. Therefore a collective
    counts as completed if any rank completed a later one that needs all ranks. A rank that has not completed the last
    collective that others have is named in addition to those that have not reached the next one; if there are none, it
    warns. A dump that ends before that collective is too old, and the result is unknown.

    Sizes are compared in elements: inputs and outputs of a collective must agree across ranks, except where they may
    differ, as in an all-to-all. There, all ranks together must send as much as they receive, which is compared
    if all dumps are available. If the GPUs of a few ranks have not started an operation that most have, those ranks
    warn. The finding quotes the stacks of ranks that are behind, and of one that waits. Dumps without a collective in
    common are unknown.

    For sends and receives, both ends are compared. The check fails if a rank waits for a peer that has not called the
    other end, if ranks wait for each other in a cycle, or if the ends differ in size or type. It is unknown if the wait
    ends at a rank without a dump, and warns if both ends were called but the data does not arrive.

    ## False alarms
    Dumps taken during normal operation, in which running operations look unfinished. PyTorch writes dumps on a
    time-out, or on request.
    """
    for key, why in run.refused.items():
        yield unknown(f"{key.removeprefix('log:')}: {why}", evidence=[key], fix=parsers.torch.safe_pickle.CONVERT)
    if run.recordings:
        yield from _of_recordings(run)
    for key, watchdog in run.watchdogs.items():
        if not run.recordings:
            for one in parsers.torch.hang.of_watchdog(watchdog, _size(run, key)):
                yield from _finding(one, [key], key.removeprefix("log:"), _lines(watchdog, one))


def _size(run: RunFacts, key: str) -> int | None:
    """Return the number of ranks from NCCL's log lines, or None."""
    log = run.nccl_logs.get(key)
    return log.nranks if log is not None else None


def _lines(watchdog: parsers.torch.watchdog.Watchdog, one: Hang) -> str:
    """List the progress of the group's ranks, those that are behind first."""
    progress = [p for p in watchdog.progress if p.group == one.group] or []
    first = sorted(progress, key=lambda p: (p.rank not in one.behind, p.line))
    return "\n".join(
        f"{p.line}: rank {p.rank}: last enqueued {p.enqueued}, last completed {p.completed}" for p in first[:12]
    )


def _of_recordings(run: RunFacts) -> Iterator[Finding]:
    keys: dict[int, str] = {}
    unnamed = 0
    for key, recording in run.recordings.items():
        rank = recording.rank(key)
        if rank in keys:
            if recording.entries == run.recordings[keys[rank]].entries:  # the same dump in another format or folder
                continue
            yield unknown(f"the dumps of rank {rank} differ", evidence=[keys[rank], key],
                          fix="pass the dumps of one job and one attempt at a time")  # fmt: skip
            return
        if rank is None:
            unnamed += 1
            rank = -unnamed
        keys[rank] = key
    recordings = {rank: run.recordings[key] for rank, key in keys.items()}
    found = parsers.torch.hang.of_recordings(recordings)
    stall = parsers.torch.messages.of_recordings(recordings)
    sent = {wait.rank: f"{wait.op} (process group {wait.group})" for wait in stall.waits} if stall else {}
    at = {rank: (hang.group, _where(hang)) for hang in reversed(found) for rank in hang.waiting}
    for one in found:
        elsewhere = sent | {rank: where for rank, (group, where) in at.items() if group != one.group}
        yield from _finding(one, list(keys.values()), _DUMPS, _stacks(one), elsewhere)
    if stall:
        busy = {rank: f"collective {one.seq} ({one.op})" for one in found for rank in one.waiting}
        yield _stalled(stall, busy, list(keys.values()))
    if not (found or stall):
        members = {rank for recording in run.recordings.values() for group in recording.groups for rank in group.ranks}
        missing, dumps = sorted(members - set(keys)), counted(len(keys), "dump")
        if cut := sorted(rank for rank, recording in recordings.items() if recording.cut):
            yield unknown(
                f"no unfinished operation in {dumps}; truncated dump of {_named(cut)}",
                evidence=list(keys.values()),
                fix="pass the complete dump",
            )
        elif missing or not members:
            lack = f"no dump of {_named(missing)}" if missing else "the ranks of the job are not known"
            yield unknown(f"no unfinished operation in {dumps}; {lack}", evidence=list(keys.values()),
                          fix="pass the dumps of all ranks")  # fmt: skip
        elif pair := parsers.torch.hang.apart(recordings):
            yield unknown(
                f"no unfinished operation in {dumps}, but those of ranks {pair[0]} and {pair[1]} share no collective",
                evidence=[keys[rank] for rank in pair],
                fix="pass the dumps of one job and one attempt at a time",
            )
        else:
            yield passed(
                f"the dumps of {all_of(len(members), 'rank')} have no unfinished operation",
                evidence=list(keys.values()),
            )


def _stacks(hang: Hang) -> str:
    """Quote the stacks of ranks; those that are behind come first."""
    lines = []
    for rank, op, stack in hang.stacks[:_NAMED]:
        more = [f"{len(stack) - _FRAMES} more"] if len(stack) > _FRAMES else []
        lines.append(f"rank {rank}: {op}: {' < '.join([*stack[:_FRAMES], *more])}")
    return "\n".join(lines)


def _where(one: Hang) -> str:
    """Describe a collective in which ranks wait."""
    group = f" of process group {one.group}" if one.group else ""
    return f"collective {one.seq}{group}{f' ({one.op})' if one.op else ''}"


def _timed_out(one: Hang) -> str:
    """Describe the ranks that timed out in a group that is not shown."""
    by_call: dict[str, list[int]] = {}
    for rank, call in one.ungrouped:
        by_call.setdefault(call, []).append(rank)
    listed = [f"{_named(ranks)} in {call}" for call, ranks in by_call.items()]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"timed out as well: {', '.join(listed[:_NAMED])}{more}"


def _finding(
    one: Hang, keys: Sequence[str], name: str, quote: str, elsewhere: Mapping[int, str] | None = None
) -> Iterator[Finding]:
    """Report which ranks wait, and for which ranks.

    ``elsewhere`` maps a rank to the operation in which it waits meanwhile.
    """
    group = f" of process group {one.group}" if one.group else ""
    if one.messages:
        each = "; ".join(f"rank {rank} in {op}" for rank, op in one.messages[:_NAMED])
        more = f" and {len(one.messages) - _NAMED} more" if len(one.messages) > _NAMED else ""
        yield warned(
            f"{name}: sends and receives{group} are not done: {each}{more}; each rank has its own "
            f"numbering, so the log does not show the awaited rank{_some(one)}",
            subject=f"sends and receives{group}",
            found=f"{len(one.messages)} ranks wait",
            expected="done",
            fix=_ALL_LOGS,
            evidence=keys,
            quote=quote,
        )
        return
    where = _where(one)
    who = f"{_named(one.waiting)} {'wait' if len(one.waiting) > 1 else 'waits'}"
    waiting = f"{who} in {where}" if one.waiting else f"in {where}"
    parts = []
    if one.behind:
        stuck = [f"rank {rank} waits in {elsewhere[rank]}" for rank in one.behind if elsewhere and rank in elsewhere]
        meanwhile = f" ({'; '.join(stuck[:_NAMED])})" if stuck else ""
        parts.append(f"{_have(one.behind)} not reached it{meanwhile}")
    if one.differ:
        rest_called = f"; most ranks called {one.usual}" if one.usual else ""
        parts.append(f"ranks disagree: {_calls(one.differ)}{rest_called}")
    if one.unstarted and not (one.behind or one.differ):
        gpu = "its GPU has" if len(one.unstarted) == 1 else "their GPUs have"
        parts.append(f"{_have(one.unstarted)} called it, but {gpu} not started it")
    if one.totals:
        parts.append(f"all ranks together send {one.totals[0]} elements and receive {one.totals[1]}")
    if one.passed:
        parts.append(f"{_have(one.passed)} completed it")
    if one.late:
        parts.append(f"{_have(one.late)} not completed collective {one.joined}, which others have")
    if one.old:
        parts.append(f"older dump of {_named(one.old)}: it ends before collective {one.joined}, which others completed")
    lower = [] if one.group else [rank for rank, _ in one.ungrouped]
    if lower:
        are = f"{_named(lower)} {'are' if len(lower) > 1 else 'is'}"
        parts.append(f"{_timed_out(one)}: if all are in one process group, which the text does not name, {are} behind")
    elif one.ungrouped:
        parts.append(f"{_timed_out(one)}, in a process group that the text does not show")
    if one.silent:
        parts.append(f"no dump or log of {_named(one.silent)}")
    if one.cut:
        parts.append(f"truncated dump of {_named(one.cut)}")
    at: dict[str, Any] = {"subject": f"collective {one.seq}{group}", "evidence": keys, "quote": quote}
    dumps = name == _DUMPS  # a healthy job may write dumps too; a watchdog reports only after a time-out
    if dumps and (one.silent or one.cut or one.old) and not (one.behind or one.differ or one.totals):
        yield unknown(f"{name}: {waiting}; {'; '.join(parts)}", found="; ".join(parts), expected="all ranks in it",
                      fix="pass the dumps that the ranks wrote at one time-out" if one.old else
                      "pass the dumps of all ranks: a missing rank is often the one that died", **at)  # fmt: skip
    elif parts:
        # for ranks without a named group, other calls may belong to other groups
        certain = one.behind or one.silent or one.totals or (one.differ and (one.group or one.complete))
        grade = failed if certain else warned
        rest = "" if one.complete else _some(one)
        yield grade(f"{name}: {waiting}; {'; '.join(parts)}{rest}", found="; ".join(parts),
                    expected="all ranks in it", fix="" if one.complete else f"{_first(lower)}{_ALL_LOGS}",
                    **at)  # fmt: skip
    else:
        come = "all ranks with dumps have reached it" if one.complete else _rest(one)
        sick = "the network or a GPU hangs: check these nodes for Xids and link errors."
        yield warned(
            f"{name}: {waiting}; {come}",
            found=f"{counted(len(one.waiting), 'rank')} {'wait' if len(one.waiting) > 1 else 'waits'}",
            expected="done",
            fix=f"{sick[:1].upper()}{sick[1:]}"
            if one.complete and dumps
            else f"The awaited rank may not be shown: pass the dumps or logs of all ranks. If none is missing, {sick}",
            **at,
        )


#: The next step if only some ranks are shown: another one may be at fault.
_ALL_LOGS = (
    "Pass the logs or dumps of all ranks (TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT): "
    "the text may not show the rank at fault."
)


def _first(lower: Sequence[int]) -> str:
    """Return the advice to look at ranks that may be behind."""
    return f"Check {_named(lower)} first: log and stack (`py-spy dump --pid PID`), Xids of the node. " if lower else ""


def _some(one: Hang) -> str:
    """State how many ranks the text shows, since there may be more."""
    return f" (of {counted(len(one.shown), 'rank')} that the text shows; there may be more)"


def _rest(hang: Hang) -> str:
    """Describe the other ranks of a text that names no process group."""
    if rest := sorted({*hang.shown} - {*hang.waiting}):
        calls = "other collectives" if len(rest) > 1 else "another collective"
        return f"{_named(rest)} timed out in {calls}; the text names no process group, and there may be more ranks"
    return f"the text shows no other rank{_some(hang)}"


def _calls(differ: Sequence[tuple[int, str]]) -> str:
    """Describe the calls of ranks, grouped by call."""
    ranks: dict[str, list[int]] = {}
    for rank, what in differ:
        ranks.setdefault(what, []).append(rank)
    calls = [f"{_named(sorted(members))} called {what}" for what, members in ranks.items()]
    more = f" and {len(calls) - _NAMED} other calls" if len(calls) > _NAMED else ""
    return "; ".join(calls[:_NAMED]) + more


def _stalled(stall: Stall, busy: Mapping[int, str], keys: Sequence[str]) -> Finding:
    """Report which ranks wait in sends and receives, and where the wait ends."""
    parts = []
    if stall.circle:
        parts.append(f"ranks {', '.join(map(str, stall.circle[:_NAMED]))} wait for each other in a cycle")
    for rank in stall.behind[:_NAMED]:
        instead = f": it waits in {busy[rank]}" if rank in busy else ""
        parts.append(f"rank {rank} has not called the other end{instead}")
    parts += [f"rank {one.rank} and rank {one.peer} disagree on the size or type of {one.op}"
              for one in stall.of(messages.MISMATCH)[:_NAMED]]  # fmt: skip
    sick = bool(parts)
    if stall.absent:
        parts.append(f"no dump shows what {_have(stall.absent)} called")
    if stall.unclear:
        parts.append("without a named peer: " + "; ".join(f"rank {r} in {op}" for r, op in stall.unclear[:_NAMED]))
    waits = sorted({(one.rank, one.op, one.group, one.peer) for one in stall.waits})
    shown = "; ".join(f"rank {rank} waits for rank {peer} in {op} (process group {group})"
                      for rank, op, group, peer in waits[:_NAMED])  # fmt: skip
    more = f" and {len(waits) - _NAMED} more" if len(waits) > _NAMED else ""
    lead = "the dumps: unfinished messages" + (f": {shown}{more}" if waits else "")
    at: dict[str, Any] = {"subject": "sends and receives", "evidence": keys}
    if sick:
        return failed(f"{lead}; {'; '.join(parts)}", found="; ".join(parts), expected="both ends of each message", **at)
    if parts:
        return unknown(f"{lead}; {'; '.join(parts)}", fix="pass the dumps of all ranks", **at)
    moving = "; ".join(one.op for one in stall.of(messages.MOVING)[:_NAMED])
    return warned(
        f"{lead}; both ends have been called, but did not finish: {moving}",
        found=f"{len(waits)} messages under way",
        expected="done",
        fix="If the job was still running, this is a snapshot. Otherwise the network or a GPU hangs: "
        "check these nodes for Xids and link errors.",
        **at,
    )


def _have(ranks: Sequence[int]) -> str:
    """Return "rank 3 has", or "ranks 1-3 have"."""
    return f"{_named(ranks)} {'have' if len(ranks) > 1 else 'has'}"


def _named(ranks: Sequence[int]) -> str:
    """Return "rank 3", or "ranks 1-3"."""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {_ranks(ranks)}"


def _ranks(ranks: Sequence[int]) -> str:
    """Format ranks with ranges, up to a maximum number.

    Negative numbers are ranks whose dumps do not name them.
    """
    found = ["(unknown)"] if any(rank < 0 for rank in ranks) else []
    at = len([rank for rank in ranks if rank < 0])
    while at < len(ranks):
        end = at
        while end + 1 < len(ranks) and ranks[end + 1] == ranks[end] + 1:
            end += 1
        found.append(str(ranks[at]) if end == at else f"{ranks[at]}-{ranks[end]}")
        at = end + 1
    return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")

"""Check of the stacks of all ranks, as `py-spy dump` or faulthandler prints them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.ranks import rank_in
from preflight.model import Finding, check, passed, unknown, warned
from preflight.parsers.training.python_stacks import ProcessStacks, StackFrame

#: Functions of processes that are not ranks: loader workers, launchers, compilers, helpers of multiprocessing.
_HELPERS = frozenset(
    ("_worker_loop", "_invoke_run", "_main_loop_of_worker", "_process_worker", "_async_compile", "_serve_one_session")
)
_HELPER_COMMANDS = ("multiprocessing.resource_tracker", "compile_worker", "torchrun", "torch.distributed.run")
#: Maximum number of processes and frames in a message, and of groups and frames in a quote.
_NAMED, _FRAMES, _GROUPS = 8, 2, 8


class _Rank(NamedTuple):
    """A process with its name."""

    name: str
    stacks: ProcessStacks
    key: str
    earlier: ProcessStacks | None = None  # its first dump, if there are several

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """The frames of the main thread, newest first."""
        return _main_frames(self.stacks)

    @property
    def moved(self) -> bool:
        """Whether the main thread was elsewhere in the first dump."""
        return self.earlier is not None and _main_frames(self.earlier) != self.frames


def _main_frames(stacks: ProcessStacks) -> tuple[StackFrame, ...]:
    main = stacks.main
    return main.frames if main is not None else ()


@check(
    "torch.stacks",
    title="The stacks of all ranks are in the same place",
    fault="The stacks of a few ranks differ from those of most",
    impact="blocks-job",
    explains=(
        ("torch.hang", "node"),
        ("nccl.ras", "node", "*", "communicator *"),
        ("nccl.failures", "node", "*", "torch_watchdog_timeout"),
    ),
    source="https://github.com/benfred/py-spy (dump); https://docs.python.org/3/library/faulthandler.html; more than "
    "half of the ranks: a judgement",
    fix="Dump the ranks that differ again, a minute later (`py-spy dump --pid PID`): a hang does not move. Then look "
    "at their data loader and file system, and for a branch that only they take.",
    action="fix-job",
    scope="run",
    gating=False,
    needs=("stacks",),
)
def stacks(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the stacks of the main threads of all ranks, frame by frame.

    ## Why it matters
    In a hang, most ranks wait in the same collective. The few whose stacks differ have not reached it: they, or what
    they wait for, are the cause.

    ## Verdicts
    Main threads are equal if all of their frames are: function, file and line. Workers of data loaders, launchers and
    compilers are left out. If more than half of the processes are in one place, all other ones warn. Otherwise the
    result is unknown and lists the largest groups; it is also unknown if all are in one place, because stacks do not
    show what that place waits for. A process is named by the rank in the name of its file or in the prefix of its
    lines, else by its number. Of several dumps of one process the last one counts; if the main threads of all processes
    have moved since their first dump, it passes.

    ## False alarms
    A snapshot of a running job: ranks are in different places at any moment. Rank 0 that saves a checkpoint or logs.
    """
    ranks = list(_ranks(run.stacks))
    keys = list(run.stacks)
    if len(ranks) < 2:
        yield unknown(f"{len(ranks)} stacks of ranks: at least two are needed", evidence=keys,
                      fix="pass the dumps of all ranks: `py-spy dump --pid PID > rank0.txt`, …")  # fmt: skip
        return
    yield _judged(ranks)


def judge_stacks(stacks: Sequence[ProcessStacks], evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the stacks of several processes in one text."""
    ranks = [_Rank(f"process {process.pid}" if process.pid is not None else f"the process in line {process.line}",
                   process, evidence[0]) for process in stacks if not _is_helper(process)]  # fmt: skip
    if len(ranks) > 1:
        yield _judged(ranks)


def _judged(ranks: Sequence[_Rank]) -> Finding:
    """Judge the main threads of processes."""
    groups: dict[tuple[StackFrame, ...], list[str]] = defaultdict(list)
    for rank in ranks:
        groups[rank.frames].append(rank.name)
    keys = list(dict.fromkeys(rank.key for rank in ranks))
    if all(rank.moved for rank in ranks):
        return passed(f"all {len(ranks)} processes have moved since their first dump", evidence=keys)
    (usual, most), *others = sorted(groups.items(), key=lambda group: -len(group[1]))
    quote = "\n".join(f"{_names(names)}: {' < '.join(map(str, own)) or 'no Python frame'}"
                      for own, names in [*others[:_GROUPS], (usual, most)])  # fmt: skip
    at: dict[str, Any] = {"subject": "stacks", "quote": quote, "evidence": keys}
    if not others:
        return unknown(f"all {len(most)} processes are in {_place(usual)}; stacks do not show what they wait for",
                       found="one place", fix="pass the dumps of PyTorch's flight recorder, or the text of `ncclras`",
                       **at)  # fmt: skip
    shown = "; ".join(f"{_names(names)} in {_place(own, usual)}" for own, names in others[:_GROUPS])
    more = f"; and {len(others) - _GROUPS} more places" if len(others) > _GROUPS else ""
    if 2 * len(most) > len(ranks):
        differ = [name for _, names in others for name in names]
        at["evidence"] = list(dict.fromkeys(rank.key for rank in ranks if rank.frames != usual))
        return warned(f"{len(most)} of {len(ranks)} processes are in {_place(usual)}, but {shown}{more}",
                      found=_names(differ), expected="the same stack on all ranks", **at)  # fmt: skip
    return unknown(f"{len(ranks)} processes are in {len(groups)} places: {_names(most)} in {_place(usual)}; "
                   f"{shown}{more}", found=f"{len(groups)} places", fix="dump all ranks again, a minute later", **at
                   )  # fmt: skip


def _ranks(dumps: Mapping[str, Sequence[ProcessStacks]]) -> Iterator[_Rank]:
    """Yield the last dump of each process that is a rank."""
    last: dict[tuple[str, str, int | None], _Rank] = {}
    for key, stacks in dumps.items():
        own = [process for process in stacks if not _is_helper(process)]
        number = rank_in(key)
        single = len({(process.writer, process.pid) for process in own}) == 1
        for process in own:
            name = f"process {process.pid}" if process.pid is not None else key.removeprefix("log:")
            if number is not None and single:
                name = f"rank {number}"
            elif process.writer:
                name = f"{process.writer} {name if process.pid is not None else ''}".strip()
            elif process.pid is not None and len(dumps) > 1:
                name = f"{name} of {key.removeprefix('log:')}"
            before = last.get((key, process.writer, process.pid))
            earlier = None if before is None else before.earlier or before.stacks
            last[key, process.writer, process.pid] = _Rank(name, process, key, earlier)
    yield from last.values()


def _is_helper(process: ProcessStacks) -> bool:
    """Return whether a process helps a rank: a worker or a launcher."""
    main = process.main
    functions = {frame.function for frame in main.frames} if main is not None else set()
    return bool(functions & _HELPERS) or any(word in process.command for word in _HELPER_COMMANDS)


def _place(own: tuple[StackFrame, ...], usual: tuple[StackFrame, ...] = ()) -> str:
    """Return the newest frames of a stack that differ from the usual one."""
    shared = 0
    while shared < min(len(own), len(usual)) and own[-1 - shared] == usual[-1 - shared]:
        shared += 1
    rest = own[: len(own) - shared] or own
    return " < ".join(map(str, rest[:_FRAMES])) if rest else "no Python frame"


def _names(names: Sequence[str]) -> str:
    numbers = sorted(int(name.removeprefix("rank ")) for name in names if name.removeprefix("rank ").isdigit())
    if len(numbers) == len(names) and numbers:
        shown = ", ".join(map(str, numbers[:_NAMED]))
        lead = "rank" if len(numbers) == 1 else "ranks"
    else:
        shown, lead = ", ".join(list(names)[:_NAMED]), ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{lead} {shown}{more}".strip()

"""Check of the stacks of all ranks, as `py-spy dump` or faulthandler prints them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from preflight._startup.lightclass import replace
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.trace.ranks import rank_in
from preflight.model import Finding, all_of, check, counted, passed, unknown, warned
from preflight.parsers.training.python_stacks import ProcessStacks, StackFrame

#: Functions of processes that are not ranks: loader workers, launchers, compilers, helpers of multiprocessing.
_HELPERS = frozenset(
    ("_worker_loop", "_invoke_run", "_main_loop_of_worker", "_process_worker", "_async_compile", "_serve_one_session",
     "start_processes")
)  # fmt: skip
#: Programs, modules and code (`python -c`) of launchers and helpers.
_HELPER_PROGRAM = re.compile(
    r"torchrun|torch\.distributed\.(?:run|launch)|deepspeed(?:\.launcher\.\w+)?|accelerate(?:\.commands\.\w+)?"
    r"|(?:torch\._inductor\.)?compile_worker|wandb(?:[-.](?:service|core|cli|sdk).*)?"
    r"|from (?:multiprocessing\.resource_tracker|wandb)\b.*", re.S
)  # fmt: skip
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
#: Commands of processes started by multiprocessing, and PyTorch's function that starts ranks that way.
_SPAWNED = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
_RANK_OF_SPAWN = ("_wrap", "torch/multiprocessing/spawn.py")
#: A native frame without a name, and files of native code.
_ADDRESS, _NATIVE = re.compile(r"0x[0-9a-fA-F]+"), re.compile(r".+(?:\.so(?:\.[\w.]+)?|\.(?:c|cc|cpp|cxx|cu|h|hpp))")
#: Maximum number of processes and frames in a message, and of groups and frames in a quote.
_NAMED, _FRAMES, _GROUPS = 8, 2, 8


class _Rank(NamedTuple):
    """A process, and the name under which it is reported."""

    name: str
    stacks: ProcessStacks
    key: str
    earlier: ProcessStacks | None = None  # its first dump, if there are several
    repeated: bool = False  # another process of the text has the same PID

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """The frames of the main thread that have a name, newest first."""
        return tuple(frame for frame in _main_frames(self.stacks) if not _ADDRESS.fullmatch(frame.function))

    @property
    def moved(self) -> bool:
        """Whether the main thread's Python frames differ from those in the first dump."""
        return self.earlier is not None and _python_frames(self.earlier) != _python_frames(self.stacks)


def _main_frames(stacks: ProcessStacks) -> tuple[StackFrame, ...]:
    main = stacks.main
    return main.frames if main is not None else ()


def _python_frames(stacks: ProcessStacks) -> list[StackFrame]:
    """Return the Python frames; native frames change while a thread spins."""
    return [frame for frame in _main_frames(stacks) if not _NATIVE.fullmatch(frame.file)]


@check(
    "torch.stacks",
    title="The stacks of all ranks are equal",
    fault="The stacks of a few ranks differ from those of most",
    impact="blocks-job",
    explains=(
        ("torch.hang", "node"),
        ("nccl.ras", "node", "*", "communicator *"),
        ("nccl.failures", "node", "*", "torch_watchdog_timeout"),
    ),
    source="https://github.com/benfred/py-spy (dump); https://docs.python.org/3/library/faulthandler.html; more than "
    "half of the ranks: a judgement",
    fix="Dump the ranks that differ again, a minute later (`py-spy dump --pid PID`): in a hang, stacks do not change. "
    "Then look at their data loader and file system, and for a branch that only they take.",
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
    Main threads are equal if all of their frames have the same function, file and line; native frames without a name do
    not count. Workers of data loaders, launchers, compilers and other children of multiprocessing are left out. If more
    than half of the processes have the same stack, all remaining ones warn. Otherwise the result is unknown and lists
    the largest groups; it is also unknown if all stacks are equal, because stacks do not show what the ranks wait for.
    A process is named by the rank in the name of its file or in the prefix of its lines, else by its PID. Of several
    dumps of a named rank, the last one counts; if the main threads of all ranks have moved since their first dump, the
    check passes. A PID that repeats in a text without ranks is unknown: containers of several nodes have the same PIDs.

    ## False alarms
    A snapshot of a running job: ranks are in different places at any moment. Rank 0 that saves a checkpoint or logs.
    """
    ranks = _ranks([(key, rank_in(key), stacks) for key, stacks in run.stacks.items()])
    keys = list(run.stacks)
    if len(ranks) < 2:
        yield unknown(f"stacks of {counted(len(ranks), 'rank')}: at least two are needed", evidence=keys,
                      fix="pass the dumps of all ranks: `py-spy dump --pid PID > rank0.txt`, …")  # fmt: skip
        return
    yield _judged(ranks)


def judge_stacks(writers: Sequence[Sequence[ProcessStacks]], evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge the stacks of several processes in one text, by writer."""
    several = len(writers) > 1
    ranks = _ranks([
        (evidence[0], None, [replace(process, writer=str(number)) if several else process for process in stacks])
        for number, stacks in enumerate(writers)
    ], named=False)  # fmt: skip
    if len(ranks) > 1:
        yield _judged(ranks)


def _judged(ranks: Sequence[_Rank]) -> Finding:
    """Judge the main threads of processes."""
    groups: dict[tuple[StackFrame, ...], list[str]] = defaultdict(list)
    for rank in ranks:
        groups[rank.frames].append(rank.name)
    keys = list(dict.fromkeys(rank.key for rank in ranks))
    if all(rank.moved for rank in ranks):
        return passed(f"{all_of(len(ranks), 'process')} have moved since their first dump", evidence=keys)
    if any(rank.repeated for rank in ranks):
        return _repeated(ranks, groups)
    (usual, most), *others = sorted(groups.items(), key=lambda group: -len(group[1]))
    quote = "\n".join(f"{_names(names)}: {' < '.join(map(str, own)) or 'no Python frame'}"
                      for own, names in [*others[:_GROUPS], (usual, most)])  # fmt: skip
    at: dict[str, Any] = {"subject": "stacks", "quote": quote, "evidence": keys}
    if not others:
        return unknown(f"{all_of(len(most), 'process')} are in {_place(usual)}; stacks do not show what they wait for",
                       found="one place", fix="pass the dumps of PyTorch's flight recorder, or the output of `ncclras`",
                       **at)  # fmt: skip
    shown = "; ".join(
        f"{_names(names)} {'is' if len(names) == 1 else 'are'} in {_place(own, usual)}"
        for own, names in others[:_GROUPS]
    )
    more = f"; and {len(others) - _GROUPS} more places" if len(others) > _GROUPS else ""
    if 2 * len(most) > len(ranks):
        differ = [name for _, names in others for name in names]
        at["evidence"] = list(dict.fromkeys(rank.key for rank in ranks if rank.frames != usual))
        return warned(f"{len(most)} of {len(ranks)} processes are in {_place(usual)}, but {shown}{more}",
                      found=_names(differ), expected="the same stack on all ranks", **at)  # fmt: skip
    return unknown(f"{len(ranks)} processes are in {len(groups)} places: {_names(most)} are in {_place(usual)}; "
                   f"{shown}{more}", found=f"{len(groups)} places", fix="dump all ranks again, a minute later", **at
                   )  # fmt: skip


def _repeated(ranks: Sequence[_Rank], groups: Mapping[tuple[StackFrame, ...], Sequence[str]]) -> Finding:
    """Report stacks of unknown processes, because a PID repeats in one text."""
    repeated = list(dict.fromkeys(rank.name for rank in ranks if rank.repeated))
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))[:_GROUPS]
    shown = "; ".join(f"{len(names)} in {_place(own)}" for own, names in largest)
    return unknown(
        f"one text has several stacks of {_names(repeated)}: of one process at several times, or of processes in "
        f"several containers; the {len(ranks)} stacks are in {len(groups)} places: {shown}",
        subject="stacks", found="a PID that repeats", evidence=list(dict.fromkeys(rank.key for rank in ranks)),
        quote="\n".join(f"{len(names)}: {' < '.join(map(str, own)) or 'no Python frame'}" for own, names in largest),
        fix="pass the dumps of each rank in a separate file: `py-spy dump --pid PID >> rank0.txt`, …",
    )  # fmt: skip


def _ranks(texts: Sequence[tuple[str, int | None, Sequence[ProcessStacks]]], named: bool = True) -> list[_Rank]:
    """Return the last dump of each rank; all dumps if they have no names.

    Each text has a key, and the rank's number if the file belongs to one rank.
    """
    processes = [process for _, _, stacks in texts for process in stacks if not _is_helper(process)]
    children = len(processes) - sum(map(_is_spawned, processes)) > 1
    ranks: list[_Rank] = []
    for key, number, stacks in texts:
        own = [process for process in stacks if not (_is_helper(process) or (children and _is_spawned(process)))]
        counts = Counter((process.writer, process.pid) for process in own)
        rank = f"rank {number}" if number is not None and len(counts) == 1 else ""
        source = key.removeprefix("log:") if named and len(texts) > 1 else ""
        last: dict[tuple[str, int | None], _Rank] = {}
        for process in own:
            at = (process.writer, process.pid)
            dump = _Rank(rank or _name(process, source, named), process, key)
            if rank or process.writer:
                before = last.get(at)
                last[at] = dump._replace(earlier=before and (before.earlier or before.stacks))
            else:
                ranks.append(dump._replace(repeated=counts[at] > 1))
        ranks += last.values()
    return ranks


def _name(process: ProcessStacks, source: str, named: bool) -> str:
    name = f"process {process.pid}" if process.pid is not None else source or f"the process in line {process.line}"
    if process.writer and named:
        writer = f"task {process.writer}" if process.writer.isdigit() else process.writer
        return f"{name} of {writer}" if process.pid is not None else writer
    return f"{name} of {source}" if process.pid is not None and source else name


def _is_helper(process: ProcessStacks) -> bool:
    """Return whether a process helps a rank: a worker or a launcher."""
    functions = {frame.function for frame in _main_frames(process)}
    return bool(functions & _HELPERS) or _HELPER_PROGRAM.fullmatch(_program(process.command)) is not None


def _is_spawned(process: ProcessStacks) -> bool:
    """Return whether multiprocessing started a process, and PyTorch did not."""
    if not any(words in process.command for words in _SPAWNED):
        return False
    function, file = _RANK_OF_SPAWN
    return not any(frame.function == function and frame.file.endswith(file) for frame in _main_frames(process))


def _program(command: str) -> str:
    """Return the program of a command: its name, or Python's script, module or code."""
    words = command.split()
    if words and _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        del words[0]
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if not option.startswith("--") and option[-1] in "mc":
                return words[0] if option[-1] == "m" and words else " ".join(words)
            if option in ("-W", "-X"):
                del words[:1]
    return words[0].removesuffix("/__main__.py").rpartition("/")[2] if words else ""


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

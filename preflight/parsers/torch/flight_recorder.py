"""Flight-recorder dumps of PyTorch: a rank's last collectives.

A dump is JSON or a pickle of plain values, in versions 1.x … 2.10 of the format (torch/csrc/distributed/c10d/
FlightRecorder). NCCL marks an entry ``scheduled``, ``started`` or ``completed``; Gloo leaves it ``scheduled`` and only
retires it. Numbers may be strings.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.torch.samples import sample_of

MOST_ENTRIES = 200_000
MOST_FRAMES = 32
_OF_LIBRARIES = re.compile(r"/torch/|site-packages")
_RANK = re.compile(
    r"rank[_-]?(\d{1,7})(?!\d)|(?:trace|dump|fr)_(\d{1,7})\b|_(\d{1,7})(?:\.json|\.pickle|\.pkl)?$", re.I
)


@dataclass(frozen=True)
class RecordedCall:
    """A collective, send or receive that a rank enqueued."""

    group: str  # id of the process group
    about: str  # description of the process group: default_pg, …
    seq: int
    p2p: bool
    op: str  # such as nccl:all_reduce
    state: str
    retired: bool
    sizes: tuple[tuple[int, ...], ...]  # shapes of its inputs
    dtypes: tuple[str, ...]
    output_sizes: tuple[tuple[int, ...], ...]
    duration_ms: float | None
    stack: tuple[str, ...]  # innermost frame first

    @property
    def done(self) -> bool:
        """Whether the rank has completed the call."""
        return self.retired or self.state == "completed"

    @property
    def closes(self) -> bool:
        """Whether the entry represents a batch of calls, and has their common state."""
        return self.op.endswith("coalesced")

    @property
    def where(self) -> str:
        """The innermost frame outside PyTorch and packages; empty if unknown."""
        return next((frame for frame in self.stack if not _OF_LIBRARIES.search(frame)), "")

    @property
    def elements(self) -> tuple[int | None, int | None]:
        """The number of input and of output elements, each None if unknown."""
        return _elements(self.sizes), _elements(self.output_sizes)

    @property
    def call_text(self) -> str:
        """The call as text, with its sizes and types."""
        sizes = ", ".join("×".join(map(str, size)) or "scalar" for size in self.sizes[:3])
        into = "" if None in self.elements or len(set(self.elements)) == 1 else f" into {self.elements[1]}"
        return f"{self.op}({sizes} {', '.join(dict.fromkeys(self.dtypes[:3]))}{into})".replace("( ", "(")


@dataclass(frozen=True)
class ProcessGroup:
    """A process group, and the rank's progress in it (numbers of calls, or None)."""

    id: str
    about: str
    ranks: tuple[int, ...]
    enqueued: int | None
    started: int | None
    completed: int | None


class Recording:
    """The dump of one rank; filled while it is read."""

    def __init__(self) -> None:
        self.entries: list[RecordedCall] = []
        self.dropped = 0
        self.from_first_call = False  # whether the dump reaches back to the rank's first call
        self.cut = False  # whether the file is incomplete, so missing calls may have been made
        self.about: dict[str, Any] = {}
        self._stacks: dict[tuple[str, ...], tuple[str, ...]] = {}  # stack → itself, to share equal ones

    def member(self, name: str, value: Any) -> None:
        """Process a member of the outermost object."""
        self.about[name] = value

    def entry(self, raw: Mapping[str, Any]) -> None:
        """Add an entry of the dump."""
        if len(self.entries) >= MOST_ENTRIES:
            self.dropped += 1
            return
        self.from_first_call |= number(raw.get("record_id")) == 0
        raw_group = raw.get("process_group")
        group = raw_group if isinstance(raw_group, (list, tuple)) and raw_group else (raw.get("pg_id", ""), "")
        p2p = raw.get("is_p2p") is True
        seq = number(raw.get("p2p_seq_id" if p2p else "collective_seq_id", raw.get("seq_id")))
        state, length = raw.get("state"), raw.get("duration_ms")
        stack = _stack(raw.get("frames"))
        self.entries.append(
            RecordedCall(
                str(group[0])[:80], str(group[1])[:80] if len(group) > 1 else "", -1 if seq is None else seq, p2p,
                str(raw.get("profiling_name", "?"))[:80], str(state)[:20] if state is not None else "",
                raw.get("retired") is True, _sizes(raw.get("input_sizes")), _texts(raw.get("input_dtypes")),
                _sizes(raw.get("output_sizes")),
                float(length) if isinstance(length, (int, float)) and not isinstance(length, bool) else None,
                self._stacks.setdefault(stack, stack),
            )
        )  # fmt: skip

    @property
    def sizes_exchanges(self) -> bool:
        """Whether entries of an all-to-all have sizes, as in format 2.4 and later."""
        match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(self.about.get("version", "")))
        return match is not None and (int(match[1]), int(match[2])) >= (2, 4)

    @property
    def resolved_entries(self) -> list[RecordedCall]:
        """The entries; a call of a batch has the state of the batch."""
        closing = {(one.group, one.p2p, one.seq): one for one in self.entries if one.closes}
        return [
            one if (end := closing.get((one.group, one.p2p, one.seq))) is None or one.done
            else replace(one, state=end.state, retired=end.retired)
            for one in self.entries
        ]  # fmt: skip

    @property
    def groups(self) -> tuple[ProcessGroup, ...]:
        """The process groups in the dump."""
        config, status = _dict(self.about.get("pg_config")), _dict(self.about.get("pg_status"))
        status_left = dict(status)
        found = []
        for key, raw in list(config.items())[:10_000]:
            entry = _dict(raw)
            name = str(entry.get("name") or key)
            group_status = _dict(status_left.pop(key, status_left.pop(name, None)))
            ranks = tuple(int(one) for one in re.findall(r"\d{1,7}", str(entry.get("ranks", ""))[:1_000_000]))
            found.append((name, str(entry.get("desc") or ""), ranks, group_status))
        if len(found) == len(status_left) == 1 and not found[0][3]:  # PyTorch uses two names for it: "" and "0"
            ((key, group_status),) = status_left.items()
            found, status_left = [(found[0][0] or key, found[0][1], found[0][2], _dict(group_status))], {}
        found += [(key, "", (), _dict(group_status)) for key, group_status in list(status_left.items())[:10_000]]
        return tuple(
            ProcessGroup(
                name, about, ranks, number(group_status.get("last_enqueued_collective")),
                number(group_status.get("last_started_collective")),
                number(group_status.get("last_completed_collective")),
            )
            for name, about, ranks, group_status in found
        )  # fmt: skip

    def rank(self, name: str) -> int | None:
        """Return the rank, from the dump or else from its file name; None if unknown."""
        if (reported := number(self.about.get("rank"))) is not None:
            return reported
        match = _RANK.search(name.rpartition("/")[2])
        return int(next(group for group in match.groups() if group)) if match else None

    def document(self, name: str) -> dict[str, Any]:
        """Return the facts as JSON values; ``name`` is the name of the file."""
        samples: dict[str, list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry.duration_ms is not None:
                samples[entry.op].append(entry.duration_ms)
        unfinished = [entry for entry in self.entries if not entry.done]
        version, library = self.about.get("version"), self.about.get("comm_lib_version", self.about.get("nccl_version"))
        return {
            "rank": self.rank(name), "version": version if isinstance(version, str) else None,
            "comm_lib_version": library if isinstance(library, str) and library else None,
            "process_groups": [
                {"id": group.id, "description": group.about or None, "ranks": list(group.ranks),
                 "last_enqueued": group.enqueued, "last_started": group.started, "last_completed": group.completed}
                for group in self.groups
            ],
            "entries": len(self.entries),
            "backends": dict(Counter(entry.op.partition(":")[0] for entry in self.entries)),
            "states": dict(Counter("retired" if e.retired and e.state != "completed" else e.state or "unknown"
                                   for e in self.entries)),
            "unfinished": [
                {"group": entry.group, "seq": entry.seq, "p2p": entry.p2p, "op": entry.op, "state": entry.state,
                 "input_sizes": [list(size) for size in entry.sizes], "input_dtypes": list(entry.dtypes),
                 "where": entry.where or None, "stack": list(entry.stack)}
                for entry in unfinished[:20]
            ],
            "unfinished_count": len(unfinished),
            "collectives": [{"name": op, **(sample_of(sample) or {})} for op, sample in sorted(samples.items())],
        }  # fmt: skip


def memberships(recordings: Mapping[int, Recording]) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return the members of process groups, by (rank, group id).

    Different groups may have the same id on different ranks. If a rank's dump lacks its groups, those of other dumps
    are used; the members are empty if that is ambiguous or no dump has them.
    """
    named = {rank: {one.id: one.ranks for one in recording.groups if one.ranks}
             for rank, recording in recordings.items()}  # fmt: skip
    of_group: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for groups in named.values():
        for group, ranks in groups.items():
            of_group[group].add(ranks)
    found = {}
    for rank, recording in recordings.items():
        own = named[rank]
        only = set(own.values()) if len(own) == 1 else set()
        for group in {entry.group for entry in recording.entries}:
            fitting = {own[group]} if group in own else {one for one in of_group[group] or only if rank in one}
            found[rank, group] = fitting.pop() if len(fitting) == 1 else ()
    return found


def is_entry(value: object) -> bool:
    """Return whether a JSON value is an entry of a dump."""
    return isinstance(value, dict) and "profiling_name" in value and ("state" in value or "record_id" in value)


def number(value: object) -> int | None:
    """Return an integer, which may be given as a string; None for other values."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None


def _dict(value: object) -> dict[str, Any]:
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def _items(value: object, most: int = 64) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value[:most]


#: A number that exceeds the size of any tensor dimension.
_MOST_ELEMENTS = 1 << 63


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(one for one in _items(size) if type(one) is int and abs(one) < _MOST_ELEMENTS) for size in _items(value)
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one)[:40] for one in _items(value) if isinstance(one, str))


def _elements(sizes: Sequence[Sequence[int]]) -> int | None:
    return sum(map(prod, sizes)) if sizes else None


def _stack(frames: object) -> tuple[str, ...]:
    """Return the Python frames as text, innermost first."""
    return tuple(
        f"{frame['filename'][-120:]}:{number(frame.get('line')) or 0} ({str(frame.get('name', ''))[:60]})"
        for frame in _items(frames, MOST_FRAMES)
        if isinstance(frame, dict) and isinstance(frame.get("filename"), str)
        and not frame["filename"].startswith(("<", "??"))
    )  # fmt: skip

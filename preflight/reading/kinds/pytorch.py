"""Traces of PyTorch's profiler and dumps of its flight recorder: a whole file of any size, or a pasted piece."""

from __future__ import annotations

import re
from typing import Any

from preflight.facts import run_log, torch_trace
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Part, Taken
from preflight.reading.sources import Source

TRACE, RECORDER = "pytorch trace", "flight recorder"

#: Lines after one that opens an object, in which it must be told by a name.
_AHEAD = 12

#: Bytes by which a pickle of a flight recorder is told from any other.
_PICKLED = (b"profiling_name", b"pg_config", b"pg_status")


def whole(source: Source) -> tuple[list[Part], torch_trace.Seen]:
    """Return the trace or dump that a source is from its first byte on; nothing where it is something else."""
    nothing = torch_trace.Seen()
    with source.path.open("rb") as stream:
        head = stream.read(1 << 16)
    pickled = torch_trace.is_pickle(head)
    if pickled and not any(name in head for name in _PICKLED):
        return [], nothing
    try:
        seen = run_log.seen_on_disk(source.path)
    except (OSError, ValueError) as error:
        if not pickled:
            return [], nothing
        taken = Taken(1, {}, "a pickle that was not read", [Cut(1, str(error))])
        return [Part(RECORDER, 1, 1, "", taken, "")], nothing
    if not seen:
        return [], nothing
    taken = _taken(seen, source.name, 0, 1)
    return [Part(_kind(seen), 1, seen.last, "", taken, "")], seen


def _kind(seen: torch_trace.Seen) -> str:
    return TRACE if seen.trace else RECORDER


def _taken(seen: torch_trace.Seen, name: str, end: int, first: int) -> Taken:
    cut = [Cut(first + line - 1, what) for line, what in seen.cut]
    if seen.trace:
        facts = seen.trace.document()
        return Taken(end, facts, _of_trace(facts), cut)
    assert seen.recording
    facts = seen.recording.document(name)
    return Taken(end, facts, _of_recording(facts), cut)


def _of_trace(facts: dict[str, Any]) -> str:
    said = [f"{facts['events']} events"]
    if facts["rank"] is not None:
        said.insert(0, f"rank {facts['rank']} of {facts['world_size'] or '?'}")
    if steps := facts["steps"]:
        said.append(f"{steps['count']} steps of {steps['mean_ms']:g} ms")
    if gpu := facts["gpu"]:
        bare = f", {gpu['exposed_share']:.0%} of the time only communication" if gpu["exposed_share"] else ""
        said.append(f"{gpu['kernels']} kernels{bare}")
    if facts["collective_backends"]:
        said.append(f"collectives by {', '.join(facts['collective_backends'])}")
    return "; ".join(said)


def _of_recording(facts: dict[str, Any]) -> str:
    rank = f"rank {facts['rank']}: " if facts["rank"] is not None else ""
    said = f"{rank}{facts['entries']} collectives, {facts['unfinished_count']} unfinished"
    if facts["unfinished"]:
        first = facts["unfinished"][0]
        said += f", the first {first['op']} number {first['seq']}"
    return said


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if '"' not in text and "{" not in text and "[" not in text:
        return False
    begun = text.lstrip()[:1]
    if begun not in ("{", "["):
        return False
    return torch_trace.begins("\n".join(line.text[:2000] for line in lines[at : at + _AHEAD]))


#: Characters that are read at once: a text in which nothing can be read is left soon.
_AT_ONCE = 1 << 15


def _seen(lines: Lines, at: int) -> torch_trace.Seen:
    place = at

    def read(size: int) -> str:
        nonlocal place
        taken: list[str] = []
        length = 0
        while place < len(lines) and length < min(size, _AT_ONCE):
            taken.append(lines[place].text + "\n")
            length += len(taken[-1])
            place += 1
        return "".join(taken)

    return torch_trace.values_of(read)


def _take(lines: Lines, at: int) -> Taken:
    seen = _seen(lines, at)
    end = min(at + max(1, seen.last), len(lines))
    if not seen:
        return Taken(end, {}, "", [Cut(lines[at].number, "no event and no entry can be read")])
    return _taken(seen, "", end, lines[at].number)


def _is(kind: str, lines: Lines, at: int) -> bool:
    if not _begins(lines, at):
        return False
    ahead = "\n".join(line.text[:2000] for line in lines[at : at + _AHEAD])
    # A trace has a list of process groups in its head, a dump an object
    recorder = re.search(r'"(?:collective_seq_id|profiling_name|pg_status)"\s*:|"pg_config"\s*:\s*\{', ahead)
    return (recorder is not None) == (kind == RECORDER)


KINDS = (
    Kind(RECORDER, lambda lines, at: _is(RECORDER, lines, at), _take),
    Kind(TRACE, lambda lines, at: _is(TRACE, lines, at), _take),
)

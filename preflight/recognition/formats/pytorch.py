"""PyTorch profiler traces and flight-recorder dumps, as files or pasted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.facts import streamed_log
from preflight.parsers import torch
from preflight.parsers.parsed import ParseGap
from preflight.parsers.torch import dump_heads, printed_dump
from preflight.recognition.detector import OutputFormat, ParsedPart, TextPart
from preflight.recognition.input_sources import InputSource
from preflight.textprep.lines import Lines

TRACE, RECORDER = "pytorch trace", "flight recorder"


@dataclass
class TorchPart(ParsedPart):
    """A trace or dump within a text, with its values."""

    output: torch.TorchOutput | None = None


#: Maximum number of bytes of a line that are read at once.
_PART = 1 << 16

#: Names, one of which identifies the pickle of a flight recorder.
_PICKLED = (b"profiling_name", b"pg_config", b"pg_status")


def read_trace_or_dump(source: InputSource) -> tuple[list[TextPart], torch.TorchOutput]:
    """Read a source that is one trace or dump; return nothing for other sources."""
    nothing = torch.TorchOutput()
    with source.path.open("rb") as stream:
        head = stream.read(1 << 16)
    if dump_heads.is_prefixed(head):
        return [], nothing
    pickled = torch.is_pickle(head)
    if pickled and not any(name in head for name in _PICKLED):
        return [], nothing
    try:
        seen = streamed_log.seen_on_disk(source.path)
    except (OSError, ValueError) as error:
        if not pickled:
            return [], nothing
        taken = ParsedPart(1, {}, "a pickle that was not read", [ParseGap(1, str(error))])
        return [TextPart(RECORDER, 1, 1, "", taken, "")], nothing
    if not seen:
        return [], nothing
    taken = _taken(seen, source.name, 0, 1)
    if seen.recording and not pickled and (another := _another(source.path, seen.last)) is not None:
        taken.cut.append(ParseGap(another, "a second dump begins here and is not read: put each in a separate file"))
    return [TextPart(_kind(seen), 1, seen.last, "", taken, "")], seen


def _another(path: Path, last: int) -> int | None:
    """Return the line after ``last`` at which another dump begins, or None."""
    number, begins = 1, True  # a dump may be on one line, which is read in parts
    with path.open("rb") as stream:
        while part := stream.readline(_PART):
            if begins and number > last and part.strip():
                return number if part.lstrip()[:1] == b"{" else None
            begins = part.endswith(b"\n")
            number += begins
    return None


def _kind(seen: torch.TorchOutput) -> str:
    return TRACE if seen.trace else RECORDER


def _taken(seen: torch.TorchOutput, name: str, end: int, first: int) -> ParsedPart:
    cut = [ParseGap(first + line - 1, what) for line, what in seen.cut]
    if seen.trace:
        facts = seen.trace.document
        return TorchPart(end, facts, _of_trace(facts), cut, seen)
    assert seen.recording
    facts = seen.recording.document(name)
    return TorchPart(end, facts, _of_recording(facts), cut, seen)


def _of_trace(facts: dict[str, Any]) -> str:
    phrases = [f"{facts['events']} events"]
    if facts["rank"] is not None:
        phrases.insert(0, f"rank {facts['rank']} of {facts['world_size'] or '?'}")
    if steps := facts["steps"]:
        phrases.append(f"{steps['count']} steps of {steps['mean_ms']:g} ms")
    if gpu := facts["gpu"]:
        bare = f", {gpu['exposed_share']:.0%} of the time only communication" if gpu["exposed_share"] else ""
        phrases.append(f"{gpu['kernels']} kernels{bare}")
    if facts["collective_backends"]:
        phrases.append(f"collectives by {', '.join(facts['collective_backends'])}")
    return "; ".join(phrases)


def _of_recording(facts: dict[str, Any]) -> str:
    rank = f"rank {facts['rank']}: " if facts["rank"] is not None else ""
    summary = f"{rank}{facts['entries']} collectives, {facts['unfinished_count']} unfinished"
    if facts["unfinished"]:
        first = facts["unfinished"][0]
        summary += f", the first {first['op']} number {first['seq']}"
    return summary


def _take_printed(lines: Lines, at: int, begun: str) -> ParsedPart:
    end = at + 1
    size = len(begun)
    while end < len(lines) and size < _MOST_PRINTED and dump_heads.goes_on(lines[end].text):
        size += len(lines[end].text)
        end += 1
    text = printed_dump.as_json("\n".join([begun, *(line.text for line in lines[at + 1 : end])]))
    seen = torch.parse(text)
    if not seen:
        return ParsedPart(end, {}, "", [ParseGap(lines[at].number, "no event and no entry can be read")])
    return _taken(seen, "", min(at + max(1, seen.last), end), lines[at].number)


#: Maximum number of characters of a printed dump that are read.
_MOST_PRINTED = 8 << 20


def _take_analysed(lines: Lines, at: int) -> ParsedPart:
    """Parse the output of PyTorch's flight-recorder analyser, by collective."""
    found: list[dict[str, Any]] = []
    end = place = at
    while place < len(lines):
        parsed = printed_dump.analysed(lines[place].text, (line.text for line in lines[place + 1 : place + 20]))
        if parsed is not None:
            found.append({name: _plain(getattr(parsed[0], name)) for name in parsed[0].__dataclass_fields__})
            place += parsed[1]
            end = place
        elif place - end < _STACK:  # the stack of the call
            place += 1
        else:
            break
    first = found[0]
    late = ", ".join(map(str, first["missing_ranks"] or ()))
    summary = f"{len(found)} collectives went wrong, the first {first['op'] or '?'} number {first['seq']}"
    return ParsedPart(end, {"mismatches": found}, f"{summary}, which ranks {late} did not join" if late else summary)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


#: Maximum number of stack lines between two collectives in the analyser's output.
_STACK = 40


def _is_analysed(lines: Lines, at: int) -> bool:
    text = lines[at].text
    return (
        "ollective" in text and printed_dump.analysed(text, (line.text for line in lines[at + 1 : at + 3])) is not None
    )


def _recorder_begins(lines: Lines, at: int) -> bool:
    return _is(RECORDER, lines, at) or dump_heads.printed(lines, at) is not None or _is_analysed(lines, at)


def _take_recorder(lines: Lines, at: int) -> ParsedPart:
    if _is_analysed(lines, at):
        return _take_analysed(lines, at)
    if (begun := dump_heads.printed(lines, at)) is not None:
        return _take_printed(lines, at, begun)
    return _take(lines, at)


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if '"' not in text and "{" not in text and "[" not in text:
        return False
    begun = text.lstrip()[:1]
    if begun not in ("{", "["):
        return False
    return torch.begins("\n".join(line.text[:2000] for line in lines[at : at + dump_heads.AHEAD]))


#: Number of characters read at first, and the maximum that this is doubled to: unreadable text is abandoned early, and
#: a dump may be on one line.
_AT_FIRST, _AT_ONCE = 1 << 11, 1 << 15


def _seen(lines: Lines, at: int) -> torch.TorchOutput:
    place, most = at, _AT_FIRST

    def read(size: int) -> str:
        nonlocal place, most
        taken: list[str] = []
        length = 0
        wanted, most = min(size, most), min(2 * most, _AT_ONCE)
        while place < len(lines) and length < wanted:
            taken.append(lines[place].text + "\n")
            length += len(taken[-1])
            place += 1
        return "".join(taken)

    return torch.values_of(read)


def _take(lines: Lines, at: int) -> ParsedPart:
    seen = _seen(lines, at)
    end = min(at + max(1, seen.last), len(lines))
    if not seen:
        return ParsedPart(end, {}, "", [ParseGap(lines[at].number, "no event and no entry can be read")])
    return _taken(seen, "", end, lines[at].number)


def _is(kind: str, lines: Lines, at: int) -> bool:
    if not _begins(lines, at):
        return False
    return dump_heads.is_recorders(lines, at) == (kind == RECORDER)


KINDS = (
    OutputFormat(RECORDER, _recorder_begins, _take_recorder, hints=("{", "[", " collective", "Collective ")),
    OutputFormat(TRACE, lambda lines, at: _is(TRACE, lines, at), _take, hints=("{", "[")),
)

"""PyTorch output about collectives: profiler traces, recorder dumps, watchdog.

``json_stream`` reads JSON of any size, and ``safe_pickle`` reads a pickle without unpickling it. ``profiler_trace`` and
``flight_recorder`` convert their values to facts; ``watchdog`` does the same for log lines. ``hang`` and ``messages``
compare ranks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from preflight.parsers.torch import hang, messages, watchdog
from preflight.parsers.torch.flight_recorder import Recording, is_entry
from preflight.parsers.torch.json_stream import BATCH, Read, Values, decoded
from preflight.parsers.torch.profiler_trace import Trace
from preflight.parsers.torch.safe_pickle import UnsafePickle, is_pickle, plain_values
from preflight.parsers.torch.trace_events import is_event
from preflight.parsers.torch.trace_facts import TraceSummary

__all__ = [
    "Recording",
    "TorchOutput",
    "TraceSummary",
    "UnsafePickle",
    "begins",
    "from_pickle",
    "hang",
    "is_pickle",
    "messages",
    "parse",
    "read",
    "values_of",
    "watchdog",
]  # fmt: skip

#: Names in the first lines of a trace or a dump, which distinguish it from other JSON.
_SIGN = re.compile(
    r'"(?:traceEvents|distributedInfo|deviceProperties|collective_seq_id|pg_config|pg_status|profiling_name)"\s{0,8}:'
    r'|"ph"\s{0,8}:\s{0,8}"[A-Za-z]"\s{0,8},\s{0,80}"(?:cat|name)"|"cat"\s{0,8}:\s{0,8}"[\w ]{1,40}",\s{0,80}"ph"'
)


class TorchOutput:
    """Parsed output of PyTorch: a trace, a recording or neither, and the gaps in it."""

    def __init__(self) -> None:
        self.trace: TraceSummary | None = None
        self.recording: Recording | None = None
        self.cut: list[tuple[int, str]] = []
        self.last = 1  # number of the last line

    def __bool__(self) -> bool:
        return self.trace is not None or self.recording is not None


def begins(text: str) -> bool:
    """Return whether a trace or a dump may begin in a text; this is a cheap test."""
    return _SIGN.search(text) is not None


def parse(text: str) -> TorchOutput:
    """Read the JSON text of a trace or a dump. Never raises."""
    return _seen(Values(io.StringIO(text).read))


def values_of(reader: Read) -> TorchOutput:
    """Read a trace or a dump from a text reader. Raises only the reader's errors."""
    return _seen(Values(reader))


def read(reader: Callable[[int], bytes]) -> TorchOutput:
    """Read a trace or a dump from a byte reader, without loading all of it.

    Only compact values are stored, such as kernel times. Raises only the reader's errors.
    """
    return _seen(Values(decoded(reader)))


def _seen(values: Values) -> TorchOutput:
    trace, recording, seen = Trace(), Recording(), TorchOutput()
    for name, value in values.members():
        if name is BATCH:
            trace.batch(value)
        elif is_event(value):
            trace.event(value)
        elif is_entry(value):
            recording.entry(value)
        elif name in ("traceEvents", "entries"):
            continue
        elif name:
            trace.member(name, value)
            if name in ("version", "pg_config", "pg_status", "comm_lib_version", "nccl_version", "rank"):
                recording.member(name, value)
    _assign_dump(seen, trace, recording)
    seen.cut, seen.last = values.cut, values.line
    for what, dropped in (("events", trace.dropped), ("entries", recording.dropped)):
        if dropped:
            seen.cut.append((seen.last, f"{dropped} {what} were not examined: there are too many"))
    if trace.untimed:
        seen.cut.append((seen.last, f"{trace.untimed} kernels or copies have no valid start or duration"))
    recording.cut = bool(seen.cut)
    return seen


def _assign_dump(seen: TorchOutput, trace: Trace, recording: Recording) -> None:
    if trace.events:
        seen.trace = trace.summary()
    elif recording.entries or {"pg_config", "pg_status"} & recording.about.keys():
        seen.recording = recording


def from_pickle(data: bytes) -> Recording:
    """Read a pickled dump without unpickling it. Raises UnsafePickle."""
    value: Any = plain_values(data)
    if not isinstance(value, dict):
        raise UnsafePickle("the pickle contains no flight-recorder dump; it was not unpickled")
    recording = Recording()
    for name, one in value.items():
        if name == "entries" and isinstance(one, (list, tuple)):
            for entry in one:
                if is_entry(entry):
                    recording.entry(entry)
        elif isinstance(name, str):
            recording.member(name, one)
    recording.cut = recording.dropped > 0
    if not recording.entries and not {"pg_config", "pg_status"} & recording.about.keys():
        raise UnsafePickle("the pickle contains no flight-recorder dump; it was not unpickled")
    return recording

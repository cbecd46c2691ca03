"""Events of a Chrome trace, with the fields that preflight uses.

msgspec decodes them several times faster than the standard library, since it creates no objects for other fields.
``json`` decodes them in the single-file build, which has no compiled modules, and if msgspec rejects a value (a number
as text, NaN). Both return the same events (tests/unit/parsers/test_trace_events.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast, get_args, get_type_hints

_UNKNOWN = float("nan")


class Arguments(NamedTuple):
    """Fields of an event's ``args``; a missing field is None."""

    correlation: int | None = None
    device: int | str | None = None
    stream: int | str | None = None
    external_id: int | None = None
    collective: str | None = None
    sent_elements: int | None = None
    received_elements: int | None = None
    element_type: str | None = None
    group_size: int | None = None
    group_name: int | str | None = None
    group_ranks: str | None = None
    group_description: str | None = None
    sequence: int | None = None
    destination: int | None = None
    source: int | None = None
    shapes: Any = None
    types: Any = None
    memory_device_type: int | None = None
    memory_device: int | None = None
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    copied_bytes: int | None = None
    grid: Any = None


class Event(NamedTuple):
    """An event; its times are in microseconds, or NaN if missing."""

    phase: str = ""
    category: str = ""
    name: str = ""
    process: int | str | None = None
    thread: int | str | None = None
    begin: float = _UNKNOWN
    length: float = _UNKNOWN
    arguments: Arguments | None = None


NO_ARGUMENTS = Arguments()

#: Names of the fields in the file, if they differ.
_NAMES = {
    "phase": "ph", "category": "cat", "process": "pid", "thread": "tid", "begin": "ts", "length": "dur",
    "arguments": "args",
    "external_id": "External id", "collective": "Collective name", "sent_elements": "In msg nelems",
    "received_elements": "Out msg nelems", "element_type": "dtype", "group_size": "Group size",
    "group_name": "Process Group Name", "group_ranks": "Process Group Ranks",
    "group_description": "Process Group Description", "sequence": "Seq", "destination": "Dst Rank",
    "source": "Src Rank", "shapes": "Input Dims", "types": "Input type", "memory_device_type": "Device Type",
    "memory_device": "Device Id", "reserved_bytes": "Total Reserved", "allocated_bytes": "Total Allocated",
    "copied_bytes": "bytes",
}  # fmt: skip


def is_event(value: object) -> bool:
    """Return whether a JSON value is an event of a Chrome trace."""
    return isinstance(value, dict) and isinstance(value.get("ph"), str)


def decode(text: str) -> Sequence[Event]:
    """Decode a list of events; an element that is not an object has no phase.

    Raises ValueError or RecursionError.
    """
    fast = _fast_decoder()
    if fast is not None:
        try:
            return fast(text)
        except ValueError:
            pass
    return [event_of(value) if isinstance(value, dict) else Event() for value in _DECODER.decode(text)]


def event_of(value: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object, without fields of an unexpected type."""
    arguments = value.get("args")
    if type(arguments) is not dict:
        return Event(**_known(value, _EVENT))
    return Event(**_known(value, _EVENT), arguments=Arguments(**_known(arguments, _ARGUMENTS)))


def _known(value: Mapping[str, Any], fields: Mapping[str, _Field]) -> dict[str, Any]:
    """Return the known fields of a JSON object that have an expected type."""
    return {
        fields[name].name: given
        for name, given in value.items()
        if name in fields and (type(given) in fields[name].types or not fields[name].types)
    }


class _Field(NamedTuple):
    name: str
    types: frozenset[type]  # empty: any type


def _fields(record: type[Arguments | Event]) -> dict[str, _Field]:
    """Return the fields of a record, except ``arguments``, by names in the file."""
    fields = {}
    for field, kind in get_type_hints(record).items():
        types = frozenset(each for each in (get_args(kind) or (kind,)) if each in (int, str, float))
        if types or kind is Any:
            fields[_NAMES.get(field, field)] = _Field(field, types | {int} if float in types else types)
    return fields


_DECODER = json.JSONDecoder(strict=False)
_ARGUMENTS, _EVENT = _fields(Arguments), _fields(Event)


@lru_cache(maxsize=1)
def _fast_decoder() -> Callable[[str], Sequence[Event]] | None:
    """Return msgspec's decoder of event lists; None if msgspec is not installed."""
    try:
        # import-at-use: only traces need it, and the single-file build lacks it
        import msgspec
    except ImportError:
        return None

    def mirrored(record: type[Arguments | Event], **types: Any) -> Any:
        hints = {**get_type_hints(record), **types}
        fields = [(field, hints[field], record._field_defaults[field]) for field in record._fields]
        return msgspec.defstruct(record.__name__, fields, rename=_NAMES, gc=False)

    arguments = mirrored(Arguments)
    decoder = msgspec.json.Decoder(list[mirrored(Event, arguments=arguments | None)])  # type: ignore[misc]
    return cast("Callable[[str], Sequence[Event]]", decoder.decode)

"""The evidence document: the records of one node, or why there are none.

A document is plain JSON (``schemas/evidence-1.json``). This module does not interpret the output of tools. It only
distinguishes whether a record is complete, missing, denied, cut, failed or not collected.
"""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from preflight._startup.lightclass import dataclass, field
from preflight.errors import PreflightError
from preflight.evidence import json_limits, safe_read
from preflight.schemas.conform import checker, find_error

SCHEMA = "preflight.evidence/1"

#: The schema of a network switch's document.
SWITCH_SCHEMA = "preflight.evidence/2"

#: Start of the schema of the document of a node that judged itself.
_RESULT = "preflight.node-result/"

#: Kinds of documents.
NODE, SWITCH = "node", "switch"

#: Start of the key of a test between two nodes; the name of the test follows.
PAIR = "pair:"

#: The record that a history adds: the node's numbers in earlier runs (``facts.time_series``).
COURSE = "history:course"

#: Maximum characters of a text, and of a sweep or log. Collectors write at most ``probes.OUTPUT_CAP`` or ``SWEEP_CAP``
#: bytes. Parsers need up to fifty times as much memory as the text. Logs of a run are read in parts.
_LONGEST, _LONGEST_SWEEP = 4_000_000, 64_000_000
_SWEEPS = ("log:", "cmd:ib", "cmd:saquery", "cmd:sminfo")

#: The statuses of a record, in words. Only an ``ok`` record has a complete value.
STATUSES = {
    "ok": "read completely",
    "missing": "was not found",
    "denied": "is not accessible",
    "timeout": "did not end within its time limit",
    "abandoned": "could not be killed",
    "cut": "was longer than the output limit",
    "error": "failed",
    "not-run": "was not started before the run's deadline",
}


#: How a reason starts if it needs a subject: ``cmd:lspci`` *did not end within its time limit*.
_VERBS = ("cannot ", "contains ", "could ", "did ", "does ", "failed", "has ", "holds ", "is ", "lists ", "was ")


def with_subject(subject: str, reason: str) -> str:
    """Put a subject before a reason; a colon follows unless a verb does."""
    return f"{subject} {reason}" if reason.startswith(_VERBS) else f"{subject}: {reason}"


class EvidenceError(PreflightError):
    """Raised for an unusable record; ``key`` names it, and ``why`` is the reason."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why if why.startswith((key, key.partition(":")[2] or key)) else with_subject(key, why))
        self.key = key
        self.why = why


class DocumentError(PreflightError, ValueError):
    """Raised for data that is not an evidence document; the text is the reason."""


@dataclass(frozen=True)
class Record:
    """One record of a node, as the collector wrote it."""

    key: str
    status: str
    out: str = ""
    err: str = ""
    rc: int | None = None
    value: Any = None
    entries: Mapping[str, Any] | None = None
    why: str = ""
    seconds: float | None = None
    at_s: float | None = None  # time of the reading, in seconds on the node's monotonic clock
    again: Record | None = None  # the second reading, at the end of a window

    @property
    def ok(self) -> bool:
        """Whether the record is complete."""
        return self.status == "ok"

    @property
    def hangs(self) -> bool:
        """Whether a command did not end in its own time, or could not be killed.

        A command that the run's deadline ended may just have started late.
        """
        own_time = self.status in ("timeout", "abandoned") and not self.why.startswith("the run's deadline")
        return own_time or (self.status == "abandoned" and "was not ended by SIGKILL" in self.why)

    def describe(self) -> str:
        """Return why the record has no complete value; empty if it has one."""
        if self.ok:
            return ""
        reason = STATUSES.get(self.status, f"has the unknown status {self.status!r}")
        return f"{reason} ({self.why})" if self.why else reason


@dataclass(frozen=True)
class PairScope:
    """The scope of a document that has only tests between its node and a peer."""

    peer: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """The records of one node or switch, or the logs of a run."""

    node: str
    collected_at: str
    records: Mapping[str, Any]
    collector: Mapping[str, Any] = field(default_factory=dict)
    no_answer: Mapping[str, str] | None = None
    origin: str | None = None
    pair: PairScope | None = None  # set only for pair tests; None for an ordinary collection
    kind: str = NODE
    platform: str = ""  # sonic, eos, …; empty for a node

    @property
    def answered(self) -> bool:
        """Whether the node has any record."""
        return self.no_answer is None and bool(self.records)

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def record(self, key: str) -> Record:
        """Return a record in any status.

        Raises EvidenceError if the record is absent or malformed.
        """
        if (known := self._taken.get(key)) is not None:
            return known
        if key not in self.records:
            raise EvidenceError(key, "was not collected from this node")
        record = self._taken[key] = _record(key, self.records[key])
        return record

    @property
    def windowed(self) -> bool:
        """Whether any record was read twice; only then can growth be judged."""
        return any(isinstance(raw, Mapping) and "again" in raw for raw in self.records.values())

    @property
    def pair_tests(self) -> frozenset[str]:
        """The planned tests between this node and another, by name."""
        named = self.pair.tests if self.pair else ()
        return frozenset(named) | {key[len(PAIR) :] for key in self.records if key.startswith(PAIR)}

    def complete_record(self, key: str) -> Record:
        """Return a record; raises EvidenceError if it is absent or incomplete."""
        record = self.record(key)
        if not record.ok:
            raise EvidenceError(key, record.describe())
        return record

    def text(self, key: str, allow_rc: tuple[int, ...] = (0,)) -> str:
        """Return the content of a file or the stdout of a command.

        Raises EvidenceError if the record is incomplete or the exit status is not in ``allow_rc``.
        """
        record = self.complete_record(key)
        if record.rc is not None and record.rc not in allow_rc:
            lines = (record.err or record.out).strip().splitlines()
            raise EvidenceError(key, f"exit status {record.rc}" + (f": {lines[0][:200]}" if lines else ""))
        return record.out

    def value(self, key: str) -> Any:
        """Return the value of a record, such as a library call's; raises EvidenceError."""
        record = self.complete_record(key)
        if record.value is None:
            raise EvidenceError(key, "the record has no value")
        return record.value

    def listing(self, key: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the entries of a directory by name; raises EvidenceError.

        An entry has ``type``, ``mode``, ``target`` and ``access``.
        """
        entries = self.complete_record(key).entries
        if entries is None:
            raise EvidenceError(key, "the record has no entries")
        for name, entry in entries.items():
            if type(entry) is not dict and not isinstance(entry, Mapping):  # isinstance is slow: dict first
                raise EvidenceError(key, f"the entry {name!r} is not an object")
        return entries

    def exists(self, key: str) -> bool:
        """Return whether a file or directory exists.

        Raises EvidenceError if that is unknown.
        """
        record = self.record(key)
        if record.status == "missing":
            return False
        if not record.ok:
            raise EvidenceError(key, record.describe())
        return True

    def keys(self, pattern: str) -> Iterator[str]:
        """Yield the record keys that match a shell pattern, in sorted order.

        An example is ``file:/sys/class/net/*/mtu``. As in file names, ``*`` does not match a ``/``.
        """
        head, parts = _pattern(pattern)
        keys = self._sorted_keys
        for place in range(bisect_left(keys, head), len(keys)):
            if not (key := keys[place]).startswith(head):
                return
            if "*" in key:  # the record of a pattern, not of a match
                continue
            names = key.split("/")
            if len(names) == len(parts) and all(match(name) for match, name in zip(parts, names, strict=True)):
                yield key

    @cached_property
    def _taken(self) -> dict[str, Record]:
        return {}  # a cache, because checks read the same records many times

    @cached_property
    def _sorted_keys(self) -> list[str]:
        return sorted(self.records)


@cache
def _pattern(pattern: str) -> tuple[str, tuple[Callable[[str], object], ...]]:
    """Return the fixed prefix of a shell pattern, and a matcher for each part."""
    head = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    return head, tuple(re.compile(fnmatch.translate(part)).match for part in pattern.split("/"))


def _record(key: str, raw: object) -> Record:
    """Decode a record; raises EvidenceError if it is malformed."""
    if wrong := checker("evidence-1", ("status",), "record", partly=True)(raw):
        raise EvidenceError(key, f"the record is damaged: {wrong.lstrip('.')}")
    made = cast("Mapping[str, Any]", raw)
    status, out, why = made["status"], made.get("out", ""), made.get("why", "")
    again = _record(key, made["again"]) if "again" in made else None
    if len(out) > _LONGEST and len(out) > (_LONGEST_SWEEP if key.startswith(_SWEEPS) else _LONGEST):
        status, out, why = "cut", out[:_LONGEST], f"{len(out)} characters, more than any collector stores"
    return Record(
        key, status, out, made.get("err", ""), made.get("rc"), made.get("value"), made.get("entries"), why,
        made.get("seconds"), made.get("at_s"), again,
    )  # fmt: skip


#: Maximum characters of a node's name. A host name has at most 253; a container, with its pod and namespace, has fewer
#: than 400. Reports repeat the name for every check.
LONGEST_NAME = 1024


def from_document(document: object, name: str) -> Evidence:
    """Convert decoded JSON to a document; raises DocumentError.

    ``name`` is the name of the source in errors.
    """
    if not isinstance(document, dict):
        raise DocumentError(f"{name} contains a JSON {type(document).__name__}, not an evidence document")
    doc = cast("dict[str, Any]", document)
    if str(doc.get("schema")).startswith(_RESULT):
        return _of_result(doc, name)
    is_switch = doc.get("schema") == SWITCH_SCHEMA
    if not is_switch and doc.get("schema") != SCHEMA:
        raise DocumentError(
            f"{name} has schema {str(doc.get('schema'))[:60]!r}; this version reads {SCHEMA!r} and {SWITCH_SCHEMA!r}"
        )
    if not doc.get("node"):
        raise DocumentError(f"{name} does not name its node")
    if isinstance(doc["node"], str) and len(doc["node"]) > LONGEST_NAME:
        raise DocumentError(
            f"the node name in {name} has {len(doc['node'])} characters; at most {LONGEST_NAME} are allowed"
        )
    schema, needed = ("evidence-2", ("kind", "platform")) if is_switch else ("evidence-1", ())
    if wrong := find_error(doc, schema, ("schema", "node", *needed), shallow=("records",)):
        raise DocumentError(f"{name} is damaged: {wrong}; collect it again")
    if wrong := find_error(doc.get("collector", {}), schema, part="collector", partly=True):
        raise DocumentError(f"{name} is damaged: collector.{wrong}; collect it again")
    pair = doc.get("pair")
    return Evidence(
        node=doc["node"],
        collected_at=doc.get("collected_at", ""),
        records=doc.get("records", {}),
        collector=doc.get("collector", {}),
        no_answer=doc.get("no_answer"),
        origin=doc.get("origin"),
        pair=PairScope(pair["peer"], tuple(pair["tests"])) if pair else None,
        kind=SWITCH if is_switch else NODE,
        platform=doc.get("platform", ""),
    )


def _of_result(document: Mapping[str, Any], name: str) -> Evidence:
    """Return the evidence in the document of a node that judged itself."""
    # import-at-use: only saved documents of such nodes need it
    from preflight.evidence.node_result import unpacked

    try:
        evidence = unpacked(document)
    except ValueError as error:
        raise DocumentError(f"{name} is damaged: {error}; collect it again") from None
    return from_document(evidence, name)


def memory(evidence: Evidence, enough: int = json_limits.FILE) -> int:
    """Estimate a document's memory in bytes; counting stops above ``enough``."""
    return measured([evidence.collector, evidence.no_answer, evidence.records, list(evidence.records)], enough)


def measured(left: list[Any], enough: int) -> int:
    """Return the memory of JSON values in bytes, emptying the list.

    Counting stops above ``enough``.
    """
    size = 0
    while left and size <= enough:
        value = left.pop()
        size += sys.getsizeof(value)
        if isinstance(value, Mapping):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return size


def read(path: Path) -> Evidence:
    """Read one document from a file; raises OSError or DocumentError."""
    try:
        return from_document(_decoded(lambda: json_limits.read(path), str(path)), str(path))
    except safe_read.UnreadableFile as error:
        raise DocumentError(f"{path} is not evidence: {error.strerror}") from None


def decode(raw: bytes, name: str) -> Evidence:
    """Read one document from bytes; raises DocumentError.

    ``name`` is the name of the source in errors.
    """
    return from_document(_decoded(lambda: json_limits.decoded(raw), name), name)


def _decoded(decode: Callable[[], Any], name: str) -> Any:
    try:
        return decode()
    except json.JSONDecodeError as error:
        if not error.doc.strip():
            raise DocumentError(f"{name} is empty") from None
        raise DocumentError(f"{name}:{error.lineno} is not complete JSON ({error.msg}); collect it again") from None
    except UnicodeDecodeError:
        raise DocumentError(f"{name} is not UTF-8 text") from None
    except ValueError as error:  # too large, nested too deeply, or a number with thousands of digits
        raise DocumentError(f"{name} is not evidence: {error}") from None


def to_document(evidence: Evidence) -> dict[str, Any]:
    """Convert a document to plain data, the inverse of ``from_document``."""
    document: dict[str, Any] = {
        "schema": SCHEMA if evidence.kind == NODE else SWITCH_SCHEMA,
        "node": evidence.node,
        "collected_at": evidence.collected_at,
        "collector": dict(evidence.collector),
        "records": dict(evidence.records),
    }
    if evidence.no_answer is not None:
        document["no_answer"] = dict(evidence.no_answer)
    if evidence.origin is not None:
        document["origin"] = evidence.origin
    if evidence.kind != NODE:
        document |= {"kind": evidence.kind, "platform": evidence.platform}
    if evidence.pair:
        document["pair"] = {"peer": evidence.pair.peer, "tests": list(evidence.pair.tests)}
    return document


def no_answer(node: str, phase: str, reason: str, at: str) -> Evidence:
    """Return the document of a node that did not answer.

    ``phase`` is the phase of the collection that failed, ``reason`` is why, and ``at`` is the time.
    """
    return Evidence(node, at, {}, no_answer={"phase": phase, "reason": reason})


def dump(evidence: Evidence) -> str:
    """Return the document as deterministic JSON text."""
    return json.dumps(to_document(evidence), indent=1, sort_keys=True, ensure_ascii=True) + "\n"

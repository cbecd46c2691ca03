"""Facts of a run: the logs that were handed over with ``--log``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from preflight import parsers
from preflight.evidence.document import Evidence, EvidenceError

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts
    from preflight.facts.streamed_log import OnDisk

T = TypeVar("T")

#: The node name under which the evidence of a run is kept; no host can be called that.
RUN = "@run"


_HOSTNAME = "file:/proc/sys/kernel/hostname"


class RunFacts:
    """Facts of the logs of one run; each log is a record ``log:NAME``. Its nodes are those that were judged with it."""

    def __init__(self, evidence: Evidence, nodes: Sequence[NodeFacts] = ()) -> None:
        self.evidence = evidence
        self.nodes = tuple(nodes)
        self._rest: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}
        self.refused: dict[str, str] = {}  # logs that look like PyTorch's and were not read, with the reason

    def host(self, name: str | None) -> NodeFacts | None:
        """Return the node that a log calls so; None where none, or more than one, is called so.

        NCCL prints a host's name up to the first dot. A node is known by the name that it was asked for by, else by
        its own (``/proc/sys/kernel/hostname``), as where it was asked for by an address.
        """
        if name is None:
            return None
        for known in (self._by_target, self._by_hostname):
            if found := known.get(_label(name), []):
                return found[0] if len(found) == 1 else None
        return None

    @cached_property
    def _by_target(self) -> Mapping[str, list[NodeFacts]]:
        return _by(self.nodes, lambda node: node.node)

    @cached_property
    def _by_hostname(self) -> Mapping[str, list[NodeFacts]]:
        return _by(self.nodes, _hostname)

    @property
    def logs(self) -> tuple[str, ...]:
        """Record keys of the logs."""
        return tuple(sorted(key for key in self.evidence.records if key.startswith("log:")))

    def text(self, key: str) -> str:
        """Return a log; of one that is read where it lies, what NCCL does not inform with. Raises EvidenceError."""
        disk = self._on_disk(key)
        if disk is None:
            return self.evidence.text(key)
        if key in self._pytorch:
            return ""
        if key not in self._rest:
            self._rest[key] = _read(key, disk.rest)
        return self._rest[key]

    def _on_disk(self, key: str) -> OnDisk | None:
        raw = self.evidence.records[key]
        return raw if isinstance(raw, _run_log().OnDisk) else None

    def lines(self, key: str) -> list[str]:
        """Return the lines of a log, split once."""
        if key not in self._lines:
            self._lines[key] = self.evidence.text(key).split("\n")
        return self._lines[key]

    @cached_property
    def nccl_logs(self) -> dict[str, parsers.nccl_log.NcclLog]:
        """Every log that holds lines of NCCL, by record key."""
        found = {}
        for key in [key for key in self.logs if key not in self._pytorch]:
            disk = self._on_disk(key)
            found[key] = parsers.nccl_log.parse(self.evidence.text(key)) if disk is None else _read(key, disk.nccl_log)
        return {key: log for key, log in found.items() if log is not None}

    @cached_property
    def nccl_tests(self) -> dict[str, tuple[parsers.nccl_tests.text.Report, ...]]:
        """The nccl-tests reports in each log, by record key.

        Raises EvidenceError where a log holds too many.
        """
        found = {key: parsers.nccl_tests.text.parse(self.text(key)) for key in self.logs if key not in self._pytorch}
        for key, reports in found.items():
            if len(reports) > (most := parsers.nccl_tests.text.MOST_REPORTS):
                raise EvidenceError(key, f"it holds more than {most:,} reports of nccl-tests; split it")
        return {key: reports for key, reports in found.items() if reports}

    @cached_property
    def _pytorch(self) -> dict[str, parsers.torch.TorchOutput]:
        found = {}
        for key in self.logs:
            disk = self._on_disk(key)
            text = self.evidence.text(key) if disk is None else ""
            if disk is not None:
                try:
                    found[key] = _read(key, disk.pytorch)
                except EvidenceError as error:
                    self.refused[key] = error.why
            elif text.lstrip()[:1] in ("{", "[") and parsers.torch.begins(text[: 1 << 16]):
                found[key] = parsers.torch.parse(text)
        return {key: seen for key, seen in found.items() if seen}

    @cached_property
    def traces(self) -> dict[str, parsers.torch.Trace]:
        """The logs that are traces of PyTorch's profiler, by record key."""
        return {key: seen.trace for key, seen in self._pytorch.items() if seen.trace}

    @cached_property
    def recordings(self) -> dict[str, parsers.torch.Recording]:
        """The logs that are dumps of PyTorch's flight recorder, by record key."""
        return {key: seen.recording for key, seen in self._pytorch.items() if seen.recording}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """What PyTorch wrote that is among the logs: ``trace``, ``recording``, ``watchdog``; also what was refused."""
        try:
            inputs = {
                "trace": self.traces,
                "recording": {**self.recordings, **self.refused},
                "watchdog": self.watchdogs,
            }
        except EvidenceError:
            return frozenset()
        return frozenset(kind for kind, found in inputs.items() if found)

    @cached_property
    def watchdogs(self) -> dict[str, parsers.torch.watchdog.Watchdog]:
        """What PyTorch's watchdog says in each log, by record key."""
        watchdog = parsers.torch.watchdog
        found = {}
        for key in self.logs:
            text = self.text(key) if key not in self._pytorch else ""
            if any(mark in text for mark in watchdog.MARKS):
                found[key] = watchdog.parse(text.split("\n"))
        return {key: watchdog for key, watchdog in found.items() if watchdog}


def _run_log() -> ModuleType:
    """Return the module of logs on disk, imported when a log was handed over."""
    return importlib.import_module("preflight.facts.streamed_log")


def _read(key: str, call: Callable[[], T]) -> T:
    """Read a log where it lies; raises EvidenceError where that cannot be done."""
    try:
        return call()
    except OSError as error:
        raise EvidenceError(key, f"the log cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise EvidenceError(key, str(error)[:1000]) from None


def _label(name: str) -> str:
    return name.strip().partition(".")[0].casefold()


def _hostname(node: NodeFacts) -> str:
    try:
        return node.evidence.text(_HOSTNAME)
    except EvidenceError:
        return ""


def _by(nodes: Sequence[NodeFacts], name: Callable[[NodeFacts], str]) -> dict[str, list[NodeFacts]]:
    found: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        if label := _label(name(node)):
            found.setdefault(label, []).append(node)
    return found

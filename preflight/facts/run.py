"""Facts of a run: the logs that were handed over with ``--log``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from preflight import facts
from preflight.evidence import Evidence, EvidenceError

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts

#: The node name under which the evidence of a run is kept; no host can be called that.
RUN = "@run"


_HOSTNAME = "file:/proc/sys/kernel/hostname"


class RunFacts:
    """Facts of the logs of one run; each log is a record ``log:NAME``. Its nodes are those that were judged with it."""

    def __init__(self, evidence: Evidence, nodes: Sequence[NodeFacts] = ()) -> None:
        self.evidence = evidence
        self.nodes = tuple(nodes)

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

    @cached_property
    def nccl_logs(self) -> dict[str, facts.nccl_log.NcclLog]:
        """Every log that holds lines of NCCL, by record key."""
        found = {key: facts.nccl_log.parse(self.evidence.text(key)) for key in self.logs}
        return {key: log for key, log in found.items() if log is not None}

    @cached_property
    def nccl_tests(self) -> dict[str, tuple[facts.nccl_tests.Report, ...]]:
        """The nccl-tests reports in each log, by record key."""
        found = {key: facts.nccl_tests.parse(self.evidence.text(key)) for key in self.logs}
        return {key: reports for key, reports in found.items() if reports}


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

"""Requests to collect: nodes, transport, probes and limits; and the results."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.collect.options import CollectOptions, plans, sweeper
from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from preflight.evidence.document import Evidence
    from preflight.expectations import Cluster
    from preflight.probes.probe import Probe


@dataclass(frozen=True)
class Targets:
    """Options that name nodes on the command line; None for a missing option."""

    hosts: str | None = None
    hostfile: Path | None = None
    job: str | None = None
    rerun: Path | None = None
    selector: str | None = None

    @property
    def named(self) -> bool:
        """Whether an option names nodes; an empty value counts: a variable may be unset."""
        return any(value is not None for value in (self.hosts, self.hostfile, self.job, self.rerun, self.selector))

    def nodes(self, options: CollectOptions) -> tuple[str, ...]:
        """Return the names of the nodes, or pods; raises UsageError."""
        from preflight.collect.targets import TargetError, resolve

        if self.selector is not None:
            return _pods(self, self.selector, options)
        try:
            return resolve(self.hosts, self.hostfile, self.job, self.rerun)
        except TargetError as error:
            raise UsageError(str(error)) from None


def _pods(targets: Targets, selector: str, options: CollectOptions) -> tuple[str, ...]:
    """Return the names of the pods with these labels that have not ended."""
    if not selector.strip():
        raise UsageError("--pods is empty, which would select all pods: specify labels, such as job-name=training")
    from preflight.transport.errors import TransportError
    from preflight.transport.kubernetes.kubectl import find

    if targets.hosts or targets.hostfile or targets.job or targets.rerun:
        raise UsageError("specify --pods or other targets, not both")
    if options.via != "kubectl":
        raise UsageError("--pods requires kubectl: add --via kubectl")
    try:
        names, ended = find(selector, options.kubectl)
    except TransportError as error:
        raise UsageError(str(error)) from None
    if ended:
        print_text(f"warning: {ended} more pods with these labels have ended and are left out\n", sys.stderr)
    return names


@dataclass(frozen=True)
class Judging:
    """How nodes judge themselves: by an archive; ``complete`` sends all evidence."""

    archive: bytes
    complete: bool = False

    def of_plan(self, cluster: Cluster | None, node: str, window_s: float | None) -> dict[str, Any]:
        """Return the part of a node's plan about judging, without the archive's path.

        The transport adds the path.
        """
        from preflight.expectations.own_class import own_class

        return {
            "size": len(self.archive),
            "sha256": self.sha256,
            "expectations": own_class(cluster, node) if cluster else {},
            "complete": self.complete,
            "windowed": window_s is not None,
        }

    @cached_property
    def sha256(self) -> str:
        """The hash of the archive."""
        import hashlib

        return hashlib.sha256(self.archive).hexdigest()


@dataclass(frozen=True)
class CollectRequest:
    """What to collect: from which nodes, by which transport, with which probes.

    ``nodes`` are names of nodes or pods, or the name of this node; ``switches`` are the Ethernet switches among them.
    ``cluster_file`` is the path of ``cluster``. With ``save``, each document is written to that directory as it
    arrives; ``resume`` continues such a run.
    """

    nodes: tuple[str, ...]
    probes: Sequence[Probe]
    options: CollectOptions = CollectOptions()
    cluster: Cluster | None = None
    cluster_file: Path | None = None
    save: Path | None = None
    resume: bool = False
    switches: frozenset[str] = frozenset()
    judging: Judging | None = None  # None: all nodes are judged here

    @property
    def command_switches(self) -> dict[str, str]:
        """The switches that are read by commands, with their platforms."""
        if self.cluster is None:
            return {}
        declared = self.cluster.switches.settings.by_platform.items()
        return {name: platform for platform, names in declared for name in names if name in self.switches}

    def plans(self) -> Callable[[str, float], Mapping[str, Any]]:
        """Return a function that makes a plan from a node's name and deadline (seconds).

        Raises UsageError if it is unclear which node sweeps the fabric.
        """
        hosts = [node for node in self.nodes if node not in self.switches]
        of_nodes = plans(self.probes, self.cluster, self.options, sweeper(hosts, self.cluster, self.options))
        if judging := self.judging:
            return lambda node, deadline_s: {
                **of_nodes(node, deadline_s), "judge": judging.of_plan(self.cluster, node, self.options.window_s)
            }  # fmt: skip
        if not self.switches:
            return of_nodes
        from preflight.collect.command_switches import command_plan
        from preflight.collect.switches import switch_plan

        platforms = self.command_switches

        def make(node: str, deadline_s: float) -> Mapping[str, Any]:
            if node in platforms:
                return command_plan(node, deadline_s, self.options.window_s, platforms[node])
            is_switch = node in self.switches
            return switch_plan(node, deadline_s, self.options) if is_switch else of_nodes(node, deadline_s)

        return make


@dataclass(frozen=True)
class Collected:
    """The evidence of a run, collected now or read from disk.

    ``run`` has the logs of a job. ``via`` is the transport ("" for this node and for saved evidence),
    ``through_openssh`` has the reason for each host that the system's ``ssh`` reached. ``saved`` is False if a document
    could not be written. ``unjudged`` has the nodes that were to judge themselves and did not, with the reason.
    """

    evidences: Sequence[Evidence]
    run: Evidence | None = None
    via: str = ""
    through_openssh: Mapping[str, str] | None = None
    saved: bool = True
    unjudged: Mapping[str, str] | None = None

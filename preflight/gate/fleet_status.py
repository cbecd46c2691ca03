"""``preflight gate status``: the state of all nodes, from Slurm and verdicts.

Nothing is changed. Every node is in exactly one state; a node without a recent verdict never passes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from preflight._startup.lightclass import dataclass
from preflight.archive.directory import replacing
from preflight.expectations import Cluster
from preflight.expectations.gate_table import Gate
from preflight.gate import published_verdicts, verdict_cache
from preflight.gate.slurm import drain_limit, drain_reason, drain_settings
from preflight.gate.slurm.scontrol import Controller
from preflight.gate.slurm.scontrol_nodes import Node
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason
from preflight.nodeset import fold
from preflight.reports.prometheus_format import Metric

#: State -> the words printed for it, in the order of the output.
STATES = {
    "pass": "pass",
    "drained": "drained by preflight",
    "held": "failed, held in service by the breaker",
    "fail": "failed, in service",
    "not_judged": "not judged",
    "drained_by_others": "drained by others",
    "down": "down",
}
#: States that an administrator must look at.
_BAD = ("drained", "held", "fail")
_MOST_LINES = 40


@dataclass(frozen=True)
class FleetStatus:
    """State and reason of each node, and why the breaker is open ("" if closed)."""

    nodes: Mapping[str, tuple[str, str]]
    breaker: str
    at: int
    dry_run: bool = False

    @property
    def exit_status(self) -> int:
        """Return 1 if a node failed, 3 if one is not judged or there is none, else 0."""
        states = {state for state, _ in self.nodes.values()}
        return 1 if states.intersection(_BAD) else 3 if "not_judged" in states or not states else 0

    def count(self, state: str) -> int:
        """Return the number of nodes in a state."""
        return sum(state == other for other, _ in self.nodes.values())


def query(cluster: Cluster, folder: str | None) -> FleetStatus:
    """Query Slurm and read the published verdicts; raises ControllerError.

    ``folder`` overrides ``publish`` in the cluster file. If the file has classes, nodes without a class are left out.
    """
    gate, now = cluster.gate or Gate(), time.time()
    settings = drain_settings.of(gate)
    every = Controller(settings, os.environ).nodes()
    nodes = {name: node for name, node in every.items() if not cluster.classes or cluster.class_of(name)}
    folder = folder or gate.publish
    verdicts: Mapping[str, Verdict | str]
    if folder:
        most_s = verdict_cache.INTERVALS * (gate.refresh_s or verdict_cache.REFRESH_S)
        verdicts = published_verdicts.collect(Path(folder), list(nodes), most_s)
    else:
        verdicts = dict.fromkeys(nodes, "nodes publish no verdicts: set [gate] publish")
    states = {name: _state(node, verdicts[name]) for name, node in nodes.items()}
    return FleetStatus(states, _breaker(every, nodes, int(now), settings), int(now), bool(gate.dry_run))


def _state(node: Node, verdict: Verdict | str) -> tuple[str, str]:
    if node.drained:
        return ("drained" if drain_reason.ours(node.name, node.reason) else "drained_by_others"), node.reason
    if node.down:
        return "down", node.reason
    mark = drain_reason.ours(node.name, node.comment)
    if isinstance(verdict, str):
        return ("held", node.comment) if mark else ("not_judged", verdict)
    if verdict.status == "pass":
        return "pass", ""
    if verdict.status == "fail":
        return ("held", node.comment) if mark else ("fail", f"{verdict.reason} [{verdict.owner}]")
    return "not_judged", verdict.reason


def _breaker(every: Mapping[str, Node], nodes: Mapping[str, Node], now: int, settings: drain_settings.Settings) -> str:
    """Return why failed nodes would not be drained; empty if they would."""
    groups: set[tuple[tuple[str, ...], bool]] = set()
    for node in nodes.values():
        group = node.partitions, node.gpus
        if not (node.drained or node.down or group in groups):
            groups.add(group)
            if why := drain_limit.before(every, node, "", now, settings):
                return why
    return ""


def lines(status: FleetStatus) -> Iterator[str]:
    """Yield the summary, then the nodes that did not pass, by state and reason."""
    counts = [f"{number} {words}" for state, words in STATES.items() if (number := status.count(state))]
    breaker = "breaker open" if status.breaker else "breaker closed"
    dry = "; dry run: no node is drained" if status.dry_run else ""
    yield f"{', '.join(counts) or 'no nodes'}, {breaker}{dry}"
    if status.breaker:
        yield f"  no further node is drained: {status.breaker}"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (state, reason) in status.nodes.items():
        if state != "pass":
            groups.setdefault((state, _shown(reason)), []).append(name)
    order = list(STATES)
    rows = sorted(groups.items(), key=lambda row: (order.index(row[0][0]), -len(row[1]), row[1]))
    for (state, reason), names in rows[:_MOST_LINES]:
        yield f"  {STATES[state]}: {fold(names)}" + (f": {reason}" if reason else "")
    if len(rows) > _MOST_LINES:
        yield f"  and {len(rows) - _MOST_LINES} more groups of nodes"


def _shown(reason: str) -> str:
    """Return a reason without prefix and checksum; the latter differs for each node."""
    return ascii_reason(reason.rpartition(" #")[0] or reason).removeprefix(PREFIX)


def write_metrics(status: FleetStatus, path: Path) -> None:
    """Write the counts for the textfile collector, atomically; raises OSError."""
    nodes = Metric("preflight_gate_nodes", "Nodes of the cluster, by state of the gate.")
    for state in STATES:
        nodes.add(status.count(state), state=state)
    breaker = Metric("preflight_gate_breaker_open", "Whether the breaker prevents further drains.")
    breaker.add(bool(status.breaker))
    at = Metric("preflight_gate_status_time_seconds", "When the status was queried, in seconds since 1970 UTC.")
    at.add(status.at)
    text = "".join(f"{line}\n" for metric in (nodes, breaker, at) for line in metric.lines())
    with replacing(path, 0o644) as stream:
        stream.write(text.encode())

"""Faults of the source nodes when judged by their learnt file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.facts.majority import systemic


@dataclass(frozen=True)
class Fault:
    """One check that fails or warns on nodes of a class."""

    class_name: str
    check: str
    status: str  # fail or warn
    message: str  # of its first finding
    nodes: tuple[str, ...]
    of: int  # nodes of the class
    systemic: bool  # on so many nodes that it is probably site-wide


def faults(report: Mapping[str, Any], classes: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Return the checks that fail or warn, by class, status and number of nodes."""
    of_node = {node: name for name, nodes in classes.items() for node in nodes}
    nodes: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    first: dict[tuple[str, str, str], str] = {}
    for finding in report["findings"]:
        if finding["status"] not in ("fail", "warn"):
            continue
        for node in finding["nodes"]:
            if name := of_node.get(node):
                key = (name, finding["check"], finding["status"])
                nodes[key][node] = None
                first.setdefault(key, finding["message"])
    found = [
        Fault(name, check, status, first[name, check, status], tuple(sorted(hit)), len(classes[name]),
              systemic(len(hit), len(classes[name])))
        for (name, check, status), hit in nodes.items()
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.class_name, one.status, -len(one.nodes), one.check))

"""The part of a cluster file by which one node is judged.

It has the node's class, without the names of its nodes, and the checks that are off. Waivers and their owners, and
everything about other nodes, switches and jobs, are left out.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from preflight.expectations import Cluster
from preflight.expectations.cluster_file import from_data
from preflight.expectations.toml_line_numbers import decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys of a class that apply to its nodes as a group.
_OF_ALL = ("nodes", "baseline")


def own_class(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return the part for a node as plain data; empty without a cluster file."""
    return _part(cluster.content, cluster.path, cluster.class_of(node)) if cluster.content else {}


def digest(cluster: Cluster, node: str) -> str:
    """Return a hash of the part for a node; empty without a cluster file."""
    return _digest(cluster.content, cluster.path, cluster.class_of(node)) if cluster.content else ""


def cluster_of(part: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a part describes; raises ClusterFileError."""
    return from_data(part["tables"], part["path"]) if part else Cluster()


@lru_cache(64)
def _part(content: str, path: str, name: str | None) -> dict[str, Any]:
    data = _decoded(content)
    tables = {"checks": data.get("checks", {})}
    if name is not None:
        of_node = {key: value for key, value in data["class"][name].items() if key not in _OF_ALL}
        tables["class"] = {name: of_node}
    return {"path": path.rpartition("/")[2], "tables": tables}


@lru_cache(64)
def _digest(content: str, path: str, name: str | None) -> str:
    return digest_of(_part(content, path, name))


def digest_of(part: Mapping[str, Any]) -> str:
    """Return a hash of a part; empty without a cluster file."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() if part else ""


@lru_cache(1)
def _decoded(content: str) -> Any:
    return decoded(content)

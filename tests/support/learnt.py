"""Fleets to learn a cluster file from, and the learnt values."""

from __future__ import annotations

from collections.abc import Mapping

from click.testing import CliRunner, Result

from preflight.checks import registry
from preflight.cli import app
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.expectations.node_class import NodeClass
from preflight.learn import Learnt
from tests.support.machines import Machine
from tests.support.machines.fleet import fleet
from tests.support.whole_nodes import Fault


def made(machine: Machine, count: int, faults: Mapping[str, Fault] | None = None, seed: int = 3) -> list[Evidence]:
    return [from_document(one, one["node"]) for one in fleet(machine, count, seed, faults)]


def read(found: Learnt) -> Cluster:
    return decode(found.text.encode(), "cluster.toml")


def only_class(found: Learnt) -> NodeClass:
    (members,) = read(found).classes.values()
    return members


#: Checks of learnt values; running all would take a minute.
SOME = [
    check for check in registry().checks
    if check.id in ("gpu.count", "roce.chain", "nccl.left-over-disables") or check.id.startswith(("rdma.", "fleet.m"))
]  # fmt: skip


def run(*words: str) -> Result:
    return CliRunner().invoke(app.main, list(words), catch_exceptions=False)

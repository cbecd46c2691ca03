"""Judgement of complete hand-made nodes: findings of a healthy one, and of each planted fault."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.checks import MODULES, in_module
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.judge import findings, judge
from preflight.model import Check, Scope
from preflight.plugin_fixture import record as documented
from tests.support import machines, paths
from tests.support.fixture import FIXTURES, collections, healthy_records
from tests.support.machines import Machine, with_gpu, with_nic

#: Every check that looks at one node.
CHECKS: list[Check] = [
    check
    for name in MODULES
    for check in in_module(__import__(f"preflight.checks.{name}", fromlist=["_"]))
    if check.scope is Scope.NODE and not check.history and check.id not in ("node.expected", "site.waivers")
    # declarations and waivers in a cluster file: tests/scenarios/test_node_expected.py,
    # tests/unit/judge/test_waivers.py
]

#: A change of the description.
Fault = Callable[[Machine], Machine]

#: A report's findings other than passes and skips: status, check, subject.
Findings = set[tuple[str, str, str]]

#: Checks that are unknown if no driver is loaded.
NEED_THE_DRIVER = {
    check.id
    for name in ("part", "memory", "state", "processes", "nvlink", "nvlink_fabric", "clocks", "link_errors")
    for check in in_module(__import__(f"preflight.checks.gpu.{name}", fromlist=["_"]))
}

#: What every node gives with a class that does not declare its server.
INVENTORY = ("unknown", "host.inventory", "")

#: What a fault of a compute port takes from each GPU, where the catalogue has the customary figure.
LESS_PER_GPU = ("warn", "rdma.bandwidth-per-gpu", "")

#: Name of a fault -> the fault, and the exact findings of the report.
Faults = Mapping[str, tuple[Fault, Findings]]


@dataclass(frozen=True)
class Table:
    """The planted faults of one node."""

    node: str  # of fixtures/nodes
    describe: Callable[[str], Machine]  # name of the healthy node
    faults: Faults
    always: frozenset[tuple[str, str, str]] = frozenset()  # unknown results of a healthy node in a container


def tables() -> list[Table]:
    """Return the tables of all modules ``tests/scenarios/test_nodes*.py``, from their ``TABLES``."""
    found: list[Table] = []
    for path in sorted((paths.TESTS / "scenarios").glob("test_nodes[._]*py")):
        found += importlib.import_module(f"tests.scenarios.{path.stem}").TABLES
    return [replace(table, faults={**table.faults, **_collected(table.node)}) for table in found]


def _collected(name: str) -> Faults:
    """Return the faults of a node in the ``cases.json`` of a check."""
    plants = {check: body["fault"] for check, body in collections().items() if "fault" in body}
    return {
        f"{check}: {plant['name']}": (
            both(*(record(key, documented(key, value)) for key, value in plant["records"].items())),
            {(plant["status"], check, plant.get("subject", ""))},
        )
        for check, plant in plants.items()
        if plant["node"] == name
    }


def report(machine: Machine, cluster: Cluster | None = None, checks: Sequence[Check] = tuple(CHECKS)) -> dict[str, Any]:
    """Judge one machine."""
    document = machines.evidence(machine)
    records = {**healthy_records(), **document["records"]}
    return judge([from_document({**document, "records": records}, machine.name)], checks, cluster)


def silent_checks(found: Mapping[str, Any]) -> set[str]:
    """Return the checks that skip a node altogether."""
    return {check for check, status in found["nodes"][0]["checks"].items() if status == "skip"}


def loud(machine: Machine, cluster: Cluster | None = None, checks: Sequence[Check] = tuple(CHECKS)) -> Findings:
    """Return the findings of a node's report other than passes and skips; none may occur twice."""
    urgent = [
        finding for finding in report(machine, cluster, checks)["findings"] if finding["status"] not in ("pass", "skip")
    ]
    counts = Counter((finding["check"], finding["subject"], finding["message"]) for finding in urgent)
    assert max(counts.values(), default=1) == 1, counts
    return {(finding["status"], finding["check"], finding["subject"]) for finding in urgent}


class _RecordsRead(dict[str, Any]):
    """Records that track which keys are read."""

    def __init__(self, records: Mapping[str, Any]) -> None:
        super().__init__(records)
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.keys_read.add(key)
        return super().__getitem__(key)


def readers(evidence: Evidence, checks: Sequence[Check], cluster: Cluster | None = None) -> Mapping[str, list[Check]]:
    """Return the checks that read each record of a node.

    A changed record cannot affect other checks: a check does the same as before until it reads the record.
    """
    found: dict[str, list[Check]] = {key: [] for key in evidence.records}
    for check in checks:
        records = _RecordsRead(evidence.records)
        findings([replace(evidence, records=records)], [check], cluster)
        for key in records.keys_read:
            found[key].append(check)
    return found


def site(name: str) -> Cluster:
    """Return the cluster file of a node of ``fixtures/nodes``."""
    return load(FIXTURES / "nodes" / f"{name}.toml")


# --- faults ----------------------------------------------------------------------------------------


def env(**variables: str) -> Fault:
    """Set the environment of the collecting process."""
    return lambda machine: replace(machine, env=variables)


def set_too(**variables: str) -> Fault:
    """Set variables in addition to those that are set."""
    return lambda machine: env(**machine.env, **variables)(machine)


def setting(path: str, text: str) -> Fault:
    """Change one file of /proc, /sys or /etc."""
    return lambda machine: replace(machine, settings={**machine.settings, path: text})


def record(key: str, value: Any) -> Fault:
    """Change one record of the document."""
    return lambda machine: replace(machine, records={**machine.records, key: value})


def nic(device: str, **changes: Any) -> Fault:
    """Change one NIC; growing counters are added to those of an earlier fault."""

    def plant(machine: Machine) -> Machine:
        there = next(nic for nic in machine.nics if nic.device == device)
        counters: dict[str, Mapping[str, int]] = {"grows": there.grows, "stands": there.stands}
        merged = {name: {**counters[name], **changes[name]} for name in counters if name in changes}
        return with_nic(machine, device, **{**changes, **merged})

    return plant


def firmware(device: str, version: str) -> Fault:
    """Give one NIC different firmware."""

    def plant(machine: Machine) -> Machine:
        nics = (
            replace(nic, model=replace(nic.model, firmware=version)) if nic.device == device else nic
            for nic in machine.nics
        )
        return replace(machine, nics=tuple(nics))

    return plant


def gpu(index: int, **changes: Any) -> Fault:
    """Change one GPU."""
    return lambda machine: with_gpu(machine, index, **changes)


def health(index: int, **changes: Any) -> Fault:
    """Change the driver's report on one GPU, keeping changes of an earlier fault."""
    return lambda machine: with_gpu(machine, index, health={**machine.gpus[index].health, **changes})


def every_gpu(**changes: Any) -> Fault:
    """Change the driver's report on all GPUs."""

    def plant(machine: Machine) -> Machine:
        gpus = tuple(replace(one, health={**one.health, **changes}) for one in machine.gpus)
        return replace(machine, gpus=gpus)

    return plant


def every_rail(**changes: Any) -> Fault:
    """Change all compute ports."""

    def plant(machine: Machine) -> Machine:
        nics = tuple(replace(one, **changes) if one.gpu is not None else one for one in machine.nics)
        return replace(machine, nics=nics)

    return plant


def node(**changes: Any) -> Fault:
    """Change the node."""
    return lambda machine: replace(machine, **changes)


def both(*faults: Fault) -> Fault:
    """Plant several faults, one after another."""

    def plant(machine: Machine) -> Machine:
        for fault in faults:
            machine = fault(machine)
        return machine

    return plant

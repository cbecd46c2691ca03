"""Records that a check reads, found by running it.

A check is a pure function of records. It is run on the demo's nodes, and then on one of them (a fleet check, on two)
without the records that it read: first without one kind of record at a time, then without more and more kinds, also in
a pod and without a cluster file. This also finds its fallback sources. Records needed only on rare machines are
declared (``reads`` of ``@check``). A test compares the result with the records that the check reads in its fixtures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.facts.job import RUN, RunFacts
from preflight.facts.node import NodeFacts
from preflight.model import Check, Scope
from preflight.parsers import provenance

Records = Mapping[str, Any]

_MISSING = {"status": "missing", "why": "taken away"}
_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NETWORK_STATUS": ""}


class TrackedRecords(Mapping[str, Any]):
    """The records of a document, and the keys that were read from it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.used_keys: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.used_keys.add(key)
        return self._records[key]

    def __contains__(self, key: object) -> bool:
        self.used_keys.add(str(key))
        return key in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


class _Run(RunFacts):
    """Facts of a run that record how its logs were read."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self.read_as: set[str] = set()

    @property
    def nccl_logs(self) -> Any:
        """All NCCL logs."""
        self.read_as.add(provenance.NCCL_LOG)
        return super().nccl_logs

    @property
    def traces(self) -> Any:
        """All PyTorch profiler traces."""
        self.read_as.add(provenance.TRACE)
        return super().traces

    @property
    def recordings(self) -> Any:
        """All PyTorch flight-recorder dumps."""
        self.read_as.add(provenance.RECORDING)
        return super().recordings

    @property
    def serving(self) -> Any:
        """All metrics of serving engines."""
        self.read_as.add(provenance.SERVING)
        return super().serving

    @property
    def ras(self) -> Any:
        """All outputs of NCCL RAS."""
        self.read_as.add(provenance.RAS)
        return super().ras

    @property
    def stacks(self) -> Any:
        """All stacks of Python processes."""
        self.read_as.add(provenance.STACKS)
        return super().stacks

    @property
    def nccl_tests(self) -> Any:
        """All nccl-tests reports."""
        self.read_as.add(provenance.NCCL_TESTS)
        return super().nccl_tests


def records_of(check: Check) -> frozenset[str]:
    """Return the keys of the records that a check may read."""
    if check.sweep or check.switches:  # the demo has neither, so the check declares its records
        return frozenset(check.reads)
    found = _of_run(check) if check.scope is Scope.RUN else _of_nodes(check)
    return found | set(check.reads)


def _of_nodes(check: Check) -> frozenset[str]:
    nodes, cluster = _demo(), _cluster()
    keys = keys_used_by(check, nodes, cluster)
    few = nodes[:2] if check.scope is Scope.FLEET else nodes[:1]
    for kind in sorted({_kind(key) for key in keys_used_by(check, few, cluster)}):
        keys |= keys_used_by(check, [_without(document, {kind}) for document in few], cluster)
    for documents, site in ((few, cluster), ([_in_pod(document) for document in few], cluster), (few, Cluster())):
        keys |= _one_after_the_other(check, documents, site)
    return frozenset(keys)


def _one_after_the_other(check: Check, documents: Sequence[Mapping[str, Any]], cluster: Cluster) -> set[str]:
    """Return the keys read as the records that the check reads are removed in turn."""
    keys: set[str] = set()
    gone: set[str] = set()
    while True:
        new = keys_used_by(check, documents, cluster)
        keys |= new
        if not (left := {_kind(key) for key in new} - gone):
            return keys
        gone |= left
        documents = [_without(document, left) for document in documents]


def keys_used_by(check: Check, documents: Sequence[Mapping[str, Any]], cluster: Cluster) -> set[str]:
    """Run a node or fleet check and return the keys it read."""
    sites = {}
    nodes: list[tuple[TrackedRecords, NodeFacts]] = []
    for document in documents:
        about = document["node"], document["collected_at"]
        sites[document["node"]] = cluster.site(NodeFacts(Evidence(*about, document["records"], document["collector"])))
        records = TrackedRecords(document["records"])
        nodes.append((records, NodeFacts(Evidence(*about, records, document["collector"]))))
    if check.scope is Scope.FLEET:
        _exhaust(lambda: check.findings([facts for _, facts in nodes], sites))
    else:
        for _, facts in nodes:
            _exhaust(lambda facts=facts: check.findings(facts, sites[facts.node]))  # type: ignore[misc]
    return set().union(*(records.used_keys for records, _ in nodes))


def _of_run(check: Check) -> frozenset[str]:
    log = {"status": "ok", "out": (files("preflight.demo") / "job.log").read_text(encoding="utf-8")}
    facts = _Run(Evidence(RUN, "", {"log:job.log": log}))
    _exhaust(lambda: check.findings(facts, _cluster().run_site([])))
    return frozenset(facts.read_as)


def _exhaust(findings: Callable[[], Iterator[object]]) -> None:
    """Consume all findings; ignore them and any error."""
    try:
        for _ in findings():
            pass
    except KeyboardInterrupt:
        raise
    except BaseException:
        return


def _kind(key: str) -> str:
    """Return the name of a record's format; its key if it has none."""
    form = provenance.format_of(key)
    return form.name if form else key


def _without(document: Mapping[str, Any], kinds: set[str]) -> dict[str, Any]:
    records = {key: _MISSING if _kind(key) in kinds else record for key, record in document["records"].items()}
    return {**document, "records": records}


def _in_pod(document: Mapping[str, Any]) -> Mapping[str, Any]:
    environment = {"status": "ok", "value": {**document["records"]["env:process"]["value"], **_POD}}
    return {
        **document,
        "collector": {**document["collector"], "where": "container"},
        "records": {**document["records"], "env:process": environment},
    }


@cache
def _demo() -> list[Mapping[str, Any]]:
    nodes = sorted(path.name for path in files("preflight.demo").iterdir() if path.name.startswith("gpu"))
    return [json.loads((files("preflight.demo") / name).read_text(encoding="utf-8")) for name in nodes]


@cache
def _cluster() -> Cluster:
    return decode((files("preflight.demo") / "cluster.toml").read_bytes(), "cluster.toml")

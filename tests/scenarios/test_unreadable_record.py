"""An unreadable record on a healthy node is unknown, never a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, from_document
from preflight.expectations import Cluster
from preflight.judge import findings
from preflight.model import Check
from tests.support import machines
from tests.support.machines import Machine, hgx_h100
from tests.support.machines.gb200 import gb200_tray
from tests.support.machines.pod import pod
from tests.support.whole_nodes import CHECKS, readers, site

#: A RoCE host, a Grace tray on InfiniBand and a pod: together they have every kind of record.
NODES: dict[str, Callable[[], Machine]] = {
    "hgx-h100-roce": partial(hgx_h100, "hgx-h100-roce", roce=True),
    "gb200-tray": gb200_tray,
    "hgx-h100-pod": pod,
}

UNREAD = {"status": "timeout", "why": "no answer within 10 s"}


def _kinds(evidence: Evidence) -> Iterator[str]:
    """Yield one record of each kind; the first of twelve ports with their files represents all."""
    seen = set()
    for key in evidence.records:
        kind = key.rsplit("/", 1)[-1] if key.startswith(("file:", "dir:")) else key
        if kind not in seen:
            seen.add(kind)
            yield key


@pytest.mark.parametrize("name", NODES)
def test_what_could_not_be_read_is_no_fault(name: str) -> None:
    machine, cluster = NODES[name](), site(name)
    evidence = from_document(machines.evidence(machine), name)
    reading = readers(evidence, CHECKS, cluster)
    assert not _faults(evidence, CHECKS, cluster)
    for key in _kinds(evidence):
        unread = replace(evidence, records={**evidence.records, key: UNREAD})
        assert not _faults(unread, reading[key], cluster), key


def _faults(evidence: Evidence, checks: Sequence[Check], cluster: Cluster) -> list[tuple[str, str]]:
    judged = findings([evidence], checks, cluster)
    return [(one["check"], one["message"]) for one in judged if one["status"] in ("fail", "warn")]

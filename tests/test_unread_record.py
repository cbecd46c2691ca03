"""A record that could not be read condemns no healthy node: what is not known is unknown, never a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests import machines
from tests.machines import Machine, hgx_h100
from tests.machines.gb200 import gb200_tray
from tests.machines.pod import pod
from tests.whole_nodes import loud, site

#: A RoCE host, a Grace tray on InfiniBand, a pod: between them they have every kind of record.
NODES: dict[str, Callable[[], Machine]] = {
    "hgx-h100-roce": partial(hgx_h100, "hgx-h100-roce", roce=True),
    "gb200-tray": gb200_tray,
    "hgx-h100-pod": pod,
}

UNREAD = {"status": "timeout", "why": "no answer within 10 s"}


def _kinds(machine: Machine) -> Iterator[str]:
    """Yield one record of each kind: of twelve ports with their files, the first stands for all."""
    seen = set()
    for key in machines.evidence(machine)["records"]:
        kind = key.rsplit("/", 1)[-1] if key.startswith(("file:", "dir:")) else key
        if kind not in seen:
            seen.add(kind)
            yield key


@pytest.mark.parametrize("name", NODES)
def test_what_could_not_be_read_is_no_fault(name: str) -> None:
    machine = NODES[name]()
    for key in _kinds(machine):
        said = loud(replace(machine, records={**machine.records, key: UNREAD}), site(name))
        assert not {finding for finding in said if finding[0] in ("fail", "warn")}, key

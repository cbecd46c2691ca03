"""Switches with many ports, all of them copies of a leaf's first port."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence
from tests.support.clos import Clos

_FIRST = re.compile(r"Ethernet0(?=$|[|:])")


def _widen(rows: dict[str, Any], ports: int) -> dict[str, Any]:
    """Return the rows of the first port repeated for each port; other rows stay."""
    wide = {name: row for name, row in rows.items() if "Ethernet" not in name}
    for name, row in rows.items():
        if _FIRST.match(name):
            wide |= {_FIRST.sub(f"Ethernet{place * 8}", name): row for place in range(ports)}
    return wide


def wide_switch(name: str, ports: int) -> Evidence:
    """Return the document of a switch with this many ports."""
    template = Clos(hosts=False).switch("leaf1")
    records = deepcopy(dict(template.records))
    for record in records.values():
        for reading in (record, record.get("again")):
            if reading and "rows" in reading["value"]:
                reading["value"]["rows"] = _widen(reading["value"]["rows"], ports)
            elif reading:
                reading["value"] = _widen(reading["value"], ports)
    lengths = records["redis:CONFIG_DB CABLE_LENGTH"]["value"]
    lengths["AZURE"] = {f"Ethernet{place * 8}": "40m" for place in range(ports)}
    records["redis:CONFIG_DB DEVICE_METADATA"]["value"]["localhost"]["hostname"] = name
    return replace(template, node=name, records=records)

"""Counters of ports as tools list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass

#: Counted in words of four bytes (InfiniBand specification, PortCounters), by perfquery's names and sysfs's.
WORDS = frozenset(
    ("PortXmitData", "PortRcvData", "XmtData", "RcvData", "XmitData", "port_xmit_data", "port_rcv_data",
     "PortUnicastXmitData")
)  # fmt: skip


@dataclass(frozen=True)
class CounterList:
    """Counters by name, data in bytes; ``by_port`` by ``mlx5_0/1``."""

    counters: Mapping[str, int]
    by_port: Mapping[str, Mapping[str, int]] | None = None
    lid: int | None = None
    port: int | None = None
    extended: bool | None = None  # perfquery -x: counters of 64 bits, which do not stop

    def by_place(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters by port; under "" those without a port."""
        return self.by_port or {"": self.counters}


def facts(listed: CounterList) -> dict[str, Any]:
    """Return counters as `preflight read --json` prints them."""
    ports = {} if listed.by_port is None else {"ports": listed.by_port}
    return {"counters": listed.counters, **ports}


def summary(listed: CounterList) -> str:
    """Return one line: how many counters there are, and of which ports."""
    where = ", ".join(listed.by_port or ())
    if listed.port is not None:
        where = f"LID {listed.lid} port {listed.port}"
    counters = listed.counters
    return f"{len(counters)} counters, {sum(map(bool, counters.values()))} of them not 0{' of ' * bool(where)}{where}"

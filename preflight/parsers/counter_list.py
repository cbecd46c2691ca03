"""Lists of port counters, as printed by tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.textprep.agreement import counted

#: Names, in perfquery and sysfs, of counters whose unit is four bytes (InfiniBand specification, PortCounters).
WORDS = frozenset(
    ("PortXmitData", "PortRcvData", "XmtData", "RcvData", "XmitData", "port_xmit_data", "port_rcv_data",
     "PortUnicastXmitData")
)  # fmt: skip


@dataclass(frozen=True)
class CounterList:
    """Counters by name, data in bytes; the keys of ``by_port`` are like ``mlx5_0/1``."""

    counters: Mapping[str, int]
    by_port: Mapping[str, Mapping[str, int]] | None = None
    lid: int | None = None
    port: int | None = None
    extended: bool | None = None  # perfquery -x: 64-bit counters, which do not saturate

    def by_place(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters by port; the port is "" if it is not named."""
        return self.by_port or {"": self.counters}


def facts(listed: CounterList) -> dict[str, Any]:
    """Return counters as `preflight read --json` prints them."""
    ports = {} if listed.by_port is None else {"ports": listed.by_port}
    return {"counters": listed.counters, **ports}


def summary(listed: CounterList) -> str:
    """Return a one-line summary: the number of counters, and their ports."""
    where = ", ".join(listed.by_port or ())
    if listed.port is not None:
        where = f"LID {listed.lid} port {listed.port}"
    counters = listed.counters
    changed = sum(map(bool, counters.values()))
    return f"{counted(len(counters), 'counter')}{' of ' * bool(where)}{where}, {changed} of them not 0"

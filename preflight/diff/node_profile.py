"""Stable values of a node, which are compared between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from preflight.checks.comparison.electorate import Trait
from preflight.checks.comparison.values import several
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts

#: Modules of checks with tables of traits.
_TABLES = ("fleet.software", "fleet.gpu", "fleet.host", "fleet.nic", "fleet.rails")

Read = Callable[[NodeFacts, Site], "str | float | None"]

#: Values that checks without such a table compare across nodes.
_MORE: tuple[tuple[str, Read], ...] = (
    ("NVIDIA driver", lambda node, site: node.driver.version if node.gpus_on_bus else None),
    ("GPUs on the PCI bus", lambda node, site: "; ".join(gpu.address for gpu in node.gpus_on_bus) or None),
    ("RDMA devices", lambda node, site: f"{len(node.rdma_devices)}"),
    ("ports that are up", lambda node, site: f"{sum(port.active for port in node.rdma_ports)}"),
    ("RDMA MTU", lambda node, site: several(port.active_mtu for port in node.rdma_ports if port.active)),
    ("NCCL variables", lambda node, site: " ".join(f"{s.name}={s.value}" for s in node.nccl_env.settings) or "none"),
)


def profile(node: NodeFacts, site: Site) -> dict[str, str]:
    """Return the values by name; values that cannot be read are left out."""
    found = {}
    for name, read in reads():
        try:
            value = read(node, site)
        except EvidenceError:
            continue
        if value is not None:
            found[name] = f"{value:.5g}" if isinstance(value, float) else str(value)
    return found


def reads() -> Iterator[tuple[str, Read]]:
    """Yield the name and reader of each value."""
    yield from _MORE
    for name in _TABLES:
        for table in vars(import_module(f"preflight.checks.{name}")).values():
            if isinstance(table, tuple) and table and all(isinstance(entry, Trait) for entry in table):
                yield from ((trait.what, trait.read) for trait in table if trait.alone)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name and both values of each entry that differs between the runs."""
    for name, old in before.items():
        if name in after and after[name] != old:
            yield name, old, after[name]

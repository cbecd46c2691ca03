"""Readers of values that should be equal on nodes of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth
    from preflight.facts.rdma_ports import Port

Value = Callable[[NodeFacts, Site], "str | None"]

#: Separator between the values of a node's devices.
AND = " and "

#: Value for a tool or file that is missing on the node itself.
NOT_THERE = "not installed"


def text(key: str, parse: Callable[[str], object] = str.strip) -> Value:
    """Return a reader that parses the text of a record."""
    return lambda node, site: str(node.parsed(key, parse))


def where_there(key: str, parse: Callable[[str], object] = str.strip) -> Value:
    """Return a reader of a file that only some kernels or drivers have.

    A missing file reads as "none" on a host, and as None in a container.
    """

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.evidence.exists(key):
            return None if node.in_container else "none"
        return str(node.parsed(key, parse))

    return read


def installed(key: str, parse: Callable[[str], object] = str.strip) -> Value:
    """Return a reader of a version.

    A missing tool reads as "not installed" on a host, and raises EvidenceError in a container.
    """

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.in_container and not node.evidence.exists(key):
            return NOT_THERE
        return str(node.parsed(key, parse))

    return read


class PerDevice:
    """Reader of a value that each device of a node has."""

    def devices(self, node: NodeFacts) -> dict[str, str]:
        """Return the value of each device by its name; raises EvidenceError."""
        raise NotImplementedError

    def __call__(self, node: NodeFacts, site: Site) -> str | None:
        """Return the values of all devices as one text; None if there are none."""
        return several(self.devices(node).values())


class _OfGpus(PerDevice):
    def __init__(self, field: str, show: Callable[[GpuHealth], object]) -> None:
        self._field, self._show = field, show

    def devices(self, node: NodeFacts) -> dict[str, str]:
        if not node.gpus_on_bus:
            return {}
        health = node.gpu_health
        shown = {}
        for gpu in health.gpus:
            if getattr(gpu, self._field) is not None:
                shown[f"GPU{gpu.index} at {gpu.address}"] = str(self._show(gpu))
            elif not gpu.not_reported(self._field):
                raise EvidenceError(health.evidence[0], f"{gpu.address} {self._field}: {gpu.why(self._field)}")
        return shown


def of_gpus(field: str, show: Callable[[GpuHealth], object]) -> PerDevice:
    """Return a reader of one field of every GPU.

    GPUs whose driver does not report the field are left out.
    """
    return _OfGpus(field, show)


def several(values: Iterable[object]) -> str | None:
    """Join the values of a node's devices; None if there are none."""
    return AND.join(sorted({str(value) for value in values})) or None


def compute(node: NodeFacts, site: Site) -> list[Port]:
    """Return the active compute ports; empty on a node without RDMA.

    rdma.port-state reports ports that are down.
    """
    if not node.rdma_devices:
        return []
    return [port for port in site.roles(node).compute if port.active]


def on_gpu_nodes(read: Value) -> Value:
    """Return a reader that gives None on nodes without a GPU."""
    return lambda node, site: read(node, site) if node.gpus_on_bus else None


def on_rdma_nodes(read: Value) -> Value:
    """Return a reader that gives None on nodes without RDMA."""
    return lambda node, site: read(node, site) if node.rdma_devices else None


def on_the_host(read: Value) -> Value:
    """Return a reader that gives None in containers, which see other values."""
    return lambda node, site: None if node.in_container else read(node, site)

"""All facts of one node, each parsed on first use.

A fact that cannot be had raises :class:`EvidenceError` naming the record; the judge turns that into
*unknown*. The error is remembered, so every check that needs the fact says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar

from preflight.evidence import Evidence, EvidenceError
from preflight.facts import gpu, host, nccl_env, net, rdma, topo
from preflight.facts.pci import PciDevice, bus

T = TypeVar("T")

TOPO = "cmd:nvidia-smi topo -m"


class NodeFacts:
    """Facts of one node."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.node = evidence.node

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """Parse a record's text; raises EvidenceError with the parser's words if it cannot be read."""
        text = self.evidence.text(key)
        try:
            return parse(text)
        except ValueError as error:
            raise EvidenceError(key, f"cannot be read: {error}") from None

    @property
    def in_container(self) -> bool:
        """Whether the collector ran in a container, where "not visible" is not "absent"."""
        return self.evidence.collector.get("where") == "container"

    # --- GPUs ---

    @cached_property
    def pci(self) -> tuple[PciDevice, ...]:
        """All PCI functions."""
        return bus(self.evidence)

    @property
    def gpus_on_bus(self) -> tuple[PciDevice, ...]:
        """The NVIDIA GPUs on the PCI bus, whether or not their driver lives."""
        return tuple(device for device in self.pci if device.is_gpu)

    @property
    def rdma_nics_on_bus(self) -> tuple[PciDevice, ...]:
        """The PCI functions that should be RDMA devices, whether or not their driver lives."""
        return tuple(device for device in self.pci if device.is_rdma_nic)

    @cached_property
    def driver(self) -> gpu.Driver:
        """The NVIDIA driver's own view."""
        return gpu.driver(self.evidence)

    @cached_property
    def topology(self) -> topo.Topology:
        """The matrix of ``nvidia-smi topo -m``."""
        return self.parsed(TOPO, topo.parse)

    # --- RDMA and network ---

    @cached_property
    def rdma_devices(self) -> tuple[str, ...]:
        """Names of the RDMA devices that the kernel registered."""
        return rdma.devices(self.evidence)

    @cached_property
    def rdma_ports(self) -> tuple[rdma.Port, ...]:
        """All ports of all RDMA devices."""
        return rdma.ports(self.evidence)

    @cached_property
    def uverbs(self) -> Mapping[str, str]:
        """RDMA device -> name of its device node, ``uverbsN``."""
        return rdma.uverbs(self.evidence)

    @cached_property
    def netdevs(self) -> Mapping[str, net.Netdev]:
        """Network interfaces by name."""
        return net.netdevs(self.evidence)

    # --- host ---

    @cached_property
    def memlock_bytes(self) -> float:
        """Soft limit of locked memory, bytes."""
        return self.parsed(host.LIMITS, host.memlock_bytes)

    @cached_property
    def allowed_cpus(self) -> frozenset[int]:
        """CPUs that the process that was asked may run on."""
        return self.parsed(host.STATUS, host.allowed_cpus)

    @cached_property
    def numa_nodes(self) -> tuple[host.NumaNode, ...]:
        """NUMA nodes with their CPUs."""
        return host.numa_nodes(self.evidence)

    # --- NCCL ---

    @cached_property
    def nccl_env(self) -> nccl_env.NcclEnvironment:
        """The NCCL variables in force, each with where it was set."""
        return nccl_env.read(self.evidence)

"""All facts of one node, each parsed on first use.

A fact that is not available raises :class:`EvidenceError` with the record's name; the judge turns that into *unknown*.
The error is cached, so that every check that needs the fact reports the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from preflight import facts, parsers
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import ROOT, PciDevice, bus

if TYPE_CHECKING:
    from preflight.facts.nccl_settings.collect import Ranks
    from preflight.facts.nccl_settings.named_files import Named
    from preflight.parsers.pci.lspci import PciFunction

P = ParamSpec("P")
T = TypeVar("T")

TOPO = "cmd:nvidia-smi topo -m"

#: Name of an answer for the fleet's checks -> its value, or the record that has none and the reason.
FleetAnswers = dict[str, "tuple[Any, tuple[str, str] | None]"]


class NodeFacts:
    """Facts of one node."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.node = evidence.node
        self.fleet_answers: FleetAnswers = {}

    @property
    def quoted(self) -> Evidence:
        """The records that a report may quote: all of them, unless the node sent fewer."""
        return self.evidence

    def remember_for_fleet(self, name: str, query: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Return ``query(...)`` for a fleet check, and cache the value or its error.

        For a large fleet, only these answers are in memory when nodes are compared; any other fact requires reading the
        node's evidence again. Therefore answers must be small, and a name must have the same meaning in all checks.
        """
        if name not in self.fleet_answers:
            try:
                self.fleet_answers[name] = query(*args, **more), None
            except EvidenceError as error:
                self.fleet_answers[name] = None, (error.key, error.why)
        value, refused = self.fleet_answers[name]
        if refused:
            raise EvidenceError(*refused)
        return cast("T", value)

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """Parse a record's text; raises EvidenceError with the parser's message."""
        if (known := self._parsed.get((key, parse))) is not None:
            return cast("T", known)
        text = self.evidence.text(key)
        try:
            value = self._parsed[key, parse] = parse(text)
        except ValueError as error:
            raise EvidenceError(key, f"cannot be parsed: {error}") from None
        return value

    @cached_property
    def failing(self) -> dict[str, frozenset[str]]:
        """Check id -> failing or warning subjects, of the node checks that ran."""
        return {}

    @cached_property
    def _parsed(self) -> dict[tuple[str, object], object]:
        return {}

    @property
    def in_container(self) -> bool:
        """Whether the collector ran in a container, where "not visible" is not "absent"."""
        return self.evidence.collector.get("where") == "container"

    @property
    def in_virtual_machine(self) -> bool:
        """Whether this is a virtual machine.

        Switches, IOMMU and physical functions belong to the host and are hidden. A container in a virtual machine is
        not marked as such; there, a GPU directly on a root bus, without a root port, reveals the virtual machine,
        because no real card is attached that way.
        """
        return self.evidence.collector.get("where") == "vm" or any(not gpu.parents for gpu in self.gpus_on_bus)

    # --- GPUs ---

    @cached_property
    def pci(self) -> tuple[PciDevice, ...]:
        """All PCI functions."""
        return bus(self.evidence)

    @property
    def gpus_on_bus(self) -> tuple[PciDevice, ...]:
        """The NVIDIA GPUs on the PCI bus, with a working driver or not."""
        return tuple(device for device in self.pci if device.is_gpu)

    @property
    def rdma_nics_on_bus(self) -> tuple[PciDevice, ...]:
        """The PCI functions that should be RDMA devices, with a driver or not."""
        return tuple(device for device in self.pci if device.is_rdma_nic)

    @cached_property
    def network_switch(self) -> tuple[str, str] | None:
        """The operating system of a network switch, and its record, or None."""
        return facts.network_switch.network_switch(self.evidence, _or_none(lambda: self.pci) or ())

    @cached_property
    def driver(self) -> facts.nvidia.query.Driver:
        """The NVIDIA driver's version and GPUs, as it reports them."""
        return facts.nvidia.query.driver(self.evidence)

    @cached_property
    def gpu_health(self) -> facts.nvidia.model.Health:
        """The health of each GPU, from NVML and ``nvidia-smi -q -x``."""
        return facts.nvidia.health.health(self.evidence)

    @cached_property
    def services(self) -> Mapping[str, parsers.host.services.Service]:
        """The services that join GPUs to the NVLink fabric, by unit name."""
        return self.parsed(parsers.host.services.SERVICES, parsers.host.services.parse)

    @cached_property
    def kernel_log(self) -> facts.kernel_log.KernelLog:
        """Warnings and errors of the kernel since boot."""
        return facts.kernel_log.kernel_log(self.evidence)

    @cached_property
    def kernel_notices(self) -> facts.kernel_log.KernelLog:
        """The messages of kernel drivers about links, slots and mounts since boot."""
        return facts.kernel_log.kernel_log(self.evidence, facts.kernel_log.NOTICES)

    @cached_property
    def topology(self) -> parsers.nvidia.topology.Topology:
        """The matrix of ``nvidia-smi topo -m``."""
        return self.parsed(TOPO, lambda text: parsers.nvidia.topo_matrix.parse(text))  # lazy import of the parser

    # --- RDMA and network ---

    @cached_property
    def rdma_devices(self) -> tuple[str, ...]:
        """Names of the RDMA devices that the kernel registered."""
        return facts.rdma_ports.devices(self.evidence)

    @cached_property
    def rdma_ports(self) -> tuple[facts.rdma_ports.Port, ...]:
        """All ports of all RDMA devices."""
        return facts.rdma_ports.ports(self.evidence)

    @cached_property
    def port_growth(self) -> Mapping[str, facts.counter_growth.PortGrowth]:
        """Counter growth of each active port in the window, by name, ``mlx5_0:1``."""
        active = [port for port in self.rdma_ports if port.active]
        return {port.name: facts.counter_growth.port_growth(self.evidence, port) for port in active}

    @cached_property
    def cpu_window(self) -> facts.cpu_time.CpuWindow:
        """CPU time in the window."""
        return facts.cpu_time.cpu_window(self.evidence)

    @cached_property
    def uverbs(self) -> Mapping[str, str]:
        """RDMA device -> name of its device node, ``uverbsN``."""
        return facts.rdma_ports.uverbs(self.evidence)

    @cached_property
    def netdevs(self) -> Mapping[str, facts.interfaces.Netdev]:
        """Network interfaces by name."""
        return facts.interfaces.netdevs(self.evidence)

    # --- PCIe paths ---

    @cached_property
    def pci_configuration(self) -> Mapping[str, PciFunction]:
        """The PCI configuration from lspci, by address."""
        return self.parsed(facts.lspci.LSPCI, facts.lspci.parse)

    def gpu_name(self, function: PciDevice) -> str:
        """Return a GPU's name in the topology matrix, or else its PCI address."""
        driver, matrix = _or_none(lambda: self.driver), _or_none(lambda: self.topology)
        named = facts.gpudirect.gpu_names(driver, matrix, self.gpus_on_bus)
        return next((name for name, gpu in named.items() if gpu == function), function.address)

    def gpu_nic_pairs(self, devices: Collection[str]) -> tuple[facts.gpudirect.GpuNicPair, ...]:
        """Pair each GPU with the nearest of these RDMA devices; raises EvidenceError."""
        driver, matrix = _or_none(lambda: self.driver), _or_none(lambda: self.topology)
        gpus = facts.gpudirect.gpu_names(driver, matrix, self.gpus_on_bus)
        nics = facts.gpudirect.nic_functions(self.evidence, self.pci, devices)
        return facts.gpudirect.pairs(gpus, nics, matrix, (TOPO,) if matrix else (f"dir:{ROOT}",))

    # --- host ---

    @cached_property
    def memlock_bytes(self) -> float:
        """Soft limit of locked memory, in bytes."""
        return self.parsed(facts.host.LIMITS, facts.host.memlock_bytes)

    @cached_property
    def modules(self) -> frozenset[str]:
        """Kernel modules, loaded or built in."""
        return facts.kernel.modules(self.evidence)

    @cached_property
    def boot_options(self) -> tuple[parsers.host.boot_options.Option, ...]:
        """The options on the kernel's command line."""
        return self.parsed(facts.kernel.CMDLINE, parsers.host.boot_options.parse)

    @cached_property
    def allowed_cpus(self) -> frozenset[int]:
        """CPUs on which the collector's process may run."""
        return self.parsed(facts.host.STATUS, facts.host.allowed_cpus)

    @cached_property
    def allowed_memory_nodes(self) -> frozenset[int]:
        """NUMA nodes from which the collector's process may allocate memory."""
        return self.parsed(facts.host.STATUS, facts.host.allowed_memory_nodes)

    @property
    def environment(self) -> Mapping[str, str]:
        """The allow-listed environment of the collector's process; raises EvidenceError."""
        value = self.evidence.value(facts.nccl_environment.PROCESS)
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise EvidenceError(facts.nccl_environment.PROCESS, "has no names and values")
        return value

    @property
    def rank(self) -> facts.rank_binding.Rank | None:
        """The rank of the collector's process in a job; None if none or unknown."""
        environment = _or_none(lambda: self.environment)
        return facts.rank_binding.rank(environment) if environment is not None else None

    @property
    def own_gpus(self) -> tuple[PciDevice, ...]:
        """The GPUs on the bus that the collector's process may use.

        Without a restriction, these are all GPUs. Raises EvidenceError if the process is one of several ranks and its
        own GPU is unknown: a rank's CPUs are bound to its own GPU, so the other GPUs must not be judged by them.
        """
        environment, driver = _or_none(lambda: self.environment), _or_none(lambda: self.driver)
        if environment is None:
            return self.gpus_on_bus
        listed = driver.gpus if driver else ()
        mine = {gpu.address for gpu in facts.rank_binding.own_gpus(environment, listed)}
        own = tuple(gpu for gpu in self.gpus_on_bus if gpu.address in mine) or self.gpus_on_bus
        rank = facts.rank_binding.rank(environment)
        if rank is not None and (rank.local_size or 1) > 1 and 1 < len(own) >= len(listed):
            raise EvidenceError(
                facts.nccl_environment.PROCESS,
                f"by {rank.variable}, this process is one of {rank.local_size} ranks, but its own GPU, "
                f"of {len(own)}, is not known",
            )
        return own

    @cached_property
    def clock(self) -> facts.clock.Clock:
        """Whether the clock is synchronised, and its offset."""
        return facts.clock.clock(self.evidence)

    @cached_property
    def addresses(self) -> facts.addresses.Addresses:
        """IP addresses of the network interfaces."""
        return facts.addresses.addresses(self.evidence)

    @cached_property
    def libraries(self) -> tuple[facts.versions.Library, ...]:
        """The driver's and NCCL's libraries in the loader's usual directories."""
        text = self.evidence.text(facts.versions.LIBRARIES, allow_rc=(0, 1))  # 1: a directory is missing
        try:
            return facts.versions.parse_libraries(text)
        except ValueError as error:
            raise EvidenceError(facts.versions.LIBRARIES, f"cannot be parsed: {error}") from None

    @cached_property
    def packages(self) -> tuple[facts.versions.Package, ...]:
        """PyTorch and the NCCL packages of Python installations."""
        return facts.versions.packages(self.evidence)

    @cached_property
    def numa_nodes(self) -> tuple[facts.host.NumaNode, ...]:
        """NUMA nodes with their CPUs."""
        return facts.host.numa_nodes(self.evidence)

    @property
    def cpu_nodes(self) -> int | None:
        """Number of NUMA nodes with CPUs; None if unknown.

        These are sockets, or parts of sockets (NPS4, sub-NUMA clusters).
        """
        nodes = _or_none(lambda: self.numa_nodes)
        return None if nodes is None else sum(bool(numa.cpus) for numa in nodes)

    # --- NCCL ---

    @cached_property
    def nccl_env(self) -> facts.nccl_environment.NcclEnvironment:
        """The NCCL variables in force, each with its source."""
        return facts.nccl_environment.read(self.evidence)

    @cached_property
    def nccl_ranks(self) -> Ranks:
        """The ranks of a job on this node, with their start environments."""
        from preflight.facts.nccl_settings import collect

        return collect.ranks(self.evidence)

    @cached_property
    def nccl_files(self) -> Mapping[str, Named]:
        """The files that NCCL's variables name, by variable."""
        from preflight.facts.nccl_settings import named_files

        return named_files.named(self.evidence)


def _or_none(fact: Callable[[], T]) -> T | None:
    try:
        return fact()
    except EvidenceError:
        return None

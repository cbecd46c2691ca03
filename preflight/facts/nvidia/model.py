"""Health of a GPU as typed values, the same from NVML and nvidia-smi.

A field is None if the source has no value; ``absent`` has the reason. ``N/A`` means that the driver does not report the
value for this part, not that the value is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.facts.pci import address

#: Reason in ``absent`` for a value that the driver does not report for this part.
NOT_REPORTED = "N/A"

#: Reason in ``absent`` for a value that the output lacks.
NOT_IN_OUTPUT = "not in the output"

#: Bits of the clocks' event reasons that throttle a GPU (nvml.h).
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x08, 0x20, 0x40, 0x80

#: nvmlGpuFabricState_t -> nvidia-smi's name.
FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}

#: nvmlDeviceGpuRecoveryAction_t -> nvidia-smi's name.
RECOVERY_ACTIONS = {
    0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset", 5: "Recover IMEX Domain",
    6: "Bus Reset", 7: "System Reboot",
}  # fmt: skip

#: The first driver release that reports recovery actions.
RECOVERY_SINCE = "565"

#: nvmlComputeMode_t -> nvidia-smi's name.
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}


@dataclass(frozen=True)
class Process:
    """One compute process on a GPU."""

    pid: int  # in the host's PID namespace
    name: str  # program name without arguments; empty if not visible
    used_mib: int | None


@dataclass(frozen=True)
class GpuFabric:
    """A GPU's state in its NVLink fabric."""

    state: str  # Not Started, In Progress, Completed
    status: str  # result of the last registration: Success, or an NVML error
    faults: tuple[str, ...]  # reported health faults
    clique: int | None
    cluster_uuid: str  # all zero: a single-node fabric

    @property
    def multi_node(self) -> bool:
        """Whether the fabric spans nodes (NVL72)."""
        return bool(self.cluster_uuid.strip("0-"))

    @property
    def domain(self) -> str:
        """The name of its multi-node NVLink domain; empty if it does not span nodes."""
        return f"{self.cluster_uuid} clique {self.clique}" if self.multi_node else ""


@dataclass(frozen=True)
class GpuHealth:
    """One GPU that answered."""

    index: int  # NVML index; -1: pasted text without an index
    address: str  # PCI address in the kernel's form
    uuid: str
    name: str | None = None  # product name
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None  # without memory reserved by the driver
    bar1_total_mib: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_volatile_sram_corrected: int | None = None  # since the driver was loaded
    ecc_volatile_sram_uncorrected: int | None = None
    ecc_volatile_dram_corrected: int | None = None
    ecc_volatile_dram_uncorrected: int | None = None
    ecc_aggregate_sram_corrected: int | None = None  # over the lifetime
    ecc_aggregate_sram_uncorrected: int | None = None
    ecc_aggregate_dram_corrected: int | None = None
    ecc_aggregate_dram_uncorrected: int | None = None
    sram_threshold_exceeded: bool | None = None
    remapped_corrected: int | None = None  # rows
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    remap_banks: tuple[int, ...] | None = None  # banks by remaining spare rows: max, high, partial, low, none
    retired_single: int | None = None  # pages (Volta and older)
    retired_double: int | None = None
    retired_pending: bool | None = None
    event_reasons: int | None = None  # bits; reasons for reduced clocks
    power_limit_w: float | None = None  # as set
    power_enforced_w: float | None = None
    power_default_w: float | None = None
    temperature_c: int | None = None
    temperature_margin_c: int | None = None  # margin in degrees before it slows down (Hopper and newer)
    temperature_slowdown_c: int | None = None  # slowdown temperature (before Hopper)
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None  # maximum of this GPU in this slot
    pcie_width: int | None = None  # lanes
    pcie_width_max: int | None = None
    pcie_replays: int | None = None  # packets retransmitted since the last reset
    performance_state: int | None = None  # 0 is the fastest
    compute_mode: str | None = None
    recovery_action: str | None = None  # driver 565 and newer
    fabric: GpuFabric | None = None
    vbios: str | None = None
    inforom: str | None = None  # version of the InfoROM image
    gsp: str | None = None
    utilisation_pct: int | None = None
    memory_utilisation_pct: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    application_clock_mhz: int | None = None  # of the SMs, as set for programs; drivers after 570 drop it
    application_clock_default_mhz: int | None = None
    serial: str | None = None  # serial number of the board: GPUs of one tray may share it
    processes: tuple[Process, ...] | None = None
    cuda_cores: int | None = None  # NVML only
    links: tuple[bool, ...] | None = None  # for each NVLink, whether it is active
    link_gbytes_s: float | None = None  # rate of each NVLink per direction
    absent: Mapping[str, str] = field(default_factory=dict, compare=False)  # field -> reason for None

    def why(self, name: str) -> str:
        """Return why a field has no value.

        The reason is ``N/A``, the driver's message, or that it was not collected.
        """
        return self.absent.get(name, NOT_IN_OUTPUT)

    def not_reported(self, name: str) -> bool:
        """Return whether the driver reports that this part has no such value."""
        return getattr(self, name) is None and self.absent.get(name) == NOT_REPORTED

    @property
    def label(self) -> str:
        """Name of the GPU in messages."""
        if self.index >= 0:
            return f"GPU{self.index}"
        return self.address or self.uuid or "a GPU without an address in the text"

    @property
    def margin_c(self) -> int | None:
        """Margin in degrees Celsius before the GPU slows down; None if unknown."""
        if self.temperature_margin_c is not None:
            return self.temperature_margin_c
        if self.temperature_c is None or self.temperature_slowdown_c is None:
            return None
        return self.temperature_slowdown_c - self.temperature_c


@dataclass(frozen=True)
class Health:
    """The driver's answers for all GPUs."""

    driver: str
    gpus: tuple[GpuHealth, ...]
    silent: tuple[str, ...]  # messages about GPUs that did not answer
    evidence: tuple[str, ...]  # the records that this was read from
    partial: str = ""  # why the list may be incomplete
    pasted: bool = False  # from pasted text: sections may be missing


class Gathered:
    """Values of one GPU from one source, and the reasons for missing values."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.absent: dict[str, str] = {}

    def take(self, name: str, read: Callable[..., Any], *arguments: Any) -> None:
        """Store the result of ``read``, or its ValueError as the reason for absence."""
        try:
            self.values[name] = read(*arguments)
        except ValueError as error:
            self.absent[name] = str(error)

    def since_driver(self, driver: str) -> None:
        """Mark values as not reported if the driver is too old to report them."""
        major, dot, _ = driver.partition(".")
        is_older = dot and len(major) == 3 and major.isdecimal() and major < RECOVERY_SINCE
        if is_older and "recovery_action" in self.absent:
            self.absent["recovery_action"] = NOT_REPORTED

    def gpu(self, index: int, bus_id: str, uuid: str, driver: str) -> GpuHealth:
        """Return the GPU; raises ValueError if the UUID or bus address is invalid."""
        if not uuid.startswith("GPU-"):
            raise ValueError(f"{uuid[:60]!r} is not the UUID of a GPU")
        self.since_driver(driver)
        return GpuHealth(index, address(bus_id), uuid, **self.values, absent=self.absent)

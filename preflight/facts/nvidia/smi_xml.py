"""``nvidia-smi -q`` as :class:`GpuHealth`.

It is the second source, and the only one if NVML cannot be called.

Values are found by name, and their units are part of the text (``67.03 W``, ``16x``, ``81559 MiB``). Names that changed
between R515 and R580 are listed side by side.
"""

from __future__ import annotations

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nvidia.model import (
    HW_SLOWDOWN,
    HW_THERMAL,
    NOT_IN_OUTPUT,
    NOT_REPORTED,
    POWER_BRAKE,
    SW_THERMAL,
    Gathered,
    GpuFabric,
    GpuHealth,
    Health,
    Process,
)
from preflight.facts.pci import address
from preflight.parsers.nvidia import query_log, query_xml
from preflight.parsers.nvidia.query_log import QueryLog, Tree
from preflight.textprep.plain_text import normalize_text

XML = "cmd:nvidia-smi -q -x"

# Paths are tried in order: names of the XML of all drivers, then those of the text.
_INTEGERS = {
    "memory_total_mib": "fb_memory_usage/total",
    "memory_reserved_mib": "fb_memory_usage/reserved",
    "memory_used_mib": "fb_memory_usage/used",
    "bar1_total_mib": "bar1_memory_usage/total",
    "remapped_corrected": "remapped_rows/remapped_row_corr|remapped_rows/correctable_error",
    "remapped_uncorrected": "remapped_rows/remapped_row_unc|remapped_rows/uncorrectable_error",
    "retired_single": "retired_pages/multiple_single_bit_retirement/retired_count|retired_pages/single_bit_ecc",
    "retired_double": "retired_pages/double_bit_retirement/retired_count|retired_pages/double_bit_ecc",
    "temperature_c": "temperature/gpu_temp|temperature/gpu_current_temp",
    "temperature_margin_c": "temperature/gpu_temp_tlimit|temperature/gpu_t_limit_temp",
    "temperature_slowdown_c": "temperature/gpu_temp_slow_threshold|temperature/gpu_slowdown_temp",
    "pcie_generation": "pci/pci_gpu_link_info/pcie_gen/current_link_gen|pci/gpu_link_info/pcie_generation/current",
    "pcie_generation_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen|pci/gpu_link_info/pcie_generation/max",
    "pcie_width": "pci/pci_gpu_link_info/link_widths/current_link_width|pci/gpu_link_info/link_width/current",
    "pcie_width_max": "pci/pci_gpu_link_info/link_widths/max_link_width|pci/gpu_link_info/link_width/max",
    "utilisation_pct": "utilization/gpu_util|utilization/gpu",
    "memory_utilisation_pct": "utilization/memory_util|utilization/memory",
    "sm_clock_mhz": "clocks/sm_clock|clocks/sm",
    "sm_clock_max_mhz": "max_clocks/sm_clock|max_clocks/sm",
    "application_clock_mhz": "applications_clocks/graphics_clock|applications_clocks/graphics",
    "application_clock_default_mhz": "default_applications_clocks/graphics_clock|default_applications_clocks/graphics",
    "pcie_replays": "pci/replay_counter|pci/replays_since_reset",
}

_FLAGS = {
    "persistence": "persistence_mode",
    "mig": "mig_mode/current_mig|mig_mode/current",
    "mig_pending": "mig_mode/pending_mig|mig_mode/pending",
    "ecc": "ecc_mode/current_ecc|ecc_mode/current",
    "ecc_pending": "ecc_mode/pending_ecc|ecc_mode/pending",
    "sram_threshold_exceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
    "remap_pending": "remapped_rows/remapped_row_pending|remapped_rows/pending",
    "remap_failure": "remapped_rows/remapped_row_failure|remapped_rows/remapping_failure_occurred",
    "retired_pending": "retired_pages/pending_retirement|retired_pages/pending_blacklist"
    "|retired_pages/pending_page_blacklist|retired_pages/pending",
}

_WATTS = {  # R535 renamed the block and its fields
    "power_limit_w": "gpu_power_readings/requested_power_limit|power_readings/power_limit",
    "power_enforced_w": "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit",
    "power_default_w": "gpu_power_readings/default_power_limit|power_readings/default_power_limit",
}

_TEXTS = {
    "name": "product_name",
    "vbios": "vbios_version",
    "inforom": "inforom_version/img_version|inforom_version/image_version",
    "gsp": "gsp_firmware_version",
    "serial": "serial|serial_number",
    "compute_mode": "compute_mode",
    "recovery_action": "gpu_recovery_action",
}

#: Bit of the event reasons -> endings of its name (in XML after clocks_event_reason_ or, until R530,
#: clocks_throttle_reason_).
_REASONS = {
    0x01: ("gpu_idle", "idle"), 0x02: ("applications_clocks_setting",), 0x04: ("sw_power_cap",),
    0x08: ("hw_slowdown",), 0x10: ("sync_boost",), 0x20: ("sw_thermal_slowdown",), 0x40: ("hw_thermal_slowdown",),
    0x80: ("hw_power_brake_slowdown", "hw_power_braking"), 0x100: ("display_clocks_setting", "display_clock_setting"),
}  # fmt: skip
_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_", "")

#: Field of ``fabric/health`` -> NVML's name of the fault; any value other than a healthy one is a fault.
_HEALTH = {
    "bandwidth": "degraded bandwidth",
    "route_recovery_in_progress": "route recovery in progress",
    "route_unhealthy": "route unhealthy",
    "access_timeout_recovery": "access timeout recovery",
}
#: Maximum number of tags; the output for eight GPUs has ten thousand.
_MOST_TAGS = 400_000

#: Maximum number of GPUs in one pasted output; the driver supports at most 32 per machine.
_MOST_PASTED = 256

_HEALTHY = ("full", "false", "none", "healthy")


def read_health(evidence: Evidence) -> Health:
    """Return nvidia-smi's answers; raises EvidenceError."""
    text = evidence.text(XML)
    try:
        return parse(text)
    except ValueError as error:
        raise EvidenceError(XML, f"cannot be parsed: {error}") from None


def parse(text: str) -> Health:
    """Parse the XML document; raises a ValueError that states where it breaks."""
    text = normalize_text(text)
    start = text.find("<nvidia_smi_log")
    if start < 0:
        first_line = next((line.strip() for line in text.split("\n") if line.strip()), "")
        raise ValueError(f"no <nvidia_smi_log> found; the output begins {first_line[:100]!r}")
    if text.count("<") > _MOST_TAGS:
        raise ValueError(f"it has more than {_MOST_TAGS} tags")
    if "<!ENTITY" in text:
        raise ValueError("it declares entities, which nvidia-smi does not")
    end = text.rfind("</nvidia_smi_log>")
    body = text[start : end + len("</nvidia_smi_log>")] if end > start else text[start:]
    try:
        log = query_xml.parse(body)
    except ValueError as error:
        raise ValueError(_broken(body, int(str(error)))) from None
    if (version := query_log.driver_version(log)) is None:
        raise ValueError(f"the driver version is {str(log.general.get('driver_version') or '')[:40]!r}")
    gpus, silent = [], []
    for index, (bus_id, tree) in enumerate(log.gpus):
        try:
            gpus.append(_gathered(tree).gpu(index, bus_id, _Reader(tree).text("uuid"), version))
        except ValueError as error:
            silent.append(f"GPU {bus_id or index}: {error}"[:200])
    return Health(version, tuple(gpus), tuple(silent), (XML,))


def of_paste(log: QueryLog, evidence: str) -> Health:
    """Return the health of the GPUs in a pasted output, with its gaps.

    A GPU that answers with ``GPU is lost`` or ``GPU requires reset`` counts as not answering.
    """
    version = log.general.get("driver_version")
    driver = version if isinstance(version, str) else ""
    if len(log.gpus) > _MOST_PASTED:
        words = f"{len(log.gpus)} GPUs in one output: no machine has more than {_MOST_PASTED}, and none is judged"
        return Health(driver, (), (), (evidence,), words, pasted=True)
    gpus, silent = [], []
    for bus_id, tree in log.gpus:
        lost = query_log.errors_in(tree) & {"gpu is lost", "gpu requires reset"}
        place = bus_address(bus_id or _bus_id(tree))
        if lost:
            silent.append(f"{place or 'a GPU without an address in the text'}: {', '.join(sorted(lost))}")
            continue
        gathered, uuid = _gathered(tree), query_log.value_at(tree, "uuid") or query_log.value_at(tree, "gpu_uuid")
        gathered.since_driver(driver)
        gpus.append(
            GpuHealth(
                -1 if place else _shown_index(tree),
                place,
                uuid if isinstance(uuid, str) else "",
                **gathered.values,
                absent=gathered.absent,
            )
        )
    count = query_log.attached(log)
    partial = f"{count} GPUs are attached, but only {len(log.gpus)} listed" if count and count > len(log.gpus) else ""
    return Health(driver, tuple(gpus), tuple(silent), (evidence,), partial, pasted=True)


def _bus_id(tree: Tree) -> str:
    value = query_log.value_at(tree, "pci/bus_id") or query_log.value_at(tree, "pci/pci_bus_id")
    return value if isinstance(value, str) else ""


def _shown_index(tree: Tree) -> int:
    """Return the index that a row shows; -1 if it shows none."""
    index = query_log.value_at(tree, "index")
    return int(index) if isinstance(index, str) and index.isdecimal() and len(index) < 4 else -1


def bus_address(bus_id: str) -> str:
    """Return a PCI address in the kernel's form.

    Empty if the text is not a complete address.
    """
    try:
        return address(bus_id)
    except ValueError:
        return ""


def _broken(body: str, line: int) -> str:
    before = body.split("\n")[:line]
    place = f", in GPU {gpu}" if (gpu := query_xml.last_gpu(before)) else ""
    return f"the XML ends or breaks at line {line}{place}: {before[-1].strip()[:80]!r}"


def _gathered(tree: Tree) -> Gathered:
    gathered, read = Gathered(), _Reader(tree)
    for table, kind in (
        (_INTEGERS, read.integer), (_FLAGS, read.flag), (_WATTS, read.real), (_TEXTS, read.text),
    ):  # fmt: skip
        for name, path in table.items():
            gathered.take(name, kind, path)
    for span in ("volatile", "aggregate"):
        for severity in ("corrected", "uncorrected"):
            for memory in ("sram", "dram"):
                gathered.take(f"ecc_{span}_{memory}_{severity}", _ecc, read, span, memory, severity)
    gathered.take("remap_banks", _banks, read)
    gathered.take("event_reasons", _reasons, tree)
    gathered.take("performance_state", _performance_state, read)
    gathered.take("fabric", _fabric, tree)
    gathered.take("processes", _processes, tree)
    return gathered


class _Reader:
    """Access to one tree by path; a ValueError is the reason for a missing value."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def text(self, paths: str) -> str:
        """Return the text at the first existing path of ``new|old``; raises ValueError."""
        refused = ""
        for path in paths.split("|"):
            if isinstance(value := query_log.value_at(self._tree, path), str):
                return _checked(value, path)
            while "/" in path:
                path = path.rpartition("/")[0]
                if _is_not_reported(query_log.value_at(self._tree, path)):
                    refused = NOT_REPORTED  # the entire block is N/A
        raise ValueError(refused or NOT_IN_OUTPUT)

    def integer(self, paths: str) -> int:
        """Return an integer, without its unit; raises ValueError."""
        number = self._number(paths)
        if not isinstance(number, int):
            raise ValueError(f"{paths} is {number}, not an integer")
        return number

    def real(self, paths: str) -> float:
        """Return a number, without its unit; raises ValueError."""
        return float(self._number(paths))

    def flag(self, paths: str) -> bool:
        """Return a yes or no that the tool writes in various words; raises ValueError."""
        value = self.text(paths)
        if (flag := query_log.flag(value)) is None:
            raise ValueError(f"{paths} is {value[:40]!r}")
        return flag

    def _number(self, paths: str) -> int | float:
        value = self.text(paths)
        if (number := query_log.measure(value)) is None:
            raise ValueError(f"{paths} is {value[:40]!r}, not a number")
        return number


def _is_not_reported(value: object) -> bool:
    return isinstance(value, str) and query_log.NOT_REPORTED.fullmatch(value) is not None


def _checked(value: str, path: str) -> str:
    if _is_not_reported(value):
        raise ValueError(NOT_REPORTED)
    if not value:
        raise ValueError(f"{path} is empty")
    if len(value) < 120 and query_log.REFUSAL.fullmatch(value):
        raise ValueError(value)
    return value


def _ecc(read: _Reader, span: str, memory: str, severity: str) -> int:
    """Return the error count of a memory.

    Uncorrectable SRAM errors are one number until R535, and parity and SEC-DED errors after it; Volta counts by bits. A
    total without its parts counts as DRAM's, which has nearly all of the errors.
    """
    kind = "correctable" if severity == "corrected" else "uncorrectable"
    base = f"ecc_errors/{span}/{memory}_{kind}"
    try:
        if memory == "sram" and kind == "uncorrectable":
            return read.integer(f"{base}_parity") + read.integer(f"{base}_secded|{base}_sec_ded")
        return read.integer(base)
    except ValueError as error:
        if str(error) != NOT_IN_OUTPUT:
            raise
    if memory == "sram":
        return read.integer(base)
    bits = "single" if severity == "corrected" else "double"
    try:
        return read.integer(f"ecc_errors/{span}/{bits}_bit/device_memory")
    except ValueError as error:
        if str(error) != NOT_IN_OUTPUT:
            raise
    return read.integer(f"ecc_errors/{span}/total_{kind}")


def _banks(read: _Reader) -> tuple[int, ...]:
    xml, text = "remapped_rows/row_remapper_histogram", "remapped_rows/bank_remap_availability_histogram"
    names = ("max", "high", "partial", "low", "none")
    return tuple(read.integer(f"{xml}/row_remapper_histogram_{name}|{text}/{name}") for name in names)


def _reasons(tree: Tree) -> int:
    for block in ("clocks_event_reasons", "clocks_throttle_reasons"):
        if (gathered := tree.get(block)) is None:
            continue
        if not isinstance(gathered, dict):
            _checked(gathered if isinstance(gathered, str) else "", block)
            raise ValueError(f"{block} names no reason")
        read = _Reader(gathered)
        bits = {
            bit: name
            for bit, ends in _REASONS.items()
            for end in ends
            for prefix in _PREFIXES
            if isinstance(gathered.get(name := prefix + end), str)
        }
        if not bits:
            raise ValueError(f"{block} names no reason" if gathered else NOT_IN_OUTPUT)
        reasons = sum(bit for bit, name in bits.items() if read.flag(name))
        if not bits.keys() & {HW_SLOWDOWN, HW_THERMAL} and not reasons & _SLOWED:
            raise ValueError(NOT_IN_OUTPUT)  # truncated before the relevant reasons, or they were not queried
        return reasons
    raise ValueError(NOT_IN_OUTPUT)


#: Reasons that throttle a GPU.
_SLOWED = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE


def _performance_state(read: _Reader) -> int:
    value = read.text("performance_state")
    if (state := query_log.performance_state(value)) is None:
        raise ValueError(f"performance_state is {value[:40]!r}")
    return state


def _fabric(tree: Tree) -> GpuFabric:
    block = tree.get("fabric")
    if isinstance(block, str):
        _checked(block, "fabric")
    if not isinstance(block, dict):
        raise ValueError(NOT_IN_OUTPUT)
    read = _Reader(block)
    optional = Gathered()
    optional.take("status", read.text, "status")
    optional.take("clique", read.integer, "cliqueid|clique_id")
    optional.take("uuid", read.text, "clusteruuid|cluster_uuid")
    state = read.text("state")
    status = optional.values.get("status") or optional.absent["status"]
    uuid = optional.values.get("uuid", "")
    return GpuFabric(state, status, _faults(block), optional.values.get("clique"), uuid)


def _faults(block: Tree) -> tuple[str, ...]:
    gathered: list[str] = []
    summary: list[str] = []
    health = block.get("health")
    for name, state in health.items() if isinstance(health, dict) else ():
        if not isinstance(state, str) or not state or state.lower() in _HEALTHY or _is_not_reported(state):
            continue
        named = _HEALTH.get(name, f"{name.replace('_', ' ')}: {state.lower()}")
        (summary if name == "summary" else gathered).append(named)
    return tuple(gathered or summary)


def _processes(tree: Tree) -> tuple[Process, ...]:
    block = tree.get("processes")
    if block is None:
        raise ValueError(NOT_IN_OUTPUT)
    if not isinstance(block, dict):
        if _is_not_reported(block):
            raise ValueError(NOT_REPORTED)
        return ()
    listed = block.get("process_info")
    if not isinstance(listed, list):
        raise ValueError(NOT_IN_OUTPUT)  # the text's own list is not read
    gathered = []
    for info in listed:
        read, one = _Reader(info), Gathered()
        one.take("kind", read.text, "type")
        if "C" not in one.values.get("kind", "C"):  # graphics alone
            continue
        one.take("name", read.text, "process_name")
        one.take("used_mib", read.integer, "used_memory")
        name = one.values.get("name", "").split(" ")[0].rsplit("/", 1)[-1]
        gathered.append(Process(read.integer("pid"), name, one.values.get("used_mib")))
    return tuple(sorted(gathered, key=lambda process: process.pid))

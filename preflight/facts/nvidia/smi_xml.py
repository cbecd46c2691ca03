"""``nvidia-smi -q -x`` as :class:`GpuHealth`: the second source, and the only one where NVML cannot be called.

Elements are found by name; units stand inside the text (``67.03 W``, ``16x``, ``81559 MiB``). Names that
changed between R515 and R580 are listed side by side.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nvidia.model import NOT_REPORTED, Gathered, GpuFabric, GpuHealth, Health, Process
from preflight.textprep.plain_text import normalize_text

XML = "cmd:nvidia-smi -q -x"

#: Words that stand where a value should be: what the driver does not report, and what it could not tell.
_NOT_REPORTED = re.compile(r"\[?(?:N/A|Not Supported|Requested functionality has been deprecated)\]?", re.I)
_REFUSED = re.compile(r".*(?:error|lost|requires reset|insufficient permissions|not found|err!).*", re.I | re.S)

_UNIT = r"(?: ?(?:MiB|W|C|MHz|%|x|bank\(s\)))?"
_INTEGER = re.compile(rf"(-?[0-9]{{1,18}}){_UNIT}")
_REAL = re.compile(rf"(-?[0-9]{{1,15}}(?:\.[0-9]{{1,6}})?){_UNIT}")
_FLAG = {"enabled": True, "yes": True, "active": True, "disabled": False, "no": False, "not active": False}

_INTEGERS = {
    "memory_total_mib": "fb_memory_usage/total",
    "memory_reserved_mib": "fb_memory_usage/reserved",
    "memory_used_mib": "fb_memory_usage/used",
    "bar1_total_mib": "bar1_memory_usage/total",
    "remapped_corrected": "remapped_rows/remapped_row_corr",
    "remapped_uncorrected": "remapped_rows/remapped_row_unc",
    "retired_single": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired_double": "retired_pages/double_bit_retirement/retired_count",
    "temperature_c": "temperature/gpu_temp",
    "temperature_margin_c": "temperature/gpu_temp_tlimit",
    "temperature_slowdown_c": "temperature/gpu_temp_slow_threshold",
    "pcie_generation": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie_generation_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie_width": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie_width_max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "utilisation_pct": "utilization/gpu_util",
    "memory_utilisation_pct": "utilization/memory_util",
    "sm_clock_mhz": "clocks/sm_clock",
    "sm_clock_max_mhz": "max_clocks/sm_clock",
    "application_clock_mhz": "applications_clocks/graphics_clock",
    "application_clock_default_mhz": "default_applications_clocks/graphics_clock",
    "pcie_replays": "pci/replay_counter",
}

_FLAGS = {
    "persistence": "persistence_mode",
    "mig": "mig_mode/current_mig",
    "mig_pending": "mig_mode/pending_mig",
    "ecc": "ecc_mode/current_ecc",
    "ecc_pending": "ecc_mode/pending_ecc",
    "sram_threshold_exceeded": "ecc_errors/aggregate/sram_threshold_exceeded",
    "remap_pending": "remapped_rows/remapped_row_pending",
    "remap_failure": "remapped_rows/remapped_row_failure",
    "retired_pending": "retired_pages/pending_retirement|retired_pages/pending_blacklist",
}

_WATTS = {  # R535 renamed both the block and what is in it
    "power_limit_w": "gpu_power_readings/requested_power_limit|power_readings/power_limit",
    "power_enforced_w": "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit",
    "power_default_w": "gpu_power_readings/default_power_limit|power_readings/default_power_limit",
}

_TEXTS = {
    "name": "product_name",
    "vbios": "vbios_version",
    "inforom": "inforom_version/img_version",
    "gsp": "gsp_firmware_version",
    "serial": "serial",
    "compute_mode": "compute_mode",
    "recovery_action": "gpu_recovery_action",
}

#: Bit of the event reasons -> end of its element's name (clocks_throttle_reason_… until R530).
_REASONS = {
    0x01: "gpu_idle", 0x02: "applications_clocks_setting", 0x04: "sw_power_cap", 0x08: "hw_slowdown",
    0x10: "sync_boost", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown", 0x100: "display_clocks_setting",
}  # fmt: skip

#: What ``fabric/health`` names a fault by, in NVML's words; a value that is not one of the good ones is one.
_HEALTH = {
    "bandwidth": "degraded bandwidth",
    "route_recovery_in_progress": "route recovery in progress",
    "route_unhealthy": "route unhealthy",
    "access_timeout_recovery": "access timeout recovery",
}
#: Tags, of which eight GPUs have ten thousand.
_MOST_TAGS = 400_000

_HEALTHY = ("full", "false", "none", "healthy")


def read_health(evidence: Evidence) -> Health:
    """Return what nvidia-smi said; raises EvidenceError."""
    text = evidence.text(XML)
    try:
        return parse(text)
    except ValueError as error:
        raise EvidenceError(XML, f"cannot be read: {error}") from None


def parse(text: str) -> Health:
    """Read the document; raises ValueError naming the place at which it ends or breaks."""
    text = normalize_text(text)
    start = text.find("<nvidia_smi_log")
    if start < 0:
        first_line = next((line.strip() for line in text.split("\n") if line.strip()), "")
        raise ValueError(f"there is no <nvidia_smi_log>; the output begins {first_line[:100]!r}")
    if text.count("<") > _MOST_TAGS:
        raise ValueError(f"it has more than {_MOST_TAGS} tags")
    if "<!ENTITY" in text:
        raise ValueError("it declares entities, which nvidia-smi does not")
    end = text.rfind("</nvidia_smi_log>")
    body = text[start : end + len("</nvidia_smi_log>")] if end > start else text[start:]
    try:
        root = ElementTree.fromstring(body)
    except UnicodeError:
        raise ValueError("it holds bytes that are no text") from None
    except ElementTree.ParseError as error:
        raise ValueError(_broken(body, error.position[0])) from None
    version = root.findtext("driver_version", "").strip()
    if not re.fullmatch(r"[0-9]{3}(?:\.[0-9]{1,4}){1,2}", version):
        raise ValueError(f"the driver version is {version[:40]!r}")
    gpus, silent = [], []
    for index, element in enumerate(root.iterfind("gpu")):
        try:
            gpus.append(_gpu(element, index, version))
        except ValueError as error:
            silent.append(f"GPU {element.get('id', index)}: {error}"[:200])
    return Health(version, tuple(gpus), tuple(silent), (XML,))


def _broken(body: str, line: int) -> str:
    before = body.split("\n")[:line]
    last = re.findall(r'<gpu id="([^"\n]{1,40})"', "\n".join(before))
    place = f", in GPU {last[-1]}" if last else ""
    return f"the XML ends or breaks at line {line}{place}: {before[-1].strip()[:80]!r}"


def _gpu(element: Element, index: int, driver: str) -> GpuHealth:
    found, read = Gathered(), _Reader(element)
    for table, kind in (
        (_INTEGERS, read.integer), (_FLAGS, read.flag), (_WATTS, read.real), (_TEXTS, read.text),
    ):  # fmt: skip
        for name, path in table.items():
            found.take(name, kind, path)
    for span in ("volatile", "aggregate"):
        for severity in ("corrected", "uncorrected"):
            for memory in ("sram", "dram"):
                found.take(f"ecc_{span}_{memory}_{severity}", _ecc, read, span, memory, severity)
    found.take("remap_banks", _banks, read)
    found.take("event_reasons", _reasons, element)
    found.take("performance_state", _performance_state, read)
    found.take("fabric", _fabric, element)
    found.take("processes", _processes, element)
    return found.gpu(index, element.get("id", ""), read.text("uuid"), driver)


class _Reader:
    """Reads one element by path; a ValueError says why there is no value."""

    def __init__(self, element: Element) -> None:
        self._element = element

    def text(self, paths: str) -> str:
        """Return the text at the first of the paths (``new|old``) that is there."""
        for path in paths.split("|"):
            if (found := self._element.find(path)) is not None:
                value = " ".join((found.text or "").split())
                return _checked(value, path)
            while "/" in path:
                path = path.rpartition("/")[0]
                if _NOT_REPORTED.fullmatch((self._element.findtext(path) or "").strip()):
                    raise ValueError(NOT_REPORTED)  # a whole block says N/A
        raise ValueError("not in the output")

    def integer(self, paths: str) -> int:
        """Return an integer of any unit."""
        return int(self._match(_INTEGER, paths))

    def real(self, paths: str) -> float:
        """Return a number with a fraction."""
        return float(self._match(_REAL, paths))

    def flag(self, paths: str) -> bool:
        """Return a yes or no in any of the tool's words."""
        value = self.text(paths)
        if value.lower() not in _FLAG:
            raise ValueError(f"{paths} is {value[:40]!r}")
        return _FLAG[value.lower()]

    def _match(self, pattern: re.Pattern[str], paths: str) -> str:
        value = self.text(paths)
        if not (match := pattern.fullmatch(value)):
            raise ValueError(f"{paths} is {value[:40]!r}, not a number")
        return match[1]


def _checked(value: str, path: str) -> str:
    if _NOT_REPORTED.fullmatch(value):
        raise ValueError(NOT_REPORTED)
    if not value:
        raise ValueError(f"{path} is empty")
    if len(value) < 120 and _REFUSED.fullmatch(value):
        raise ValueError(value)
    return value


def _ecc(read: _Reader, span: str, memory: str, severity: str) -> int:
    """SRAM uncorrectable errors are one number until R535, parity and SEC-DED after it; Volta counts bits."""
    kind = "correctable" if severity == "corrected" else "uncorrectable"
    base = f"ecc_errors/{span}/{memory}_{kind}"
    try:
        if memory == "sram" and kind == "uncorrectable":
            return read.integer(f"{base}_parity") + read.integer(f"{base}_secded")
        return read.integer(base)
    except ValueError as error:
        if str(error) != "not in the output":
            raise
    if memory == "sram":
        return read.integer(base)
    return read.integer(f"ecc_errors/{span}/{'single' if severity == 'corrected' else 'double'}_bit/device_memory")


def _banks(read: _Reader) -> tuple[int, ...]:
    path = "remapped_rows/row_remapper_histogram"
    names = ("max", "high", "partial", "low", "none")
    return tuple(read.integer(f"{path}/row_remapper_histogram_{name}") for name in names)


def _reasons(element: Element) -> int:
    for block, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"), ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):  # fmt: skip
        if (found := element.find(block)) is None:
            continue
        read = _Reader(found)
        bits = {bit: prefix + name for bit, name in _REASONS.items() if found.find(prefix + name) is not None}
        if not bits:
            _checked((found.text or "").strip(), block)
            raise ValueError(f"{block} names no reason")
        return sum(bit for bit, name in bits.items() if read.flag(name))
    raise ValueError("not in the output")


def _performance_state(read: _Reader) -> int:
    value = read.text("performance_state")
    if not (match := re.fullmatch(r"P([0-9]{1,2})", value)):
        raise ValueError(f"performance_state is {value[:40]!r}")
    return int(match[1])


def _fabric(element: Element) -> GpuFabric:
    if (block := element.find("fabric")) is None:
        raise ValueError("not in the output")
    read = _Reader(block)
    optional = Gathered()
    optional.take("status", read.text, "status")
    optional.take("clique", read.integer, "cliqueId")
    optional.take("uuid", read.text, "clusterUuid")
    state = read.text("state")
    status = optional.values.get("status") or optional.absent["status"]
    uuid = optional.values.get("uuid", "")
    return GpuFabric(state, status, _faults(block), optional.values.get("clique"), uuid)


def _faults(block: Element) -> tuple[str, ...]:
    found: list[str] = []
    summary: list[str] = []
    for one in block.iterfind("health/*"):
        state = " ".join((one.text or "").split())
        if state and state.lower() not in _HEALTHY and not _NOT_REPORTED.fullmatch(state):
            named = _HEALTH.get(one.tag, f"{one.tag.replace('_', ' ')}: {state.lower()}")
            (summary if one.tag == "summary" else found).append(named)
    return tuple(found or summary)


def _processes(element: Element) -> tuple[Process, ...]:
    if (block := element.find("processes")) is None:
        raise ValueError("not in the output")
    if _NOT_REPORTED.fullmatch((block.text or "").strip()):
        raise ValueError(NOT_REPORTED)
    found = []
    for info in block.iterfind("process_info"):
        read, one = _Reader(info), Gathered()
        one.take("kind", read.text, "type")
        if "C" not in one.values.get("kind", "C"):  # graphics alone
            continue
        one.take("name", read.text, "process_name")
        one.take("used_mib", read.integer, "used_memory")
        name = one.values.get("name", "").split(" ")[0].rsplit("/", 1)[-1]
        found.append(Process(read.integer("pid"), name, one.values.get("used_mib")))
    return tuple(sorted(found, key=lambda process: process.pid))

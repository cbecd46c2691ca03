"""Judges of the metrics of dcgm-exporter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from preflight._startup.lightclass import replace
from preflight.checks.gpu import memory, state
from preflight.checks.gpu.link_errors import FEW, FEW_RECOVERIES
from preflight.checks.gpu.xid import XidContext, judge_xids
from preflight.facts.nvidia.link_errors import usual_replays_per_min
from preflight.facts.nvidia.model import GpuHealth, Health
from preflight.facts.xid import Events, XidEvent
from preflight.model import Finding, Status, clause, passed, unknown, warned
from preflight.parsers.nvidia.dcgm_metrics import DcgmMetrics, MeasuredGpu
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.devices import HOT_C
from preflight.recognition.judges.gpu import headroom, power_of_peers
from preflight.recognition.judges.lists import judge_number_of_gpus, limited

_FIELD = "DCGM_FI_DEV_"
#: Field of a GPU's health -> names of DCGM's fields; the first that is shown counts.
_FIELDS: dict[str, tuple[str, ...]] = {
    "ecc_volatile_dram_uncorrected": ("ECC_DBE_VOL_TOTAL",), "ecc_volatile_dram_corrected": ("ECC_SBE_VOL_TOTAL",),
    "ecc_aggregate_dram_uncorrected": ("ECC_DBE_AGG_TOTAL",), "ecc_aggregate_dram_corrected": ("ECC_SBE_AGG_TOTAL",),
    "remapped_uncorrected": ("UNCORRECTABLE_REMAPPED_ROWS",), "remapped_corrected": ("CORRECTABLE_REMAPPED_ROWS",),
    "remap_failure": ("ROW_REMAP_FAILURE",), "remap_pending": ("ROW_REMAP_PENDING",),
    "retired_single": ("RETIRED_SBE",), "retired_double": ("RETIRED_DBE",), "retired_pending": ("RETIRED_PENDING",),
    "event_reasons": ("CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS"), "temperature_c": ("GPU_TEMP",),
    "temperature_slowdown_c": ("SLOWDOWN_TEMP",), "power_enforced_w": ("ENFORCED_POWER_LIMIT", "POWER_MGMT_LIMIT"),
    "memory_used_mib": ("FB_USED",), "memory_total_mib": ("FB_TOTAL",), "pcie_width": ("PCIE_LINK_WIDTH",),
    "pcie_width_max": ("PCIE_MAX_LINK_WIDTH",), "pcie_generation": ("PCIE_LINK_GEN",),
    "pcie_generation_max": ("PCIE_MAX_LINK_GEN",), "utilisation_pct": ("GPU_UTIL",),
}  # fmt: skip
_FLAGS = frozenset({"remap_failure", "remap_pending", "retired_pending"})
#: Counters of NVLink errors of all links of a GPU; the last are links that trained again.
_LINK_ERRORS = ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
                "NVLINK_REPLAY_ERROR_COUNT_TOTAL")  # fmt: skip
_RECOVERIES = "NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
#: Time in µs for which heat or a faulty board slowed a GPU, and the least time that is reported.
_SLOWED = {"THERMAL_VIOLATION": "heat", "RELIABILITY_VIOLATION": "its reliability limit",
           "BOARD_LIMIT_VIOLATION": "the limit of its board"}  # fmt: skip
_LEAST_US = 1_000_000

_Core = Callable[[Health], Iterator[Finding]]


def _value(gpu: MeasuredGpu, name: str) -> float | None:
    return gpu.values.get(f"{_FIELD}{name}")


def _label(gpu: MeasuredGpu) -> str:
    return f"GPU{gpu.index}" if gpu.index >= 0 else gpu.uuid or "a GPU"


def _health_of(gpu: MeasuredGpu) -> GpuHealth:
    values: dict[str, Any] = {}
    for name, fields in _FIELDS.items():
        shown = (value for field in fields if (value := _value(gpu, field)) is not None)
        if (value := next(shown, None)) is not None:
            values[name] = bool(value) if name in _FLAGS else int(value)
    free = _value(gpu, "FB_FREE")
    if "memory_total_mib" not in values and free is not None and "memory_used_mib" in values:
        reserved = _value(gpu, "FB_RESERVED") or 0
        values["memory_total_mib"] = values["memory_used_mib"] + int(free) + int(reserved)
    return GpuHealth(gpu.index, gpu.address or _label(gpu), gpu.uuid, gpu.name or None, **values)


def _each_host(judge: Callable[[Sequence[MeasuredGpu], PastedValue], Iterator[Finding]]) -> Judge:
    """Return a judge that runs for the GPUs of each host."""

    def judge_hosts(part: PastedValue) -> Iterator[Finding]:
        metrics: DcgmMetrics = part.value
        by_host: dict[str, list[MeasuredGpu]] = defaultdict(list)
        for gpu in metrics.gpus:
            by_host[gpu.host].append(gpu)
        for host, gpus in by_host.items():
            for finding in judge(gpus, part):
                named = host and len(by_host) > 1
                yield replace(finding, message=f"{host}: {finding.message}") if named else finding

    return limited(judge_hosts)


def _of_health(core: _Core) -> Judge:
    """Return a judge that runs a check's core on the health of all GPUs of a host."""

    def judge_health(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
        health = Health("", tuple(map(_health_of, gpus)), (), part.evidence, pasted=True)
        yield from (finding for finding in core(health) if finding.status is not Status.SKIP)

    return _each_host(judge_health)


@_each_host
def _xids(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    events = tuple(
        XidEvent(0.0, gpu.address or _label(gpu), code, "", f"Xid {code}", line)
        for gpu in gpus for code, line in gpu.xids.items()
    )  # fmt: skip
    if events:
        yield from judge_xids(Events(events, ()), XidContext(part.evidence, pasted=True))
    elif any(f"{_FIELD}XID_ERRORS" in gpu.values for gpu in gpus) and part.in_full:
        yield passed(f"{clause(len(gpus), 'GPU', 'reports')} no Xid", evidence=part.evidence)


@_each_host
def _blanks(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    """Report metrics without a number, and those that only some GPUs have."""
    shown = {name for gpu in gpus for name, value in gpu.values.items() if value is not None}
    for gpu in gpus:
        blank = [name for name in sorted(shown) if gpu.values.get(name) is None]
        if blank:
            most = f", {len(blank)} in all" if len(blank) > 1 else ""
            yield unknown(f"{_label(gpu)} has no value of {blank[0]}{most} (line {gpu.line}); the other GPUs have: the "
                          "driver may not answer for it", subject=gpu.address or _label(gpu),
                          found=", ".join(blank[:8]), expected="values like its peers", evidence=part.evidence,
                          fix="`nvidia-smi`; `dmesg -T | grep -i xid`.")  # fmt: skip
    silent = sorted({name for gpu in gpus for name in gpu.values} - shown)
    if silent:
        yield unknown(
            f"{len(silent)} metrics have no value on any GPU: {', '.join(silent[:4])}{', …' if silent[4:] else ''}",
            found="NaN",
            expected="numbers",
            evidence=part.evidence,
            fix="The GPUs may not support them, or another tool profiles them: `dcgmi discovery -l`.",
        )
    indices = {gpu.index for gpu in gpus if gpu.index >= 0}
    if lost := sorted(set(range(max(indices, default=0))) - indices):
        names = ", ".join(map(str, lost))
        yield unknown(f"GPU {names} {'have' if len(lost) > 1 else 'has'} no metric, unlike GPU {max(indices)}: fallen "
                      "off the bus, or assigned to another exporter", found=len(indices), expected=max(indices) + 1,
                      evidence=part.evidence, fix="`nvidia-smi -L`; `dmesg -T | grep -i xid`.")  # fmt: skip


@_each_host
def _number(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    yield from judge_number_of_gpus(len(gpus), part.evidence)


@_each_host
def _links(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    counted = False
    bad = False
    for gpu in gpus:
        errors = {name: value for name in (*_LINK_ERRORS, _RECOVERIES) if (value := _value(gpu, name)) is not None}
        counted = counted or bool(errors)
        recoveries = errors.get(_RECOVERIES, 0)
        if sum(errors.values()) - recoveries > FEW or recoveries > FEW_RECOVERIES:
            bad = True
            shown = ", ".join(f"{name} {value:.0f}" for name, value in errors.items() if value)
            yield warned(f"{_label(gpu)}: {shown}", subject=gpu.address or _label(gpu), found=shown,
                         expected=f"at most {FEW} errors and {FEW_RECOVERIES} recoveries since the driver was loaded",
                         evidence=part.evidence)  # fmt: skip
    if counted and not bad and part.in_full:
        yield passed(f"{clause(len(gpus), 'GPU', 'has')} few NVLink errors", evidence=part.evidence)


@_each_host
def _replays(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    shown = [(gpu, value) for gpu in gpus if (value := _value(gpu, "PCIE_REPLAY_COUNTER")) is not None]
    many = 10 * (usual_replays_per_min(5, 16) or 0)
    for gpu, value in shown:
        if value > many:
            yield unknown(f"{_label(gpu)}: {value:.0f} PCIe replays since its reset, at an unknown time",
                          subject=gpu.address or _label(gpu), found=f"{value:.0f}",
                          expected="no growth between two scrapes", evidence=part.evidence)  # fmt: skip
    most = max((value for _, value in shown), default=0)
    if shown and most <= many and part.in_full:
        yield passed(f"at most {most:.0f} PCIe replays", evidence=part.evidence)


@_each_host
def _slowed(gpus: Sequence[MeasuredGpu], part: PastedValue) -> Iterator[Finding]:
    for gpu in gpus:
        for name, why in _SLOWED.items():
            if (time_us := _value(gpu, name)) is not None and time_us >= _LEAST_US:
                yield unknown(f"{_label(gpu)} was slowed by {why} for {time_us / 1e6:.1f} s, at an unknown time "
                              f"({name})", subject=gpu.address or _label(gpu), found=f"{time_us:.0f} µs",
                              expected="no growth between two scrapes", evidence=part.evidence,
                              fix="`nvidia-smi -q -d PERFORMANCE,TEMPERATURE` while the job runs.")  # fmt: skip


def _temperature(health: Health) -> Iterator[Finding]:
    yield from state.judge_temperature_margin(health)
    for gpu in health.gpus:
        if gpu.margin_c is None and gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
            yield warned(f"{gpu.label} is at {gpu.temperature_c} C", subject=gpu.address, found=gpu.temperature_c,
                         expected=f"below {HOT_C} C", evidence=health.evidence)  # fmt: skip


JUDGES: Judges = {
    "dcgm-exporter": (
        ("xid.gpu", _xids), ("gpu.driver", _blanks), ("gpu.count", _number),
        ("gpu.ecc-uncorrected", _of_health(memory.judge_ecc_uncorrected)),
        ("gpu.ecc-corrected", _of_health(memory.judge_ecc_corrected)),
        ("gpu.row-remap", _of_health(memory.judge_row_remap)),
        ("gpu.retired-pages", _of_health(memory.judge_retired_pages)),
        ("gpu.throttling", _of_health(state.judge_throttling)), ("gpu.throttling", _slowed),
        ("gpu.temperature-margin", _of_health(_temperature)), ("gpu.power-limit", _of_health(power_of_peers)),
        ("gpu.pcie-link", _of_health(state.judge_pcie_link)), ("gpu.memory-headroom", _of_health(headroom)),
        ("nvlink.errors", _links), ("pcie.replay", _replays),
    ),
}  # fmt: skip

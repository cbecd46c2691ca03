"""Judges of the ``nvidia-smi`` table, NVLink errors and services.

The fabric manager and ``nvbandwidth`` are included.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from preflight.checks.gpu import link_errors, state
from preflight.checks.gpu.memory import is_for_displays
from preflight.checks.gpu.processes import ORPHANED_MIB
from preflight.facts.nvidia.model import GpuHealth, Health
from preflight.facts.nvidia.smi_xml import bus_address
from preflight.model import Finding, each_of, failed, passed, some_of, unknown, verb, warned
from preflight.parsers.host.service_status import ServiceStatus
from preflight.parsers.nvidia.nvbandwidth import Bandwidths
from preflight.parsers.nvidia.nvlink_error_text import GpuErrors
from preflight.parsers.nvidia.nvlink_errors import by_kind
from preflight.parsers.nvidia.smi_table import SmiTable, TableGpu
from preflight.recognition.judges import Judged, Judges, PastedValue, lowered
from preflight.recognition.judges.hosts import driver as driver_on_hosts
from preflight.recognition.judges.lists import judge_memory_use, judge_number_of_gpus
from preflight.textprep.plain_text import ends_of

# --- nvidia-smi ---------------------------------------------------------------------------------------

#: Compute mode as abbreviated in the table -> its full name.
_MODES = {
    "Default": "Default",
    "E. Process": "Exclusive_Process",
    "Prohibited": "Prohibited",
    "E. Thread": "Exclusive_Thread",
}


def _health(part: PastedValue) -> Health:
    table: SmiTable = part.value
    gpus = tuple(map(_gpu, (gpu for gpu in table.gpus if not _silent(gpu))))
    return Health(table.driver or "", gpus, (), part.evidence, pasted=True)


def _silent(gpu: TableGpu) -> bool:
    """Return whether a GPU is lost, requires a reset, or shows several errors."""
    return not {"GPU is lost", "GPU requires reset"}.isdisjoint(gpu.errors) or len(gpu.errors) >= 2


def _gpu(gpu: TableGpu) -> GpuHealth:
    return GpuHealth(
        gpu.index, bus_address(gpu.address), "", name=gpu.name, persistence=gpu.persistence,
        memory_total_mib=gpu.memory_total_mib, memory_used_mib=gpu.memory_used_mib, mig=gpu.mig, mig_pending=gpu.mig,
        temperature_c=gpu.temperature_c, utilisation_pct=gpu.utilisation_pct,
        compute_mode=None if gpu.compute_mode is None else _MODES.get(gpu.compute_mode, gpu.compute_mode),
    )  # fmt: skip


def _answers(part: PastedValue) -> Iterator[Finding]:
    table: SmiTable = part.value
    bad = [gpu for gpu in table.gpus if gpu.errors]
    for gpu in bad:
        words = ", ".join(dict.fromkeys(gpu.errors))
        report = failed if _silent(gpu) else unknown
        yield report(
            f"GPU{gpu.index} ({gpu.address}) shows {words} instead of values", subject=bus_address(gpu.address),
            found=words, expected="values", evidence=part.evidence,
            fix="Drain the node; `dmesg | grep -i xid`; reset the GPU, and reseat or replace it if the error persists.",
        )  # fmt: skip
    numbers = [gpu.index for gpu in table.gpus]
    if lacking := sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers)):
        yield unknown(
            f"missing from the table: GPU {', '.join(map(str, lacking))}",
            found=len(numbers),
            evidence=part.evidence,
            fix="Paste the complete table, or `nvidia-smi -L` and `dmesg`.",
        )
    elif table.gpus and not bad:
        yield passed(f"{each_of(len(table.gpus), 'GPU')} in the table answers", evidence=part.evidence)


def _number(part: PastedValue) -> Iterator[Finding]:
    return judge_number_of_gpus(len(part.value.gpus), part.evidence)


def _uncorrectable(part: PastedValue) -> Iterator[Finding]:
    gpus: tuple[TableGpu, ...] = part.value.gpus
    for gpu in gpus:
        if gpu.uncorrectable:
            yield failed(
                f"GPU{gpu.index}: {gpu.uncorrectable} uncorrectable memory errors since the driver was loaded",
                subject=bus_address(gpu.address), found=gpu.uncorrectable, expected="0", evidence=part.evidence,
            )  # fmt: skip
    counted = [gpu for gpu in gpus if gpu.uncorrectable is not None]
    if counted and not any(gpu.uncorrectable for gpu in counted):
        yield passed(
            f"{some_of(len(counted), len(gpus), 'GPU')} {verb(len(counted), 'has')} no uncorrectable memory errors",
            evidence=part.evidence,
        )


def _ecc_off(part: PastedValue) -> Iterator[Finding]:
    off = [f"GPU{gpu.index}" for gpu in part.value.gpus if gpu.ecc_off and not is_for_displays(gpu.name)]
    if off:
        yield warned(f"ECC is off on {', '.join(off)}", found="off", expected="on", evidence=part.evidence)


def _settings(part: PastedValue) -> Iterator[Finding]:
    yield from state.judge_persistence(_health(part))


def _mig(part: PastedValue) -> Iterator[Finding]:
    health = _health(part)
    if any(gpu.mig is not None for gpu in health.gpus):
        yield from lowered(
            state.judge_mig(Health("", tuple(gpu for gpu in health.gpus if gpu.mig is not None), (), part.evidence,
                                   pasted=True))
        )  # fmt: skip


def _mode(part: PastedValue) -> Iterator[Finding]:
    yield from lowered(state.judge_compute_mode(_health(part)))


def _memory(part: PastedValue) -> Iterator[Finding]:
    table: SmiTable = part.value
    owners = {gpu for gpu, *_ in table.processes}
    full = False
    for gpu in table.gpus:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is None or not total:
            continue
        judged = list(judge_memory_use(
            f"GPU{gpu.index}", bus_address(gpu.address), used, total, part.evidence, gpu.utilisation_pct
        ))  # fmt: skip
        if judged:
            full = True
            yield from judged
        elif table.processes_shown and used > ORPHANED_MIB and gpu.index not in owners and not gpu.utilisation_pct:
            full = True
            yield warned(
                f"GPU{gpu.index}: {used} MiB are used, but the table shows no process that uses them",
                subject=bus_address(gpu.address),
                found=f"{used} of {total} MiB",
                evidence=part.evidence,
                fix="`fuser -v /dev/nvidia*` as root names the process; in a container it is hidden.",
            )
    if not full and any(gpu.memory_total_mib for gpu in table.gpus):
        yield passed("no GPU's memory is full", evidence=part.evidence)


def _power(part: PastedValue) -> Iterator[Finding]:
    """Compare the power caps of GPUs with the same name."""
    by_name: dict[str, dict[int, int]] = {}
    for gpu in part.value.gpus:
        if gpu.power_cap_w is not None:
            by_name.setdefault(gpu.name, {})[gpu.index] = gpu.power_cap_w
    for caps in by_name.values():
        most = max(caps.values())
        for index, cap in caps.items():
            if cap < most:
                yield warned(
                    f"GPU{index} is capped at {cap} W, its peers at {most} W",
                    subject=f"GPU{index}",
                    found=f"{cap} W",
                    expected=f"{most} W, like its peers",
                    evidence=part.evidence,
                )


#: Temperature in degrees Celsius at which a data-center GPU counts as close to its slowdown: a judgement call, since
#: the A100 slows down at 89 to 95.
HOT_C = 85


def _temperature(part: PastedValue) -> Iterator[Finding]:
    for gpu in part.value.gpus:
        if gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
            yield warned(f"GPU{gpu.index} is at {gpu.temperature_c} C", subject=bus_address(gpu.address),
                         found=gpu.temperature_c, expected=f"below {HOT_C} C", evidence=part.evidence)  # fmt: skip


_TABLE: Judged = (
    ("gpu.driver", _answers), ("gpu.count", _number), ("gpu.ecc-uncorrected", _uncorrectable),
    ("gpu.ecc-mode", _ecc_off), ("gpu.persistence", _settings), ("gpu.mig", _mig), ("gpu.compute-mode", _mode),
    ("gpu.memory-headroom", _memory), ("gpu.power-limit", _power), ("gpu.temperature-margin", _temperature),
    ("fleet.driver-equal", driver_on_hosts(lambda table: table.driver)),
)  # fmt: skip


def _link_errors(part: PastedValue) -> Iterator[Finding]:
    gpus: tuple[GpuErrors, ...] = part.value
    counts = {gpu.uuid or f"GPU{gpu.index}": by_kind(gpu.links) for gpu in gpus}
    names = {gpu.uuid or f"GPU{gpu.index}": (f"GPU{gpu.index}", f"GPU{gpu.index}") for gpu in gpus}
    yield from link_errors.judge_nvlink_errors(counts, names, part.evidence)


# --- services and benchmarks ----------------------------------------------------------------------------


def _service(status: ServiceStatus) -> Judged:
    return (("nvlink.imex" if "imex" in status.unit else "nvlink.fabric-manager", _unit),)


def _unit(part: PastedValue) -> Iterator[Finding]:
    status: ServiceStatus = part.value
    on = f"{status.host}: " if status.host else ""
    if status.active is None:
        return
    trouble = status.troubles[0] if status.troubles else None
    trouble_text = f"; line {trouble[0]}: {trouble[1][:160]}" if trouble else ""
    if status.active == "active":
        if trouble:
            yield warned(f"{on}{status.unit} is active{trouble_text}", found=trouble[1][:200], evidence=part.evidence)
        else:
            yield passed(f"{on}{status.unit} is active", evidence=part.evidence)
    elif status.active == "activating":
        yield unknown(f"{on}{status.unit} is starting{trouble_text}", found=status.active, expected="active",
                      evidence=part.evidence,
                      fix=f"Run `systemctl status {status.unit}` again in a minute.")  # fmt: skip
    elif status.active == "failed" or trouble:
        yield failed(f"{on}{status.unit} is {status.active}{trouble_text}", found=status.active, expected="active",
                     evidence=part.evidence)  # fmt: skip
    else:
        state = "not installed" if status.loaded == "not-found" else status.active
        yield warned(f"{on}{status.unit} is {state}, but machines with NVSwitches need it", found=state,
                     expected="active", evidence=part.evidence)  # fmt: skip


def _any_unit(part: PastedValue) -> Iterator[Finding]:
    """Judge a unit that jobs may or may not need."""
    status: ServiceStatus = part.value
    if status.active is None:
        return
    on = f"{status.host}: " if status.host else ""
    trouble = status.cause
    words = f"; line {trouble[0]}: {ends_of(trouble[1], 200)}" if trouble else ""
    restarts = status.active == "activating" and status.sub_state == "auto-restart"
    if status.active == "failed" or restarts:
        how = f" ({status.result})" if status.result else ""
        yield failed(f"{on}{status.unit} {'fails and restarts repeatedly' if restarts else 'failed'}{how}{words}",
                     subject=status.unit, found=status.active, expected="active", evidence=part.evidence,
                     fix=f"`journalctl -u {status.unit} | tail -50` has the first error.")  # fmt: skip
    elif status.active == "active" and not trouble:
        yield passed(f"{on}{status.unit} is active", evidence=part.evidence)
    else:
        state = "not installed" if status.loaded == "not-found" else status.active
        yield unknown(f"{on}{status.unit} is {state}{words}", subject=status.unit, found=state, expected="active",
                      evidence=part.evidence, fix="Check whether jobs on this machine need the unit.")  # fmt: skip


#: A copy below this share of its test's median is slow: a judgement call, since healthy copies differ by 2 to 3%.
_SLOW = 0.8


def _copies(part: PastedValue) -> Iterator[Finding]:
    run: Bandwidths = part.value
    bad = False
    for line, text in run.errors:
        bad = True
        yield failed(f"nvbandwidth: {text[:160]} (line {line})", found=text[:200], evidence=part.evidence)
    for test in run.tests:
        cells = {(row, column): value for row, values in test.rows.items() for column, value in enumerate(values)
                 if value is not None}  # fmt: skip
        if test.unit != "GB/s" or len(cells) < 3:
            continue
        usual = median(cells.values())
        if slow := {place: value for place, value in cells.items() if value < _SLOW * usual}:
            bad = True
            (row, column), value = min(slow.items(), key=lambda item: item[1])
            yield warned(
                f"{test.name}: {len(slow)} of {len(cells)} copies are slow, {row} to {column} at "
                f"{value:g} GB/s compared with {usual:g} (line {test.line})",
                found=f"{value:g} GB/s",
                expected=f"{usual:g} GB/s, the median",
                evidence=part.evidence,
                fix="`nvidia-smi topo -m`, `nvidia-smi -q -d PERFORMANCE`; check PCIe links, NVLinks and CPU binding.",
            )
    measured = [test for test in run.tests if not test.waived]
    if measured and not bad:
        yield passed(f"nvbandwidth: the copies of {len(measured)} tests have similar rates", evidence=part.evidence)


JUDGES: Judges = {
    "nvidia-smi": _TABLE,
    "nvidia-smi nvlink -e": (("nvlink.errors", _link_errors),),
    "fabricmanager status": _service,
    "systemctl status": (("host.failed-units", _any_unit),),
    "nvbandwidth": (("gpu.pcie-link", _copies),),
}

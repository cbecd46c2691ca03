"""Judges of GPU monitoring, processes, MIG and the fabric manager's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from preflight.checks.job.gpu_activity import judge_activity
from preflight.facts.nvidia.activity import of_rows
from preflight.model import Finding, Status, clause, failed, none_of, passed, unknown, verb, warned
from preflight.parsers.nvidia.dcgm_stats import GpuStats
from preflight.parsers.nvidia.fabric_manager_log import FabricManagerLog
from preflight.parsers.nvidia.mig_tables import MigTable
from preflight.parsers.nvidia.monitor_rows import MonitorRow, largest
from preflight.parsers.nvidia.process_rows import GpuProcess
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.devices import HOT_C
from preflight.recognition.judges.lists import limited

#: Memory temperature in degrees Celsius at which HBM parts slow down (nvidia-smi -q, "Memory Max Operating Temp").
_HOT_MEMORY_C = 95

Rows = tuple[MonitorRow, ...]


def _maximum(column: str, limit: float) -> Judge:
    """Return a judge that reports GPUs whose largest value is above a limit."""
    meaning, fault = _COLUMNS[column]

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        rows: Rows = part.value
        values = list(largest(rows, column))
        high = [(gpu, value, line) for gpu, value, line in values if value > limit]
        for gpu, value, line in high:
            yield fault(f"GPU{gpu}: {meaning}: {column} {value:g} (line {line})", subject=f"GPU{gpu}",
                        found=f"{value:g}", expected=f"at most {limit:g}", evidence=part.evidence)  # fmt: skip
        if values and not high and part.complete:
            yield passed(f"{len(values)} GPUs: {column} is at most {limit:g} in {len(rows)} readings",
                         evidence=part.evidence)  # fmt: skip

    return limited(judge_part)


#: Column of ``nvidia-smi dmon`` or ``dcgmi dmon`` -> message about its fault, and kind of finding.
_COLUMNS = {
    "tviol": ("slowed down by its temperature", warned),
    "pviol": ("per cent of the time at its power limit, which is usual under full load", unknown),
    "dbecc": ("uncorrectable memory errors", failed),
    "sbecc": ("corrected memory errors; a single reading does not show the period", unknown),
    "pci": ("PCIe replays; a single reading does not show the period", unknown),
    "gtemp": ("high temperature, Celsius", warned),
    "mtemp": ("high memory temperature, Celsius", warned),
    "tmptr": ("high temperature, Celsius", warned),
    "xider": ("the last Xid that the driver counted", warned),
}  # fmt: skip


#: Check, row of ``dcgmi stats`` that counts the same fault, and kind of finding.
_STATS = (
    ("gpu.ecc-uncorrected", "Double Bit ECC Errors", failed), ("xid.gpu", "Critical XID Errors", warned),
    ("gpu.ecc-corrected", "Single Bit ECC Errors", unknown), ("pcie.replay", "PCIe Replay Warnings", unknown),
    ("gpu.throttling", "Due to Thermal (%)", warned), ("gpu.throttling", "Due to Power (%)", unknown),
    ("gpu.throttling", "Due to Reliability (%)", unknown), ("gpu.throttling", "Due to Board Limit (%)", unknown),
)  # fmt: skip


def _counted(name: str, report: Callable[..., Finding]) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        stats: GpuStats = part.value
        value = stats.number(name)
        if value:
            yield report(f"GPU {stats.gpu}: {name}: {value:g} while the job ran", subject=f"GPU {stats.gpu}",
                         found=f"{value:g}", expected="0", evidence=part.evidence)  # fmt: skip
        elif value == 0 and part.complete:
            yield passed(f"GPU {stats.gpu}: {name} did not occur while the job ran", evidence=part.evidence)

    return judge_part


def _health(part: PastedValue) -> Iterator[Finding]:
    stats: GpuStats = part.value
    word = next((rows["Overall Health"] for rows in stats.sections.values() if "Overall Health" in rows), "")
    if word and not word.startswith(("Healthy", "N/A")):
        yield warned(f"GPU {stats.gpu}: overall health {word}", subject=f"GPU {stats.gpu}", found=word,
                     expected="Healthy", evidence=part.evidence)  # fmt: skip


def _processes(part: PastedValue) -> Iterator[Finding]:
    processes: Sequence[GpuProcess] = part.value
    gone = [item for item in processes if "Not Found" in item.name]
    for item in gone[:8]:
        yield warned(
            f"process {item.pid} uses {item.used_mib or '?'} MiB of a GPU but is gone, or is "
            f"in another namespace (line {item.line})",
            subject=item.gpu,
            found=item.name,
            expected="a running process",
            evidence=part.evidence,
            fix="Run `fuser -v /dev/nvidia*` as root; reset the GPU if no process uses it.",
        )
    held = [item for item in processes if item not in gone]
    if held:
        names = ", ".join(f"{item.pid} {item.name.rpartition('/')[2]}" for item in held[:6])
        users = clause(len(held), "process", "uses")
        yield unknown(f"{users} GPUs: {names}; the text does not show whether a job runs", found=len(held),
                      expected="none before a job starts", evidence=part.evidence)  # fmt: skip
    elif not processes and part.complete:
        yield passed("no process uses a GPU", evidence=part.evidence)


def _mig(part: PastedValue) -> Iterator[Finding]:
    table: MigTable = part.value
    if gpus := sorted({row.gpu for row in table.rows}):
        listed = ", ".join(f"GPU{gpu}" for gpu in gpus[:16])
        yield warned(
            f"{listed} {verb(len(gpus), 'is')} partitioned into MIG instances, which have no NVLink and no P2P",
            subject=f"GPU{gpus[0]}",
            found=f"{len(table.rows)} {table.what}",
            expected="none for training",
            evidence=part.evidence,
        )
    elif part.complete:
        yield passed("no GPU is partitioned into MIG instances", evidence=part.evidence)


#: Words of the fabric manager's errors after which GPUs have no NVLink.
_FATAL = (
    "fatal error",
    "abort",
    "failed to",
    "not initialize",
    "degraded",
    "exiting",
    "version mismatch",
    "don't match",
)


@limited
def _fabric_manager(part: PastedValue) -> Iterator[Finding]:
    log: FabricManagerLog = part.value
    for trouble in log.troubles:
        words = trouble.text.lower()
        fatal = trouble.level in ("FATAL", "CRITICAL") or (
            any(word in words for word in _FATAL) and "non-fatal" not in words and trouble.level == "ERROR"
        )
        report = failed if fatal else warned
        yield report(f"the fabric manager logged {trouble.level}: {trouble.text[:200]} (line {trouble.line})",
                     found=trouble.text[:200], expected="no error", evidence=part.evidence,
                     fix="`systemctl status nvidia-fabricmanager`; `dmesg | grep -i -e nvswitch -e sxid`; "
                     "`nvidia-smi nvlink -s`.")  # fmt: skip
    if log.lines and not log.troubles and part.complete:
        yield passed(f"{log.lines} lines of the fabric manager report no error", evidence=part.evidence)


def _activity(part: PastedValue) -> Iterator[Finding]:
    """Judge the activity of SMs.

    An *unknown* finding is dropped if the table has other columns.
    """
    rows: Sequence[MonitorRow] = part.value
    gpus = of_rows(rows)
    alone = all(row.values.keys() <= {"smact", "tenso"} for row in rows)
    if alone and not gpus:
        yield unknown(f"{none_of(len(rows), 'reading')} has a value of the SM activity", found="N/A",
                      evidence=part.evidence, fix="Check `dcgmi profile --list`, and that no profiler uses the "
                      "counters.")  # fmt: skip
    for finding in judge_activity(gpus, part.evidence):
        if alone or finding.status is not Status.UNKNOWN:
            yield finding


JUDGES: Judges = {
    "nvidia-smi mig": (("gpu.mig", _mig),),
    "nvidia-smi --query-compute-apps": (("gpu.left-over-processes", _processes),),
    "nvidia-smi dmon": (
        ("xid.gpu", _maximum("xider", 0)), ("gpu.ecc-uncorrected", _maximum("dbecc", 0)),
        ("gpu.ecc-corrected", _maximum("sbecc", 0)), ("gpu.throttling", _maximum("tviol", 0)),
        ("gpu.throttling", _maximum("pviol", 0)), ("gpu.temperature-margin", _maximum("gtemp", HOT_C - 1)),
        ("gpu.temperature-margin", _maximum("mtemp", _HOT_MEMORY_C - 1)),
        ("gpu.temperature-margin", _maximum("tmptr", HOT_C - 1)), ("pcie.replay", _maximum("pci", 0)),
        ("gpu.sm-activity", _activity),
    ),
    "dcgmi stats": (
        *((check, _counted(name, report)) for check, name, report in _STATS), ("gpu.driver", _health),
    ),
    "fabricmanager log": (("nvlink.fabric-manager", _fabric_manager),),
}  # fmt: skip

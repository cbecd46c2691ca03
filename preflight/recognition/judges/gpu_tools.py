"""Judges of GPU monitoring, kernel modules and settings, and files of sysfs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from preflight.checks.host.kernel import judge_numa_balancing
from preflight.checks.job.gpu_activity import judge_activity
from preflight.checks.rdma.counter_totals import TOLERATED
from preflight.facts.counter_catalogue import CounterKind
from preflight.facts.nvidia.activity import of_rows
from preflight.model import Finding, Status, all_of, clause, counted, failed, passed, unknown, warned
from preflight.parsers.host.module_list import ModuleList
from preflight.parsers.host.sysctl import KernelSettings
from preflight.parsers.host.sysfs_files import SysfsFiles
from preflight.parsers.nvidia.dcgm_stats import GpuStats
from preflight.parsers.nvidia.fabric_manager_log import FabricManagerLog
from preflight.parsers.nvidia.mig_tables import MigTable
from preflight.parsers.nvidia.monitor_rows import MonitorRow, largest
from preflight.parsers.nvidia.process_rows import GpuProcess
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.devices import HOT_C
from preflight.recognition.judges.lists import limited, unsure

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
            yield passed(f"GPU {stats.gpu}: {name}: none while the job ran", evidence=part.evidence)

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
            f"{listed}: partitioned into MIG instances, which have no NVLink and no P2P",
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


# --- the kernel ---------------------------------------------------------------------------------------

#: Modules that let RDMA devices of any vendor access GPU memory.
_PEER = frozenset({"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem", "amdgpu"})
_RDMA = frozenset({"mlx5_ib", "bnxt_re", "irdma", "ionic_rdma", "efa", "mlx4_ib", "hfi1"})
#: NIC drivers -> their RDMA modules.
_RDMA_OF = {"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re"}


def _peer_memory(part: PastedValue) -> Iterator[Finding]:
    loaded = part.value.modules.keys()
    if loaded & _PEER:
        yield passed(f"{', '.join(sorted(loaded & _PEER))} is loaded", evidence=part.evidence)
    elif "nvidia" in loaded and loaded & (_RDMA | {"ib_core", "mlx5_core"}):
        yield unknown(
            "nvidia_peermem is not in the list: RDMA can access GPU memory only by DMA-BUF, which "
            "needs the open kernel modules and kernel 5.12",
            found="not loaded",
            expected="nvidia_peermem, or DMA-BUF",
            evidence=part.evidence,
            fix='`modprobe nvidia-peermem`, or look for "DMA-BUF is available" in the job\'s NCCL log.',
        )


def _modules(part: PastedValue) -> Iterator[Finding]:
    listed: ModuleList = part.value
    loaded = listed.modules
    bad = False
    if "nouveau" in loaded:
        bad = True
        yield warned("nouveau is loaded: it uses the GPUs, so NVIDIA's driver cannot use them", subject="nouveau",
                     found="loaded", expected="blacklisted", evidence=part.evidence,
                     fix="Blacklist it in /etc/modprobe.d, rebuild the initramfs, and reboot.")  # fmt: skip
    using = {user for module in loaded.values() for user in module.used_by}
    for driver, rdma in _RDMA_OF.items():
        if driver in loaded and rdma not in loaded.keys() | using:
            bad = True
            yield unknown(f"{driver} is loaded, but {rdma} is not in the list: the NIC has no RDMA device",
                          subject=rdma, found="not in the list", expected="loaded", evidence=part.evidence,
                          fix=f"`modprobe {rdma}`.")  # fmt: skip
    if loaded.keys() & _RDMA and "ib_uverbs" not in loaded.keys() | using:
        bad = True
        yield unknown("ib_uverbs is not in the list: without it, no program can use RDMA", subject="ib_uverbs",
                      found="not in the list", expected="loaded", evidence=part.evidence,
                      fix="`modprobe ib_uverbs`.")  # fmt: skip
    needed = loaded.keys() & (_RDMA | _PEER | {"nvidia", "nvidia_uvm", "ib_core"})
    if needed and not bad and part.complete:
        yield passed(f"the needed modules are loaded: {', '.join(sorted(needed))}", evidence=part.evidence)


def _balancing(part: PastedValue) -> Iterator[Finding]:
    settings: KernelSettings = part.value
    value = settings.values.get("kernel.numa_balancing", "")
    if value.isdecimal() and len(value) < 4:
        yield judge_numa_balancing(int(value), part.evidence)


def _arp(part: PastedValue) -> Iterator[Finding]:
    """Report ARP and filter settings that do not suit rails in one subnet."""
    settings: KernelSettings = part.value
    shown: dict[str, list[str]] = defaultdict(list)
    for name, value in settings.values.items():
        scope, _, last = name.rpartition(".")
        if scope.startswith("net.ipv4.conf.") and last in _ARP:
            shown[last].append(f"{scope.removeprefix('net.ipv4.conf.')}={value}")
    calm = bool(shown)
    for name, places in shown.items():
        good, meaning = _ARP[name]
        if odd := [place for place in places if place.rpartition("=")[2] not in good]:
            calm = False
            yield unknown(
                f"{name}: {', '.join(odd[:8])}: {meaning}",
                subject=name,
                found=", ".join(odd[:8]),
                expected=f"{' or '.join(good)}, or a subnet for each rail",
                evidence=part.evidence,
            )
    if calm and part.complete:
        yield passed(f"{', '.join(shown)} suit rails that share a subnet", evidence=part.evidence)


_ARP = {
    "rp_filter": (("0", "2"), "a strict filter drops packets that arrive on a different rail than the reply would use"),
    "arp_ignore": (("1", "2"), "rails in one subnet answer ARP for each other"),
    "arp_announce": (("2",), "rails in one subnet announce each other's addresses"),
}


def _port_range(part: PastedValue) -> Iterator[Finding]:
    words = part.value.values.get("net.ipv4.ip_local_port_range", "").split()
    if len(words) == 2 and all(word.isdecimal() and len(word) < 7 for word in words):
        count = int(words[1]) - int(words[0]) + 1
        if count < _FEW_PORTS:
            yield warned(f"{max(count, 0)} ephemeral ports ({words[0]} to {words[1]})", found=count,
                         expected=f"at least {_FEW_PORTS}", evidence=part.evidence)  # fmt: skip
        else:
            yield passed(f"{count} ephemeral ports", found=str(count), evidence=part.evidence)


#: Number of ephemeral ports below which large jobs fail at start: the floor of host.local-ports.
_FEW_PORTS = 10_000


# --- files of /sys ------------------------------------------------------------------------------------


def _folders(part: PastedValue, inside: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each folder whose path contains ``inside``: path, last name, files."""
    files: SysfsFiles = part.value
    for folder, contents in files.by_folder().items():
        if inside in folder:
            yield folder, folder.rpartition("/")[2], dict(contents)


@limited
def _slots(part: PastedValue) -> Iterator[Finding]:
    """Compare the width and the speed of each PCIe link with its maximum."""
    good = 0
    for _, name, files in _folders(part, "/"):
        pairs = [
            (files.get(f"current_link_{what}"), files.get(f"max_link_{what}"), what) for what in ("width", "speed")
        ]
        shown = [(now, most, what) for now, most, what in pairs if now and most]
        odd = [(now, most, what) for now, most, what in shown if _number(now) < _number(most)]
        for now, most, what in odd:
            fault = warned if what == "width" else unknown
            rest = "" if what == "width" else "; idle GPUs run at a lower speed"
            yield fault(
                f"{name}: the PCIe link's {what} is {now}, its maximum is {most}{rest}",
                subject=name,
                found=now,
                expected=most,
                evidence=part.evidence,
            )
        good += bool(shown) and not odd
    if good and part.complete:
        yield passed(f"{good} PCIe links run at their maximum", evidence=part.evidence)


def _number(text: str) -> float:
    words = text.split()
    try:
        return float(words[0].lstrip("x"))
    except (IndexError, ValueError):
        return 0.0


@limited
def _carriers(part: PastedValue) -> Iterator[Finding]:
    """Look for interfaces without a link."""
    good = 0
    for _, name, files in _folders(part, "/net/"):
        state, carrier = files.get("operstate"), files.get("carrier")
        if state in ("down", "lowerlayerdown") or carrier == "0":
            yield unsure(f"{name} has no link (operstate {state or 'not shown'}, carrier {carrier or 'not shown'})",
                         subject=name, found=state or "carrier 0", expected="up", evidence=part.evidence)  # fmt: skip
        elif state == "up" or carrier == "1":
            good += 1
    if good and part.complete:
        yield passed(f"link on {counted(good, 'interface')}", evidence=part.evidence)


@limited
def _flaps(part: PastedValue) -> Iterator[Finding]:
    for _, name, files in _folders(part, "/net/"):
        downs = files.get("carrier_down_count", "")
        if downs.isdecimal() and len(downs) < 12 and int(downs) > TOLERATED[CounterKind.FLAP]:
            yield unknown(
                f"{name} lost its link {downs} times since it was created; a single reading does not show the period",
                subject=name,
                found=downs,
                expected="no growth between two readings",
                evidence=part.evidence,
            )


#: Folders of the ends of congestion control -> what an end does if it is on.
_ENDS = {"roce_np": "answers marked packets", "roce_rp": "slows down when notified"}


@limited
def _congestion_control(part: PastedValue) -> Iterator[Finding]:
    """Report priorities for which congestion control by ECN is off; RoCE may use them."""
    files: SysfsFiles = part.value
    on = 0
    for path, value in files.contents.items():
        interface, _, setting = path.partition("/ecn/")
        end, _, priority = setting.partition("/enable/")
        name = interface.rpartition("/")[2]
        if end not in _ENDS or not priority.isdecimal() or value not in ("0", "1"):
            continue
        on += value == "1"
        if value == "0":
            yield unknown(f"{name}: congestion control is off for priority {priority} ({end}, which {_ENDS[end]}): a "
                          "fault if RoCE uses this priority", subject=name, found=f"{end} 0", expected="1",
                          evidence=part.evidence,
                          fix=f"`echo 1 > {interface}/ecn/{end}/enable/{priority}`, on all nodes.")  # fmt: skip
    if on and part.complete:
        yield passed(f"congestion control is on for {on} of the listed settings", evidence=part.evidence)


def _governors(part: PastedValue) -> Iterator[Finding]:
    """Compare the governors of the listed CPUs with ``performance``."""
    files: SysfsFiles = part.value
    governors = [value for path, value in files.contents.items() if path.endswith("/scaling_governor")]
    odd = [value for value in governors if value != "performance"]
    if odd:
        names = ", ".join(sorted(set(odd)))
        yield warned(f"governor {names} on {len(odd)} of {len(governors)} CPUs, expected performance", found=names,
                     expected="performance", evidence=part.evidence,
                     fix="`cpupower frequency-set -g performance`.")  # fmt: skip
    elif governors:
        yield passed(f"governor performance on {all_of(len(governors), 'CPU')}", evidence=part.evidence)


#: Limits of a control group -> their meaning; a CPU limit is a quota and a period in microseconds.
_OF_GROUP = {
    "memory.max": "bytes of memory, which data loaders and pinned buffers share",
    "cpu.max": "us of CPU time per period, so data loaders may be throttled",
    "pids.max": "processes and threads: each rank starts hundreds",
}


def _control_group(part: PastedValue) -> Iterator[Finding]:
    """Report a control group's limits; whether they are intended is unknown."""
    good = 0
    for folder, _, files in _folders(part, "/fs/cgroup"):
        for name in (name for name in _OF_GROUP if name in files):
            limit = files[name].split()[0]
            if limit == "max":
                good += 1
                continue
            yield unknown(f"{folder}/{name}: {files[name]}: {_OF_GROUP[name]}", subject=name, found=files[name],
                          expected="max, or what the job needs", evidence=part.evidence,
                          fix="Raise the limit in the pod or job (limits, `--mem`, `--cpus-per-task`) if the job needs"
                          " more.")  # fmt: skip
    if good and part.complete:
        yield passed(f"control group limits that are off (max): {good}", evidence=part.evidence)


def _activity(part: PastedValue) -> Iterator[Finding]:
    """Judge the activity of SMs.

    An *unknown* finding is dropped if the table has other columns.
    """
    rows: Sequence[MonitorRow] = part.value
    gpus = of_rows(rows)
    alone = all(row.values.keys() <= {"smact", "tenso"} for row in rows)
    if alone and not gpus:
        yield unknown(f"none of {counted(len(rows), 'reading')} has a value of the SM activity", found="N/A",
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
    "lsmod": (("gpudirect.peer-memory", _peer_memory), ("kernel.modules", _modules)),
    "sysctl": (("kernel.numa-balancing", _balancing), ("rails.subnets", _arp), ("host.local-ports", _port_range)),
    "sysfs": (
        ("kernel.cpu-governor", _governors), ("gpu.pcie-link", _slots), ("rdma.port-state", _carriers),
        ("counters.flaps", _flaps), ("host.inventory", _control_group), ("roce.chain", _congestion_control),
    ),
}  # fmt: skip

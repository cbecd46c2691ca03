"""Judges of kernel modules and settings, and files of sysfs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from preflight.checks.host.kernel import judge_numa_balancing
from preflight.checks.rdma.counter_totals import TOLERATED
from preflight.facts.counter_catalogue import CounterKind
from preflight.model import Finding, all_of, clause, passed, unknown, verb, warned
from preflight.parsers.host.module_list import ModuleList
from preflight.parsers.host.sysctl import KernelSettings
from preflight.parsers.host.sysfs_files import SysfsFiles
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited, unsure

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
        yield warned("nouveau is loaded and uses the GPUs, so NVIDIA's driver cannot use them", subject="nouveau",
                     found="loaded", expected="blacklisted", evidence=part.evidence,
                     fix="Blacklist it in /etc/modprobe.d, rebuild the initramfs, and reboot.")  # fmt: skip
    using = {user for module in loaded.values() for user in module.used_by}
    for driver, rdma in _RDMA_OF.items():
        if driver in loaded and rdma not in loaded.keys() | using:
            bad = True
            yield unknown(f"{driver} is loaded, but {rdma} is not in the list, so the NIC has no RDMA device",
                          subject=rdma, found="not in the list", expected="loaded", evidence=part.evidence,
                          fix=f"`modprobe {rdma}`.")  # fmt: skip
    if loaded.keys() & _RDMA and "ib_uverbs" not in loaded.keys() | using:
        bad = True
        yield unknown("ib_uverbs is not in the list, and without it no program can use RDMA", subject="ib_uverbs",
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
            yield warned(f"the host has only {max(count, 0)} ephemeral ports ({words[0]} to {words[1]})", found=count,
                         expected=f"at least {_FEW_PORTS}", evidence=part.evidence)  # fmt: skip
        else:
            yield passed(f"the host has {count} ephemeral ports", found=str(count), evidence=part.evidence)


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
                f"{name}: the PCIe link's {what} is {now}, but its maximum is {most}{rest}",
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
        yield passed(f"{clause(good, 'interface', 'has')} a link", evidence=part.evidence)


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
        yield warned(f"{len(odd)} of {len(governors)} CPUs use the governor {names} instead of "
                     "performance", found=names,
                     expected="performance", evidence=part.evidence,
                     fix="`cpupower frequency-set -g performance`.")  # fmt: skip
    elif governors:
        yield passed(
            f"{all_of(len(governors), 'CPU')} {verb(len(governors), 'uses')} the governor performance",
            evidence=part.evidence,
        )


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


JUDGES: Judges = {
    "lsmod": (("gpudirect.peer-memory", _peer_memory), ("kernel.modules", _modules)),
    "sysctl": (("kernel.numa-balancing", _balancing), ("rails.subnets", _arp), ("host.local-ports", _port_range)),
    "sysfs": (
        ("kernel.cpu-governor", _governors), ("gpu.pcie-link", _slots), ("rdma.port-state", _carriers),
        ("counters.flaps", _flaps), ("host.inventory", _control_group), ("roce.chain", _congestion_control),
    ),
}  # fmt: skip

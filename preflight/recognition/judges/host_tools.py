"""Judges of boot options, the clock, disk space and the driver's own files."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence

from preflight.checks.host.kernel import HINDRANCES
from preflight.checks.host.limits import judge_clock
from preflight.facts.clock import Clock
from preflight.facts.host import size_text
from preflight.facts.kernel import iommu_wish
from preflight.model import Finding, clause, counted, failed, none_of, passed, unknown, warned
from preflight.parsers.host.boot_options import Option
from preflight.parsers.host.clock_status import ClockStatus
from preflight.parsers.host.disk_space import DiskSpace
from preflight.parsers.host.memory_use import MemoryUse
from preflight.parsers.network.queue_disciplines import QueueDiscipline
from preflight.parsers.nvidia.proc_files import DriverFiles
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited


def _hindrances(part: PastedValue) -> Iterator[Finding]:
    options: tuple[Option, ...] = part.value
    hindering = [(option, item.effect) for option in options for item in HINDRANCES if item.takes(option)]
    for option, effect in hindering:
        yield warned(f"the boot option {option} {effect}", subject=option.name, found=str(option), expected="unset",
                     evidence=part.evidence)  # fmt: skip
    if options and not hindering and part.complete:
        yield passed(f"{none_of(len(options), 'boot option')} limits the hardware", evidence=part.evidence)


def _iommu(part: PastedValue) -> Iterator[Finding]:
    options: tuple[Option, ...] = part.value
    wish = iommu_wish(options)
    shown = " ".join(str(option) for option in options if "iommu" in option.name)
    if wish in ("passthrough", "off"):
        yield passed(f"the boot options set the IOMMU to {wish}", found=shown, evidence=part.evidence)
    elif wish or shown:
        yield unknown(
            f"the boot options switch IOMMU translation on ({shown}), expected iommu=pt; normal in a "
            "virtual machine and on Grace",
            found=shown,
            expected="iommu=pt",
            evidence=part.evidence,
        )


def _clock(part: PastedValue) -> Iterator[Finding]:
    status: ClockStatus = part.value
    if status.synchronised is not None:
        yield judge_clock(Clock(status.synchronised, status.offset_s, part.evidence[0]))


#: Sizes of /dev/shm in bytes: below the first, a job of several ranks fails; below the second, it may fail. As in
#: host.shm.
LITTLE_SHM, ENOUGH_SHM = 2**30, 8 * 2**30


def _shm(part: PastedValue) -> Iterator[Finding]:
    space: DiskSpace = part.value
    for row in space.rows:
        if row.mount != "/dev/shm" or row.size is None or space.inodes:
            continue
        size = size_text(row.size)
        at = {"subject": "/dev/shm", "found": size, "evidence": part.evidence}
        if row.used_pct is not None and row.used_pct >= _FULL_PCT:
            yield warned(f"/dev/shm ({size}) is {row.used_pct}% full", expected="room for NCCL", **at)
        else:
            yield judge_shm(row.size, part.evidence)


def judge_shm(size: float, evidence: tuple[str, ...]) -> Finding:
    """Judge the size of /dev/shm in bytes."""
    shown = size_text(size)
    if size >= ENOUGH_SHM:
        return passed(f"/dev/shm has {shown}", evidence=evidence)
    much = "too little for several ranks" if size < LITTLE_SHM else "little"
    return warned(f"/dev/shm has {shown}: {much}", subject="/dev/shm", found=shown, expected="at least 8 GiB",
                  evidence=evidence)  # fmt: skip


#: Usage in percent at which a file system counts as full: a judgement call.
_FULL_PCT = 95
#: Free space in bytes of a file system that still takes files at 100%, which ``df`` rounds up: a judgement call.
_ROOM = 100 * 2**30
#: Mount points of images, which are always full.
_IMAGES = ("/snap/", "/var/lib/snapd/", "/media/", "/cdrom", "/iso")


#: Characters of a path that a shell does not interpret.
_PLAIN = frozenset(string.ascii_letters + string.digits + "/._-")


@limited
def _full(part: PastedValue) -> Iterator[Finding]:
    space: DiskSpace = part.value
    rows = [row for row in space.rows if row.mount != "/dev/shm" and not row.mount.startswith(_IMAGES)
            and not row.device.startswith(("/dev/loop", "squashfs"))]  # fmt: skip
    full = [row for row in rows if row.used_pct is not None and row.used_pct >= _FULL_PCT]
    for row in full:
        free = row.free or 0
        has_room = free >= _ROOM and not space.inodes  # 100% is rounded up
        report = failed if row.used_pct == 100 and not has_room else warned
        room = f", {size_text(free)} are free" if has_room else ""
        place = row.mount if row.mount[:1] == "/" and _PLAIN.issuperset(row.mount) else "PLACE"
        sizes = f"du {'--inodes ' if space.inodes else ''}-x --max-depth=1 {place}"
        uses = f"`{sizes}` shows what uses it" if row.device.startswith("/dev/") else (
            "on a shared file system, its quota report (`lfs quota`) shows who uses it")  # fmt: skip
        yield report(f"{row.mount} is {row.used_pct}% full{' of inodes' if space.inodes else ''}{room} (line "
                     f"{row.line})", subject=row.mount, found=f"{row.used_pct}%", expected=f"below {_FULL_PCT}%",
                     evidence=part.evidence, fix=f"Free space: {uses}.")  # fmt: skip
    if rows and not full and part.complete:
        yield passed(f"{clause(len(rows), 'file system', 'has')} room", evidence=part.evidence)


@limited
def _drops(part: PastedValue) -> Iterator[Finding]:
    queues: Sequence[QueueDiscipline] = part.value
    dropping = [queue for queue in queues if queue.dropped]
    for queue in dropping:
        name = queue.device or "the interface"
        yield unknown(
            f"{name}: its queue {queue.kind} dropped {queue.dropped} of {queue.packets} packets; a "
            "single reading does not show the period",
            subject=queue.device,
            found=queue.dropped,
            expected="no growth between two readings",
            evidence=part.evidence,
        )
    if any(queue.dropped is not None for queue in queues) and not dropping and part.complete:
        yield passed(f"{counted(len(queues), 'queue')} dropped nothing", evidence=part.evidence)


def _driver_files(part: PastedValue) -> Iterator[Finding]:
    """Look for a GPU that the driver could not identify."""
    files: DriverFiles = part.value
    masked = [name for name in ("GPU UUID", "Video BIOS", "GPU Firmware") if "??" in files.gpu.get(name, "")]
    place = files.gpu.get("Bus Location", "")
    if masked:
        yield unknown(
            f"{place or 'a GPU'}: the driver shows no {', '.join(masked)}: the GPU is uninitialised or does not answer",
            subject=place,
            found="????",
            expected="values",
            evidence=part.evidence,
            fix="`nvidia-smi -q -i BUS`; `dmesg | grep -i -e xid -e nvrm`.",
        )
    elif files.gpu.get("GPU Excluded", "").lower() == "yes":
        yield warned(f"{place or 'a GPU'}: excluded by the driver's settings", subject=place, found="excluded",
                     expected="not excluded", evidence=part.evidence)  # fmt: skip
    elif files.gpu.get("GPU UUID"):
        yield passed(f"{place or 'the GPU'} has been initialised by the driver", evidence=part.evidence)


#: Share of available memory below which memory is low, and share of swap above which it counts as in use: judgement
#: calls.
_LITTLE_AVAILABLE, _SWAPPING = 0.05, 0.5
#: Share of memory in unused huge pages above which they are too many: a judgement call.
_MUCH_RESERVED = 0.1


def _memory(part: PastedValue) -> Iterator[Finding]:
    memory: MemoryUse = part.value
    if not memory.total or memory.available is None:
        return
    share = memory.available / memory.total
    swapped = memory.swap_total and memory.swap_used and memory.swap_used / memory.swap_total > _SWAPPING
    huge = (memory.huge_free or 0) / memory.total
    if huge > _MUCH_RESERVED:
        report = warned if share < _LITTLE_AVAILABLE else unknown
        yield report(
            f"{100 * huge:.0f}% of the host's memory is reserved as huge pages that nothing uses; "
            f"{100 * share:.0f}% is available",
            found=f"{100 * huge:.0f}% in free huge pages", expected="huge pages of the size that programs use",
            evidence=part.evidence, fix="`sysctl vm.nr_hugepages=0` frees them; check the boot option hugepages=.",
        )  # fmt: skip
    elif share < _LITTLE_AVAILABLE:
        yield warned(f"{100 * share:.0f}% of the host's memory is available{', and it swaps' if swapped else ''}",
                     found=f"{100 * share:.1f}%", expected=f"at least {100 * _LITTLE_AVAILABLE:.0f}%",
                     evidence=part.evidence, fix="`ps aux --sort -rss | head`; `ls -lS /dev/shm`.")  # fmt: skip
    elif part.complete:
        yield passed(f"{100 * share:.0f}% of the host's memory is available", evidence=part.evidence)


JUDGES: Judges = {
    "kernel command line": (("kernel.boot-options", _hindrances), ("gpudirect.iommu", _iommu)),
    "clock": (("host.time-sync", _clock),),
    "free": (("kernel.events", _memory),),
    "df": (("host.shm", _shm), ("host.file-systems", _full)),
    "tc qdisc": (("counters.loss", _drops),),
    "nvidia driver files": (("gpu.driver", _driver_files),),
}

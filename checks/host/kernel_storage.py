"""Problems of disks, file systems and file servers in the kernel log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.checks.host.kernel_links import later
from preflight.checks.host.kernel_problem import Problem, Window, count, devices_of, listed
from preflight.model import Status, times
from preflight.parsers.host.device_names import disk_of, holds_data
from preflight.parsers.host.kernel_events import KernelEvent

Kinds = Mapping[str, Sequence[KernelEvent]]

_DISK = ("io-error", "fs-error", "fs-read-only")


def problems(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    """Yield problems of disks, NVMe controllers and file servers, and notes."""
    yield from _disks(kinds, window)
    yield from _arrays(kinds)
    for device, events in devices_of(kinds.get("nvme-lost", ())):
        yield Problem(Status.FAIL, f"the kernel disabled {device}", device, "nvme-lost", events, _DISK_FIX)
    lost = {event.device for event in kinds.get("nvme-lost", ())}
    for device, events in devices_of(kinds.get("nvme-timeout", ())):
        if device not in lost:
            yield Problem(Status.WARN, f"{count(events, 'command')} of {device} timed out{window.span(events)}", device,
                          "nvme-timeout", events, _DISK_FIX)  # fmt: skip
    for device, events in devices_of(kinds.get("nvme-reset", ())):
        if device not in lost:
            yield Problem(Status.WARN, f"{device} was reset after an internal error{window.times(events)}", device,
                          "nvme-reset", events, _DISK_FIX)  # fmt: skip
    for device, events in devices_of(kinds.get("nvme-polled", ())):
        words = f"{count(events, 'command')} of {device} ended without an interrupt"
        if len(events) >= _POLLED:
            yield Problem(Status.WARN, f"{words}{window.span(events)}", device, "nvme-polled", events, _POLLED_FIX)
        else:
            yield words
    for device, events in devices_of(kinds.get("fs-error-recorded", ())):
        yield Problem(Status.WARN, f"the file system on {device} has errors that were recorded earlier", device,
                      "fs-error-recorded", events,
                      f"Unmount the file system and check it: `e2fsck -f /dev/{device}`.")  # fmt: skip
    yield from _servers(kinds, window)


#: Minimum number of commands without an interrupt for which a drive warns; each costs 30 s. A judgement call: virtual
#: machines occasionally lose one.
_POLLED, _POLLED_FIX = (
    3,
    "Check `/proc/interrupts` for the drive; update the kernel, or the host of a virtual machine.",
)

_DISK_FIX = "Drain the node; run `smartctl -a` or `nvme smart-log` on the disk. Replace it, then check its file system."


def _disks(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    removable = {event.device for event in kinds.get("disk-removable", ())}
    mounted = {disk_of(event.device) for kind in ("fs-mounted", "fs-error", "fs-read-only")
               for event in kinds.get(kind, ())}  # fmt: skip
    mounted |= {disk_of(device) for device, _ in window.mounted}
    disks: dict[str, list[KernelEvent]] = {}
    for kind in _DISK:
        for event in kinds.get(kind, ()):
            if kind != "fs-read-only" or not _writable_again(event, kinds):
                disks.setdefault(disk_of(event.device or event.bus), []).append(event)
    for disk, matches in disks.items():
        events = tuple(sorted(matches, key=lambda event: event.line))
        if not holds_data(disk) or disk in removable:
            yield f"{count(events, 'error')} of {disk}, a removable or virtual drive"
            continue
        steps = dict.fromkeys(event.kind for event in events)
        words = ", then ".join(_STEPS[kind].format(sum(event.kind == kind for event in events)) for kind in steps)
        array = next((array for array in window.arrays if disk in set(map(disk_of, array.members))), None)
        used = disk in mounted or (array is not None and not array.redundant and array.name in mounted)
        certain = used and any(event.kind != "fs-error" or "FAT-fs" not in event.text for event in events)
        place = "" if used or array is not None else " (not known to be mounted)"
        unsure = ""
        if array is not None and disk not in mounted:
            unsure = f"; a member of {array.name} ({array.level or 'not active'})"
            unsure += ", which continues without it" if array.redundant else ""
        lost = {disk, array.name} if array is not None and not array.redundant else {disk}
        places = tuple(place for device, place in window.mounted if disk_of(device) in lost)
        yield Problem(Status.FAIL if certain else Status.WARN, f"{disk or 'a disk'}{place}: {words}{unsure}", disk,
                      "io-error",
                      events, _DISK_FIX, places)  # fmt: skip


_STEPS = {"io-error": "I/O errors ({})", "fs-error": "file system errors ({})",
          "fs-read-only": "its file system became read-only or was shut down"}  # fmt: skip


def _arrays(kinds: Kinds) -> Iterator[Problem | str]:
    failed = kinds.get("array-failed", ())
    for name, events in devices_of(failed, by_bus=True):
        what = f"the array {name} failed" if events[0].device else f"the ZFS pool {name} was suspended after I/O errors"
        yield Problem(Status.FAIL, what, name, "array-failed", events, _DISK_FIX)
    gone = {event.device for event in failed}
    for name, events in devices_of(kinds.get("array-degraded", ())):
        lost = listed(event.detail for event in events)
        if later(events[-1], [event for event in kinds.get("array-back", ()) if event.device == name]):
            yield f"the array {name} lost {lost}, and was rebuilt"
        elif name not in gone:
            yield Problem(Status.WARN,
                          f"the array {name} lost {lost} and continues without it: another loss may destroy it", name,
                          "array-degraded", events, _ARRAY_FIX)  # fmt: skip


_ARRAY_FIX = "Run `mdadm --detail` to see the members; replace the disk and add the new one (`mdadm --add`)."


def _writable_again(event: KernelEvent, kinds: Kinds) -> bool:
    again = (*kinds.get("fs-writable", ()), *kinds.get("fs-mounted", ()))
    return later(event, [other for other in again if other.device == event.device])


_SERVERS = (("nfs-stalled", "nfs-back", "NFS server"), ("lustre-lost", "lustre-back", "Lustre target"))

#: Kinds of problems with file servers, which the node does not cause.
OF_SERVERS = ("nfs-stalled", "lustre-lost", "lustre-evicted")


def _servers(kinds: Kinds, window: Window) -> Iterator[Problem | str]:
    for kind, back, noun in _SERVERS:
        for device, events in devices_of(kinds.get(kind, ())):
            if later(events[-1], [other for other in kinds.get(back, ()) if other.device == device]):
                yield f"{noun} {device} was unreachable {times(len(events))} and recovered"
            else:
                yield Problem(
                    Status.WARN,
                    f"{noun} {device} does not answer",
                    device,
                    kind,
                    events,
                    "Check the server and the path to it; jobs that use it hang in the kernel.",
                )
    for device, events in devices_of(kinds.get("lustre-evicted", ())):
        yield Problem(
            Status.WARN,
            f"{device} evicted this Lustre client{window.times(events)}",
            device,
            "lustre-evicted",
            events,
            "Pending writes are lost. Check the network to the server.",
        )

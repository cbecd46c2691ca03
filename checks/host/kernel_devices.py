"""Rules for kernel log messages about devices, modules, tables and clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.checks.host.kernel_problem import Problem, Window, devices_of
from preflight.model import Status
from preflight.parsers.host.kernel_events import KernelEvent

_FILE_SYSTEM_FIX = "Check the servers and the path to them; jobs that use the file system wait in the kernel."

#: Kind, status, message, name to use if the line has none, next step.
_RULES = (
    ("aer-not-recovered", Status.WARN, "a PCIe error of {} could not be recovered", "a device",
     "The device does not answer until a reset or reboot; reseat the card, its riser and cables."),
    ("device-not-taken", Status.WARN, "the driver could not set up {}", "a device",
     "Read the preceding lines; reload the driver or power-cycle the node; if the error persists, "
     "reseat or replace the card."),
    ("module-refused", Status.WARN, "the kernel refused {}", "a module",
     "Build it against the running kernel and drivers (`dkms status`, `modinfo`); with Secure Boot, enrol its key."),
    ("peer-memory", Status.WARN, "{} reports an error", "nvidia-peermem, the module for GPUDirect RDMA,",
     "Compare the versions of nvidia-peermem, driver and OFED; reload nvidia-peermem; check that no job lost a GPU."),
    ("nic-queue-error", Status.WARN, "a queue of {} completed with an error", "a NIC",
     "`devlink health show`; if the error returns, update firmware and driver."),
    ("nic-command-failed", Status.UNKNOWN, "a command of {} failed", "a NIC",
     "`devlink health show`; compare firmware and driver; a program may have requested an unsupported feature."),
    ("ipoib-multicast", Status.UNKNOWN, "{} could not join a multicast group: no subnet manager, or "
     "different parameters", "an interface",
     "`sminfo`; `saquery -g`; while the subnet manager restarts, this is temporary."),
    ("disk-command-failed", Status.WARN, "commands of {} failed", "a disk",
     "`smartctl -a` of the disk; reseat its cable; replace the disk if the errors continue."),
    ("fs-data-lost", Status.WARN, "data written to {} was lost", "a file system",
     "Free up space or inodes (`df -h; df -i`), then check the file system."),
    ("nfs-failed", Status.WARN, "{} reports an error", "the NFS client", _FILE_SYSTEM_FIX),
    ("fs-client-failed", Status.WARN, "the client of {} reports an error", "a file system", _FILE_SYSTEM_FIX),
    ("bond-no-link", Status.WARN, "{} has no interface with a link", "a bond",
     "Check cables, switch ports and LACP of its interfaces: `cat /proc/net/bonding/BOND`."),
    ("conntrack-full", Status.WARN, "{} is full: packets were dropped", "the table of tracked connections (conntrack)",
     "Raise net.netfilter.nf_conntrack_max, or exempt the job's networks from tracking."),
    ("neighbour-overflow", Status.WARN, "the table of neighbours ({}) overflowed: packets to new peers are dropped",
     "arp", "Raise net.ipv4.neigh.default.gc_thresh1 to 3 above the number of peers."),
    ("listen-overflow", Status.UNKNOWN, "more connections (SYN) came in on port {} than its program accepted", "?",
     "The rendezvous of a large job can cause this: raise net.core.somaxconn and tcp_max_syn_backlog."),
    ("irq-lost", Status.WARN, "interrupt {} was switched off: no driver handled it", "?",
     "`/proc/interrupts` names its device; update its driver or firmware."),
    ("clock-unstable", Status.WARN, "the clock source {} is unstable: the kernel continues with a slower one", "tsc",
     "Check the firmware's settings and version; `cat /sys/devices/system/clocksource/*/current_clocksource`."),
)  # fmt: skip


def problems(kinds: Mapping[str, Sequence[KernelEvent]], window: Window) -> Iterator[Problem]:
    """Yield a problem for each device with events of a kind that has a rule."""
    for kind, status, words, otherwise, fix in _RULES:
        for device, events in devices_of(kinds.get(kind, ()), by_bus=True):
            printed = "; ".join(_different(event.text.strip()[:_QUOTED] for event in events))
            yield Problem(status, f"{words.format(device or otherwise)}{window.times(events)}: {printed}", device, kind,
                          events, fix)  # fmt: skip


#: Maximum characters per quoted line, and quoted lines per message.
_QUOTED, _LINES = 180, 3


def _different(texts: Iterable[str]) -> list[str]:
    """Return the first few texts that differ in more than their digits."""
    first = {text.translate(_NO_DIGITS): text for text in reversed(list(texts))}
    return list(reversed(first.values()))[:_LINES]


_NO_DIGITS = str.maketrans("", "", "0123456789")

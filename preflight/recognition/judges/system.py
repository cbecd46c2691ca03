"""Judges of the operating system, its file systems and its network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model import Finding, clause, failed, none_of, passed, unknown, verb, warned
from preflight.parsers.host.clock_sources import ClockSource
from preflight.parsers.host.frequency_policy import FrequencyPolicy
from preflight.parsers.host.lustre_space import LustreTarget
from preflight.parsers.host.memory_error_counts import ErrorCount
from preflight.parsers.host.mount_table import MountedPlace
from preflight.parsers.host.process_table import ListedProcess
from preflight.parsers.host.unit_list import ListedUnit
from preflight.parsers.network.iperf_report import IperfReport
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.host_tools import judge_shm
from preflight.recognition.judges.lists import limited


@limited
def _units(part: PastedValue) -> Iterator[Finding]:
    """Look for units that have failed."""
    units: Sequence[ListedUnit] = part.value
    bad = [unit for unit in units if unit.active == "failed"]
    for unit in bad:
        about = f" ({unit.description})" if unit.description else ""
        yield warned(f"{unit.name}{about} has failed (line {unit.line})", subject=unit.name, found="failed",
                     expected="active", evidence=part.evidence,
                     fix=f"`systemctl status {unit.name}`; `journalctl -u {unit.name} -b`.")  # fmt: skip
    if not bad and part.complete:
        yield passed(
            f"{none_of(len(units), 'unit')} has failed",
            evidence=part.evidence,
        )


def _sources(part: PastedValue) -> Iterator[Finding]:
    """Judge whether the clock follows a time source that answers."""
    sources: Sequence[ClockSource] = part.value
    selected = [source for source in sources if source.selected]
    if selected and selected[0].reach == 0:
        yield warned(f"the selected time source, {selected[0].name}, no longer answers (line {selected[0].line})",
                     subject=selected[0].name, found="reach 0", expected="reach 377", evidence=part.evidence,
                     fix="`chronyc tracking`; check network and firewall on the way to the servers.")  # fmt: skip
    elif selected:
        yield passed(f"the clock follows {selected[0].name}", evidence=part.evidence)
    elif sources and part.complete:
        silent = sum(not source.usable for source in sources)
        which = f"none of its {len(sources)} time sources; {silent} {verb(silent, 'is')} not usable"
        yield warned(f"the clock follows {which if len(sources) > 1 else 'no time source, and it has only one'}",
                     found="none selected", expected="one selected (*)", evidence=part.evidence,
                     fix="`chronyc tracking`; check network and firewall on the way to the servers.")  # fmt: skip


#: Types of disk and network file systems that jobs write to.
_WRITTEN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "nfs", "nfs4", "lustre", "gpfs", "beegfs", "weka", "wekafs",
            "ceph", "cifs", "fuse.ceph", "glusterfs")  # fmt: skip
#: Places that are mounted read-only on purpose.
_INTENDED = ("/boot", "/usr", "/snap/", "/sysroot", "/ostree", "/opt/", "/etc", "/nix")


@limited
def _mounts(part: PastedValue) -> Iterator[Finding]:
    """Look for disks and network file systems mounted read-only, and NFS mounted soft."""
    places: Sequence[MountedPlace] = part.value
    wrong = [
        mount for mount in places
        if mount.read_only and mount.kind in _WRITTEN and not mount.place.startswith(_INTENDED)
    ]  # fmt: skip
    for mount in wrong:
        turned = "errors=remount-ro" in mount.options or mount.place in ("/", "/var", "/tmp", "/home")
        report = warned if turned else unknown
        tail = "" if turned else "; on purpose, or after an error"
        yield report(f"{mount.place} ({mount.kind} on {mount.source}) is read-only{tail} (line {mount.line})",
                     subject=mount.place, found="ro", expected="rw", evidence=part.evidence,
                     fix="`dmesg -T | grep -i -e ext4 -e xfs -e 'i/o error'`; `grep PLACE /etc/fstab`.")  # fmt: skip
    soft = [mount for mount in places if mount.kind.startswith("nfs") and "soft" in mount.options]
    for mount in soft:
        over = " over UDP" if {"proto=udp", "udp"} & {*mount.options} else ""
        yield unknown(f"{mount.place} ({mount.kind} on {mount.source}) is mounted soft{over}: a slow server makes "
                      f"reads and writes fail (line {mount.line})", subject=mount.place, found=f"soft{over}",
                      expected="hard, for data that jobs write", evidence=part.evidence,
                      fix="Mount it with `hard,proto=tcp` unless jobs only read small files from it.")  # fmt: skip
    if places and not wrong and not soft and part.complete:
        yield passed(
            f"{clause(len(places), 'file system', 'is')} mounted as expected",
            evidence=part.evidence,
        )


def _shm(part: PastedValue) -> Iterator[Finding]:
    places: Sequence[MountedPlace] = part.value
    for mount in places:
        if mount.place == "/dev/shm" and mount.size is not None:
            yield judge_shm(mount.size, part.evidence)


def _governor(part: PastedValue) -> Iterator[Finding]:
    """Compare the governor with ``performance``."""
    policy: FrequencyPolicy = part.value
    if policy.governor == "performance":
        yield passed(f"CPU {policy.cpu} uses the governor performance", found="performance", evidence=part.evidence)
    elif policy.governor:
        yield warned(f"CPU {policy.cpu} uses the governor {policy.governor} instead of performance",
                     subject=f"CPU {policy.cpu}",
                     found=policy.governor, expected="performance", evidence=part.evidence,
                     fix="`cpupower frequency-set -g performance`.")  # fmt: skip


@limited
def _errors(part: PastedValue) -> Iterator[Finding]:
    """Judge errors counted since the driver was loaded or the database was created."""
    counts: Sequence[ErrorCount] = part.value
    bad = [count for count in counts if count.number]
    fix = "Drain the node for uncorrected errors; reseat or replace the module: `ras-mc-ctl --errors`."
    for count in bad:
        noun = "corrected" if count.corrected else "uncorrected"
        message = f"{count.place}: {count.number} {noun} errors (line {count.line})"
        details = {"subject": count.place, "found": str(count.number), "expected": "0", "fix": fix}
        if not count.corrected:
            yield failed(message, evidence=part.evidence, **details)
        elif count.number >= _MANY:
            yield warned(message, evidence=part.evidence, **details)
        else:
            yield unknown(f"{message}; the period is unknown", evidence=part.evidence, **details)
    if not bad and part.complete:
        yield passed("no hardware errors have been counted", evidence=part.evidence)


#: Number of corrected errors that make a module faulty regardless of uptime: a judgement call.
_MANY = 1000


def _iperf(part: PastedValue) -> Iterator[Finding]:
    """Report iperf3's error, or its rate."""
    report: IperfReport = part.value
    if report.error:
        yield failed(f"iperf3 failed: {report.error}", found=report.error, expected="a rate", evidence=part.evidence,
                     fix="Start `iperf3 -s` on the peer; check the firewall and the route.")  # fmt: skip
    elif report.received_gbps is not None:
        again = f", {report.retransmitted} segments retransmitted" if report.retransmitted else ""
        yield unknown(
            f"{report.received_gbps:.4g} Gb/s received{again}; the expected rate is unknown",
            found=f"{report.received_gbps:.4g} Gb/s",
            evidence=part.evidence,
            fix="Compare with the link: `ethtool INTERFACE`; try `iperf3 -P 8`.",
        )


#: Usage in percent at which a Lustre target counts as full: a judgement call, as for disks.
_FULL_PCT = 95


@limited
def _lustre(part: PastedValue) -> Iterator[Finding]:
    """Look for targets that are full or do not answer."""
    targets: Sequence[LustreTarget] = part.value
    wrong = 0
    for target in targets:
        details = {
            "subject": target.name,
            "fix": "`lfs check servers`; check the target's server.",
        }
        if target.state.lower() != "active":
            wrong += 1
            yield warned(f"{target.name}: {target.state} (line {target.line})", found=target.state, expected="active",
                         evidence=part.evidence, **details)  # fmt: skip
        elif target.used_pct is not None and target.used_pct >= _FULL_PCT:
            wrong += 1
            yield warned(f"{target.name} is {target.used_pct}% full (line {target.line})",
                         found=f"{target.used_pct}%", expected=f"below {_FULL_PCT}%", evidence=part.evidence,
                         **details)  # fmt: skip
    if targets and not wrong and part.complete:
        yield passed(
            f"{clause(len(targets), 'Lustre target', 'is')} active and {verb(len(targets), 'has')} room",
            evidence=part.evidence,
        )


#: Maximum number of processes that a finding names.
_NAMED = 4


def _processes(part: PastedValue) -> Iterator[Finding]:
    """Report processes that wait in the kernel, and zombies."""
    processes: Sequence[ListedProcess] = part.value
    fix = "`cat /proc/PID/stack` shows what each waits for: storage, a driver or a lock."
    waiting = [process for process in processes if process.state[0] == "D"]
    zombies = [process for process in processes if process.state[0] == "Z"]
    for kind, own in (("in uninterruptible sleep (D)", waiting), ("zombies (Z)", zombies)):
        if own:
            named = "; ".join(
                f"{process.pid} {process.command[:40]}{f' in {process.waits_in}' if process.waits_in else ''}"
                for process in own[:_NAMED]
            )
            more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
            yield unknown(
                f"{len(own)} of {len(processes)} processes are {kind}: {named}{more}; a fault if this persists",
                found=str(len(own)),
                expected="0",
                evidence=part.evidence,
                fix=fix,
            )
    if processes and not waiting and not zombies and part.complete:
        yield passed(f"{none_of(len(processes), 'process')} waits in the kernel", evidence=part.evidence)


JUDGES: Judges = {
    "ps": (("host.zombies", _processes),),
    "systemctl list-units": (("host.failed-units", _units),),
    "clock sources": (("host.time-sync", _sources),),
    "mount": (("host.file-systems", _mounts), ("host.shm", _shm)),
    "cpupower": (("kernel.cpu-governor", _governor),),
    "memory errors": (("kernel.events", _errors),),
    "iperf3": (("pair.write-bw", _iperf),),
    "lfs": (("host.file-systems", _lustre),),
}

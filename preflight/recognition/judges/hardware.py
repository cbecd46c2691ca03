"""Judges of hardware: disks, RAID arrays, fio, sensors, the BMC's log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from preflight.model import Finding, each_of, failed, none_of, passed, unknown, warned
from preflight.parsers.host.disk_health import DiskHealth
from preflight.parsers.host.fio_report import FioReport, in_words
from preflight.parsers.host.hwmon_sensors import HwmonReading
from preflight.parsers.host.raid_arrays import RaidArray
from preflight.parsers.host.sensor_rows import SensorRow
from preflight.parsers.host.system_events import SystemEvent
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited

_DISK = "Back up its data, drain the node and replace the disk; see `smartctl -x DEVICE` for details."

#: SMART attributes that count unreadable sectors: pending, and uncorrectable offline.
_UNREADABLE = (197, 198)
_REALLOCATED = 5

#: Bits of an NVMe disk's critical warning (NVM Express, SMART / Health Information log).
_WARNINGS = ("little spare", "temperature", "degraded reliability", "read-only", "backup of its memory failed",
             "persistent memory")  # fmt: skip


def _disk(part: PastedValue) -> Iterator[Finding]:
    disk: DiskHealth = part.value
    faults = [
        f"attribute {attribute.number} {attribute.name} is below its threshold"
        for attribute in disk.attributes
        if attribute.failing
    ]
    if disk.critical_warning:
        bits = [name for bit, name in enumerate(_WARNINGS) if disk.critical_warning >> bit & 1]
        faults.append(f"critical warning 0x{disk.critical_warning:02x} ({', '.join(bits) or 'unknown bits'})")
    if None not in (disk.spare_percent, disk.spare_threshold_percent) and (disk.spare_percent or 0) < (
        disk.spare_threshold_percent or 0
    ):
        faults.append(f"{disk.spare_percent}% spare, below its threshold of {disk.spare_threshold_percent}%")
    signs = [
        f"{attribute.name} is {attribute.raw}"
        for attribute in disk.attributes
        if attribute.number in _UNREADABLE and attribute.raw
    ]
    signs += [f"{attribute.name} was below its threshold" for attribute in disk.attributes if attribute.failing is None]
    if disk.media_errors:
        signs.append(f"{disk.media_errors} media and data integrity errors")
    if (disk.used_percent or 0) >= 100:
        signs.append(f"{disk.used_percent}% of its rated endurance used")
    moved = [attribute for attribute in disk.attributes if attribute.number == _REALLOCATED and attribute.raw]
    if disk.healthy is False or faults:
        shown = "; ".join([*([f"its health is {disk.health}"] if disk.healthy is False else []), *faults, *signs])
        yield failed(f"{disk.name} reports a failure: {shown}", subject=disk.name, found=shown,
                     expected="PASSED, without a warning", evidence=part.evidence, fix=_DISK)  # fmt: skip
    elif signs:
        yield warned(f"{disk.name}: {'; '.join(signs)}", subject=disk.name, found="; ".join(signs), expected="none",
                     evidence=part.evidence, fix=_DISK)  # fmt: skip
    elif moved:
        yield unknown(f"{disk.name} has reallocated {moved[0].raw} sectors: a fault if the number grows",
                      subject=disk.name, found=moved[0].raw, expected="0", evidence=part.evidence,
                      fix="Compare with `smartctl -A DEVICE` on another day.")  # fmt: skip
    elif (disk.healthy or disk.critical_warning == 0) and part.complete:
        yield passed(
            f"{disk.name} reports that it is healthy", found=disk.health or "no warning", evidence=part.evidence
        )
    else:
        yield unknown(f"{disk.name}: the text lacks the disk's health self-assessment", evidence=part.evidence,
                      fix="`smartctl -x DEVICE`, as root.")  # fmt: skip


#: States and events that indicate a fault (IPMI 2.0, table 42-3, and threshold events of table 42-2).
_FAULT = re.compile(
    r"(?i)uncorrectable|\bIERR\b|thermal trip|machine check|AC lost|redundancy (?:lost|degraded)|non-redundant"
    r"|failure detected|predictive failure|config(?:uration)? error|drive fault|in (?:failed|critical) array"
    r"|fatal|\bPERR\b|\bSERR\b|bus (?:timeout|error|degraded)|correctable ECC logging limit|FRB\d|over-?current"
    r"|critical (?:going|interrupt)|non-recoverable going|state asserted.{0,20}fail|fan.{0,20}fail|cable.{0,20}fail"
    r"|leak|power supply input lost|input out.of.range|soft power control failure|watchdog.{0,30}(?:hard reset|power)"
    r"|throttl|\b(?:lower|upper) critical\b|transition to (?:critical|non-recoverable)|rebuild (?:failed|aborted)"
)
#: Events that healthy machines log: boots, buttons, power states, cleared logs, presence.
_USUAL = re.compile(
    r"(?i)log area reset|initiated by|power (?:up|off|down|on|cycle)|S\d(?:/G\d)?\b|present|boot|button|timestamp clock"
    r"|fully redundant|\bOK\b|enabled|installed|log cleared|version|running|device inserted"
)
_BMC = (
    "Check whether the part has been replaced since (`ipmitool sdr elist`); if not, drain the node "
    "and replace it. Then "
    "`ipmitool sel clear`."
)


@limited
def _system_events(part: PastedValue) -> Iterator[Finding]:
    """Warn of faults in the BMC's log that have not ended.

    The log covers the time since it was last cleared, so a fault may have been repaired since. If the log is truncated,
    the missing part may show the end of a state.
    """
    entries: tuple[SystemEvent, ...] = part.value
    last = {(entry.sensor, entry.event): entry for entry in entries}
    lasting = [entry for entry in last.values() if entry.asserted]
    faults = [entry for entry in lasting if _FAULT.search(f"{entry.sensor} {entry.event}")]
    for entry in faults:
        number = sum((other.sensor, other.event) == (entry.sensor, entry.event) and other.asserted for other in entries)
        times = f", {number} times" if number > 1 else ""
        ends = not part.complete and "ncorrectable" not in entry.event
        report = unknown if ends else warned
        yield report(f"{entry.sensor}: {entry.event}, on {entry.date}{times} (line {entry.line})"
                     f"{'; the log is truncated, and the state may have ended' if ends else ''}",
                     subject=entry.sensor, found=entry.event, expected="no such entry", evidence=part.evidence,
                     fix=_BMC)  # fmt: skip
    strange = [entry for entry in lasting if entry not in faults and not _USUAL.search(entry.event)]
    if strange:
        quoted = "; ".join(f"{entry.sensor}: {entry.event} (line {entry.line})" for entry in strange[:3])
        yield unknown(f"no rule matches {len(strange)} entries in the BMC's log: {quoted}", found=strange[0].event,
                      evidence=part.evidence, fix="`ipmitool sel get NUMBER` shows an entry in full.")  # fmt: skip
    elif entries and not faults and part.complete:
        yield passed(f"no fault in {len(entries)} entries in the BMC's log", evidence=part.evidence)


#: States of a threshold sensor: critical or non-recoverable, and non-critical.
_CRITICAL, _NOT_CRITICAL = frozenset(("cr", "nr", "lcr", "lnr", "ucr", "unr")), frozenset(("nc", "lnc", "unc"))


@limited
def _sensor_rows(part: PastedValue) -> Iterator[Finding]:
    """Report BMC sensors that are beyond a threshold or show a fault."""
    rows: Sequence[SensorRow] = part.value
    faults = 0
    for row in rows:
        details: dict[str, Any] = {"subject": row.name, "found": f"{row.reading} ({row.state})", "expected": "ok",
                                   "evidence": part.evidence, "fix": _BMC}  # fmt: skip
        where = f"{row.name}: {row.reading}"
        if row.state in _CRITICAL:
            faults += 1
            yield failed(f"{where}, beyond its critical threshold (line {row.line})", **details)
        elif row.state in _NOT_CRITICAL:
            faults += 1
            yield warned(f"{where}, beyond its non-critical threshold (line {row.line})", **details)
        elif _FAULT.search(row.reading):
            faults += 1
            yield warned(f"{where} (line {row.line})", **details)
    if rows and not faults and part.complete:
        yield passed(f"{none_of(len(rows), 'sensor')} of the BMC reports a fault", evidence=part.evidence)


_HEAT = "Check the fans, the airflow and the room temperature; `ipmitool sdr elist`."


@limited
def _readings(part: PastedValue) -> Iterator[Finding]:
    """Compare temperatures with their printed limits, and look for alarms."""
    readings: Sequence[HwmonReading] = part.value
    faults = 0
    for reading in readings:
        shown = "no value" if reading.value is None else f"{reading.value:g} {reading.unit}"
        where = f"{reading.chip} {reading.name}: {shown}"
        limit = reading.critical or reading.high
        details: dict[str, Any] = {
            "subject": f"{reading.chip} {reading.name}", "found": f"{shown} {reading.alarm}".strip(),
            "expected": f"below {limit:g} {reading.unit}" if limit else "no alarm",
            "evidence": part.evidence, "fix": _HEAT,
        }  # fmt: skip
        over = (
            reading.value is not None
            and reading.critical is not None
            and reading.critical > 0
            and reading.value >= reading.critical
        )
        high = (
            reading.value is not None
            and reading.high is not None
            and reading.high > 0
            and reading.value >= reading.high
        )
        if reading.temperature and (over or "CRIT" in reading.alarm):
            yield failed(f"{where}, at or above its critical limit (line {reading.line})", **details)
        elif reading.temperature and (high or reading.alarm.startswith("ALARM")):
            yield warned(f"{where}, at or above its high limit (line {reading.line})", **details)
        elif reading.alarm:
            yield unknown(
                f"{where}, with {reading.alarm}: unconnected inputs show this too (line {reading.line})",
                **details,
            )
        else:
            continue
        faults += 1
    if readings and not faults and part.complete:
        yield passed(f"{none_of(len(readings), 'reading')} is beyond its limit", evidence=part.evidence)


@limited
def _arrays(part: PastedValue) -> Iterator[Finding]:
    """Compare the number of members in use of each array with its slots."""
    arrays: Sequence[RaidArray] = part.value
    faults = 0
    for array in arrays:
        failed_members = f", {', '.join(array.failed)} failed" if array.failed else ""
        work = f", {array.work}" if array.work else ""
        fix = f"`mdadm --detail /dev/{array.name}`; replace the disk, then `mdadm --add /dev/{array.name} DEVICE`."
        details: dict[str, Any] = {"subject": array.name, "evidence": part.evidence, "fix": fix}
        if not array.active:
            yield failed(f"{array.name} is inactive: it has too few members, or was not assembled (line {array.line})",
                         found="inactive", expected="active", **details)  # fmt: skip
        elif array.slots is not None and array.in_use is not None and array.in_use < array.slots:
            number = f"{array.in_use} of {array.slots}"
            yield warned(f"{array.name} ({array.level}) runs with {number} members{failed_members}{work} "
                         f"(line {array.line})", found=number,
                         expected=f"{array.slots} of {array.slots}", **details)  # fmt: skip
        elif array.failed:
            yield warned(f"{array.name} ({array.level}){failed_members}{work} (line {array.line})",
                         found=", ".join(array.failed), expected="no failed member", **details)  # fmt: skip
        else:
            continue
        faults += 1
    if not faults and part.complete:
        yield passed(f"{each_of(len(arrays), 'RAID array')} has all its members" if arrays else "there is no RAID "
                                                                                                "array",
                     evidence=part.evidence)  # fmt: skip


@limited
def _benchmark(part: PastedValue) -> Iterator[Finding]:
    """Report errors of a storage benchmark; the expected rates are unknown."""
    report: FioReport = part.value
    for error in report.errors:
        yield failed(f"fio ended with an error: {error}", found=error, expected="err= 0", evidence=part.evidence,
                     fix="`dmesg -T | tail -50`; `df -h PLACE`; `mount | grep PLACE`.")  # fmt: skip
    if report.rates and not report.errors:
        shown = "; ".join(
            in_words(rate) + (f" at {rate.latency_s * 1000:.3g} ms" if rate.latency_s else "")
            for rate in report.rates[:4]
        )
        yield unknown(f"fio ended without an error: {shown}; the expected rate is unknown",
                      found=shown, evidence=part.evidence, fix="Compare with a run on a healthy node.")  # fmt: skip


JUDGES: Judges = {
    "smartctl": (("host.file-systems", _disk),),
    "nvme smart-log": (("host.file-systems", _disk),),
    "ipmitool sel": (("kernel.events", _system_events),),
    "ipmitool sdr": (("kernel.events", _sensor_rows),),
    "sensors": (("kernel.events", _readings),),
    "mdstat": (("host.file-systems", _arrays),),
    "fio": (("host.file-systems", _benchmark),),
}

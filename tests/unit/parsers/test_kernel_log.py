"""One parser for the kernel log: times in every form, boots, events with device and severity."""

from __future__ import annotations

import pytest

from preflight.parsers.host import kernel_text
from preflight.parsers.host.kernel_event_kinds import KINDS
from preflight.parsers.host.kernel_events import events, of_line
from preflight.parsers.host.kernel_log import parse, read_line
from preflight.parsers.messages.scan import SIGNATURES
from preflight.textprep.lines import Line

WORDS = "mlx5_core 0000:18:00.0 enp24s0: Link down"

FORMS = {
    "dmesg --raw": (f"<6>[  431.250000] {WORDS}", 431.25),
    "dmesg": (f"[  431.250000] {WORDS}", 431.25),
    "dmesg with caller": (f"[  431.250000][ T1234] {WORDS}", 431.25),
    "dmesg --decode": (f"kern  :info  : [  431.250000] {WORDS}", 431.25),
    "dmesg --time-format iso": (f"2026-02-18T12:54:01,250000+00:00 {WORDS}", 1771419241.25),
    "dmesg --time-format iso elsewhere": (f"2026-02-18T14:54:01,250000+02:00 {WORDS}", 1771419241.25),
    "journalctl -k -o short-iso": (f"2026-02-18T12:54:01+0000 gpu001 kernel: {WORDS}", 1771419241.0),
    "dmesg -T": (f"[Wed Feb 18 12:54:01 2026] {WORDS}", 1771419241.0),
    "colon behind the time": (f"[  431.250000]: {WORDS}", 431.25),
    "launcher": (f"gpu001: [  431.250000] {WORDS}", 431.25),
    "/dev/kmsg": (f"6,1234,431250000,-;{WORDS}", 431.25),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_line_is_read_in_every_form(form: str) -> None:
    text, at_s = FORMS[form]
    line = read_line(text)
    assert line is not None
    assert (line.text, line.at_s) == (WORDS, at_s)


def test_a_syslog_line_of_a_day_below_ten() -> None:
    for text in (f"Feb  8 12:54:01 gpu001 kernel: {WORDS}", f"Feb 8 12:54:01 gpu001 kernel: [ 431.2] {WORDS}"):
        line = read_line(text)
        assert line is not None
        assert line.text == WORDS


@pytest.mark.parametrize("text", ["-- No entries --\n", "", "\n\n", "-- Logs begin at Wed 2026-02-18. --\n",
                                  "2026-02-18 12:54:01 trainer started\n",
                                  "[1771419241.250000] [gpu001:4242:0] ib_device.c:8 UCX  WARN  no\n"])  # fmt: skip
def test_what_is_no_log_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="no line has a time"):
        parse(text)


@pytest.mark.parametrize("mark", ["-- Boot 0123456789abcdef0123456789abcdef --", "-- Reboot --",
                                  "2026-02-18T13:00:00+0000 gpu001 kernel: Linux version 6.1.0 (gcc)"])  # fmt: skip
def test_of_two_boots_the_newest_is_read(mark: str) -> None:
    before, after = (f"2026-02-18T1{hour}:54:01+0000 gpu001 kernel: {WORDS} {hour}\n" for hour in (2, 3))
    assert [line.text for line in parse(f"{before}{mark}\n{after}")][-1] == f"{WORDS} 3"
    assert not any(line.text.endswith("2") for line in parse(f"{before}{mark}\n{after}"))


#: A line, and the kind, severity and device of its event.
EVENTS = {
    "CPU 3: Machine Check Exception: 5 Bank 4: b200000000070005": ("machine-check", "fatal", "3"),
    "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010091": ("machine-check", "corrected", "12"),
    "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: bc00000000800400": ("machine-check", "error", "12"),
    "[Hardware Error]: Uncorrected, software restartable error.": ("machine-check", "error", ""),
    "EDAC MC1: 1 UE memory read error on DIMM_A1 (channel:1)": ("memory-error", "error", "DIMM_A1"),
    "Memory failure: 0x1a2b3c: recovery action for dirty LRU page: Recovered": ("memory-error", "error", ""),
    "Kernel panic - not syncing: Fatal machine check": ("panic", "fatal", ""),
    "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0": ("pcie-aer", "corrected", "0000:3b:00.0"),
    "nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=x": (
        "pcie-aer", "fatal", "0000:3b:00.0",
    ),
    "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=x": (
        "pcie-aer", "error", "0000:3b:00.0",
    ),
    "pcieport 0000:3a:00.0: pciehp: Slot(12): Link Down": ("slot-removed", "error", "12"),
    "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down": ("nic-link-down", "note", "eno1"),
    "mlx5_core 0000:cd:00.0 mlx5_5: Port: 1 Link DOWN": ("nic-link-down", "note", "mlx5_5"),
    "bond0: (slave enp65s0): link status definitely down, disabling slave": ("nic-link-down", "note", "enp65s0"),
    "Buffer I/O error on dev nvme0n1p1, logical block 0, async page read": ("io-error", "error", "nvme0n1p1"),
    "nvme nvme0: I/O 25 QID 3 timeout, aborting": ("nvme-timeout", "error", "nvme0"),
    "nvme nvme0: Removing after probe failure status: -19": ("nvme-lost", "fatal", "nvme0"),
    "EXT4-fs error (device sda2): ext4_lookup:1: inode #2": ("fs-error", "error", "sda2"),
    "XFS (nvme1n1): metadata I/O error in \"x\" at daddr 0x40": ("fs-error", "error", "nvme1n1"),
    "BTRFS info (device sda: state E): forced readonly": ("fs-read-only", "fatal", "sda"),
    "Lustre: scratch-OST1-osc-ff: Connection to scratch-OST1 (at 10.1.1.1@o2ib) was lost; in progress operations": (
        "lustre-lost", "error", "scratch-OST1-osc-ff",
    ),
    "Memory cgroup out of memory: Killed process 12 (python3) total-vm": ("out-of-memory", "note", "python3"),
    "Out of memory: Killed process 12 (python3) total-vm": ("out-of-memory", "error", "python3"),
    "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [x:1]": ("lockup", "error", "12"),
    "rcu: INFO: rcu_sched self-detected stall on CPU": ("rcu-stall", "error", ""),
    "EDAC MC3: 1 CE on mc#3csrow#1channel#5 (csrow:1 channel:5)": ("memory-error", "corrected", "mc#3csrow#1channel#5"),
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10": ("nvme-reset", "error", "nvme0"),
    "nvme nvme0: I/O 9 QID 3 timeout, completion polled": ("nvme-polled", "note", "nvme0"),
    "NETDEV WATCHDOG: ens1f0 (ice): transmit queue 12 timed out": ("nic-timeout", "error", "ens1f0"),
    "BERT: Error records from previous boot:": ("previous-boot", "error", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", EVENTS)
def test_an_event(text: str) -> None:
    (event, *_) = of_line(text)
    assert (event.kind, event.severity, event.device) == EVENTS[text]


@pytest.mark.parametrize("text", [
    "ata1: SATA link down (SStatus 0 SControl 300)", "IPv6: ADDRCONF(NETDEV_UP): ib0: link is not ready",
    "traps: python3 exits on a trap", "EXT4-fs (sda1): mounting ext4",
    "I/O error, dev sda, sector 2048 op 0x3:(DISCARD) flags 0x800", "docker0: port 1(veth0) entered disabled state",
    "nvme nvme0: Shutdown timeout set to 10 seconds", "BERT: Total records found: 0",
    "pcieport 0000:15:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+",
    "pcieport 0000:15:01.0: AER: enabled with IRQ 122", "mce: CPU0: Thermal monitoring enabled (TM1)",
])  # fmt: skip
def test_no_event(text: str) -> None:
    assert list(of_line(text)) == []


def test_an_error_of_the_firmware_is_that_of_its_section() -> None:
    lines = ["{7}[Hardware Error]: event severity: fatal", "{7}[Hardware Error]:   section_type: PCIe error"]
    (event,) = events((number, 1.0, text) for number, text in enumerate(lines))
    assert (event.kind, event.severity) == ("pcie-aer", "fatal")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Nov 8 04:11] mlx5_core 0000:5e:00.0: health_recovery_work: handling bad device here", "nic-firmware"),
        ("[Nov28 04:11] mlx5_core 0000:5e:00.0: health_recovery_work: handling bad device here", "nic-firmware"),
        ("watchdog: BUG: soft lockup - CPU#31 stuck for 22s! [python3:5123]", "lockup"),
    ],
)
def test_short_times_and_lines_without_one(text: str, kind: str) -> None:
    lines = [Line(1, text)]
    assert kernel_text.begins(lines, 0)
    assert [event.kind for event in kernel_text.parse_lines(lines, 0).value.events] == [kind]


def test_expressions_that_a_run_compiles_only_if_needed_are_valid() -> None:
    assert all(kind.pattern for kind in KINDS)
    assert all(signature.pattern for signature in SIGNATURES)

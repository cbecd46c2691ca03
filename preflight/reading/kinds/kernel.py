"""A kernel log: Xid and SXid errors of the NVIDIA driver, and what the drivers of NICs and PCIe say."""

from __future__ import annotations

import re
from typing import Any

from preflight.reading.lines import Lines
from preflight.reading.parts import Kind, Taken

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-(?:I|CI):\d{1,3}){0,2}\): (\d{1,3})(?:,\s*(.*))?")
_SXID = re.compile(
    r"nvidia-nvswitch(\d{1,3}): SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{5})(?:,\s*(?:(Fatal|Non-fatal),?\s*)?(.*))?"
)
_PID = re.compile(r"\bpid='?(\d{1,10})'?")

#: What a line of a kernel log begins with: its time, in one of the ways of dmesg, journalctl and syslog.
_TIME = re.compile(
    r"\s{0,8}(?:(?:kern\s*:\w+\s*:\s*|<\d{1,3}>)?"
    r"(?:\d{1,7}[:-]?\s?(?=\[))?(?P<at>\[\s*\+?\d{1,10}\.\d{1,9}\]|\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]?\d{0,9}(?:Z|[+-]\d\d:?\d\d)?|\w{3} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"
    r"|\d{1,3},\d{1,12},\d{1,18},[^;]{1,16};))"
)

#: What else is worth telling, and by which word: seen in the drivers' sources.
_EVENTS = (
    ("gpu-fallen-off-bus", re.compile(r"NVRM:.*fallen off the bus|GPU has fallen off the bus", re.IGNORECASE)),
    ("gpu-init-failed", re.compile(r"NVRM:.*(?:RmInitAdapter failed|rm_init_adapter failed)")),
    ("driver-mismatch", re.compile(r"NVRM: API mismatch")),
    ("gsp-rpc-errors", re.compile(r"(?i)NVRM: Rate limiting GSP RPC error prints|NVRM:.*GSP.*(?:timeout|crash)")),
    ("pcie-aer", re.compile(r"\bAER: .*(?:[Ee]rror|status)|PCIe Bus Error: severity=")),
    ("nic-link-down", re.compile(r"mlx5_core .*(?:[Ll]ink down|Cable unplugged|Port: \d+ Link DOWN)")),
    ("nic-link-up", re.compile(r"mlx5_core .*(?:Link up|Cable plugged|Port: \d+ Link ACTIVE)")),
    ("nic-pcie-limited", re.compile(r"mlx5_core .*available PCIe bandwidth, limited by")),
    ("module-hot", re.compile(r"mlx5_core .*(?:High Temperature|Over Temperature)", re.IGNORECASE)),
    ("slot-power", re.compile(r"Detected insufficient power on the PCIe slot")),
    ("out-of-memory", re.compile(r"Out of memory: Kill|oom-kill:")),
    ("machine-check", re.compile(r"mce: \[Hardware Error\]|Machine check events logged|EDAC .*[CU]E ")),
    ("hung-task", re.compile(r"INFO: task .{1,64} blocked for more than \d+ seconds")),
)  # fmt: skip

#: Lines that are no log among lines of a log, before the log is taken to be over.
_GAP = 3


def _is_log(text: str) -> bool:
    return bool(_TIME.match(text) or "NVRM: " in text or "SXid (" in text or " kernel: " in text)


#: The driver's name in prose, or in a command that looks for it.
_ONLY_NAMED = re.compile(r"NVRM: Xid(?! \()|grep\b.{0,80}(?:NVRM|SXid)")


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if ("NVRM: " in text or "SXid (" in text) and not _ONLY_NAMED.search(text):
        return True
    if not _TIME.match(text) or "NCCL" in text:
        return False
    if (
        re.match(r"\s*(?:<\d{1,3}>|\d{1,7}[:-]?\s?)?\[\s*\+?\d{1,10}\.\d{6}\](?! ?\[[A-Z]+\])", text)
        or " kernel: " in text
        or text.lstrip().startswith("kern")
    ):
        return True
    # Other programs write times as well: it is the kernel's if the kernel's names are near
    return any(_XID.search(line.text) or _SXID.search(line.text) for line in lines[at : at + 40])


def _take(lines: Lines, at: int) -> Taken:
    xids: list[dict[str, Any]] = []
    sxids: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    end, last = at, at
    while end < len(lines) and end - last <= _GAP:
        text = lines[end].text
        if not _is_log(text):
            end += 1
            continue
        last, time = end, _TIME.match(text)
        at_time = time["at"].strip("[] ") if time else None
        if match := _XID.search(text):
            pid = _PID.search(match[3] or "")
            xids.append({
                "bus_id": match[1], "xid": int(match[2]), "time": at_time, "pid": int(pid[1]) if pid else None,
                "text": (match[3] or "").strip(), "line": lines[end].number,
            })  # fmt: skip
        elif match := _SXID.search(text):
            sxids.append({
                "switch": int(match[1]), "bus_id": match[2], "sxid": int(match[3]), "time": at_time,
                "fatal": None if match[4] is None else match[4] == "Fatal", "text": (match[5] or "").strip(),
                "line": lines[end].number,
            })  # fmt: skip
        for name, pattern in _EVENTS:
            if pattern.search(text):
                events.append({"event": name, "time": at_time, "text": text.strip()[:300], "line": lines[end].number})
        end += 1
    facts = {"xids": xids, "sxids": sxids, "events": events}
    numbers = sorted({str(xid["xid"]) for xid in xids}, key=int)
    summary = f"{last - at + 1} lines; Xid: {', '.join(numbers) or 'none'}; SXid: {len(sxids)}; events: {len(events)}"
    return Taken(last + 1, facts, summary)


KINDS = (Kind("kernel log", _begins, _take),)

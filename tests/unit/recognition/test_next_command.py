"""The command after ``Next:``: a command, complete if possible, that interrupts nothing."""

from __future__ import annotations

import pytest

from preflight.reports.recognition_answer import answer


@pytest.mark.parametrize(
    ("fix", "command"),
    [
        ("`nvidia-smi -r -i N` on a drained node; `dmesg -T | grep -i xid`", "dmesg -T | grep -i xid"),
        ("add `* - memlock unlimited` to /etc/security/limits.d", "preflight explain x.y"),
        ("call `gc.freeze()` and compare with `nvidia-smi -q -d PERFORMANCE`", "nvidia-smi -q -d PERFORMANCE"),
        ("`smartctl -x DEVICE`; `cat /proc/mdstat`", "cat /proc/mdstat"),
        ("`ethtool -m IF`", "ethtool -m IF"),
        ("on a drained node, `chronyc makestep`", "preflight explain x.y"),
        ("`systemctl restart slurmd`; `systemctl status slurmd`", "systemctl status slurmd"),
        ("nvidia-smi -q -d ECC; then replace it", "nvidia-smi -q -d ECC"),
        ("replace the cable", "preflight explain x.y"),
    ],
)
def test_the_next_command(fix: str, command: str) -> None:
    finding = {"check": "x.y", "status": "fail", "message": "bad", "fix": fix, "nodes": []}
    part = {"kind": "a", "lines": [1, 1], "summary": "", "findings": [finding], "complete": True}
    assert answer({"sources": [{"name": "-", "parts": [part]}]}, "").command == command

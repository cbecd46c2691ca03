"""The command after ``Next:``: a command, complete if possible, that interrupts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight import recognition
from preflight.recognition.input_sources import InputSource
from preflight.reports.recognition_answer import answer


@pytest.mark.parametrize(
    ("fix", "command"),
    [
        ("`nvidia-smi -r -i N` on a drained node; `dmesg -T | grep -i xid`", "dmesg -T | grep -i xid"),
        ("add `* - memlock unlimited` to /etc/security/limits.d", ""),
        ("call `gc.freeze()` and compare with `nvidia-smi -q -d PERFORMANCE`", "nvidia-smi -q -d PERFORMANCE"),
        ("`smartctl -x DEVICE`; `cat /proc/mdstat`", "cat /proc/mdstat"),
        ("`ethtool -m IF`", "ethtool -m IF"),
        ("on a drained node, `chronyc makestep`", ""),
        ("`systemctl restart slurmd`; `systemctl status slurmd`", "systemctl status slurmd"),
        ("nvidia-smi -q -d ECC; then replace it", "nvidia-smi -q -d ECC"),
        ("replace the cable", ""),
        ("", "preflight explain x.y"),
        ("Install the version of the driver. Then run `systemctl enable --now fabric`.", ""),
        ("Find the missing node. Run: `getent hosts HEAD`; `osqueryi --list`", "osqueryi --list"),
        ("`du -x --max-depth=1 /scratch` shows it. Read `dmesg`.", "du -x --max-depth=1 /scratch"),
        ("Replace the cable, then compare `ibstat` with the switch port.", ""),
        ("`ibstat mlx5_7` and `ibstatus`", "ibstatus"),
    ],
)
def test_the_next_command(fix: str, command: str) -> None:
    finding = {"check": "x.y", "status": "fail", "message": "mlx5_7: bad", "fix": fix, "nodes": []}
    part = {"kind": "ibstat", "lines": [1, 1], "summary": "", "findings": [finding], "complete": True}
    shown = answer({"sources": [{"name": "-", "parts": [part]}]}, "")
    assert shown.command == command
    assert shown.step == ("" if command else fix.partition(". ")[0] + ("." if ". " in fix else ""))


def test_the_next_command_of_pasted_parts(tmp_path: Path) -> None:
    port = (
        "CA 'mlx5_4'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n"
        "\t\tLink layer: InfiniBand\n"
    )
    assert next_command(port, tmp_path) == "mlxlink -d mlx5_4 -m"


def next_command(text: str, tmp_path: Path) -> str:
    path = tmp_path / "text"
    path.write_text(text)
    parts = recognition.read(InputSource("text", path))
    return answer(recognition.document([("text", parts)]), "").command

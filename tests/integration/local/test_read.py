"""`preflight read` as a process: standard input, exit status, recognised formats."""

from __future__ import annotations

from pathlib import Path

from tests.support.pasted_texts import ibstat, outside, run


def test_a_dead_port_is_named_with_its_state() -> None:
    ran = run("-", stdin=ibstat(("Down", "Polling", 10)))
    assert (ran.returncode, ran.stdout[:5]) == (0, "WARN:")
    assert "mlx5_7:1 is DOWN/Polling, expected ACTIVE/LinkUp" in " ".join(ran.stdout.split())
    ran = run(
        "-",
        stdin="$ nvidia-smi nvlink -s\n" + outside("nvlink_a100.txt") + "$ ibstat\n" + ibstat(("Down", "Polling", 10)),
    )
    assert (ran.returncode, ran.stdout[:5]) == (0, "WARN:")


def test_the_command(tmp_path: Path) -> None:
    ran = run("-", stdin=outside("nvlink_a100.txt").replace("Link 11: 25 GB/s", "Link 11: <inactive>", 1))
    assert ran.returncode == 1
    assert "GPU0: 11 of 12 NVLinks are up" in ran.stdout
    ran = run("-", stdin="nothing of interest\n")
    assert ran.returncode == 3
    assert "preflight read --help" in ran.stdout
    assert len(ran.stdout.splitlines()) < 12
    ran = run(str(tmp_path / "absent"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "absent cannot be read: No such file or directory" in ran.stderr
    packed = tmp_path / "broken.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00garbage")
    assert run(str(packed)).returncode == 2

"""Traffic on RDMA ports: the shell program on a folder like /sys/class/infiniband with growing counters."""

from __future__ import annotations

import shlex
import subprocess
import threading
from pathlib import Path

import pytest

from preflight.campaign import port_traffic

#: Units of the counters, 4 octets each, that are 1% of 400 Gb/s in a second.
ONE_PERCENT = 400 * 1e9 / 8 / 4 / 100


def port(root: Path, device: str, rate: str = "400 Gb/sec (4X NDR)") -> Path:
    counters = root / device / "ports/1/counters"
    counters.mkdir(parents=True)
    (counters.parent / "rate").write_text(f"{rate}\n")
    for name in ("port_xmit_data", "port_rcv_data"):
        (counters / name).write_text("18446744000000000000\n")
    return counters


def read(root: Path) -> list[str]:
    key = shlex.split(port_traffic.probe(str(root)).target)
    ran = subprocess.run(key, capture_output=True, text=True, timeout=10, check=True)
    return port_traffic.in_use(ran.stdout)


@pytest.mark.parametrize("name", ["port_xmit_data", "port_rcv_data"])
def test_a_port_with_traffic(tmp_path: Path, name: str) -> None:
    port(tmp_path, "mlx5_1")
    counter = port(tmp_path, "mlx5_0") / name
    grown = f"{18446744000000000000 + int(20 * ONE_PERCENT)}\n"
    timer = threading.Timer(0.5, counter.write_text, [grown])
    timer.start()
    (busy,) = read(tmp_path)
    timer.join()
    assert busy.startswith("mlx5_0 port 1 carries ")
    assert busy.endswith(" of 400 Gb/s")


def test_ports_without_traffic_or_counters(tmp_path: Path) -> None:
    counters = port(tmp_path, "mlx5_0")
    threading.Timer(0.3, (counters / "port_xmit_data").write_text, ["18446744000000001000\n"]).start()
    port(tmp_path, "siw0", "8 Whatever")
    (port(tmp_path, "mlx5_2") / "port_rcv_data").unlink()
    assert read(tmp_path) == []
    assert read(tmp_path / "none") == []


def test_what_is_no_reading_shows_nothing() -> None:
    assert port_traffic.in_use("/x/mlx5_0/ports/1 400 5.00 1 1\n/x/mlx5_0/ports/1 400 5.00 9 9\nnonsense\n") == []

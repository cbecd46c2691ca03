"""``preflight pair`` on real hosts: an MTU black hole between two networks, and the end of both commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.cli import app
from tests.support.sshfarm import Farm, View, network
from tests.support.sshfarm.marks import needs_farm, needs_network
from tests.support.stopwatch import Stopwatch

pytestmark = [needs_farm, needs_network]

needs_ping = pytest.mark.skipif(not shutil.which("ping"), reason="needs ping (iputils-ping)")

INTERFACES, BRIDGES, TRUNK = ("rail0", "rail1"), ("leaf0", "leaf1"), ("trunk0", "trunk1")
ADDRESSES = ("10.78.0.1", "10.78.0.2")

SCHEMA = json.loads((files("preflight.schemas") / "evidence-1.json").read_text())

TABLE = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    11921            391.90             391.27              0.005
"""


def rdma(interface: str, address: str, mtu: int = 9000) -> dict[str, str]:
    """Return the files of a RoCE port on an interface."""
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    return {
        f"{port}/state": "4: ACTIVE\n", f"{port}/phys_state": "5: LinkUp\n", f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/link_layer": "Ethernet\n", f"{port}/gids/0": f"::ffff:{address}\n",
        f"{port}/gid_attrs/types/0": "RoCE v2\n", f"{port}/gid_attrs/ndevs/0": f"{interface}\n",
        f"/sys/class/net/{interface}/mtu": f"{mtu}\n", f"/sys/class/net/{interface}/operstate": "up\n",
    }  # fmt: skip


def pair(farm: Farm, *words: str) -> tuple[dict[str, Any], float]:
    """Run the command; return the report and the seconds that it took."""
    watch = Stopwatch()
    command = ["pair", *farm.hosts[:2], "--ssh-config", str(farm.ssh_config), "--device", "mlx5_0", "--json", "-"]
    done = CliRunner().invoke(app.main, [*command, *words], catch_exceptions=False)
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == report["exit_status"]
    return report, watch.seconds


def finding(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = report["findings"]
    assert isinstance(found, dict)
    return found


# --- the path between two networks -----------------------------------------------------------------


@pytest.fixture(scope="module")
def switched() -> Iterator[tuple[Farm, str]]:
    """Two hosts in separate networks, at MTU 9000, and two switches in between; yields the name of their network.

    The small MTU must be between the switches: the kernel itself reports a host with too small a virtual link.
    """
    names = [f"farm{os.getpid()}-{part}" for part in ("one", "two", "switch")]
    *hosts, switch = names
    ip = ("ip", "-n", switch)
    try:
        for name in names:
            network.command("ip", "netns", "add", name)
            network.command("ip", "-n", name, "link", "set", "lo", "up")
        network.command(*ip, "link", "add", TRUNK[0], "mtu", "9000", "type", "veth", "peer", "name", TRUNK[1])
        for bridge, end in zip(BRIDGES, TRUNK, strict=True):
            network.command(*ip, "link", "add", bridge, "type", "bridge")
            network.command(*ip, "link", "set", bridge, "up")
            network.command(*ip, "link", "set", end, "mtu", "9000", "master", bridge, "up")
        for host, interface, address, bridge in zip(hosts, INTERFACES, ADDRESSES, BRIDGES, strict=True):
            network.command(*ip, "link", "add", f"to-{interface}", "type", "veth", "peer", "name", interface)
            network.command(*ip, "link", "set", interface, "netns", host)
            network.command("ip", "-n", host, "addr", "add", f"{address}/24", "dev", interface)
            network.command("ip", "-n", host, "link", "set", interface, "mtu", "9000", "up")
            network.command(*ip, "link", "set", f"to-{interface}", "mtu", "9000", "master", bridge, "up")
        with Farm(2) as farm:
            for host, name, interface, address in zip(farm.hosts, hosts, INTERFACES, ADDRESSES, strict=True):
                farm.view(host, View(network=name, files=rdma(interface, address)))
            yield farm, switch
    finally:
        for name in names:
            if Path(f"/run/netns/{name}").exists():
                network.command("ip", "netns", "delete", name)


def trunk(switch: str, mtu: int) -> None:
    for end in TRUNK:
        network.command("ip", "-n", switch, "link", "set", end, "mtu", str(mtu))


@needs_ping
def test_a_path_that_passes_full_frames(switched: tuple[Farm, str]) -> None:
    farm, switch = switched
    trunk(switch, 9000)
    report, _ = pair(farm, "--test", "path-mtu")
    found = finding(report)
    assert (found["status"], found["message"]) == ("pass", "packets of 9000 bytes pass unfragmented in both directions")
    assert report["exit_status"] == 0


@needs_ping
def test_a_black_hole_is_found_to_the_byte(switched: tuple[Farm, str], tmp_path: Path) -> None:
    """The ports between the switches are still at 1500: they silently drop larger packets."""
    farm, switch = switched
    trunk(switch, 1500)
    report, _ = pair(farm, "--test", "path-mtu", "--save", str(tmp_path))
    found = finding(report)
    assert (found["status"], report["exit_status"]) == ("fail", 1)
    assert "the path has an MTU black hole: packets of 1500 bytes pass, but 1501 bytes" in found["message"]
    assert "9000 bytes, the MTU of the interface" in found["expected"]
    assert "-s 1473 " in found["evidence"][0]
    assert farm.left() == {}
    for host, peer in (farm.hosts, reversed(farm.hosts)):  # the saved documents contain the test and both sides of it
        saved = json.loads((tmp_path / f"{host}.pair-{peer}.json").read_text())
        jsonschema.validate(saved, SCHEMA)
        assert saved["records"]["pair:path-mtu"]["value"]["sizes"].keys() >= {"9000", "1501", "1500", "576"}
    later = CliRunner().invoke(app.main, ["judge", str(tmp_path), "--json", "-"], catch_exceptions=False)
    assert json.loads(later.stdout)["findings"] == report["findings"]
    assert later.exit_code == 1


# --- a server and its client -----------------------------------------------------------------------


@pytest.fixture
def farm() -> Iterator[Farm]:
    with Farm(2) as made:
        yield made


def tools(farm: Farm, server: str, client: str, tool: str = "ib_write_bw") -> None:
    """Give the hosts scripts instead of a tool; the rail of both is the loopback interface."""
    for host, script in zip(farm.hosts, (server, client), strict=True):
        farm.view(host, View(tools={tool: script}, files=rdma("lo", "127.0.0.1")))


@pytest.mark.parametrize("via", ["ssh", "openssh"])
def test_a_server_that_hangs_is_ended_with_its_client(farm: Farm, via: str) -> None:
    """A real client with the wrong GID index exits, and its server waits forever."""
    wrong = " Found Incompatibility issue with GID types.\n"
    tools(farm, "trap '' TERM; exec sleep 1000", f"sleep 1; printf '{wrong}' >&2; exit 1")
    report, seconds = pair(farm, "--test", "write-bw", "--deadline", "300", "--via", via)
    found = finding(report)
    assert found["status"] == "fail"
    assert found["message"].startswith("the GID index is not usable")
    assert farm.left(within_s=10) == {}
    assert seconds < 60, "the server is not waited for"


def test_a_client_that_is_early_calls_again(farm: Farm) -> None:
    early = "test -e ~/called || { touch ~/called; echo Couldn\\'t connect to 127.0.0.1:18515 >&2; exit 1; }"
    tools(farm, f"sleep 2; cat <<'X'\n{TABLE}X", f"{early}\ncat <<'X'\n{TABLE}X")
    report, _ = pair(farm, "--test", "write-bw")
    found = finding(report)
    assert (found["status"], found["message"]) == (
        "pass",
        "the bandwidth is 391.3 Gb/s, 98% of the 400 Gb/s line rate",
    )
    assert farm.left() == {}


def test_both_sides_are_ended_at_their_limit(farm: Farm) -> None:
    met = "  remote address:  LID 0x0000, QPN 0x000011"
    tools(farm, "exec sleep 1000", f"echo '{met}'; exec sleep 1000")
    report, seconds = pair(farm, "--test", "write-bw", "--deadline", "2")
    found = finding(report)
    assert (found["status"], "UDP port 4791" in found["message"]) == ("fail", True)
    assert farm.left(within_s=10) == {}
    assert seconds < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(farm: Farm, number: signal.Signals) -> None:
    tools(farm, "exec sleep 1001", "exec sleep 1002")
    command = [sys.executable, "-m", "preflight", "pair", *farm.hosts, "--ssh-config", str(farm.ssh_config)]
    with subprocess.Popen([*command, "--device", "mlx5_0", "--test", "write-bw", "--deadline", "300"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # fmt: skip
        until = time.monotonic() + 60
        while not all(any(word in line for line in farm.running().values()) for word in ("1001", "1002")):
            assert process.poll() is None
            assert time.monotonic() < until, farm.running()
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) != 0
    assert farm.left(within_s=15) == {}


def test_a_node_that_does_not_answer(farm: Farm) -> None:
    tools(farm, "exit 0", "exit 0")
    farm.fault(farm.hosts[1], "refuse")
    report, _ = pair(farm, "--test", "write-bw")
    assert report["exit_status"] == 3
    assert report["coverage"]["nodes"] == {"planned": 2, "answered": 1, "no_answer": 1}

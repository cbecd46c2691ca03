"""Two virtual machines with real Soft-RoCE devices, over SSH: healthy, faulty, tested against each other.

Takes minutes, because the guests are not accelerated; run by ``pytest -m guest``. Measured rates are not those of
hardware, so only the existence and the report of a measurement are tested.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli import app
from tests.integration.guest import Guest, image, missing, pair

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(bool(missing()), reason=f"guests need {missing()}"),
]

CLUSTER = """\
[class.guest]
nodes = "guest[1-2]"
hcas = 2

[class.guest.ports]
compute = "rxe[0-1]"
link_layer = "Ethernet"
rate_gbps = 100
mtu = 4096
netdev_mtu = 9000

[class.guest.qos]
lossless = false
"""

#: Findings that are irrelevant here: the limits of such a virtual machine, and its load.
OURS = ("rdma.", "roce.", "rails.", "nccl.gid-index", "fleet.gid-index", "counters.")

#: Seconds: TCG is slow, and slower on a machine with other work.
DEADLINE_S = "180"

#: Seconds to wait for a test that can only hang; enough for it to start.
HANGING_S = "45"


@dataclass(frozen=True)
class GuestPair:
    """Both guests, and the way in which preflight reaches them."""

    one: Guest
    two: Guest
    ssh_config: Path
    cluster: Path

    def preflight(self, *words: str) -> dict[str, Any]:
        """Run a command of preflight against them and return its report."""
        options = ["--ssh-config", str(self.ssh_config), "--cluster", str(self.cluster), "--json", "-"]
        command = [words[0], "--deadline", DEADLINE_S, *words[1:], *options]
        done = CliRunner().invoke(app.main, command, catch_exceptions=False)
        report: dict[str, Any] = json.loads(done.stdout)
        assert done.exit_code == report["exit_status"]
        return report

    def check(self, *words: str) -> dict[str, Any]:
        return self.preflight("check", "--hosts", "guest[1-2]", *words)

    def pair(self, test: str, *words: str) -> dict[str, Any]:
        """Run one test from the second guest to the first and return its report."""
        (found,) = self.preflight("pair", "guest1", "guest2", "--test", test, "--device", "rxe0", *words)["findings"]
        for guest in (self.one, self.two):
            left = guest.run("ps -eo comm | grep -E '^(ib_(write|read)_|ibv_rc_|ping$|stdbuf)' || true").split()
            assert left == [], guest.name
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestPair]:
    folder = tmp_path_factory.mktemp("guests")
    with pair(image(), rails=2) as (one, two):
        (folder / "ssh_config").write_text(one.ssh_config() + two.ssh_config())
        (folder / "cluster.toml").write_text(CLUSTER)
        yield GuestPair(one, two, folder / "ssh_config", folder / "cluster.toml")


def noticed(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return the findings of problems (status, check, subject), which must be about the second guest."""
    found = {
        (finding["status"], finding["check"], finding["subject"], tuple(finding["nodes"]))
        for finding in report["findings"]
        if finding["status"] in ("fail", "warn", "unknown") and finding["check"].startswith(OURS)
    }
    assert all("guest2" in nodes for *_, nodes in found)
    return {(status, check, subject) for status, check, subject, _ in found}


# --- preflight check -------------------------------------------------------------------------------


def test_healthy_guests(guests: GuestPair, tmp_path: Path) -> None:
    report = guests.check("--save", str(tmp_path))
    assert report["coverage"]["nodes"] == {"planned": 2, "answered": 2, "no_answer": 0}
    assert noticed(report) == set()
    passed = {finding["check"]: finding["message"] for finding in report["findings"] if finding["status"] == "pass"}
    assert passed["rdma.port-state"] == "both compute ports are active"
    assert passed["rdma.port-rate"] == "rate of 2 compute ports: 100 Gb/s"
    assert passed["rdma.device-nodes"] == "both HCAs can be opened"
    assert passed["roce.chain"] == "both RoCE ports are addressed for RoCE v2"
    for number in (1, 2):
        saved = json.loads((tmp_path / f"guest{number}.json").read_text())
        assert saved["collector"]["where"] == "vm"
        gid = saved["records"]["file:/sys/class/infiniband/rxe0/ports/1/gids/1"]["out"].strip()
        assert gid.endswith(f"c0a8:64{number:02x}"), "192.168.100.N"
        counters = saved["records"]["files:/sys/class/infiniband/rxe0/ports/1/hw_counters"]
        assert counters["status"] == "ok"
        assert "sent_pkts" in counters["value"]
    judged = CliRunner().invoke(app.main, ["judge", str(tmp_path), "--cluster", str(guests.cluster), "--json", "-"])
    assert noticed(json.loads(judged.stdout)) == set()


#: Fault -> how it is created on the second guest, how it is undone, and the expected report.
FAULTS = {
    "interface down": ("ip link set eth1 down", "ip link set eth1 up", {("fail", "rdma.port-state", "rxe1:1")}),
    "MTU 1500": (
        "ip link set eth1 mtu 1500", "ip link set eth1 mtu 9000", {("fail", "roce.chain", "rxe1:1")},
    ),
    "device node removed": (
        "mv /dev/infiniband/uverbs1 /dev/shm/", "mv /dev/shm/uverbs1 /dev/infiniband/",
        {("fail", "rdma.device-nodes", "rxe1"), ("unknown", "roce.chain", "rxe1:1")},
    ),
    "GID index of an empty row": (
        "echo NCCL_IB_GID_INDEX=5 >/etc/nccl.conf", "rm /etc/nccl.conf",
        {("fail", "nccl.gid-index", "")},
    ),
    "GID index out of range": (
        "echo NCCL_IB_GID_INDEX=5000 >/etc/nccl.conf", "rm /etc/nccl.conf",
        {("fail", "nccl.gid-index", "")},
    ),
}  # fmt: skip


@contextlib.contextmanager
def planted(guest: Guest, plant: str, undo: str) -> Iterator[None]:
    guest.run(plant)
    try:
        yield
    finally:
        guest.run(undo)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(guests: GuestPair, fault: str) -> None:
    plant, undo, expected = FAULTS[fault]
    with planted(guests.two, plant, undo):
        report = guests.check()
    assert noticed(report) == expected


# --- preflight pair --------------------------------------------------------------------------------

DROP = (
    "nft add table ip test; nft add chain ip test in '{{ type filter hook input priority 0; }}'; "
    "nft add rule ip test in {} drop"
)
UNDROP = "nft flush ruleset"


@pytest.mark.parametrize("test", ["write-bw", "read-bw"])
def test_bandwidth(guests: GuestPair, test: str) -> None:
    found = guests.pair(test, "--at-least", "0.001")
    assert found["status"] == "pass", found
    assert "200 messages of 65536 bytes" in found["found"]


def test_bandwidth_of_software_is_not_held_against_its_nominal_rate(guests: GuestPair) -> None:
    found = guests.pair("write-bw")
    assert (found["status"], "software devices" in found["message"]) == ("unknown", True), found


def test_latency(guests: GuestPair) -> None:
    found = guests.pair("write-lat")
    assert (found["status"], "µs (median)" in found["message"]) == ("unknown", True), found


def test_pingpong(guests: GuestPair) -> None:
    found = guests.pair("pingpong", "--mtu", "1024")
    assert (found["status"], found["message"]) == ("pass", "200 messages reached guest1 and came back"), found


def test_path_mtu(guests: GuestPair) -> None:
    found = guests.pair("path-mtu")
    assert (found["status"], found["message"]) == (
        "pass",
        "packets of 9000 bytes pass unfragmented in both directions",
    ), found


@pytest.mark.parametrize("test", ["write-bw", "pingpong"])
def test_wrong_gid_index(guests: GuestPair, test: str) -> None:
    """The client fails, and its server waits forever."""
    found = guests.pair(test, "--gid-index", "5")
    assert found["status"] == "fail", found
    assert found["message"].startswith("the GID index is not usable: on guest1, index 5 is ")


@pytest.mark.parametrize("test", ["write-bw", "pingpong"])
def test_udp_4791_dropped(guests: GuestPair, test: str) -> None:
    with planted(guests.one, DROP.format("udp dport 4791"), UNDROP):
        found = guests.pair(test, "--deadline", HANGING_S)
    assert found["status"] == "fail", found
    assert "UDP port 4791 is dropped" in found["message"], found


def test_tcp_port_dropped(guests: GuestPair) -> None:
    with planted(guests.one, DROP.format("tcp dport 18515"), UNDROP):
        found = guests.pair("write-bw", "--deadline", HANGING_S)
    assert found["status"] == "fail", found
    assert "guest2 cannot connect by TCP to 192.168.100.1 port 18515" in found["message"], found


def test_another_port_of_the_same_server(guests: GuestPair) -> None:
    with planted(guests.one, DROP.format("tcp dport 18515"), UNDROP):
        found = guests.pair("pingpong", "--port", "18600")
    assert found["status"] == "pass", found


def test_a_device_node_that_is_gone(guests: GuestPair) -> None:
    with planted(guests.two, "mv /dev/infiniband/uverbs0 /dev/shm/", "mv /dev/shm/uverbs0 /dev/infiniband/"):
        found = guests.pair("write-bw")
    assert (found["status"], found["message"]) == ("fail", "guest2 cannot open rxe0:1"), found


def test_a_tool_that_is_not_installed(guests: GuestPair) -> None:
    with planted(guests.two, "mv /usr/bin/ib_write_bw /dev/shm/", "mv /dev/shm/ib_write_bw /usr/bin/"):
        found = guests.pair("write-bw")
    assert (found["status"], found["message"]) == ("unknown", "ib_write_bw is not installed on guest2"), found

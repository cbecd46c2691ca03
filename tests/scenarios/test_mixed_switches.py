"""A Clos with leaves of SONiC, Linux, Arista EOS and Cisco NX-OS, each judged by what it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.checks import registry
from preflight.judge import judge
from tests.scenarios.test_eos import CHECKS, SITE, wrong
from tests.support.clos import Clos
from tests.support.eos import EosLeaf
from tests.support.linux_switch import LinuxLeaf
from tests.support.nxos import NxosLeaf

#: Those of switches, and those of what a switch announces to its hosts.
ALL = [*CHECKS, *(check for check in registry().checks if check.id in ("switch.pfc", "switch.mtu"))]


class Mixed:
    """The leaves are SONiC, Linux, EOS and NX-OS; the last two announce PFC. The spines have SONiC."""

    def __init__(self) -> None:
        self.clos = Clos()
        self.linux = LinuxLeaf(self.clos, "leaf2")
        self.eos, self.nxos = EosLeaf(self.clos, "leaf3"), NxosLeaf(self.clos, "leaf4")
        self.clos.dcbx = {f"gpu{number:03}": 3 for number in range(9, 17)}

    def judged(self, folder: Path) -> dict[str, Any]:
        (folder / "leaf2.txt").write_text(self.linux.session())
        (folder / "leaf3.txt").write_text(self.eos.session())
        (folder / "leaf4.txt").write_text(self.nxos.session(as_json=True))
        return judge([*self.clos.evidences(), *switch_documents([folder])], ALL, SITE)


def unknown(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["check"], finding["subject"]) for finding in report["findings"] if finding["status"] == "unknown"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Mixed().judged(tmp_path_factory.mktemp("healthy"))


def test_healthy_leaves_of_three_platforms_raise_nothing(healthy: dict[str, Any]) -> None:
    """What is unknown belongs to a platform that does not show it, or compares switches of one platform."""
    assert wrong(healthy) == []
    assert healthy["incidents"] == []
    of_one = {
        check for check, subject in unknown(healthy) if subject.partition(" ")[0] not in ("leaf2", "leaf3", "leaf4")
    }
    # hash: the seeds of leaves; equal: a tier has two switches of one model; switch.pfc: SONiC announces nothing
    assert of_one == {"switch.hash", "ethernet.peers-equal", "switch.pfc"}
    passed = {finding["check"]: finding["message"] for finding in healthy["findings"] if finding["status"] == "pass"}
    for check in ("link.join", "link.mtu", "link.speed-fec", "link.errors"):
        assert "32 cables" in passed[check], check
    assert {"ethernet.oversubscription", "ethernet.hops", "switch.uplink-balance", "switch.pfc"} <= set(passed)


def slow_receiver(mixed: Mixed, host: str, port: str) -> None:
    """Let a host pause its leaf, which pauses spine1, which pauses leaf1."""
    mixed.clos.nic(host, grows={"tx_prio3_pause": 300_000, "tx_prio3_pause_duration": 18_000_000})
    mixed.clos.pause("spine1", port, 0.1).pause("leaf1", "Ethernet32", 0.05)


FAULTS: dict[str, tuple[Callable[[Mixed], object], tuple[str, str, str]]] = {
    "PFC on another priority at a port of EOS, by DCBX": (
        lambda mixed: mixed.clos.dcbx.update(gpu009=4), ("fail", "switch.pfc", "enp24s0"),
    ),
    "PFC on another priority at a port of NX-OS, by DCBX": (
        lambda mixed: mixed.clos.dcbx.update(gpu014=4), ("fail", "switch.pfc", "enp24s0"),
    ),
    "MTU at an uplink of EOS": (
        lambda mixed: mixed.eos.change("Ethernet5/1", mtu=8000),
        ("fail", "link.mtu", "leaf3 Ethernet5/1 - spine1 Ethernet32"),
    ),
    "MTU at an uplink of NX-OS": (
        lambda mixed: mixed.nxos.ports["Ethernet1/5"].update(mtu=8000),
        ("fail", "link.mtu", "leaf4 Ethernet1/5 - spine1 Ethernet48"),
    ),
    "lower threshold above the upper, beside other platforms": (
        lambda mixed: mixed.clos.set("leaf1", "CONFIG_DB", "WRED_PROFILE|ROCE", green_min_threshold="2500000"),
        ("fail", "switch.ecn", "leaf1"),
    ),
    "MTU at an uplink of Linux": (
        lambda mixed: mixed.linux.ports["swp5"].update(mtu=8000),
        ("fail", "link.mtu", "leaf2 swp5 - spine1 Ethernet16"),
    ),
    "a BGP session of Linux, whose cable is up": (
        lambda mixed: mixed.linux.peers["swp5"].update(state="Active", peerState="OK"),
        ("fail", "switch.bgp", "leaf2 swp5"),
    ),
    "slow receiver behind Linux": (
        lambda mixed: slow_receiver(mixed, "gpu005", "Ethernet16"), ("fail", "fabric.pause-root", "gpu005"),
    ),
    "damaged frames that Linux received": (
        lambda mixed: mixed.linux.ports["swp2"].update(errors=400),
        ("fail", "link.errors", "leaf2 swp2 - gpu006 enp24s0"),
    ),
    "slow receiver behind EOS": (
        lambda mixed: slow_receiver(mixed, "gpu009", "Ethernet32"), ("fail", "fabric.pause-root", "gpu009"),
    ),
    "slow receiver behind NX-OS": (
        lambda mixed: slow_receiver(mixed, "gpu013", "Ethernet48"), ("fail", "fabric.pause-root", "gpu013"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_incident_and_changes_nothing_else(tmp_path: Path, healthy: dict[str, Any], name: str) -> None:
    plant, expected = FAULTS[name]
    mixed = Mixed()
    plant(mixed)
    report = mixed.judged(tmp_path)
    assert wrong(report) == [expected]
    assert len(report["incidents"]) == 1
    assert unknown(report) == unknown(healthy)


def test_a_leaf_that_counts_no_pauses_is_not_blamed_for_those_of_an_unread_host(tmp_path: Path) -> None:
    """Its thresholds and headroom are not blamed: the host may have paused it."""
    mixed = Mixed()
    mixed.clos.pause("spine1", "Ethernet32", 0.1).pause("leaf1", "Ethernet32", 0.05)
    del mixed.clos.heard["gpu009"]
    report = mixed.judged(tmp_path)
    assert [entry for entry in wrong(report) if entry[1] == "fabric.pause-root"] == []
    (message,) = [
        finding["message"] for finding in report["findings"] if "stops other devices" in finding["message"]
    ]  # fmt: skip
    assert message.startswith("leaf3 stops other devices for an unknown reason: neither it nor the devices at its")

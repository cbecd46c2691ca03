"""Real lldpd and FRRouting at both ends of a link between two network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.checks import registry
from preflight.judge import judge
from preflight.parsers.network.lldp import LLDP, parse
from tests.support.clos import NETDEV, Clos

BGPD = "/usr/lib/frr/bgpd"
MISSING = next(
    (tool for tool in ("lldpd", "lldpcli", "ip") if not shutil.which(tool)), "" if os.getuid() == 0 else "root"
)

#: TLVs as a switch sends them, by organisation and subtype. 802.1Qaz: ETS, PFC on priorities 3 and 6 (willing), two
#: applications: UDP port 4791 and DSCP 26, both on priority 3. 802.3: frames of up to 9236 bytes.
TLVS = {
    ("00,80,C2", "9"): "00,00,00,10,00,00,32,32,00,00,00,00,00,02,02,00,00,00,00,00,00",
    ("00,80,C2", "11"): "88,48",
    ("00,80,C2", "12"): "00,64,12,B7,65,00,1A",
    ("00,12,0F", "4"): "24,14",
}


class LldpPair:
    """Two network namespaces with an lldpd each: a node, and a switch that announces DCBX."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lldp-"))
        self.folder.chmod(0o755)  # lldpcli changes its user before it opens the socket
        self.node, self.switch = f"node{os.getpid()}", f"switch{os.getpid()}"
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in (self.node, self.switch):
            subprocess.run(["ip", "netns", "add", name], check=True)
        link = ["ip", "-n", self.node, "link", "add", NETDEV, "type", "veth", "peer", "name", "swp1"]
        subprocess.run([*link, "netns", self.switch], check=True)
        for name, interface in ((self.node, NETDEV), (self.switch, "swp1")):
            subprocess.run(["ip", "-n", name, "link", "set", interface, "mtu", "9000", "up"], check=True)
            (self.folder / name).mkdir(mode=0o777)
            (self.folder / name).chmod(0o777)
        for name, interface in ((self.node, NETDEV), (self.switch, "swp1")):
            self._await_carrier(name, interface)
        for name in (self.node, self.switch):
            words = ["lldpd", "-d", "-u", self.socket(name), "-S", "leaf-0", "-c", "-L", shutil.which("lldpcli") or ""]
            command = ["ip", "netns", "exec", name, *words]
            null = subprocess.DEVNULL
            self.daemons.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
        for name in (self.node, self.switch):
            self.query(name, "configure", "lldp", "tx-interval", "1")
        for name, shown in ((self.node, "gpu001"), (self.switch, "leaf1")):
            self.query(name, "configure", "system", "hostname", shown)
        self.query(self.switch, "configure", "lldp", "portidsubtype", "local", "etp1")  # as lldpmgrd of SONiC
        for (organisation, subtype), value in TLVS.items():
            tlv = ["oui", organisation, "subtype", subtype, "oui-info", value]
            self.query(self.switch, "configure", "lldp", "custom-tlv", "add", *tlv)

    def _await_carrier(self, name: str, interface: str) -> None:
        """Wait until a link is up: a daemon that starts earlier may miss the change, and receives nothing."""
        for _ in range(600):
            shown = subprocess.run(["ip", "-n", name, "-j", "link", "show", interface], capture_output=True, check=True)
            if json.loads(shown.stdout)[0]["operstate"] == "UP":
                return
            time.sleep(0.1)
        raise AssertionError(shown.stdout)

    def socket(self, name: str) -> str:
        return str(self.folder / name / "socket")

    def query(self, name: str, *words: str) -> str:
        """Query a daemon, again until it answers."""
        command = ["ip", "netns", "exec", name, "lldpcli", "-u", self.socket(name), *words]
        for _ in range(600):
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if ran.returncode == 0:
                return ran.stdout
            time.sleep(0.1)
        raise AssertionError(ran.stderr)

    def heard(self, attempts: int = 1200) -> str:
        """Return the announcements that the node received, once they are complete."""
        return self._received(self.node, self.switch, lambda text: '"mfs"' in text and text.count('"subtype"') == 3,
                              attempts)  # fmt: skip

    def heard_by_switch(self, attempts: int = 1200) -> str:
        """Return the announcements that the switch received."""
        return self._received(self.switch, self.node, lambda text: '"gpu001"' in text, attempts)

    def is_connected(self) -> bool:
        """Return whether each daemon hears the other within 5 seconds."""
        try:
            self.heard(50)
            self.heard_by_switch(50)
        except AssertionError:
            return False
        return True

    def _received(self, receiver: str, sender: str, complete: Callable[[str], bool], attempts: int) -> str:
        for attempt in range(attempts):
            text = self.query(receiver, "-f", "json0", "show", "neighbors", "details")
            if attempt % 20 == 19:
                self.query(sender, "update")  # send now
            if complete(text) and ('"leaf1"' in text or '"gpu001"' in text):
                return text
            time.sleep(0.1)
        raise AssertionError(text)

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(60)
        for name in (self.node, self.switch):
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[LldpPair]:
    """Return two daemons that hear each other; a pair that never does is replaced."""
    for last in (*[False] * 12, True):
        pair = LldpPair()
        try:
            pair.start()
            if last or pair.is_connected():
                yield pair
                return
        finally:
            pair.stop()


@pytest.mark.skipif(bool(MISSING), reason=f"needs lldpd, iproute2 and root: no {MISSING}")
def test_dcbx_of_a_neighbour_is_decoded(pair: LldpPair) -> None:
    (neighbour,) = parse(pair.heard()).values()
    assert (neighbour.netdev, neighbour.switch, neighbour.port) == (NETDEV, "leaf1", "etp1")
    assert neighbour.max_frame == 9236
    assert neighbour.pfc == frozenset((3, 6))
    assert neighbour.pfc_willing is True
    assert neighbour.ets
    assert neighbour.ets.percent == (0, 50, 50, 0, 0, 0, 0, 0)
    assert neighbour.dscp == {26: 3}
    assert not neighbour.cee


@pytest.mark.skipif(bool(MISSING), reason=f"needs lldpd, iproute2 and root: no {MISSING}")
def test_both_ends_of_a_cable_show_each_other(pair: LldpPair) -> None:
    """The switch stores what it received as lldp_syncd of SONiC does."""
    (interface,) = json.loads(pair.heard_by_switch())["lldp"][0]["interface"]
    clos, far = Clos(), interface["port"][0]
    clos.set("leaf1", "APPL_DB", "LLDP_ENTRY_TABLE:Ethernet0",
             lldp_rem_sys_name=interface["chassis"][0]["name"][0]["value"],
             lldp_rem_port_id=far["id"][0]["value"], lldp_rem_port_desc=far["descr"][0]["value"])  # fmt: skip
    hosts = clos.hosts({"gpu001": {LLDP: {"status": "ok", "rc": 0, "out": pair.heard()}}})
    judged = judge([*hosts, *clos.switches()], [check for check in registry().checks if check.id == "link.join"])
    (finding,) = judged["findings"]
    assert (finding["status"], finding["message"]) == ("pass", "both ends of 32 cables show each other as neighbours")


#: A router at each end: its namespace, its name, and the last bytes of its address and its peer's.
BGP_CONF = """hostname {name}
router bgp {number}
 bgp router-id 192.0.2.{number}
 no bgp ebgp-requires-policy
 timers bgp 1 3
 neighbor 198.51.100.{other} remote-as external
 neighbor 198.51.100.{other} timers connect 1
"""


class BgpPair:
    """FRRouting's bgpd at both ends of a link, without zebra."""

    def __init__(self, pair: LldpPair) -> None:
        self.pair = pair
        for name, interface, shown, number in (
            (pair.node, NETDEV, "gpu001", 1), (pair.switch, "swp1", "leaf1", 2),
        ):  # fmt: skip
            subprocess.run(["ip", "-n", name, "addr", "add", f"198.51.100.{number}/24", "dev", interface], check=True)
            folder = pair.folder / name / "frr"
            folder.mkdir()
            (folder / "bgpd.conf").write_text(BGP_CONF.format(name=shown, number=number, other=3 - number))
            shutil.chown(folder, "frr", "frr")
            pair.daemons.append(subprocess.Popen(
                ["ip", "netns", "exec", name, BGPD, "-A", "127.0.0.1", "-Z", "-n", "-f", folder / "bgpd.conf",
                 "-i", folder / "bgpd.pid", "--vty_socket", folder, "-z", folder / "z.sock"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ))  # fmt: skip

    def run(self, name: str, *commands: str) -> str:
        """Run commands of FRRouting in a namespace, again until its daemon answers."""
        folder = self.pair.folder / name / "frr"
        words = [word for command in commands for word in ("-c", command)]
        for _ in range(100):
            ran = subprocess.run(["ip", "netns", "exec", name, "vtysh", "--vty_socket", folder, *words],
                                 capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
            if ran.returncode == 0:
                return ran.stdout
            time.sleep(0.1)
        raise AssertionError(ran.stderr)

    def session(self, *, established: bool) -> str:
        """Return a terminal session of the switch, once its BGP session has this state."""
        shown = ""
        for _ in range(300):
            shown = self.run(self.pair.switch, "show bgp summary json")
            if ('"state":"Established"' in shown) is established:
                break
            time.sleep(0.1)
        link = subprocess.run(["ip", "-n", self.pair.switch, "-j", "-s", "link"],
                              capture_output=True, text=True, check=True).stdout  # fmt: skip
        prompt = "cumulus@leaf1:mgmt:~$"
        return (
            f"{prompt} ip -j -s link\n{link}\n{prompt} sudo lldpcli -f json0 show neighbors details\n"
            f"{self.pair.heard_by_switch()}\n{prompt} sudo vtysh -c 'show bgp summary json'\n{shown}\n{prompt}\n"
        )


@pytest.mark.skipif(bool(MISSING), reason=f"needs lldpd, iproute2 and root: no {MISSING}")
@pytest.mark.skipif(not Path(BGPD).exists(), reason="needs frr")
def test_a_bgp_session_that_ends_on_a_link_that_is_up(pair: LldpPair, tmp_path: Path) -> None:
    bgp = BgpPair(pair)
    checks = [check for check in registry().checks if check.id == "switch.bgp"]
    findings = []
    for established in (True, False):
        if not established:
            shutdown = "neighbor 198.51.100.2 shutdown"
            bgp.run(pair.node, "configure terminal", "router bgp 1", shutdown)
        (tmp_path / "leaf1.txt").write_text(bgp.session(established=established))
        (evidence,) = switch_documents([tmp_path / "leaf1.txt"])
        findings += judge([evidence], checks)["findings"]
    passed, failed = findings
    assert (passed["status"], passed["message"]) == ("pass", "1 BGP session of 1 switch is established")
    assert (failed["status"], failed["subject"]) == ("fail", "leaf1 198.51.100.1")
    assert "the BGP session with gpu001 (198.51.100.1) is" in failed["message"]
    assert "its cable is up: swp1" in failed["message"]


def test_what_is_not_its_json_is_refused() -> None:
    for text in ("", "{}", "[]", '{"lldp": {}}', '{"lldp": [{"interface": {}}]}', "-----\nLLDP neighbors:\n"):
        with pytest.raises(ValueError, match=r"JSON|lldp|list"):
            parse(text)


def test_an_interface_with_two_neighbours_is_ignored() -> None:
    entry = '{"name": "rail0", "chassis": [{"name": [{"value": "%s"}]}], "port": [{"id": [{"value": "1"}]}]}'
    one, two = entry % "leaf-0", entry % "leaf-1"
    assert parse(f'{{"lldp": [{{"interface": [{one}]}}]}}')["rail0"].switch == "leaf-0"
    assert parse(f'{{"lldp": [{{"interface": [{one}, {two}]}}]}}') == {}

"""A Clos with leaves of SONiC, Linux, Arista EOS and Cisco NX-OS, each judged by what it shows."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.archive import directory
from preflight.archive.lazy import load
from preflight.archive.switch_files import switch_documents
from preflight.checks import registry
from preflight.judge import judge
from tests.scenarios.test_eos import CHECKS, SITE, wrong
from tests.support.clos import Clos
from tests.support.eos import EosLeaf
from tests.support.in_process import run
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

    def sessions(self, folder: Path, *, as_json: bool = True) -> Path:
        (folder / "leaf2.txt").write_text(self.linux.session())
        (folder / "leaf3.txt").write_text(self.eos.session())
        (folder / "leaf4.txt").write_text(self.nxos.session(as_json=as_json))
        return folder

    def judged(self, folder: Path) -> dict[str, Any]:
        return judge([*self.clos.evidences(), *switch_documents([self.sessions(folder)])], ALL, SITE)


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


BANNER = "*****\n* {Authorized} users only; log in > read #1 *\n*****\n"
#: What a stranger makes of an answer.
STRANGE: dict[str, Callable[[str], str]] = {
    "refused by EOS": lambda answer: "% Invalid input (at token 2: 'x')",
    "refused by NX-OS": lambda answer: "       ^\n% Invalid command at '^' marker.",
    "banner": lambda answer: BANNER + answer,
    "half": lambda answer: answer[: len(answer) // 2],
    "login page": lambda answer: "<html><style>\nbody\n{ color: red }\n</style>Log in</html>",
    "nothing": lambda answer: "",
    "pager": lambda answer: "\x1b[7m--More--(12%)\x1b[m\r\x1b[K".join(re.split("(?<=\n)", answer, maxsplit=1)),
    "escapes": lambda answer: answer.replace("gpu0", "\x1b[2J\x1b]0;x\x07gpu0"),
    "escapes in JSON": lambda answer: answer.replace('"gpu0', '"\\u001b]0;x\\u0007gpu0'),
    "message of the log": lambda answer: answer.replace("\n", "\nNov 21 03:00:01 leafX %LINEPROTO-5-UPDOWN: down\n", 1),
}  # fmt: skip


def strange(session: str, place: int, change: Callable[[str], str]) -> str:
    """Change the answer to one command of a session."""
    lines = re.split(r"(?m)^((?:cumulus@)?leaf\d\S{0,10}[#$] ?.*\n)", session)
    places = [at for at in range(2, len(lines), 2) if lines[at].strip()]
    lines[places[place % len(places)]] = change(lines[places[place % len(places)]].rstrip("\n")) + "\n"
    return "".join(lines)


@pytest.mark.parametrize(("name", "place"), [*((name, place) for place, name in enumerate(STRANGE)),
                                             *(("half", place) for place in range(6))])  # fmt: skip
def test_a_strange_answer_is_no_fault_of_the_fabric(
    tmp_path: Path, healthy: dict[str, Any], name: str, place: int
) -> None:
    mixed = Mixed()
    mixed.sessions(tmp_path, as_json=bool(place % 2))
    for path in tmp_path.iterdir():
        path.write_text(strange(path.read_text(), place, STRANGE[name]))
    report = judge([*mixed.clos.evidences(), *switch_documents([tmp_path])], ALL, SITE)
    assert wrong(report) == []
    lost = unknown(report) - unknown(healthy)
    assert bool(lost) or name in ("banner", "pager", "escapes", "escapes in JSON", "message of the log")
    assert {subject.partition(" ")[0] for _, subject in lost} <= {"leaf2", "leaf3", "leaf4", ""}


def test_escapes_in_the_name_of_a_neighbour_do_not_reach_the_terminal(tmp_path: Path) -> None:
    mixed = Mixed()
    (row,) = mixed.eos.now["show lldp neighbors detail"]["lldpNeighbors"]["Ethernet5/1"]["lldpNeighborInfo"]
    row["systemName"] = "\x1b[2J\x1b]0;x\x07gpu001"
    (tmp_path / "leaf3.txt").write_text(mixed.eos.session())
    directory.save(tmp_path / "nodes", mixed.clos.evidences())
    words = run("judge", str(tmp_path / "nodes"), "--switch-files", str(tmp_path / "leaf3.txt"), "--only", "link.*",
                "--html", str(tmp_path / "page.html"), expect=(0, 1, 3))  # fmt: skip
    assert "\x1b]" not in words + (tmp_path / "page.html").read_text()
    assert "\x1b[2J" not in words


@pytest.mark.parametrize("lack", ["", "an unread host", "a spine that does not count the pauses that it sends"])
def test_a_leaf_that_counts_no_pauses_is_blamed_only_if_all_at_its_cables_do(tmp_path: Path, lack: str) -> None:
    """Its thresholds and headroom are not blamed if another device may have paused it."""
    mixed = Mixed()
    mixed.clos.pause("spine1", "Ethernet32", 0.1).pause("leaf1", "Ethernet32", 0.05)
    if lack == "an unread host":
        del mixed.clos.heard["gpu009"]
    elif lack:
        for later in (False, True):
            del mixed.clos.counters("spine2", "Ethernet32", later=later)["SAI_PORT_STAT_PFC_3_TX_PKTS"]
    report = mixed.judged(tmp_path)
    roots = [entry for entry in wrong(report) if entry[1] == "fabric.pause-root"]
    assert roots == ([] if lack else [("warn", "fabric.pause-root", "leaf3")])
    messages = [finding["message"] for finding in report["findings"] if "pauses other devices" in finding["message"]]
    assert [message[:70] for message in messages] == [
        "leaf3 pauses other devices for an unknown reason: neither the switch n"
    ] * bool(lack)


#: What identifies the site in the files of a mixed fabric.
IDENTIFYING = re.compile(
    r"leaf\d|spine\d|gpu0\d\d|SER0\d+|example\.net|192\.0\.2\.\d|02:5e:00:00:00:|02:00:00:00:0|025e\.0000|0200\.0000|10\.1[6-9]\.3[23]\."
)
#: Faults of three platforms, and of what hosts and SONiC switches count and announce.
TOGETHER = ("MTU at an uplink of EOS", "MTU at an uplink of NX-OS", "a BGP session of Linux, whose cable is up",
            "PFC on another priority at a port of NX-OS, by DCBX", "slow receiver behind EOS")  # fmt: skip


@pytest.mark.parametrize("way", ["sessions", "documents", "bundle"])
def test_redacted_files_of_all_platforms_name_nothing_and_keep_their_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("secrets.token_bytes", lambda number: b"0" * number)  # no alias looks like an address above
    mixed = Mixed()
    mixed.clos.heard = {host: end for host, end in mixed.clos.heard.items() if host in ("gpu001", "gpu009", "gpu014")}
    for name in TOGETHER:
        FAULTS[name][0](mixed)
    plain, redacted, archive = tmp_path / "plain", tmp_path / "redacted", tmp_path / "case.tar.gz"
    plain.mkdir()
    read = switch_documents([mixed.sessions(plain, as_json=False)])
    original = judge([*mixed.clos.evidences(), *read], ALL, SITE)
    assert {check for _, check, _ in wrong(original)} >= {FAULTS[name][1][1] for name in TOGETHER}
    if way != "sessions":
        for path in plain.iterdir():
            path.unlink()
    directory.save(plain, [*mixed.clos.evidences(), *(() if way == "sessions" else read)])
    if way == "bundle":
        run("bundle", str(plain), "-o", str(archive))
        with tarfile.open(archive) as packed:
            packed.extractall(redacted, filter="data")
    else:
        run("redact", str(plain), "-o", str(redacted))
    files = [path for path in redacted.rglob("*") if path.is_file()]
    left = {
        match for path in files for match in IDENTIFYING.findall(f"{path.relative_to(redacted)} {path.read_text()}")
    }
    assert left == set()
    sessions = [path for path in files if path.suffix == ".txt" and way == "sessions"]
    documents, _ = load([archive] if way == "bundle" else [path for path in files if path.suffix == ".json"])
    again = judge([*documents, *(switch_documents(sessions) if sessions else ())], ALL, SITE)
    verdicts, expected = (
        Counter((finding["status"], finding["check"], len(finding["nodes"])) for finding in report["findings"])
        for report in (again, original)
    )
    assert verdicts == expected

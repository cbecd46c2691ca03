"""SONiC switches over a real sshd, with a real Redis: sent commands, records and findings."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight.archive.switch_files import switch_documents
from preflight.collect.switch_lock import alone
from preflight.collect.switches import switch_probes
from preflight.collector.redis_databases import CONFIG, GLOBAL
from preflight.evidence.document import SWITCH, Evidence, read
from preflight.parsers.switch.sonic_tables import COUNTERS, TABLES
from tests.support.clos import Clos, sonic_session
from tests.support.in_process import run
from tests.support.sonic_redis import Recorder, SonicRedis, database_config, needs_redis
from tests.support.sshfarm import Farm, View
from tests.support.sshfarm.marks import needs_farm

pytestmark = [needs_farm, needs_redis]

LEAF, SPINE, CUMULUS, SEVERAL = "127.77.0.1", "127.77.0.2", "127.77.0.3", "127.77.0.4"
NAMES = {LEAF: "leaf1", SPINE: "spine1", CUMULUS: "leaf9", SEVERAL: "core1"}
#: Twice the polling interval of the counters, as set on the switch.
WINDOW_S = 4


def sonic(path: Path, **files: str) -> View:
    version = "build_version: '202405.1'\n"
    return View(files={CONFIG: database_config(path), "/etc/sonic/sonic_version.yml": version, **files})


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Farm, Clos, Recorder, SonicRedis]]:
    clos = Clos()
    with SonicRedis() as leaf, SonicRedis() as spine, Recorder(leaf.socket) as recorder:
        leaf.load(clos.databases["leaf1"])
        leaf.execute(["SELECT", "4"], ["SET", "PORT|not-a-hash", "x"], ["HSET", "SNMP_COMMUNITY|hunter2", "TYPE", "RO"])
        spine.load(clos.databases["spine1"])
        several = json.dumps({"INCLUDES": [{"include": "x"}, {"namespace": "asic0"}, {"namespace": "asic1"}]})
        views = {
            LEAF: sonic(recorder.socket), SPINE: sonic(spine.socket),
            CUMULUS: View(files={"/etc/os-release": "ID=cumulus-linux\n"}),
            SEVERAL: sonic(spine.socket, **{GLOBAL: several}),
        }  # fmt: skip
        with Farm(4, views) as farm:
            yield farm, clos, recorder, leaf


def words(farm: Farm, folder: Path, hosts: str) -> list[str]:
    """Return the arguments of ``preflight check --switches``; names are those of an SSH configuration."""
    config = folder / "ssh_config"
    stanzas = "".join(f"Host {name}\n HostName {address}\n HostKeyAlias [{address}]:{farm.port}\n Port {farm.port}\n"
                      f" User {farm.user}\n IdentityFile {farm.key}\n IdentitiesOnly yes\n"
                      f" UserKnownHostsFile {farm.known_hosts}\n StrictHostKeyChecking yes\n"
                      for address, name in NAMES.items())  # fmt: skip
    config.write_text(stanzas)
    cluster = folder / "cluster.toml"
    cluster.write_text(f'[switches]\nhosts = "{hosts}"\nroce_priority = 3\nroce_dscp = 26\ndcqcn = true\n')
    return ["check", "--switches", "--cluster", str(cluster), "--ssh-config", str(config)]


def check(farm: Farm, folder: Path, hosts: str, *options: str, expect: tuple[int, ...]) -> dict[str, Any]:
    """Run ``preflight check --switches`` and return its report."""
    run(*words(farm, folder, hosts), "--save", str(folder / "saved"), "--json", str(folder / "report.json"), *options,
        expect=expect)  # fmt: skip
    made: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return made


def dumped(clos: Clos, names: Iterable[str], folder: Path) -> list[Evidence]:
    """Write the dumps of one reading of each switch and return their documents."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for file, text in clos.dumps(name):
            if not file.endswith("_2.json"):
                (folder / name / file.replace("_1.", ".")).write_text(text)
    return switch_documents([folder])


def test_a_live_switch_and_its_dump_give_the_same_records_and_findings(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    farm, clos, recorder, _ = site
    live = check(farm, tmp_path, "leaf1,spine1", expect=(0, 1, 3))
    saved = {name: read(tmp_path / "saved" / f"{name}.json") for name in ("leaf1", "spine1")}
    for document in dumped(clos, saved, tmp_path / "files"):
        answer = saved[document.node]
        assert (answer.kind, answer.platform, answer.no_answer) == (SWITCH, "sonic", None)
        for key in document.records:
            assert answer.value(key) == document.value(key), key
            assert list(answer.value(key)) == list(document.value(key)), key
    assert from_files(tmp_path / "files", tmp_path, live["exit_status"]) == text_of(live)
    assert {finding["check"] for finding in live["findings"]} >= {"switch.ecn", "link.pfc", "switch.answers"}
    assert "hunter2" not in (tmp_path / "saved" / "leaf1.json").read_text()

    databases = {"0", "2", "4", "6"}
    tables = {table for wanted in TABLES.values() for table in wanted}
    fields = {field for wanted in TABLES.values() for _, names in wanted.values() for field in names}
    fields |= {field for _, _, names in COUNTERS.values() for field in names}
    for command, *words in recorder.commands():
        if command == "SELECT":
            assert set(words) <= databases
        elif command == "SCAN":
            assert words[1:] == ["COUNT", "1000"]
        elif command == "HGETALL":
            assert words[0] in {names for _, names, _ in COUNTERS.values()} or words[0].split("|")[0] in tables
        else:
            assert command == "HMGET"
            assert words[0].startswith("COUNTERS:oid:") or words[0].replace(":", "|").split("|")[0] in tables
            assert set(words[1:]) <= fields
    assert recorder.most_at_once == 1
    assert not {probe.kind for probe in switch_probes()} - {"file", "redis"}


def packed(files: Mapping[str, str], folder: Path) -> Path:
    """Write a techsupport archive."""
    path = folder / "techsupport.tar.gz"
    with tarfile.open(path, "w:gz") as packing:
        for name, text in files.items():
            info = tarfile.TarInfo(f"sonic_dump_leaf1/dump/{name}")
            info.size = len(text.encode())
            packing.addfile(info, io.BytesIO(text.encode()))
    return path


def text_of(report: Mapping[str, Any]) -> str:
    """Return a report as text, without the part about its run."""
    return json.dumps({**report, "run": None}, sort_keys=True)


def from_files(path: Path, folder: Path, expect: int = 1) -> str:
    """Return the report of ``judge --switch-files``."""
    run("judge", "--switch-files", str(path), "--cluster", str(folder / "cluster.toml"),
        "--json", str(folder / "files.json"), expect=(expect,))  # fmt: skip
    return text_of(json.loads((folder / "files.json").read_text()))


def test_live_counters_and_files_of_each_kind_give_the_same_report(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    farm, clos, _, leaf = site
    clos.grow("leaf1", "Ethernet16:3", SAI_QUEUE_STAT_DROPPED_PACKETS=1)
    leaf.execute(["SELECT", "4"], ["HSET", "FLEX_COUNTER_TABLE|QUEUE", "POLL_INTERVAL", "1000"])

    def grow() -> None:
        time.sleep(WINDOW_S * 0.6)
        leaf.load({"COUNTERS_DB": clos.later["leaf1"]})

    later = threading.Thread(target=grow)
    later.start()
    try:
        report = check(farm, tmp_path, "leaf1", "--window", str(WINDOW_S), expect=(1,))
    finally:
        later.join()
        leaf.load({"COUNTERS_DB": clos.databases["leaf1"]["COUNTERS_DB"]})
    failures = [(finding["check"], finding["subject"]) for finding in report["findings"] if finding["status"] == "fail"]
    assert failures == [("switch.lossless-drops", "leaf1 Ethernet16")]
    record = read(tmp_path / "saved" / "leaf1.json").record("redis:COUNTERS_DB queues")
    assert record.again is not None
    assert record.at_s is not None
    assert record.again.at_s is not None
    window_s = record.again.at_s - record.at_s
    assert WINDOW_S - 1 < window_s < WINDOW_S + 10
    clos.set("leaf1", "CONFIG_DB", "FLEX_COUNTER_TABLE|QUEUE", POLL_INTERVAL="1000")
    files = {**dict(clos.dumps("leaf1")), "date.counter_2": f"Sat Nov 21 03:00:{round(window_s):02} UTC 2026\n"}
    (tmp_path / "pasted.txt").write_text(sonic_session("leaf1", files))
    (tmp_path / "leaf1").mkdir()
    for name, text in files.items():
        (tmp_path / "leaf1" / name).write_text(text)
    for path in (packed(files, tmp_path), tmp_path / "leaf1", tmp_path / "pasted.txt"):
        assert from_files(path, tmp_path) == text_of(report), path


def test_a_switch_that_cannot_be_read_is_unknown_by_name(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    report = check(site[0], tmp_path, "leaf9,core1", expect=(3,))
    by_subject = {finding["subject"]: finding for finding in report["findings"] if finding["check"] == "switch.answers"}
    assert by_subject["leaf9"]["status"] == by_subject["core1"]["status"] == "unknown"
    assert "'cumulus'" in by_subject["leaf9"]["message"]
    assert "each of 2 ASICs has separate databases" in by_subject["core1"]["message"]


def test_a_switch_that_another_run_reads_is_unknown(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    farm, _, recorder, _ = site
    before = len(recorder.commands())
    with alone("leaf1"):
        report = check(farm, tmp_path, "leaf1", expect=(3,))
    assert "another run of preflight is reading this switch" in json.dumps(report)
    assert len(recorder.commands()) == before


def test_without_a_list_of_switches_none_is_contacted(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    (tmp_path / "cluster.toml").write_text("[switches]\nroce_priority = 3\n")
    run("check", "--switches", "--cluster", str(tmp_path / "cluster.toml"), expect=(2,))
    (tmp_path / "cluster.toml").write_text('[switches]\nhosts = "leaf1"\n')
    run("check", "--switches", "--via", "kubectl", "--cluster", str(tmp_path / "cluster.toml"), expect=(2,))


def test_an_interrupt_leaves_no_session_and_no_connection_open(
    site: tuple[Farm, Clos, Recorder, SonicRedis], tmp_path: Path
) -> None:
    """The interrupt comes while the collector waits for Redis."""
    farm, _, recorder, _ = site
    recorder.silent = True
    process = subprocess.Popen([sys.executable, "-m", "preflight", *words(farm, tmp_path, "leaf1")],
                               stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        until = time.monotonic() + 30
        while not recorder.open:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert farm.running(LEAF)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
        assert farm.left(LEAF) == {}
        while recorder.open:
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        recorder.silent = False
        process.kill()
        process.wait()

"""The collector's second reading: real files and commands, read twice with a pause in between."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from preflight.evidence.document import Evidence, EvidenceError, from_document
from preflight.facts.two_readings import twice
from preflight.probes.node import PROBES
from tests.integration.local.test_collector import collect, probe_entry, shell

WINDOW_S = 0.6


def again(*probes: dict[str, Any], window_s: float = WINDOW_S, **more: Any) -> dict[str, Any]:
    """Collect with a window; every probe is read twice."""
    found: dict[str, Any] = collect(*({**one, "twice": True} for one in probes), window_s=window_s, **more)["records"]
    return found


def test_each_source_has_both_readings_in_one_record(tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters" / "symbol_error").write_text("7\n")
    probes = (
        probe_entry("file", "/proc/uptime"),
        shell("cat /proc/uptime"),
        probe_entry("files", f"{tmp_path}/counters"),
    )
    found = again(*probes)
    for one in probes:
        record = found[one["key"]]
        assert record["status"] == record["again"]["status"] == "ok"
        assert record["again"]["at_s"] - record["at_s"] >= WINDOW_S
        assert "again" not in record["again"]
    uptime = found["file:/proc/uptime"]
    assert float(uptime["again"]["out"].split()[0]) > float(uptime["out"].split()[0])
    assert found[f"files:{tmp_path}/counters"]["value"] == {"symbol_error": "7"}


def test_without_a_window_everything_is_read_once() -> None:
    record = collect({**probe_entry("file", "/proc/uptime"), "twice": True})["records"]["file:/proc/uptime"]
    assert set(record) == {"status", "out"}


def test_what_is_not_wanted_twice_is_read_once() -> None:
    found = collect(
        probe_entry("file", "/proc/uptime"), {**probe_entry("file", "/proc/stat"), "twice": True}, window_s=WINDOW_S
    )
    assert "again" not in found["records"]["file:/proc/uptime"]
    assert "again" in found["records"]["file:/proc/stat"]


def test_what_could_not_be_read_is_not_read_again() -> None:
    found = again(shell("true", argv=["no-such-tool"]), probe_entry("files", "/no/such/folder"))
    assert [(record["status"], "again" in record) for record in found.values()] == [("missing", False)] * 2


def test_a_deadline_before_the_end_of_the_window_leaves_the_first_reading() -> None:
    found = again(probe_entry("file", "/proc/uptime"), probe_entry("file", "/proc/*/uptime"), window_s=60, deadline_s=4)
    record = found["file:/proc/uptime"]
    assert record["status"] == "ok"
    assert (record["again"]["status"], record["again"]["why"]) == ("not-run", "the run's deadline of 4 s expired first")


def test_a_second_reading_that_hangs_leaves_the_first(tmp_path: Path) -> None:
    mark = shlex.quote(f"{tmp_path}/mark")
    probe = shell(f"if [ -e {mark} ]; then sleep 60; else touch {mark}; echo 1; fi", timeout_s=2)
    record = again(probe)[probe["key"]]
    assert (record["status"], record["out"]) == ("ok", "1\n")
    assert record["again"]["status"] == "timeout"
    evidence = Evidence("n", "", {"cmd:x": record})
    with pytest.raises(EvidenceError, match="the second reading did not end within its time limit"):
        twice(evidence, "cmd:x", lambda one: one.out)


def test_matches_of_a_pattern_that_come_and_go(tmp_path: Path) -> None:
    """One worker: the command's second run is between the two readings of the files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "value").write_text("1")
    folder, mark = shlex.quote(str(tmp_path)), shlex.quote(f"{tmp_path}/mark")
    change = f"if [ -e {mark} ]; then rm -r {folder}/a; cp -r {folder}/b {folder}/c; else touch {mark}; fi"
    found = again(shell(change), probe_entry("file", f"{tmp_path}/*/value"), parallel=1)
    gone, stayed, new = (found[f"file:{tmp_path}/{name}/value"] for name in ("a", "b", "c"))
    assert stayed["again"]["out"] == "1"
    assert gone["out"] == "1"
    assert gone["again"] == {"status": "missing", "why": "is gone at the second reading"}
    assert (new["status"], new["why"]) == ("missing", "was missing at the first reading")
    assert new["again"]["out"] == "1"


def test_each_subject_of_a_command_is_read_twice(tmp_path: Path) -> None:
    for name in ("eth0", "eth1"):
        (tmp_path / name).touch()
    probe = {**shell("echo"), "key": "cmd:echo {}", "argv": ["echo", "{}"], "each": [f"{tmp_path}/*"]}
    found = again(probe)
    assert {key: record["again"]["out"] for key, record in found.items()} == {
        "cmd:echo eth0": "eth0\n",
        "cmd:echo eth1": "eth1\n",
    }


def test_lines_that_are_not_wanted_stay_on_the_node() -> None:
    rings = next(probe.omit for probe in PROBES if probe.target == "ethtool -S {}")
    lines = ["NIC statistics:", "     rx_discards_phy: 1", "     rx0_packets: 2", "     tx63_xdp_full: 3",
             "     ch12_events: 4", "     [7]: rx_ucast_packets: 5", "     rx_queue_0_drops: 6",
             "     rx_prio3_pause: 7",
             "     tx_prio0_bytes: 8", "     rx-0.packets: 9", "     rx_err_lane_0_phy: 10"]  # fmt: skip
    script = "printf '%s\\n' " + " ".join(shlex.quote(line) for line in lines)
    record = again({**shell(script), "omit": rings})[f"cmd:{script}"]
    names = [line.split(":")[0].strip() for line in record["out"].splitlines()]
    assert names == ["NIC statistics", "rx_discards_phy", "rx_prio3_pause", "tx_prio0_bytes", "rx_err_lane_0_phy"]
    assert record["omitted"] == record["again"]["omitted"] == 6


def test_a_folder_of_counters_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "symbol_error").write_text("12\n")
    (tmp_path / "no_pma").write_text("N/A (no PMA)\n")
    (tmp_path / "below").mkdir()
    os.symlink("/no/such/file", tmp_path / "dangling")
    record = collect(probe_entry("files", str(tmp_path)))["records"][f"files:{tmp_path}"]
    assert record["value"] == {"no_pma": "N/A (no PMA)", "symbol_error": "12"}
    assert record["err"] == "below: is a dir, not a regular file\ndangling: No such file or directory\n"
    (tmp_path / "symbol_error").write_text("1" * 5000)
    cut = collect(probe_entry("files", str(tmp_path)), output_cap=1000)["records"][f"files:{tmp_path}"]
    assert (cut["status"], cut["value"]) == ("ok", {"no_pma": "N/A (no PMA)"})
    assert "symbol_error: longer than 1000 bytes" in cut["err"]


def test_many_counters_are_cut_with_a_reason(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"counter_{number:03}").write_text("123456789\n")
    record = collect(probe_entry("files", str(tmp_path)), output_cap=1000)["records"][f"files:{tmp_path}"]
    assert record["status"] == "cut"
    assert "200 files" in record["why"]


def test_this_machine_has_its_cpus_in_a_window() -> None:
    document = collect({**probe_entry("file", "/proc/stat"), "twice": True, "omit": "intr "}, window_s=WINDOW_S)
    from preflight.facts.node import NodeFacts

    window = NodeFacts(from_document(document, "here")).cpu_window
    assert window.seconds >= WINDOW_S
    assert all(0 <= time.busy <= 1 for time in window.cpus.values())

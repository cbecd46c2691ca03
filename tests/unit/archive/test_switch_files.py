"""Files of switches: techsupport archives, dumps and configurations of SONiC become documents."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.archive import directory
from preflight.archive.directory import ArchiveError
from preflight.archive.lazy import load
from preflight.archive.switch_files import switch_documents
from preflight.evidence.document import SWITCH, dump, from_document
from preflight.facts.switch import sonic
from preflight.facts.switch.model import growth
from tests.support.clos import Clos, sonic_session


def archive(path: Path, files: Iterable[tuple[str, str]], *, packed: bool = False) -> Path:
    with tarfile.open(path, "w:gz") as packing:
        for name, text in files:
            content = gzip.compress(text.encode()) if packed else text.encode()
            info = tarfile.TarInfo(f"sonic_dump_leaf1/dump/{name}{'.gz' if packed else ''}")
            info.size = len(content)
            packing.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_techsupport_is_a_document_with_two_readings(tmp_path: Path, packed: bool) -> None:
    clos = Clos()
    (evidence,) = switch_documents([archive(tmp_path / "x.tar.gz", clos.dumps("leaf1"), packed=packed)])
    assert (evidence.node, evidence.kind, evidence.platform) == ("leaf1", SWITCH, "sonic")
    facts, expected = sonic.facts(evidence), sonic.facts(clos.switch("leaf1"))
    assert facts.window_s == 60
    assert facts.ports == expected.ports
    assert expected.second
    assert (facts.first, facts.second) == (expected.first, replace(expected.second, link_changes={}))
    assert not facts.gaps
    port = facts.second.ports["Ethernet0"] if facts.second else None
    assert port is not None
    assert growth(facts.first.ports["Ethernet0"].out_octets, port.out_octets) == 10**12


def test_a_pasted_session_is_the_document_of_its_databases(tmp_path: Path) -> None:
    clos = Clos()
    (tmp_path / "pasted.txt").write_text(text := sonic_session("leaf1", dict(clos.dumps("leaf1"))))
    (pasted,) = switch_documents([tmp_path / "pasted.txt"])
    (saved,) = switch_documents([archive(tmp_path / "x.tar.gz", clos.dumps("leaf1"))])
    assert (pasted.node, pasted.kind, pasted.platform) == ("leaf1", SWITCH, "sonic")
    facts, expected = sonic.facts(pasted), sonic.facts(saved)
    assert (facts.first, facts.second, facts.window_s) == (expected.first, expected.second, 60)
    assert replace(facts, began=0) == replace(expected, began=0)
    (tmp_path / "pasted.txt").write_text(text[: text.rindex("COUNTERS:oid") - 9000])  # the second reading is cut
    facts = sonic.facts(*switch_documents([tmp_path / "pasted.txt"]))
    assert (facts.first, facts.second) == (expected.first, None)


def test_a_session_without_dates_has_no_window(tmp_path: Path) -> None:
    text = sonic_session("leaf1", dict(Clos().dumps("leaf1")))
    (tmp_path / "pasted.txt").write_text(re.sub(r".*date\n.*\n", "", text))
    facts = sonic.facts(*switch_documents([tmp_path / "pasted.txt"]))
    assert facts.second
    assert facts.window_s is None


def test_a_folder_of_folders_and_one_folder_are_switches(tmp_path: Path) -> None:
    clos = Clos()
    for name in ("leaf1", "spine1"):
        for file, text in clos.dumps(name):
            (tmp_path / name / "dump").mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "dump" / file).write_text(text)
    assert [evidence.node for evidence in switch_documents([tmp_path])] == ["leaf1", "spine1"]
    assert [evidence.node for evidence in switch_documents([tmp_path / "leaf1"])] == ["leaf1"]
    with pytest.raises(ArchiveError, match="in two places"):
        switch_documents([tmp_path, tmp_path / "leaf1"])


def test_the_configuration_of_a_switch_is_read_in_its_own_shape(tmp_path: Path) -> None:
    nested: dict[str, dict[str, object]] = {}
    for key, row in Clos().databases["leaf1"]["CONFIG_DB"].items():
        table, _, name = key.partition("|")
        nested.setdefault(table, {})[name] = row
    nested["SNMP_COMMUNITY"] = {"hunter2": {"TYPE": "RO"}}
    (tmp_path / "config_db.json").write_text(json.dumps(nested))
    (evidence,) = switch_documents([tmp_path / "config_db.json"])
    facts = sonic.facts(evidence)
    assert facts.ports["Ethernet8"].pfc == frozenset({3})
    assert set(facts.gaps) >= {"ports", "lldp", "port counters"}
    assert "hunter2" not in dump(evidence)


@pytest.mark.parametrize(("fields", "pfc"), [
    ({"pfc_enable": "3,4"}, {3, 4}), ({}, set()), ({"pfc_enable": ""}, set()), ({"pfc_enable": "N/A"}, set()),
])  # fmt: skip
def test_priorities_with_pfc(fields: dict[str, str], pfc: set[int]) -> None:
    clos = Clos().set("leaf1", "CONFIG_DB", "PORT_QOS_MAP|Ethernet0", pfc_enable=None)
    clos.set("leaf1", "CONFIG_DB", "PORT_QOS_MAP|Ethernet0", **fields)
    assert sonic.facts(clos.switch("leaf1")).ports["Ethernet0"].pfc == frozenset(pfc)


def test_references_of_old_configurations() -> None:
    """Releases before 202106 write ``[TABLE|NAME]``, and one row for several ports and queues."""
    clos = Clos()
    for place in range(8):
        clos.drop("leaf1", "CONFIG_DB", f"QUEUE|Ethernet{place * 8}|3")
    ports = ",".join(f"Ethernet{place * 8}" for place in range(8))
    clos.set("leaf1", "CONFIG_DB", f"QUEUE|{ports}|3-4", wred_profile="[WRED_PROFILE|ROCE]")
    old, new = sonic.facts(clos.switch("leaf1")), sonic.facts(Clos().switch("leaf1"))
    assert {key: value for key, value in old.ecn.items() if key[1] == 3} == new.ecn


def test_a_counter_that_is_not_shown_is_not_zero() -> None:
    clos = Clos()
    for name in ("Ethernet0", "Ethernet0:3"):
        for later in (False, True):
            row = clos.counters("leaf1", name, later=later)
            for field in list(row):
                if "FEC" in field or "MARKED" in field or "DURATION" in field:
                    row[field] = "N/A"
    facts = sonic.facts(clos.switch("leaf1"))
    port, queue = facts.first.ports["Ethernet0"], facts.first.queues["Ethernet0", 3]
    assert (port.bins, port.uncorrectable, port.paused_us, queue.marked) == ((), None, (None,) * 8, None)


def test_a_damaged_dump_is_a_record_with_its_reason(tmp_path: Path) -> None:
    for file, text in Clos().dumps("leaf1"):
        (tmp_path / file).write_text(text[: len(text) // 2] if file == "STATE_DB.json" else text)
    (evidence,) = switch_documents([tmp_path])
    assert "STATE_DB.json cannot be read" in sonic.facts(evidence).gaps["optics"]


def test_a_cut_archive_is_read_up_to_its_end(tmp_path: Path) -> None:
    path = archive(tmp_path / "leaf1.tar.gz", sorted(Clos().dumps("leaf1"), key=lambda file: "COUNTERS" in file[0]))
    path.write_bytes(path.read_bytes()[:-2000])
    (evidence,) = switch_documents([tmp_path])
    facts = sonic.facts(evidence)
    assert (evidence.node, len(facts.ports)) == ("leaf1", 8)
    assert "cut or damaged" in facts.gaps["port counters"] or "cannot be unpacked" in facts.gaps["port counters"]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ArchiveError, match=r"leaf1\.tar\.gz cannot be read"):
        switch_documents([tmp_path])


def test_a_path_without_a_dump_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database\n")
    with pytest.raises(ArchiveError, match="contains no dump"):
        switch_documents([tmp_path])
    with pytest.raises(ArchiveError, match="no such file"):
        switch_documents([tmp_path / "none"])
    (tmp_path / "bad.tar.gz").write_bytes(b"\x1f\x8bgarbage")
    with pytest.raises(ArchiveError, match="cannot be read"):
        switch_documents([tmp_path / "bad.tar.gz"])


def test_documents_of_switches_are_saved_and_read_again(tmp_path: Path) -> None:
    clos = Clos()
    directory.save(tmp_path, clos.evidences())
    again, run = load([tmp_path])
    assert run is None
    assert {evidence.node for evidence in again if evidence.kind == SWITCH} == set(clos.databases)
    leaf = clos.switch("leaf1")
    assert from_document(json.loads(dump(leaf)), "leaf1").platform == "sonic"

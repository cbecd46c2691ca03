"""``preflight diff``: changes between two runs by node set; noise is not a change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.plugin_fixture import record
from tests.support.machines import evidence, hgx_h100
from tests.support.machines.fleet import fleet
from tests.unit.judge.test_waivers import DOWN

SKIP = ("--skip", "fleet.*")


def run(folder: Path, seed: int = 1, changed: Mapping[str, Mapping[str, Any]] | None = None) -> Path:
    """Save a run of four healthy nodes, with changed records of some of them."""
    nodes: list[Evidence] = []
    for document in fleet(hgx_h100("x"), 4, seed):
        records = dict(document["records"])
        for key, value in (changed or {}).get(document["node"], {}).items():
            assert key in records, key
            records[key] = record(key, value)
        nodes.append(from_document({**document, "records": records}, document["node"]))
    save(folder, nodes)
    return folder


def diff(*words: object, status: int, skip: Sequence[str] = SKIP) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["diff", *map(str, words), *skip, "--json"], catch_exceptions=False)
    assert done.exit_code == status, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def text(*words: object) -> str:
    return CliRunner().invoke(main, ["diff", *map(str, words), *SKIP], catch_exceptions=False).output


def test_temperatures_and_counters_are_no_change(tmp_path: Path) -> None:
    result = diff(run(tmp_path / "a", 1), run(tmp_path / "b", 2), status=0)
    assert result["findings"] == result["values"] == []
    assert result["nodes"]["both"] == 4
    assert text(tmp_path / "a", tmp_path / "b").startswith("NO WORSE: 4 nodes compared, nothing changed\n")


def test_a_new_fault_and_its_fix(tmp_path: Path) -> None:
    good, bad = run(tmp_path / "good"), run(tmp_path / "bad", changed={"gpu002": DOWN})
    result = diff(good, bad, status=1)
    (new,) = (finding for finding in result["findings"] if finding["check"] == "rdma.port-state")
    assert (new["change"], new["before"], new["after"], new["nodes"]) == ("new", "pass", "fail", ["gpu002"])
    assert "NEW  gpu002  rdma.port-state mlx5_3:1: pass -> fail" in text(good, bad)
    (gone,) = (f for f in diff(bad, good, status=0)["findings"] if f["check"] == "rdma.port-state")
    assert (gone["change"], gone["before"], gone["after"]) == ("gone", "fail", "pass")


def test_values_that_were_changed_are_folded(tmp_path: Path) -> None:
    kernel = {"file:/proc/sys/kernel/osrelease": "6.8.0-99-generic\n"}
    changed = dict.fromkeys(("gpu001", "gpu002", "gpu003"), kernel)
    good, other = run(tmp_path / "a"), run(tmp_path / "b", changed=changed)
    (value,) = diff(good, other, status=0)["values"]
    assert value["what"] == "kernel release"
    assert value["after"] == "6.8.0-99-generic"
    assert value["nodes"] == ["gpu001", "gpu002", "gpu003"]
    assert "  gpu[001-003]  kernel release: " in text(good, other)


def test_another_lost_gpu_is_a_change(tmp_path: Path) -> None:
    """The number of GPUs is the same: one came back, and another one was lost."""
    key = "dir:/sys/bus/pci/devices"
    bus = evidence(hgx_h100("x"))["records"][key]["entries"]
    sides = []
    for lost in ("0000:43:00.0", "0000:1b:00.0"):
        left = {address: entry for address, entry in bus.items() if address != lost}
        sides.append(run(tmp_path / lost[5:7], changed={"gpu001": {key: {"status": "ok", "entries": left}}}))
    assert "  gpu001  GPUs on the PCI bus: 0000:1b:00.0 -> 0000:43:00.0\n" in text(*sides)


def test_an_unreadable_value_did_not_change(tmp_path: Path) -> None:
    denied = {"gpu001": {"file:/proc/sys/kernel/osrelease": {"denied": "permission denied"}}}
    assert diff(run(tmp_path / "a"), run(tmp_path / "b", changed=denied), status=0)["values"] == []


def test_nodes_that_came_and_went_and_fell_silent(tmp_path: Path) -> None:
    before, after = run(tmp_path / "a"), run(tmp_path / "b")
    (after / "gpu001.json").unlink()
    (before / "gpu002.json").unlink()
    save(after, [no_answer("gpu003", "connect", "refused", "2026-11-21T00:00:00Z")])
    result = diff(before, after, status=3)
    assert result["nodes"] == {
        "both": 1, "came": ["gpu002"], "went": ["gpu001"], "fell_silent": ["gpu003"], "answer_again": [],
        "came_silent": [], "silent_in_both": [],
    }  # fmt: skip
    assert "gpu003: answered only in the first run" in text(before, after)
    assert diff(after, before, status=3)["nodes"]["answer_again"] == ["gpu003"], "gpu002 is gone"


def test_reports_can_be_compared_without_their_evidence(tmp_path: Path) -> None:
    reports = []
    for name, changed in (("good", {}), ("bad", {"gpu002": DOWN})):
        folder, written = run(tmp_path / name, changed=changed), tmp_path / f"{name}.json"
        CliRunner().invoke(main, ["judge", str(folder), *SKIP, "--json", str(written)], catch_exceptions=False)
        reports.append(written)
    result = diff(*reports, status=1)
    assert [f["check"] for f in result["findings"] if f["change"] == "new"] == [
        "rdma.bandwidth-per-gpu", "rdma.port-state",
    ]  # fmt: skip
    assert result["values_compared"] is False
    assert "values were not compared" in text(*reports)


def test_a_check_that_was_off_once_leaves_it_unclear(tmp_path: Path) -> None:
    folder, written = run(tmp_path / "bad", changed={"gpu002": DOWN}), tmp_path / "without.json"
    words = ["judge", str(folder), *SKIP, "--skip", "rdma.port-state", "--json", str(written)]
    CliRunner().invoke(main, words, catch_exceptions=False)
    (unclear,) = diff(written, folder, status=3)["findings"]
    assert (unclear["change"], unclear["before"], unclear["after"]) == ("unclear", None, "fail")
    result = diff(folder, written, status=3)
    assert result["not_judged_again"] == [{"check": "rdma.port-state", "nodes": [f"gpu00{n}" for n in range(1, 5)]}]
    assert "UNCLEAR  gpu[001-004]  judged in the first run only: rdma.port-state" in text(folder, written)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "no such file"), ('{"schema": "preflight.report/1"}', "an incomplete or damaged report")],
)
def test_a_side_that_cannot_be_read(tmp_path: Path, content: str | None, expected: str) -> None:
    side = tmp_path / "x.json"
    if content is not None:
        side.write_text(content)
    done = CliRunner().invoke(main, ["diff", str(side), str(run(tmp_path / "a"))], catch_exceptions=False)
    assert done.exit_code == 2
    assert expected in done.output


def test_hostile_names(tmp_path: Path) -> None:
    good, bad = run(tmp_path / "good"), run(tmp_path / "bad")
    for folder, changed in ((good, {}), (bad, DOWN)):
        (document,) = list(fleet(hgx_h100("x"), 1, 1))
        node = from_document(document, "x")
        records = {**node.records, **{key: record(key, value) for key, value in changed.items()}}
        save(folder, [replace(node, node="\x1b[31m<b>evil", records=records)])
    output = text(good, bad)
    assert "\x1b" not in output
    assert "\\x1b[31m<b>evil" in output

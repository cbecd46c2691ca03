"""Content of a bundle besides evidence: the cluster file, so that verdicts stay the same, and the logs."""

from __future__ import annotations

import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from tests.support.cluster_texts import GOOD
from tests.unit.archive.test_bundle import inside, made, run, small

SWEEP = """\
vendid=0x2c9
devid=0xd2f0
sysimgguid=0x2c90000000001
switchguid=0x2c90000000001(2c90000000001)
Switch\t2 "S-0002c90000000001"\t\t# "leaf1" enhanced port 0 lid 1 lmc 0
[1]\t"H-0002c90000000002"[1](2c90000000003) \t\t# "gpu001 mlx5_0" lid 2 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x2c90000000002
caguid=0x2c90000000002
Ca\t1 "H-0002c90000000002"\t\t# "gpu001 mlx5_0"
[1](2c90000000003) \t"S-0002c90000000001"[1]\t\t# lid 2 lmc 0 "leaf1" lid 1 4xNDR
"""
DEMO = Path(str(files("preflight.demo")))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder written by `--save`, with the cluster file in it."""
    folder = tmp_path_factory.mktemp("demo") / "saved"
    run("demo", "--save", str(folder), expect=1)
    return folder


@pytest.fixture
def saved(demo: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    return shutil.copytree(demo, tmp_path / "saved")


def verdicts(*words: object) -> dict[str, Any]:
    """Return the parts of a report without aliases."""
    done = CliRunner().invoke(main, [str(word) for word in ("judge", *words, "--json", "-")], catch_exceptions=False)
    report = json.loads(done.stdout)
    return {
        "exit_status": report["exit_status"],
        "coverage": {key: value for key, value in report["coverage"].items() if isinstance(value, int)},
        "nodes": sorted(json.dumps([node["status"], node["checks"]], sort_keys=True) for node in report["nodes"]),
        "findings": sorted(
            [item["check"], item["status"], item["gating"], len(item["nodes"])] for item in report["findings"]
        ),
        "checklists": [item["status"] for item in report["checklists"]],
    }


@pytest.mark.parametrize("how", [(), ("--no-redact",)], ids=["redacted", "as it is"])
def test_verdicts_are_equal_before_and_after(how: tuple[str, ...], saved: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "case.tar.gz"
    run("bundle", str(saved), *how, "-o", str(bundle))
    assert verdicts(bundle) == verdicts(saved)
    if not how:
        assert verdicts(bundle) != verdicts(*sorted(DEMO.glob("gpu*.json"))), "the cluster file decides some of them"
        output = "".join(run("judge", str(bundle), expect=1).split())  # a long path is wrapped at the end of a line
        assert f"judgedby:{bundle}:expected/cluster.toml" in output
        text = inside(bundle)["expected/cluster.toml"].decode()
        assert 'nodes = "node-a[001-008]"' in text
        assert "gpu00" not in text


def test_a_cluster_file_that_is_given_goes_along(tmp_path: Path) -> None:
    """The files that it names are included as well."""
    site, evidence = tmp_path / "site", tmp_path / "evidence"
    shutil.copytree(DEMO, site)
    evidence.mkdir()
    for path in DEMO.glob("gpu*.json"):
        shutil.copy(path, evidence)
    text = (site / "cluster.toml").read_text()
    (site / "cluster.toml").write_text(text + '\n[fabric]\nreference = "good/net.txt"\n')
    (site / "good").mkdir()
    (site / "good" / "net.txt").write_text(SWEEP)
    run("bundle", str(evidence), "--cluster", str(site / "cluster.toml"), "-o", str(tmp_path / "a.tar.gz"))
    assert {"expected/cluster.toml", "expected/good/net.txt"} <= set(inside(tmp_path / "a.tar.gz"))
    assert verdicts(tmp_path / "a.tar.gz") == verdicts(evidence, "--cluster", site / "cluster.toml")


def test_a_bundle_and_a_folder_with_another_cluster_file(saved: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "case.tar.gz"
    run("bundle", str(saved), "-o", str(bundle))
    (tmp_path / "more" / "expected").mkdir(parents=True)
    (tmp_path / "more" / "expected" / "cluster.toml").write_text(GOOD)
    (tmp_path / "more" / "x.json").write_bytes(small("x"))
    output = run("judge", str(bundle), str(tmp_path / "more"), expect=None)
    assert "differ; use --cluster FILE" in output


@pytest.mark.parametrize("name", ["/etc/shadow", "../secret"])
def test_a_cluster_file_of_a_stranger_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    text = f'{GOOD}[fabric]\nreference = "{name}"\n'.encode()
    bundle = made(tmp_path / "a.tar.gz", [("expected/cluster.toml", text), ("evidence/a.json", small("a"))])
    output = run("judge", str(bundle), expect=None)
    assert "names a file outside of its folder; use --cluster FILE" in output
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tar.gz"]


def test_files_beside_the_evidence_go_along_or_are_named(saved: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "case.tar.gz"
    shutil.copy(DEMO / "job.log", saved)
    (saved / "core.bin").write_bytes(os.urandom(300) + b"\0")
    (saved / "old.json").write_text('{"schema": "preflight.report/1"}')
    (saved / "link").symlink_to("/etc/passwd")
    (saved / "long.log").write_bytes(b"x\n" * 17_000_000)
    output = run("bundle", str(saved), "-o", str(bundle))
    for what in ("core.bin: is not text", "old.json: is a report", "link is a link", "long.log: has 340"):
        assert f"left out: {saved}/{what}" in output
    held = inside(bundle)
    assert [name for name in held if name.startswith("files/")] == ["files/job.log"]
    assert b"NCCL INFO" in held["files/job.log"]
    assert b"gpu00" not in held["files/job.log"]
    assert b"node-a00" in held["files/job.log"]
    output = run("bundle", str(saved), "--no-redact", "-o", str(tmp_path / "b.tar.gz"))
    assert inside(tmp_path / "b.tar.gz")["files/job.log"] == (DEMO / "job.log").read_bytes()
    assert f"left out: {saved}/long.log" in output

"""Bundles: their content is restored unchanged, and a foreign archive does no harm."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.archive.directory import ArchiveError
from preflight.archive.lazy import HELD, load
from preflight.cli.app import main
from preflight.commands.bundle_contents import narrowed
from preflight.evidence import bundle as packed
from preflight.evidence.document import dump, from_document
from tests.support import report_samples
from tests.support.machines import one_pair
from tests.support.machines.fleet import fleet

NODES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence")
    for document in fleet(one_pair(""), NODES, seed=3):
        (path / f"{document['node']}.json").write_text(dump(from_document(document, "here")))
    return path


def run(*arguments: str, expect: int | None = 0) -> str:
    result = CliRunner().invoke(main, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    if expect is not None:
        assert result.exit_code == expect, result.output
    return result.output


def inside(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def without_run(report: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report)
    document.pop("run")
    return document


def test_a_bundle_is_redacted_and_judged_as_it_is(folder: Path, tmp_path: Path) -> None:
    bundle, again = tmp_path / "case.tar.gz", tmp_path / "again.json"
    output = run("bundle", str(folder), "--nodes", "gpu[001,003]", "-o", str(bundle))
    assert "2 nodes" in output
    assert "2 × host" in output
    files = inside(bundle)
    assert sorted(files) == [
        "MANIFEST.json", "README.txt", "evidence/node-a001.json", "evidence/node-a003.json", "report.html",
        "report.json", "versions.json",
    ]  # fmt: skip
    for name, content in files.items():
        assert b"gpu00" not in content, name
    manifest = json.loads(files["MANIFEST.json"])
    assert manifest["redacted"] is True
    for one in manifest["files"]:
        assert hashlib.sha256(files[one["name"]]).hexdigest() == one["sha256"]
    assert set(json.loads(files["versions.json"])["nodes"]) == {"node-a001", "node-a003"}
    run("judge", str(bundle), "--json", str(again), expect=None)
    assert without_run(again.read_bytes()) == without_run(files["report.json"])
    assert "  pass " in run("checklist", str(bundle))
    assert run("diff", str(bundle), str(bundle))


def test_the_same_evidence_gives_the_same_archive(folder: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.tar.gz", tmp_path / "other.tar.gz"
    for path in (one, other):
        assert "not redacted" in run("bundle", str(folder), "--no-redact", "-o", str(path))
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_mode & 0o077 == 0
    evidences, _ = load([one])
    assert list(evidences) == list(load([folder])[0])


def test_a_report_is_taken_as_it_is_and_narrowed(folder: Path, tmp_path: Path) -> None:
    report, bundle = tmp_path / "report.json", tmp_path / "case.tar.gz"
    run("judge", str(folder), "--json", str(report), expect=None)
    run("bundle", str(report), str(folder), "--nodes", "gpu002", "--no-redact", "-o", str(bundle))
    bundled = json.loads(inside(bundle)["report.json"])
    assert [node["name"] for node in bundled["nodes"]] == ["gpu002"]
    assert all(finding["nodes"] == ["gpu002"] for finding in bundled["findings"])
    assert bundled["coverage"]["nodes"]["planned"] == NODES, "the coverage is that of the whole run"
    assert narrowed(bundled, frozenset(("gpu002",))) == bundled


def test_incidents_are_narrowed_with_the_findings() -> None:
    report = report_samples.sick()
    assert [len(incident["nodes"]) for incident in report["incidents"]] == [1, 1, 1]
    bundled = narrowed(report, frozenset(("gpu031",)))
    assert [incident["nodes"] for incident in bundled["incidents"]] == [["@run"], ["gpu031"]]
    for incident in bundled["incidents"]:
        assert bundled["findings"][incident["findings"][0]]["message"] == incident["title"]


def test_what_it_refuses(folder: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "case.tar.gz")
    assert "no evidence of gpu009" in run("bundle", str(folder), "--nodes", "gpu[001,009]", "-o", output, expect=2)
    assert "with --no-redact" in run("bundle", str(folder), "--no-redact", "--also", "x", "-o", output, expect=2)
    Path(output).write_text("")
    assert "already exists" in run("bundle", str(folder), "-o", output, expect=2)


def test_a_node_in_two_places_is_an_error(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "case.tar.gz"
    run("bundle", str(folder), "--no-redact", "-o", str(bundle))
    with pytest.raises(ArchiveError, match="both describe node gpu001"):
        load([bundle, folder])


def test_many_nodes_are_not_held(tmp_path: Path) -> None:
    bundle = tmp_path / "many.tar.gz"
    files = [(f"evidence/n{number:03d}.json", small(f"n{number:03d}")) for number in range(HELD + 5)]
    made(bundle, files)
    evidences, run_logs = load([bundle])
    assert [evidence.node for evidence in evidences] == [f"n{number:03d}" for number in range(HELD + 5)]
    assert run_logs is None
    assert not isinstance(evidences, list)


# --- foreign archives --------------------------------------------------------------------------------


def small(node: str) -> bytes:
    document = {"schema": "preflight.evidence/1", "node": node, "collected_at": "2026-11-21T03:00:00Z",
                "collector": {}, "records": {}}  # fmt: skip
    return json.dumps(document).encode()


def made(path: Path, files: list[tuple[str, bytes]]) -> Path:
    with path.open("wb") as stream:
        packed.write(stream, {}, [(name, [body]) for name, body in files])
    return path


def by_hand(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], listed: bool = True) -> Path:
    """Write an archive with these members and a matching manifest."""
    files = [
        {"name": info.name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()} for info, body in members
    ]
    manifest = json.dumps({"schema": packed.SCHEMA, "files": files if listed else []}).encode()
    head = tarfile.TarInfo(packed.MANIFEST)
    head.size = len(manifest)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(head, io.BytesIO(manifest))
        for info, body in members:
            archive.addfile(info, io.BytesIO(body))
    return path


def member(name: str, body: bytes = b"", kind: bytes = tarfile.REGTYPE, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, to, len(body)
    return info, body


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member("../../evil.json", small("a"))], "points outside the archive"),
        ([member("/etc/evil.json", small("a"))], "points outside the archive"),
        ([member("evidence/a.json", kind=tarfile.SYMTYPE, to="/etc/passwd")], "not a regular file"),
        ([member("evidence/a.json", kind=tarfile.LNKTYPE, to="MANIFEST.json")], "not a regular file"),
        ([member("evidence/a.json", kind=tarfile.FIFOTYPE)], "not a regular file"),
        ([member("evidence/a.json", kind=tarfile.CHRTYPE)], "not a regular file"),
        ([member("evidence", kind=tarfile.DIRTYPE)], "not a regular file"),
        (
            [member("evidence/a.json", small("a")), member("evidence/a.json", small("b"))],
            "stands in it twice|does not match its manifest",
        ),
    ],
    ids=["climbs", "absolute", "symlink", "hard-link", "fifo", "device", "directory", "twice"],
)
def test_what_is_no_plain_file_in_its_place_is_refused(
    members: list[tuple[tarfile.TarInfo, bytes]], words: str, tmp_path: Path
) -> None:
    path = by_hand(tmp_path / "evil.tar.gz", members)
    with pytest.raises(ArchiveError, match=words) as raised:
        load([path])
    assert str(path) in str(raised.value)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evil.tar.gz"]


def test_members_that_differ_from_the_manifest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not listed in its manifest"):
        load([by_hand(tmp_path / "a.tar.gz", [member("evidence/a.json", small("a"))], listed=False)])
    path = made(tmp_path / "b.tar.gz", [("evidence/a.json", small("a"))])
    changed = gzip.decompress(path.read_bytes()).replace(b'"node": "a"', b'"node": "b"')
    path.write_bytes(gzip.compress(changed))
    with pytest.raises(ArchiveError, match="does not match its manifest"):
        load([path])


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.97])
def test_a_bundle_that_is_cut_off_is_refused(keep: float, folder: Path, tmp_path: Path) -> None:
    path = made(tmp_path / "a.tar.gz", [(f"evidence/{one.name}", one.read_bytes()) for one in sorted(folder.iterdir())])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(ArchiveError, match=r"damaged|cannot be read|incomplete"):
        load([path])


def test_other_archives_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"no archive"))
    with pytest.raises(ArchiveError, match="not a bundle, or damaged"):
        load([tmp_path / "a.gz"])
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        info, body = member("gpu001.json", small("gpu001"))
        archive.addfile(info, io.BytesIO(body))
    with pytest.raises(ArchiveError, match="not from `preflight bundle`"):
        load([tmp_path / "b.tgz"])


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo(packed.MANIFEST)
    info.size = 200_000_000
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(info.tobuf())
        for _ in range(200):
            stream.write(bytes(1_000_000))
    began = time.process_time()
    with pytest.raises(ArchiveError, match=rf"{path}.*times its size, the limit"):
        load([path])
    assert time.process_time() - began < 5


def test_a_file_in_it_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.tar.gz", [("evidence/a.json", small("a") + b" " * 5000)])
    monkeypatch.setattr(packed, "MOST_BYTES_OF_ONE", 4000)
    with pytest.raises(ArchiveError, match=r"a\.json' in it has \d+ bytes; the limit is 4000"):
        load([path])
    monkeypatch.setattr(packed, "MOST_BYTES", 8000)
    with pytest.raises(ArchiveError, match="unpacks to more than 8000 bytes"):
        load([path])
    monkeypatch.setattr(packed, "MOST_FILES", 1)
    monkeypatch.setattr(packed, "MOST_BYTES", 10**9)
    with pytest.raises(ArchiveError, match="more than 1 files"):
        load([path])


def test_a_name_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    """A header of the format itself can announce a name of any length."""
    long = tarfile.TarInfo("x")
    long.type, long.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(long.tobuf() + bytes(1 << 16)))
    with pytest.raises(ArchiveError, match="a header of 1073741824 bytes"):
        load([path])


def test_names_in_it_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "evil.tar.gz", [member("../\x1b[2J<b>.json", small("a"))])
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "judge", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "points outside the archive" in done.stderr
    assert "\x1b" not in done.stderr


def test_damaged_evidence_in_it_is_a_node_without_an_answer(tmp_path: Path) -> None:
    evidences, _ = load([made(tmp_path / "a.tar.gz", [("evidence/a.json", b"{"), ("evidence/b.json", small("b"))])])
    assert [(one.node, one.no_answer is None) for one in evidences] == [("a", False), ("b", True)]

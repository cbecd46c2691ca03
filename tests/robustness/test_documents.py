"""Damaged documents of preflight are rejected with file and place, or judged as missing.

Each is made by the product, damaged in one place, and given to the command that reads it.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.cli.app import main
from preflight.collect import journal
from preflight.collect.targets import TargetError, resolve
from preflight.evidence import bundle as packed
from preflight.evidence import document as evidence
from preflight.gate import policy, published_verdicts, verdict_cache
from preflight.gate.state_dir import StateDir
from preflight.gate.verdict import UnusableVerdict, Verdict, to_document
from preflight.schemas import conform
from tests.support import paths
from tests.support.fixture import whole_node

SCHEMAS = Path(conform.__file__).parent
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

#: Replacements of a value.
WRONG = st.sampled_from(
    [None, True, 7, -1, 1.5, 10**400, float("nan"), float("inf"), "", "text", "a\nb", "\x1b[31m", [], [7], {}, {"a": 7}]
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield places in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield (*at, name)
        yield from places(part, (*at, name))


def changed(document: Any, at: tuple[Any, ...], value: Any = ...) -> Any:
    """Return a document with another value at a place, or without one."""
    made = copy.deepcopy(document)
    inner = made
    for step in at[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return made


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> bytes:
    """Return the bytes of a document with one wrong value or with damaged text."""
    raw = json.dumps(document).encode()
    how = draw(st.sampled_from(["value", "value", "value", "drop", "nest", "twice", "cut", "bytes", "empty"]))
    if how == "cut":
        return raw[: draw(st.integers(0, len(raw) - 1))]
    if how == "bytes":
        place = draw(st.integers(0, len(raw)))
        return raw[:place] + b"\xff\xfe" + raw[place:]
    if how == "empty":
        return draw(st.sampled_from([b"", b" \n", b"{}", b"[]", b"null", b"7", b"[" * 5000]))
    if how == "twice":
        return raw.replace(b"{", b'{"schema": "x", "node": "other", "status": "pass", ', 1)
    at = draw(st.sampled_from(list(places(document))))
    value = draw(WRONG) if how == "value" else ... if how == "drop" else [{"x": document}]
    return json.dumps(changed(document, at, value)).encode()


def ended(result: Result, allowed: tuple[int, ...] = (0, 1, 2, 3)) -> str:
    """Return the output of a command, which must end with a documented status."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in allowed, result.output
    assert "Traceback" not in result.output
    return result.output.replace("\n", "")


def no_file(path: Path, kind: str) -> None:
    """Replace a file by something that is not a file."""
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)


NO_FILES = ["directory", "pipe", "loop", "missing"]


# --- the validator ---------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_an_exact_comparison_is_that_of_the_library(data: st.DataObject) -> None:
    """A verdict, a journal and a manifest, each with one wrong place, apart from numbers that JSON does not have."""
    name, document = data.draw(st.sampled_from(list(GOOD.items())))
    made = changed(document, data.draw(st.sampled_from(list(places(document)))), data.draw(WRONG))
    if "NaN" in (text := json.dumps(made)) or "Infinity" in text:
        return
    library = jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))
    line_end = any(isinstance(part, str) and part.endswith("\n") for part in _leaves(made))
    assert bool(conform.find_error(made, name, exact=True)) is not library.is_valid(made) or line_end, made


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


VERDICT = to_document(
    Verdict("n1", "fail", 1_790_000_000, boot_id="b", policy="5e" * 16, cause="gpu.count", causes=("gpu.count",),
            reason="preflight: gpu.count: found 7, expected 8", unknowns=("xid.gpu",), off=("host.swap",), seconds=1.5)
)  # fmt: skip
JOURNAL = journal.describe_run(["n1", "n2"], None, {"probes": []}, {"deadline": 5.0})
GOOD: dict[str, Any] = {
    "verdict-1": VERDICT, "run-1": JOURNAL,
    "bundle-1": {"schema": packed.SCHEMA, "version": "1", "redacted": True, "nodes": 1,
                 "files": [{"name": "evidence/n1.json", "bytes": 3, "sha256": "0" * 64}]},
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_the_product_writes_fits_its_schema(name: str) -> None:
    assert conform.find_error(GOOD[name], name, exact=True) == ""
    jsonschema.validate(GOOD[name], json.loads((SCHEMAS / f"{name}.json").read_text()))


def test_a_name_of_a_node_that_is_none_is_refused() -> None:
    """A report repeats the name for each check: `bundle` of 100 KB took 8 s of CPU, and as much again for each KB."""
    good = {"schema": "preflight.evidence/1", "node": "n" * evidence.LONGEST_NAME, "collected_at": "", "records": {}}
    assert evidence.from_document(good, "x").node == good["node"]
    with pytest.raises(evidence.DocumentError, match="the node name in x has 1025 characters"):
        evidence.from_document({**good, "node": "n" * (evidence.LONGEST_NAME + 1)}, "x")


def test_a_place_is_named_as_one_line() -> None:
    """Names may contain foreign text."""
    records = {"dir:/x\n": {"status": "ok", "entries": {"a\nb": {"mode": 7}}}}
    found = conform.find_error({"node": "n", "records": records}, "evidence-1", ("node",))
    assert found == "records['dir:/x\\n'].entries['a\\nb'].type is missing"


def test_a_part_within_itself_is_compared() -> None:
    """A record's second reading is a record; any value used to be accepted."""
    record = {"status": "ok", "again": {"status": "ok", "rc": "0"}}
    assert conform.find_error(record, "evidence-1", part="record") == "again.rc is not of type integer"


# --- verdicts --------------------------------------------------------------------------------------


@SLOW
@given(data=st.data())
def test_a_damaged_verdict_of_a_node_starts_no_job(data: st.DataObject, tmp_path: Path) -> None:
    """A node publishes it and the controller's hook reads it. No damage turns a fail into a pass."""
    fresh = {**VERDICT, "at": int(time.time())}
    path = tmp_path / "n1.json"
    path.write_bytes(data.draw(damaged(fresh)))
    found = published_verdicts._read(path, "n1", 600)
    if isinstance(found, Verdict):  # the changed value is still valid in a verdict
        assert found.status == "fail"
        assert conform.find_error(to_document(found), "verdict-1", exact=True) == ""
    else:
        assert str(path) in found or found.startswith("its verdict is ")
        assert found.isprintable()


def test_a_verdict_with_two_statuses_is_none(tmp_path: Path) -> None:
    """The last one used to count, so ``fail`` followed by ``pass`` was a pass."""
    good = to_document(Verdict("n1", "pass", int(time.time())))
    path = tmp_path / "n1.json"
    path.write_text(json.dumps(good).replace('"status": "pass"', '"status": "fail", "status": "pass"'))
    assert published_verdicts._read(path, "n1", 600) == f"{path} is not a verdict: it has the key 'status' twice"
    path.write_text(json.dumps({**good, "causes": [7]}))
    assert published_verdicts._read(path, "n1", 600) == f"{path} is not a verdict: causes[0] is not of type string"


@pytest.mark.parametrize("kind", NO_FILES)
def test_no_file_is_no_verdict(kind: str, tmp_path: Path) -> None:
    no_file(tmp_path / "n1.json", kind)
    assert isinstance(published_verdicts._read(tmp_path / "n1.json", "n1", 600), str)


def state(folder: Path) -> tuple[StateDir, bytes]:
    """Make a state directory with a passing verdict, for a cluster file by which this machine cannot pass."""
    cluster = folder / "c.toml"
    cluster.write_text("[class.a]\ngpus = 8\nhcas = 8\n")
    store = StateDir(str(folder / "state"), create=True)
    inputs = [(str(cluster), verdict_cache.stamp(str(cluster)))]
    rules = {"slurm-prolog": {"strict": False, "cached": True, "actions": {}}}
    found = Verdict(os.uname().nodename.split(".")[0], "pass", int(time.time()), boot_id=verdict_cache.boot_id())
    verdict_cache.put(store, found, 300, rules, inputs)
    return store, (folder / "state" / verdict_cache.FILE).read_bytes()


def flipped(raw: bytes) -> Iterator[bytes]:
    """Yield a verdict with one wrong word in each line, and one that is not text."""
    lines = raw.split(b"\n")
    for number, line in enumerate(lines[:-2]):
        for value in (b"", b"-1", b"nan", b"1e400", b"9" * 400, b"\xff", b"x y=z", b"%zz"):
            yield b"\n".join([*lines[:number], line.split(b" ")[0] + b" " + value, *lines[number + 1 :]])
    yield from (b"", b"\0" * 100, raw[:-2], raw * 2, raw.replace(b"\n", b"\r\n"))


def test_a_damaged_verdict_of_before_is_none_or_the_same(tmp_path: Path) -> None:
    store, raw = state(tmp_path)
    good = verdict_cache.decode(raw)[0].verdict
    refused = 0
    for made in flipped(raw):
        (tmp_path / "state" / verdict_cache.FILE).write_bytes(made)
        try:
            found = verdict_cache.look(store, good.node, str(tmp_path / "c.toml"))
        except UnusableVerdict as error:
            refused += str(error).isprintable()
            continue
        assert found.verdict.node == good.node
        assert 0 <= found.age_s <= verdict_cache.INTERVALS * found.refresh_s
    assert refused > 60


@pytest.mark.parametrize("spoil", ["cut", "bytes", *NO_FILES])
def test_a_gate_judges_anew_where_its_verdict_is_damaged(spoil: str, tmp_path: Path) -> None:
    """The verdict passes; this machine has no GPUs, so a new one does not."""
    from tests.support.commands import run

    _, raw = state(tmp_path)
    path = tmp_path / "state" / verdict_cache.FILE
    words = ["gate", "slurm-prolog", "--dry-run", "--cluster", str(tmp_path / "c.toml"), "--state-dir",
             str(tmp_path / "state")]  # fmt: skip
    node = os.uname().nodename.split(".")[0]
    assert (
        verdict_cache.look(StateDir(str(tmp_path / "state")), node, str(tmp_path / "c.toml")).verdict.status == "pass"
    )
    if spoil in NO_FILES:
        no_file(path, spoil)
    else:
        path.write_bytes({"cut": raw[:-3], "bytes": raw.replace(b"status", b"stat\xff")}[spoil])
    root = paths.ROOT
    (ran,) = run([words], tmp_path, {"PYTHONPATH": str(root), "HOME": str(tmp_path)})
    assert ran.status in {rule.exit for rule in policy.HOOKS["slurm-prolog"].rules.values()}
    assert "Traceback" not in ran.output
    assert "PASS" not in ran.output
    assert "NOT JUDGED" in ran.output or "FAIL" in ran.output


# --- a journal -------------------------------------------------------------------------------------


def proceed(folder: Path) -> str:
    message = ""
    try:
        journal.proceed(folder, JOURNAL)
    except journal.ResumeError as error:
        message = str(error)
    assert not message or str(folder) in message
    return message


@settings(SLOW, max_examples=150)
@given(data=st.data())
def test_a_damaged_journal_continues_no_other_run(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / journal.JOURNAL
    raw = data.draw(damaged(JOURNAL))
    path.write_bytes(raw)
    if not (message := proceed(tmp_path)):
        made = json.loads(raw)
        assert {key: made[key] for key in JOURNAL} == JOURNAL
    assert message.isprintable()


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_journal_that_is_no_file_is_named(kind: str, tmp_path: Path) -> None:
    no_file(tmp_path / journal.JOURNAL, kind)
    done = CliRunner().invoke(main, ["check", "--hosts", "127.0.0.1", "--save", str(tmp_path), "--resume"])
    assert str(tmp_path) in ended(done, (2,))


def test_the_place_in_a_journal_is_named(tmp_path: Path) -> None:
    """The message used to be "its journal is of another version", or missing."""
    journal.begin(tmp_path, {**JOURNAL, "hosts": ["n1", 7]})
    assert "(hosts[1] is not of type string)" in proceed(tmp_path)
    journal.begin(tmp_path, JOURNAL)
    assert proceed(tmp_path) == ""


# --- a bundle --------------------------------------------------------------------------------------


def bundle(path: Path, manifest: bytes, body: bytes) -> None:
    with gzip.open(path, "wb") as packed_, tarfile.open(fileobj=packed_, mode="w|") as archive:
        for name, content in ((packed.MANIFEST, manifest), ("evidence/n.json", body)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@SLOW
@given(data=st.data())
def test_a_damaged_manifest_is_refused_by_name(data: st.DataObject, tmp_path: Path) -> None:
    body = json.dumps({"schema": evidence.SCHEMA, "node": "n", "records": {}}).encode()
    good = tmp_path / "whole.tar.gz"
    with good.open("wb") as stream:
        packed.write(stream, {"version": "1", "redacted": False, "nodes": 1}, [("evidence/n.json", [body])])
    with tarfile.open(good) as archive:
        manifest = json.load(archive.extractfile(packed.MANIFEST))  # type: ignore[arg-type]
    bad = tmp_path / "bad.tar.gz"
    bundle(bad, data.draw(damaged(manifest)), body)
    done = CliRunner().invoke(main, ["judge", str(bad), "--only", "gpu.count"])
    output = ended(done)
    if done.exit_code == 2:
        assert "bad.tar.gz" in output


# --- evidence --------------------------------------------------------------------------------------


def small() -> dict[str, Any]:
    document = dict(whole_node("hgx-h100-roce"))
    kinds: dict[str, Any] = {}
    for key, record in document["records"].items():
        kinds.setdefault(f"{key.split(':')[0]} {sorted(record)} {record['status']}", key)
    document["records"] = {key: document["records"][key] for key in kinds.values()}
    return document | {"origin": "made by hand", "pair": {"peer": "n2", "tests": ["path-mtu"]}}


VALUES: tuple[Any, ...] = (None, False, [{}])
HEAD = [("node",), ("collected_at",), ("collector",), ("collector", "uid"), ("origin",), ("pair",), ("pair", "peer"),
        ("pair", "tests"), ("pair", "tests", 0), ("records",)]  # fmt: skip


@pytest.mark.parametrize("at", HEAD[1:])
def test_a_damaged_head_is_a_node_without_an_answer(at: tuple[Any, ...], tmp_path: Path) -> None:
    """A part for two nodes with a damaged ``pair`` used to be taken for the complete document."""
    document, place = small(), ".".join(step for step in at if isinstance(step, str))
    path = tmp_path / "bad.json"
    for value in VALUES:
        path.write_text(json.dumps(changed(document, at, value)))
        done = CliRunner().invoke(main, ["judge", str(path), "--only", "gpu.count"])
        output = " ".join(done.output.split())
        assert done.exit_code == 3
        assert "bad.json" in output
        assert f"is damaged: {place}" in output, output


def test_a_damaged_record_is_unknown_and_the_others_are_judged(tmp_path: Path) -> None:
    document = dict(whole_node("hgx-h100-roce"))
    good, bad, report = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "report.json"
    good.write_text(json.dumps({**document, "node": "good"}))
    key = "dir:/sys/bus/pci/devices"
    name = next(iter(document["records"][key]["entries"]))
    bad.write_text(json.dumps(changed({**document, "node": "bad"}, ("records", key, "entries", name, "mode"), 7)))
    done = CliRunner().invoke(main, ["judge", str(good), str(bad), "--json", str(report)])
    ended(done)
    result = json.loads(report.read_text())
    about = [one for one in result["findings"] if "is damaged: entries[" in one["message"]]
    assert about, key
    assert {one["status"] for one in about} == {"unknown"}
    (other,) = (node for node in result["nodes"] if node["name"] == "good")
    assert other["checks"]["gpu.count"] == "pass"


@settings(SLOW, max_examples=60)
@given(data=st.data())
def test_damaged_evidence_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data.draw(damaged(EVIDENCE)))
    done = CliRunner().invoke(main, ["judge", str(path), "--only", "gpu.*", "--only", "host.*"])
    ended(done)


EVIDENCE = small()


@pytest.mark.parametrize("kind", NO_FILES)
def test_evidence_that_is_no_file_is_named(kind: str, tmp_path: Path) -> None:
    no_file(tmp_path / "bad.json", kind)
    done = CliRunner().invoke(main, ["judge", str(tmp_path / "bad.json")])
    assert "bad.json" in ended(done, (2, 3))


# --- a report --------------------------------------------------------------------------------------


@settings(SLOW, max_examples=60)
@given(data=st.data())
def test_a_damaged_report_reruns_no_other_nodes(data: st.DataObject, tmp_path: Path) -> None:
    """``--rerun`` reads host names from it: only names that the report lists as nodes are contacted."""
    nodes = [{"name": "n1", "status": "fail"}, {"name": "n2", "status": "pass"}]
    report = {"schema": "preflight.report/1", "nodes": nodes}
    path = tmp_path / "r.json"
    path.write_bytes(data.draw(damaged(report)))
    message, found = str(path), tuple[str, ...]()
    try:
        found = resolve(rerun=path)
    except TargetError as error:
        message = str(error)
    assert str(path) in message
    assert set(found) <= {"n1", "n2", "text"}

"""Foreign JSON takes a bounded amount of memory: in answers of nodes, files and records."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.collector import frame
from preflight.evidence import json_limits
from preflight.evidence.document import DocumentError, decode, from_document
from tests.support import commands
from tests.support.paths import ROOT

MIB = 1 << 20

#: The repeated unit and the text around it: small texts that decode to large values.
SHAPES = {
    "lists": ("[", "[],", "1]"), "dictionaries": ("[", '{"a":{}},', "1]"), "deep": ("", "[", ""),
    "nested": ("[", '{"a":' * 50 + "1" + "}" * 50 + ",", "1]"), "texts": ("[", '"ab",', "1]"),
    "numbers": ("[", "1.5,", "1]"), "digits": ("", "9", ""), "wide": ('["\U0001f600', "a", '"]'),
    "escaped": ('["\\ud83d\\ude00', "a", '"]'), "same keys": ("{", '"a":[1],', '"b":1}'),
    "lists of one": ("[", "[1],", "1]"), "escapes": ('["', "\\u00e9", '"]'),
}  # fmt: skip


def shaped(shape: str, size: int) -> str:
    before, part, after = SHAPES[shape]
    return before + part * (size // len(part)) + after


def evidence(value: str) -> str:
    return '{"schema":"preflight.evidence/1","node":"a","records":{"x":' + value + "}}"


def framed(text: str) -> frame.FrameReader:
    payload = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
    reader = frame.FrameReader()
    digest = hashlib.sha256(payload).hexdigest().encode()
    assert reader.feed(frame.MAGIC + b"%d %s\n" % (len(payload), digest) + payload + frame.END)
    return reader


@pytest.mark.parametrize("shape", sorted(set(SHAPES) - {"deep"}))
def test_what_is_estimated_is_enough(shape: str) -> None:
    """The text and its values never take more than the estimate."""
    text = shaped(shape, 900 if shape == "digits" else 200_000)
    raw = text.encode("utf-8", "surrogatepass")
    tracemalloc.start()
    try:
        decoded = (raw.decode("utf-8", "surrogatepass"), json.loads(text))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert decoded
    assert taken <= json_limits.memory(raw) + 4096


VALUES = st.recursive(
    st.none() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6), max_leaves=40,
)  # fmt: skip


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_any_value_is_estimated_and_comes_back(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json_limits.decoded(raw) == json.loads(raw)
    structure = json.dumps(_bare(value)).encode()
    counts, _ = json_limits._within(raw, 1, False)
    assert counts == [structure.count(mark) for mark in json_limits._MARKS]


def _bare(value: object) -> object:
    """Return the value without its texts, so that a count of its marks is that of its structure."""
    if isinstance(value, dict):
        return {f"k{number}": _bare(part) for number, part in enumerate(value.values())}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return "" if isinstance(value, str) else value


@pytest.mark.parametrize("shape", ["lists", "nested", "texts", "wide", "escaped"])
def test_an_answer_that_would_take_too_much_is_a_frame_error(shape: str) -> None:
    """127 KB on the wire used to become 3.4 GB of lists, in 26 s that no other node could use."""
    reader = framed(evidence(shaped(shape, 50 * MIB)))
    with pytest.raises(frame.DamagedFrame, match="MiB of memory"):
        reader.document(json_limits.answer)


def test_an_answer_that_does_not_decode_is_a_frame_error() -> None:
    for text in (evidence("9" * 5000), evidence("[" * 100_000), "[" * 100_000, "{", "", "[1]", '{"a": NaN'):
        with pytest.raises(frame.FrameError):
            framed(text).document(json_limits.answer)


def test_a_frame_that_is_no_text_is_a_frame_error() -> None:
    payload = zlib.compress(b'{"a": "\xff"}')
    reader = frame.FrameReader()
    reader.feed(frame.MAGIC + b"%d %s\n" % (len(payload), hashlib.sha256(payload).hexdigest().encode()))
    reader.feed(payload + frame.END)
    with pytest.raises(frame.DamagedFrame):
        reader.document(json_limits.answer)


def test_every_file_that_does_not_decode_is_one_kind_of_error() -> None:
    for raw in (b"9" * 5000, b"[" * 100_000, b"", b" ", b"\xff", b"\x00", b"[" + b"[]," * (10 << 20)):
        with pytest.raises(DocumentError):
            decode(raw, "x")


def test_complete_nodes_and_a_sweep_fit() -> None:
    for path in (*(ROOT / "fixtures" / "nodes").glob("*.json"), *(ROOT / "preflight" / "demo").glob("*.json")):
        assert json_limits.memory(path.read_bytes()) < json_limits.ANSWER // 40
    line = '[1](e41d2d0300a1b2c3) \t"S-e41d2d0300a1b2c0"[12]\t\t# lid 12 lmc 0 "MF0;leaf1:MQM9700/U1" lid 3 4xNDR\\n'
    sweep = json.dumps({"status": "ok", "rc": 0, "out": line * (30_000_000 // len(line))})
    text = evidence(sweep)
    assert len(text) > 30_000_000
    document = framed(text).document(json_limits.answer)
    assert from_document(document, "x").record("x").status == "cut", "no tool but those of a sweep prints so much"
    records = {"cmd:ibnetdiscover": document["records"]["x"]}
    assert from_document({**document, "records": records}, "x").record("cmd:ibnetdiscover").ok


def test_a_command_never_takes_more_than_half_a_gigabyte(tmp_path: Path) -> None:
    """Peak memory of complete processes, for any file; `judge` took 25 times the size of lists."""
    runs = []
    for name in ("lists", "nested", "escaped"):
        (tmp_path / f"{name}.json").write_text(evidence(shaped(name, 24 * MIB)), encoding="utf-8")
        runs.append(["judge", f"{name}.json"])
    (tmp_path / "findings.json").write_text(
        '{"schema":"preflight.report/1","run":{},"coverage":{},"nodes":[' + '{"name":"a"},' * MIB + "1]"
        ',"findings":[],"checklists":[],"exit_status":0}', encoding="utf-8",
    )  # fmt: skip
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(b"\0" * (100 * MIB), 1))
    (tmp_path / "dcb.json").write_text(shaped("lists", 10 * MIB), encoding="utf-8")
    runs += [["diff", "findings.json", "findings.json"], ["bundle", "findings.json", "-o", "x.tar.gz"],
             ["check", "--rerun", "findings.json"],
             ["judge", "bomb.tar.gz"], ["read", "dcb.json"],
             ["learn", "lists.json", "-o", "x.toml"]]  # fmt: skip
    for one in commands.run(runs, tmp_path, {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}):
        assert one.mib < 476, (one.words, one.mib)
        assert one.status in (2, 3), (one.words, one.status, one.output[-500:])
        assert "Traceback" not in one.output


#: Places where our own JSON, or JSON of bounded length, is decoded directly.
PLAIN = {
    "preflight/evidence/json_limits.py", "preflight/evidence/report_file.py", "preflight/schemas/conform.py",
    "preflight/judge/record_usage.py",
    "preflight/history/store.py", "preflight/archive/lazy.py", "preflight/archive/stored.py",
    "preflight/facts/nccl_settings/catalogue.py", "preflight/parsers/torch/json_stream.py",
    "preflight/parsers/torch/trace_events.py",
    "preflight/transport/slurm/srun.py",
    "preflight/parsers/torch/printed_dump.py", "preflight/parsers/nccl_log/prefix.py",
    "preflight/textprep/line_prefixes.py", "preflight/parsers/host/gcm_manifest.py",
    "preflight/parsers/network/network_status.py", "preflight/transport/slurm/line_protocol.py",
    "preflight/transport/payload.py",
}  # fmt: skip


def test_no_json_is_decoded_without_a_bound() -> None:
    for folder in ("preflight", "checks", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name in PLAIN or name.startswith("preflight/collector/"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                    "json.loads",
                    "json.load",
                    "json.JSONDecoder",
                ):
                    raise AssertionError(f"{name}:{node.lineno}: decode it with preflight.evidence.json_limits")

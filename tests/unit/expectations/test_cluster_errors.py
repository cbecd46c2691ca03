"""Invalid cluster files: each error with its line, key and fix; nothing else happens."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.checks import registry
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import ClusterFileError, decode

IDS = [check.id for check in registry().checks]
TODAY = date(2026, 11, 21)

WAIVER = '[[waiver]]\ncheck = "gpu.count"\nowner = "jane"\nreason = "known"\nuntil = 2026-12-31\n'

#: The error, and the start of the message after the file's name: line, key, fault, fix.
WRONG = {
    "unknown key": ("[class.a]\ngpuss = 8\n", ":2: class.a.gpuss: unknown key - did you mean gpus?"),
    "unknown table": ("[clas.a]\ngpus = 8\n", ":1: clas: unknown key - did you mean class?"),
    "unknown key in a sub-table": ("[class.a.ports]\nrate = 400\n", ":2: class.a.ports.rate: unknown key - "),
    "a unit after a number": (
        "[class.a.ports]\nrate_gbps = 400G\n",
        ":2: rate_gbps: something follows the value - write numbers without",
    ),
    "a unit in quotes": (
        '[class.a.ports]\nnetdev_mtu = "9000B"\n',
        ':2: class.a.ports.netdev_mtu: has the value "9000B" - takes an integer',
    ),
    "another unit": (
        "[class.a.ports]\nrate_gbps = 400000\n",
        ":2: class.a.ports.rate_gbps: has the value 400000 - takes a number from",
    ),
    "a text for a number": (
        '[class.a]\ngpus = "eight"\n',
        ':2: class.a.gpus: has the value "eight" - takes an integer',
    ),
    "a truth for a number": ("[class.a]\ngpus = true\n", ":2: class.a.gpus: has the value True - takes an integer"),
    "a number for a truth": ("[class.a]\nsudo = 1\n", ":2: class.a.sudo: has the value 1 - takes true or false"),
    "a list for a text": (
        "[class.a]\nbaseline = []\n",
        ":2: class.a.baseline: has the value [] - takes the path of a file",
    ),
    "a word that is none of them": (
        '[class.a.ports]\nlink_layer = "infiniband"\n',
        ':2: class.a.ports.link_layer: has the value "infiniband" - takes one',
    ),
    "an MTU that there is not": (
        "[class.a.ports]\nmtu = 9000\n",
        ":2: class.a.ports.mtu: has the value 9000 - takes one of",
    ),
    "a key twice": ("[class.a]\ngpus = 8\ngpus = 9\n", ":3: gpus: is set twice - keep one of the two"),
    "a table twice": ("[class.a]\ngpus = 8\n[class.a]\nhcas = 8\n", ":3: class.a: is set twice - keep one of the two"),
    "a dotted key beside its table": (
        "[class.a]\nports.mtu = 4096\n[class.a.ports]\nmtu = 2048\n",
        ":3: class.a.ports: is set twice - keep one",
    ),
    "a wrong dotted key": ("[class.a]\nports.mtuu = 4096\n", ":2: class.a.ports.mtuu: unknown key - did you mean mtu?"),
    "a wrong key in an inline table": (
        "[class.a]\ngpus = 8\nports = { mtuu = 4096 }\n",
        ":3: class.a.ports.mtuu: unknown key - did you mean mtu?",
    ),
    "an inline table over two lines": ("[class.a]\nports = { mtu = 4096,\n", ":2: ports: "),
    "a table that is none": (
        "[class.a]\nports = 4096\n",
        ":2: class.a.ports: is a number, not a table - write it as [class.a.ports]",
    ),
    "a list of tables for a table": (
        "[[class.a.ports]]\nmtu = 4096\n",
        ":1: class.a.ports: is a list, not a table - write it as [class.a.ports]",
    ),
    "a class of no name": (
        "[class]\ngpus = 8\n",
        ":2: class.gpus: is a number, not a table - write it as [class.gpus]",
    ),
    "no nodes in a set": (
        '[class.a]\nnodes = "gpu[2-1]"\n',
        ':2: class.a.nodes: has the value "gpu[2-1]" - takes names',
    ),
    "an empty set of nodes": ('[class.a]\nnodes = ""\n', ':2: class.a.nodes: has the value "" - takes names'),
    "nodes in two classes": (
        '[class.a]\nnodes = "n[1-4]"\n[class.b]\nnodes = "n[4-8]"\n',
        ":4: class.b.nodes: n4 is also in class a - list each",
    ),
    "two classes for the rest": (
        "[class.a]\ngpus = 8\n[class.b]\ngpus = 4\n",
        ":3: class.b: two classes (a, b) list no nodes",
    ),
    "a floor that the hardware cannot reach": (
        '[class.a]\npart = "HGX H100"\n[class.a.thresholds]\nall_reduce_busbw_gbytes_s = 900\n',
        ":4: class.a.thresholds.all_reduce_busbw_gbytes_s: ",
    ),
    "a lossless fabric without priority": (
        "[class.a.qos]\nlossless = true\n",
        ":2: class.a.qos.lossless: a lossless fabric needs",
    ),
    "more devices than HCAs": (
        '[class.a]\nhcas = 8\n[class.a.ports]\ncompute = "mlx5_[0-3]"\n',
        ":2: class.a.hcas: hcas is 8 but ports.compute names 4",
    ),
    "a device with two roles": (
        '[class.a.ports]\ncompute = "mlx5_[0-3]"\nstorage = "mlx5_3"\n',
        ":3: class.a.ports.storage: mlx5_3 also has the role compute",
    ),
    "an expired waiver": (
        WAIVER.replace("2026-12", "2026-10"),
        ":5: waiver[1].until: expired on 2026-10-31 - fix the fault",
    ),
    "a waiver without an end": (
        WAIVER.replace("until = 2026-12-31\n", ""),
        ":1: waiver[1]: has no until - add an end date",
    ),
    "a waiver without an owner, the second": (
        WAIVER + WAIVER.replace('owner = "jane"\n', ""),
        ":6: waiver[2]: has no owner - add the responsible owner",
    ),
    "a date in quotes": (
        WAIVER.replace("2026-12-31", '"2026-12-31"'),
        ':5: waiver[1].until: has the value "2026-12-31" - takes a date',
    ),
    "a time for a date": (
        WAIVER.replace("2026-12-31", "2026-12-31T00:00:00Z"),
        ":5: waiver[1].until: has the value 2026-12-31 ",
    ),
    "no such day": (WAIVER.replace("2026-12-31", "2026-02-30"), ":5: until: "),
    "a waiver that is a table": (
        WAIVER.replace("[[waiver]]", "[waiver]"),
        ":1: waiver: is not a list of tables - write each",
    ),
    "a check that there is not": (
        WAIVER.replace("gpu.count", "gpu.counts"),
        ':2: waiver[1].check: no check is called "gpu.counts" - did you mean "gpu.count"?',
    ),
    "no check for shadow": (
        '[checks]\nshadow = ["everything"]\n',
        ':2: checks.shadow: no check is called "everything"',
    ),
    "an unknown key of a waiver": (
        WAIVER + 'ticket = "4711"\n',
        ":6: waiver[1].ticket: unknown key - legal here: check",
    ),
    "a text without end": (
        '[class.a]\npart = "HGX H100\ngpus = 8\n',
        ":2: part: a string is not closed - close it with a quote",
    ),
    "a Windows path": ('[class.a.checkpoint]\npath = "C:\\data"\n', ":2: path: a backslash in a text - write it twice"),
    "a relative path": (
        '[class.a.checkpoint]\npath = "data"\n',
        ':2: class.a.checkpoint.path: has the value "data" - takes an',
    ),
    "a bracket too few": (
        "[class.a\ngpus = 8\n",
        ":1: class.a: the name of a table is not closed - write it as [name]",
    ),
    "no value": ("[class.a]\ngpus =\n", ":2: gpus: has no valid TOML value"),
    "no quotes": (
        "[class.a.ports]\nlink_layer = Ethernet\n",
        ":2: link_layer: has no valid TOML value - put text in quotes",
    ),
    "capital letters": ("[class.a]\nsudo = True\n", ":2: sudo: has no valid TOML value - put text in quotes"),
    "another language": ("class:\n  a:\n    gpus: 8\n", ":1: "),
    "a byte order mark": ("\ufeff[class.a]\ngpus = 8\n", ":1: begins with a byte order mark - save the file"),
    "a NUL": ("[class.a]\ngpus = 8\0\n", ":2: gpus: "),
    "nothing": ("", ": the file describes no class of nodes - add a table [class.NAME]"),
    "tables in tables without end": ("a = " + "[" * 5000, ": "),
    "a number with thousands of digits": (f"[class.a]\ngpus = {'9' * 5000}\n", ":2: "),
}


def errors(raw: bytes) -> list[str]:
    with pytest.raises(ClusterFileError) as caught:
        decode(raw, "cluster.toml", lambda: IDS, TODAY)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_error_names_line_key_and_fix(text: str, expected: str) -> None:
    for ending in ("\n", "\r\n"):
        messages = errors(text.replace("\n", ending).encode())
        assert any(line.removeprefix("cluster.toml").startswith(expected) for line in messages), messages
        assert all(" - " in line and "\0" not in line for line in messages)


def test_not_utf8() -> None:
    assert errors(b"[class.a]\ngpus = 8 # \xe9\n") == ["cluster.toml:2: not UTF-8 text (byte 21) - save it as UTF-8"]


def test_all_errors_at_once() -> None:
    messages = errors(b'[class.a]\ngpus = "8"\nhca = 8\n[[waiver]]\ncheck = "gpu.count"\n')
    assert [line.split(": ")[0] for line in messages] == [f"cluster.toml:{n}" for n in (2, 3, 4, 4, 4)]


VALID = f"""\
[cluster]
name = "c"
[class.a]
nodes = "n[1-4]"
gpus = 8
ports = {{ mtu = 4096, compute = ["mlx5_[0-3]"] }}
[class.a.checks]
shadow = ["gpu.*"]
{WAIVER}"""


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_errors_of_a_mutated_file_are_on_its_lines(data: st.DataObject) -> None:
    raw = bytearray(VALID.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 6))] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"[[", b'"', b"= ", b"\n", b"9" * 9, b"{", b"# "]))
        )
    try:
        assert isinstance(decode(bytes(raw), "cluster.toml", lambda: IDS, TODAY), Cluster)
    except ClusterFileError as error:
        lines = raw.replace(b"\r\n", b"\n").count(b"\n") + 1
        for line in str(error).split("\n"):
            assert line.startswith("cluster.toml:")
            if number := re.match(r"cluster\.toml:(\d+):", line):
                assert 1 <= int(number[1]) <= lines


@pytest.mark.parametrize("text", ["pfc_prio = 3", "pfc_priority = 9"])
def test_a_key_that_is_there_and_wrong_is_one_error(text: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        decode(f"[class.a.qos]\nlossless = true\n{text}\n".encode(), "c.toml")
    assert str(caught.value).startswith("c.toml:3: class.a.qos.pfc_prio")
    assert len(str(caught.value).splitlines()) == 1

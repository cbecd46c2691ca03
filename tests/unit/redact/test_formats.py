"""Every format that preflight writes comes out of `preflight redact` without a name of a node, each file by itself."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.diff.render import render as diff_text
from preflight.reports import html_page, junit, prometheus, text_report
from tests.support import paths

LOG = paths.ROOT / "preflight" / "demo" / "job.log"

#: Names that nodes of real sites have, and that a pattern would not know: each stands for a series.
HOSTILE: tuple[Callable[[int], str], ...] = (
    lambda n: f"trainbox-{n}.ml.acme-corp.net",
    lambda n: f"rack-{n % 7}-unit-{n}",
    lambda n: f"{n:04d}zebra",
    lambda n: f"{n}f-dgx-{n:02d}",
    lambda n: f"gpu{n:03d}",
    lambda n: f"WOLF{n}",
    lambda n: f"wolf{n}-ib0.cluster.acme-corp.net",
    lambda n: f"ip-10-20-{n % 250}-{n * 7 % 250}",
    lambda n: "".join("bcdfghjklm"[int(digit)] + "aeiouaeiou"[int(digit)] for digit in f"{n:03d}") + "quux",
    lambda n: f"x{n}y{n % 3}z{n % 5}",
    lambda n: f"owl_{n}_a",
    lambda n: f"r{n % 9}kelp{n}-" + "very-long-name-of-a-node-" * 2 + "end",
)


def run(*arguments: str, expect: tuple[int, ...] = (0,)) -> str:
    result = CliRunner().invoke(main, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in expect, result.output
    return result.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands write for the demo."""
    folder = tmp_path_factory.mktemp("written")
    at, evidence, history = folder / "files", folder / "evidence", folder / "history.db"
    at.mkdir()
    demo = ["demo", "--html", f"{at}/report.html", "--junit", f"{at}/report.xml", "--textfile", f"{at}/report.prom"]
    (at / "report.txt").write_text(run(*demo, "--save", str(evidence), expect=(1,)))
    (at / "verbose.txt").write_text(run("demo", "-v", expect=(1,)))
    (at / "report.json").write_text(run("demo", "--json", "-", expect=(1,)))
    other = folder / "other"
    other.mkdir()
    for path in evidence.glob("*.json"):
        text = path.read_text()
        if path.name == "gpu003.json":
            continue
        (other / path.name).write_text(text.replace("ACTIVE", "DOWN") if path.name == "gpu001.json" else text)
    run("judge", str(evidence), "--log", str(LOG), "--history", str(history), expect=(1, 3))
    run("judge", str(other), "--history", str(history), expect=(1, 3))
    (at / "diff.txt").write_text(run("diff", str(evidence), str(other), expect=(0, 1, 3)))
    (at / "diff.json").write_text(run("diff", str(evidence), str(other), "--json", expect=(0, 1, 3)))
    (at / "node.txt").write_text(run("history", "node", str(history), "gpu005"))
    (at / "node.json").write_text(run("history", "node", str(history), "gpu005", "--json"))
    (at / "read.txt").write_text(run("read", str(LOG), expect=(0, 1)))
    (at / "read.json").write_text(run("read", "--json", str(LOG), expect=(0, 1)))
    (at / "learnt.txt").write_text(run("learn", str(evidence), "-o", f"{at}/learnt.toml"))
    (at / "lint.txt").write_text(run("lint", f"{at}/learnt.toml", str(evidence), expect=(0, 1, 2, 3)))
    (at / "checklist.txt").write_text(run("checklist", str(evidence), expect=(0, 1, 3)))
    (at / "run.json").write_text((evidence / "run.json").read_text())
    (at / "evidence.json").write_text((evidence / "gpu005.json").read_text())
    (at / "job.log").write_text(LOG.read_text())
    (at / "verdict.json").write_text(json.dumps({"schema": "preflight.verdict/1", "node": "gpu005", "reason": "x"}))
    (at / "gate.log").write_text("preflight: gpu005: FAIL: gpu.count: found 7 [node] (slurm-prolog; judged in 0.4 s)\n")
    return at


_FILES = ("report.html", "report.xml", "report.prom", "report.txt", "verbose.txt", "report.json", "diff.txt",
          "diff.json", "node.txt", "node.json", "read.txt", "read.json", "learnt.toml", "learnt.txt", "lint.txt",
          "checklist.txt", "run.json", "evidence.json",
          "job.log", "verdict.json", "gate.log")  # fmt: skip


@pytest.mark.parametrize("name", _FILES)
def test_a_file_of_the_demo_names_no_node(name: str, written: Path, tmp_path: Path) -> None:
    text = (written / name).read_text()
    run("redact", str(written / name), "-o", str(tmp_path / name), expect=(0, 3))
    left = (tmp_path / name).read_text()
    assert not re.findall(r"(?i).{0,40}\bgpu0\d\d.{0,20}", left)
    assert not re.findall(r"(?i).{0,40}\bgpu\[0.{0,20}", left)
    for address in set(re.findall(r"(?<![\d.])(?:10|172)\.\d+\.\d+\.\d+(?![\d.])", text)):
        assert address not in left
    for serial in set(re.findall(r"\b[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}\b", text)):
        assert serial not in left or not serial.strip("0:") or serial.startswith("fe80")


def test_a_file_without_a_host_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("18:00.0 3D controller: NVIDIA Corporation\nmybox hangs\n")
    result = CliRunner().invoke(main, ["redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.txt")])
    assert result.exit_code == 3
    assert "no name of a host was recognised in a.txt" in result.output
    output = run("redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c.txt"), "--hosts", "mybox")
    assert "1 × host" in output
    assert "mybox" not in (tmp_path / "c.txt").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "gpu001: Link detected: yes\ngpu002: Link detected: no\n",
        "gpu101: up\ngpu102: up\ngpu103: up\n",
        "node-01: driver 550.54.15\nnode-02: driver 535.161.08\n",
        "trainbox7.acme.internal: ok\ntrainbox8.acme.internal: ok\ntrainbox9.acme.internal: ok\n",
        "wolf-3: GPU 0: NVIDIA H100\nwolf-3: GPU 1: NVIDIA H100\nwolf-4: x\nwolf-11: x\n",
    ],
)
def test_heads_of_lines_of_pdsh_name_hosts(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    left = (tmp_path / "b.log").read_text()
    for name in re.findall(r"(?m)^([\w.-]+): ", text):
        assert name not in left


@pytest.mark.parametrize("host", ["gpu3", "nv4", "rank2"])
def test_a_host_that_is_called_like_a_device_leaves_the_devices(host: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{host}:1:1 [0] NCCL INFO x\nGPU3 NV4 rank2 {host}\n")
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"), expect=(3,))
    assert re.fullmatch(rf"node-a\d:1:1 \[0\] NCCL INFO x\nGPU3 NV4 rank2 {host}\n", (tmp_path / "b.log").read_text())


def test_names_with_addresses_in_them(tmp_path: Path) -> None:
    names = ("ip-10-0-1-007", "ip-10-0-1-7", "ip-10-0-1-7-ib0", "x-10-0-1-7", "ip-10-0-1-8")
    (tmp_path / "a.log").write_text("".join(f"{name}:1:1 [0] NCCL INFO x\n" for name in names))
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    aliases = re.findall(r"(?m)^(.*?):", (tmp_path / "b.log").read_text())
    assert len(set(aliases)) == len(names)
    assert not set(aliases) & set(names)


def test_a_rank_s_host_at_the_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("FAIL  job.log: TCP sockets carry the traffic of zebra006 (rank\n8), but\n")
    run("redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.txt"))
    assert "zebra" not in (tmp_path / "b.txt").read_text()


def test_a_node_that_is_called_like_a_word_is_stated(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema": "preflight.evidence/1", "node": "fabric", "records": {"a": "x"}}')
    result = CliRunner().invoke(main, ["redact", str(tmp_path / "a.json"), "-o", str(tmp_path / "b.json")])
    assert result.exit_code == 3
    assert "replaced only where they are marked as names: fabric" in result.output
    assert '"node": "fabric"' not in (tmp_path / "b.json").read_text()


# --- a fleet ---------------------------------------------------------------------------------------


def hostile_names(count: int) -> list[str]:
    return list(dict.fromkeys(HOSTILE[n % len(HOSTILE)](n // len(HOSTILE) + 11) for n in range(count)))


@pytest.fixture(scope="module")
def report() -> Mapping[str, Any]:
    """The demo's report, as that of a fleet of 300 nodes with names that are hard to know."""
    one = json.loads(run("demo", "--json", "-", expect=(1,)))
    names = hostile_names(300)
    old = [node["name"] for node in one["nodes"]]
    instead = {name: names[place :: len(old)] for place, name in enumerate(old)}
    made: dict[str, Any] = copy.deepcopy(one)
    made["nodes"] = [
        _renamed(node, {**{o: n[0] for o, n in instead.items()}, node["name"]: name})
        for node in one["nodes"]
        for name in instead[node["name"]]
    ]
    for finding in made["findings"]:
        finding.update(_renamed(finding, {o: n[0] for o, n in instead.items()}))
        first = {n[0]: n for n in instead.values()}
        finding["nodes"] = [name for node in finding["nodes"] for name in first.get(node, [node])]
    made["coverage"]["nodes"] = {"planned": 300, "answered": 262, "no_answer": 38}
    return made


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    return json.loads(re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], text))


RENDERED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "report.txt": text_report.render,
    "narrow.txt": lambda report: text_report.render(report, width=80),
    "verbose.txt": lambda report: text_report.render(report, verbose=True),
    "coloured.txt": lambda report: text_report.render(report, colour=True),
    "report.html": html_page.render,
    "report.xml": junit.render,
    "report.prom": prometheus.render,
    "report.json": lambda report: json.dumps(report),
    "lines.json": lambda report: json.dumps(report, indent=1, sort_keys=True),
    "diff.txt": lambda report: diff_text(difference(report)),
    "diff.json": lambda report: json.dumps(difference(report)),
}


def difference(report: Mapping[str, Any]) -> dict[str, Any]:
    names = [node["name"] for node in report["nodes"]]
    side = {"path": "runs/a", "at": "2026-11-21T03:00:00Z"}
    finding = {
        "change": "new",
        "check": "gpu.count",
        "subject": "",
        "before": None,
        "after": "fail",
        "message": "x",
        "was": None,
        "now": "x",
    }
    return {
        "schema": "preflight.diff/1", "exit_status": 1, "before": side, "after": side, "values_compared": True,
        "nodes": {"both": 200, "fell_silent": names[:40], "answer_again": names[40:50], "came": names[50:60],
                  "went": names[60:80], "came_silent": names[80:85], "silent_in_both": names[85:90]},
        "findings": [{**finding, "nodes": names[90:150]}, {**finding, "change": "gone", "nodes": names[150:200]}],
        "not_judged_again": [{"nodes": names[50:70], "check": "gpu.count"}],
        "values": [{"nodes": names[200:], "what": "driver", "before": "570.1", "after": "570.2"}],
    }  # fmt: skip


@pytest.mark.parametrize("name", RENDERED)
def test_a_fleet_with_hostile_names(name: str, report: Mapping[str, Any], tmp_path: Path) -> None:
    source, target = tmp_path / name, tmp_path / f"redacted-{name}"
    source.write_text(RENDERED[name](report))
    run("redact", str(source), "-o", str(target))
    left = target.read_text()
    assert not list(leaks(left, [node["name"] for node in report["nodes"]]))
    if name.endswith(".json"):
        assert len(left.splitlines()) == len(source.read_text().splitlines())


def leaks(text: str, names: list[str]) -> Iterator[str]:
    """Yield the names that a text holds, complete or as what they begin with, folded or cut at the end of a line."""
    lower = text.lower()
    joined = re.sub(r"\s+", "", lower)
    for name in names:
        if name.lower() in lower or name.lower() in joined:
            yield name
    for word in ("trainbox", "acme", "zebra", "wolf", "quux", "kelp", "owl_", "-dgx-", "very-long", "rack-"):
        if word in lower:
            yield f"{word}: {lower[max(0, lower.index(word) - 60) : lower.index(word) + 40]}"


# --- JSON keeps its form ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '[ {"ifname":"eth0", "prio-pfc": [ 3 ],\n  "b" : 1.50, "a":[1,2, 3] } ]\n',
        '{"z": "10.20.30.40", "a": "\\u00e9\\/x", "n": 1e5, "m": -0.0, "big": 123456789012345678901234567890}',
        '{"a": "\u00e9 10.20.30.40", "b": "\\ud800"}\r\n',
        '{"k": "a", "k": "10.20.30.40"}',
        '{"api_token": "hunter22", "env": [{"name": "X_PASSWORD", "value": "hunter22"}]}',
    ],
)
def test_json_keeps_its_form(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode())
    run("redact", str(tmp_path / "a.json"), "-o", str(tmp_path / "b.json"), expect=(0, 3))
    left = (tmp_path / "b.json").read_bytes().decode()
    pattern = re.escape(text)
    for gone in ("10\\.20\\.30\\.40", "hunter22"):
        pattern = pattern.replace(gone, r'[^"]+')
    assert re.fullmatch(pattern, left)
    assert "10.20.30.40" not in left
    assert "hunter22" not in left


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"caf\xe9 gpu001:1:1 [0] NCCL INFO x\r\n\xff\n")
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    assert (tmp_path / "b.log").read_bytes() == b"caf\xe9 node-a001:1:1 [0] NCCL INFO x\r\n\xff\n"


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_a_list_that_is_wrapped_where_a_file_is_read_in_two(shift: int, tmp_path: Path) -> None:
    source, target = tmp_path / "report.txt", tmp_path / "redacted.txt"
    head = "PASS: nothing is wrong\ncoverage: 3 nodes\n\n"
    pads = [f"skip    r{n}kelp{n}-zebra  all is well here, and more than that  [gpu.count]\n" for n in range(4000)]
    text = head + "".join(pads)
    at = (1 << 18) - 30 + shift
    wrapped = "skip    r8kelp[17,\n35]-zebra, r9kelp[18,\n36]-zebra  all is well here  [gpu.count]\n"
    cut = text.rfind("\n", 0, at - 8) + 1
    source.write_text(text[:cut] + wrapped + text[cut:])
    run("redact", str(source), "-o", str(target))
    assert not re.findall(r"kelp|zebra", target.read_text())

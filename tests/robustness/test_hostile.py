"""Hostile text through every input and output: nothing is run, written, delayed or leaked."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from click.testing import CliRunner

from preflight.archive.directory import file_name
from preflight.cli.app import main
from preflight.gate import announce
from preflight.gate.slurm import drain_reason
from preflight.gate.verdict import REASON_MOST, Verdict, ascii_reason, from_document, to_document
from preflight.reports.sanitize import visible
from tests.integration.browser.test_browser import browse
from tests.support.browser import BROWSER
from tests.support.fixture import whole_node
from tests.support.paths import ROOT
from tests.unit.reports.test_html import RAW, Page

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CANARY = "PWNED"

#: The attack of each text. A shell, a browser or a parser that interprets it leaves a mark.
STRINGS = {
    "shell": f"$(touch {CANARY}) `touch {CANARY}`; touch {CANARY} | touch {CANARY} && touch {CANARY} ${{IFS}}",
    "quotes": f"'; touch {CANARY}; '\"; touch {CANARY}; \"\\",
    "lines": f"one\n#!/bin/sh\ntouch {CANARY}\r\n\ttwo",
    "terminal": "\x1b[31mred\x1b[2J\x1b]0;title\x07\x1b]52;c;AAAA\x07\x9b31m\x08\x7f",
    "script": f"<script>document.title='{CANARY}'</script>",
    "image": f"<img src=x onerror=\"document.title='{CANARY}'\"><svg/onload=\"document.title='{CANARY}'\">",
    "attribute": f"\" autofocus onfocus=\"document.title='{CANARY}'\" x='",
    "style": f"</style></title></textarea>--><script>document.title='{CANARY}'</script>",
    "link": f"javascript:document.title='{CANARY}'",
    "xml": "]]><!--&lol;<?xml?><!DOCTYPE a [<!ENTITY lol SYSTEM 'file:///etc/passwd'>]>",
    "traversal": f"../../../../../../tmp/{CANARY}",
    "absolute": f"/tmp/{CANARY}",
    "metric": '"} 1\npreflight_evil{x="',
    "reason": "preflight: gpu.count: found 0 [node] #000000 [root@2026-01-01T00:00:00] State=IDLE Reason=x",
    "template": "{{ 7*7 }}{% raw %}{0.__class__}%s%n${7*7}",
    "troff": ".so /etc/passwd\n'\\\" \\n(.g",
    "option": f"--html=/tmp/{CANARY}",
    "direction": "\u202egnp.exe\u2066\u200b\u2028\ufeff",
    "nothing": "\x00\x85\ud800",
    "endless": "x" * 100_000,
}  # fmt: skip

NODES = list(STRINGS)


def node_of(kind: str) -> str:
    return f"n{NODES.index(kind)}{STRINGS[kind][:120]}"


def spoilt(kind: str) -> dict[str, Any]:
    """Return a node with the text in all its tools, files, variables and names."""
    text = STRINGS[kind]
    document: dict[str, Any] = json.loads(json.dumps(whole_node("hgx-h100-roce")))
    document |= {"node": node_of(kind), "origin": text, "collected_at": text[:40]}
    for number, (key, record) in enumerate(document["records"].items()):
        text = STRINGS[kind] if number < 5 else STRINGS[kind][:2000]
        if key.startswith("env:"):
            record["value"] = text
        elif isinstance(record, dict) and isinstance(record.get("out"), str):
            out = record["out"]
            record["out"] = (text, f"{text}\n{out}", out.replace("mlx5", text[:200]), f"{out}{text}")[number % 4]
            record |= {"err": text, "rc": number % 3, "why": text}
        elif isinstance(record, dict) and isinstance(record.get("value"), dict):
            record["value"] = {**record["value"], text: text}
        elif isinstance(record, str):
            document["records"][key] = (text, f"{text}\n{record}")[number % 2]
    document["records"][f"cmd:{text[:200]}"] = {"status": "ok", "out": text, "rc": 0}
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", f"NCCL_{text[:50]}"):
        document["records"][f"env:{name}"] = {"status": "ok", "value": text}
    return document


def log() -> str:
    lines = ["n1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "n1:10:10 [0] NCCL INFO NCCL version 2.21.5"]
    for text in STRINGS.values():
        lines += [f"{text}:10:10 [0] NCCL INFO NET/IB : Using [0]{text}:1/RoCE [RO]; OOB {text}:10.0.0.1<0>",
                  f"n1:10:10 [0] NCCL WARN {text}", f"NCCL_IB_HCA={text}"]  # fmt: skip
    return "\n".join(lines)


def cluster_file(path: Path) -> Path:
    """Write a cluster file with hostile free texts, without line ends and invisible characters."""
    body = "[class.all]\ngpus = 8\nhcas = 8\n"
    for number, text in enumerate(STRINGS.values()):
        if text.isprintable() and len(text) < 1000:
            quoted = json.dumps(text)
            body += f'[[waiver]]\ncheck = "gpu.driver"\nsubject = {quoted}\nowner = {quoted}\nreason = {quoted}\n'
            body += f"until = 2026-12-{number + 1:02}\n"
    path.write_text(body, encoding="utf-8")
    return path


class Made:
    """The outputs of one run over everything hostile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evidence = folder / "evidence"
        self.evidence.mkdir()
        for kind in STRINGS:
            (self.evidence / file_name(node_of(kind))).write_text(json.dumps(spoilt(kind)), encoding="ascii")
        (folder / "job.log").write_bytes(log().encode("utf-8", "surrogatepass"))
        self.cluster = cluster_file(folder / "cluster.toml")
        before = set(self.files())
        self.done = self.run(
            "judge", "evidence", "--cluster", "cluster.toml", "--log", "job.log", "-v", "--html", "page.html",
            "--json", "report.json", "--junit", "junit.xml", "--textfile", "preflight.prom",
        )  # fmt: skip
        self.written = set(self.files()) - before

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-m", "preflight", *words]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self.folder)}
        return subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, timeout=120)

    def files(self) -> Iterator[str]:
        return (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("hostile"))


def clean(text: str, where: str = "") -> None:
    """Assert that a terminal shows a text verbatim, in complete lines."""
    found = RAW.search(text.replace("\n", ""))
    assert found is None, (where, text[max(0, found.start() - 80) : found.end() + 20])


# --- one run, every output ---------------------------------------------------------------------------


def test_every_output(made: Made) -> None:
    assert made.done.returncode in (1, 3), made.done.stderr.decode()[-2000:]  # by its readable part
    assert made.written == {"page.html", "report.json", "junit.xml", "preflight.prom"}
    for stream in (made.done.stdout, made.done.stderr):
        clean(stream.decode("utf-8"))
    assert b"Traceback" not in made.done.stderr


def test_the_report_is_a_document_of_its_schema(made: Made) -> None:
    report = json.loads((made.folder / "report.json").read_text("ascii"))
    schema = json.loads((ROOT / "preflight" / "schemas" / "report-1.json").read_text())
    jsonschema.validate(report, schema)
    assert {node["name"] for node in report["nodes"]} >= {node_of(kind) for kind in STRINGS}
    assert all(finding["status"] != "pass" or finding["evidence"] for finding in report["findings"])


def test_the_page_has_no_tag_of_theirs(made: Made) -> None:
    text = (made.folder / "page.html").read_text("utf-8")
    clean(text)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "object", "base", "embed"}
    assert [attrs.get("type") for tag, attrs in page.tags if tag == "script"] == [
        "application/json",
        None,
    ]  # the page's own script
    assert [attrs.get("id") for tag, attrs in page.tags if tag == "form"] == ["controls"]
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        link = (attributes.get("href") or "").strip().lower()
        assert link == "data:," or not link.startswith(("javascript:", "data:", "vbscript:"))
    assert CANARY in page.text


@pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell or chromium is not installed")
def test_a_browser_runs_none_of_it(made: Made, tmp_path: Path) -> None:
    """Without the policy that forbids scripts, so only escaping protects; a planted script does run."""
    text = (made.folder / "page.html").read_text("utf-8")
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert bare != text
    title = re.compile(r"<title>(.*?)</title>", re.S)
    for name, page in (("theirs", bare), ("planted", bare.replace("</body>", f"{STRINGS['script']}</body>"))):
        path = tmp_path / f"{name}.html"
        path.write_text(page, "utf-8")
        shown = title.search(browse(path, tmp_path / name, "--dump-dom"))
        assert shown
        assert (shown[1] == CANARY) is (name == "planted")


def test_junit_is_xml_with_our_elements_only(made: Made) -> None:
    text = (made.folder / "junit.xml").read_text("utf-8")
    assert visible(text) == text, "Seen: marks of direction, which turn a name around on the page of a CI"
    tree = ElementTree.fromstring(text)
    tags = {element.tag for element in tree.iter()}
    assert tags <= {"testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out", "properties",
                    "property"}  # fmt: skip


def test_metrics_have_our_names_only(made: Made) -> None:
    sample = re.compile(r'(preflight_\w+)(\{(\w+="([^"\\\n]|\\[\\"n])*",?)*\})? -?[0-9.e+]+')
    for line in (made.folder / "preflight.prom").read_text("utf-8").split("\n")[:-1]:
        found = sample.fullmatch(line)
        assert found or line.startswith(("# HELP preflight_", "# TYPE preflight_")), line
        assert found is None or found[1] != "preflight_evil"


@pytest.mark.parametrize("words", [
    ("checklist", "evidence"), ("lint", "cluster.toml", "evidence"), ("diff", "evidence", "report.json"),
    ("learn", "evidence", "-o", "learned.toml"), ("read", "job.log"), ("read", "page.html"), ("judge", "job.log"),
    ("judge", "evidence", "--history", "past.db"), ("redact", "job.log", "report.json", "-o", "redacted"),
], ids=" ".join)  # fmt: skip
def test_other_commands_show_it_as_text(made: Made, words: tuple[str, ...]) -> None:
    before = set(made.files())
    done = made.run(*words)
    clean(done.stdout.decode("utf-8"), "stdout")
    clean(done.stderr.decode("utf-8"), "stderr")
    assert b"Traceback" not in done.stderr, done.stderr.decode()[-1500:]
    assert done.returncode in (0, 1, 2, 3)
    new = {name.split("/")[0] for name in set(made.files()) - before}
    assert new <= {"learned.toml", "past.db", "redacted", ".cache", ".local"}
    if "learned.toml" in new:
        tomllib.loads((made.folder / "learned.toml").read_text("utf-8"))


def test_nothing_was_left_anywhere(made: Made) -> None:
    assert not list(made.folder.rglob(f"*{CANARY}"))
    assert not Path(f"/tmp/{CANARY}").exists()
    assert not (ROOT / CANARY).exists()


# --- the gate: a line, a log, a scheduler, a kubelet ---------------------------------------------------


@pytest.mark.parametrize("kind", STRINGS)
def test_gate_messages_are_one_line_of_plain_text(kind: str, tmp_path: Path) -> None:
    text = STRINGS[kind]
    verdict = Verdict(
        announce.name(text), "fail", 1_700_000_000, cause="gpu.count", owner="node", causes=("gpu.count",),
        reason=ascii_reason(f"preflight: gpu.count: found {text}, expected 8"),
    )  # fmt: skip
    assert from_document(json.loads(json.dumps(to_document(verdict)))) == verdict
    line = announce.line(verdict, "slurm-prolog")
    scheduler = drain_reason.drained(verdict.node, verdict.reason, "node")
    for message in (
        line,
        announce.plain(text),
        verdict.reason,
        scheduler,
        drain_reason.held("n1", verdict.reason, "node", 0),
    ):
        assert message.isascii()
        assert message.isprintable()
    assert len(verdict.reason) <= REASON_MOST
    assert scheduler.count("[") == 1, "only our own brackets, so that nothing looks like scontrol's [user@time]"
    assert drain_reason.ours(verdict.node, scheduler)
    assert drain_reason.ours(verdict.node, text) is None
    log = tmp_path / "termination-log"
    log.touch()
    assert announce.terminate(str(log), [line, *text.split("\n")]) == ""
    assert len(log.read_bytes()) <= announce.TERMINATION_MOST
    log.read_bytes().decode("ascii")
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    assert "cannot be written" in announce.terminate(str(log), [line])
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", STRINGS)
def test_a_file_of_a_node_stays_in_its_folder(kind: str, tmp_path: Path) -> None:
    name = file_name(node_of(kind)[:60])
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert not name.startswith(("-", "."))
    clean(name)


# --- the command line and the environment --------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in STRINGS if kind not in ("nothing", "endless")])
def test_no_name_is_run(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names from a user, a scheduler or a colleague's file: none is contacted, and none is run."""
    text = STRINGS[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text(text)
    (tmp_path / "cluster.toml").write_text(f"[class.{json.dumps(text)}]\nnodes = {json.dumps(text)}\nunknown = 1\n")
    for words in (
        ("check", "--hosts", text), ("check", "--hostfile", "hosts"), ("check", "--job", text), ("explain", text),
        ("check", "--only", text), ("check", "--cluster", "cluster.toml"), ("check", "--cluster", text),
        ("judge", text), ("read", text), ("gate", text), (text,), ("check", "--rerun", text),
        ("check", "--log", text), ("lint", "cluster.toml"), ("pair", text, text),
        ("check", "--via", "kubectl", "-n", text, "--hosts", text),
    ):  # fmt: skip
        if words[0] in ("check", "pair") and kind in ("option", "link", "absolute", "reason", "template", "traversal"):
            continue  # names passed to a resolver
        result = CliRunner().invoke(main, ["--", *words] if words == (text,) else list(words))
        assert result.exit_code in (1, 2, 3), (words, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exception)
        clean(result.output.replace("\t", " "), " ".join(words))
    assert sorted(os.listdir(tmp_path)) == ["cluster.toml", "hosts"]


def test_an_environment_is_values_only(tmp_path: Path) -> None:
    env = {f"NCCL_X{number}": text.replace("\0", "").encode("utf-8", "replace").decode()
           for number, text in enumerate(STRINGS.values())}  # fmt: skip
    shell = STRINGS["shell"]
    env |= {"NCCL_DEBUG": shell, "PATH": f"{shell}:/usr/bin:/bin", "LANG": shell, "TERM": shell, "COLUMNS": shell,
            "SLURM_JOB_ID": shell, "SLURM_JOB_NODELIST": shell, "SLURMD_NODENAME": shell, "HOME": str(tmp_path),
            "SLURM_JOB_GPUS": shell, "XDG_STATE_HOME": shell, "SECRET_TOKEN": "hunter2",
            "PYTHONPATH": str(ROOT), "STATE_DIRECTORY": str(tmp_path / "state")}  # fmt: skip
    for words in (("check", "--html", "page.html"), ("collect",), ("gate", "slurm-prolog"), ("gate", "slurm-step")):
        argv = [sys.executable, "-m", "preflight", *words]
        done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, timeout=120)
        assert b"Traceback" not in done.stderr
        clean(done.stdout.decode().replace("\t", " "), " ".join(words))
        assert b"hunter2" not in done.stdout + done.stderr
    assert not [name for name in os.listdir(tmp_path) if CANARY in name]


# --- special files, and large ones ---------------------------------------------------------------------


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


def _refused(folder: Path, *words: str, within_s: int = 60) -> subprocess.CompletedProcess[str]:
    """Run a command within 3 GiB and its time limit; it prints something and does not crash."""
    argv = [sys.executable, "-m", "preflight", *words]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        argv,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=within_s,
        preexec_fn=_bounded,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr[-1000:]
    assert done.returncode in ((0, 2, 3) if words[0] == "checklist" else (2, 3)), (words, done.returncode)
    clean(done.stdout + done.stderr)
    assert max(map(len, done.stdout.splitlines()), default=0) < 2000
    return done


EVERYWHERE = [
    ("judge", "{}"), ("check", "--cluster", "{}"), ("lint", "{}"), ("check", "--hostfile", "{}"), ("diff", "{}", "{}"),
    ("check", "--rerun", "{}"), ("learn", "{}", "-o", "out.toml"), ("checklist", "{}"),
]  # fmt: skip


@pytest.mark.parametrize("words", EVERYWHERE, ids=lambda words: " ".join(words[:2]))
def test_a_line_of_a_gigabyte_is_not_held(words: tuple[str, ...], tmp_path: Path) -> None:
    with (tmp_path / "big.json").open("wb") as stream:
        stream.truncate(1 << 30)
    _refused(tmp_path, *(word.format("big.json") for word in words))


def test_a_log_of_one_line_is_read_in_parts(tmp_path: Path) -> None:
    with (tmp_path / "big.log").open("wb") as stream:
        stream.truncate(1 << 27)
    shutil.copy(ROOT / "fixtures" / "nodes" / "hgx-h100.json", tmp_path / "n1.json")
    _refused(tmp_path, "judge", "n1.json", "--log", "big.log", "--only", "nccl.transport")


@pytest.mark.parametrize("words", [*EVERYWHERE, ("read", "{}"), ("check", "--log", "{}")],
                         ids=lambda words: " ".join(words[:2]))  # fmt: skip
def test_a_pipe_without_a_writer_is_not_waited_for(words: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    _refused(tmp_path, *(word.format("pipe.json") for word in words))


def test_a_log_that_is_a_bomb_is_read_in_parts(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=9) as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    shutil.copy(ROOT / "fixtures" / "nodes" / "hgx-h100.json", tmp_path / "n1.json")
    assert (tmp_path / "bomb.gz").stat().st_size < 1 << 20
    _refused(tmp_path, "judge", "n1.json", "--log", "bomb.gz", "--only", "nccl.transport")


def test_a_folder_of_traps_costs_one_node_each(tmp_path: Path) -> None:
    """Links, pipes, devices, deep folders and foreign JSON next to one good document: only that one is judged."""
    folder, secret = tmp_path / "evidence", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("root:TOPSECRET:1:0:99999:7:::\n")
    shutil.copy(ROOT / "fixtures" / "nodes" / "hgx-h100.json", folder / "good.json")
    (folder / "link.json").symlink_to(secret)
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "loop.json").symlink_to("loop.json")
    os.mkfifo(folder / "pipe.json")
    (folder / "deep.json").write_text("[" * 200_000)
    (folder / "number.json").write_text('{"node": ' + "9" * 100_000 + "}")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "cut.json").write_bytes((folder / "good.json").read_bytes()[:5000])
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (folder / "empty.json").touch()
    argv = [sys.executable, "-m", "preflight", "judge", str(folder), "--only", "gpu.driver", "--json", "-"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, preexec_fn=_bounded)
    if done.returncode == 2:  # a link without a target is named
        assert "loop.json" in done.stderr
        (folder / "loop.json").unlink()
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, preexec_fn=_bounded)
    report = json.loads(done.stdout)
    answered = [node["name"] for node in report["nodes"] if not node.get("no_answer")]
    assert len(answered) == 1
    assert report["coverage"]["nodes"]["no_answer"] == len(list(folder.iterdir())) - 1
    assert "TOPSECRET" not in done.stdout + done.stderr


def test_visible_text_has_no_control_characters() -> None:
    for text in STRINGS.values():
        clean(visible(text).replace("\t", ""))

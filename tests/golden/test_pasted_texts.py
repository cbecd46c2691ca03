"""`preflight read` on texts as people paste them, changed by terminals, mails and launchers."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from preflight.parsers.registry import TOOLS
from preflight.recognition import known, open_sources, read
from preflight.recognition.detector import TextPart
from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = paths.DATA / "outside" / "pasted"
FRESH = tomllib.loads((paths.DATA / "fresh" / "index.toml").read_text(encoding="utf-8"))
INDEX: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))

MARKS = {
    "mpirun": "[1,0]<stdout>:", "srun": "0: ", "pdsh": "node17: ", "kubectl": "[pod/job-0/main] ",
    "compose": "web-1  | ", "ray": "(RayTrainWorker pid=1234) ", "torchrun": "[rank3]: ", "mail": "> ",
    "timestamps": "2026-02-18T12:54:01.123Z ", "local times": "2026-02-18 12:54:01.123 ", "clock": "[12:54:01] ",
    "stern": "nccl-worker-0 main ", "containerd": "2026-02-18T12:54:01.123456789Z stdout F ",
    "sagemaker": "[1,mpirank:0,algo-1]<stdout>:", "comment": "// ", "hydra": "[0] ",
    "syslog": "Feb 18 12:54:01 node17 job[4711]: ", "patch": "+", "frame": "│ ", "grep": "logs/job.out:",
}  # fmt: skip

#: A launcher's prefix adds facts to a log (writer, time), and its lines are quoted verbatim.
OF_THE_MARK = {"line", "file", "text", "rank", "host", "hosts", "time", "seconds", "failures", "warnings", "watchdog"}

#: Cases that a sample would miss: a device's domain after grep's prefix, cells that look like the end of a frame.
ALWAYS = {("lspci-xike.txt", "grep"), ("smix-gist-1080.txt", "frame")}


@cache
def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def parts(content: str, folder: Path) -> list[TextPart]:
    path = folder / "pasted.txt"
    path.write_text(content, encoding="utf-8", newline="")
    return read(next(open_sources((str(path),))))


def bad(found: list[TextPart]) -> set[str]:
    return {finding["check"] for part in found for finding in part.findings if finding["status"] in ("fail", "warn")}


def plain(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: plain(value) for name, value in facts.items() if name not in OF_THE_MARK}
    return [plain(value) for value in facts] if isinstance(facts, list) else facts


def at(facts: Any, path: str) -> Any:
    for name in path.split("."):
        facts = facts[int(name)] if isinstance(facts, list) else facts[name]
    return facts


@pytest.mark.parametrize("name", INDEX)
def test_what_a_person_reads_in_it(name: str, tmp_path: Path) -> None:
    entry = INDEX[name]
    assert entry["origin"].startswith("https://")
    assert entry["text"] == "re-made"
    found = parts(text(name), tmp_path)
    if "kinds" in entry:
        assert [part.kind for part in found] == entry["kinds"]
    if "bad" in entry:
        assert bad(found) == set(entry["bad"])
    for kind, path, value in entry.get("facts", ()):
        part = next(part for part in found if part.kind == kind)
        actual = part.taken.complete if path == "complete" else at(part.taken.facts, path)
        assert actual == json.loads(value), (kind, path)


@pytest.mark.parametrize("name", INDEX)
def test_marks_change_nothing(name: str, tmp_path: Path) -> None:
    original = [(part.kind, plain(part.taken.facts)) for part in parts(text(name), tmp_path)]
    lines = text(name).splitlines()
    marked = {way: "".join(f"{mark}{line}\n" for line in lines) for way, mark in MARKS.items()}
    marked["CRLF"] = text(name).replace("\n", "\r\n")
    if not any(kind.startswith("nccl") for kind, _ in original):  # their log is read directly from the file
        marked["doubled"] = "".join(f"{line}\n\n" for line in lines)
        marked["numbered"] = "".join(f"{number:6}\t{line}\n" for number, line in enumerate(lines, 1))
        marked["listed"] = "".join(f"        {json.dumps(line)},\n" for line in lines)
    marked["colour"] = "".join(f"\x1b[32m{line}\x1b[0m\n" for line in lines)
    turn = list(INDEX).index(name)
    for number, (way, content) in enumerate(marked.items()):
        sampled = (turn + number) % 3 == 0 or (name, way) in ALWAYS
        if not sampled or (len(lines) < 3 and way in MARKS):
            continue  # each text in a third of the ways; a few lines do not show whether they have a prefix
        assert [(part.kind, plain(part.taken.facts)) for part in parts(content, tmp_path)] == original, way


@pytest.mark.parametrize("name", INDEX)
def test_scissors_raise_no_alarm(name: str, tmp_path: Path) -> None:
    lines = text(name).split("\n")
    alarms = bad(parts(text(name), tmp_path))
    for cut in range(len(lines) // 4, len(lines), max(1, len(lines) // 3)):
        half = lines[cut][: len(lines[cut]) // 2]
        for content in ("\n".join(lines[cut:]), "\n".join([*lines[:cut], half])):
            found = parts(content, tmp_path)
            # A text cut between two devices is complete: the report that the remaining one is down is then correct
            true = {"rdma.port-state"} if all(part.taken.complete for part in found) else set[str]()
            if "nccl.failures" in alarms:  # without NCCL's message the exception is one of the program
                true |= {"job.errors"}
            if any(part.kind == "nccl-env" for part in found):  # a command is judged by itself without NCCL's log
                true |= {"nccl.run-settings"}
            assert bad(found) <= alarms | true, (cut, content[-200:])


def test_two_texts_in_one(tmp_path: Path) -> None:
    """Consecutive outputs with a prompt in between keep their facts."""
    names = [
        name
        for name, entry in INDEX.items()
        if (len(entry.get("kinds", ())) == 1 or name.startswith("netstatus-")) and "nccl" not in entry["kinds"][0]
    ]
    for first, second in zip(names[::2], names[1::2], strict=False):
        kinds = INDEX[first]["kinds"] + INDEX[second]["kinds"]
        if kinds == ["flight recorder", "flight recorder"]:
            continue  # of two dumps in one source, the first is read
        recognised = parts(f"{text(first)}\nroot@gpu17:~# nvidia-smi\n{text(second)}", tmp_path)
        assert [part.kind for part in recognised] == kinds, (first, second)


def test_every_kind_has_a_pasted_text() -> None:
    """Those that no page had are elsewhere: test_torch_trace.py, test_fresh_texts.py, tests/data/nic and tools."""
    seen = {kind for entry in INDEX.values() for kind in entry.get("kinds", ())}
    pasted = seen | {entry["kind"] for entry in FRESH.values()}
    elsewhere = {
        "bonding", "cma_roce", "dcb", "devlink health", "ethtool -a", "flight recorder", "ibqueryerrors", "mlxlink",
        "mst status", "pytorch trace", "rdma ports", "switch show", "ucx",
    }  # fmt: skip
    in_sets = {
        "eos session",
        "nxos session",
        "junos session",
        "linux switch session",
        "sonic session",
        "sonic database",
        "network error",
        "program log",
        "kubernetes quota",
        "serving metrics",
        "switch show",
        "python stacks",
    }  # these have separate tests
    assert set(known()) - pasted <= elsewhere | set(TOOLS) | in_sets

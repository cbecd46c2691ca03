"""The answer of `preflight read`: the verdict, a remark on other results, one command; and its Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.recognition import guess

XID = "[81230.400000] NVRM: Xid (PCI:0000:3c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
HOSTILE = "node12: OSError: [Errno 28] No space left on device: '/a`b|c<script>*_@here https://x.example\x1b[31m'\n"


def output(text: str, folder: Path, *words: str) -> tuple[int, str]:
    path = folder / "pasted.txt"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(main, ["read", *words, str(path)])
    return done.exit_code, done.output


def test_the_verdict_and_one_command_come_first(tmp_path: Path) -> None:
    status, text = output(f"node12: {XID}", tmp_path)
    lines = text.splitlines()
    assert status == 1
    assert lines[0].startswith("FAIL: node12: 0000:3c:00.0: Xid 79")
    assert any(line.startswith("Next: ") for line in lines[:4])


def test_markdown_has_no_markup_of_the_text(tmp_path: Path) -> None:
    status, text = output(HOSTILE, tmp_path, "--format", "md")
    assert status == 1
    assert text.startswith("**FAIL** node12: ")
    assert "\x1b" not in text
    outside_code = "".join(text.split("`")[::2])
    assert "<script" not in outside_code.replace("\\<", "")
    assert "@here" not in outside_code
    assert "https://" not in outside_code


def test_a_healthy_text_passes(tmp_path: Path) -> None:
    status, text = output("core file size (blocks, -c) 0\nmax locked memory (kbytes, -l) unlimited\n"
                          "open files (-n) 1048576\n", tmp_path)  # fmt: skip
    assert status == 0
    assert text.splitlines()[0].startswith("pass: No fault found")


LOOKS = {
    "dcgmi": "dcgmi policy --get\n", "kubectl": "kubectl api-versions\nbatch/v1\n",
    "Slurm": "  JOBID PARTITION NAME\n 4711 batch x\n", "file systems": "Filesystem  Size  Used Avail\n",
    "output of a SONiC switch": "admin@tor2:~$ show ecn\nProfile: LOSSLESS\n",
    "output of an Arista EOS switch": "leaf2#show interfaces hardware\nSpeeds: 400G\n",
    "output of a Cisco NX-OS switch": "|                      QOS GROUP 3 |\n",
    "output of a Cumulus Linux switch": "cumulus@leaf1:~$ nv show bridge domain\nbr_default\n",
    "output of a Juniper switch": "Physical interface: et-0/0/3, Enabled, Physical link is Down\n  Queue: 3\n",
    "a table of the OSU benchmarks": "# OSU MPI-CUDA Latency Test v7.4\n# Size  Latency (us)\n8   4.11\n",
    "a Python traceback": '  File "x.py", line 1\n', "": "hello\n",
}  # fmt: skip


@pytest.mark.parametrize("looks", LOOKS)
def test_a_strange_text_is_guessed_by_its_look(looks: str, tmp_path: Path) -> None:
    answer = guess(LOOKS[looks])
    assert answer.looks_like == looks
    assert len(answer.commands) == 3
    status, text = output(LOOKS[looks], tmp_path)
    assert status == 3
    assert text.startswith("NOT JUDGED: nothing was recognised")
    assert all(command in " ".join(text.split()) for command in answer.commands)
    assert len(text.splitlines()) <= 8


COUNTERS = (
    "# Port counters: Lid 41 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
    "CounterSelect:...................0x0000\nSymbolErrorCounter:..............{errors}\n"
    "PortXmitDiscards:................880\n"
)


@pytest.mark.parametrize(("errors", "check"), [(4711, "counters.link-quality"), (0, "counters.loss")])
def test_the_link_precedes_what_it_loses(errors: int, check: str, tmp_path: Path) -> None:
    status, text = output(COUNTERS.format(errors=errors), tmp_path)
    assert status == 3
    assert check in " ".join(text.split()).partition("Next:")[0]


def test_what_was_read_without_a_judgement_is_named(tmp_path: Path) -> None:
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    status, text = output(version + "GCC version:  gcc version 12.3.0\n", tmp_path)
    assert status == 3
    assert "Read: driver 570.86.15." in text

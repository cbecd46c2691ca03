"""Aliases in hostile texts, in compression bombs and in very long lines."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path

import pytest

from preflight.redact import Redactor
from tests.support.redact_command import KEY, run


@pytest.mark.parametrize(
    "unit",
    [
        "a.",
        "1.",
        "1:",
        "::",
        "a",
        "f",
        "/home/a/",
        "gpu001[1]",
        "[",
        "\\n",
        "\x1b[",
        "a-",
        "lid ",
        "serial ",
        "x@y.",
        "a@",
        "a@b1 ",
        "\na@b1:",
        "ssh ",
        "ssh a",
        "USER PID TTY\n",
        "USER ",
        "nodes: ",
        "nodes: a,\n",
        "FAIL a,\n",
        "a1,",
        "s3://a",
        "/scratch/",
        "~a/",
        "login a ",
        "machine ",
        "\n-rw-r--r-- 1 ",
        "pts/1 ",
        "of a (rank ",
        ": LIST: ",
        "a:x:1:1:",
        "host ",
        "-w ",
        "srun ",
        "mpirun ",
        "Author: a ",
        "preflight: a: ",
        "coverage: \nFAIL a,",
        "[1-2]a",
        "gpu001[1, ",
        "AAAA ssh-rsa ",
        "\x1b[1mgpu001",
        "+cuda1.1a",
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = (unit * (60_000 // len(unit) + 1))[:60_000]
    redactor = Redactor(KEY, hosts=("gpu001",))
    began = time.process_time()
    redactor.learn(text)
    redactor.text(text)
    assert time.process_time() - began < 2


def test_a_long_line_and_a_key_in_two_pieces(tmp_path: Path) -> None:
    body = "\n".join(["QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo"] * 20_000)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\nafter gpu001:1:1 [0] NCCL INFO x\n"
    (tmp_path / "a.log").write_text("x" * 1_000_000 + " end\n" + key)
    run(str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    text = (tmp_path / "b.log").read_text()
    assert "characters without a space left out]" in text
    assert "QUJD" not in text
    assert "gpu001" not in text
    assert "after node-a001" in text


def test_a_small_packed_file_that_holds_very_much_is_left_out_and_nothing_of_it_written(tmp_path: Path) -> None:
    """300 KB of compressed Xid lines, 124 MB of text, took over a minute."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "xid.log.gz").write_bytes(gzip.compress(b"NVRM: Xid (PCI:0000:18:00\n" * 4_700_000))
    (folder / "job.log.gz").write_bytes(gzip.compress(b"host gpu001 says hello\n" * 20_000))
    began = time.process_time()
    output = run(str(folder), "-o", str(tmp_path / "out"), "--hosts", "gpu001", expect=1)
    assert time.process_time() - began < 10
    assert re.search(r"left out: \S*xid\.log\.gz: \d+ bytes unpack to more than \d+.*gunzip", output)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["job.log"]

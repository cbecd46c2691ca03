"""`preflight read` on texts and inputs that are hostile, damaged or endless."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.recognition import document, read_text
from tests.support.pasted_texts import TRUTH, outside, run


@pytest.mark.parametrize(
    ("redirection", "why"),
    [
        ("<&-", "standard input is closed"),
        ("</dev/zero", "standard input cannot be read: it is not a regular file"),
        ("<'{full}'", "standard input cannot be saved: File too large; pass a file, or set TMPDIR"),
    ],
)
def test_standard_input_that_never_ends_or_is_none(tmp_path: Path, redirection: str, why: str) -> None:
    """A limit on the file size simulates a full disk."""
    full = tmp_path / "log"
    full.write_bytes(b"NCCL\n" * 300_000)
    command = f"ulimit -f 100; '{sys.executable}' -m preflight read - {redirection.format(full=full)}"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/full"])
def test_a_device_without_an_end_is_not_read(device: str) -> None:
    ran = run(device)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "it is not a regular file" in ran.stderr
    assert run("/dev/null").returncode == 3


def test_hostile_text_is_made_visible() -> None:
    ran = run("-", stdin="CA 'mlx5\x1b]0;owned\x07_0'\nPort 1:\nState: Active\x1b[2J\nPhysical state: \x1b[31mLinkUp\n")
    assert "\x1b" not in ran.stdout
    assert "Traceback" not in ran.stderr


SEEDS = [outside(name) for name in TRUTH]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_mutated_text_breaks_nothing(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    text = "".join(rng.sample(SEEDS, 2))
    for _ in range(rng.randint(1, 4)):
        at_ = rng.randrange(len(text) + 1)
        change = rng.randrange(5)
        if change == 0:
            text = text[:at_]
        elif change == 1:
            text = text[at_:]
        elif change == 2:
            text = (
                text[:at_] + rng.choice(["\x00", "\x1b[", "\r", "9" * 400, "\ud800", "{", "[", "\t", ":"]) + text[at_:]
            )
        elif change == 3:
            text = text[:at_] + text[min(len(text), at_ + rng.randint(1, 80)) :]
        else:
            lines = text.split("\n")
            rng.shuffle(lines)
            text = "\n".join(lines)
    json.dumps(document([("x", read_text(text, "x"))]))


@pytest.mark.parametrize(
    "text",
    [
        "{" * 200_000, "[\n" * 100_000, '[{"name": "a", "interface": ' * 5_000, "GPU0 GPU1 " * 50_000,
        "GPU0 X NV18\n" * 20_000, "CA 'mlx5_0'\n" * 20_000, "a: b\n" * 50_000,
        "# Port counters: Lid 1 port 1\n" * 10_000, "<nvidia_smi_log>" * 10_000, "<a>" * 50_000,
        "[ 1.000000] x\n" * 30_000, " " * 300_000, "x" * 500_000, "link mlx5_0/1 " + "a b " * 50_000,
        "00:00.0 Bridge: x\n" * 20_000, "NIC statistics:\n" * 20_000,
        "".join(f"{number}: a\n" for number in range(15_000)) + "0: a\n", "\n" * 5_000_000,
    ],
    ids=range(18),
)  # fmt: skip
def test_texts_that_would_hang_a_careless_reader(text: str) -> None:
    json.dumps(document([("x", read_text(text, "x"))]))

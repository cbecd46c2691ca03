"""Only the first line and matching lines of a long output leave the node."""

from __future__ import annotations

import re

import pytest

from preflight.collector.tasks import _only
from preflight.probes.node import PROBES

#: The pattern by which lines of the kernel's log are selected.
KEEP = next(probe.keep for probe in PROBES if probe.keep)
NOISE = "<6>[  {}.0] docker0: port 1(veth{}) entered disabled state\n"


def test_lines_that_match_and_the_first() -> None:
    links = [f"<6>[  {n}.5] mlx5_core 0000:18:00.0 ibp24s0: Link {'up' if n % 2 else 'down'}\n" for n in (4, 5)]
    text = "".join([NOISE.format(1, 1), NOISE.format(2, 2), *links, NOISE.format(6, 6)])
    record = _only({"status": "ok", "out": text}, re.compile(KEEP), 1000)
    assert record == {"status": "ok", "out": NOISE.format(1, 1) + "".join(links), "omitted": 2}


def test_what_is_longer_than_the_cap_is_cut() -> None:
    text = "<6>[  4.5] mlx5_core 0000:18:00.0 ibp24s0: Link down\n" * 40
    record = _only({"status": "ok", "out": text}, re.compile(KEEP), 1000)
    assert (record["status"], len(record["out"])) == ("cut", 1000)


@pytest.mark.parametrize("text", ["", "\n", "Link down", "x\nLink down"])
def test_a_text_without_line_ends(text: str) -> None:
    assert _only({"status": "ok", "out": text}, re.compile(KEEP), 1000)["out"] == text

"""Wrapped lists of names at the split between two pieces of a long file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.in_process import run


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

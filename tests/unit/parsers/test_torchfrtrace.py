"""The same dumps read by torchfrtrace and by preflight: real Gloo ranks, and each tool's findings.

Needs a Python with PyTorch 2.13 (CONTRIBUTING.md), named by ``TORCH``. Cases and ranks are those of
``tests/support/gloo_ranks.py``. torchfrtrace stops comparing a process group at its first fault, so only that one is
compared.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from preflight.parsers import torch
from preflight.parsers.torch import hang
from tests.support import paths

SCRIPT = paths.TESTS / "support" / "gloo_ranks.py"
CASES = [
    ast.literal_eval(key)
    for node in ast.walk(ast.parse(SCRIPT.read_text("utf-8")))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CASES"
    and isinstance(node.value, ast.Dict)
    for key in node.value.keys if key is not None
]  # fmt: skip


@pytest.mark.torchfrtrace
@pytest.mark.parametrize("case", CASES)
def test_both_find_the_same(tmp_path: Path, case: str) -> None:
    result = subprocess.run(
        [os.environ["TORCH"], str(SCRIPT), str(tmp_path), case], capture_output=True, text=True, timeout=280, check=True
    )
    theirs: dict[str, tuple[Any, ...]] = {}
    for collective in json.loads(result.stdout.splitlines()[-1]):
        group, good, missing = collective["group"].partition(":")[0], collective["good"], tuple(collective["missing"])
        if missing or not good:
            theirs.setdefault(group, (collective["seq"], missing, not good))
    recordings = {int(path.name[5:]): torch.from_pickle(path.read_bytes()) for path in tmp_path.glob("rank_*")}
    assert len(recordings) == 4, result.stderr
    assert all(len(recording.entries) > 1 for recording in recordings.values()), "recorded no call but the barrier"
    hangs = hang.of_recordings(recordings)
    ours = {each.group: (each.seq, each.behind, bool(each.differ or each.totals)) for each in reversed(hangs)}
    assert ours == theirs, (case, result.stdout)
    assert bool(ours) == (case not in ("healthy", "uneven all-to-all"))

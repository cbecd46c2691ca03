"""The first screen on a real terminal of 80 columns and 24 lines (tmux)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")


@pytest.mark.parametrize("words", [(), ("--color", "never")], ids=["usual", "without colour"])
def test_verdict_and_first_incidents_are_on_an_old_screen(tmp_path: Path, words: tuple[str, ...]) -> None:
    socket, done = str(tmp_path / "tmux"), tmp_path / "done"
    command = f"{sys.executable} -m preflight demo {' '.join(words)}; touch {done}; sleep 60"
    tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", command], cwd=ROOT, check=True)
    try:
        until = time.monotonic() + 60
        while not done.exists() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.3)  # until tmux has drawn what was written
        screen = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    shown = screen.splitlines()
    assert "have problems" in " ".join(shown[:3])
    assert [line for line in shown if line.lstrip().startswith(("1 ", "2 ", "3 ", "4 ", "5 "))][4]
    assert max(map(len, shown)) <= 80
    assert any(line.strip().startswith("more") for line in shown)

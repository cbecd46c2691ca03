"""The stand-in for nccl-tests, compiled on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def build(folder: Path) -> None:
    """Compile it into a folder, under the names of two collectives."""
    folder.mkdir()
    source = Path(__file__).with_name("nccl_standin.c")
    subprocess.run(["mpicc", "-O2", "-o", folder / "alltoall_perf", source], check=True)
    os.link(folder / "alltoall_perf", folder / "all_reduce_perf")

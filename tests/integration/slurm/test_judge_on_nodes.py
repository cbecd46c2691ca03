"""Nodes of a real Slurm cluster that judge themselves: some cannot, and are judged here, in the same report."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.slurm.test_srun import TOP, _slurmd, real
from tests.support.command_line import run
from tests.support.interpreters import interpreters
from tests.support.slurm.cluster import Slurm

#: Nodes and what is wrong with them: n2 has a full memory file system, n3 an old Python, n4 another new one
#: where the machine has one, and the slurmd of the last is killed.
SETUP = """\
mount -t tmpfs -o size=$([ $1 = n2 ] && echo 1m || echo 20m) shm /dev/shm
other() {{
    printf '#!/bin/sh\\nexec %s "$@"\\n' $1 > /run/python.$2; chmod 755 /run/python.$2
    mount --bind /run/python.$2 /usr/bin/python3
}}
case $1 in n3) other {old} $1;; n4) [ -z "{new}" ] || other {new} $1;; esac
"""


def other_pythons() -> tuple[str, str]:
    """Return a Python older than 3.10, which PyPy may be, and another new one; empty if there is none."""
    of_nodes = os.path.realpath("/usr/bin/python3")
    paths = {tuple(map(int, name.split()[1:])): path for name, path in interpreters().items()}
    own = sys.version_info[:2]
    new = (path for version, path in paths.items() if version >= (3, 10) and version != own and path != of_nodes)
    return next((path for version, path in paths.items() if version < (3, 10)), ""), next(new, "")


@real
@pytest.mark.parametrize("nodes", [5, pytest.param(8, marks=pytest.mark.fleet)])
def test_sick_nodes_are_judged_here_in_the_same_report(nodes: int, tmp_path: Path) -> None:
    old, new = other_pythons()
    assert old, "install pypy3 of Debian 12, which is Python 3.9"
    dead = f"n{nodes}"
    with Slurm(nodes, "MessageTimeout=5", SETUP.format(old=old, new=new)) as slurm:
        os.kill(_slurmd(slurm.daemons[dead].pid), signal.SIGKILL)
        report = tmp_path / "report.json"
        ran = slurm.run([
            "env", f"PYTHONPATH={TOP}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", sys.executable, "-m", "preflight",
            "check",
            "--via", "srun", "--hosts", f"n[1-{nodes}]", "--deadline", "120", "--judge-on-nodes",
            "--save", str(tmp_path / "evidence"), "--json", str(report),
        ])  # fmt: skip
        left = slurm.run(
            ["sh", "-c", "for p in /proc/[0-9]*; do cd $p/root && ls dev/shm; done 2>/dev/null | sort -u"]
        ).stdout
    judged: dict[str, Any] = json.loads(report.read_text())
    here = {group["why"]: group["nodes"] for group in judged["run"].pop("judged_here")}
    assert "n2" in here["the archive did not arrive"], ran.stderr
    assert here["its Python is older than 3.10"] == "n3"
    assert judged["run"].pop("judged_on_nodes") >= 1
    silent = {node["name"] for node in judged["nodes"] if "no_answer" in node}
    assert silent == {dead}
    assert "preflight-" not in left
    run("judge", str(tmp_path / "evidence"), "--json", str(report), expect=3)
    central = json.loads(report.read_text())
    del judged["run"], central["run"]
    assert json.dumps(judged) == json.dumps(central)

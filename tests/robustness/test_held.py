"""Attacks that were tried and failed, and that no other test covers."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.fixture import whole_node
from tests.support.paths import ROOT


def env(folder: Path, **more: str) -> dict[str, str]:
    # a limit on files would cut the interpreter's bytecode, and all later runs would read it
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
            **more}  # fmt: skip


def shell(folder: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command line in which ``preflight`` is a command."""
    function = f'preflight() {{ "{sys.executable}" -m preflight "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", function + line], cwd=folder, env=env(folder, **more), capture_output=True, text=True,
        timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


#: Resources that a process may lack.
STARVED = {
    "stdin closed": "preflight demo <&-",
    "stdout closed": "preflight demo >&-",
    "stderr closed": "preflight demo 2>&-",
    "all closed": "preflight demo <&- >&- 2>&-",
    "no room on stdout": "preflight demo >/dev/full",
    "no room for JSON": "preflight demo --json - >/dev/full",
    "files of one KiB": "ulimit -f 1; preflight demo --html page.html --json report.json >/dev/null",
    "twelve files": "ulimit -n 12; preflight demo",
    "200 MB of memory": "ulimit -v 200000; preflight demo",
    "50 MB of memory": "ulimit -v 50000; preflight demo",
    "plain C": "LC_ALL=C LANG= preflight demo",
    "odd zone and width": "TZ=No/Where COLUMNS=-3 preflight demo",
    "no home": "unset HOME; preflight demo",
    "a reader who leaves": "set -o pipefail; preflight demo | head -1",
}


@pytest.mark.parametrize("how", STARVED)
def test_a_starved_process_ends_with_a_status_of_its_own(how: str, tmp_path: Path) -> None:
    """The verdict of the demo is 1; an output or a judgement that failed gives 3."""
    done = shell(tmp_path, STARVED[how])
    assert "Traceback" not in done.stderr, done.stderr[-800:]
    assert done.returncode in (1, 3), (done.returncode, done.stderr[-500:])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith(".")], "left behind"
    for path in tmp_path.glob("*.json"):
        json.loads(path.read_text("utf-8"))


#: Host names with other meanings, from the command line, a file, and an earlier report.
HOSTS = ("-oProxyCommand=touch HELD", "a;touch HELD", "$(touch HELD)", "`touch HELD`", "a|touch HELD", "a\ntouch HELD")


def test_no_host_is_an_option_or_a_command(tmp_path: Path) -> None:
    runs = []
    for number, host in enumerate(HOSTS):
        nodes = [{"name": host, "status": "fail", "checks": {}}]
        (tmp_path / f"r{number}.json").write_text(json.dumps({"schema": "preflight.report/1", "nodes": nodes}), "utf-8")
        (tmp_path / f"h{number}").write_text(host.replace("\n", ";"), "utf-8")
        for given in (
            ["--hosts", host.replace("\n", ";")],
            ["--hostfile", f"h{number}"],
            ["--rerun", f"r{number}.json"],
        ):
            runs += [["check", *given, "--via", via] for via in ("ssh", "openssh")]
    for one in commands.run(runs, tmp_path, env(tmp_path)):
        assert one.status == (3 if one.words[2] == "h0" else 2), (one.words, one.output)  # h0: `slots=8` is ignored
    assert not list(tmp_path.rglob("HELD*"))


def test_files_that_a_job_names_do_not_leave_the_node(tmp_path: Path) -> None:
    """The collector may be root: of a file that a user's variable names, only NCCL's settings are read."""
    secret = tmp_path / "shadow"
    secret.write_text("root:$6$salt$hunter2hunter2:19000:0:99999:7:::\n", "utf-8")
    given = {"NCCL_CONF_FILE": str(secret), "NCCL_TOPO_FILE": str(secret), "NCCL_TUNER_CONFIG_PATH": str(secret)}
    done = shell(tmp_path, "preflight collect", **given)
    assert done.returncode == 0
    assert "hunter2" not in done.stdout + done.stderr


def test_a_bomb_is_no_log(tmp_path: Path) -> None:
    """A log is decompressed in pieces, within limits, and does not stay in memory."""
    piece = gzip.compress(b"\0" * (32 << 20), 9)
    (tmp_path / "bomb.gz").write_bytes(piece)
    (one,) = commands.run([["read", "bomb.gz"]], tmp_path, env(tmp_path))
    assert one.status in (2, 3), one.output
    assert one.mib < 300


def test_writers_that_meet_leave_a_complete_history(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(json.dumps(whole_node("hgx-h100-roce")), "utf-8")
    argv = [sys.executable, "-m", "preflight", "judge", "n.json", "--history", "past.db", "--save", "kept"]
    several = [subprocess.Popen(argv, cwd=tmp_path, env=env(tmp_path), stdout=subprocess.DEVNULL) for _ in range(4)]
    several[0].kill()
    several[0].wait(60)
    assert [process.wait(60) for process in several[1:]] == [several[1].returncode] * 3
    listed = shell(tmp_path, "preflight history runs past.db --json")
    assert len(json.loads(listed.stdout)) == 1, "the same evidence is one run"
    for path in (tmp_path / "kept").glob("*.json"):
        json.loads(path.read_text("utf-8"))

"""The files of ``preflight slurm install``, the difference to slurm.conf, and the summary of ``gate status``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight import deploy
from preflight.gate import fleet_status
from preflight.gate.slurm import drain_reason, installation, slurm_conf
from preflight.gate.slurm.installation import HookTarget, InstallError
from preflight.gate.slurm.scontrol_nodes import Node
from preflight.gate.verdict import Verdict

#: By hand, in the form of ``scontrol show config``: 22.05, and newer versions, which number lists.
OLD = """\
Configuration data as of 2026-11-29T01:40:00
Epilog                  = (null)
HealthCheckInterval     = 0 sec
HealthCheckNodeState    = ANY
HealthCheckProgram      = (null)
Prolog                  = (null)
PrologEpilogTimeout     = 65534
PrologFlags             = (null)
SchedulerParameters     = bf_interval=2
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at ctl is UP
"""
NEW = OLD.replace(
    "Prolog                  = (null)", "Prolog[0]               = /site/a\nProlog[1]               = /site/b"
)

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def difference(text: str) -> dict[str, slurm_conf.ConfLine]:
    lines = slurm_conf.difference(deploy.recipe("slurm/slurm.conf"), slurm_conf.running(text))
    return {line.key: line for line in lines}


def test_a_bare_slurm_needs_every_line() -> None:
    lines = difference(OLD)
    assert all(line.differs for line in lines.values())
    assert lines["SchedulerParameters"].needed == "bf_interval=2,nohold_on_prolog_fail"
    assert slurm_conf.as_difference([lines["SchedulerParameters"], lines["Prolog"]]) == [
        "-SchedulerParameters=bf_interval=2", "+SchedulerParameters=bf_interval=2,nohold_on_prolog_fail",
        "+Prolog=/etc/slurm/preflight/prolog",
    ]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "needed"), [
    ("PrologEpilogTimeout", "30", "30"), ("HealthCheckInterval", "60 sec", "60"),
    ("PrologFlags", "Contain,X11", "Alloc,Contain,X11"), ("PrologFlags", "Contain,Alloc", "Alloc,Contain"),
    ("HealthCheckNodeState", "IDLE", "ANY,CYCLE"), ("HealthCheckNodeState", "CYCLE,ANY", "ANY,CYCLE"),
])  # fmt: skip
def test_settings_of_the_site_are_not_changed(key: str, value: str, needed: str) -> None:
    text = "".join(f"{key} = {value}\n" if line.startswith(f"{key} ") else line for line in OLD.splitlines(True))
    line = difference(text)[key]
    assert line.needed == needed
    assert line.differs == ((key, value) in [("PrologFlags", "Contain,X11"), ("HealthCheckNodeState", "IDLE")])


def test_a_program_of_the_site_is_not_replaced() -> None:
    prolog = difference(NEW)["Prolog"]
    assert (prolog.conflict, prolog.differs, prolog.running) == (True, False, "/site/a,/site/b")
    assert prolog.line == "# not replaced: Prolog=/site/a,/site/b"


def where(folder: Path) -> HookTarget:
    return HookTarget(str(folder / "preflight"), "/opt/x/bin/python3 -I -m preflight", "/etc/c.toml")


def states(folder: Path) -> dict[str, str]:
    return {file.path.name: file.state for file in installation.plan(where(folder), ())}


@root
def test_files_are_written_once_and_replaced_only_if_ours(tmp_path: Path) -> None:
    assert set(states(tmp_path).values()) == {"new"}
    umask = os.umask(0o077)
    try:
        installation.write(where(tmp_path), installation.plan(where(tmp_path), ()))
    finally:
        os.umask(umask)
    assert set(states(tmp_path).values()) == {"same"}
    prolog = tmp_path / "preflight/prolog"
    assert stat.S_IMODE(prolog.stat().st_mode) == stat.S_IMODE(prolog.parent.stat().st_mode) == 0o755
    text = prolog.read_text()
    assert 'preflight="/opt/x/bin/python3 -I -m preflight"\ncluster=/etc/c.toml\n' in text
    prolog.chmod(0o777)
    other = HookTarget(where(tmp_path).folder, "/usr/bin/python3 -I /x.pyz", "/etc/c.toml")
    assert {file.path.name: file.state for file in installation.plan(other, ())}["healthcheck"] == "ours"
    assert states(tmp_path)["prolog"] == "ours", "its mode is not the one of ours"
    installation.write(where(tmp_path), installation.plan(where(tmp_path), ()))
    assert states(tmp_path)["prolog"] == "same"
    prolog.write_text(text.replace("exit 0", "exit 1"))
    with pytest.raises(InstallError, match="prolog: not written by preflight, or edited since"):
        installation.write(where(tmp_path), installation.plan(where(tmp_path), ()))
    installation.remove(installation.remaining(tmp_path / "preflight"))
    assert [path.name for path in (tmp_path / "preflight").iterdir()] == ["prolog"]


@root
@pytest.mark.parametrize("kind", ["link", "folder", "site", "pipe"])
def test_nothing_of_others_is_replaced(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "preflight"
    folder.mkdir()
    path = folder / "prolog"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("#!/bin/sh\n")
    assert states(tmp_path)["prolog"] == "foreign"
    with pytest.raises(InstallError):
        installation.write(where(tmp_path), installation.plan(where(tmp_path), ()))
    assert [entry.name for entry in folder.iterdir()] == ["prolog"]


@root
def test_a_folder_or_program_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "preflight").mkdir()
    (tmp_path / "preflight").chmod(0o777)
    with pytest.raises(InstallError, match="is writable by others"):
        installation.write(where(tmp_path), installation.plan(where(tmp_path), ()))
    python = tmp_path / "python3"
    python.touch()
    python.chmod(0o777)
    with pytest.raises(InstallError, match="root would run it before each job"):
        installation.place(Path("/etc/slurm/preflight"), None, python)
    for path in ("/etc/a b", "/etc/$(reboot)", "/etc/../x"):
        with pytest.raises(InstallError, match="use an absolute path"):
            installation.place(Path(path), None, None)


def test_a_python_without_preflight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "untrusted", lambda path: "")
    python = Path(sys.base_prefix, "bin", "python3")
    with pytest.raises(InstallError, match=r"--version` fails: .*No module named"):
        installation.place(Path("/etc/slurm/preflight"), None, python)
    here = installation.place(Path("/etc/slurm/preflight"), None, Path(sys.executable))
    assert here.program == f"{sys.executable} -I -m preflight"


REASON = "preflight: gpu.count: found 7, expected 8"


def node(name: str, states: str = "IDLE", reason: str = "", comment: str = "") -> Node:
    return Node(name, name, tuple(states.split("+")), ("all",), reason=reason, comment=comment)


def status(nodes: list[Node], verdicts: Mapping[str, Verdict | str]) -> fleet_status.FleetStatus:
    states = {
        item.name: fleet_status._state(item, verdicts.get(item.name, "it has published no verdict")) for item in nodes
    }
    return fleet_status.FleetStatus(states, "", 1_800_000_000)


def test_each_node_is_in_one_state_and_absent_is_not_pass() -> None:
    failed = Verdict("n", "fail", 1, cause="gpu.count", causes=("gpu.count",), reason=REASON)
    drained = [node(f"n{i}", "IDLE+DRAIN", drain_reason.drained(f"n{i}", REASON, "node")) for i in (2, 3)]
    held = node("n6", comment=drain_reason.held("n6", REASON, "node", 1_800_000_000))
    nodes = [node("n1"), *drained, node("n4", "DOWN"), node("n5", "DRAINED", "bob: PSU"), held, node("n7"), node("n8")]
    fleet = status(nodes, {"n1": Verdict("n1", "pass", 1), "n6": failed, "n8": failed})
    first, *rest = fleet_status.lines(fleet)
    assert first == ("1 pass, 2 drained by preflight, 1 failed, held in service by the breaker, 1 failed, in service, "
                     "1 not judged, 1 drained by others, 1 down, breaker closed")  # fmt: skip
    assert rest[0] == "  drained by preflight: n[2-3]: gpu.count: found 7, expected 8 [node]"
    assert "  not judged: n7: it has published no verdict" in rest
    assert fleet.exit_status == 1
    assert status([node("n1"), node("n7")], {"n1": Verdict("n1", "pass", 1)}).exit_status == 3
    assert status([node("n1"), nodes[4]], {"n1": Verdict("n1", "pass", 1)}).exit_status == 0
    assert status([], {}).exit_status == 3


def test_metrics_name_every_state(tmp_path: Path) -> None:
    fleet_status.write_metrics(status([node("n1")], {}), tmp_path / "s.prom")
    text = (tmp_path / "s.prom").read_text()
    assert text.count("preflight_gate_nodes{") == len(fleet_status.STATES)
    assert 'preflight_gate_nodes{state="not_judged"} 1\n' in text
    assert "preflight_gate_breaker_open 0\n" in text


def test_every_line_that_runs_a_script_is_removed_first() -> None:
    """Also those that the fragment does not have; a site's own programs stay."""
    config = slurm_conf.running(
        "Prolog[0] = /site/a\nProlog[1] = /x/prolog\nPrologSlurmctld = /x/prolog\nEpilog = /site/epilog\n"
        "EpilogSlurmctld = /x/epilog-slurmctld\nHealthCheckProgram = (null)\n"
    )
    files = [str(file.path) for file in installation.remaining(Path("/x"))]
    assert {line.key: line.running for line in slurm_conf.removal(files, config)} == {
        "Prolog": "/site/a,/x/prolog", "PrologSlurmctld": "/x/prolog", "EpilogSlurmctld": "/x/epilog-slurmctld",
    }  # fmt: skip


@pytest.mark.parametrize(("states", "recorded"), [
    (["COMPLETING", "COMPLETED"], "completed"), (["TIMEOUT"], "timeout"), (["PENDING"], ""), (["RUNNING"], ""),
    ([], ""),
])  # fmt: skip
def test_the_time_of_a_job_is_recorded_once_its_outcome_is_final(
    tmp_path: Path, states: list[str], recorded: str
) -> None:
    """The output of squeue has another task of the array as well; the name of the job is its user's text."""
    name = "--name=x; $(reboot)"
    (tmp_path / "states").write_text("".join(f"8 RUNNING 1 2\n7 {state} 1000 1090\n" for state in states))
    squeue = f"cd {tmp_path}; head -n 2 states; [ $(wc -l <states) -le 2 ] || sed -i 1,2d states"
    program = f"""printf '%s\\n' "$@" >{tmp_path}/arguments"""
    for tool, text in {"squeue": squeue, "sleep": "", "preflight": program}.items():
        (tmp_path / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / tool).chmod(0o755)
    script = deploy.recipe("slurm/epilog-slurmctld").replace("/opt/preflight/bin/python3 -I -m ", f"{tmp_path}/")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": name, "SLURM_JOB_NUM_NODES": "4"}
    argv = ["sh", "-c", script.replace("/usr/bin/logger", "/none"), "sh", "wait"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **job}
    done = subprocess.run(argv, capture_output=True, check=False, env=environment, timeout=60)
    assert done.stderr == b""
    arguments = tmp_path / "arguments"
    assert (arguments.read_text().splitlines() if arguments.exists() else []) == ([
        "history", "job", "--seconds=90", f"--name={name}", "--nodes=4", f"--outcome={recorded}", "--",
        installation.HISTORY, "7",
    ] if recorded else [])  # fmt: skip

"""Gates as real processes, in the environments of schedulers, pods and broken nodes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.gate import verdict
from preflight.gate.verdict import Verdict
from tests.support.paths import ROOT
from tests.support.sshfarm import Farm
from tests.support.sshfarm.marks import needs_farm
from tests.support.stopwatch import Stopwatch

UNPRIVILEGED = 65534
HEALTHY, SICK = "[class.a]\ngpus = 0\nhcas = 0\n", "[class.a]\ngpus = 8\nhcas = 8\n"
STARTED_S = 120.0

#: Modules that serving a fresh verdict may import, in addition to those that Python imports at its start.
LIGHT = {
    "__future__", "preflight", "preflight.version", "preflight.cli", "preflight.cli.main", "preflight.errors",
    "preflight.gate", "preflight.gate.main", "preflight.gate.verdict_cache", "preflight.gate.scheduler_env",
    "preflight.gate.options", "preflight.gate.policy", "preflight.gate.request", "preflight.gate.result",
    "preflight.gate.state_dir", "preflight.gate.announce", "preflight.gate.values", "preflight.gate.verdict",
    "preflight.gate.watchdog", "preflight._startup", "preflight._startup.fast_options",
    "preflight._startup.generated_options", "select", "syslog", "zlib",
}  # fmt: skip


class GateSite:
    """A copy of preflight that every user may read, a cluster file, a state directory; calls gates."""

    def __init__(self, folder: Path, tree: Path, python: str) -> None:
        self.folder, self.tree, self.python = folder, tree, python
        self.cluster = folder / "cluster.toml"
        self.state = folder / "state"
        self.script = folder / "preflight"
        self.write(HEALTHY)
        self.write_script(python)

    def write(self, text: str) -> None:
        self.cluster.write_text(text)

    def write_script(self, interpreter: str) -> None:
        """Write the console script for the copy, as pip would."""
        lines = [f"#!{interpreter}", "import sys", f"sys.path.insert(1, {str(self.tree)!r})"]
        self.script.write_text("\n".join([*lines, "from preflight.cli.main import main", "main()", ""]))
        self.script.chmod(0o755)

    def argv(self, *words: str) -> list[str]:
        """Return the command line of a gate with its cluster file and its state directory."""
        return [str(self.script), "gate", *words, "--cluster", str(self.cluster), "--state-dir", str(self.state)]

    def run(self, *words: str, before: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
        """Call a gate with only ``env`` as environment, as slurmd does."""
        argv = [*before, *self.argv(*words)]
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd="/"
        )

    def verdict(self) -> Verdict:
        return verdict.from_document(json.loads((self.state / "verdict.json").read_text()))


@pytest.fixture(scope="module")
def tree() -> Iterator[tuple[Path, str]]:
    """Preflight as installed by a package, readable by every user, and a Python that everybody may run."""
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    folder.chmod(0o755)
    shutil.copytree(ROOT / "preflight", folder / "preflight", ignore=shutil.ignore_patterns("__pycache__"))
    python = next(path for path in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable) if can_run(path))
    subprocess.run([python, "-m", "compileall", "-q", str(folder / "preflight")], check=True, timeout=120)
    yield folder, python
    shutil.rmtree(folder)


def can_run(python: str) -> bool:
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    with contextlib.suppress(OSError):
        return (
            subprocess.run([*as_ordinary_user(), python, "-c", code], capture_output=True, timeout=30).returncode == 0
        )
    return False


def as_ordinary_user() -> tuple[str, ...]:
    """Return the function that turns root into an ordinary user."""
    if os.geteuid() != 0:
        return ()
    return ("/usr/bin/setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups")


@pytest.fixture
def site(tree: tuple[Path, str]) -> Iterator[GateSite]:
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    folder.chmod(0o755)
    yield GateSite(folder, *tree)
    shutil.rmtree(folder)


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("root is needed for a mount of its own")


def until(what: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + STARTED_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- hooks and statuses -----------------------------------------------------------------------------

NO_NUMBERS = "[class.a]\ngpus = 0\n"
BROKEN = "[class.a]\ngpus = eight\n"
MESSAGES = {HEALTHY: "pass", SICK: "FAIL: gpu.count: found 0, expected 8", NO_NUMBERS: "NOT JUDGED: gate.expectations",
        BROKEN: "CONFIGURATION ERROR"}  # fmt: skip


@pytest.mark.parametrize(("hook", "text", "status"), [
    ("slurm-prolog", HEALTHY, 0), ("slurm-prolog", SICK, 1), ("slurm-prolog", NO_NUMBERS, 0),
    ("slurm-prolog", BROKEN, 0),
    ("slurm-step", HEALTHY, 0), ("slurm-step", SICK, 1), ("slurm-step", NO_NUMBERS, 3), ("slurm-step", BROKEN, 2),
    ("init-container", SICK, 1), ("init-container", NO_NUMBERS, 3), ("ci", NO_NUMBERS, 0), ("ci", BROKEN, 2),
])  # fmt: skip
def test_each_hook_follows_the_table(site: GateSite, hook: str, text: str, status: int) -> None:
    """L01, L18, L22, L50: only one of four statuses, and one line that explains it."""
    site.write(text)
    done = site.run(hook, "--node", "n1")
    message = MESSAGES[text] if hook != "ci" or text != NO_NUMBERS else "pass"
    assert done.returncode == status, done.stderr
    loud, quiet = (done.stdout, done.stderr) if message == "pass" else (done.stderr, done.stdout)
    assert loud.startswith(f"preflight: n1: {message}")
    assert quiet == ""


def test_a_prolog_after_a_good_verdict_collects_and_imports_nothing(site: GateSite) -> None:
    """L40: not even the modules that read options and documents."""
    assert "judged in" in site.run("slurm-prolog").stdout
    assert " s ago" in site.run("slurm-prolog").stdout
    words = ["preflight", *site.argv("slurm-prolog")[1:]]
    code = f"import sys; sys.path.insert(1, {str(site.tree)!r}); sys.argv = {words!r}"
    argv = [site.python, "-I", "-S", "-X", "importtime", "-c", f"{code}; from preflight.cli.main import main; main()"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={})
    plain = subprocess.run([*argv[:5], "-c", "import os"], capture_output=True, text=True, timeout=60, env={})
    assert "s ago" in done.stdout
    assert imported(done.stderr) - imported(plain.stderr) <= LIGHT


def imported(stderr: str) -> set[str]:
    return {line.split("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")}


def test_a_prolog_repeats_that_nothing_was_judged(site: GateSite) -> None:
    """A verdict of unknown is served as well, except to a hook that would hold the job back."""
    site.write(NO_NUMBERS)
    for text in ("judged in", "s ago"):
        done = site.run("slurm-prolog")
        assert (done.returncode, text in done.stderr) == (0, True)
        assert "NOT JUDGED" in done.stderr
    strict = site.run("slurm-prolog", "--strict")
    assert strict.returncode == 3
    assert "judged in" in strict.stderr
    assert "Slurm was not updated" in strict.stderr  # called by slurmd it would be, and the job would be requeued


def test_a_failure_is_judged_anew_before_it_holds_a_job_back(site: GateSite) -> None:
    site.write(SICK)
    for _ in range(2):
        done = site.run("slurm-prolog")
        assert (done.returncode, "judged in" in done.stderr) == (1, True)
    assert (site.verdict().status, site.verdict().cause, site.verdict().owner) == ("fail", "gpu.count", "node")
    assert "Slurm was not updated" in done.stderr  # slurmd did not call it


def test_a_dry_run_holds_no_job_back_and_is_marked_as_one(site: GateSite) -> None:
    """L19."""
    site.write(SICK)
    done = site.run("slurm-step", "--dry-run")
    assert done.returncode == 0
    assert "DRY RUN: " in done.stderr.splitlines()[0]
    site.write(SICK + "[gate]\ndry_run = true\n")
    assert site.run("slurm-prolog").returncode == 0


# --- the configuration ------------------------------------------------------------------------------


def test_a_broken_cluster_file_is_reported_and_the_last_valid_one_holds(site: GateSite) -> None:
    assert site.run("slurm-prolog").returncode == 0
    site.write(BROKEN)
    for _ in range(2):
        done = site.run("slurm-prolog", "--strict")
        assert done.returncode == 0
        assert "pass" in done.stdout
        assert "CONFIGURATION ERROR" in done.stderr
        assert f"{site.cluster}:2: gpus:" in done.stderr
    site.write(SICK)
    assert site.run("slurm-prolog").returncode == 1
    site.write(BROKEN)
    done = site.run("slurm-prolog", "--dry-run")  # a failure by the last valid file drains no node
    assert "FAIL: gpu.count" in done.stderr
    os.utime(next(site.state.glob("cluster-*.toml")), (0, 0))
    done = site.run("slurm-prolog", "--refresh")
    age = r"judged by the last valid cluster file of this path, a copy that is \d+ days old: "
    assert re.search(age + re.escape(f"{site.cluster}:2: "), done.stderr)


@pytest.mark.parametrize("text", [BROKEN, None], ids=["broken", "missing"])
def test_the_last_valid_file_of_another_path_is_not_judged_by(site: GateSite, text: str | None) -> None:
    assert site.run("slurm-prolog").returncode == 0
    site.cluster = site.folder / "other.toml"
    if text:
        site.write(text)
    for hook in ("slurm-prolog", "slurm-healthcheck"):
        done = site.run(hook, "--refresh")
        assert done.returncode == {"slurm-prolog": 0, "slurm-healthcheck": 2}[hook]
        assert f"CONFIGURATION ERROR: gate.configuration: {site.cluster}" in done.stderr
        assert "last valid" not in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_text(""), lambda path: (path.unlink(), path.mkdir())]
)
def test_without_a_cluster_file_nothing_is_judged(site: GateSite, spoil: Callable[[Path], Any]) -> None:
    """L01."""
    spoil(site.cluster)
    done = site.run("slurm-step")
    assert done.returncode == 2
    assert "CONFIGURATION ERROR" in done.stderr
    done = site.run("slurm-prolog")
    assert done.returncode == 0
    assert "CONFIGURATION ERROR" in done.stderr


def test_a_misspelt_check_drains_no_node(site: GateSite) -> None:
    """L22."""
    site.write(SICK + '[gate]\nskip = ["gpu.cuont"]\n')
    done = site.run("slurm-prolog")
    assert (done.returncode, "gpu.cuont" in done.stderr) == (0, True)


@pytest.mark.parametrize(("words", "env", "status"), [
    (["slurm-prolog", "--clutser", "x"], {}, 0), (["slurm-step", "--clutser", "x"], {}, 2), (["slurm-prolg"], {}, 2),
    (["slurm-prolg"], {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, 0), ([], {}, 2),
])  # fmt: skip
def test_a_usage_error_in_a_script_drains_no_node(words: list[str], env: dict[str, str], status: int) -> None:
    argv = [sys.executable, "-m", "preflight", "gate", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**env, "PYTHONPATH": str(ROOT)})
    assert done.returncode == status
    assert "USAGE ERROR" in done.stderr


def test_a_crash_of_preflight_drains_no_node(site: GateSite) -> None:
    (site.folder / "sitecustomize.py").write_text("import sys; sys.modules['preflight.judge'] = None\n")
    done = site.run("slurm-prolog", PYTHONPATH=str(site.folder))
    assert done.returncode == 0
    assert "NOT JUDGED: gate.crash: preflight itself failed: ModuleNotFoundError" in done.stderr
    assert site.run("slurm-prolog", "--strict", PYTHONPATH=str(site.folder)).returncode == 0
    assert site.run("slurm-step", PYTHONPATH=str(site.folder)).returncode == 3


# --- the health check -------------------------------------------------------------------------------


def test_the_health_check_reads_and_has_it_judged_in_the_background(site: GateSite) -> None:
    done = site.run("slurm-healthcheck", SLURMD_NODENAME="n7")
    assert (done.returncode, "does not exist yet; one is being made" in done.stderr) == (3, True)
    until((site.state / "report.json").exists)
    assert (site.verdict().node, site.verdict().status) == ("n7", "pass")
    done = site.run("slurm-healthcheck", SLURMD_NODENAME="n7")
    assert (done.returncode, "n7: pass" in done.stdout) == (0, True)
    assert "gpu.memory-headroom" in site.verdict().off
    assert site.run("slurm-prolog", SLURMD_NODENAME="n7").returncode == 0


def test_two_do_not_judge_at_once(site: GateSite) -> None:
    site.state.mkdir(0o700)
    with (site.state / "refresh.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = site.run("slurm-healthcheck", "--refresh")
        assert (done.returncode, "another process is already judging" in done.stderr) == (3, True)
    assert site.run("slurm-healthcheck", "--refresh").returncode == 0


# --- it always ends ---------------------------------------------------------------------------------


@contextlib.contextmanager
def collecting(site: GateSite, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a gate that is collecting while one of its tools hangs."""
    number = f"{os.getpid()}{time.monotonic_ns()}"
    tool = site.folder / "tool"
    tool.write_text(f"#!/bin/sh\nexec sleep {number}\n")
    tool.chmod(0o755)
    target = shutil.which("find", path="/usr/bin:/bin")
    assert target
    script = f"mount --bind {shlex.quote(str(tool))} {target} && exec {shlex.join(site.argv(*words))}"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        until(lambda: running(number))
        yield process
    until(lambda: not running(number))


def running(number: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{number}\0".encode():
                return True
    return False


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("hook", "number"), [("slurm-prolog", signal.SIGTERM), ("slurm-step", signal.SIGINT)])
def test_a_terminated_gate_reports_what_is_missing(site: GateSite, hook: str, number: signal.Signals) -> None:
    """L12: never with a status of 0; no process of it survives."""
    with collecting(site, hook, "--deadline", "60") as process:
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=STARTED_S)
    assert process.returncode == 3
    assert re.search(
        rf"NOT JUDGED: gate.interrupted: {number.name} after \d+\.\d s while collecting from this node", stderr
    )
    assert stdout == ""
    if hook == "slurm-prolog":
        assert (site.verdict().status, site.verdict().unknowns) == ("unknown", ("gate.interrupted",))
        assert "judged in" in site.run("slurm-prolog").stdout  # it is not believed


@pytest.mark.usefixtures("root")
def test_a_tool_that_hangs_ends_with_the_deadline(site: GateSite) -> None:
    """L34, L39: the delayed part is reported, and the rest is judged."""
    watch = Stopwatch()
    with collecting(site, "slurm-step", "--deadline", "3", "--report-dir", str(site.folder / "report")) as process:
        process.communicate(timeout=STARTED_S)
    assert process.returncode == 0  # no gating check depends on it, on a machine without GPUs
    assert watch.seconds < 3 + 20
    evidence = json.loads(next((site.folder / "report" / "evidence").iterdir()).read_text())
    (record,) = [record for key, record in evidence["records"].items() if key.startswith("cmd:find -H /usr")]
    assert record["status"] == "timeout"


def test_a_deadline_ends_what_no_signal_can() -> None:
    """A main thread that never returns to Python, as with a dead file server, so SIGTERM has no effect either."""
    code = """if True:
        import os, sys, time
        from preflight.gate.watchdog import Watch
        finish = lambda progress, why, killed: (os.write(2, why.encode()), 3)[1]
        watch = Watch(time.monotonic(), float(sys.argv[1]), None, finish)
        watch.start()
        watch.enter("reading")
        print("started", flush=True)
        ear, mouth = os.pipe()
        os.read(ear, 1)
    """
    for seconds, number, reason in (
        ("1.5", None, "the deadline of 1.5 s was exceeded"),
        ("60", signal.SIGTERM, "SIGTERM"),
    ):
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", code, seconds]
        with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "started\n"
            if number is not None:
                process.send_signal(number)
            _, stderr = process.communicate(timeout=STARTED_S)
        assert process.returncode == 3
        assert stderr.startswith(reason)
        assert stderr.endswith("while reading")


def test_a_verdict_at_the_moment_of_the_deadline_is_announced_once() -> None:
    """Only the thread that claims the end writes the output, however close the two are.

    A process that is not scheduled for 20 ms is late before anything is judged.
    """
    code = """if True:
        import os, time
        from preflight.gate.watchdog import Watch
        deadline_s = 0.02
        for number in range(300):
            if os.fork() == 0:
                finish = lambda progress, why, killed: (os.write(1, f"late {progress}\\n".encode()), 3)[1]
                began = time.monotonic()
                watch = Watch(began, deadline_s, "begun", finish)
                watch.start()
                progress = watch.advance("judged")
                while time.monotonic() < began + deadline_s + (number % 21 - 8) * 0.001:
                    progress = watch.advance("judged")
                watch.close(0)
                os.write(1, f"in time {progress}\\n".encode())
                os._exit(0)
            _, status = os.wait()
            os.write(1, f"{os.waitstatus_to_exitcode(status)}\\n".encode())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=STARTED_S)
    assert done.stderr == ""
    ends = re.findall(r"(?:in time judged\n0\n|late (?:judged|begun)\n3\n)", done.stdout)
    assert "".join(ends) == done.stdout
    assert len(ends) == 300
    assert {end.split()[0] for end in ends} == {"in", "late"}, "no race was run: both threads have to win at times"


# --- bare and hostile environments ------------------------------------------------------------------


def test_without_an_environment_and_without_knowing_its_interpreter(site: GateSite) -> None:
    """A Prolog with the first line ``/usr/bin/env python3``, where ``sys.executable`` is empty."""
    argv = ["/usr/bin/env", "python3", "-c", "import sys; print(repr(sys.executable), sys.version_info >= (3, 11))"]
    assert subprocess.run(argv, env={}, capture_output=True, text=True, timeout=30).stdout == "'' True\n"
    site.write_script("/usr/bin/env python3")
    assert site.run("slurm-prolog").returncode == 0
    assert "s ago" in site.run("slurm-prolog").stdout


@pytest.mark.parametrize("path", [None, "", "/nowhere", "."])
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_as_root_and_as_an_ordinary_user_with_any_path(site: GateSite, user: str, path: str | None) -> None:
    before = as_ordinary_user() if user == "nobody" else ()
    env: Any = {} if path is None else {"PATH": path}
    done = site.run("slurm-step", before=before, **env)
    assert done.returncode == 0, done.stderr
    done = site.run("slurm-prolog", before=before, **env)
    assert done.returncode == 0
    cached = user == "root" or os.geteuid() != 0
    assert ("the verdict is not saved: state directory" in done.stderr) is not cached
    assert "pass" in done.stdout


def test_an_ordinary_user_without_a_home_cannot_cache_a_verdict(site: GateSite) -> None:
    argv = [*as_ordinary_user(), str(site.script), "gate", "slurm-healthcheck", "--cluster", str(site.cluster)]
    if os.geteuid() != 0:
        pytest.skip("root is needed to become nobody")
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "neither --state-dir, $STATE_DIRECTORY, $XDG_STATE_HOME nor $HOME is set" in done.stderr


READ_ONLY = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("hook", ["slurm-prolog", "slurm-healthcheck", "slurm-step", "init-container"])
def test_on_a_read_only_root_it_judges_and_reports_what_it_lacks(site: GateSite, hook: str) -> None:
    done = site.run(hook, before=(str(shutil.which("bwrap")), *READ_ONLY[1:]))
    assert (done.returncode, "pass" in done.stdout) == (0, True), done.stderr
    lacks = "Read-only file system" in done.stderr
    assert lacks is hook.startswith(("slurm-prolog", "slurm-health"))
    assert not site.state.exists()


@pytest.mark.usefixtures("root")
def test_a_state_directory_that_became_read_only_is_no_fault_of_ours(site: GateSite) -> None:
    assert site.run("slurm-prolog").returncode == 0
    done = site.run("slurm-prolog", "--refresh", before=(str(shutil.which("bwrap")), *READ_ONLY[1:]))
    assert (done.returncode, "judged in" in done.stdout) == (0, True), done.stderr
    assert "the verdict is not saved: " in done.stderr
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("spoil", [
    lambda state: state.write_text("no directory"),
    lambda state: (state.mkdir(), state.chmod(0o777)),
    lambda state: state.symlink_to("/etc"),
])  # fmt: skip
def test_a_state_directory_that_is_not_to_be_trusted_is_not_used(site: GateSite, spoil: Callable[[Path], Any]) -> None:
    spoil(site.state)
    for _ in range(2):
        done = site.run("slurm-prolog")
        assert (done.returncode, "judged in" in done.stdout) == (0, True)
        assert "the verdict is not saved: state directory" in done.stderr
    assert not site.state.is_dir() or site.state.is_symlink() or not list(site.state.iterdir())


# --- a job of many nodes ----------------------------------------------------------------------------


def test_a_step_that_leaves_nodes_out_does_not_let_the_job_start(site: GateSite) -> None:
    job: Any = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_NODELIST": "n[1-4]"}
    done = site.run("slurm-step", **job)
    assert done.returncode == 3
    assert "1 of the job's 4 nodes would be judged: start it with `srun --ntasks-per-node=1 --nodes=4`" in done.stderr
    complete = {**job, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "4", "SLURM_LOCALID": "0"}
    assert site.run("slurm-step", **complete).returncode == 0
    done = site.run("slurm-step", **{**complete, "SLURM_LOCALID": "1"})
    assert (done.returncode, "task 0 of this node judges it" in done.stdout) == (0, True)


def controller(site: GateSite, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "preflight", "gate", "slurm-controller", "--cluster", str(site.cluster), *words]
    env = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_ID": "7", "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)


def test_the_controller_goes_by_the_verdicts_that_the_nodes_publish(site: GateSite) -> None:
    shared = site.folder / "shared"
    shared.mkdir(0o755)
    done = controller(site)
    assert (done.returncode, "no verdicts: set the directory to which nodes publish them" in done.stderr) == (0, True)
    site.write(HEALTHY + f'[gate]\npublish = "{shared}"\n')
    for name in ("n1", "n2", "n3"):
        done = controller(site)
        assert (done.returncode, "it has published no verdict" in done.stderr) == (0, True)
        assert controller(site, "--strict").returncode == 3
        assert site.run("slurm-prolog", SLURMD_NODENAME=name).returncode == 0
    done = controller(site)
    assert (done.returncode, "preflight: n[1-3]: pass" in done.stdout) == (0, True)
    now = int(time.time())
    bad = Verdict("n2", "fail", now, cause="xid.gpu", causes=("xid.gpu",), reason="preflight: xid.gpu: found XID 79")
    publish(shared, "n2", verdict.to_document(bad))
    done = controller(site)
    assert done.returncode == 1
    assert "FAIL: n2: xid.gpu: found XID 79" in done.stderr
    publish(shared, "n2", {**verdict.to_document(bad), "at": now + 200})  # its clock runs ahead
    assert controller(site, "--strict").returncode == 1
    document: Any
    for document in (
        {**verdict.to_document(bad), "at": now - 601},
        {**verdict.to_document(bad), "at": now + 400},
        {**verdict.to_document(bad), "node": "n1"},
        [],
        {**verdict.to_document(bad), "whose": "job"},
    ):
        publish(shared, "n2", document)
        assert controller(site, "--strict").returncode == 3
    shared.chmod(0o777)
    done = controller(site, "--strict")
    assert (done.returncode, "is writable by others" in done.stderr) == (3, True)


@needs_farm
def test_the_controller_collects_nodes_that_publish_nothing(site: GateSite) -> None:
    with Farm(2) as farm:
        words = ("--hosts", ",".join(farm.hosts), "--ssh-config", str(farm.ssh_config), "--deadline", "30")
        path = {"PATH": os.environ["PATH"]}
        done = controller(site, *words, **path)
        assert (done.returncode, "pass" in done.stdout) == (0, True), done.stderr
        farm.fault(farm.hosts[1], "refuse")
        done = controller(site, *words, "--strict", **path)
        assert (done.returncode, "gate.no-answer: connect" in done.stderr) == (3, True)
        assert not farm.left()


def publish(folder: Path, name: str, document: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document))


# --- notifications ----------------------------------------------------------------------------------


def test_the_termination_log_has_the_most_important_words_and_a_volume_the_report(site: GateSite) -> None:
    site.write(SICK)
    log, volume = site.folder / "termination-log", site.folder / "volume"
    log.write_text("old " * 2000)
    done = site.run("init-container", "--termination-log", str(log), "--report-dir", str(volume), "--node", "n5")
    assert done.returncode == 1
    text = log.read_text()
    assert len(text.encode()) <= 4096
    assert text.startswith("preflight: n5: FAIL: gpu.count: found 0, expected 8")
    assert "FAIL rdma.device-count" in text
    assert json.loads((volume / "report.json").read_text())["exit_status"] == 1
    assert verdict.from_document(json.loads((volume / "verdict.json").read_text())).node == "n5"
    log.unlink()
    done = site.run("init-container", "--termination-log", str(log))
    assert (done.returncode, f"{log} cannot be written: No such file" in done.stderr) == (1, True)


def test_metrics_for_a_textfile_collector(site: GateSite) -> None:
    path = site.folder / "preflight.prom"
    done = site.run("slurm-step", "--textfile", str(path), "--node", "n5")
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert 'preflight_gate_verdict{node="n5",hook="slurm-step",status="pass"} 1\n' in text
    assert 'preflight_gate_verdict{node="n5",hook="slurm-step",status="fail"} 0\n' in text
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(p.name for p in site.folder.iterdir() if "prom" in p.name) == ["preflight.prom"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("full", [False, True], ids=["read", "full"])
def test_one_line_in_the_log_of_the_system(site: GateSite, full: bool) -> None:
    """A log without a reader does not delay a job."""
    site.write(NO_NUMBERS)
    site.state.mkdir()
    site.state.chmod(0o777)
    path = site.folder / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(path))
        log.settimeout(STARTED_S)
        if full:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(BlockingIOError):
                other.setblocking(False)
                while True:
                    other.sendto(b"x", str(path))
        bare = ("bwrap", "--bind", "/", "/", "--dev", "/dev", "--bind", str(path), "/dev/log")
        done = site.run("slurm-prolog", before=(str(shutil.which("bwrap")), *bare[1:]), SLURM_JOB_ID="4711")
        assert done.returncode == 0
        assert "NOT JUDGED" in done.stderr
        if not full:
            line = log.recv(4096).decode()
            assert re.match(r"<28>.* preflight\[\d+\]: \S+: NOT JUDGED: gate.expectations: .* job 4711\)", line)
            assert "the verdict is not saved: state directory" in log.recv(4096).decode()

"""The collector with real processes, files and libraries: every result is correct and in time."""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import functools
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.collector import hardware_presence, paths
from preflight.probes.node import PROBES
from preflight.probes.probe import plan as plan_of
from preflight.transport.local import node
from tests.support.paths import ROOT
from tests.support.stopwatch import Stopwatch

UNPRIVILEGED = 65534
MNT_FORCE, MNT_DETACH = 1, 2
_numbers = itertools.count(os.getpid() * 1000)


def schema(name: str) -> Any:
    return json.loads((resources.files("preflight.schemas") / name).read_text(encoding="utf-8"))


PLAN, EVIDENCE = schema("plan-1.json"), schema("evidence-1.json")


def command(*argv: str, timeout_s: float = 5, **more: Any) -> dict[str, Any]:
    target = shlex.join(argv)
    return {"key": f"cmd:{target}", "kind": "cmd", "target": target, "argv": list(argv), "timeout_s": timeout_s, **more}


def shell(script: str, timeout_s: float = 5, **more: Any) -> dict[str, Any]:
    return {**command("sh", "-c", script, timeout_s=timeout_s, **more), "key": f"cmd:{script}"}


def probe_entry(kind: str, target: str, timeout_s: float = 5) -> dict[str, Any]:
    return {"key": f"{kind}:{target}", "kind": kind, "target": target, "timeout_s": timeout_s}


def make_plan(wanted: list[dict[str, Any]], deadline_s: float = 8, **more: Any) -> dict[str, Any]:
    plan = {**plan_of((), node="", deadline_s=deadline_s), "probes": wanted, **more}
    jsonschema.validate(plan, PLAN)
    return plan


def collect(
    *wanted: dict[str, Any], deadline_s: float = 8, python: str = sys.executable, **more: Any
) -> dict[str, Any]:
    """Collect over the real path, within the transport's time limit, as a valid document."""
    watch = Stopwatch()
    document = node.collect(make_plan(list(wanted), deadline_s, **more), python)
    assert watch.seconds < deadline_s + 1
    jsonschema.validate(document, EVIDENCE)
    assert "no_answer" not in document, document
    return document


def records(*wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = collect(*wanted, **more)["records"]
    return found


def record(probe: dict[str, Any], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = records(probe, **more)[probe["key"]]
    return found


def running(marker: str) -> list[int]:
    """Return the living processes with the marker in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def gone(marker: str, within_s: float = 20) -> bool:
    """Wait until nothing runs; checked twice, because a shell may start a child during the search, and exit."""
    until = time.monotonic() + within_s
    while running(marker) or running(marker):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def marker() -> Iterator[str]:
    """A number of seconds to sleep that no other process uses; none with it may be left."""
    name = f"61.{next(_numbers):012d}"
    yield name
    left = running(name)
    seen = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8") for pid in left]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, seen


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    folder = tempfile.mkdtemp(prefix="preflight-test-")
    os.chmod(folder, 0o755)
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def ordinary(shared: Path) -> str:
    """An interpreter that runs as an ordinary user, with a separate tool folder first in PATH."""
    tools = shared / "bin"
    tools.mkdir()
    drop: list[str] = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv to become an ordinary user with")
        drop = ["setpriv", "--reuid", str(UNPRIVILEGED), "--regid", str(UNPRIVILEGED), "--clear-groups"]
    for python in (sys.executable, *(shutil.which("python3", path=p) for p in ("/usr/bin", "/usr/local/bin"))):
        if python and subprocess.run([*drop, python, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return program(shared / "python", f'PATH={tools}:$PATH exec {shlex.join([*drop, python])} "$@"')
    pytest.skip("no interpreter that an ordinary user may run")


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


# Commands that end


def test_a_command_is_recorded_as_it_ended() -> None:
    wanted = [shell("echo out; echo err >&2; exit 3"), shell("kill -9 $$"), shell("cat; echo $LC_ALL; sudo=; :")]
    watch = Stopwatch()
    found = records(*wanted)
    assert found[wanted[0]["key"]].items() >= {"status": "ok", "out": "out\n", "err": "err\n", "rc": 3}.items()
    assert watch.own(found[wanted[0]["key"]]["seconds"]) < 2
    assert found[wanted[1]["key"]]["rc"] == -9
    assert found[wanted[2]["key"]].items() >= {"status": "ok", "out": "C\n", "rc": 0}.items()


def test_arguments_reach_no_shell() -> None:
    hostile = "$(touch /tmp/x); `id` ' \" \n | ${IFS}"
    assert record(command("printf", "%s", hostile))["out"] == hostile


def test_output_that_is_not_text_stays_readable() -> None:
    assert record(shell(r"printf 'a\377\303\251\0b'"))["out"] == "a\\xff\u00e9\0b"


def test_a_tool_that_is_missing_or_may_not_run(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program", encoding="utf-8")
    program(tmp_path / "bad", "").encode()
    (tmp_path / "bad").write_text("#!/no/such/interpreter\n", encoding="utf-8")
    found = records(
        command("no-such-tool"), command(str(tmp_path / "plain")), command(str(tmp_path / "bad")), shell("echo hi")
    )
    assert found["cmd:no-such-tool"]["status"] == "missing"
    assert "no-such-tool" in found["cmd:no-such-tool"]["why"]
    assert found[f"cmd:{tmp_path}/plain"]["status"] == "denied"
    assert found[f"cmd:{tmp_path}/bad"]["status"] == "error"
    assert found["cmd:echo hi"]["out"] == "hi\n"


# Commands that do not end


def test_a_command_that_hangs_is_named_by_how_it_hung(marker: str) -> None:
    asleep = command("sleep", marker, timeout_s=1)
    partial = shell(f"echo so far; sleep {marker}; :", timeout_s=1)
    deaf = shell(f"trap '' TERM; while :; do sleep {marker}; done", timeout_s=1)
    stopped = shell(f"kill -STOP $$; : {marker}", timeout_s=1)
    closed = shell(f"exec >&- 2>&-; sleep {marker}; :", timeout_s=1)
    fine = shell("echo fine")
    watch = Stopwatch()
    found = records(asleep, partial, deaf, stopped, closed, fine)
    for probe in (asleep, partial, deaf, stopped, closed):
        answer = found[probe["key"]]
        assert answer["status"] == "timeout"
        assert answer["why"].startswith("no end after 1 s; ")
        assert "rc" not in answer
        assert answer["seconds"] >= 1
        assert watch.own(answer["seconds"]) < 3
    assert found[asleep["key"]]["why"].endswith("ended by SIGTERM")
    assert found[partial["key"]]["out"] == "so far\n"
    assert found[deaf["key"]]["why"].endswith("ignored SIGTERM, killed with SIGKILL")
    assert found[stopped["key"]]["why"].endswith("it was stopped (state T), killed with SIGKILL")
    assert found[fine["key"]]["out"] == "fine\n"
    assert gone(marker, 0)


def test_a_flood_is_cut_and_costs_no_memory() -> None:
    out, err = shell("exec yes flood-out"), shell("exec yes flood-err >&2")
    memory = probe_entry("file", "/proc/self/status")
    watch = Stopwatch()
    found = records(out, err, memory, shell("echo fine"), parallel=1)
    assert watch.seconds < 3
    for probe, stream in ((out, "out"), (err, "err")):
        answer = found[probe["key"]]
        assert (answer["status"], answer["bytes"], len(answer[stream])) == ("cut", 1_000_000, 1_000_000)
        assert "the first 1000000 were saved" in answer["why"]
    peak_kb = next(int(line.split()[1]) for line in found[memory["key"]]["out"].splitlines() if "VmHWM" in line)
    assert peak_kb < 100_000
    assert found["cmd:echo fine"]["status"] == "ok"


def test_output_of_exactly_the_cap_is_not_cut() -> None:
    answer = record(shell("printf 12345678"), output_cap=8)
    assert (answer["status"], answer["out"]) == ("ok", "12345678")
    answer = record(shell("printf 123456789"), output_cap=8)
    assert (answer["status"], answer["out"], answer["bytes"]) == ("cut", "12345678", 8)


def test_descendants_do_not_hold_up_or_survive_a_command(marker: str) -> None:
    holding = shell(f"echo done; sleep {marker} &")
    silent = shell(f"sleep {marker} >/dev/null 2>&1 & echo done")
    fled = shell(f"setsid sleep {marker} & sleep 0.1; echo done")
    fled_silent = shell(f"setsid sh -c 'trap \"\" TERM HUP; sleep {marker}; :' >/dev/null 2>&1 & sleep 0.1; echo done")
    watch = Stopwatch()
    found = records(holding, silent, fled, fled_silent)
    for probe in (holding, silent, fled, fled_silent):
        answer = found[probe["key"]]
        assert (answer["status"], answer["rc"], answer["out"]) == ("ok", 0, "done\n")
        assert watch.own(answer["seconds"]) < 2
    assert found[holding["key"]]["why"].endswith("held the output open after the command's end and was ended")
    assert found[fled["key"]]["why"].endswith("is ended with the run")
    assert "why" not in found[silent["key"]]
    assert gone(marker, 0)


def test_the_deadline_ends_what_runs_and_names_what_never_began(marker: str) -> None:
    commands = [shell(f"sleep {marker}; : {number}") for number in range(4)]
    watch = Stopwatch()
    document = collect(*commands, probe_entry("file", "/etc/passwd"), deadline_s=1.5, parallel=2)
    assert watch.seconds < 1.5 + 1
    assert watch.own(document["collector"]["seconds"]) < 1.5 + 0.5
    found = document["records"]
    assert found.pop("file:/etc/passwd")["status"] == "ok", "files are not kept waiting by commands"
    states = [found[probe["key"]]["status"] for probe in commands]
    assert sorted(states) == ["not-run", "not-run", "timeout", "timeout"]
    for answer in found.values():
        assert answer["why"].startswith("the run's deadline of 1.5 s expired first")


@pytest.mark.parametrize("subjects", [["nvidia"], ["rdma"], ["systemd"], ["nvidia", "rdma", "systemd"]])
def test_a_tool_that_could_find_nothing_is_not_started(subjects: list[str]) -> None:
    answer = record({**shell("echo started"), "where": subjects})
    if why := hardware_presence.lacking(subjects):
        assert answer == {"status": "missing", "why": why}
    else:
        assert answer["out"] == "started\n"


def test_what_is_lacking_is_named_only_where_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hardware_presence.SIGNS, "rdma", (lambda: False, "no RDMA device"))
    for there in (False, True):
        monkeypatch.setitem(hardware_presence.SIGNS, "nvidia", (functools.partial(bool, there), "no GPU"))
        expected = "" if there else "nothing to collect: there is no GPU and no RDMA device"
        assert hardware_presence.lacking(["nvidia", "rdma"]) == expected
    assert hardware_presence.lacking([]) == ""
    known: dict[str, bool] = {}
    assert hardware_presence.lacking(["rdma"], known) == hardware_presence.lacking(["rdma"], known) != ""
    assert known == {"rdma": False}, "what is there is looked for once"


@settings(deadline=None)
@given(st.text("ab*", max_size=7).filter(lambda text: "*" in text), st.text("ab", max_size=7))
def test_a_star_stands_for_any_part_of_a_name(wanted: str, entry: str) -> None:
    assert paths._fits(entry, wanted) == fnmatch.fnmatchcase(entry, wanted)


def test_the_deadline_holds_for_those_who_ignore_it(marker: str) -> None:
    deaf = [shell(f"trap '' TERM; while :; do sleep {marker}; done; : {n}") for n in range(8)]
    fled = [shell(f"setsid sleep {marker}; : {n}") for n in range(4)]
    watch = Stopwatch()
    document = collect(*deaf, *fled, deadline_s=1.5, parallel=12)
    assert {answer["status"] for answer in document["records"].values()} == {"timeout"}
    assert watch.own(document["collector"]["seconds"]) < 1.5 + 0.5
    assert gone(marker, 0)


# What cannot be killed

FUSE = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
where = sys.argv[1].encode()
fd = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
if libc.mount(b"stuck", where, b"fuse", 6, options):
    sys.exit(os.strerror(ctypes.get_errno()))
def attr(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100755, 4096)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
if os.fork() == 0:
    while True:
        request = os.read(fd, 1 << 17)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        error, body = 0, b""
        if opcode == 26:
            body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, 0)
        elif opcode == 1:
            body = struct.pack("<4QII", 2, 1, 3600, 3600, 0, 0) + attr(2)
        elif opcode == 3:
            body = struct.pack("<QII", 3600, 0, 0) + attr(node)
        elif opcode in (14, 27):
            body = struct.pack("<QII", 1, 1, 0)
        elif opcode in (2, 36, 42, 15, 28):
            continue
        elif opcode not in (18, 25, 29):
            error = -38
        os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
print("mounted", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Path]:
    """A file system that never answers a read: its readers are in state D and cannot be killed."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and /dev/fuse to make a file system that hangs")
    folder = tmp_path / "stuck"
    folder.mkdir()
    argv = [sys.executable, "-c", FUSE, str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as server:
        assert server.stdin
        assert server.stdout
        if server.stdout.readline() != b"mounted\n":
            pytest.skip("this machine mounts no FUSE file system")
        try:
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            assert ctypes.CDLL(None).umount2(str(folder).encode(), MNT_FORCE | MNT_DETACH) == 0


def test_what_the_kernel_holds_is_abandoned_with_its_stack(stuck: Path) -> None:
    reads, file = command("cat", f"{stuck}/file", timeout_s=1), probe_entry("file", f"{stuck}/file", 1)
    lists = probe_entry("dir", str(stuck), 1)
    executes = command(f"{stuck}/tool", timeout_s=1)
    fine = [shell(f"echo {n}") for n in range(4)]
    watch = Stopwatch()
    document = collect(
        reads, file, lists, executes, *fine, probe_entry("file", "/etc/passwd"), deadline_s=6, parallel=4
    )
    found = document["records"]
    for probe in (reads, file, lists, executes):
        answer = found[probe["key"]]
        assert answer["status"] == "abandoned", answer
        assert answer["kernel"]["state"] in ("D", "S")
        where = answer["kernel"].get("stack", answer["kernel"].get("wchan", "fuse"))
        assert "fuse" in where or "d_alloc_parallel" in where, "in FUSE, or behind another who looks the name up there"
    assert found[reads["key"]]["kernel"]["state"] == "D"
    assert "it was not ended by SIGKILL" not in found[reads["key"]]["why"]
    assert "was not ended by SIGKILL and still runs as process" in found[reads["key"]]["why"]
    assert found[file["key"]]["why"].startswith("the kernel has not answered for ")
    for probe in (*fine, probe_entry("file", "/etc/passwd")):
        assert found[probe["key"]]["status"] == "ok"
    assert "still run" in document["collector"]["notes"][0]
    assert watch.own(document["collector"]["seconds"]) < 4


def test_what_this_user_may_not_kill_is_abandoned(ordinary: str, shared: Path, marker: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to make a set-user-ID program")
    rootly = shared / "rootly"
    shutil.copy(str(shutil.which("setpriv")), rootly)
    rootly.chmod(0o4755)
    probe = command(str(rootly), "--reuid", "0", "--regid", "0", "--clear-groups", "sleep", marker, timeout_s=1)
    try:
        answer = record(probe, python=ordinary)
        assert answer["status"] == "abandoned", answer
        assert "cannot be killed by this user and still runs as process" in answer["why"]
        assert answer["kernel"]["state"] == "S"
    finally:
        for pid in running(marker):
            os.kill(pid, signal.SIGKILL)
    assert gone(marker)


# Nothing outlives its caller


@pytest.mark.parametrize("victim", ["caller", "collector"])
def test_probes_die_with_the_caller_or_the_collector(victim: str, marker: str) -> None:
    plan = make_plan([shell(f"trap '' TERM HUP; sleep {marker}; sleep {marker}", 60)], 60)
    plan["probes"] += [shell(f"setsid sleep {marker}", 60), probe_entry("file", f"/{marker}")]
    source = "import json, sys; from preflight.transport.local import node as local; "
    source += "print(local.collect(json.loads(sys.argv[1])))"
    argv = [sys.executable, "-c", source, json.dumps(plan)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as caller:
        until = time.monotonic() + 60
        while len(running(marker)) < 5:  # the caller, the two shells, the two sleeps
            assert time.monotonic() < until
            time.sleep(0.01)
        if victim == "caller":
            caller.kill()
        else:
            children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text(encoding="ascii")
            os.kill(int(children), signal.SIGTERM)
        output = caller.communicate(timeout=60)[0]
    assert gone(marker)
    assert victim == "caller" or b"exit status 3" in output


# Files, directories, file systems


def test_kinds_of_files_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"caf\xc3\xa9 \xff\n")
    (tmp_path / "empty").touch()
    (tmp_path / "long").write_bytes(b"x" * 101)
    (tmp_path / "full").write_bytes(b"x" * 100)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        names = ("text", "empty", "long", "full", "loop", "fifo", "socket", "absent", "text/below", "")
        wanted = [probe_entry("file", f"{tmp_path}/{name}") for name in names]
        found = records(
            *wanted, probe_entry("file", "/dev/zero"), probe_entry("file", "~/.no-such-file"), output_cap=100
        )

    def of(name: str) -> Any:
        return found[f"file:{tmp_path}/{name}"]

    assert of("text") == {"status": "ok", "out": "café \\xff\n"}
    assert of("empty") == {"status": "ok"}
    assert of("full") == {"status": "ok", "out": "x" * 100}
    assert of("long").items() >= {"status": "cut", "out": "x" * 100, "bytes": 100}.items()
    assert of("loop")["status"] == "error"
    assert of("fifo") == {"status": "error", "why": "is a fifo, not a regular file"}
    assert of("socket")["why"] == "is a socket, not a regular file"
    assert of("")["why"] == "is a dir, not a regular file"
    assert found["file:/dev/zero"]["why"] == "is a char, not a regular file"
    assert of("absent")["status"] == of("text/below")["status"] == "missing"
    assert found["file:~/.no-such-file"]["status"] == "missing"


def test_patterns_are_expanded_on_the_node(tmp_path: Path) -> None:
    for path in ("mlx5_0/ports/1/state", "mlx5_0/ports/1/rate", "mlx5_1/ports/1/state", "mlx5_1/fw"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path, encoding="utf-8")
    (tmp_path / "stray").touch()
    (tmp_path / ".hidden").mkdir()
    ports, both = f"{tmp_path}/*/ports/*/{{state,rate}}", f"{tmp_path}/mlx5_1/{{fw,none}}"
    all_of, nowhere, nothing = f"{tmp_path}/mlx5_*/fw", "/no/such/*/{a,b}", f"{tmp_path}/no*"
    wanted = [probe_entry("file", target) for target in (ports, both, all_of, nowhere, nothing)]
    found = records(*wanted, probe_entry("dir", f"{tmp_path}/*/ports"))
    status = {key[len(f"file:{tmp_path}/") :]: answer["status"] for key, answer in found.items() if "{" not in key}
    assert status["mlx5_0/ports/1/rate"] == status["mlx5_0/ports/1/state"] == "ok"
    assert found[f"file:{tmp_path}/mlx5_1/ports/1/rate"]["status"] == "missing"
    assert found[f"file:{ports}"] == {"status": "ok", "value": {"matches": 4}}
    assert found[f"file:{tmp_path}/mlx5_1/fw"]["out"] == "mlx5_1/fw"
    assert found[f"file:{tmp_path}/mlx5_1/none"]["status"] == found[f"file:{tmp_path}/mlx5_0/fw"]["status"] == "missing"
    assert found[f"file:{nowhere}"]["status"] == "missing"
    assert found[f"file:{nothing}"] == {"status": "ok", "value": {"matches": 0}}
    assert found[f"dir:{tmp_path}/mlx5_0/ports"]["entries"].keys() == {"1"}
    assert not any("stray" in key or "hidden" in key for key in found)


def test_directories_show_their_entries(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o640)
    (tmp_path / "dir").mkdir(0o750)
    (tmp_path / "link").symlink_to("../to/somewhere")
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / os.fsdecode(b"od\xff")).touch()
    found = records(
        *[probe_entry("dir", path) for path in (f"{tmp_path}", f"{tmp_path}/none", f"{tmp_path}/file", "/dev")]
    )
    entries = found[f"dir:{tmp_path}"]["entries"]
    assert entries["file"] == {"type": "file", "mode": "0640", "uid": os.getuid(), "gid": os.getgid(), "access": "rw"}
    assert (entries["dir"]["type"], entries["fifo"]["type"]) == ("dir", "fifo")
    assert (entries["link"]["type"], entries["link"]["target"]) == ("link", "../to/somewhere")
    assert "od\\xff" in entries
    assert found[f"dir:{tmp_path}/none"]["status"] == found[f"dir:{tmp_path}/file"]["status"] == "missing"
    assert found["dir:/dev"]["entries"]["null"]["type"] == "char"


def test_an_ordinary_user_is_refused(ordinary: str, shared: Path) -> None:
    (shared / "secret").write_text("x", encoding="utf-8")
    (shared / "secret").chmod(0)
    (shared / "closed").mkdir(0)
    wanted = [
        probe_entry("file", f"{shared}/secret"),
        probe_entry("dir", f"{shared}/closed"),
        probe_entry("file", f"{shared}/closed/*/a"),
    ]
    document = collect(*wanted, probe_entry("dir", str(shared)), python=ordinary)
    found = document["records"]
    assert [found[probe["key"]]["status"] for probe in wanted] == ["denied"] * 3
    entries = found[f"dir:{shared}"]["entries"]
    assert (entries["secret"]["access"], entries["secret"]["mode"]) == ("", "0000")
    assert document["collector"]["uid"] != 0
    (shared / "closed").chmod(0o700)


def test_free_space() -> None:
    found = records(probe_entry("statvfs", "/dev/shm"), probe_entry("statvfs", "/no/such/place"))
    value = found["statvfs:/dev/shm"]["value"]
    assert 0 <= value["free_bytes"] <= value["total_bytes"]
    assert value["type"] == "tmpfs"
    assert found["statvfs:/no/such/place"]["status"] == "missing"


# Commands for each name, and commands for root


def test_a_command_runs_for_each_match(tmp_path: Path) -> None:
    for device in ("mlx5_0/net/eth0", "mlx5_1/net/eth1", "mlx5_2/net/eth1", "mlx5_3/net/-rf", "mlx5_3/net/a b"):
        (tmp_path / device).mkdir(parents=True)
    found = records(
        {**command("echo", "-i", "{}", each=[f"{tmp_path}/*/net/*"]), "key": "cmd:echo -i {}"},
        {**command("echo", "{}", each=["/no/such/*"]), "key": "cmd:none {}"},
    )
    assert {key: answer["out"] for key, answer in found.items() if answer["status"] == "ok"} == {
        "cmd:echo -i eth0": "-i eth0\n",
        "cmd:echo -i eth1": "-i eth1\n",
    }
    assert sorted(answer["status"] for answer in found.values()) == ["error", "error", "missing", "ok", "ok"]
    assert found["cmd:none {}"]["why"] == "nothing to collect: no match for /no/such/*"


def needy(*argv: str) -> dict[str, Any]:
    return command(*argv, needs="root")


def test_sudo_is_used_where_root_is_needed(ordinary: str, shared: Path) -> None:
    program(
        shared / "bin" / "sudo", 'printf "%s " "$@" >>' + str(shared / "calls") + '; shift 2; echo as root; exec "$@"'
    )
    (shared / "calls").touch()
    (shared / "calls").chmod(0o666)
    found = records(needy("echo", "a"), needy("echo", "b"), command("echo", "c"), python=ordinary, sudo=True)
    assert [found[f"cmd:echo {letter}"]["out"] for letter in "abc"] == ["as root\na\n", "as root\nb\n", "c\n"]
    calls = (shared / "calls").read_text(encoding="utf-8")
    assert sorted(calls.split("-n -- ")) == ["", *(f"{shutil.which('echo')} {letter} " for letter in "ab")]


def test_sudo_runs_once_when_it_refuses(ordinary: str, shared: Path) -> None:
    calls = shared / "calls"
    calls.touch()
    calls.chmod(0o666)
    program(
        shared / "bin" / "sudo", f"echo called >>{calls}; sleep 0.1; echo 'sudo: a password is required' >&2; exit 1"
    )
    commands = [needy("sh", "-c", f"exit {number}") for number in range(1, 7)]
    document = collect(*commands, needy("echo", "works"), command("echo", "free"), python=ordinary, sudo=True)
    found = document["records"]
    assert [found[probe["key"]]["rc"] for probe in commands] == [1, 2, 3, 4, 5, 6], "tried as an ordinary user"
    assert {found[probe["key"]]["why"] for probe in commands} == {
        "needs root, but sudo denies it: sudo: a password is required"
    }
    assert "why" not in found["cmd:echo works"]
    assert document["collector"]["notes"] == ["needs root, but sudo denies it: sudo: a password is required"]
    assert found["cmd:echo free"]["status"] == "ok"
    assert calls.read_text(encoding="utf-8") == "called\n"


def test_without_sudo_it_is_tried_and_noted(ordinary: str) -> None:
    found = records(needy("sh", "-c", "exit 1"), needy("echo", "works"), python=ordinary)
    assert found["cmd:sh -c 'exit 1'"].items() >= {
        "status": "ok", "rc": 1, "why": "run as an ordinary user; needs root (--sudo)"
    }.items()  # fmt: skip
    assert "why" not in found["cmd:echo works"]


def test_the_real_sudo_refuses_or_is_not_there(ordinary: str) -> None:
    document = collect(needy("echo", "a"), needy("echo", "b"), python=ordinary, sudo=True)
    assert {record["out"] for record in document["records"].values()} == {"a\n", "b\n"}, "as without --sudo"
    expected = "sudo: a password is required" if shutil.which("sudo") else "there is no sudo"
    assert [expected in note for note in document["collector"]["notes"]] == [True]


def test_the_real_sudo_grants_what_the_sudoers_line_lists(ordinary: str, shared: Path) -> None:
    """The line that `preflight probes` prints, in a mount namespace with its own /etc/sudoers."""
    if not shutil.which("sudo") or os.geteuid() != 0:
        pytest.skip("needs sudo, and root for a private /etc/sudoers")
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no mount namespace here")
    rules = shared / "sudoers"
    rules.write_text(f"Cmnd_Alias PREFLIGHT = {shutil.which('id')} -u\nnobody ALL=(root) NOPASSWD: PREFLIGHT\n")
    rules.chmod(0o440)
    inner = f'mount --bind {rules} /etc/sudoers && exec {ordinary} "$@"'
    python = program(shared / "granted", f'exec unshare --mount sh -c {shlex.quote(inner)} sh "$@"')
    found = records(needy("id", "-u"), command("id", "-ru"), python=python, sudo=True)
    assert found["cmd:id -u"]["out"] == "0\n"
    assert found["cmd:id -ru"]["out"] == f"{UNPRIVILEGED}\n"


# Libraries


def test_psutil_where_it_is_installed() -> None:
    pytest.importorskip("psutil")
    found = records(
        probe_entry("psutil", "virtual_memory"), probe_entry("psutil", "net_if_addrs"), probe_entry("psutil", "users")
    )
    assert found["psutil:virtual_memory"]["value"]["total"] > found["psutil:virtual_memory"]["value"]["available"]
    loopback = found["psutil:net_if_addrs"]["value"]["lo"]
    assert {"family": "inet", "address": "127.0.0.1", "netmask": "255.0.0.0"} in loopback
    assert found["psutil:users"]["status"] == "error"


def test_psutil_where_it_is_not(ordinary: str, shared: Path) -> None:
    bare = getattr(sys, "_base_executable", sys.executable)
    if subprocess.run([bare, "-I", "-c", "import psutil"], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("every interpreter here has psutil")
    answer = record(probe_entry("psutil", "virtual_memory"), python=bare)
    assert answer.items() >= {"status": "missing", "why": "psutil is not installed on this node"}.items()


def test_no_nvidia_device_no_nvml() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    assert record(probe_entry("nvml", "gpus")) == {"status": "missing", "why": "no NVIDIA driver is loaded"}


NVML = r"""
#include <string.h>
#include <unistd.h>
#define OK 0
#define LOST 15
typedef void *dev;
int nvmlInitWithFlags(unsigned f) { return INIT; }
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int e) { return e == LOST ? "GPU is lost" : "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "570.1", n); return OK; }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 12080; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12080; return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev *d) {
    if (i == 1) return LOST;
    if (i == HANG) for (;;) pause();
    *d = (dev)(long)(i + 1); return OK;
}
int nvmlDeviceGetName(dev d, char *s, unsigned n) { strncpy(s, "NVIDIA H100 80GB HBM3", n); return OK; }
int nvmlDeviceGetUUID(dev d, char *s, unsigned n) { return d == (dev)1 ? LOST : (strncpy(s, "GPU-1", n), OK); }
int nvmlDeviceGetMemoryInfo(dev d, unsigned long long *m) { m[0] = 85899345920ULL; return OK; }
struct pci { char old[16]; unsigned domain, bus, device, id, sub; char busid[32]; };
int nvmlDeviceGetPciInfo_v3(dev d, struct pci *p) {
    memset(p, 0, sizeof *p); p->id = 0x233010de; strcpy(p->busid, "00000000:18:00.0"); return OK;
}
"""


@pytest.mark.parametrize(("init", "hang"), [(0, 99), (0, 2), (9, 99)])
def test_nvml_reports_each_gpu_on_its_own(
    init: int, hang: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from preflight.collector import libraries
    from preflight.collector.records import Deadline

    pytest.importorskip("pynvml")
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler for a stand-in of NVML")
    (tmp_path / "nvml.c").write_text(NVML, encoding="utf-8")
    build = [compiler, "-shared", "-fPIC", "-w", f"-DINIT={init}", f"-DHANG={hang}"]
    build += ["-o", str(tmp_path / "libnvidia-ml.so.1"), str(tmp_path / "nvml.c")]
    subprocess.run(build, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    limit_s = 2.0 if hang == 2 else 20.0
    answer = libraries.call_library("nvml", ["gpus"], limit_s, Deadline(30), 100_000)["gpus"]
    if init:
        assert (answer["status"], answer["why"]) == ("error", "NVML: Driver Not Loaded")
        return
    value = answer["value"]
    assert (value["driver"], value["cuda"], value["count"]) == ("570.1", "12.8", 4)
    first, lost = value["gpus"][:2]
    assert first == {
        "index": 0, "errors": {"uuid": "GPU is Lost"}, "bus_id": "00000000:18:00.0", "pci_device_id": "0x233010DE",
        "name": "NVIDIA H100 80GB HBM3", "memory_total_bytes": 85899345920,
    } or first["errors"]  # fmt: skip
    assert lost["index"] == 1
    assert "ost" in lost["errors"]["handle"]
    if hang == 2:
        assert answer["status"] == "timeout"
        assert answer["why"].startswith("no end after 2 s")
        assert answer["why"].endswith("no answer for GPU 2")
        assert [gpu["index"] for gpu in value["gpus"]] == [0, 1, 2]
    else:
        assert answer["status"] == "ok"
        assert value["gpus"][3]["uuid"] == "GPU-1"


# Secrets, environment, and the document itself

TOKENS = ("tok-planted-1", "xY3" * 14, "AKIAABCDEFGHIJKLMNOP", "planted-password-2", "planted-4")


def test_planted_secrets_never_leave_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_FOO_TOKEN", TOKENS[0])
    monkeypatch.setenv("NCCL_DEBUG_FILE", TOKENS[1])
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("HOME_MADE", "not allowed out")
    (tmp_path / "conf").write_text(f"id {TOKENS[2]}\npassword: {TOKENS[3]}\nmtu: 9000\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(TOKENS[1])
    wanted = [
        shell(f"echo >&2 --api-key {TOKENS[4]}; env"),
        probe_entry("env", "process"),
        probe_entry("file", f"{tmp_path}/conf"),
    ]
    wanted += [probe_entry("dir", str(tmp_path)), probe_entry("file", "/proc/self/environ")]
    wanted[0]["key"] = "cmd:speak"
    document = collect(*wanted)
    raw = json.dumps(document)
    assert not [token for token in TOKENS if token in raw]
    found = document["records"]
    variables = found["env:process"]["value"]
    assert variables["NCCL_FOO_TOKEN"] == variables["NCCL_DEBUG_FILE"] == "[redacted]"
    assert variables["NCCL_DEBUG"] == "INFO"
    assert "HOME_MADE" not in variables
    assert found[f"file:{tmp_path}/conf"]["out"] == "id [redacted]\npassword: [redacted]\nmtu: 9000\n"
    assert found[f"dir:{tmp_path}"]["entries"]["link"]["target"] == "[redacted]"


def test_the_complete_probe_table_gives_a_valid_document() -> None:
    plan = plan_of(PROBES, node="gpu001", deadline_s=20)
    jsonschema.validate(plan, PLAN)
    document = node.collect(plan)
    jsonschema.validate(document, EVIDENCE)
    assert document["node"] == "gpu001"
    assert document["collector"]["deadline_s"] == 20
    assert document["collector"]["where"] in ("host", "vm", "container")
    assert set(document["records"]) >= {probe.key for probe in PROBES if not probe.each}


def test_a_node_without_a_name_gives_its_own() -> None:
    document = collect()
    assert document["node"] == os.uname().nodename
    assert document["records"] == {}


def test_an_unknown_kind_costs_only_its_own_answer() -> None:
    plan = make_plan([shell("echo hi")])
    plan["probes"].append({"key": "dream:x", "kind": "dream", "target": "x", "timeout_s": 1})
    plan["probes"].append({"key": "cmd:x", "kind": "cmd", "target": "x", "timeout_s": 1})
    found = node.collect(plan)["records"]
    assert found["dream:x"]["status"] == found["cmd:x"]["status"] == "error"
    assert found["cmd:echo hi"]["status"] == "ok"

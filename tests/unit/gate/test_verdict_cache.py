"""Cached verdicts: who may write where root reads, and which verdicts are still valid."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.gate import policy, verdict_cache
from preflight.gate.state_dir import StateDir, StateDirError, locate
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.version import VERSION

OTHER_USER = 65534
CLUSTER = "cluster.toml"
RULES = {"strict": False, "cached": True, "actions": {"fail": "record"}}
HOOKS = {"slurm-prolog": RULES}


@pytest.fixture
def store(tmp_path: Path) -> StateDir:
    (tmp_path / CLUSTER).write_text("[class.a]\ngpus = 0\n")
    return StateDir(str(tmp_path / "state"), create=True)


def put(
    store: StateDir, *, ago_s: int = 0, boot_id: str | None = None, name: str = "n1", refresh_s: float = 60
) -> Path:
    """Write a verdict on n1 for the cluster file next to the state directory; return its file."""
    boot = verdict_cache.boot_id() if boot_id is None else boot_id
    found = Verdict(name, "pass", int(time.time()) - ago_s, boot_id=boot, policy="5e" * 16, off=("xid.gpu",))
    cluster = cluster_of(store)
    inputs = [(cluster, verdict_cache.stamp(cluster)), ("/no/such file%", None)]
    verdict_cache.put(store, found, refresh_s, HOOKS, inputs, "an error\nof ü")
    return Path(store.path) / verdict_cache.FILE


def cluster_of(store: StateDir) -> str:
    return str(Path(store.path).parent / CLUSTER)


def look(store: StateDir) -> verdict_cache.Cached:
    return verdict_cache.look(store, "n1", cluster_of(store))


def test_a_fresh_verdict_is_believed(store: StateDir) -> None:
    put(store, ago_s=30)
    found = look(store)
    assert found.verdict == Verdict("n1", "pass", found.verdict.at, boot_id=verdict_cache.boot_id(), policy="5e" * 16,
                                    off=("xid.gpu",))  # fmt: skip
    assert 30 <= found.age_s < 40
    assert (found.refresh_s, found.due, found.error) == (60.0, False, "an error\nof ü")
    assert found.hooks == HOOKS
    assert found.rule("slurm-prolog") == policy.PolicyRule(0, "allow")
    put(store, ago_s=61)
    assert look(store).due


@pytest.mark.parametrize(("arguments", "why"), [
    ({"ago_s": 125}, "old, but valid for only 120"),
    ({"ago_s": -30}, "in the future"),
    ({"boot_id": "0b53c8a2-0000-4000-8000-000000000000"}, "from another boot"),
    ({"boot_id": ""}, "from another boot"),
    ({"name": "n2"}, "for node n2"),
])  # fmt: skip
def test_age_boot_and_node(store: StateDir, arguments: dict[str, object], why: str) -> None:
    """L53."""
    put(store, **arguments)  # type: ignore[arg-type]
    with pytest.raises(UnusableVerdict, match=why):
        look(store)


def test_what_it_was_judged_by_must_not_have_changed(store: StateDir) -> None:
    put(store)
    with pytest.raises(UnusableVerdict, match="another cluster file"):
        verdict_cache.look(store, "n1", None)
    Path(cluster_of(store)).write_text("[class.a]\ngpus = 8\n")
    with pytest.raises(UnusableVerdict, match=f"{CLUSTER} has changed"):
        look(store)
    os.unlink(cluster_of(store))
    with pytest.raises(UnusableVerdict, match=f"{CLUSTER} has changed"):
        look(store)


def test_another_version_judges_anew(store: StateDir) -> None:
    path = put(store)
    path.write_text(path.read_text().replace(f"version {VERSION}\n", "version 0.0.1\n"))
    with pytest.raises(UnusableVerdict, match="another version"):
        look(store)


def test_only_a_complete_verdict_is_accepted(store: StateDir) -> None:
    """L07: 0 bytes, half a document, cut at any byte; a line too many, one too few, odd words."""
    path = put(store)
    valid = path.read_bytes()
    lines = valid.splitlines(keepends=True)
    damaged = [valid[:length] for length in range(len(valid))]
    damaged += [b"".join(lines[:n] + lines[n + 1 :]) for n in range(len(lines))]
    damaged += [b"".join([*lines[:n], b"odd x\n", *lines[n:]]) for n in range(1, len(lines))]
    damaged += [b"".join([*lines[:n], lines[n], *lines[n:]]) for n in range(len(lines))]
    damaged += [valid.replace(b"refresh_s 60", b"refresh_s nan"), valid.replace(b"status pass", b"status fine"),
                valid.replace(b"strict=0", b"strict=2"), valid.replace(b"fail=record", b"unknown=drain"),
                valid.replace(b"fail=record", b"pass=drain"), valid + b"\n", b"\xff" + valid]  # fmt: skip
    for raw in damaged:
        with pytest.raises(UnusableVerdict):
            verdict_cache.decode(raw)
    for raw in (b"", valid[:200]):
        path.write_bytes(raw)
        with pytest.raises(UnusableVerdict, match="empty, or incomplete"):
            look(store)


# --- the state directory -----------------------------------------------------------------------------


def test_it_is_made_for_its_owner_only(tmp_path: Path) -> None:
    StateDir(str(tmp_path / "deep" / "state"), create=True).write("x", b"1")
    for path in (tmp_path / "deep", tmp_path / "deep" / "state"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep" / "state" / "x").stat().st_mode) == 0o600
    with pytest.raises(StateDirError, match="does not exist yet"):
        StateDir(str(tmp_path / "absent"))


def symlink(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize(("spoil", "why"), [
    (lambda folder: folder.chmod(0o770), "is writable by others"),
    (lambda folder: os.chown(folder, OTHER_USER, OTHER_USER), f"belongs to user {OTHER_USER}"),
    (symlink, "Not a directory|Too many levels"),
    (lambda folder: folder.parent.chmod(0o777), "writable by others"),
    (lambda folder: os.chown(folder.parent, OTHER_USER, OTHER_USER), f"belongs to user {OTHER_USER}"),
])  # fmt: skip
def test_a_directory_that_others_can_steer_is_refused(spoil: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    folder = tmp_path / "parent" / "state"
    StateDir(str(folder), create=True)
    try:
        spoil(folder)
    except PermissionError:
        pytest.skip("root is needed to give a directory away")
    with pytest.raises(StateDirError, match=why):
        StateDir(str(folder), create=True)


@pytest.mark.parametrize(("spoil", "why"), [
    (lambda path: (path.rename(path.with_name("other")), path.symlink_to("other")), "Too many levels"),
    (lambda path: os.link(path, path.with_name("other")), "another name elsewhere"),
    (lambda path: path.chmod(0o622), "is writable by others"),
    (lambda path: os.chown(path, OTHER_USER, OTHER_USER), f"belongs to user {OTHER_USER}"),
    (lambda path: subprocess.run(["sh", "-c", f"rm {path} && mkfifo {path}"], check=True), "is not a regular file"),
    (lambda path: (path.unlink(), path.mkdir()), "is not a regular file|Is a directory"),
    (lambda path: path.write_bytes(b"x" * (1 << 21)), "is longer than"),
])  # fmt: skip
def test_a_file_that_others_can_steer_is_no_verdict(spoil: Callable[[Path], object], why: str, store: StateDir) -> None:
    try:
        spoil(put(store))
    except PermissionError:
        pytest.skip("root is needed to give a file away")
    with pytest.raises(UnusableVerdict, match=why):
        look(store)


def test_writing_follows_no_link_and_replaces_atomically(store: StateDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = put(store)
    path.unlink()
    path.symlink_to(victim)
    (Path(store.path) / f".{verdict_cache.FILE}.{os.getpid()}").symlink_to(victim)  # left behind by our own process
    put(store)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert look(store).verdict.status == "pass"
    assert sorted(found.name for found in Path(store.path).iterdir()) == [verdict_cache.FILE, verdict_cache.DOCUMENT]


def test_a_second_refresh_does_not_get_the_lock(store: StateDir) -> None:
    mine = store.lock("refresh.lock")
    assert mine is not None
    code = f"from preflight.gate.state_dir import StateDir; print(StateDir({store.path!r}).lock('refresh.lock'))"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, timeout=30).stdout == "None\n"
    os.close(mine)
    assert subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip().isdigit()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert locate("/x/y") == "/x/y"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StateDirError, match="no state directory"):
        locate(None)
    monkeypatch.setenv("HOME", "/srv/x")
    assert locate(None) == "/srv/x/.local/state/preflight"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert locate(None) == "/state/preflight"
    monkeypatch.setenv("STATE_DIRECTORY", "/run/a:/run/b")
    assert locate(None) == "/run/a"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert locate(None) == "/var/lib/preflight"

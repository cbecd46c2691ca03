"""Tools that root runs, files that it overwrites, and other users' state directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.collect.options import CollectOptions, plans
from preflight.collector import tools
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.gate import outputs
from preflight.gate.result import GateResult
from preflight.gate.verdict import Verdict
from preflight.probes.probe import Probe, plan
from preflight.transport.local import node

OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make files of another user")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No test reuses the folder cache of another."""
    tools._known.clear()
    yield
    tools._known.clear()
    tools.also(())


def tool(folder: Path, name: str = "preflight-test-tool") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\necho ran\n")
    path.chmod(0o755)
    return path


SPOILT: dict[str, Callable[[Path], Any]] = {
    "of another user": lambda folder: os.chown(folder, OTHER_USER, OTHER_USER),
    "writable by others": lambda folder: folder.chmod(0o777),
    "its group may write": lambda folder: folder.chmod(0o775),
    "sticky, and others may write": lambda folder: folder.chmod(0o1777),
    "in a folder of another user": lambda folder: os.chown(folder.parent, OTHER_USER, OTHER_USER),
    "in a folder that others may write": lambda folder: folder.parent.chmod(0o777),
}


@needs_root
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("by", ["PATH", "the cluster file", "a link in PATH"])
def test_root_runs_no_tool_that_another_user_could_have_put_there(
    how: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    folder = above / "bin"
    found = tool(folder)
    SPOILT[how](folder)
    named = folder
    if by == "a link in PATH":
        named = tmp_path / "link"
        named.symlink_to(folder)
    monkeypatch.setenv("PATH", f"{named}:/usr/bin:/bin" if "PATH" in by else "/usr/bin:/bin")
    probe = Probe("cmd", found.name, "a tool of another user")
    request = plan([probe], node="x", deadline_s=10, tools=[str(named)] if by == "the cluster file" else [])
    record = node.collect(request)["records"][probe.key]
    assert record["status"] == "denied", record
    assert f"that in {named} is not run" in record["why"]
    assert str(named) not in tools.search_path().split(":")


@pytest.mark.parametrize("by", ["PATH", "the cluster file"])
def test_a_folder_that_only_root_changes_counts(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tool(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.parent}:/usr/bin" if by == "PATH" else "/usr/bin")
    probe = Probe("cmd", found.name, "a tool of the site")
    request = plan([probe], node="x", deadline_s=10, tools=[str(found.parent)] if by != "PATH" else [])
    assert node.collect(request)["records"][probe.key]["out"] == "ran\n"


@pytest.mark.parametrize("path", ["", ".", "bin", "::", "relative/bin:."])
def test_a_relative_folder_is_never_looked_into(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tool(tmp_path / "bin")
    monkeypatch.chdir(found.parent)
    monkeypatch.setenv("PATH", path)
    with pytest.raises(FileNotFoundError):
        tools.find(found.name)
    assert tools.search_path() == tools.SYSTEM_PATH


def test_folders_of_the_site_come_from_the_cluster_file() -> None:
    cluster = decode(b'[class.a]\nnodes = "n[1-2]"\ntools = ["/opt/site/bin"]\n', "cluster.toml")
    make = plans([], cluster, CollectOptions())
    assert make("n1", 10)["tools"] == ["/opt/site/bin"]
    assert "tools" not in make("n9", 10)
    for wrong in ('"bin"', '["/a:/b"]', "[]", '["/a\\n"]', "1"):
        with pytest.raises(ClusterFileError, match="tools"):
            decode(f"[class.a]\ntools = {wrong}\n".encode(), "cluster.toml")


def test_metrics_follow_no_link_that_was_laid_for_them(tmp_path: Path) -> None:
    """The temporary name cannot be guessed, and a link at the final name is replaced, not followed."""
    victim, target = tmp_path / "victim", tmp_path / "preflight.prom"
    victim.write_text("keep")
    target.symlink_to(victim)
    (tmp_path / f".preflight.prom.{os.getpid()}").symlink_to(victim)

    result = GateResult("ci", "n1", 0, "", Verdict("n1", "pass", 1), textfile=str(target))
    assert outputs.write(result) == []
    assert victim.read_text() == "keep"
    assert not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644

"""A Slurm job of a campaign's own: its nodes, its limits and its end; Slurm's commands are scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.campaign import own_job
from preflight.terminal import UsageError

_STATES = """\
a1|idle|batch*
a2|allocated|batch*
a3|idle*|batch*
a4|drained|batch*
a5|idle|batch*
a6|planned|batch*
b1|idle|gpu
b2|idle|gpu
a5|idle|gpu
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put scripts in place of Slurm's commands; return the file in which they record their arguments."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path, "sinfo", f"cat <<'E'\n{_STATES}E")
    script(tmp_path, "salloc", "echo salloc: Granted job allocation 4711 >&2")
    script(tmp_path, "scancel", "")
    return tmp_path / "calls"


def script(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{folder}/calls\n{body}\n')
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("most", "partition", "nodes"),
    [(8, None, "--nodelist=a[1,5]"), (8, "gpu", "--nodelist=a5,b[1-2]"), (2, None, "--nodelist=a[1,5]")],
)
def test_only_idle_nodes_of_the_partition_are_requested(
    calls: Path, most: int, partition: str | None, nodes: str
) -> None:
    with own_job.on_idle_nodes(most, 300.0, partition) as job:
        assert job == "4711"
    _, salloc, scancel = calls.read_text().splitlines()
    words = salloc.split()
    assert nodes in words
    assert {"--exclusive", "--no-shell", "--time=8"} <= set(words)
    (name,) = (word.removeprefix("--job-name=") for word in words if word.startswith("--job-name="))
    assert scancel == f"scancel --name={name}"


def test_the_job_ends_after_an_error(calls: Path) -> None:
    with pytest.raises(KeyboardInterrupt), own_job.on_idle_nodes(2, 300.0, "gpu"):
        raise KeyboardInterrupt
    assert "scancel" in calls.read_text()


@pytest.mark.parametrize(
    ("tool", "body", "message"),
    [
        ("sinfo", "echo 'a1|idle|batch*'", "1 nodes of the default partition are idle"),
        ("sinfo", "echo 'no controller' >&2; exit 1", "sinfo failed: no controller"),
        ("salloc", "echo 'salloc: error: Requested time limit is invalid' >&2; exit 1", "Requested time limit is"),
        ("salloc", "", "Slurm gives no job on 2 idle nodes"),
    ],
)
def test_no_job_is_an_error(calls: Path, tool: str, body: str, message: str) -> None:
    script(calls.parent, tool, body)
    with pytest.raises(UsageError, match=message), own_job.on_idle_nodes(8, 300.0, None):
        pass

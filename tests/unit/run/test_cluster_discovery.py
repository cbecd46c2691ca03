"""The cluster file of a command without ``--cluster``, and rejected ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.run import cluster_discovery
from preflight.run.cluster_discovery import choose_cluster
from preflight.terminal import UsageError

SOUND = "[class.h100]\ngpus = 8\n"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a working directory and a configuration folder, both without a cluster file."""
    for name in ("here", "config/preflight"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv(cluster_discovery.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def write(path: Path, text: str = SOUND) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def test_the_nearest_one_is_taken(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_cluster(None).path is None
    own = write(places / "config/preflight/cluster.toml")
    assert choose_cluster(None) == (own, "in your configuration folder")
    write(places / "here/cluster.toml")
    assert choose_cluster(None) == (Path("cluster.toml"), "in the working directory")
    named = write(places / "other.toml")
    monkeypatch.setenv(cluster_discovery.VARIABLE, str(named))
    assert choose_cluster(None) == (named, "$PREFLIGHT_CLUSTER")
    assert choose_cluster(own) == (own, "")


def test_a_copy_saved_with_evidence_comes_before_the_working_directory(places: Path) -> None:
    write(places / "here/cluster.toml")
    (places / "evidence/expected").mkdir(parents=True)
    copy = write(places / "evidence/expected/cluster.toml")
    assert choose_cluster(None, [places / "evidence"]) == (copy, "")
    assert choose_cluster(None, [places / "here"]).origin == "in the working directory"


def test_an_empty_variable_ends_the_search(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(places / "here/cluster.toml")
    monkeypatch.setenv(cluster_discovery.VARIABLE, "")
    assert choose_cluster(None).path is None


def test_a_variable_that_names_nothing_is_an_error(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster_discovery.VARIABLE, str(places / "gone.toml"))
    with pytest.raises(UsageError, match="no such file"):
        choose_cluster(None)
    os.mkfifo(places / "pipe")
    for path in ("/dev/null", str(places / "pipe"), str(places)):
        monkeypatch.setenv(cluster_discovery.VARIABLE, path)
        with pytest.raises(UsageError, match="it is not a regular file"):
            choose_cluster(None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[class.a]\nnodes = "@evil:rack1"\ngpus = 8\n', "a group of nodes"),
        ('[class.a]\nnodes = ["n1", "@evil:rack1"]\n', "a group of nodes"),
        ('[[waiver]]\ncheck = "gpu.count"\nnodes = "@x"\n', "a group of nodes"),
        ('[class.a]\ntools = ["/tmp/bin"]\n', "a folder of tools"),
    ],
)
def test_what_could_start_a_program_is_refused(
    places: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    write(places / "here/cluster.toml", text)
    assert choose_cluster(None).path is None
    warned = capsys.readouterr().err
    assert why in warned
    assert "--cluster cluster.toml" in warned
    own = write(places / "config/preflight/cluster.toml", text)  # only the user can write there
    assert choose_cluster(None).path == own


def test_what_others_may_write_is_refused(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(places / "here/cluster.toml")
    path.chmod(0o666)
    assert choose_cluster(None).path is None
    assert "it is world-writable" in capsys.readouterr().err
    path.unlink()
    path.symlink_to(write(places / "other.toml"))
    assert choose_cluster(None).path is None
    assert "not a regular file" in capsys.readouterr().err


def test_what_belongs_to_others_is_refused() -> None:
    state = os.stat_result((0o100644, 1, 1, 1, 4711, 4711, 30, 0, 0, 0))
    assert cluster_discovery.why_unsafe(state) == "it belongs to user 4711"

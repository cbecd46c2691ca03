"""The cluster file saved with evidence: it is restored unchanged, and a foreign one does no harm."""

from __future__ import annotations

from pathlib import Path

from preflight.run import saved_cluster
from tests.support.cluster_texts import GOOD


def test_files_named_in_a_cluster_file_are_saved_too(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "cluster.toml").write_text(GOOD + '[fabric]\nreference = "good/net.txt"\n')
    (site / "good").mkdir()
    (site / "good" / "net.txt").write_text("a sweep")
    saved_cluster.save(tmp_path / "run", None)
    (tmp_path / "run").mkdir()
    saved_cluster.save(tmp_path / "run", site / "cluster.toml")
    assert (tmp_path / "run" / "expected" / "good" / "net.txt").read_text() == "a sweep"
    assert saved_cluster.found([tmp_path / "run"]) == (tmp_path / "run" / "expected" / "cluster.toml", "")


def test_directories_that_were_judged_by_different_files(tmp_path: Path) -> None:
    for name, text in (("a", GOOD), ("b", GOOD.replace("400", "200"))):
        (tmp_path / f"{name}.toml").write_text(text)
        (tmp_path / name).mkdir()
        saved_cluster.save(tmp_path / name, tmp_path / f"{name}.toml")
    path, why = saved_cluster.found([tmp_path / "a", tmp_path / "b"])
    assert path is None
    assert "differ" in why
    assert saved_cluster.found([tmp_path / "a", tmp_path / "a"])[0] is not None

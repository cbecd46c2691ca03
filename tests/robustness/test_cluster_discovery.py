"""An unnamed cluster file starts no program, and no hook uses it."""

from __future__ import annotations

from pathlib import Path

from tests.robustness.test_groups import SiteFiles

HOOKS = ("slurm-prolog", "slurm-healthcheck", "slurm-step", "slurm-controller", "init-container", "ci")

#: Lets every node pass: a node that should have no GPU.
LENIENT = "[class.all]\ngpus = 0\nhcas = 0\n"

GROUP = '[class.all]\nnodes = "@evil:rack1"\ngpus = 0\nhcas = 0\n'


def test_a_group_in_the_working_directory_is_not_looked_up(tmp_path: Path) -> None:
    site = SiteFiles(tmp_path)
    (tmp_path / "cluster.toml").write_text(GROUP, encoding="utf-8")
    commands = ("check -q", "judge evidence", "checklist evidence", "diff evidence evidence", "show --from evidence")
    for ran in site.run(*(words.split() for words in commands)):
        assert "cluster.toml is ignored: it names a group of nodes" in ran.output, ran
    assert not site.left()


def test_no_hook_takes_a_file_that_is_not_named(tmp_path: Path) -> None:
    site = SiteFiles(tmp_path)
    (tmp_path / "cluster.toml").unlink()
    alone = [ran.status for ran in site.run(*_hooks("before"))]
    folder = tmp_path / ".config" / "preflight"
    folder.mkdir(parents=True)
    for path in (tmp_path / "cluster.toml", folder / "cluster.toml", tmp_path / "named.toml"):
        path.write_text(LENIENT, encoding="utf-8")
    named = {"PREFLIGHT_CLUSTER": str(tmp_path / "named.toml")}
    assert [ran.status for ran in site.run(*_hooks("after"), env=named)] == alone
    (checked,) = site.run(["check"], env=named)
    assert "judged by:" in checked.output  # a command does use it, and prints its path
    assert "($PREFLIGHT_CLUSTER)" in checked.output


def _hooks(state: str) -> list[list[str]]:
    return [["gate", hook, "--state-dir", state] for hook in HOOKS]

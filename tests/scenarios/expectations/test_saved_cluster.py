"""The cluster file saved with evidence: it is restored unchanged, and a foreign one does no harm."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.reports.keep_off import bad_nodes
from preflight.run import saved_cluster
from tests.scenarios.diff.test_diff import run as saved_run
from tests.support.cluster_texts import GOOD
from tests.support.machines import hgx_h100
from tests.support.machines.fleet import fleet
from tests.support.whole_nodes import node


def preflight(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def judged(folder: Path, *more: object) -> tuple[dict[str, Any], Result]:
    done = preflight("judge", folder, "--json", folder.parent / "report.json", *more)
    report: dict[str, Any] = json.loads((folder.parent / "report.json").read_text())
    return report, done


def without_run(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "run"}


def test_the_demo_is_judged_the_same_with_and_without_its_cluster_file(tmp_path: Path) -> None:
    from importlib.resources import files

    first = preflight("demo", "--save", tmp_path / "saved", "--json", tmp_path / "demo.json")
    again, done = judged(tmp_path / "saved")
    given, _ = judged(tmp_path / "saved", "--cluster", files("preflight.demo") / "cluster.toml")
    demo = json.loads((tmp_path / "demo.json").read_text())
    assert without_run(demo) == without_run(again) == without_run(given)
    assert first.exit_code == done.exit_code
    assert "judged by: " in " ".join(done.output[:600].split())
    (tmp_path / "saved" / "expected" / "cluster.toml").unlink()
    less, done = judged(tmp_path / "saved")
    assert "judged without a cluster file" in " ".join(done.output[:600].split())
    assert less["coverage"]["unknown"] > again["coverage"]["unknown"]


def test_documents_named_one_by_one_are_judged_by_it_too(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(GOOD)
    (tmp_path / "given").mkdir()
    for document in fleet(hgx_h100("gpu"), 3):
        (tmp_path / "given" / f"{document['node']}.json").write_text(json.dumps(document))
    preflight("judge", tmp_path / "given", "--cluster", tmp_path / "site.toml", "--save", tmp_path / "saved")
    folder = preflight("judge", tmp_path / "saved")
    files = preflight("judge", *sorted((tmp_path / "saved").glob("*.json")))
    one = preflight("judge", tmp_path / "saved" / "gpu002.json")
    for done in (folder, files, one):
        # a path longer than the screen is folded
        assert f"judgedby:{tmp_path}/saved/expected/cluster.toml" in "".join(done.output.split())
    assert files.output == folder.output
    alone = preflight("judge", tmp_path / "given" / "gpu002.json").output
    assert "judged without a cluster file" in " ".join(alone.split())


def test_a_run_without_a_cluster_file_leaves_no_older_one(tmp_path: Path) -> None:
    folder = saved_run(tmp_path / "run")
    (tmp_path / "cluster.toml").write_text(GOOD)
    judged(folder, "--cluster", tmp_path / "cluster.toml", "--save", folder)
    assert saved_cluster.found([folder])[0] is not None
    preflight("check", "--only", "host.shm", "--save", folder)
    assert saved_cluster.found([folder]) == (None, "")


@pytest.mark.parametrize(
    "named", ["/etc/shadow", "../../secret", "a/../../../secret", "link", "folder/secret", "expected/secret"]
)
@pytest.mark.parametrize("table", ['[fabric]\nreference = "{}"\n', '[class.b]\nnodes = "x"\nbaseline = "{}"\n'])
def test_a_saved_file_leads_nowhere_else(tmp_path: Path, named: str, table: str) -> None:
    folder = saved_run(tmp_path / "run")
    (tmp_path / "secret").write_text("the secret of another user")
    inside = folder / "expected"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder").symlink_to(tmp_path)
    (inside / "expected").symlink_to(tmp_path)
    (inside / "cluster.toml").write_text(GOOD + table.format(named))
    report, done = judged(folder)
    assert report["run"]["cluster_file"] is None
    assert "judged without the saved cluster file" in done.output
    assert "the secret" not in done.output + json.dumps(report)


@pytest.mark.parametrize("what", ["cluster.toml", "folder"])
def test_a_link_in_place_of_the_saved_file_is_not_followed(tmp_path: Path, what: str) -> None:
    folder = saved_run(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "cluster.toml").write_text("the secret of another user")
    if what == "folder":
        (folder / "expected").symlink_to(elsewhere)
    else:
        (folder / "expected").mkdir()
        (folder / "expected" / "cluster.toml").symlink_to(elsewhere / "cluster.toml")
    report, done = judged(folder)
    assert report["run"]["cluster_file"] is None
    assert "the secret" not in done.output
    done = preflight("judge", folder, "--cluster", _file(tmp_path), "--save", folder)
    assert (elsewhere / "cluster.toml").read_text() == "the secret of another user"


def _file(folder: Path) -> Path:
    path = folder / "good.toml"
    path.write_text(GOOD)
    return path


def test_a_saved_file_with_errors_is_a_usage_error(tmp_path: Path) -> None:
    folder = saved_run(tmp_path / "run")
    (folder / "expected").mkdir()
    (folder / "expected" / "cluster.toml").write_text("[class.a]\ngpus = 'eight'\n")
    done = preflight("judge", folder)
    assert done.exit_code == 2
    assert "expected/cluster.toml:2" in done.output


def test_a_bundle_is_judged_by_it(tmp_path: Path) -> None:
    folder = saved_run(tmp_path / "run")
    saved_cluster.save(folder, _file(tmp_path))
    with_it = preflight("bundle", folder, "--no-redact", "-o", tmp_path / "a.tar.gz")
    assert with_it.exit_code == 0, with_it.output
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        member = archive.extractfile("report.json")
        assert member is not None
        assert json.loads(member.read())["run"]["cluster_file"].endswith("cluster.toml")


def test_a_difference_without_a_right_side_excludes_no_node(tmp_path: Path) -> None:
    """Two nodes with different drivers: neither is excluded."""
    nodes = [
        from_document(one, one["node"]) for one in fleet(hgx_h100("x"), 2, 5, {"gpu002": node(driver="570.86.10")})
    ]
    save(tmp_path / "run", nodes)
    report, _ = judged(tmp_path / "run", "--only", "fleet.driver-equal")
    assert report["findings"][0]["undecided"]
    assert bad_nodes(report) == ""


def test_a_comparison_takes_the_file_of_the_second_run(tmp_path: Path) -> None:
    first, second = saved_run(tmp_path / "a"), saved_run(tmp_path / "b")
    for folder in (first, second):
        saved_cluster.save(folder, _file(tmp_path))
    done = preflight("diff", first, second, "--json")
    assert done.exit_code == 0, done.output

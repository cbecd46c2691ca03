"""The request of a run, which is validated once, and the outputs that it names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from preflight.collect.options import CollectOptions
from preflight.collect.request import Collected, Targets
from preflight.evidence.document import Evidence, from_document
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_outputs
from preflight.run.request import Outputs, from_arguments, new_request
from preflight.terminal import UsageError
from tests.support.fixture import whole_node


def evidence() -> Evidence:
    return from_document(whole_node("hgx-h100"), "hgx-h100")


def test_the_arguments_of_a_command_line_become_one_value(tmp_path: Path) -> None:
    request = from_arguments("check", None, {
        "hosts": "gpu[1-2]", "hostfile": None, "job": "7", "rerun": None, "selector": None, "via": "srun", "sudo": True,
        "only": ("gpu.*",), "skip": (), "logs": (tmp_path / "a.log",), "json_file": "-", "html_file": None,
        "resume": False, "verbose": True, "deadline_s": 30.0,
    })  # fmt: skip
    assert request.targets == Targets(hosts="gpu[1-2]", job="7")
    assert request.options == CollectOptions(via="srun", sudo=True, job="7", deadline_s=30.0)
    assert request.outputs == Outputs(json_file="-", verbose=True)
    assert {check.id.split(".")[0] for check in request.checks} == {"gpu"}
    assert "rdma.port-state" in request.off
    collection = request.collection(("gpu1", "gpu2"))
    assert (collection.nodes, collection.options, collection.cluster) == (("gpu1", "gpu2"), request.options, None)
    with pytest.raises(TypeError, match="shade"):
        from_arguments("check", None, {"shade": True})


def test_without_a_choice_all_checks_are_run_and_none_is_off() -> None:
    request = new_request("check")
    assert request.off == ()
    assert request.checks == request.registry.checks
    assert not request.cluster.classes


def test_everything_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    broken = tmp_path / "cluster.toml"
    broken.write_text("[class.a]\ngpus = eight\n")
    history = tmp_path / "history.db"
    history.write_text("not a database")
    save = Outputs(save=tmp_path / "saved")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"resume": True}, "--resume needs --save"),
        ({"outputs": Outputs(json_file=str(tmp_path))}, "is a directory"),
        ({"outputs": Outputs(html_file=tmp_path / "a" / "b")}, "no such directory"),
        ({"outputs": Outputs(json_file="-", html_file=Path("-"))}, "only one of these"),
        ({"outputs": Outputs(save=broken)}, "is a file, not a directory"),
        ({"cluster_file": broken, "outputs": save}, "gpus"),
        ({"outputs": Outputs(history_file=history)}, "history.db"),
        ({"outputs": save, "only": ("gpx.*",)}, "no check matches 'gpx.[*]'"),
        ({"outputs": save, "only": ("gpu.*",), "skip": ("gpu.*",)}, "leave no check"),
    ]
    for arguments, expected in wrong:
        with pytest.raises(UsageError, match=expected):
            new_request("check", **arguments)
    assert [path.name for path in tmp_path.rglob("*.toml")] == ["cluster.toml"]


def test_a_file_that_cannot_be_written_turns_a_pass_into_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    request = new_request("judge", outputs=Outputs(html_file=folder / "page.html", exclude_file=tmp_path / "bad"))
    collected = Collected([evidence()])
    report = judge_run(request, collected)
    statuses = {}
    for status in (0, 1, 3):
        statuses[status] = write_outputs(request, {**report, "exit_status": status}, collected)
    assert statuses == {0: 0, 1: 1, 3: 3}
    assert (folder / "page.html").exists()
    shutil.rmtree(folder)
    capsys.readouterr()
    for status in (0, 1, 3):
        statuses[status] = write_outputs(request, {**report, "exit_status": status}, collected)
    assert statuses == {0: 3, 1: 1, 3: 3}
    printed = capsys.readouterr()
    assert f"error: {folder / 'page.html'} could not be written: No such file or directory" in printed.err
    assert "coverage:" in printed.out  # the verdict is printed nevertheless
    assert (tmp_path / "bad").exists()


def test_a_document_that_was_not_saved_turns_a_pass_into_unknown() -> None:
    request = new_request("check")
    collected = Collected([evidence()], saved=False)
    report = {**judge_run(request, collected), "exit_status": 0}
    assert write_outputs(request, report, collected) == 3


def test_the_run_block_names_how_the_nodes_were_reached() -> None:
    request = new_request("check")
    assert set(judge_run(request, Collected([evidence()]))["run"]) == {
        "at", "version", "command", "seconds", "cluster_file",
    }  # fmt: skip
    hosts = {"n1": "it needs GSSAPI", "n2": "it needs GSSAPI", "n3": "it has a ProxyCommand"}
    block = judge_run(request, Collected([evidence()], via="auto", through_openssh=hosts))["run"]
    assert block["via"] == "auto"
    assert block["openssh"] == [
        {"nodes": "n3", "why": "it has a ProxyCommand"}, {"nodes": "n[1-2]", "why": "it needs GSSAPI"}
    ]  # fmt: skip

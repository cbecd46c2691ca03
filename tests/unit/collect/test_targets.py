"""Selection of nodes: all valid options, and invalid ones."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight import nodeset
from preflight.collect.targets import TargetError, resolve
from preflight.reports.keep_off import bad_nodes


def names(text: str) -> tuple[str, ...]:
    return resolve(hosts=text)


def error_of(**sources: Any) -> str:
    with pytest.raises(TargetError) as caught:
        resolve(**sources)
    return str(caught.value)


# --- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu[001-003,7],x", ("x", "gpu7", "gpu001", "gpu002", "gpu003")),
        ("gpu2,gpu1,gpu2", ("gpu1", "gpu2")),
        ("gpu[1, 2-3] , x  y", ("gpu1", "gpu2", "gpu3", "x", "y")),
        ("n[1-10]!n[2-9]", ("n1", "n10")),
        ("n[001-100] & n[005-006]", ("n005", "n006")),
        ("rack[1-2]n[1-2]", ("rack1n1", "rack1n2", "rack2n1", "rack2n2")),
        ("10.0.0.[1-2]", ("10.0.0.1", "10.0.0.2")),
        ("fe80::1%eth0", ("fe80::1%eth0",)),
        ("n[0-8/4]", ("n0", "n4", "n8")),
    ],
)
def test_nodeset(text: str, expected: tuple[str, ...]) -> None:
    assert sorted(names(text)) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "names nothing"),
        ("gpu[1-", "missing bracket"),
        ("gpu[3-1]", "range"),
        ("-oProxyCommand=reboot", "is not a host name"),
        ("a;reboot", "is not a host name"),
        ("a$(reboot)", "is not a host name"),
        ("root@gpu1", "set User in the SSH configuration"),
        ("n[1-2]!n[1-2]", "names nothing"),
        ("@no-such-group", "cluset -ll"),
    ],
)
def test_invalid_nodeset(text: str, expected: str) -> None:
    message = error_of(hosts=text)
    assert message.startswith("--hosts: ")
    assert expected in message


@pytest.mark.parametrize(
    "text", ["n[1-99999999]", "n[1-999]r[1-999]", "n[1-9" + "9" * 5000 + "]", "n[1-60000],m[1-60000]"]
)
def test_a_list_without_end_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    assert "at most 100000" in error_of(hosts=text)
    assert time.process_time() - began < 2


def test_a_list_of_many_is_taken() -> None:
    assert len(names("n[000000-099999]")) == 100_000


@given(st.lists(st.from_regex(r"[a-z]{1,4}[0-9]{0,4}(-[a-z0-9]{1,3})?", fullmatch=True), min_size=1, max_size=30))
def test_folding_loses_no_name(listed: list[str]) -> None:
    folded = nodeset.fold(listed)
    assert set(nodeset.unfold(folded)) == set(listed)
    assert len(set(listed)) <= nodeset.how_many(folded)


def test_a_folded_name_has_one_bracket() -> None:
    assert nodeset.fold(["r1n1", "r1n2", "r2n1", "r2n2"]) == "r1n[1-2],r2n[1-2]"


def test_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = tmp_path / "clustershell"
    (groups / "groups.d").mkdir(parents=True)
    (groups / "groups.conf").write_text("[Main]\ndefault: local\nautodir: $CFGDIR/groups.d\n", encoding="utf-8")
    (groups / "groups.d" / "local.yaml").write_text("local:\n  rack1: gpu[1-3]\n", encoding="utf-8")
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(groups))
    from ClusterShell import NodeSet, NodeUtils  # its default resolver was created at import

    resolver = NodeUtils.GroupResolverConfig([str(groups / "groups.conf")])
    NodeSet.set_std_group_resolver(resolver)
    try:
        assert names("@rack1,x") == ("gpu1", "gpu2", "gpu3", "x")
        assert "cluset -ll" in error_of(hosts="@rack2")
    finally:
        NodeSet.set_std_group_resolver(None)


def test_exactly_one_source() -> None:
    assert "use only one of" in error_of()
    assert "--hosts and --job given" in error_of(hosts="a", job="1")


# --- a file ----------------------------------------------------------------------------------------


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(
        "\ufeff# rack 1\n\ngpu[001-002]  # new\r\n gpu003 slots=8 max_slots=8\ngpu001\nx,y\n", encoding="utf-8"
    )
    assert resolve(hostfile=path) == ("gpu001", "gpu002", "gpu003", "x", "y")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\nc[1-\n", ":3: missing bracket"),
        (b"a\n-oX\n", ":2: '-oX' is not a host name"),
        (b"a\nn[1-99999999]\n", ":2: names 99999999 nodes"),
        (b"slots=8\n", ":1: '' names nothing"),
        (b"# nothing\n\n", " names no node"),
        (b"", " names no node"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_invalid_hostfile(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(content)
    message = error_of(hostfile=path)
    assert message.startswith(str(path))
    assert expected in message


def test_a_hostfile_of_many_lines_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("n[1-60000]\nm[1-60000]\n", encoding="utf-8")
    assert f"{path}:2: the file names more than 100000 nodes" in error_of(hostfile=path)


def test_hostfile_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in error_of(hostfile=tmp_path / "none")
    assert "cannot be read: Is a directory" in error_of(hostfile=tmp_path)


# --- a Slurm job -----------------------------------------------------------------------------------


def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> None:
    """Replace Slurm's squeue by a stand-in, and scontrol by one that unfolds one list."""
    for name, script in (("squeue", squeue), ("scontrol", "printf 'gpu001\\ngpu002\\nx\\n'")):
        tool = folder / name
        tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_USERS", "somebody else")
    slurm(tmp_path, monkeypatch, """[ -z "$SQUEUE_USERS" ] && echo '7 RUNNING gpu[001-002],x'""")
    assert resolve(job="7") == ("gpu001", "gpu002", "x")


def test_all_tasks_of_a_job_array_and_one_part_of_a_heterogeneous_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(tmp_path, monkeypatch, "printf '7_[3-9] PENDING \\n7_1 RUNNING a\\n7+1 RUNNING b\\n'")
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$3"\n')
    assert resolve(job="7") == ("a", "b")
    assert resolve(job="7+1") == ("b",)


def test_job_that_has_no_nodes_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(tmp_path, monkeypatch, "echo '7 PENDING '")
    assert "has no nodes (state PENDING)" in error_of(job="7")


def test_error_quotes_the_output_of_squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(tmp_path, monkeypatch, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    message = error_of(job="7")
    assert "`squeue -h --all --local --states=all --jobs=7 " in message
    assert "failed: slurm_load_jobs error: Invalid job id specified" in message


def test_squeue_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.collect.targets._SLURM_S", 0.3)
    slurm(tmp_path, monkeypatch, "exec sleep 60")
    assert "check that slurmctld is up" in error_of(job="7")


def test_no_squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no squeue in PATH" in error_of(job="7")


@pytest.mark.parametrize("job", ["", "x", "7;reboot", "--help", "7 8"])
def test_no_number_of_a_job(job: str) -> None:
    assert "is not a Slurm job id" in error_of(job=job)


# --- an earlier report -----------------------------------------------------------------------------


def report(**nodes: Any) -> dict[str, Any]:
    """Build the relevant parts of a report: a node's status, or None if it gave no answer."""
    silent = {"phase": "connect", "reason": "refused"}
    return {
        "schema": "preflight.report/1",
        "nodes": [
            {"name": name, "status": status or "unknown"} | ({} if status else {"no_answer": silent})
            for name, status in nodes.items()
        ],
        "findings": [
            {"status": "fail", "gating": True, "nodes": ["gpu1", "@run"]},
            {"status": "fail", "gating": False, "nodes": ["gpu5"]},
            {"status": "unknown", "gating": True, "nodes": ["gpu3"]},
        ],
    }


SICK = report(gpu1="fail", gpu2=None, gpu3="unknown", gpu4="pass", gpu5="fail", gpu6=None)


def test_rerun_takes_what_failed_or_gave_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(SICK), encoding="utf-8")
    assert resolve(rerun=path) == ("gpu1", "gpu2", "gpu5", "gpu6")
    hangs = {"status": "unknown", "nodes": ["gpu3", "@run", "gpu9"]}
    path.write_text(json.dumps({**SICK, "incidents": [hangs, {"status": "warn", "nodes": ["gpu4"]}]}), encoding="utf-8")
    assert resolve(rerun=path) == ("gpu1", "gpu2", "gpu3", "gpu5", "gpu6")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(report(gpu1="pass", gpu2="warn")), "no node to collect again"),
        ("{", "is not a report"),
        ("[" * 100_000, "is not a report"),
        ("[]", "is not a report"),
        ('{"schema": "preflight.evidence/1"}', "is not a report"),
        ('{"schema": "preflight.report/1"}', "damaged"),
        ('{"schema": "preflight.report/1", "nodes": [1]}', "damaged"),
        (json.dumps(report(**{"-oX": None})), "is not a host name"),
    ],
)
def test_invalid_report_for_rerun(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    assert expected in error_of(rerun=path)


def test_nodes_to_exclude() -> None:
    assert bad_nodes(SICK) == "gpu[1-2,6]"
    assert bad_nodes(report(gpu4="pass")) == ""

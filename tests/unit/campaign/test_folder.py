"""The folder of a campaign, and the command lines of its launches."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.bench import campaign
from preflight.bench.observation import RunEnd
from preflight.campaign import command_lines, folder, lock
from preflight.terminal import UsageError
from tests.support.in_process import run
from tests.support.pair_runs import NODES, RAILS
from tests.support.pair_runs import campaign as records


def made(tmp_path: Path) -> folder.CampaignFolder:
    record: Any = records()["bench:campaign"]
    opened = folder.create(tmp_path / "c", campaign.read_plan(record["value"]["plan"]))
    for line in record["value"]["journal"]:
        opened.record(line)
    for name, text in records().items():
        if name.startswith("log:"):
            opened.output(name.removeprefix("log:")).write_text(str(text))
    return opened


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    opened = made(tmp_path)
    again = folder.open_folder(opened.path)
    assert again.done == opened.done
    assert again.done.end == "complete"
    with pytest.raises(folder.CampaignError, match="already contains a campaign"):
        folder.create(opened.path, opened.plan)
    report = json.loads(run("judge", str(opened.path), "--json", expect=(3,)))
    assert {finding["check"] for finding in report["findings"]} == {
        "bench.pairs", "bench.factor", "bench.coverage", "bench.tail", "bench.pair-times", "bench.shared-uplinks",
        "bench.ports",
    }  # fmt: skip


def test_a_cut_last_line_is_dropped(tmp_path: Path) -> None:
    opened = made(tmp_path)
    journal = opened.path / folder.JOURNAL_FILE
    complete = journal.read_bytes()
    for length in range(len(complete.rpartition(b"\n")[0].rpartition(b"\n")[0]) + 1, len(complete)):
        journal.write_bytes(complete[:length])
        assert folder.open_folder(opened.path).done.end == ""
        assert journal.read_bytes().endswith(b"\n")


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = made(tmp_path)
    before = (opened.path / folder.JOURNAL_FILE).read_bytes()
    write = os.write

    def full(handle: int, raw: bytes) -> int:
        if len(raw) > 20:
            return write(handle, raw[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        opened.record(campaign.end_document("budget", [], "2026-11-20T12:00:00Z"))
    monkeypatch.undo()
    assert (opened.path / folder.JOURNAL_FILE).read_bytes() == before


@pytest.mark.parametrize("text", ["[]\n", "{}\n", "{\n", "\x00\n", '{"schema": "preflight.bench.end/2"}\n'])
def test_damage_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    opened = made(tmp_path)
    (opened.path / folder.JOURNAL_FILE).write_text(text)
    with pytest.raises(folder.CampaignError, match=r"journal\.jsonl:1: damaged"):
        folder.open_folder(opened.path)


def test_words_of_a_launch(tmp_path: Path) -> None:
    plan = replace(made(tmp_path).plan, gpus=2, environment={"NCCL_DEBUG": "INFO; rm -rf /"})
    ends = [RunEnd(node, (RAILS[1],)) for node in NODES[:2]]
    own = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "hidden", "SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf"}
    launch = command_lines.command(plan, ends, RAILS[:2], own)
    assert launch.argv[launch.argv.index("-H") + 1] == "gpu001:1,gpu002:1"
    assert launch.argv[-8:] == ("-g", "1", "-n", "20", "-w", "2", "-c", "1")
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "hidden" not in str(launch)
    assert "rm -rf" not in str(launch.argv)  # only its name is a word
    step = command_lines.command(replace(plan, via="srun", job="7"), ends, RAILS[:2], own, 3)
    assert {
        "--jobid=7",
        "--overlap",
        "--mpi=pmix",
        "--nodelist=gpu001,gpu002",
        "--job-name=preflight-0a1b2c3d-3",
    } <= set(step.argv)
    assert step.environment["SLURM_CONF"] == "/etc/slurm.conf"
    assert "SLURM_JOB_ID" not in step.environment


def test_the_second_campaign_of_a_host_is_refused() -> None:
    with lock.held(), pytest.raises(UsageError, match=rf"process {os.getpid()} of user .* yours"), lock.held():
        pass
    with lock.held():
        pass


def test_what_a_command_line_may_not_hold(tmp_path: Path) -> None:
    usual = ["bench", "--hosts", "gpu[001-004]", "--gpus", "8", "--print"]
    text = run(*usual, expect=(0,))
    assert text.startswith(
        "4 nodes: gpu[001-004]\n2 pairs in parallel, 8 GPUs per node, alltoall of 1,073,741,824 bytes"
    )
    assert text.count("mpirun") == 3
    for words in (["--env", "LD_PRELOAD=x.so"], ["--binary", "x;y"], ["--mpi", "a b"], ["--size", "1X"],
                  ["--budget", "0"], ["--via", "srun"], ["--ssh-config", str(tmp_path / "none")]):  # fmt: skip
        run(*usual, *words, expect=(2,))
    run("bench", "--hosts", "gpu001", "--gpus", "8", "--print", expect=(2,))
    run("bench", "--print", expect=(2,))
    run("bench", "--resume", str(tmp_path), "--print", expect=(2,))


def test_a_plan_of_another_user_is_not_resumed(tmp_path: Path) -> None:
    opened = made(tmp_path)
    (opened.path / folder.PLAN_FILE).chmod(0o666)
    run("bench", "--resume", str(opened.path), "--print", expect=(2,))

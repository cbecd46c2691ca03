"""``py-spy dump`` and faulthandler in pasted text, and NCCL's RAS and stacks of all ranks with `--log`."""

from __future__ import annotations

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.judge import judge
from preflight.parsers.training import python_stacks
from preflight.recognition import read_text
from preflight.textprep.numbered_text import NumberedText
from tests.support.fixture import cases
from tests.unit.recognition import test_nccl_ras

RECORDS = {case.path.stem: case.body["records"] for case in cases("torch.stacks")}
NATIVE = """\
Process 31: /opt/venv/bin/python -u train.py
Python v3.12.3 (/opt/venv/bin/python)

Thread 31 (active): "MainThread"
    cudaStreamSynchronize (libcudart.so.12)
    at::native::item(at::Tensor const&) (libtorch_cuda.so)
    log_loss (train.py:61)
        Arguments:
            loss: <Tensor at 0x7f00>
    <module> (train.py:90)
"""


def test_read_groups_the_processes_of_one_text() -> None:
    text = "\n".join(RECORDS["one-rank-reads-a-file"].values())
    (part,) = read_text(text, "p")
    assert (part.kind, len(part.taken.facts["processes"])) == ("python stacks", 4)
    (finding,) = part.findings
    assert (finding["check"], finding["status"]) == ("torch.stacks", "warn")
    assert "process 702 is in read (tarfile.py:690)" in finding["message"]


def test_native_frames_and_local_variables() -> None:
    (process,) = python_stacks.parse(NumberedText(NATIVE))
    assert process.main is not None
    assert [str(frame) for frame in process.main.frames] == [
        "cudaStreamSynchronize (libcudart.so.12)", "at::native::item(at::Tensor const&) (libtorch_cuda.so)",
        "log_loss (train.py:61)", "<module> (train.py:90)",
    ]  # fmt: skip


def test_read_and_a_log_give_the_same_findings() -> None:
    """``preflight read`` judges a part, ``--log`` the run: one judgement, also for two queries of RAS."""
    texts = {
        "torch.stacks": RECORDS["one-text-with-prefixes"]["log:dumps.txt"],
        "nccl.ras": 2 * test_nccl_ras.BEHIND.format(most=640, least=612),
    }
    for id, text in texts.items():
        checks = [check for check in registry().checks if check.id == id]
        report = judge([], checks, run=Evidence("@run", "", {"log:job.log": {"status": "ok", "out": text}}))
        pasted = [finding for part in read_text(text, "p") for finding in part.findings if finding["check"] == id]
        assert sorted(finding["status"] for finding in pasted) == sorted(
            finding["status"] for finding in report["findings"]
        )
        assert len(pasted) == {"torch.stacks": 1, "nccl.ras": 2}[id]


def test_read_agrees_with_each_fixture_of_one_text() -> None:
    single = {name: records for name, records in RECORDS.items() if list(records) == ["log:all.txt"]}
    assert len(single) > 5
    for case in cases("torch.stacks"):
        for text in single.get(case.path.stem, {}).values():
            pasted = [finding for part in read_text(text, "p") for finding in part.findings]
            assert [finding["status"] for finding in pasted] == [case.body["findings"][0]["status"]], case.name

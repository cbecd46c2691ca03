"""Checklist items as data: each has questions, and each question names existing checks."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from preflight.checklist.item import ELSEWHERE, ChecklistItem
from preflight.checklist.items import ITEMS
from preflight.checks import registry
from tests.support import checklist_page

CHECKS = {check.id: check for check in registry().checks}
BY_ID = {item.id: item for item in ITEMS}

items = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)

#: Rows of the audit that passed although part of the sentence was unanswered, or by a wrong verdict.
PASSED_TOO_EASILY = (
    "FP-BW-1", "FP-BW-4", "FP-LAT-4", "FP-CON-4", "FP-CON-5", "FP-OBS-2", "PA-03", "PA-05", "PA-18", "PA-19", "PA-20",
    "PA-22", "PA-23", "PA-25", "PA-N1", "GS-3", "GS-4", "NT-TRN-1", "NT-TRN-2", "NT-TRN-3", "NT-INF-7", "NT-COM-1",
    "NT-DDP-1", "NT-DDP-2", "NT-CPU-1", "NT-GDR-2", "NT-SHP-2", "NT-REC-1", "NT-ROL-1", "AN-2", "AN-4", "AN-7", "AN-8",
    "AN-9", "NT-LENS-1", "NT-LENS-6", "NT-LENS-8", "NT-LENS-9",
)  # fmt: skip

#: Items without an open question, and why.
CLOSED = {
    "FP-OBS-7": "fabric.waits and switch.queue-depth are unknown if a switch does not count",
    "AN-5": "link.errors and link.counters-agree are unknown for cables without counters of both ends",
    "AN-9": "trend.congestion needs seven runs under load and names what it compared; it is unknown before",
    "AN-8": "bench.pair-times is unknown unless each two of the nodes were measured",
    "AN-4": "link.pfc, link.dscp and switch.ecn judge both ends of each cable, and do not run without the switches",
    "FP-CON-4": "fabric.pause-root follows pauses through all switches, and is unknown where one is missing",
    "FP-CON-5": "switch.uplink-balance is unknown without the flows or the counters, switch.hash without the seeds",
    "PA-05": "layout.memory computes the need of a job passed to `preflight plan`",
    "GS-4": "scale.batch counts the GPUs that share the experts, and is unknown where the cluster file leaves them out",
    "PA-20": "gpu.sm-activity is unknown without ten readings of the GPUs' activity while the job runs",
    "PA-23": "torch.straggler matches each collective on all ranks, by group; without the traces of all it is unknown",
    "NT-LENS-1": "torch.straggler finds the ranks that peers wait for; without the traces of all it is unknown",
    "NT-LENS-6": "torch.placement compares the place of a late rank with its peers, and is unknown without its node",
    "NT-LENS-8": "counters.step-times compares the steps in the window of the counters with all others",
    "NT-LENS-9": "torch.hang compares both ends of sends and receives as well",
    "NT-ROL-1": "nccl.ib-hca reads the node's settings, nccl.hca-roles what the job's log shows in use",
    "PA-22": "torch.exposed-collectives judges each kind of collective, without idle time and late ranks",
    "NT-TRN-1": "torch.exposed-collectives judges each kind of collective, without idle time and late ranks",
    "NT-TRN-2": "torch.overlap adds up what is bare after the last backward kernel",
    "NT-GDR-2": "pair.write-bw-gpu and pair.read-bw-gpu use GPU memory; a perftest without CUDA leaves them unknown",
    "PA-N1": "nccl-tests.job-sizes compares the sizes in a trace of the job; without one, it does not run",
    "PA-18": "nccl-tests.collectives is unknown for a run over fewer GPUs than the job has",
    "FP-LAT-4": "without a good run in the cluster file it is unknown: see NOTES of the page, and its fixture",
    "FP-BW-1": "the share of each GPU is worked out, and unknown where nothing expects a figure",
    "PA-03": "driver, PyTorch's CUDA and its NCCL are held together, on the node and by the job's log; without either "
    "it stays unknown",
    "AN-2": "the servers of mounts are held against routes; a server that no record names makes it unknown",
    "NT-CPU-1": "each CPU counts alone; what no counter of CPUs can tell is in its `within`",
    "NT-REC-1": "each part of the sentence has to be known of each node, or it is unknown",
    "NT-SHP-2": "a job that SHARP was set up for has reached the manager; no probe may start one",
    "FP-BW-4": "torch.collective-times and torch.busbw time each burst; without the traces of all ranks it is unknown",
    "PA-19": "switch.queue-depth and fabric.waits are unknown if a switch does not count",
    "FP-OBS-2": "torch.collective-share prints the durations in the job; without a trace of it, it stays unknown",
    "PA-25": "torch.collective-share and torch.experts judge the job's own; without the traces of it, it stays unknown",
    "NT-COM-1": "nccl.late-communicators compares the setups' places in the log with those of the steps",
    "NT-DDP-1": "torch.data-parallel reads the job's own trace, beside what processes hold at this moment",
    "NT-DDP-2": "torch.bucket-start measures the start, number and size of the buckets, torch.overlap the tail",
    "NT-INF-7": "gpu.memory-headroom reads the GPU, serving.cache the engine; without its metrics, it stays unknown",
    "NT-TRN-3": "the sentence asks for the calls of a step; what they cost is the matter of the check",
}


@items
def test_an_item_has_questions_and_each_is_answered_or_open(item: ChecklistItem) -> None:
    assert item.questions
    assert len({question.text for question in item.questions}) == len(item.questions)
    for question in item.questions:
        assert len(question.text) > 5
        assert question.text == question.text.strip()
        assert bool(question.checks) != bool(question.missing), "checks, or what is missing"
        assert not question.missing or len(question.missing.split()) >= 3, "it has to be understood without the page"
        assert len(set(question.checks)) == len(question.checks)


@items
def test_a_question_names_checks_that_there_are(item: ChecklistItem) -> None:
    for question in item.questions:
        assert set(question.checks) <= CHECKS.keys()
        assert question.where in ("", *ELSEWHERE)
    assert ELSEWHERE.keys() <= CHECKS.keys()


@items
def test_the_checks_name_the_item_and_the_item_the_checks(item: ChecklistItem) -> None:
    """``answers`` of the checks' declarations and the questions agree: neither can be changed alone."""
    declared = {check.id for check in CHECKS.values() if item.id in check.answers}
    assert set(item.checks) == declared


@pytest.mark.parametrize("item", PASSED_TOO_EASILY)
def test_what_passed_too_easily_has_an_open_question_or_a_reason(item: str) -> None:
    assert bool(BY_ID[item].open) != (item in CLOSED)


def test_the_page_is_of_this_version() -> None:
    text = checklist_page.PAGE.read_text(encoding="utf-8")
    assert text == checklist_page.page(), "write it anew: python -m tests.support.checklist_page"


def test_the_page_has_every_item_and_every_question() -> None:
    text = checklist_page.PAGE.read_text(encoding="utf-8")
    verdicts = re.findall(r"^\| \*\*([A-Z][A-Z0-9-]+)\*\* \|.*\| \*\*(fully|partly|open)\*\*[^|]* \|$", text, re.M)
    assert [id for id, _ in verdicts] == [item.id for item in ITEMS]
    for item in ITEMS:
        for question in item.questions:
            assert checklist_page.escaped(question.text) in text
            assert all(f"`{check}`" in text for check in question.checks)


def test_the_page_quotes_recordings_that_show_it() -> None:
    for note in checklist_page.NOTES:
        assert note.holds(), f"{note.item}: {note.fixture} does not show it"


def test_the_items_are_not_imported_before_a_report_is_made() -> None:
    code = "import sys; import preflight.cli.app, preflight.checks; print('preflight.checklist.items' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"

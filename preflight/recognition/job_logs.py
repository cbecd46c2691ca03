"""Parts of a job's output: NCCL's log and nccl-tests' tables, interleaved."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.expectations import Cluster
from preflight.facts import training_run
from preflight.facts.job import RUN, RunFacts, report_subjects
from preflight.facts.streamed_log import LogFile
from preflight.judge import findings
from preflight.model import Check, Scope
from preflight.parsers.job_log import JobLog, of_reports
from preflight.parsers.nccl_log.to_json import document, vars_of
from preflight.parsers.nccl_tests.model import Report
from preflight.parsers.parsed import ParseGap
from preflight.parsers.torch import TorchOutput, hang, watchdog
from preflight.recognition.detector import ParsedPart, TextPart
from preflight.recognition.formats import nccl_tests
from preflight.recognition.formats.cluster import TRAINING, training
from preflight.recognition.formats.pytorch import RECORDER, TRACE
from preflight.recognition.formats.typed import TypedPart
from preflight.recognition.input_sources import InputSource

NCCL_LOG = "nccl-log"
NCCL_TESTS = nccl_tests.KIND

#: Prefix of the ids of the checks that compare sources.
ACROSS = "bench."

#: Kinds of output that fill a file.
_FILES = (TRACE, RECORDER)

#: Maximum number of ranks whose watchdog messages are listed.
_MAX_RANKS = 1000

_SHOWN_STATUSES = ("fail", "warn", "pass")

#: Checks whose findings are shown even if unknown: a dump of one rank with running calls does not prove a healthy job.
_UNFINISHED = "torch.hang"
_FAILURES = "nccl.failures"
#: The check whose findings belong to a training part, if the log has one.
STEPS = "torch.steps"
#: Checks whose findings are shown if they state what was found, even without a known expectation.
_MEASURED = ("nccl-tests.busbw", "nccl.hca-count", "nccl.transport")


def log_parts(source: InputSource) -> list[TextPart]:
    """Return the NCCL log and the nccl-tests runs in a source, with their findings."""
    found = [*_nccl(source.log), *nccl_tests.parts(source.log)]
    if found:
        judge_logs(found, source)
    return found


def _nccl(log: JobLog) -> Iterator[TextPart]:
    if log.nccl is None or log.nccl_lines is None:
        return
    first, last = log.nccl_lines
    facts = document(log.nccl)
    facts["watchdog"] = _watchdog(log.watchdog, log.nccl.nranks)
    gaps = [ParseGap(last, note) for note in log.nccl.unread]
    gaps += [ParseGap(last, note, beside=True) for note in log.nccl.notes]
    taken = ParsedPart(last, facts, _summary(facts), gaps)
    yield TextPart(NCCL_LOG, first, last, "", taken, "")


def training_parts(source: InputSource) -> tuple[list[TextPart], set[int]]:
    """Return the training in a log of repeated step lines, and the numbers of these."""
    run = training_run.of_log(source.log) if source.has_counted_steps else None
    parts: list[TextPart] = []
    lines: set[int] = set()
    for writer, log in run.logs if run is not None else ():
        first, last = log.steps[0].line, log.steps[-1].line
        facts, summary = training(log)
        parts.append(TextPart(TRAINING, first, last, writer, TypedPart(last, facts, summary, value=log), ""))
        lines |= {step.line for step in log.steps}
    return parts, lines


def _watchdog(report: watchdog.Watchdog, nranks: int | None) -> dict[str, Any] | None:
    """Return PyTorch's watchdog messages and their hangs; None without messages."""
    if not report:
        return None
    return {
        "timeouts": [vars_of(one) for one in report.timed_out[:_MAX_RANKS]],
        "progress": [vars_of(one) for one in report.progress[:_MAX_RANKS]],
        "hangs": [_hang_facts(stall) for stall in hang.of_watchdog(report, nranks)],
    }


def _hang_facts(stall: hang.Hang) -> dict[str, Any]:
    """Return a hang under its documented keys: ``complete`` becomes ``whole``."""
    facts = {"whole" if name == "complete" else name: value for name, value in vars_of(stall).items()}
    return {**facts, "differ": [list(pair) for pair in stall.differ]}


def _summary(facts: Mapping[str, Any]) -> str:
    phrases = [f"NCCL {facts['nccl_version'] or 'of unknown version'}"]
    if facts["nranks"]:
        nodes, hosts = facts["nnodes"], len(facts["hosts"])
        where = f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else f", {hosts} of their hosts" if hosts else ""
        phrases.append(f"{facts['nranks']} ranks{where}")
    between = facts["transports"]["inter_node"]
    if between:
        direct = {True: " with GPUDirect RDMA", False: " without GPUDirect RDMA", None: ""}[facts["gpudirect_rdma"]]
        phrases.append(f"between nodes: {', '.join(between)}{direct}")
    if facts["failures"]:
        phrases.append(f"first failure on line {facts['failures'][0]['line']}: {facts['failures'][0]['text'][:120]}")
    return "; ".join(phrases)


@functools.cache
def _run_checks() -> tuple[Check, ...]:
    return tuple(check for check in registry().checks if check.scope is Scope.RUN)


@functools.cache
def _checks_of_one() -> tuple[Check, ...]:
    """Return the checks that need only one source."""
    return tuple(check for check in _run_checks() if not check.id.startswith(ACROSS))


def judge_across(
    reports: Mapping[str, tuple[Report, ...]], leaves: Mapping[str, str]
) -> tuple[list[dict[str, Any]], RunFacts]:
    """Compare the reports of all sources; return the findings and the job's facts.

    ``leaves`` maps nodes to leaf switches where a source shows them.
    """
    records = {f"log:{name}": LogFile(Path(name), log=of_reports(own)) for name, own in reports.items()}
    run = Evidence(RUN, "", records)
    checks = [check for check in _run_checks() if check.id.startswith(ACROSS)]
    judged = [item for item in findings([], checks, Cluster(leaves=leaves), run=run) if item["status"] != "skip"]
    return judged, RunFacts(run, leaves=lambda: leaves)


def judge_logs(parts: list[TextPart], source: InputSource, seen: TorchOutput | None = None) -> None:
    """Run the checks of job logs, and add each finding to its part."""
    log = None if seen else source.log
    run = Evidence(RUN, "", {f"log:{source.name}": LogFile(source.path, log=log, seen=seen)})
    by_kind = {kind: [part for part in parts if part.kind == kind] for kind in (NCCL_LOG, NCCL_TESTS, *_FILES)}
    runs = report_subjects(source.name, log.nccl_tests) if log else ()
    by_subject = dict(zip(runs, by_kind[NCCL_TESTS], strict=True))
    checks = [check for check in _checks_of_one() if check.id != STEPS or log is None or not log.repeated_steps]
    for finding in findings([], checks, run=run):
        kind = NCCL_TESTS if finding["check"].startswith("nccl-tests.") else NCCL_LOG
        if any(by_kind[name] for name in _FILES):
            kind = next(name for name in _FILES if by_kind[name])
        shown = finding["status"] in _SHOWN_STATUSES or (finding["check"] == _UNFINISHED and by_kind[RECORDER])
        shown = shown or (finding["check"] == _FAILURES and kind == NCCL_LOG)  # a warning that no signature matches
        shown = shown or (finding["check"] in _MEASURED and finding["found"] is not None)
        if shown and by_kind[kind]:
            by_subject.get(finding["subject"], by_kind[kind][0]).findings.append(finding)

"""`preflight read`: detection, parsing and judgement of pasted tool output.

Data flow:

- ``input_sources``: files and standard input;
- ``container_formats``: email, pages, patches and tables around the text (``textprep.encodings``);
- ``switch_output``: sessions and databases of Ethernet switches;
- ``job_logs``: NCCL's log and nccl-tests;
- ``textprep.lines``, ``textprep.wrapped_lines`` (``line_unwrap`` chooses): lines as the tool wrote them;
- ``textprep``'s ``line_prefixes``, ``common_prefix``, ``commented_output``: prefix removal, lines by writer;
- ``textprep.headed_files``: files below a line with their path;
- ``framed_tables``: outputs with a frame that looks like such a prefix;
- ``detector`` (``parsers.output_heads``, ``parsers.text_block``): the parts and their formats;
- ``rank_errors``: the errors of all ranks of a job as one part;
- ``formats``, one module per tool family: how to recognise an output's first line, and its parser;
- ``stated_facts``: hosts, ranks, processes and named values that the lines of a part state;
- ``evaluate``: findings (``judges``: the cores of the checks, by kind of output).

The result is a ``preflight.read/1`` document.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from preflight import bench
from preflight.facts.fabric.leaves import from_sweep
from preflight.parsers.infiniband.ibnetdiscover import Net
from preflight.parsers.messages.scan import repeats_nccl
from preflight.parsers.messages.traceback import names_exception
from preflight.parsers.nccl_tests.model import Report
from preflight.recognition import container_formats
from preflight.recognition.described_pods import DESCRIBE, read_described
from preflight.recognition.detector import TextPart, parts
from preflight.recognition.evaluate import add_findings, compare_files
from preflight.recognition.formats import kinds
from preflight.recognition.formats.messages import PROGRAM_LOG
from preflight.recognition.formats.nccl_settings import SETTING, commands
from preflight.recognition.formats.pytorch import TorchPart, read_trace_or_dump
from preflight.recognition.formats.typed import TypedPart
from preflight.recognition.framed_tables import read_framed
from preflight.recognition.guess import Guess, guess
from preflight.recognition.input_sources import InputSource, SourceError, open_sources
from preflight.recognition.job_logs import (
    NCCL_LOG,
    NCCL_TESTS,
    STEPS,
    judge_across,
    judge_logs,
    log_parts,
    training_parts,
)
from preflight.recognition.line_unwrap import count_facts, prefer_unwrapped
from preflight.recognition.rank_errors import mark_survived, merge_ranks
from preflight.recognition.stated_facts import add_stated
from preflight.recognition.switch_output import (
    EOS_SESSION,
    JUNOS_SESSION,
    LINUX_SESSION,
    NXOS_SESSION,
    SONIC_DUMP,
    SONIC_SESSION,
    read_switch,
)
from preflight.textprep import common_prefix
from preflight.textprep.commented_output import commented
from preflight.textprep.headed_files import as_searched
from preflight.textprep.line_prefixes import split_by_writer, unread
from preflight.textprep.lines import Lines, bare, lines_of
from preflight.textprep.ruled_hosts import split_by_heading

__all__ = [
    "SCHEMA", "Across", "Guess", "SourceError", "across", "compare_files", "document", "exit_status", "guess", "known",
    "leaves_of", "open_sources", "read", "read_text", "reports_of",
]  # fmt: skip

SCHEMA = "preflight.read/1"

#: Markers found only in job logs, which `log_parts` reads.
_OF_A_JOB = (" NCCL INFO ", "ProcessGroupNCCL.cpp:", "WorkNCCL(")

#: The check whose findings are errors that other parts may have too.
_ERRORS = "job.errors"

#: A marker must occur within this many characters of the start of a line.
_MARKED_BY = 120

#: Maximum number of parts reported per source.
MOST_PARTS = 1000


def read(source: InputSource) -> list[TextPart]:
    """Return the judged parts of one source, in line order."""
    found, seen = read_trace_or_dump(source)
    if found:
        judge_logs(found, source, seen)
        return found
    if switch := read_switch(source.text.text, source.name):
        return switch
    recognised = container_formats.best(source, _read) or _logs(lines_of(source.text), source.name)
    if len(recognised) > MOST_PARTS:
        source.note(f"the parts after line {recognised[MOST_PARTS].first}: only the first {MOST_PARTS} are reported")
    return recognised[:MOST_PARTS]


def _read(source: InputSource) -> list[TextPart]:
    logs = log_parts(source)
    trained, steps = training_parts(source)
    lines = [line for line in lines_of(source.text) if line.number not in steps]
    repeated = any(part.kind == NCCL_LOG for part in logs)
    tools = _of_tools([line for line in lines if not (repeated and repeats_nccl(line.text))], source.name, trained)
    for part in tools:
        if isinstance(part.taken, TorchPart) and part.taken.complete:
            judge_logs([part], source, part.taken.output)
    found = sorted([*logs, *tools], key=lambda part: part.first)[: MOST_PARTS + 1]
    _report_once(logs, tools)
    add_stated(found, lines)
    if SETTING not in source.text.text or any(part.taken.facts["env"] for part in found if part.kind == NCCL_LOG):
        return found  # the log shows the settings in force
    launched = [part for _, own in split_by_writer(lines) for part in commands(bare(own), alone=not found)]
    add_findings(launched, source.name)
    if any(part.kind == NCCL_LOG for part in found):  # it shows which settings have no effect
        launched = [part for part in launched if any(item["status"] in ("fail", "warn") for item in part.findings)]
    return sorted([*found, *launched], key=lambda part: part.first)[: MOST_PARTS + 1]


def _report_once(logs: Sequence[TextPart], tools: Sequence[TextPart]) -> None:
    """Drop from a log what another part reports: errors and training steps."""
    others = [item for part in tools for item in part.findings]
    reported = {(_ERRORS, item["found"]) for item in others if item["status"] == "fail"}
    steps = STEPS if any(item["check"] == STEPS for item in others) else ""
    for part in logs:
        unlike = [
            item for item in part.findings
            if item["check"] != steps and (item["check"], item["found"]) not in reported
        ]  # fmt: skip
        part.findings = unlike or part.findings  # a part without a finding counts as not judged


def _logs(lines: Lines, source: str) -> list[TextPart]:
    """Return the program log in a text without other output; empty if it is not one."""
    writers = list(split_by_writer(lines))
    writer, own = writers[0] if len(writers) == 1 else ("", lines)
    written = [line for line in bare(own) if line.text.strip()]
    if not written or not PROGRAM_LOG.matches(written, 0):
        return []
    taken = PROGRAM_LOG.parse(written, 0)
    text = "".join(f"{line.text}\n" for line in written)
    part = TextPart(PROGRAM_LOG.name, written[0].number, written[-1].number, writer, taken, text)
    add_findings([part], source)
    add_stated([part], lines)
    return [part]


def read_text(text: str, source: str) -> list[TextPart]:
    """Return the judged outputs of tools in a text.

    A job's own output is left to ``log_parts``.
    """
    return _of_tools(lines_of(text), source)


def _of_tools(lines: Lines, source: str, trained: Sequence[TextPart] = ()) -> list[TextPart]:
    """Return the tool output in lines, and the training of the complete log."""
    lines = [line for line in lines if not _is_of_job(line.text)]
    framed, lines = read_framed(lines, kinds(), MOST_PARTS)
    written = [
        (f"{hosts} {writer}".strip(), own)
        for hosts, section in split_by_heading(lines)
        for writer, own in split_by_writer(section)
    ]
    found = framed + [part for writer, own in written for part in _parts(own, writer)]
    unread_lines = unread(lines, [own for _, own in written], _taken(lines, found))
    found += [part for own in unread_lines for part in _parts(own, "")]
    ways = common_prefix.unmarked(lines, _taken(lines, found))
    found += [part for stretch in ways for part in max(map(_written, stretch), key=count_facts)]
    found = merge_ranks(sorted([*found, *trained], key=lambda part: part.first))[: MOST_PARTS + 1]
    mark_survived(found)
    add_findings(found, source)
    return found


def _is_of_job(text: str) -> bool:
    """Return whether a line is read only by `log_parts`.

    A line that names an exception is not: it also belongs to the error of a program.
    """
    return any(mark in text[:_MARKED_BY] for mark in _OF_A_JOB) and not names_exception(text)


def _written(written: Sequence[tuple[str, Lines]]) -> list[TextPart]:
    return [
        part
        for writer, lines in written
        for inner, own in split_by_writer(lines)
        for part in _parts(own, f"{writer} {inner}".strip())
    ]


def _taken(lines: Lines, found: Sequence[TextPart]) -> set[int]:
    """Return the numbers of the lines that belong to any of the parts."""
    numbers = [line.number for line in lines]
    spans = ((bisect_left(numbers, part.first), bisect_right(numbers, part.last)) for part in found)
    return {number for first, end in spans for number in numbers[first:end]}


def _parts(lines: Lines, writer: str) -> list[TextPart]:
    def read_lines(lines: Lines) -> list[TextPart]:
        return list(islice(parts(lines, writer, ordinary), MOST_PARTS + 1))  # later parts are never reported

    ordinary = [kind for kind in kinds() if kind.name != DESCRIBE]
    described, lines = read_described(as_searched(bare(lines)), writer, kinds())
    found = described + prefer_unwrapped(lines, read_lines(lines), read_lines)
    return found + [part for stretch in commented(lines, _taken(lines, found)) for part in read_lines(stretch)]


def known() -> tuple[str, ...]:
    """Return the names of all kinds of output that are recognised."""
    return (
        NCCL_TESTS,
        NCCL_LOG,
        *(kind.name for kind in kinds()),
        PROGRAM_LOG.name,
        EOS_SESSION,
        NXOS_SESSION,
        JUNOS_SESSION,
        LINUX_SESSION,
        SONIC_SESSION,
        SONIC_DUMP,
    )


class Across(NamedTuple):
    """Results of comparing the nccl-tests runs of all sources."""

    findings: list[dict[str, Any]]
    bench: dict[str, Any]  # ``preflight.bench/1``
    pictures: list[dict[str, Any]]  # heat maps of node pairs


def reports_of(source: InputSource, parts: Sequence[TextPart]) -> tuple[Report, ...]:
    """Return the nccl-tests runs in a source; empty if no part is of this kind."""
    return source.log.nccl_tests if any(part.kind == NCCL_TESTS for part in parts) else ()


def leaves_of(parts: Sequence[TextPart]) -> dict[str, str]:
    """Return node -> leaf switch from the complete fabric sweeps in a source."""
    leaves: dict[str, str] = {}
    for part in parts:
        if isinstance(part.taken, TypedPart) and isinstance(part.taken.value, Net) and part.taken.complete:
            leaves |= from_sweep(part.taken.value)
    return leaves


def across(reports: Mapping[str, tuple[Report, ...]], leaves: Mapping[str, str]) -> Across | None:
    """Compare the nccl-tests runs of all sources; return None if there are too few.

    ``leaves`` maps nodes to leaf switches where a source shows them.
    """
    findings, facts = judge_across({name: own for name, own in reports.items() if own}, leaves)
    if not facts.pairwise:
        return None
    drawn = [picture for comparison in facts.pairwise if (picture := bench.picture.picture(comparison))]
    return Across(findings, bench.document.document(facts.pairwise), drawn)


def document(
    sources: Sequence[tuple[str, Sequence[TextPart]]],
    guesses: Mapping[str, Guess] | None = None,
    compared: Across | None = None,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the document that `preflight read --json` prints.

    ``guesses`` (by source) is used for sources without a recognised part. ``compared`` covers all sources together.
    ``unread`` lists the unread parts of each source.
    """
    documents: list[dict[str, Any]] = []
    for name, found in sources:
        documents.append({"name": name, "parts": [part.document() for part in found]})
        if unread and unread.get(name):
            documents[-1]["unread"] = [*unread[name]]
        if not found and guesses and name in guesses:
            documents[-1]["guess"] = {
                "looks_like": guesses[name].looks_like or None, "run": [*guesses[name].commands],
                "stated": guesses[name].stated,
            }  # fmt: skip
    more = {"findings": compared.findings, "bench": compared.bench} if compared else {}
    return {"schema": SCHEMA, "sources": documents, **more}


def exit_status(
    sources: Sequence[tuple[str, Sequence[TextPart]]],
    compared: Across | None = None,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Return 1 if something failed, 3 if something was not judged, else 0.

    Not judged means no source, an unrecognised source, a part without a finding, an unknown finding, a warning that is
    unknown in part, or truncated or unread text.
    """
    statuses = {finding["status"] for _, parts in sources for part in parts for finding in part.findings}
    statuses |= {finding["status"] for finding in compared.findings} if compared else set()
    if "fail" in statuses:
        return 1
    complete = sources and all(
        parts and all(part.judged and part.read_in_full and not part.unsettled for part in parts)
        for _, parts in sources
    )
    return 0 if complete and "unknown" not in statuses and not any((unread or {}).values()) else 3

"""`preflight read`: detect the tool output in a pasted text, parse it and judge it.

Data flow:

- ``input_sources``: files and standard input;
- ``container_formats``: mails, pages, patches and tables around the text (``textprep.encodings``);
- ``job_logs``: NCCL's log and nccl-tests;
- ``textprep.lines``, ``line_unwrap``: lines as the tool wrote them;
- ``line_prefixes``, ``common_prefix``, ``commented_output``: prefixes stripped, lines separated by writer;
- ``detector`` (``start_patterns``, ``key_value_block``): the parts and their formats;
- ``formats``, one module a family of tools: the first line of an output, and its parser;
- ``evaluate``: findings (``rules_gpu``, ``rules_nic``, by ``evidence_adapter``).

The result is a document of ``preflight.read/1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from preflight.recognition import common_prefix, container_formats
from preflight.recognition.commented_output import commented
from preflight.recognition.detector import TextPart, parts
from preflight.recognition.evaluate import add_findings
from preflight.recognition.formats import kinds
from preflight.recognition.formats.nccl_settings import SETTING, commands
from preflight.recognition.formats.pytorch import read_trace_or_dump
from preflight.recognition.input_sources import InputSource, SourceError, open_sources
from preflight.recognition.job_logs import NCCL_LOG, NCCL_TESTS, judge_logs, judge_settings, log_parts
from preflight.recognition.line_prefixes import split_by_writer, unread
from preflight.recognition.line_unwrap import count_facts, prefer_unwrapped
from preflight.textprep.lines import Lines, bare, lines_of

__all__ = ["SCHEMA", "SourceError", "document", "exit_status", "known", "open_sources", "read", "read_text"]

SCHEMA = "preflight.read/1"

#: Parts of one source that are reported.
MOST_PARTS = 1000


def read(source: InputSource) -> list[TextPart]:
    """Return the parts of one source in the order of their lines, judged."""
    found, seen = read_trace_or_dump(source)
    if found:
        judge_logs(found, source, seen)
        return found
    return container_formats.best(source, _read)


def _read(source: InputSource) -> list[TextPart]:
    logs = log_parts(source)
    lines = lines_of(source.text)
    tools = _of_tools(lines, source.name)
    judge_settings(tools, source.name)
    found = sorted([*logs, *tools], key=lambda part: part.first)[:MOST_PARTS]
    if found or not any(SETTING in line.text for line in lines):
        return found
    return [part for _, own in split_by_writer(lines) for part in commands(bare(own))][:MOST_PARTS]


def read_text(text: str, source: str) -> list[TextPart]:
    """Return the tool output in a text, judged; a job's own output is left to ``log_parts``."""
    return _of_tools(lines_of(text), source)


def _of_tools(lines: Lines, source: str) -> list[TextPart]:
    lines = [line for line in lines if " NCCL INFO " not in line.text]
    written = list(split_by_writer(lines))
    found = [part for writer, own in written for part in _parts(own, writer)]
    found += [part for own in unread(lines, [own for _, own in written], found) for part in _parts(own, "")]
    found += [
        part for ways in common_prefix.unmarked(lines, found) for part in max(map(_written, ways), key=count_facts)
    ]
    found = sorted(found, key=lambda part: part.first)[:MOST_PARTS]
    add_findings(found, source)
    return found


def _written(written: Sequence[tuple[str, Lines]]) -> list[TextPart]:
    return [
        part
        for writer, lines in written
        for inner, own in split_by_writer(lines)
        for part in _parts(own, f"{writer} {inner}".strip())
    ]


def _parts(lines: Lines, writer: str) -> list[TextPart]:
    def read_lines(lines: Lines) -> list[TextPart]:
        return list(islice(parts(lines, writer, kinds()), MOST_PARTS))  # later ones are never reported

    lines = bare(lines)
    found = prefer_unwrapped(lines, read_lines(lines), read_lines)
    return found + [part for stretch in commented(lines, found) for part in read_lines(stretch)]


def known() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return (NCCL_TESTS, NCCL_LOG, *(kind.name for kind in kinds()))


def document(sources: Sequence[tuple[str, Sequence[TextPart]]]) -> dict[str, Any]:
    """Return what `preflight read --json` prints."""
    return {
        "schema": SCHEMA,
        "sources": [{"name": name, "parts": [part.document() for part in found]} for name, found in sources],
    }


def exit_status(sources: Sequence[tuple[str, Sequence[TextPart]]]) -> int:
    """Return 1 if something failed, 3 if something was not judged, else 0.

    Not judged: a source in which nothing was recognised, a part without a finding, an unknown finding.
    """
    statuses = {finding["status"] for _, parts in sources for part in parts for finding in part.findings}
    if "fail" in statuses:
        return 1
    complete = sources and all(parts and all(part.judged for part in parts) for _, parts in sources)
    return 0 if complete and "unknown" not in statuses else 3

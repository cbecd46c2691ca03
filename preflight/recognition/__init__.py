"""`preflight read`: finds out what each part of a pasted text is, says what stands in it, and judges it.

Text goes one way:

- ``sources``: files and standard input;
- ``opening``: what the whole of it is packed in (``characters``, ``envelopes``: ``pages``, ``patches``, ``cells``);
- ``logs``: what a job wrote, NCCL's log and nccl-tests;
- ``lines`` (``mail``, ``glued``), ``wrapped``: lines as the tool wrote them;
- ``marks``, ``prefixes``, ``comments``: what stands before each line is taken off, writers are kept apart;
- ``parts`` (``heads``, ``blocks``): what is what;
- ``kinds``, one module a family of tools: how an output begins, and what it says;
- ``judging``: what is wrong with it (``rules_gpu``, ``rules_nic``, on a ``record``).

What comes out is a document of ``preflight.read/1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from preflight.recognition import common_prefix, container_formats
from preflight.recognition.commented_output import commented
from preflight.recognition.detector import Part, parts
from preflight.recognition.evaluate import add_findings
from preflight.recognition.formats import kinds
from preflight.recognition.formats.nccl_settings import SETTING, commands
from preflight.recognition.formats.pytorch import whole
from preflight.recognition.input_sources import Source, SourceError, open_sources
from preflight.recognition.job_logs import NCCL_LOG, NCCL_TESTS, judge_logs, judge_settings, log_parts
from preflight.recognition.line_prefixes import by_writer, unread
from preflight.recognition.line_unwrap import better, said
from preflight.textprep.lines import Lines, bare, lines_of

__all__ = ["SCHEMA", "SourceError", "document", "exit_status", "known", "open_sources", "read", "read_text"]

SCHEMA = "preflight.read/1"

#: Parts of one source that are told; nobody pastes more.
MOST_PARTS = 1000


def read(source: Source) -> list[Part]:
    """Return the parts of one source in the order of their lines, judged."""
    found, seen = whole(source)
    if found:
        judge_logs(found, source, seen)
        return found
    return container_formats.best(source, _read)


def _read(source: Source) -> list[Part]:
    logs = log_parts(source)
    lines = lines_of(source.text)
    tools = _of_tools(lines, source.name)
    judge_settings(tools, source.name)
    found = sorted([*logs, *tools], key=lambda part: part.first)[:MOST_PARTS]
    if found or not any(SETTING in line.text for line in lines):
        return found
    return [part for _, own in by_writer(lines) for part in commands(bare(own))][:MOST_PARTS]


def read_text(text: str, source: str) -> list[Part]:
    """Return the outputs of tools in a text, judged; a job's own output is left to ``log_parts``."""
    return _of_tools(lines_of(text), source)


def _of_tools(lines: Lines, source: str) -> list[Part]:
    lines = [line for line in lines if " NCCL INFO " not in line.text]
    written = list(by_writer(lines))
    found = [part for writer, own in written for part in _parts(own, writer)]
    found += [part for own in unread(lines, [own for _, own in written], found) for part in _parts(own, "")]
    found += [part for ways in common_prefix.unmarked(lines, found) for part in max(map(_written, ways), key=said)]
    found = sorted(found, key=lambda part: part.first)[:MOST_PARTS]
    add_findings(found, source)
    return found


def _written(written: Sequence[tuple[str, Lines]]) -> list[Part]:
    return [
        part
        for writer, lines in written
        for inner, own in by_writer(lines)
        for part in _parts(own, f"{writer} {inner}".strip())
    ]


def _parts(lines: Lines, writer: str) -> list[Part]:
    def read_lines(lines: Lines) -> list[Part]:
        return list(parts(lines, writer, kinds()))

    lines = bare(lines)
    found = better(lines, read_lines(lines), read_lines)
    return found + [part for stretch in commented(lines, found) for part in read_lines(stretch)]


def known() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return (NCCL_TESTS, NCCL_LOG, *(kind.name for kind in kinds()))


def document(sources: Sequence[tuple[str, Sequence[Part]]]) -> dict[str, Any]:
    """Return what `preflight read --json` prints."""
    return {
        "schema": SCHEMA,
        "sources": [{"name": name, "parts": [part.document() for part in found]} for name, found in sources],
    }


def exit_status(sources: Sequence[tuple[str, Sequence[Part]]]) -> int:
    """Return 1 if something failed, 3 if in a source nothing was recognised or a finding is unknown, else 0."""
    statuses = {finding["status"] for _, found in sources for part in found for finding in part.findings}
    if "fail" in statuses:
        return 1
    return 3 if not sources or "unknown" in statuses or any(not found for _, found in sources) else 0

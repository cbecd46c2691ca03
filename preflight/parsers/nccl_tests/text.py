"""Parser of nccl-tests output: the table, its footer, and failures.

The column header determines the meaning of values, not their position in the line, since a launcher's prefix may
precede them. Truncated rows are returned as such; a value that was not printed is not derived from others.
"""

from __future__ import annotations

import functools
import re

from preflight._startup.lightclass import replace
from preflight.parsers.job_output import lines
from preflight.parsers.nccl_tests import json_output
from preflight.parsers.nccl_tests import markers as words
from preflight.parsers.nccl_tests.builder import ReportBuilder
from preflight.parsers.nccl_tests.model import (
    Best,
    CutRow,
    Measurement,
    RankDevice,
    Report,
    Row,
    RunFailure,
    decode_version,
)
from preflight.parsers.nccl_tests.table import header, open_row, plain_numbers, without_rules
from preflight.parsers.nccl_tests.unwrap import unwrap_report
from preflight.parsers.text_block import decimal
from preflight.textprep.launcher_prefixes import strip_launcher_prefix
from preflight.textprep.numbered_text import NumberedText

__all__ = ["Best", "CutRow", "Measurement", "RankDevice", "Report", "Row", "RunFailure", "parse"]

#: Stages of a report, in the order in which nccl-tests prints them.
_VERSION, _STARTING, _OPTIONS, _DEVICES, _TABLE, _FOOTER = 1, 2, 3, 4, 5, 6

_NCCL_LINE = re.compile(r"[A-Za-z0-9][\w.-]{0,254}:\d{1,10}:\d{1,10} ")

#: The label of ``mpiexec -l``, which labels each write, not each line, so it may occur within a row.
_LABEL = re.compile(r"\s(\d{1,6})$")

#: Part of a table row: a number followed by a space, a table rule or a label.
_NUMBER = re.compile(r"\d[\s|\u2502\u2503\[]")

#: A number with six digits, the maximum in ``%g`` format, so it is complete even at the end of a text.
_SIX_DIGITS = re.compile(r"0?\.?0*(?:[1-9]\.?(?:\d\.?){5,})")


#: Maximum number of lines that are cached without their prefixes, since a log may repeat its lines.
_REMEMBERED = 1024


#: Maximum number of reports in a log; a sweep over all pairs of 64 nodes has 2,016.
MOST_REPORTS = 2048


def parse(source: str | NumberedText) -> tuple[Report, ...]:
    """Parse the reports in a text, in order; return an empty tuple without any.

    If there are more than ``MOST_REPORTS``, one more than that is returned. Never raises.
    """
    source = source if isinstance(source, NumberedText) else NumberedText(source)
    text = unwrap_report(source.text)
    documents = json_output.parse(text)
    if not documents and json_output.may_be(text):  # its lines may have a launcher's prefix
        documents = json_output.parse("\n".join(strip_launcher_prefix(line)[1] for line in text.split("\n")))
    if documents:
        lines = text.split("\n")
        for report in documents:
            lines[report.first_line - 1 : report.last_line] = [""] * (report.last_line - report.first_line + 1)
        text = "\n".join(lines)
        documents = tuple(_renumbered(report, source) for report in documents)
    found = [*documents, *_Reader(NumberedText(text, source.numbers)).reports()]
    return tuple(sorted(found, key=lambda report: report.first_line))


def _renumbered(report: Report, source: NumberedText) -> Report:
    """Return a report with the line numbers of the source."""
    rows = tuple(replace(row, line=source.number(row.line)) for row in report.rows)
    return replace(report, first_line=source.number(report.first_line), last_line=source.number(report.last_line),
                   rows=rows)  # fmt: skip


@functools.lru_cache(_REMEMBERED)
def _unmarked(line: str) -> tuple[str, str]:
    """Return the writer of a line ("" if unknown), and the line without its prefix."""
    tag, bare = strip_launcher_prefix(without_rules(line))
    if "," in bare:
        bare = plain_numbers(bare)
    if (label := _LABEL.search(f" {tag}")) and not _NCCL_LINE.match(bare):
        bare = bare.replace(f"[{label[1]}] ", "  ")
    return tag, bare


class _Reader:
    """Line-by-line reader of a text; it separates processes by their line prefixes."""

    def __init__(self, source: NumberedText) -> None:
        text = source.text
        self.all: list[ReportBuilder] = []
        self.open: dict[str, ReportBuilder] = {}  # by line prefix
        self.command: str | None = None
        self.nccl_version: str | None = None  # printed before the report to which it belongs
        self.raw = ""  # the line with its prefix, since a launcher's message may look like one
        beginnings = words.BEGINNINGS
        if "\x1b" not in text and "&" not in text:  # these may occur within a word
            beginnings = tuple(word for word in beginnings if word in text)
        passed = ""
        for number, line in lines(source):
            if not self.all and line == passed:
                continue
            before = self.command, self.nccl_version
            if not self.all and not _NUMBER.search(line) and not any(word in line for word in beginnings):
                passed = line
                continue  # the line does not start a report, and there is none that it could continue or end
            self.raw = line
            self.read(number, *_unmarked(line))
            if len(self.all) > MOST_REPORTS:
                break
            # before the first report, a line that had no effect has none when it is repeated
            passed = line if not self.all and (self.command, self.nccl_version) == before else passed
        last = source.number(text.count("\n") + 1)
        end = source.number(text.rstrip().count("\n") + 1)
        for report in self.all:
            # the device list may continue beyond the end of the text
            report.devices_cut |= report.stage == _DEVICES and report.last_line == end
            report.average_may_be_cut &= report.last_line == last
        if self.all and self.all[-1].nccl_version is None:
            self.all[-1].nccl_version = self.nccl_version

    def reports(self) -> tuple[Report, ...]:
        """Return all reports in order.

        A failure that was printed before the rest of its report becomes part of it.
        """
        found: list[Report] = []
        early: Report | None = None
        for before, opened in zip([None, *self.all], self.all, strict=False):
            if before is not None and before.lone_head and {device.rank for device in opened.devices} == {0}:
                opened.devices[:0] = before.devices  # another process without MPI was first
                opened.first_line = before.first_line
                found.pop()
            report = opened.report()
            if self.shell(found) and opened.copies > 1:  # several copies printed their first lines in sequence
                found[-1] = replace(report, first_line=found[-1].first_line)
            elif early is not None and not report.finished and not opened.only_failed:
                failures = (*early.failures, *report.failures)
                found[-1] = replace(report, first_line=early.first_line, failures=failures)
            else:
                found.append(report)
            early = report if opened.only_failed else None
        return tuple(found)

    @staticmethod
    def shell(found: list[Report]) -> bool:
        """Return whether the last report has only its first lines."""
        last = found[-1] if found else None
        return last is not None and not (last.devices or last.rows or last.cut_rows or last.failures or last.finished)

    def begin(self, number: int, tag: str, stage: int) -> ReportBuilder:
        """Start a report at a line."""
        report = ReportBuilder(number, stage, last_line=number, called=self.command, nccl_version=self.nccl_version)
        self.all.append(report)
        self.open[tag] = report
        self.command = self.nccl_version = None
        return report

    def at(self, number: int, tag: str, stage: int, *, header: bool = False) -> ReportBuilder:
        """Return the report for a line of this stage; start one if necessary."""
        last = self.all[-1] if self.all else None
        # a word before a report's first line may look like a prefix that later lines lack
        follows = last is not None and (stage > _DEVICES or (not tag and last.stage <= stage and not last.columns))
        report = self.open.get(tag) or (last if follows else None)
        ended = report is not None and (
            (stage < _DEVICES and stage < report.stage)
            or (stage == _DEVICES and report.stage > _DEVICES)
            or (header and (report.stage >= _FOOTER or bool(report.rows)))
        )
        if report is None or ended:
            report = self.begin(number, tag, stage)
        report.stage = max(report.stage, stage)
        report.last_line = number
        return report

    def read(self, number: int, tag: str, line: str) -> None:
        """Process one line."""
        if "NCCL INFO" in line and "NCCL version" not in line and _NCCL_LINE.match(line):
            return  # true of most lines in most logs
        if "ccl-tests v" in line and (match := words.TESTS_VERSION.search(line)):
            report = self.at(number, tag, _VERSION)
            report.version, code = match["marked"] or match["bare"], match["library"] or match["code"]
            report.nccl_version = decode_version(int(code) if code else None) or report.nccl_version
        elif "test starting" in line and (match := words.STARTS.search(line)) and not words.quoted(match):
            self.at(number, tag, _STARTING).collective = words.collective(match[1])
        elif "nThread" in line and (match := words.RUN.search(line)):
            report = self.at(number, tag, _OPTIONS)
            report.validation = None if match[1] is None else match[1] != "0"
            count = words.ITERATIONS.search(match[0])
            report.iterations = int(count[1]) if count else None
        elif "Rank" in line and (match := words.DEVICE.search(line)):
            # another process may print its devices after the table's header
            late = bool(self.all) and self.now(tag).awaits(int(match[1]))
            report = self.at(number, tag, _TABLE if late else _DEVICES)
            rank, group, host, index, bus, name = match.groups()
            report.devices.append(RankDevice(int(rank), int(group or 0), host, int(index), bus, name or ""))
        elif "Rank" in line and self.all and self.now(tag).stage == _DEVICES and words.DEVICE_CUT.search(line):
            self.now(tag).devices_cut = True
        elif columns := header(line):
            report = self.at(number, tag, _TABLE, header=True)
            report.columns = columns
        elif "Out of bounds" in line and (match := words.OUT_OF_BOUNDS.search(line)):
            if words.quoted(match):
                self.other(number, tag, line)
                return
            last = self.now(tag) if self.all else None
            if last is not None and last.finished and last.out_of_bounds is not None and last.copies == 1:
                self.begin(number, tag, _FOOTER)  # the text has only the ends of runs
            report = self.at(number, tag, _FOOTER)
            report.close_row()
            report.out_of_bounds, report.out_of_bounds_ok = int(match[1]), match[2] == "OK"
        elif "Avg bus" in line and (match := words.AVERAGE.search(line)):
            report = self.at(number, tag, _FOOTER)
            report.close_row()
            report.finished = True
            complete = match[2] != "" or _SIX_DIGITS.fullmatch(match[1]) is not None
            report.average, report.average_may_be_cut = decimal(match[1]), not complete
            report.average_ok = None if match[3] is None else match[3] == "OK"
        elif "Avg bus" in line and words.AVERAGE_TAKEN_OUT.search(line):
            report = self.at(number, tag, _FOOTER)
            report.close_row()
            report.finished = True
            report.cut.append(CutRow(number, None, line.strip()[:200]))
        elif "concluded" in line and (match := words.CONCLUDED.search(line)) and not words.quoted(match):
            report = self.at(number, tag, _FOOTER)
            report.collective = report.collective or words.collective(match[1] or "")
        else:
            self.other(number, tag, line)

    def other(self, number: int, tag: str, line: str) -> None:
        """Process a line that may be a failure, a command, a row or other text."""
        line = self.failure(number, tag, line)
        if "_perf" in line and (match := words.COMMAND.search(line)):
            self.command = match[1]
            return
        if self.row(number, tag, line) or not self.all:
            self.version(line)
            return
        report = self.now(tag)
        if report.pending is not None and report.pending.continues(line):
            report.last_line = number
            if report.pending.complete:
                report.close_row()
        elif "Test failure" in line and (match := words.RELAY.search(line)):
            report.last_line = number
            report.relays.append(RunFailure(number, match["text"]))
            report.called = report.called or words.of_source(match["text"])
        elif self.version(line):
            if report.stage == _DEVICES and not report.finished:
                report.last_line = number
        elif report.stage in (_DEVICES, _TABLE) and words.ELIDED.fullmatch(line):
            if report.stage == _DEVICES:
                report.devices_cut = True
            else:
                report.close_row()
                report.cut.append(CutRow(number, None, line.strip()))
        elif report.stage == _FOOTER and (match := words.LAST_ERROR.match(line)):
            report.last_line, report.last_error = number, match[1].strip()
        elif not report.finished and (death := words.died(self.raw)):
            report.last_line = number
            report.deaths.append(RunFailure(number, death, launcher=True))

    def failure(self, number: int, tag: str, line: str) -> str:
        """Record the failure that a line reports; return the text before it, or the line."""
        if not any(word in line for word in ("failure ", "Test ", "nvalid", "Incomp", "_perf")):
            return line
        if not (match := words.FAILURE.search(line)):
            return line
        report = self.now(tag) if self.all else None
        if report is None or report.finished:
            report = self.begin(number, tag, _OPTIONS)
        report.last_line = number
        report.failures.append(RunFailure(number, match["text"].strip()[:500], match["host"]))
        report.called = report.called or words.of_source(match["text"])
        if report.called is None and (binary := words.COMMAND.search(match["text"])):
            report.called = binary[1]
        return line[: match.start()]

    def row(self, number: int, tag: str, line: str) -> bool:
        """Process a row; return whether the line is a row."""
        here = self.open.get(tag) or (self.all[-1] if self.all else None)
        row = open_row(number, line, here.columns if here else None)
        sure = row is not None and (row.complete or (row.redop is not None and row.root is not None))
        if row is None or (here is None and not sure):  # it may be prose with two numbers
            return False
        report = here or self.begin(number, tag, _TABLE)
        if report.finished and report.copies == 1:
            columns = report.columns
            report = self.begin(number, tag, _TABLE)
            report.columns = columns
        report.close_row()
        report.stage = max(report.stage, _TABLE)
        report.last_line = number
        report.pending = row
        if report.columns is None and row.complete and row.columns.root is not None:
            report.columns = row.columns  # a report without a header has the columns of its first complete row
        if row.complete:
            report.close_row()
        return True

    def version(self, line: str) -> bool:
        """Process a line with NCCL's version; return whether it has one.

        The version is that of the current report, or if that is finished, of the next one.
        """
        if "CCL version" not in line or not (match := words.NCCL_VERSION.search(line)):
            return False
        report = self.all[-1] if self.all else None
        if report is not None and not report.finished:
            report.nccl_version = report.nccl_version or match[1] or match[2] or match[3]
        else:
            self.nccl_version = self.nccl_version or match[1] or match[2] or match[3]
        return True

    def now(self, tag: str) -> ReportBuilder:
        """Return the report with this line prefix, or else the last one."""
        return self.open.get(tag) or self.all[-1]

"""nccl-tests output: the table, its footer, and what was printed where a run failed.

Formats of nccl-tests v1.0.0 … v2.19.6 (src/common.cu, src/util.cu). Values are found from the names
in the column header, never by position in the line, since a launcher may have put its mark before it.
What is cut is listed as cut; nothing is worked out that was not printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from preflight.facts import nccl_tests_json
from preflight.facts.nccl_lines import lines, unlaunched
from preflight.facts.nccl_report import (
    Best,
    CutRow,
    Device,
    Failure,
    Half,
    Report,
    Row,
    collective_of,
    decode_version,
    mean_busbw,
)
from preflight.facts.nccl_table import Columns, OpenRow, header, open_row

__all__ = ["Best", "CutRow", "Device", "Failure", "Half", "Report", "Row", "parse"]

# Lines that begin a report, with the order in which nccl-tests prints them.
_VERSION, _STARTING, _OPTIONS, _DEVICES, _TABLE, _FOOTER = 1, 2, 3, 4, 5, 6

_TESTS_VERSION = re.compile(r"# nccl-tests version (\S{1,64})(?:.{0,64}? nccl-library=(\d{1,8}))?")
_STARTS = re.compile(r"# Collective test starting: (\S{1,64})")
_RUN = re.compile(r"\bnThread\s{1,4}\d{1,6}\s{1,4}nGpus\s{1,4}\d{1,6}\s{1,4}minBytes\s.{0,300}?(?:validation: (\d)|$)")
_DEVICE = re.compile(
    r"\bRank\s{1,4}(\d{1,7})(?:\s{1,4}Group\s{1,4}(\d{1,7}))?(?:\s{1,4}Pid\s{1,8}\d{1,10})?"
    r"\s{1,4}on\s{1,40}(\S{1,255})\s{1,4}device\s{1,4}(\d{1,4})\s{1,4}\[([0-9a-fA-Fx:.]{1,24})\]\s{1,4}(\S.*?)\s*$"
)
_OUT_OF_BOUNDS = re.compile(r"\bOut of bounds values\s{1,4}:\s{1,4}(\d{1,18})\s{1,4}(OK|FAILED)\b")
_AVERAGE = re.compile(r"\bAvg bus bandwidth\s{1,8}:\s{1,4}([0-9.e+]{1,24}|-?nan|inf)(\s|$)\s{0,4}(OK\b|FAILED\b)?")
_CONCLUDED = re.compile(r"# Collective test concluded\b")
_NCCL_VERSION = re.compile(r"\bNCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_COMMAND = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)"
    r"_perf(?:_mpi)?\b"
)
_FAILURE = re.compile(
    r"(?:(?P<host>(?:^[0-9]|[A-Za-z])[\w.-]{0,254}): )?"  # may be glued to the number before it
    r"(?P<text>Test (?:NCCL|CUDA) failure .+|Test timeout \(\d+s\).*"
    r"|Invalid number of GPUs: \d+ requested.*|Incompatible NCCL versions\. nccl-tests was compiled.*"
    r"|invalid sizes? (?:for 'minbytes'|specified for '\w+').*)"
)
_RELAY = re.compile(r" \.\. \S+(?: pid \d+)?: Test failure \S+:\d+")
_SOURCE = re.compile(r"\b([a-z_]+)\.cu:\d+")
_NCCL_LINE = re.compile(r"[A-Za-z0-9][\w.-]{0,254}:\d{1,10}:\d{1,10} ")
_ELIDED = re.compile(r"[\s#]{0,40}(?:\.\.\.|\[\.\.\.\]|…|\[…\])\s{0,40}")


def parse(text: str) -> tuple[Report, ...]:
    """Return the reports in a text, in order; none if it holds none. Never raises."""
    return nccl_tests_json.parse(text) or _Reader(text).reports()


@dataclass
class _Open:
    """A report that is being read."""

    first_line: int
    stage: int
    last_line: int = 0
    collective: str | None = None
    printed: bool = False
    version: str | None = None
    nccl_version: str | None = None
    validation: bool | None = None
    devices: list[Device] = field(default_factory=list)
    devices_cut: bool = False
    columns: Columns | None = None
    rows: list[Row] = field(default_factory=list)
    cut: list[CutRow] = field(default_factory=list)
    pending: OpenRow | None = None
    average: float | None = None
    average_ok: bool | None = None
    average_may_be_cut: bool = False
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    failures: list[Failure] = field(default_factory=list)

    def close_row(self) -> None:
        """Keep what is there of a row that has ended, or that something else ended."""
        if self.pending is None:
            return
        row, cut = self.pending.taken()
        self.pending = None
        if row is not None:
            self.rows.append(row)
        if cut is not None:
            self.cut.append(cut)

    def report(self) -> Report:
        """Return the report as far as it was read."""
        self.close_row()
        ranks = [device.rank for device in self.devices]
        copies = ranks.count(0) if len(ranks) > 1 and set(ranks) == {0} else 1
        whole = not self.devices_cut and sorted(set(ranks)) == list(range(len(set(ranks))))
        rows = tuple(self.rows)
        average = self.average
        # a number at the very end of a text may lack digits, unless the rows say the same
        if self.average_may_be_cut and average is not None:
            mean = mean_busbw(rows)
            average = average if mean is not None and abs(mean - average) <= 0.01 else None
        return Report(
            first_line=self.first_line,
            last_line=self.last_line,
            collective=self.collective or collective_of(rows),
            collective_printed=self.printed,
            devices=tuple(self.devices),
            nranks=len(set(ranks)) if ranks and whole else None,
            hosts=tuple(dict.fromkeys(device.host for device in self.devices)),
            rows=rows,
            cut_rows=tuple(self.cut),
            average_busbw_gbytes_s=average,
            average_ok=self.average_ok,
            out_of_bounds=self.out_of_bounds,
            out_of_bounds_ok=self.out_of_bounds_ok,
            validated=self._validated(rows),
            failures=tuple(self.failures),
            complete=self.out_of_bounds is not None and average is not None,
            copies=copies,
            version=self.version,
            nccl_version=self.nccl_version,
        )

    def _validated(self, rows: tuple[Row, ...]) -> bool | None:
        if self.validation is False or not rows:
            return self.validation if self.validation is False else None
        if self.columns is not None and not self.columns.counts_wrong:
            return any(half.max_error is not None for row in rows for half in row.halves)
        return any(half.wrong is not None for row in rows for half in row.halves)


class _Reader:
    """Reads a text line by line; lines of several processes are kept apart where a launcher tagged them."""

    def __init__(self, text: str) -> None:
        self.all: list[_Open] = []
        self.open: dict[str, _Open] = {}  # by tag
        self.command: str | None = None
        for number, line in lines(text):
            tag, bare = unlaunched(line)
            self.read(number, tag, bare)
        last = text.count("\n") + 1
        for report in self.all:
            report.average_may_be_cut &= report.last_line == last

    def reports(self) -> tuple[Report, ...]:
        """Return all reports, in order."""
        return tuple(report.report() for report in self.all)

    def at(self, number: int, tag: str, stage: int, *, header: bool = False) -> _Open:
        """Return the report that a line of this stage belongs to; a new one where it begins one."""
        report = self.open.get(tag) or (self.all[-1] if self.all and stage > _DEVICES else None)
        ended = report is not None and (
            (stage < _DEVICES <= report.stage)
            or (stage == _DEVICES and report.stage > _DEVICES)
            or (header and (report.stage >= _FOOTER or bool(report.rows)))
        )
        if report is None or ended:
            report = _Open(number, stage, collective=self.command, printed=self.command is not None)
            self.all.append(report)
            self.open[tag] = report
            self.command = None
        report.stage = max(report.stage, stage)
        report.last_line = number
        return report

    def read(self, number: int, tag: str, line: str) -> None:
        """Take in one line."""
        if "NCCL INFO" in line and "NCCL version" not in line and _NCCL_LINE.match(line):
            return  # most lines of most logs
        if match := _TESTS_VERSION.search(line):
            report = self.at(number, tag, _VERSION)
            report.version, report.nccl_version = match[1], decode_version(int(match[2]) if match[2] else None)
        elif match := _STARTS.search(line):
            report = self.at(number, tag, _STARTING)
            report.collective, report.printed = _collective(match[1]), True
        elif match := _RUN.search(line):
            report = self.at(number, tag, _OPTIONS)
            report.validation = None if match[1] is None else match[1] != "0"
        elif "Rank" in line and (match := _DEVICE.search(line)):
            report = self.at(number, tag, _DEVICES)
            rank, group, host, index, bus, name = match.groups()
            report.devices.append(Device(int(rank), int(group or 0), host, int(index), bus, name))
        elif columns := header(line):
            report = self.at(number, tag, _TABLE, header=True)
            report.columns = columns
        elif match := _OUT_OF_BOUNDS.search(line):
            report = self.at(number, tag, _FOOTER)
            report.close_row()
            report.out_of_bounds, report.out_of_bounds_ok = int(match[1]), match[2] == "OK"
        elif match := _AVERAGE.search(line):
            report = self.at(number, tag, _FOOTER)
            report.close_row()
            report.average, report.average_may_be_cut = _number(match[1]), match[2] == ""
            report.average_ok = None if match[3] is None else match[3] == "OK"
        elif _CONCLUDED.search(line):
            self.at(number, tag, _FOOTER)
        else:
            self.other(number, tag, line)

    def other(self, number: int, tag: str, line: str) -> None:
        """Take in a row, a failure or noise."""
        if ("Test " in line or "nvalid" in line or "Incomp" in line) and (match := _FAILURE.search(line)):
            report = self.at(number, tag, _TABLE) if not self.all else self.now(tag)
            report.last_line = number
            report.failures.append(Failure(number, match["text"].strip()[:500], match["host"]))
            if report.collective is None and (source := _SOURCE.search(match["text"])):
                known = _COMMAND.match(f"{source[1]}_perf")
                report.collective, report.printed = (known[1], True) if known else (None, False)
            line = line[: match.start()]
        elif "_perf" in line and (match := _COMMAND.search(line)):
            self.command = match[1]
            return
        here = self.open.get(tag) or (self.all[-1] if self.all else None)
        if row := open_row(number, line, here.columns if here else None):
            if here is None and not row.whole:
                return  # prose with two numbers in it
            report = here or self.at(number, tag, _TABLE)
            report.close_row()
            report.stage = max(report.stage, _TABLE)
            report.last_line = number
            report.pending = row
            if row.whole:
                report.close_row()
            return
        if not self.all:
            return
        report = self.now(tag)
        if report.pending is not None and report.pending.continues(line):
            report.last_line = number
            if report.pending.whole:
                report.close_row()
        elif _RELAY.search(line):
            report.last_line = number
        elif report.nccl_version is None and (match := _NCCL_VERSION.search(line)):
            report.nccl_version = match[1]
        elif report.stage in (_DEVICES, _TABLE) and _ELIDED.fullmatch(line):
            if report.stage == _DEVICES:
                report.devices_cut = True
            else:
                report.close_row()
                report.cut.append(CutRow(number, None, line.strip()))

    def now(self, tag: str) -> _Open:
        """Return the report that a line without a place of its own belongs to."""
        return self.open.get(tag) or self.all[-1]


def _collective(binary: str) -> str | None:
    name = binary.rpartition("/")[2]
    return name.removesuffix("_mpi").removesuffix("_perf") or None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

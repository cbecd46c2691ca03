"""``fio``: rates, latencies and errors of a run, as text or JSON.

Sources: fio(1), "Interpreting the output" in fio's HOWTO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at, json_head
from preflight.textprep.lines import Lines

HINTS = ("(groupid=", "fio-", "fio: ", '"fio version"', "{")

_VERSION = re.compile(r"fio-(\d{1,2}\.\d{1,3}(?:[.-][\w-]{1,20})?)")
_SETTING = re.compile(r"\S.{0,100}: \(g=\d{1,4}\): rw=\w{1,12}, bs=.{1,200}")
_JOB = re.compile(
    r"(\S.{0,100}): \(groupid=\d{1,4}, jobs=(\d{1,5})\): err= ?(\d{1,4})(?: \((.{1,200})\))?: pid=.{0,100}"
)
_RATE = re.compile(
    r"\s*(read|write|trim)\s*: IOPS=(\d{1,9}(?:\.\d{1,3})?)([kM]?), BW=(\d{1,9}(?:\.\d{1,3})?)([KMGT]?i?B)/s.*"
)
_LATENCY = re.compile(r"\s*(s|c|)lat \((nsec|usec|msec|sec)\): .{0,200}\bavg=\s*(\d{1,9}(?:\.\d{1,3})?)\b.*")
_ERROR = re.compile(
    r"fio: (?:io_u error on file .{1,200}?: [A-Z][\w ]{3,60}(?:: .{0,200})?|(?:pid=.{1,40}, )?err=\d{1,4}/.{0,300})"
)
_UNITS = {"B": 1.0, **{f"{unit}iB": 1024.0**power for power, unit in enumerate("KMGT", 1)},
          **{f"{unit}B": 1000.0**power for power, unit in enumerate("kMGT", 1)}, "KB": 1000.0}  # fmt: skip
_SECONDS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}
_JSON = re.compile(r'\s*\{?\s*"fio version"')
#: Maximum lines of one job's report.
_FAR = 400


@dataclass(frozen=True)
class FioRate:
    """The rate of one job in one direction."""

    job: str
    direction: str  # read, write, trim
    iops: float
    bytes_per_s: float
    latency_s: float | None  # mean total or completion latency


@dataclass(frozen=True)
class FioReport:
    """The report of one fio run."""

    version: str | None
    rates: tuple[FioRate, ...]
    errors: tuple[str, ...]  # each as printed, or "JOB: err N"
    jobs: int  # number of reports, of jobs or groups
    line: int


def begins(lines: Lines, at: int) -> bool:
    """Return whether a fio report begins at a line."""
    text = lines[at].text
    if _SETTING.fullmatch(text) or _JOB.fullmatch(text) or _ERROR.fullmatch(text):
        return True
    if _VERSION.fullmatch(text):
        return any(_JOB.fullmatch(line.text) or _ERROR.fullmatch(line.text) for line in lines[at + 1 : at + _FAR])
    return text.lstrip()[:1] == "{" and _JSON.match(json_head(lines, at)) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[FioReport]:
    """Read the report starting at a line."""
    if lines[at].text.lstrip()[:1] == "{":
        return _from_json(lines, at)
    version, rates, errors, jobs, job, end, gaps = None, list[FioRate](), list[str](), 0, "", at + 1, list[ParseGap]()
    for index in range(at, len(lines)):
        text = lines[index].text
        if index - end > _FAR:
            break
        if match := _VERSION.fullmatch(text):
            version = match[1]
        elif match := _JOB.fullmatch(text):
            job, jobs = match[1], jobs + 1
            if match[3] != "0":
                errors.append(f"{job}: err {match[3]}{f' ({match[4]})' if match[4] else ''}")
        elif _ERROR.fullmatch(text):
            errors.append(text)
        elif match := _RATE.fullmatch(text):
            rates.append(FioRate(job, match[1], float(match[2]) * {"k": 1e3, "M": 1e6}.get(match[3], 1.0),
                                 float(match[4]) * _UNITS.get(match[5], 1.0), None))  # fmt: skip
        elif (match := _LATENCY.fullmatch(text)) and rates and match[1] != "s":
            rates[-1] = replace(rates[-1], latency_s=round(float(match[3]) * _SECONDS[match[2]], 9))
        elif not (_SETTING.fullmatch(text) or _INSIDE.match(text)):
            if text.strip() and jobs and index > end + 1:
                break
            continue
        end = index + 1
    if not jobs:
        gaps.append(ParseGap(lines[at].number, "the report of the jobs is missing"))
    elif not rates and not errors:
        gaps.append(ParseGap(lines[end - 1].number, "the rates are missing"))
    return Parsed(
        FioReport(version, tuple(rates), tuple(dict.fromkeys(errors)), jobs, lines[at].number), tuple(gaps), end
    )


#: Lines of a report that are not parsed.
_INSIDE = re.compile(
    r"\s+\S|Starting \d|Run status group|Disk stats|Jobs: \d|\.\.\.$|[\w.-]{1,60}: Laying out IO file|clock setaffinity"
)


def _from_json(lines: Lines, at: int) -> Parsed[FioReport]:
    parsed = json_at(lines, at)
    if parsed is None or not isinstance(parsed[1], dict):
        gap = ParseGap(lines[at].number, "the JSON is truncated")
        return Parsed(FioReport(None, (), (), 0, lines[at].number), (gap,), len(lines))
    end, document = parsed
    rates, errors = list[FioRate](), list[str]()
    jobs = [job for job in document.get("jobs") or document.get("client_stats") or () if isinstance(job, Mapping)]
    for job in jobs:
        name = str(job.get("jobname", ""))[:100]
        if job.get("error"):
            errors.append(f"{name}: err {job['error']}")
        for direction in ("read", "write", "trim"):
            side = job.get(direction)
            if isinstance(side, Mapping) and _number(side.get("io_bytes", side.get("total_ios"))):
                latency = side.get("lat_ns") or side.get("clat_ns")
                mean = _number(latency.get("mean")) if isinstance(latency, Mapping) else None
                rates.append(FioRate(
                    name, direction, _number(side.get("iops")) or 0.0,
                    _number(side.get("bw_bytes")) or 1024 * (_number(side.get("bw")) or 0.0),
                    mean / 1e9 if mean else None,
                ))  # fmt: skip
    version = str(document.get("fio version", "")).removeprefix("fio-")[:20] or None
    gaps = () if jobs else (ParseGap(lines[at].number, "the report of the jobs is missing"),)
    return Parsed(FioReport(version, tuple(rates), tuple(errors), len(jobs), lines[at].number), gaps, end)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def facts(report: FioReport) -> dict[str, Any]:
    """Return the run as `preflight read --json` prints it."""
    return {
        "version": report.version, "errors": list(report.errors),
        "rates": [
            {"job": rate.job, "direction": rate.direction, "iops": rate.iops, "bytes_per_s": rate.bytes_per_s,
             "mib_per_s": round(rate.bytes_per_s / 2**20, 3), "latency_s": rate.latency_s}
            for rate in report.rates
        ],
    }  # fmt: skip


def summary(report: FioReport) -> str:
    """Return a one-line summary of the run."""
    return "; ".join(in_words(rate) for rate in report.rates[:3]) or "a storage benchmark without rates"


def in_words(rate: FioRate) -> str:
    """Format a rate for a message."""
    return f"{rate.direction} {rate.bytes_per_s / 2**20:.5g} MiB/s, {rate.iops:.4g} IOPS"

"""Parser of nccl-tests' JSON output (``-J FILE``, since 2.17.3).

Its booleans are strings, NaN is the string "nan", and ``root`` is padded with spaces. ``env`` is the environment of the
process, which is not read.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.nccl_tests.collective import collective_of
from preflight.parsers.nccl_tests.markers import collective
from preflight.parsers.nccl_tests.model import (
    IterationTimes,
    Measurement,
    RankDevice,
    Report,
    Row,
    RunFailure,
    decode_version,
)

#: Maximum number of opening braces that are tried as the start of an object; a log may have many.
_MOST_ATTEMPTS = 64

_OBJECT = re.compile(r"^\s{0,16}\{", re.MULTILINE)
_ROW_SIZE = re.compile(r'"size"\s*:')


def may_be(text: str) -> bool:
    """Return whether a text may contain nccl-tests' JSON output."""
    return '"results"' in text and '"config"' in text


def parse(text: str) -> tuple[Report, ...]:
    """Return the reports in nccl-tests' JSON output within a text. Never raises.

    Truncated output (of an aborted run, up to 2.18.4) is read up to its last complete result.
    """
    if not may_be(text):
        return ()
    found: list[Report] = []
    end = 0
    for match in itertools.islice(_OBJECT.finditer(text), _MOST_ATTEMPTS):
        if match.start() < end:
            continue
        begin = match.end() - 1
        document, after = _decoded(text, begin)
        if not isinstance(document.get("config"), dict) or not isinstance(document.get("results"), list):
            continue
        end = after
        first = text.count("\n", 0, begin) + 1
        found.append(_read(document, text[begin:after], first))
    return tuple(found)


def _decoded(text: str, begin: int) -> tuple[Mapping[str, Any], int]:
    """Return the object that starts at a position, even if truncated, and its end."""
    try:
        document, after = json_limits.begun(text, begin)
        return _object(document), after
    except ValueError:
        pass
    if '"results"' not in text[begin : begin + 1_000_000]:
        return {}, begin
    last_result = _last_result(text, begin)
    try:
        return _object(json_limits.text(text[begin:last_result] + "]}")), len(text)
    except ValueError:
        return {}, begin


def _last_result(text: str, begin: int) -> int:
    """Return the end of the last complete result, by counting brackets."""
    depth, last = 0, begin
    for match in re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]').finditer(text, begin):
        if match[0] in ("{", "["):
            depth += 1
        elif match[0] in ("}", "]"):
            depth -= 1
            if depth == 2 and match[0] == "}":
                last = match.end()
        if depth > 64:
            break
    return last


def _read(document: Mapping[str, Any], text: str, first: int) -> Report:
    results = document["results"]
    starts = [text.count("\n", 0, match.start()) + first for match in _ROW_SIZE.finditer(text)]
    rows = tuple(
        row
        for position, result in enumerate(results)
        if (row := _row(result, starts[position] if len(starts) == len(results) else first)) is not None
    )
    return _report(document, rows, first, first + text.rstrip().count("\n"))


def _report(document: Mapping[str, Any], rows: tuple[Row, ...], first_line: int, last_line: int) -> Report:
    config = document["config"]
    devices = tuple(device for entry in _objects(config.get("devices")) if (device := _device(entry)) is not None)
    bounds, average = _object(document.get("out_of_bounds")), _object(document.get("average_bus_bandwidth"))
    arguments = document.get("args")
    binary = arguments[0] if isinstance(arguments, list) and arguments and isinstance(arguments[0], str) else ""
    printed = collective(binary) if binary else None
    nranks = _nranks(config, devices)
    errors = document.get("errors")
    messages = [error for error in errors if isinstance(error, str) and error] if isinstance(errors, list) else []
    mean, wrong = _number(average.get("bandwidth")), _integer(bounds.get("count"))
    checked = any(half.wrong is not None for row in rows for half in row.halves)
    return Report(
        first_line=first_line,
        last_line=last_line,
        collective=printed or collective_of(rows, nranks),
        collective_printed=printed is not None,
        devices=devices,
        nranks=nranks,
        hosts=tuple(dict.fromkeys(device.host for device in devices)),
        rows=rows,
        cut_rows=(),
        average_busbw_gbytes_s=mean,
        average_ok=_boolean(average.get("okay")),
        out_of_bounds=wrong,
        out_of_bounds_ok=_boolean(bounds.get("okay")),
        validated=False if config.get("validation") == 0 else checked if rows else None,
        failures=()
        if wrong is not None and mean is not None
        else tuple(RunFailure(last_line, e[:500]) for e in messages),
        complete=wrong is not None and mean is not None,
        finished=wrong is not None and mean is not None,
        nccl_version=decode_version(_integer(document.get("nccl_version"))),
        last_error=messages[0][:500] if messages and wrong is not None and mean is not None else "",
        iterations=_integer(config.get("iterations")),
        gpus_per_device=nranks // len(devices) if nranks and devices else 1,
    )


def _nranks(config: Mapping[str, Any], devices: tuple[RankDevice, ...]) -> int | None:
    """Return the number of ranks, or None.

    The output may list only the first device of each process.
    """
    threads, gpus = _integer(config.get("nthreads")), _integer(config.get("ngpus"))
    if not devices or threads is None or gpus is None:
        return None
    processes = {device.rank for device in devices}
    each = threads * gpus
    if sorted(processes) == list(range(0, len(processes) * each, each or 1)):
        return len(processes) * each
    return len(processes) if sorted(processes) == list(range(len(processes))) else None


def _row(result: object, line: int) -> Row | None:
    entry = _object(result)
    size, count, dtype = _integer(entry.get("size")), _integer(entry.get("count")), entry.get("type")
    if size is None or count is None or not isinstance(dtype, str):
        return None
    redop = entry.get("redop")
    return Row(
        line, size, count, dtype, redop if isinstance(redop, str) else None, _integer(entry.get("root")),
        _half(entry, "out_of_place"), _half(entry, "in_place"),
    )  # fmt: skip


def _half(result: Mapping[str, Any], name: str) -> Measurement | None:
    entry = _object(result.get(name))
    time = _number(entry.get("time", entry.get("cpu_time")))
    algbw, busbw = _number(entry.get("alg_bw")), _number(entry.get("bus_bw"))
    if time is None or algbw is None or busbw is None:
        return None
    return Measurement(time, algbw, busbw, _integer(entry.get("nwrong")),
                       iterations=_iterations(_object(result.get(f"{name}_per_iter"))))  # fmt: skip


def _iterations(entry: Mapping[str, Any]) -> IterationTimes | None:
    """Return the times of single iterations, without the skipped ones, or None."""
    if not entry:
        return None
    skipped = max(0, _integer(entry.get("skipped_iterations")) or 0)
    rows = entry.get("per_process_max_times_us")
    processes = tuple(_times(row)[skipped:] for row in rows) if isinstance(rows, list) else ()
    return IterationTimes(
        _finite(entry.get("min_us")), _finite(entry.get("max_us")), _finite(entry.get("p99_us")),
        _finite(entry.get("cv_pct")), _finite(entry.get("p50_us")), _finite(entry.get("p95_us")),
        _times(entry.get("times_us"))[skipped:], processes,
    )  # fmt: skip


def _times(values: object) -> tuple[float, ...]:
    """Return a list of times in µs; empty if any element is not a time."""
    if not isinstance(values, list):
        return ()
    times = tuple(time for value in values if (time := _finite(value)) is not None and time > 0)
    return times if len(times) == len(values) else ()


def _finite(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and math.isfinite(number) else None


def _device(entry: Mapping[str, Any]) -> RankDevice | None:
    rank, host = _integer(entry.get("rank")), entry.get("hostname")
    if rank is None or not isinstance(host, str):
        return None
    return RankDevice(
        rank, _integer(entry.get("group")) or 0, host, _integer(entry.get("device")) or 0,
        str(entry.get("device_hex", "")), str(entry.get("device_info", "")),
    )  # fmt: skip


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _integer(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and math.isfinite(number) else None


def _boolean(value: object) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())

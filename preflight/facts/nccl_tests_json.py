"""nccl-tests' own JSON output (``-J FILE``, from 2.17.3 on), read into the same types as its text.

Its booleans are strings, NaN is the string "nan", ``root`` is padded with blanks, and ``env`` holds
the whole environment of the process, which is not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from preflight.facts.nccl_report import Device, Failure, Half, Report, Row, collective_of, decode_version


def parse(text: str) -> tuple[Report, ...]:
    """Return the report if the text is one JSON object of nccl-tests; else none. Never raises."""
    if not text.lstrip().startswith("{") or '"results"' not in text:
        return ()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        return ()
    results = document.get("results")
    if not isinstance(results, list):
        return ()
    starts = [number for number, line in enumerate(text.split("\n"), 1) if '"size"' in line]
    rows = tuple(
        row
        for position, result in enumerate(results)
        if (row := _row(result, starts[position] if len(starts) == len(results) else 1)) is not None
    )
    return (_report(document, rows, text.rstrip().count("\n") + 1),)


def _report(document: Mapping[str, Any], rows: tuple[Row, ...], last_line: int) -> Report:
    config = document["config"]
    devices = tuple(device for entry in _objects(config.get("devices")) if (device := _device(entry)) is not None)
    bounds, average = _object(document.get("out_of_bounds")), _object(document.get("average_bus_bandwidth"))
    arguments = document.get("args")
    binary = arguments[0] if isinstance(arguments, list) and arguments and isinstance(arguments[0], str) else ""
    printed = binary.rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")
    errors = document.get("errors")
    said = [error for error in errors if isinstance(error, str) and error] if isinstance(errors, list) else []
    mean, wrong = _number(average.get("bandwidth")), _integer(bounds.get("count"))
    checked = any(half.wrong is not None for row in rows for half in row.halves)
    return Report(
        first_line=1,
        last_line=last_line,
        collective=printed or collective_of(rows),
        collective_printed=bool(printed),
        devices=devices,
        nranks=_nranks(config, devices),
        hosts=tuple(dict.fromkeys(device.host for device in devices)),
        rows=rows,
        cut_rows=(),
        average_busbw_gbytes_s=mean,
        average_ok=_boolean(average.get("okay")),
        out_of_bounds=wrong,
        out_of_bounds_ok=_boolean(bounds.get("okay")),
        validated=False if config.get("validation") == 0 else checked if rows else None,
        failures=tuple(Failure(last_line, error[:500]) for error in said),
        complete=wrong is not None and mean is not None,
        nccl_version=decode_version(_integer(document.get("nccl_version"))),
    )


def _nranks(config: Mapping[str, Any], devices: tuple[Device, ...]) -> int | None:
    """Count the ranks: only the first device of each process may be listed."""
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
        _half(entry.get("out_of_place")), _half(entry.get("in_place")),
    )  # fmt: skip


def _half(value: object) -> Half | None:
    entry = _object(value)
    time = _number(entry.get("time", entry.get("cpu_time")))
    algbw, busbw = _number(entry.get("alg_bw")), _number(entry.get("bus_bw"))
    if time is None or algbw is None or busbw is None:
        return None
    return Half(time, algbw, busbw, _integer(entry.get("nwrong")))


def _device(entry: Mapping[str, Any]) -> Device | None:
    rank, host = _integer(entry.get("rank")), entry.get("hostname")
    if rank is None or not isinstance(host, str):
        return None
    return Device(
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

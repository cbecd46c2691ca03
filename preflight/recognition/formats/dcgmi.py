"""Output formats of ``dcgmi``, ``systemctl status`` and ``nvbandwidth``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from preflight.model import counted
from preflight.parsers.host.service_status import ServiceStatus
from preflight.parsers.nvidia.dcgmi import Diag, Discovery, HealthReport, LinkStatus
from preflight.parsers.nvidia.nvbandwidth import Bandwidths
from preflight.recognition.formats.typed import output_format


def _diag(diag: Diag) -> tuple[dict[str, Any], str]:
    tests = [
        {"section": test.section, "name": test.name, "result": test.result, "gpus": test.gpus or None,
         "messages": list(test.messages), "line": test.line}
        for test in diag.tests
    ]  # fmt: skip
    counts = Counter(test.result for test in diag.tests)
    words = ", ".join(f"{number} {result}" for result, number in counts.items())
    return {"versions": dict(diag.versions), "tests": tests}, f"{counted(len(tests), 'test')}: {words}"


def _health(report: HealthReport) -> tuple[dict[str, Any], str]:
    problems = [
        {"entity": entity, "system": system, "state": state, "message": message or None, "line": line}
        for entity, system, state, message, line in report.problems
    ]
    return {"overall": report.overall or None, "problems": problems}, f"overall health: {report.overall or 'unknown'}"


def _discovery(listing: Discovery) -> tuple[dict[str, Any], str]:
    facts = {
        "gpu_count": listing.gpu_count,
        "nvswitch_count": listing.switch_count,
        "gpus": [dict(gpu) for gpu in listing.gpus],
    }
    gpus = "unknown number of" if listing.gpu_count is None else listing.gpu_count
    return facts, f"{gpus} GPUs, {listing.switch_count or 0} NVSwitches"


def _links(status: LinkStatus) -> tuple[dict[str, Any], str]:
    states = Counter("".join((*status.gpus.values(), *status.switches.values())))
    words = {"U": "up", "D": "down", "X": "disabled", "_": "not supported"}
    summary = ", ".join(f"{number} {words.get(state, state)}" for state, number in states.items())
    return {
        "gpus": dict(status.gpus),
        "nvswitches": dict(status.switches),
    }, f"{counted(len(status.gpus), 'GPU')}: links {summary}"


def _service(status: ServiceStatus) -> tuple[dict[str, Any], str]:
    facts = {
        "unit": status.unit, "loaded": status.loaded, "enabled": status.enabled, "active": status.active,
        "sub_state": status.sub_state, "result": status.result, "host": status.host,
        "messages": [{"line": line, "text": text} for line, text in status.troubles],
    }  # fmt: skip
    return facts, f"{status.unit} is {status.active or 'unknown'}" + (
        f" ({status.sub_state})" if status.sub_state else ""
    )


def _bandwidth(run: Bandwidths) -> tuple[dict[str, Any], str]:
    tests = [
        {"name": test.name, "unit": test.unit, "rows": {str(row): list(cells) for row, cells in test.rows.items()},
         "sum": test.total, "waived": test.waived, "line": test.line}
        for test in run.tests
    ]  # fmt: skip
    errors = [{"line": line, "text": text} for line, text in run.errors]
    facts = {"version": run.version or None, "driver_version": run.driver, "devices": list(run.devices),
             "tests": tests, "errors": errors}  # fmt: skip
    return facts, counted(len(tests), "test")


KINDS = (
    output_format("dcgmi diag", _diag),
    output_format("dcgmi health", _health),
    output_format("dcgmi discovery", _discovery),
    output_format("dcgmi nvlink", _links),
    output_format("fabricmanager status", _service),
    output_format("systemctl status", _service),
    output_format("nvbandwidth", _bandwidth),
)

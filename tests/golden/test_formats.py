"""Formats in ``preflight explain``: the table matches the texts from outside, and no check hides one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli import app
from preflight.judge import record_usage
from preflight.model import Check, Scope, check
from preflight.parsers import provenance
from preflight.parsers.provenance import FORMATS, Format, format_of, unverified
from preflight.probes.node import PROBES
from tests.support import external_texts
from tests.support.fixture import FIXTURES, cases

CHECKS = registry().checks


def explained(id: str) -> list[str]:
    """Return the formats that a check's page calls unverified."""
    page = CliRunner().invoke(app.main, ["explain", id], catch_exceptions=False).output
    return re.findall(r"^Unverified format: (.*) \(not tested with output of real hardware\)$", page, re.M)


def test_every_text_belongs_to_a_format_and_every_origin_to_a_text() -> None:
    texts: dict[str, set[str]] = {}
    for sample in external_texts.every():
        texts.setdefault(sample.format, set()).add(sample.origin)
    table = {form.name: {origin for origin in form.seen if not origin.startswith("fixtures/")} for form in FORMATS}
    assert texts == {name: origins for name, origins in table.items() if origins}


def test_a_recorded_node_contains_the_records_of_the_table() -> None:
    for form in FORMATS:
        for file in (origin for origin in form.seen if origin.startswith("fixtures/")):
            document = json.loads((FIXTURES.parent / file).read_text())
            assert document["origin"].startswith("recorded "), file
            read_keys = {key for key, record in document["records"].items() if record["status"] == "ok"}
            for pattern in form.records:
                found = re.compile(re.escape(pattern).replace(r"\*", ".*"))
                assert any(found.fullmatch(key) for key in read_keys), f"{file} holds no {pattern}"


def _expanded(key: str) -> Iterator[str]:
    if not (braces := re.search(r"\{([^{}]+)\}", key)):
        yield key
        return
    for word in braces[1].split(","):
        yield from _expanded(key[: braces.start()] + word + key[braces.end() :])


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.key[:50])
def test_a_record_without_a_format_is_unverified_by_its_own_name(probe: Any) -> None:
    """A new probe needs no row in preflight/parsers/provenance.py before its real output is known."""
    for key in _expanded(probe.key):
        form = format_of(key)
        assert form is not None or unverified([key]) == (key.partition(":")[2],)


def test_names_are_used_once() -> None:
    assert len({form.name for form in FORMATS}) == len(FORMATS)


def test_each_serving_engine_has_its_documentation() -> None:
    from preflight.parsers.training.engine_metrics import ENGINES

    (metrics,) = (form for form in FORMATS if provenance.SERVING in form.records)
    assert not metrics.seen
    assert {name.split(",")[0] for name in metrics.documented} == {f"metrics of {engine}" for engine, _ in ENGINES}
    assert unverified([provenance.SERVING]) == tuple(sorted(metrics.documented))


def test_of_an_unknown_record_nothing_is_known() -> None:
    assert unverified(["cmd:rocm-smi", "cmd:ibstat", "nvml:gpus"]) == ("NVML", "rocm-smi")


def test_the_history_is_no_format_of_a_tool() -> None:
    assert not any("course" in explained(id) for id in ("trend.job-time", "gpu.count"))


def _keys_read_in_fixtures(check: Check) -> set[str]:
    keys: set[str] = set()
    for case in cases(check.id):
        documents = [
            {"node": e.node, "collected_at": e.collected_at, "collector": e.collector, "records": e.records}
            for e in case.evidences()
        ]
        keys |= record_usage.keys_used_by(check, documents, case.cluster())
    return keys


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.scope is not Scope.RUN and not check.sweep], ids=lambda check: check.id
)
def test_no_check_rests_on_a_format_that_its_page_does_not_name(check: Check) -> None:
    hidden = set(unverified(_keys_read_in_fixtures(check))) - set(unverified(record_usage.records_of(check)))
    assert not hidden, f"add reads=(...) to its declaration: its fixtures make it read {hidden}"


def test_the_formats_that_a_page_names() -> None:
    assert explained("gpu.driver") == ["Kubernetes API: the pod", "NVML", "nvidia-smi --query-gpu"]
    assert explained("host.time-sync") == ["timedatectl"]
    assert explained("nvlink.fabric-manager") == ["NVML", "nv-fabricmanager", "systemctl show"]
    assert explained("host.memlock") == []
    assert explained("nccl-tests.busbw") == []


def test_a_format_that_was_seen_is_no_longer_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tuple(Format(form.name, form.records, form.seen or ("somewhere",)) for form in FORMATS)
    monkeypatch.setattr(provenance, "FORMATS", seen)
    format_of.cache_clear()
    try:
        assert explained("gpu.driver") == []
    finally:
        monkeypatch.undo()
        format_of.cache_clear()


def test_a_check_of_a_plug_in_with_a_record_of_its_own() -> None:
    @check("made.own-record", title="t", source="s", fix="f")
    def own(node: Any, site: Any) -> Any:
        """Read a record of unknown format.

        It does not hurt.
        """
        yield node.evidence.text("cmd:our-tool --status")

    assert unverified(record_usage.records_of(own)) == ("our-tool --status",)

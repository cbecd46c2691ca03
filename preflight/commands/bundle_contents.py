"""Contents of a bundle: evidence, report and versions, redacted by default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from preflight.archive.directory import file_name, replacing
from preflight.commands.bundle_files import Added
from preflight.evidence import bundle
from preflight.evidence.document import Evidence, dump, from_document, to_document
from preflight.evidence.report_file import written
from preflight.redact import Redactor
from preflight.reports.html_page import render
from preflight.version import VERSION

README = """\
What preflight found on some nodes of a cluster, and its report.

report.html    the report, for people        report.json   the same, for programs
versions.json  software of each node           evidence/     evidence of each node
expected/      the cluster file, if any      files/        logs and texts from the evidence folders
MANIFEST.json  every file with its SHA-256

`preflight judge THIS.tar.gz` judges the evidence again; the archive need not be unpacked.
"""

REDACTED = """
Names, addresses, GUIDs, LIDs and serial numbers are replaced by aliases. Equal originals have equal aliases, which
preserve subnets and vendors. Only the sender can map them back.
"""


def contents(
    evidences: Sequence[Evidence], run: Evidence | None, report: Mapping[str, Any], redactor: Redactor | None,
    added: Added,
) -> Iterator[tuple[str, Iterable[bytes]]]:  # fmt: skip
    """Yield the name and the content, in chunks, of each file of a bundle.

    Evidence is read one node at a time; with a redactor, it is read twice.
    """
    bundled: dict[str, Any] = dict(report)
    others = [run] if run else []
    if redactor:
        for evidence in chain(evidences, others):
            redactor.learn_value(to_document(evidence))
        added.learn(redactor)
        with redactor.sharing():
            redactor.learn_value(bundled)
        with redactor.sharing():
            bundled = redactor.value(bundled)
    yield "README.txt", [(README + (REDACTED if redactor else "")).encode()]
    yield from added.contents(redactor)
    for evidence in chain(evidences, others):
        one = from_document(redactor.value(to_document(evidence)), evidence.node) if redactor else evidence
        name = one.node if one.pair is None else f"{one.node}.pair-{one.pair.peer}"
        yield bundle.EVIDENCE + file_name(name), [dump(one).encode("utf-8", "backslashreplace")]
    yield "report.html", [render(bundled).encode("utf-8", "backslashreplace")]
    yield "report.json", map(str.encode, written(bundled))
    yield "versions.json", map(str.encode, written(_versions(bundled), sort_keys=True))


def about(report: Mapping[str, Any], redacted: bool) -> dict[str, Any]:
    """Return the fields of the manifest that describe the bundle itself."""
    return {"version": VERSION, "redacted": redacted, "nodes": len(report["nodes"])}


def _versions(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version of preflight, and the software versions of each node."""
    nodes = {str(node["name"]): node.get("record", {}) for node in report["nodes"]}
    return {"preflight": VERSION, "judged_by": (report.get("run") or {}).get("version", VERSION), "nodes": nodes}


def narrowed(report: Mapping[str, Any], nodes: frozenset[str]) -> dict[str, Any]:
    """Return a report with only some of its nodes, and its run and fabric.

    The coverage is still that of the entire run.
    """
    findings: list[dict[str, Any]] = []
    places: dict[int, int] = {}
    for place, finding in enumerate(report["findings"]):
        remaining = [name for name in finding["nodes"] if name in nodes or name.startswith("@")]
        if remaining:
            shown = [excerpt for excerpt in finding.get("excerpts", []) if excerpt["node"] in remaining]
            places[place] = len(findings)
            findings.append({**finding, "nodes": remaining, **({"excerpts": shown} if "excerpts" in finding else {})})
    narrow = {**report, "nodes": [node for node in report["nodes"] if node["name"] in nodes], "findings": findings}
    if "incidents" in report:
        narrow["incidents"] = list(_incidents(report["incidents"], nodes, places))
    return narrow


def _incidents(
    incidents: Sequence[Mapping[str, Any]], nodes: frozenset[str], places: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield the incidents on these nodes, with renumbered findings."""
    for incident in incidents:
        remaining = [name for name in incident["nodes"] if name in nodes or name.startswith("@")]
        left = [places[place] for place in incident["findings"] if place in places]
        if remaining and left:
            yield {**incident, "nodes": remaining, "findings": left}


def write(path: Path, files: Iterable[tuple[str, Iterable[bytes]]], manifest: dict[str, Any]) -> None:
    """Write a bundle atomically, readable by its owner; raises OSError."""
    with replacing(path, 0o600) as stream:
        bundle.write(stream, manifest, files)

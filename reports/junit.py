"""The report as JUnit XML, for CI: a suite for each check, a case for each node.

A gating unknown result is an error, so that CI does not treat it as a pass; a non-gating one is skipped, with the
reason. A warning passes, and its text is in ``system-out``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from preflight.reports.sanitize import visible

#: Maximum length of a message in characters; CI pages show the start.
_LONGEST = 4000

#: Characters that XML 1.0 does not allow, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_ANSWER = "preflight.answer"


def render(report: Mapping[str, Any]) -> str:
    """Return a report as JUnit XML."""
    return "".join(lines(report))


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fragments of the XML document in order."""
    suites: dict[str, dict[str, str]] = {}
    for node in report["nodes"]:
        for check, status in node["checks"].items():
            suites.setdefault(check, {})[node["name"]] = status
    by_case: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for finding in report["findings"]:
        for node in finding["nodes"]:
            by_case.setdefault((finding["check"], node), []).append(finding)
            if node.startswith("@"):
                suite = suites.setdefault(finding["check"], {})
                suite[node] = _worse(suite.get(node, "skip"), finding["status"])
    silent = {node["name"]: node["no_answer"] for node in report["nodes"] if node.get("no_answer")}
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    tags = {check: {node: _tag(status, by_case.get((check, node), ())) for node, status in cases.items()}
            for check, cases in suites.items()}  # fmt: skip
    total = [sum(_counted(cases)[place] for cases in tags.values()) for place in range(4)]
    total = [total[0] + len(silent), total[1], total[2] + len(silent), total[3]]
    yield f'<testsuites name="preflight" {_counts(total, with_skipped=False)} time="{report["run"]["seconds"]:.3f}">\n'
    if silent:
        yield from _silence(silent, report["run"]["at"])
    for check, cases in suites.items():
        yield from _suite(check, cases, tags[check], by_case, report["run"]["at"])
    yield "</testsuites>\n"


def _suite(
    check: str,
    cases: Mapping[str, str],
    tags: Mapping[str, str],
    by_case: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    at: str,
) -> Iterator[str]:
    yield f"<testsuite name={_attribute(check)} {_counts(_counted(tags))} {_when(at)}>\n"
    for node, status in cases.items():
        matching = [finding for finding in by_case.get((check, node), ()) if finding["status"] == status]
        yield f'<testcase name={_attribute(node)} classname={_attribute(check)} time="0">'
        if tag := tags[node]:
            message = "; ".join(str(finding["message"]) for finding in matching)
            if status == "unknown" and tag == "skipped":
                message = f"unknown, non-gating: {message}"
            yield f"<{tag} message={_attribute(message)}" + (f" type={_attribute(check)}" if tag != "skipped" else "")
            yield f">{_text(matching)}</{tag}>" if tag != "skipped" else "/>"
        elif status == "warn":
            yield f"<system-out>{_text(matching)}</system-out>"
        yield "</testcase>\n"
    yield "</testsuite>\n"


def _silence(silent: Mapping[str, Mapping[str, str]], at: str) -> Iterator[str]:
    counts = _counts([len(silent), 0, len(silent), 0])
    yield f'<testsuite name="{_ANSWER}" {counts} {_when(at)}>\n'
    for node, why in silent.items():
        message = f"no answer: {why.get('reason', '')} ({why.get('phase', '')})"
        yield f'<testcase name={_attribute(node)} classname="{_ANSWER}" time="0">'
        yield f'<error message={_attribute(message)} type="no answer"></error></testcase>\n'
    yield "</testsuite>\n"


def _tag(status: str, findings: Sequence[Mapping[str, Any]]) -> str:
    """Return a case's element: ``failure``, ``error``, ``skipped``, or "" for none.

    An unknown result is an error if it is gating, else it is skipped.
    """
    if status == "unknown":
        gating = [finding.get("gating", True) for finding in findings if finding["status"] == "unknown"]
        return "error" if any(gating) or not gating else "skipped"
    return {"fail": "failure", "skip": "skipped"}.get(status, "")


def _counted(tags: Mapping[str, str]) -> list[int]:
    """Return the numbers of cases, failures, errors and skipped cases."""
    elements = list(tags.values())
    return [len(elements), *(elements.count(tag) for tag in ("failure", "error", "skipped"))]


def _counts(numbers: Sequence[int], *, with_skipped: bool = True) -> str:
    names = ("tests", "failures", "errors", "skipped")[: 4 if with_skipped else 3]
    return " ".join(f'{name}="{number}"' for name, number in zip(names, numbers, strict=False))


def _when(at: str) -> str:
    return f'time="0" timestamp={_attribute(at.removesuffix("Z"))}'


def _worse(one: str, other: str) -> str:
    order = ("fail", "unknown", "warn", "pass", "skip")
    return min(one, other, key=order.index)


def _text(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as text: message, found and expected, consequence, next command."""
    rows = []
    for finding in findings:
        rows.append(f"{finding['status']}: {finding['message']}")
        for name in ("found", "expected", "why", "fix"):
            if finding[name]:
                rows.append(f"  {name}: {finding[name]}")
    return escape(_legal("\n".join(rows)))


def _attribute(text: str) -> str:
    return quoteattr(_legal(text))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", visible(text[:_LONGEST]))

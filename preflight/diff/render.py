"""A comparison of two runs as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.reports.sanitize import fold, one_line

_HEADS = {
    "new": "NEW", "worse": "WORSE", "unclear": "UNCLEAR", "still": "still failing", "better": "better", "gone": "gone",
}  # fmt: skip

_COUNTED = {"still": "still failing, with another value"}

_NODES = {
    "fell_silent": "answered only in the first run", "answer_again": "answered only in the second run",
    "silent_in_both": "did not answer in either run", "came": "only in the second run",
    "came_silent": "only in the second run, and did not answer", "went": "only in the first run",
}  # fmt: skip


def render(comparison: Mapping[str, Any]) -> str:
    """Return a comparison as text; untrusted text is sanitised."""
    return "".join(f"{line}\n" for line in _lines(comparison))


def _lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    yield _headline(comparison)
    yield f"before: {one_line(comparison['before']['path'])} ({one_line(comparison['before']['at'])})"
    yield f"after:  {one_line(comparison['after']['path'])} ({one_line(comparison['after']['at'])})"
    for key, words in _NODES.items():
        if nodes := comparison["nodes"][key]:
            yield f"{fold(nodes)}: {words}"
    yield from _incidents(comparison["incidents"])
    if comparison["incidents"] and (comparison["findings"] or comparison["not_judged_again"]):
        yield "findings:"
    for finding in comparison["findings"]:
        subject = f" {one_line(finding['subject'])}" if finding["subject"] else ""
        step = " -> ".join(str(finding[side] or "no finding") for side in ("before", "after"))
        yield f"{_HEADS[finding['change']]}  {fold(finding['nodes'])}  {finding['check']}{subject}: {step}"
        now = "now" if finding["change"] == "still" else "after"
        for side, key in (("before", "was"), (now, "now")):
            if finding[key]:
                yield f"    {side}: {one_line(finding[key])}"
    yield from _not_again(comparison["not_judged_again"])
    if comparison["values"]:
        yield "changed:"
    for value in comparison["values"]:
        before, after = _difference(value["before"], value["after"])
        yield f"  {fold(value['nodes'])}  {value['what']}: {one_line(before)} -> {one_line(after)}"
    if not comparison["values_compared"]:
        yield "values were not compared: this needs the evidence of both runs (--save DIR), not a report"


def _difference(before: str, after: str) -> tuple[str, str]:
    """Return the two values; for two lists, only the entries that differ."""
    old, new = before.split("; "), after.split("; ")
    common = set(old) & set(new)
    if not common or set(old) == set(new):
        return before, after
    left = ("; ".join(entry for entry in side if entry not in common) for side in (old, new))
    return next(left) or "none", next(left) or "none"


def _incidents(changed: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a heading and a line for each changed incident."""
    if changed:
        yield "incidents:"
    for row in changed:
        was = f" ({one_line(row['was'])})" if row["was"] else ""
        yield f"  {row['change']:<7}  {fold(row['nodes'])}  {one_line(row['title'])}{was}"


def _not_again(lost: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the checks that the second run did not judge, grouped by nodes."""
    by_nodes: dict[str, list[str]] = {}
    for one in lost:
        by_nodes.setdefault(fold(one["nodes"]), []).append(one["check"])
    for nodes, checks in by_nodes.items():
        yield f"UNCLEAR  {nodes}  judged in the first run only: {', '.join(map(one_line, checks))}"


def _headline(comparison: Mapping[str, Any]) -> str:
    both = comparison["nodes"]["both"]
    counts = {how: sum(finding["change"] == how for finding in comparison["findings"]) for how in _HEADS}
    if not both and comparison["exit_status"] != 1:
        return "NOT COMPARED: no node was judged in both runs"
    parts = [f"{number} {_COUNTED.get(how, how)}" for how, number in counts.items() if number]
    if lost := comparison["not_judged_again"]:
        parts.append(f"{len(lost)} check{'' if len(lost) == 1 else 's'} not judged again")
    if comparison["values"]:
        count = len(comparison["values"])
        parts.append(f"{count} value{'' if count == 1 else 's'} changed")
    for key, words in (("fell_silent", "without an answer now"), ("came_silent", "new, no answer"), ("went", "gone")):
        if nodes := comparison["nodes"][key]:
            parts.append(f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} {words}")
    word = {0: "NO WORSE", 1: "WORSE", 3: "UNKNOWN"}[comparison["exit_status"]]
    compared = f"{both} node{'' if both == 1 else 's'} compared"
    return f"{word}: {', '.join([compared, *parts]) if parts else f'{compared}, nothing changed'}"

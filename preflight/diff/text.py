"""A comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.reports.visible import fold, one_line

_HEADS = {
    "new": "NEW", "worse": "WORSE", "better": "better", "gone": "gone",
}  # fmt: skip


def render(told: Mapping[str, Any]) -> str:
    """Return a comparison as text; foreign text is made visible."""
    return "".join(f"{line}\n" for line in _lines(told))


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield _headline(told)
    yield f"before: {one_line(told['before']['path'])} ({one_line(told['before']['at'])})"
    yield f"after:  {one_line(told['after']['path'])} ({one_line(told['after']['at'])})"
    for key, words in (
        ("fell_silent", "answered before and do not answer now"), ("answer_again", "answer again"),
        ("came", "only in the second run"), ("went", "only in the first run"),
    ):  # fmt: skip
        if nodes := told["nodes"][key]:
            yield f"{fold(nodes)}: {words}"
    for finding in told["findings"]:
        subject = f" {one_line(finding['subject'])}" if finding["subject"] else ""
        step = " -> ".join(str(finding[side] or "nothing said") for side in ("before", "after"))
        yield f"{_HEADS[finding['change']]}  {fold(finding['nodes'])}  {finding['check']}{subject}: {step}"
        yield f"    {'' if finding['after'] else 'was: '}{one_line(finding['message'])}"
    if told["values"]:
        yield "changed:"
    for value in told["values"]:
        yield f"  {fold(value['nodes'])}  {value['what']}: {one_line(value['before'])} -> {one_line(value['after'])}"
    if not told["values_compared"]:
        yield "values were not compared: that takes the evidence of both runs (--save DIR), not a report"


def _headline(told: Mapping[str, Any]) -> str:
    both = told["nodes"]["both"]
    if not both:
        return "NOT COMPARED: no node was judged in both runs"
    counts = {how: sum(finding["change"] == how for finding in told["findings"]) for how in _HEADS}
    said = [f"{number} {how}" for how, number in counts.items() if number]
    if told["values"]:
        said.append(f"{len(told['values'])} values changed")
    if silent := told["nodes"]["fell_silent"]:
        said.append(f"{len(silent)} fell silent")
    word = {0: "NO WORSE", 1: "WORSE", 3: "COULD NOT TELL"}[told["exit_status"]]
    nodes = f"{both} node{'' if both == 1 else 's'} compared"
    return f"{word}: {', '.join([nodes, *said]) if said else f'{nodes}, nothing changed'}"

"""What `preflight read` says to a person: each part by its lines and kind, then what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.reports.sanitize import one_line, visible
from preflight.reports.text_layout import Listing, Paragraph, Part, typeset
from preflight.reports.text_report import COLOUR, WORD

#: Lines of a part that are listed as cut; the rest is counted, and in the JSON.
_MOST_CUT = 20


def render(document: Mapping[str, Any], kinds: str, *, colour: bool = False, width: int = 100) -> str:
    """Return the document as text; ``kinds`` names what would have been recognised."""
    parts: list[Part] = []
    for source in document["sources"]:
        parts.append(Paragraph(((("\n" if parts else "") + one_line(source["name"]), "bold"),)))
        for part in source["parts"]:
            parts += _part(part)
        if not source["parts"]:
            said = f"  nothing in it was recognised; known are the outputs of {kinds}, as a whole or cut"
            parts.append(Paragraph(((said, COLOUR["unknown"]),)))
    return typeset(parts, colour=colour, width=width)


def _part(part: Mapping[str, Any]) -> list[Part]:
    first, last = part["lines"]
    where = f"lines {first}-{last}" if first != last else f"line {first}"
    writer = f"  {one_line(part['writer'])}" if part["writer"] else ""
    head = ((f"  {where}  ", "dim"), (part["kind"], "bold"), (writer, ""), (f"  {one_line(part['summary'])}", ""))
    rows = [("cut", f"line {cut['line']}: {one_line(cut['what'])}", "yellow") for cut in part["cut"][:_MOST_CUT]]
    if (more := len(part["cut"]) - _MOST_CUT) > 0:
        rows.append(("cut", f"and {more} more; --json lists them", "yellow"))
    told: list[Part] = [Paragraph(head)]
    if rows:
        told.append(Listing(tuple(rows)))
    passed = []
    for finding in part["findings"]:
        if finding["status"] == "pass":
            passed.append(finding["check"])
            continue
        word = f"    {WORD[finding['status']]:<5} "
        told.append(Paragraph((
            (word, COLOUR[finding["status"]]), (one_line(finding["message"]), ""), (f"  [{finding['check']}]", "dim"),
        )))  # fmt: skip
        lines = [
            (label, visible(finding[key]), "")
            for label, key in (("found", "found"), ("expected", "expected"), ("why", "why"), ("next", "fix"))
            if finding[key]
        ]
        told.append(Listing(tuple(lines)))
    if passed:
        told.append(Paragraph(((f"    passed: {', '.join(passed)}", "green"),)))
    return told

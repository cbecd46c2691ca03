"""Text output of `preflight read`: parts with lines, formats and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.reports.recognition_answer import ALL_SOURCES, alike_of, answer, findings, one_message
from preflight.reports.sanitize import one_line, visible
from preflight.reports.text_layout import Listing, Paragraph, Part, typeset
from preflight.reports.text_report import COLOUR, WORD

#: Maximum number of truncated lines listed per part; the rest is counted (--json lists all).
_MOST_CUT = 20

#: Maximum number of unrecognised sources in the first line.
_FEW = 3

#: Columns before the message of a finding: its status.
_HANG = len("    FAIL  ")

#: Labels and keys of a finding's details.
_DETAILS = (("found", "found"), ("expected", "expected"), ("why", "why"), ("next", "fix"))


def render(document: Mapping[str, Any], *, colour: bool = False, width: int = 100) -> str:
    """Return the document as text."""
    parts = _answer(document)
    if together := document.get("findings"):
        parts.append(Paragraph(((("\n" if parts else "") + ALL_SOURCES, "bold"),)))
        parts += [Paragraph((("    pass  ", "green"), (one_line(finding["message"]), "")), hang=_HANG)
                  for finding in together if finding["status"] == "pass"]  # fmt: skip
        parts += _findings([finding for finding in together if finding["status"] != "pass"])
    for source in document["sources"]:
        parts.append(Paragraph(((("\n" if parts else "") + one_line(source["name"]), "bold"),)))
        parts += [
            Paragraph(((f"  not read: {one_line(what)}", COLOUR["unknown"]),), hang=4)
            for what in source.get("unread", ())
        ]
        for part in source["parts"]:
            parts += _part(part)
        if not source["parts"]:
            parts += _unrecognised(source)
    return typeset(parts, colour=colour, width=width)


def _answer(document: Mapping[str, Any]) -> list[Part]:
    """Return the verdict, a remark, and one command."""
    missing = not_judged(document)
    found = answer(document, missing)
    incomplete = [Paragraph(((f"NOT JUDGED: {missing}", COLOUR["unknown"]),))] if missing else []
    parts: list[Part] = []
    if not missing or any(finding["status"] != "pass" for _, finding in findings(document)):
        parts.append(Paragraph(((f"{WORD[found.status]}: ", COLOUR[found.status]), (found.verdict, ""))))
    parts += incomplete
    if found.rest:
        parts.append(Paragraph(((found.rest, ""),)))
    parts.append(Paragraph((("Next: ", "bold"), (one_line(found.command or found.step), "")), hang=len("Next: ")))
    return parts


def _unrecognised(source: Mapping[str, Any]) -> list[Part]:
    """Return a guess at the text, and what to paste instead."""
    guess = source.get("guess") or {}
    if guess.get("looks_like") == "an empty text":
        return [Paragraph((("  empty: name a file, or pipe a tool's output into `preflight read -`", "dim"),))]
    looks = f": it looks like {guess['looks_like']}" if guess.get("looks_like") else ""
    parts: list[Part] = [Paragraph(((f"  not recognised{looks}", COLOUR["unknown"]),))]
    if guess:
        run = "; ".join(one_line(command) for command in guess["run"])
        parts.append(Paragraph(((f"  paste instead, from its first line: {run}", ""),), hang=4))
    parts.append(Paragraph((("  known formats: `preflight read --help`", "dim"),)))
    return parts


def not_judged(document: Mapping[str, Any]) -> str:
    """Describe what was not judged; empty if everything was, or if a check failed."""
    sources = document["sources"]
    parts = [part for source in sources for part in source["parts"]]
    statuses = [finding["status"] for _, finding in findings(document)]
    blank = sum(not part["judged"] for part in parts)
    strange = [one_line(source["name"]) for source in sources if not source["parts"]]
    if "fail" in statuses:
        return ""
    if not parts:
        return "nothing was recognised, so nothing was judged"
    reasons = [f"nothing was recognised in {', '.join(strange[:_FEW])}{', ...' if strange[_FEW:] else ''}"] * bool(
        strange
    )
    if blank == len(parts):
        reasons.append("the recognised parts contain nothing to judge")
    elif blank:
        reasons.append(f"{blank} of {len(parts)} parts {'was' if blank == 1 else 'were'} not judged")
    if any(source.get("unread") for source in sources):
        reasons.append("a source was not read in full")
    if cut := sum(part["judged"] and not part.get("read_in_full", True) for part in parts):
        reasons.append(
            f"{cut} of {len(parts)} parts {'is' if cut == 1 else 'are'} truncated: the missing lines may show a fault"
        )
    return "; ".join(reasons)


def _part(part: Mapping[str, Any]) -> list[Part]:
    first, last = part["lines"]
    where = f"lines {first}-{last}" if first != last else f"line {first}"
    writer = f"  {one_line(part['writer'])}" if part["writer"] else ""
    head = ((f"  {where}  ", "dim"), (part["kind"], "bold"), (writer, ""), (f"  {one_line(part['summary'])}", ""))
    rows = [("cut", f"line {cut['line']}: {one_line(cut['what'])}", "yellow") for cut in part["cut"][:_MOST_CUT]]
    if (more := len(part["cut"]) - _MOST_CUT) > 0:
        rows.append(("cut", f"and {more} more; --json lists them", "yellow"))
    paragraphs: list[Part] = [Paragraph(head, hang=4)]
    if rows:
        paragraphs.append(Listing(tuple(rows)))
    if not part["judged"]:
        paragraphs.append(Paragraph((("    not judged: this part contains nothing to judge", COLOUR["unknown"]),)))
    return paragraphs + _findings(part["findings"])


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[Part]:
    paragraphs: list[Part] = []
    reported = {finding["check"] for finding in findings if finding["status"] != "pass"}
    passed = dict.fromkeys(finding["check"] for finding in findings if finding["check"] not in reported)
    for same in _alike(findings):
        for group in alike_of(same):
            finding = group[0]
            word = f"    {WORD[finding['status']]:<5} "
            paragraphs.append(Paragraph((
                (word, COLOUR[finding["status"]]), (one_message(group), ""),
                (f"  [{finding['check']}]", "dim"),
            ), hang=_HANG))  # fmt: skip
        lines = [(label, visible(same[0][key]), "") for label, key in _DETAILS if same[0][key]]
        paragraphs.append(Listing(tuple(lines)))
    if passed:
        paragraphs.append(Paragraph(((f"    passed: {', '.join(passed)}", "green"),), hang=len("    passed: ")))
    return paragraphs


def _alike(findings: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the findings of one check whose details are the same, in order."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for finding in findings:
        if finding["status"] != "pass":
            details = (finding["status"], finding["check"], *(finding[key] for _, key in _DETAILS))
            groups.setdefault(details, []).append(finding)
    return list(groups.values())

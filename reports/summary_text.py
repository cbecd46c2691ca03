"""The first screen of a report: verdict, ten incidents, changes, next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.reports.history_text import summary
from preflight.reports.sanitize import RUN, fold, one_line, short
from preflight.reports.text_layout import Listing, Paragraph, Part, typeset
from preflight.reports.text_report import COLOUR, heading, unanswered
from preflight.reports.verdict_line import bare_nodes, headline

#: Maximum numbers of incidents in the table, and of unknown results below it; the rest is counted.
SHOWN, UNKNOWN_SHOWN = 10, 3

#: Minimum number of incidents in the table, however small the screen is.
FEWEST = 5

#: Display text of each impact in the table.
IMPACT = {
    "blocks-job": "blocks job",
    "slows-job": "slows job",
    "loses-redundancy": "redundancy",
    "drifts": "drifts",
}

#: Next step if the only problem is that nodes did not answer.
_UNANSWERED = (
    "remove the reason, then check these nodes again (`preflight check --rerun REPORT`); until then, exclude them "
    "from jobs"
)

#: The option in the next step of a result that is unknown because the time of the run was over.
_DEADLINE = "--deadline"

#: The exit status if no gating check failed, but one is unknown.
_NOT_JUDGED = 3

#: Indentation of the last lines.
_LABELS = 13

#: Widths of the columns `#`, impact and owner, and maximum width of the node column.
_NUMBER, _IMPACT, _OWNER, _WHERE = 3, 10, 7, 20


def render(
    report: Mapping[str, Any], *, colour: bool = False, width: int = 100, more: str = "", height: int | None = None
) -> str:
    """Return the first screen; ``more`` is the command that shows an incident.

    Fewer than ten incidents are listed if the screen would exceed ``height`` lines, but at least five.
    """
    aside = more and len(more) > width - _LABELS  # a wrapped command cannot be pasted

    def screen(listed: int) -> str:
        text = typeset(_parts(report, width, "" if aside else more, listed), colour=colour, width=width)
        return f"{text}{one_line(more)}\n" if aside and report.get("incidents") else text

    text = screen(SHOWN)
    listed, lines = min(SHOWN, len(report.get("incidents", ()))), text.count("\n")
    if height is None or lines <= height or listed <= FEWEST:
        return text
    counted = listed == len(report["incidents"])  # a shorter table adds a line that counts the rest
    return screen(max(FEWEST, listed - (lines + counted - height)))


def where(nodes: Sequence[str], most: int = _WHERE) -> str:
    """Return the nodes of an incident, folded or counted."""
    folded = fold(nodes)
    if len(folded) <= most:
        return folded
    return (
        "the run's logs" if list(nodes) == [RUN] else short(folded, most) if len(nodes) == 1 else f"{len(nodes)} nodes"
    )


def unexplained(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the unknown findings that belong to no incident, gating ones first."""
    explained = {number for incident in report.get("incidents", ()) for number in incident["findings"]}
    left = [
        finding
        for number, finding in enumerate(report["findings"])
        if finding["status"] == "unknown" and number not in explained
    ]
    return sorted(left, key=lambda finding: not finding.get("gating", True))


def _parts(report: Mapping[str, Any], width: int, more: str, listed: int) -> list[Part]:
    if nothing := _nothing_here(report):
        return nothing
    incidents: Sequence[Mapping[str, Any]] = report.get("incidents", ())
    parts: list[Part] = [*heading(report, width=width), *unanswered(report["nodes"], width)]
    if incidents:
        parts += table(report, width, range(min(listed, len(incidents))))
        if (rest := len(incidents) - listed) > 0:
            parts.append(Paragraph(((f"{'':>{_NUMBER}}  and {rest} more", "dim"),)))
    parts += _unknown(unexplained(report), width)
    if changed := summary(report):
        parts.append(Paragraph((("\n", ""), (short(changed, width), ""))))
    parts += _next(report, more)
    return parts


def table(report: Mapping[str, Any], width: int, numbers: Sequence[int]) -> list[Part]:
    """Return a table of some of the incidents, one line each."""
    shown = [(number + 1, report["incidents"][number]) for number in numbers]
    places = {number: _place(report, incident) for number, incident in shown}
    place = max([5, *(len(at) for at, _ in places.values())])
    room = max(20, width - _NUMBER - _IMPACT - _OWNER - place - 8)
    head = f"\n{'#':>{_NUMBER}}  {'impact':<{_IMPACT}}  {'where':<{place}}  {'what':<{room}}  owner"
    parts: list[Part] = [Paragraph(((head, "bold"),))]
    for number, incident in shown:
        parts.append(
            Paragraph((
                (f"{number:>{_NUMBER}}  ", ""),
                (f"{IMPACT[incident['impact']]:<{_IMPACT}}  ", COLOUR[incident["status"]]),
                (f"{places[number][0]:<{place}}  ", "bold"),
                (f"{short(places[number][1], room):<{room}}  ", ""),
                (one_line(incident["owner"]), "dim"),
            ))
        )  # fmt: skip
    return parts


def _place(report: Mapping[str, Any], incident: Mapping[str, Any]) -> tuple[str, str]:
    """Return where an incident is and what happened; in a log, the line is the place."""
    title = str(incident["title"])
    evidence = report["findings"][incident["findings"][0]]["evidence"]
    for name in (key.removeprefix("log:") for key in evidence if list(incident["nodes"]) == [RUN]):
        if title.startswith(f"{name}:"):
            what = title.removeprefix(f"{name}:").lstrip("0123456789")
            at = one_line(title.removesuffix(what).removesuffix(":"))
            return at if len(at) <= _WHERE else f"…{at[1 - _WHERE :]}", what.lstrip(":, ").removeprefix("on ")
    return where(incident["nodes"]), title


def _unknown(findings: Sequence[Mapping[str, Any]], width: int) -> list[Part]:
    """Return up to three gating unknown results, and the number of further ones.

    Results that the deadline of the run prevented share one line.
    """
    gating = [finding for finding in findings if finding.get("gating", True)]
    if not gating:
        return []
    late = [finding for finding in findings if _DEADLINE in finding["fix"]]
    rows = []
    if late:
        nodes = list(dict.fromkeys(name for finding in late for name in finding["nodes"]))
        of_results = f"{len(late)} result{'s' * (len(late) > 1)}"
        rows.append((nodes, f"the time ran out: set a longer {_DEADLINE}", of_results))
        gating = [finding for finding in gating if _DEADLINE not in finding["fix"]]
    listed = gating[: UNKNOWN_SHOWN - len(rows)]
    rows += [(finding["nodes"], finding["message"], finding["check"]) for finding in listed]
    parts: list[Part] = [Paragraph((("\nUnknown", "bold"),))]
    for nodes, message, about in rows:
        at = where(nodes)
        text = short(message, max(20, width - len(at) - len(about) - 12))
        parts.append(Paragraph((("  ? ", COLOUR["unknown"]), (f"{at}  ", "bold"), (text, ""), (f"  [{about}]", "dim"))))
    if (rest := len(findings) - len(late) - len(listed)) > 0:
        parts.append(Paragraph(((f"    and {rest} more", "dim"),)))
    return parts


def _next(report: Mapping[str, Any], more: str) -> list[Part]:
    rows, incidents = [], report.get("incidents", ())
    if incidents:
        rows.append(("next", one_line(f"1: {incidents[0]['next']}"), ""))  # never truncated: a command to copy
    elif any(node.get("no_answer") for node in report["nodes"]):
        rows.append(("next", _UNANSWERED, ""))
    elif report["exit_status"] == _NOT_JUDGED:
        gaps = [finding["fix"] for finding in unexplained(report) if finding.get("gating", True) and finding["fix"]]
        late = [step for step in gaps if _DEADLINE in step]
        rows += [("next", one_line(step), "") for step in (late or gaps)[:1]]
    rows.append(("more", more if more and incidents else "-v lists every finding and check", "dim"))
    return [Listing(tuple(rows))]


def _nothing_here(report: Mapping[str, Any]) -> list[Part]:
    """Return three lines if no machine has a GPU or RDMA NIC, and nothing failed."""
    bare = bare_nodes(report)
    names = [node["name"] for node in report["nodes"]]
    failing = any(incident["status"] == "fail" for incident in report.get("incidents", ()))
    if not names or failing or report["exit_status"] != 3 or set(bare) != set(names):
        return []
    hints = [short(incident["title"], 60) for incident in report.get("incidents", ())]
    coverage = report["coverage"]
    hint = f"; {len(hints)} hint{'s' * (len(hints) > 1)}: {hints[0]}" if hints else ""
    passed = f"{coverage['skipped']} of {coverage['planned']} checks do not apply, {coverage['passed']} passed{hint}"
    return [
        Paragraph(((headline(report), COLOUR["unknown"]),)),
        Paragraph(((passed, ""),)),
        Paragraph(
            (("example: preflight demo; all checks: -v; if intended: gpus = 0, hcas = 0 in a cluster file", "dim"),)
        ),
    ]

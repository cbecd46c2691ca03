"""Incidents in full and as lists, for terminals, scripts and chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from preflight.incidents.parts import Parts
from preflight.reports.markdown import code, plain, prose
from preflight.reports.sanitize import RUN, fold, one_line, short, visible
from preflight.reports.summary_text import IMPACT, table, where
from preflight.reports.text_layout import Listing, Paragraph, Part, typeset
from preflight.reports.text_report import COLOUR, finding_parts, unanswered, without_answer
from preflight.reports.verdict_line import headline

Incident = Mapping[str, Any]

#: Maximum length of a title in a note.
_TITLE = 100


def render(report: Mapping[str, Any], numbers: Sequence[int], *, colour: bool, width: int, by: str = "") -> str:
    """Return one incident in full, several as a table, or a table for each group."""
    if by:
        return typeset(_grouped(report, numbers, by, width), colour=colour, width=width)
    if len(numbers) != 1:
        return typeset(table(report, width, numbers), colour=colour, width=width)
    return typeset(_full(report, numbers[0]), colour=colour, width=width)


def places(report: Mapping[str, Any], node: str) -> list[int]:
    """Return the indices of a node's incidents, and of network incidents that name it.

    Names in findings of logs do not count, because a log also names healthy hosts.
    """
    name = _name(node)
    return [
        place
        for place, incident in enumerate(report["incidents"])
        if node in incident["nodes"]
        or any(
            name.search(f"{finding['subject']} {finding['message']}")
            for finding in (report["findings"][number] for number in incident["findings"])
            if incident["owner"] == "network" and finding["nodes"] != [RUN]
        )
    ]


def _name(node: str) -> re.Pattern[str]:
    """Return a pattern for the name of a node in a text."""
    return re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-]|\.\w)")


def without_incident(report: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return a line for each named node without an incident.

    It lists the incidents whose title names the node, and counts the checks that are unknown.
    """
    lines = []
    for node in report["nodes"]:
        if node["name"] in names and not places(report, node["name"]):
            silence = node.get("no_answer")
            named = [
                f"{number} ({short(incident['title'], _TITLE)})"
                for number, incident in enumerate(report["incidents"], 1)
                if _name(node["name"]).search(incident["title"])
            ]
            why = f"no incident of its own; named in incident {', '.join(named[:3])}" if named else "no incident"
            unknown = list(node["checks"].values()).count("unknown")
            why += f"; {unknown} check{'s' * (unknown > 1)} unknown" if unknown else ""
            if silence:
                why = f"no answer: {silence.get('reason', '')}"
            lines.append(f"{one_line(node['name'])}: {one_line(why)}\n")
    return lines


def no_answer(report: Mapping[str, Any], *, colour: bool, width: int) -> str:
    """Return a line for each reason why nodes did not answer."""
    return typeset(unanswered(report["nodes"]), colour=colour, width=width)


def lines(report: Mapping[str, Any], numbers: Iterable[int]) -> str:
    """Return a line for each incident, its fields separated by tabs."""
    chosen = (report["incidents"][number] for number in numbers)
    return "".join(
        "\t".join((entry["fingerprint"], entry["status"], entry["impact"], entry["owner"], fold(entry["nodes"]),
                   one_line(entry["title"]))) + "\n"
        for entry in chosen
    )  # fmt: skip


def markdown(report: Mapping[str, Any], numbers: Sequence[int]) -> str:
    """Return incidents as a Markdown list: fault, nodes, impact, owner and next step."""
    pieces = []
    for number in numbers:
        incident = report["incidents"][number]
        cost = f" ({incident['cost']})" if incident["cost"] else ""
        pieces.append(
            f"- **{plain(incident['title'])}** on {code(fold(incident['nodes']))}: "
            f"{IMPACT[incident['impact']]}{cost}, owner: {incident['owner']}\n"
            f"  - next: {prose(incident['next'])}\n"
        )
    return "".join(pieces)


def document(report: Mapping[str, Any], layout: str) -> str:
    """Return the verdict, missing answers and incidents, as ``line`` or ``md``.

    The verdict is the first line. In ``line``, it and each reason for a missing answer have the fields of an incident.
    """
    verdict, numbers = one_line(headline(report)), range(len(report["incidents"]))
    silent = [
        (fold(names), f"{reason} ({phase})" if phase else reason)
        for (phase, reason), names in without_answer(report["nodes"]).items()
    ]
    if layout == "md":
        mute = "".join(f"- **no answer** from {code(names)}: {plain(reason)}\n" for names, reason in silent)
        return f"**{plain(verdict)}**\n\n{mute}{markdown(report, numbers)}"
    status = {0: "pass", 1: "fail"}.get(report["exit_status"], "unknown")
    rows = [(status, "-", verdict), *(("unknown", names, f"no answer: {one_line(reason)}") for names, reason in silent)]
    return "".join(f"-\t{status}\t-\t-\t{names}\t{text}\n" for status, names, text in rows) + lines(report, numbers)


def _full(report: Mapping[str, Any], number: int) -> list[Part]:
    incident = report["incidents"][number]
    rows = [
        ("impact", IMPACT[incident["impact"]] + (f": {incident['cost']}" if incident["cost"] else ""), ""),
        ("owner", one_line(incident["owner"]), ""),
        ("nodes", f"{one_line(fold(incident['nodes']))} ({len(incident['nodes'])})", ""),
        ("since", one_line(incident["first_seen"] or ""), ""),
        ("next", visible(incident["next"]), ""),
        ("id", incident["fingerprint"], "dim"),
    ]
    title = Paragraph((
        (f"{number + 1}  ", "bold"), (incident["status"].upper(), COLOUR[incident["status"]]), ("  ", ""),
        (one_line(incident["title"]), "bold"),
    ), hang=3)  # fmt: skip
    parts: list[Part] = [title, Listing(tuple(row for row in rows if row[1]))]
    for place in incident["findings"]:
        parts += finding_parts(report["findings"][place])
    return parts


def _grouped(report: Mapping[str, Any], numbers: Sequence[int], by: str, width: int) -> list[Part]:
    groups: dict[str, list[int]] = {}
    for number in numbers:
        for name in _groups_of(report, report["incidents"][number], by):
            groups.setdefault(name, []).append(number)
    parts: list[Part] = []
    for name, members in groups.items():
        parts.append(Paragraph(((f"\n{one_line(where([name]))}", "bold"),)))
        parts += table(report, width, members)
    return parts


def _groups_of(report: Mapping[str, Any], incident: Incident, by: str) -> Iterable[str]:
    if by == "node":
        return list(incident["nodes"])
    if by in ("rack", "leaf"):
        nodes = {node["name"]: node for node in report["nodes"]}
        hit = [nodes[name] for name in incident["nodes"] if name in nodes]
        places = _racks(hit) if by == "rack" else _leaves(hit, incident["subjects"])
        return sorted(places) or [f"no {by} known"]
    if by == "owner":
        return [incident["owner"]]
    return [report["findings"][incident["findings"][0]]["check"]]


def _racks(nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    return {f"rack {node['rack']}" for node in nodes if node.get("rack")}


def _leaves(nodes: Iterable[Mapping[str, Any]], subjects: Sequence[str]) -> set[str]:
    """Return the leaves of an incident's ports, from LLDP."""
    parts = [Parts.of(node) for node in nodes]
    return {leaf for part in parts for subject in subjects if (leaf := part.leaf(subject))}

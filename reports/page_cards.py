"""The findings of a report for a page: one card per check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.reports.pass_scope import Standings
from preflight.reports.sanitize import fold

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Instance:
    """One finding of a card: nodes, message and evidence."""

    nodes: str
    node_count: int
    finding: Document
    why: str  # empty if all findings of the card share it
    fix: str
    evident: bool  # whether to show its evidence; false if the next instance shows the same


@dataclass(frozen=True)
class CheckCard:
    """All findings of one check with the same status."""

    ident: str
    check: str
    title: str
    status: str
    gating: bool
    nodes: str
    node_count: int
    why: str
    fix: str
    instances: tuple[Instance, ...]
    members: tuple[str, ...]  # names of its nodes
    aim: str = ""  # the check's title, if ``title`` states the fault instead
    share: str = ""  # share of the nodes, if not all have this status: "7 of 8"


def quiet(report: Document, status: str) -> tuple[CheckCard, ...]:
    """Group passed or skipped checks, with the share of nodes if some differ."""
    standings = Standings(report)
    return tuple(
        card if standings.everywhere(card.check, status) else replace(card, share=standings.share(card.check, status))
        for card in cards(report["findings"], status)
        if standings.has(card.check, status)
    )


def cards(findings: Sequence[Document], status: str) -> tuple[CheckCard, ...]:
    """Group the findings of a status by check, in report order."""
    groups: dict[str, list[Document]] = {}
    for finding in findings:
        if finding["status"] == status:
            groups.setdefault(finding["check"], []).append(finding)
    return tuple(_card(f"{status}-{number}", group) for number, group in enumerate(groups.values(), 1))


def _card(ident: str, group: Sequence[Document]) -> CheckCard:
    first = group[0]
    title = _title(group)
    why, fix = _shared(group, "why"), _shared(group, "fix")
    nodes = _union(group)
    return CheckCard(
        ident=ident,
        check=first["check"],
        title=title,
        status=first["status"],
        gating=all(finding.get("gating", True) for finding in group),
        nodes=fold(nodes),
        node_count=len(nodes),
        why=why,
        fix=fix,
        members=tuple(nodes),
        instances=tuple(
            Instance(
                fold(finding["nodes"]),
                len(finding["nodes"]),
                finding,
                "" if why else finding["why"],
                "" if fix else finding["fix"],
                following is None or _rests_on(finding) != _rests_on(following),
            )
            for finding, following in zip(group, (*group[1:], None), strict=True)
        ),
        aim="" if title.endswith(first["title"]) else first["title"],
    )


def _title(group: Sequence[Document]) -> str:
    """Return the check's title; for a problem, its fault, message or negated title."""
    first = group[0]
    if first["status"] not in ("fail", "warn"):
        return str(first["title"])
    if fault := first.get("fault"):
        return str(fault)
    if len({finding["message"] for finding in group}) == 1:
        return str(first["message"])
    return f"not met: {first['title']}"


def _rests_on(finding: Document) -> tuple[object, object]:
    return finding["evidence"], finding.get("excerpts")


def _shared(group: Sequence[Document], key: str) -> str:
    values = {finding[key] for finding in group}
    return str(values.pop()) if len(values) == 1 else ""


def _union(group: Iterable[Document]) -> list[str]:
    return list(dict.fromkeys(name for finding in group for name in finding["nodes"]))


@dataclass(frozen=True)
class Gap:
    """Unknown findings with the same fix."""

    ident: str
    members: tuple[str, ...]  # names of its nodes
    fix: str
    results: int
    cards: tuple[CheckCard, ...]


def gaps(findings: Sequence[Document]) -> tuple[Gap, ...]:
    """Group the unknown findings by fix, the largest group first."""
    groups: dict[str, list[Document]] = {}
    for finding in findings:
        if finding["status"] == "unknown":
            groups.setdefault(finding["fix"], []).append(finding)
    made = []
    for number, (fix, group) in enumerate(groups.items(), 1):
        inside = cards(group, "unknown")
        renamed = tuple(CheckCard(**{**vars(card), "ident": f"gap-{number}-{card.ident}"}) for card in inside)
        results = sum(len(finding["nodes"]) for finding in group)
        made.append(Gap(f"gap-{number}", tuple(_union(group)), fix, results, renamed))
    return tuple(sorted(made, key=lambda gap: -gap.results))


def anchors(failures: Sequence[CheckCard], warnings: Sequence[CheckCard], unknown: Sequence[Gap]) -> dict[str, str]:
    """Return the fragment on the page for each check id: that of its most urgent card."""
    found: dict[str, str] = {}
    for card in (*failures, *_inside(unknown), *warnings):
        found.setdefault(card.check, card.ident)
    return found


def _inside(unknown: Sequence[Gap]) -> Iterator[CheckCard]:
    for gap in unknown:
        yield from gap.cards

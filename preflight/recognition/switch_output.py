"""Pasted sessions of switches, and SONiC databases.

One paste shows one switch, so only checks of a single switch judge it. Checks that need both ends of a cable run with
``judge --switch-files``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.checks import registry
from preflight.evidence.document import SWITCH, Evidence
from preflight.facts.switch import eos, junos, linux, nxos, sonic
from preflight.judge import findings
from preflight.model import counted
from preflight.parsers.parsed import ParseGap
from preflight.parsers.switch import redis_dump, session, sonic_tables
from preflight.recognition.detector import ParsedPart, TextPart, parts
from preflight.recognition.evaluate import add_findings
from preflight.recognition.formats import kinds
from preflight.textprep.lines import Lines, lines_of

EOS_SESSION, NXOS_SESSION, JUNOS_SESSION = "eos session", "nxos session", "junos session"
LINUX_SESSION, SONIC_SESSION, SONIC_DUMP, TABLE = (
    "linux switch session",
    "sonic session",
    "sonic database",
    "switch show",
)
#: Maximum number of lines of an answer, of those above its table, and of tables in one session.
_LONGEST, _HEAD, _MOST_TABLES = 5000, 8, 100
_SESSIONS = {"eos": (EOS_SESSION, eos.facts), "nxos": (NXOS_SESSION, nxos.facts), "junos": (JUNOS_SESSION, junos.facts),
             "linux": (LINUX_SESSION, linux.facts), "sonic": (SONIC_SESSION, sonic.facts)}  # fmt: skip
#: What a session of a switch contains: a prompt with a command, or a command that is only on switches.
_SIGNS = ("#sh", ">sh", "# sh", "> sh", "vtysh -c", "sonic-db-dump", "config_db.json")

#: Prefixes of the ids of switch checks that compare a switch with other switches or with hosts.
_OF_SEVERAL = ("link.", "ethernet.", "fabric.", "switch.answers", "switch.hash", "switch.rail-traffic",
               "switch.uplink-balance")  # fmt: skip


def read_switch(text: str, source: str) -> list[TextPart]:
    """Return a session or dump as a judged part; empty for any other text."""
    if sonic_tables.may_be_dump(text):
        return _dump(text, source)
    return _session(text) if any(sign in text for sign in _SIGNS) else []


def _session(text: str) -> list[TextPart]:
    if (pasted := session.recorded(text)) is None:
        return []
    platform, shown, answers = pasted
    records = platform.records(answers)
    if not any(record["status"] == "ok" for record in records.values()):
        return []
    lines = text.splitlines()
    gaps = [ParseGap(shown.first, record["why"]) for _, record in answers if record["status"] != "ok"]
    tables, unread = _tables(lines_of(text), shown.unread)
    gaps += [ParseGap(number, f"the output of `{command[:60]}` is not read", True) for number, command in unread]
    if any(line.strip() for line in lines[: shown.first - 1]):
        gaps.append(ParseGap(1, "the text before the session is not read", True))
    evidence = Evidence(shown.name, "", records, kind=SWITCH, platform=platform.name)
    kind, of = _SESSIONS[platform.name]
    switch = of(evidence)
    if platform.name == "linux" and not switch.ports:  # any host answers these commands
        return []
    facts = {"name": shown.name, "model": switch.model, "answers": sorted(records), "ports": len(switch.ports),
             "ports_up": sum(port.up is True for port in switch.ports.values())}  # fmt: skip
    summary = (
        f"{platform.title} switch {shown.name}: {counted(len(dict(answers)), 'answer')}, "
        f"{counted(len(switch.ports), 'port')}"
    )
    return [_part(kind, text, evidence, ParsedPart(len(lines), facts, summary, gaps)), *tables]


def _tables(lines: Lines, unread: Sequence[tuple[int, str]]) -> tuple[list[TextPart], list[tuple[int, str]]]:
    """Return the unread answers that are tables of ports, and the other unread ones."""
    kind = next(kind for kind in kinds() if kind.name == TABLE)
    tables: list[TextPart] = []
    rest: list[tuple[int, str]] = []
    for number, command in unread:
        head = range(number, min(number + _HEAD, len(lines)))
        begin = next((at for at in head if kind.matches(lines, at)), None) if len(tables) < _MOST_TABLES else None
        part = next(parts(lines[number - 1 : number + _LONGEST], "", (kind,)), None) if begin is not None else None
        if part is None:
            rest.append((number, command))
        else:
            tables.append(part)
    add_findings(tables, "")
    return tables, rest


def _dump(text: str, source: str) -> list[TextPart]:
    try:
        hashes = redis_dump.parse(text)
    except ValueError:
        return []
    database = sonic_tables.database(hashes)
    if database is None:
        return []
    records = {key: {"status": "ok", "value": value} for key, value in sonic_tables.records(database, hashes)}
    about = hashes.get("DEVICE_METADATA|localhost", {})
    evidence = Evidence(about.get("hostname") or source, "", records, kind=SWITCH, platform="sonic")
    tables = sorted(key.partition(" ")[2] for key, record in records.items() if record["value"])
    facts = {"name": about.get("hostname"), "database": database, "tables": tables,
             "ports": len(sonic.facts(evidence).ports)}  # fmt: skip
    summary = f"{database} of a SONiC switch: {counted(len(hashes), 'key')}"
    return [_part(SONIC_DUMP, text, evidence, ParsedPart(text.count("\n") + 1, facts, summary))]


def _part(kind: str, text: str, evidence: Evidence, taken: ParsedPart) -> TextPart:
    """Return a part with the findings that use its records."""
    checks = [check for check in registry().checks if check.switches and not check.id.startswith(_OF_SEVERAL)]
    shown = {f"{evidence.node} {key}" for key in evidence.records}
    return TextPart(kind, 1, taken.end, "", taken, text, [
        finding for finding in findings([evidence], checks) if _rests_on(finding, shown)
    ])  # fmt: skip


def _rests_on(finding: Mapping[str, Any], shown: set[str]) -> bool:
    return finding["status"] != "skip" and bool(shown & set(finding["evidence"]))

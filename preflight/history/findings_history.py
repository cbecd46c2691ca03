"""Findings compared with earlier runs: new, recurring, persistent, gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.history.store import HistoryStore, RecordedRun
from preflight.incidents.changes import changes, judged_of_all
from preflight.incidents.parts import signature
from preflight.model import IMPACTS

#: Days over which occurrences of a finding are counted.
WEEK_DAYS = 7

#: Maximum days by which a node's clock may be ahead of the run; evidence is always collected before it is judged.
_AHEAD_DAYS = 1

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

Key = tuple[str, str, str]  # node, check, subject

#: Run -> status and message of each finding of one key.
Failing = Mapping[int, Sequence[tuple[str, str]]]

#: Checks whose wording of one fault depends on the measurement, such as the counter that grew most.
_MEASURED = ("counters.", "trend.", "optics.", "bench.", "torch.", "serving.")

#: End of the words that name a fault: details follow.
_DETAILS = re.compile(r"[;,]| \(")

#: Endings and verbs that depend on a number: "1 error is", "2 errors are".
_NUMBER_WORDS = re.compile(r"(?<=[a-z]{2})s\b| (?:is|are|was|were|has|have)\b")


@dataclass(frozen=True)
class FindingHistory:
    """Earlier occurrences of one finding on one node."""

    since: str  # time of the first run of the current streak of this fault; empty if there is none
    previous: str  # time of the previous run in which the check was judged; empty if there is none
    times: int  # number of occurrences within a week, including this one

    def words(self, now: str) -> str:
        """Describe the occurrences: ``new since yesterday, third time this week``."""
        often = f", {_ordinal(self.times)} time this week" if self.times > 1 else ""
        if self.since:
            return f"since {_when(self.since, now)}{often}"
        if self.previous:
            return f"new since {_when(self.previous, now)}{often}"
        return ""


def at(report: Mapping[str, Any]) -> str:
    """Return the time at which a report's evidence was collected.

    It is the latest time of all nodes. Nodes whose clocks are more than a day ahead of the run are ignored, unless all
    are; otherwise, later runs would not be compared with this one.
    """
    judged = str(report["run"]["at"])
    latest = (_time(judged) + timedelta(days=_AHEAD_DAYS)).strftime(_FORM)
    times = [str(node["collected_at"]) for node in report["nodes"] if node.get("collected_at")]
    return max((time for time in times if time <= latest), default=max(times, default=judged))


def annotate(report: dict[str, Any], store: HistoryStore) -> None:
    """Add ``history`` to each finding that did not pass, and list gone findings."""
    now, version = at(report), str(report["run"]["version"])
    since = (_time(now) - timedelta(days=WEEK_DAYS)).strftime(_FORM)
    recorded = store.runs()
    runs = [run for run in recorded if run.at < now]
    answered = store.answered([run.id for run in runs])
    failing_runs: dict[Key, set[int]] = {}
    for run_id, node, check, subject in store.failures():
        failing_runs.setdefault((node, check, subject), set()).add(run_id)
    report["history"] = {
        "file": str(store.path), "runs": len(runs), "previous": runs[0].at if runs else None,
        "later": sum(run.at > now for run in recorded),
    }  # fmt: skip
    current: set[Key] = set()
    not_passed = [finding for finding in report["findings"] if finding["status"] not in ("pass", "skip")]
    for finding, earlier in _with_messages(not_passed, store):
        groups: dict[FindingHistory, list[str]] = {}
        for node in finding["nodes"]:
            key = node, finding["check"], finding["subject"]
            current.add(key)
            past = _past(key, finding, earlier.get((node, finding["subject"]), {}), runs, answered, since, version)
            groups.setdefault(past, []).append(node)
        entries = [
            {"nodes": nodes, "since": past.since or None, "previous": past.previous or None, "times": past.times,
             "new": not past.since, "said": words}
            for past, nodes in groups.items() if (words := past.words(now))
        ]  # fmt: skip
        if entries:
            finding["history"] = entries
    report["history"]["gone"] = _gone(report, current, runs, answered, failing_runs)
    if runs:
        report["history"]["incidents"] = _incident_changes(report, runs, answered)
    for incident in report.get("incidents", ()):
        incident["first_seen"] = first_seen(report, incident) or now


def _with_messages(
    findings: Sequence[dict[str, Any]], store: HistoryStore
) -> Iterator[tuple[dict[str, Any], Mapping[tuple[str, str], Failing]]]:
    """Yield findings grouped by check, with its earlier ones by node and subject."""
    for check in dict.fromkeys(finding["check"] for finding in findings):
        earlier: dict[tuple[str, str], dict[int, list[tuple[str, str]]]] = {}
        for run, node, subject, status, message in store.messages(check):
            earlier.setdefault((node, subject), {}).setdefault(run, []).append((status, message))
        yield from ((finding, earlier) for finding in findings if finding["check"] == check)


def _past(
    key: Key, finding: Mapping[str, Any], failing: Failing, runs: Sequence[RecordedRun],
    answered: Mapping[int, frozenset[str]], week: str, version: str,
) -> FindingHistory:  # fmt: skip
    node, check, _ = key
    if node.startswith("@"):
        judged = [run for run in runs if check in run.judged_of_all.get(node, ())]
    else:
        judged = [run for run in runs if check in run.checks and node in answered[run.id]]
    same = {
        run.id for run in judged
        if run.id in failing and (run.version != version or same_fault(finding, failing[run.id]))
    }  # fmt: skip
    streak = 0
    while streak < len(judged) and judged[streak].id in same:
        streak += 1
    since = judged[streak - 1].at if streak else ""
    times = 0 if since >= week else 1  # started before this week, or just now
    for place, run in enumerate(judged):
        older = judged[place + 1] if place + 1 < len(judged) else None
        times += run.at >= week and run.id in same and not (older and older.id in same)
    return FindingHistory(since, judged[0].at if judged else "", times)


def same_fault(finding: Mapping[str, Any], before: Sequence[tuple[str, str]]) -> bool:
    """Return whether an earlier run reported this fault, not another of the same part.

    Messages of unknown results and of measurements are not compared.
    """
    message, subject = finding["message"], finding["subject"]
    if finding["check"].startswith(_MEASURED) or finding["status"] == "unknown":
        return True
    return any(
        status == "unknown" or earlier == message or _fault(earlier, subject) == _fault(message, subject)
        for status, earlier in before
    )


@lru_cache(maxsize=4096)
def _fault(message: str, subject: str) -> str:
    """Return the words of a message that name the fault, without figures and devices."""
    return _NUMBER_WORDS.sub("", _DETAILS.split(signature(message, subject), maxsplit=1)[0])


def _incident_changes(
    report: Mapping[str, Any], runs: Sequence[RecordedRun], answered: Mapping[int, frozenset[str]]
) -> list[dict[str, Any]]:
    """Return the changes in incidents since each node's last run.

    Older versions recorded no incidents, so their runs are not compared.
    """
    now: dict[str, Collection[str]] = {
        node["name"]: node["checks"] for node in report["nodes"] if not node.get("no_answer")
    }
    now.update(judged_of_all(report))
    before: dict[str, dict[str, Any]] = {}
    then: dict[str, frozenset[str]] = {}
    for run in runs:  # the newest first
        last = (answered[run.id] | run.judged_of_all.keys()) & now.keys() - then.keys()
        if not last and then:
            continue
        incidents = _of_record(run.record)
        if incidents is None:
            continue
        for incident in incidents:
            nodes = [name for name in incident["nodes"] if name in last]
            if nodes:
                merged = before.setdefault(incident["fingerprint"], {**incident, "nodes": []})
                merged["nodes"] += nodes
        then.update({name: run.judged_of_all.get(name, run.checks) for name in last})
        if then.keys() >= now.keys():
            break
    return changes(list(before.values()), report, then, now) if then else []


def _of_record(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the incidents in a run's record; None if absent or malformed."""
    incidents = record.get("incidents")
    texts, lists = ("fingerprint", "title", "status", "impact", "owner", "check"), ("nodes", "subjects")
    if not isinstance(incidents, list):
        return None
    for incident in incidents:
        sound = isinstance(incident, dict) and incident.get("impact") in IMPACTS
        if not sound or not all(isinstance(incident.get(key), str) for key in texts):
            return None
        values = [incident.get(key) for key in lists] + [incident.get("checks", [])]  # older records have no checks
        if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in values):
            return None
    return incidents


def first_seen(report: Mapping[str, Any], incident: Mapping[str, Any]) -> str:
    """Return the time of the first run with an incident; empty if it is new.

    An incident is as old as its cause. If the cause was not judged before, the incident's oldest finding decides.
    """
    findings = [report["findings"][number] for number in incident["findings"]]
    cause = [finding for finding in findings if finding["check"] == findings[0]["check"]]
    judged = any(entry["previous"] for finding in cause for entry in finding.get("history", ()))
    since = [
        entry["since"]
        for finding in (cause if judged else findings)
        if finding["status"] in ("fail", "warn")
        for entry in finding.get("history", ())
        if entry["since"]
    ]
    return min(since, default="")


def _gone(
    report: Mapping[str, Any], current: set[Key], runs: Sequence[RecordedRun], answered: Mapping[int, frozenset[str]],
    failing_runs: Mapping[Key, set[int]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the findings of each node's last run that are gone, if judged again."""
    judged = {node["name"]: node["checks"] for node in report["nodes"] if not node.get("no_answer")}
    found: dict[tuple[str, str], list[str]] = {}
    last: dict[str, int] = {}
    for run in reversed(runs):
        last.update(dict.fromkeys(answered[run.id], run.id))
    for (node, check, subject), run_ids in sorted(failing_runs.items()):
        if (node, check, subject) in current or check not in judged.get(node, ()):
            continue
        if judged[node][check] != "skip" and last.get(node) in run_ids:
            found.setdefault((check, subject), []).append(node)
    return [{"check": check, "subject": subject, "nodes": nodes} for (check, subject), nodes in found.items()]


def _time(at: str) -> datetime:
    try:
        return datetime.strptime(at, _FORM).replace(tzinfo=timezone.utc)
    except ValueError:
        return datetime.now(timezone.utc)


def _when(then: str, now: str) -> str:
    """Return a time relative to now, in UTC: ``yesterday``, ``14:05 today``.

    Older times are returned as dates.
    """
    days = (_time(now).date() - _time(then).date()).days
    if days == 0:
        return f"{then[11:16]} today"
    return "yesterday" if days == 1 else then[:10]


def _ordinal(number: int) -> str:
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"

"""Slurm jobs from ``squeue``, ``scontrol show job``, ``seff`` and Slurm's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.parsers.cluster.columns import cells, columns
from preflight.parsers.cluster.sacct import EndedJob
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt, json_at, json_head
from preflight.textprep.lines import Lines

#: Abbreviation of a job state in ``squeue`` -> job state.
STATES: Mapping[str, str] = {
    "PD": "PENDING", "R": "RUNNING", "CG": "COMPLETING", "CD": "COMPLETED", "F": "FAILED", "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY", "TO": "TIMEOUT", "CA": "CANCELLED", "BF": "BOOT_FAIL", "DL": "DEADLINE", "PR": "PREEMPTED",
    "S": "SUSPENDED", "CF": "CONFIGURING", "SE": "SPECIAL_EXIT", "RH": "RESV_DEL_HOLD", "RQ": "REQUEUED",
    "RF": "REQUEUE_FED", "RS": "RESIZING", "RV": "REVOKED", "ST": "STOPPED", "SI": "SIGNALING", "SO": "STAGE_OUT",
    "LF": "LAUNCH_FAILED", "RD": "RESV_DEL_HOLD", "EX": "EXPEDITING",
}  # fmt: skip
_LONG = frozenset(STATES.values())
_JOB = re.compile(r"\s*(\d{1,12}(?:_(?:\d{1,9}|\[[\d,%-]{1,80}\]))?(?:\+\d{1,6})?)(?=\s|\||$)")
_PAIR = re.compile(r"(?<!\S)([A-Z][\w/:]{1,30})=(\S*)")
_MOST_LINES = 100_000


def queue_begins(lines: Lines, at: int) -> bool:
    """Return whether ``squeue`` output begins at a line."""
    return bool(_header(lines[at].text)) or has_json(
        lines, at, "jobs", ("job_state", "state_reason", "exit_code", "job_id")
    )


def has_json(lines: Lines, at: int, key: str, words: tuple[str, ...]) -> bool:
    """Return whether Slurm's JSON with a list ``key`` starts at a line.

    At least one of the keys ``words`` must be near the start.
    """
    if lines[at].text[:1] != "{":
        return False
    near = json_head(lines, at)
    return f'"{key}"' in near and any(f'"{word}"' in near for word in words)


def _header(text: str) -> tuple[str, ...]:
    names = tuple(text.strip().split("|")) if "|" in text else columns(text)
    if "JOBID" not in names and "ARRAY_JOB_ID" not in names:
        return ()
    return names if {"ST", "STATE"} & set(names) else ()


def parse_queue(lines: Lines, at: int) -> Parsed[tuple[EndedJob, ...]]:
    """Read the table or JSON that begins at a line."""
    names = _header(lines[at].text)
    if not names:
        return parse_json(lines, at)
    jobs: list[EndedJob] = []
    gaps: list[ParseGap] = []
    end = at + 1
    while end < len(lines) and not is_prompt(lines[end].text) and _JOB.match(lines[end].text):
        text = lines[end].text[:4000]
        row = dict(zip(names, text.strip().split("|"), strict=False)) if "|" in lines[at].text else cells(names, text)
        state = _long((row or {}).get("STATE") or (row or {}).get("ST") or "")
        if row is None or state not in _LONG:
            row, state = _loose(text)
        if not state:
            gaps.append(ParseGap(lines[end].number, "the row is truncated"))
        jobs.append(_job(row, state, lines[end].number))
        end += 1
    return Parsed(tuple(jobs), tuple(gaps), end)


def _long(state: str) -> str:
    return STATES.get(state, state)


def _loose(text: str) -> tuple[dict[str, str], str]:
    """Return the cells and the state of a row with misaligned columns."""
    words = text.split()
    state = next((_long(word) for word in words[1:] if _long(word) in _LONG), "")
    reason = re.search(r"\((.{1,200})\)\s*$", text)
    return {"JOBID": words[0], "NODELIST(REASON)": f"({reason[1]})" if reason else words[-1]}, state


def _job(row: Mapping[str, str], state: str, line: int) -> EndedJob:
    place = row.get("NODELIST(REASON)", "").strip()
    reason = row.get("REASON", "") or (place[1:-1] if place.startswith("(") else "")
    nodes = row.get("NODELIST", "") or ("" if place.startswith("(") else place)
    return EndedJob(row.get("JOBID") or row.get("ARRAY_JOB_ID", ""), row.get("NAME", ""), state, "", nodes.strip(),
    line,
                    "" if reason.strip() in ("None", "none", "null") else reason.strip())  # fmt: skip


def parse_json(lines: Lines, at: int) -> Parsed[tuple[EndedJob, ...]]:
    """Read the jobs in Slurm's JSON, from ``squeue --json`` or ``sacct --json``."""
    result = json_at(lines, at)
    if result is None:
        return Parsed((), (ParseGap(lines[at].number, "the JSON is truncated"),), min(at + _MOST_LINES, len(lines)))
    end, value = result
    numbers: dict[str, int] = {}
    for line in lines[at:end]:
        if match := re.fullmatch(r'\s*"job_id": ?"?(\d{1,12})"?,?\s*', line.text):
            numbers.setdefault(match[1], line.number)
    listed = value.get("jobs") if isinstance(value, dict) else None
    jobs = [_json_job(entry, numbers, lines[at].number) for entry in listed or () if isinstance(entry, dict)]
    return Parsed(tuple(jobs), (), end)


def plain(value: Any) -> str:
    """Return a value of Slurm's JSON as text; for a list, its first item."""
    if isinstance(value, list):
        return plain(value[0]) if value else ""
    if isinstance(value, dict):
        return plain(value.get("number", value.get("current", value.get("name", "")))) if value.get("set", True) else ""
    return "" if value is None else str(value)


def _json_job(entry: Mapping[str, Any], numbers: Mapping[str, int], first: int) -> EndedJob:
    state = entry.get("job_state", entry.get("state"))
    reason = entry.get("state_reason") or (state.get("reason") if isinstance(state, dict) else "")
    code = entry.get("exit_code")
    ended = ""
    if isinstance(code, dict):
        of_signal = code.get("signal")
        number = of_signal.get("id", of_signal.get("signal_id")) if isinstance(of_signal, dict) else ""
        ended = f"{plain(code.get('return_code')) or 0}:{plain(number) or 0}"
    name = plain(entry.get("job_id"))
    return EndedJob(name, plain(entry.get("name")), plain(state), ended, plain(entry.get("nodes")), numbers.get(name,
    first),
                    "" if plain(reason) in ("None", "") else plain(reason))  # fmt: skip


def job_begins(lines: Lines, at: int) -> bool:
    """Return whether ``scontrol show job`` output begins at a line."""
    if not re.match(r"\s*JobId=\d{1,12}\b", lines[at].text):
        return False
    return "JobState=" in "".join(line.text for line in lines[at : at + 8])


def parse_job(lines: Lines, at: int) -> Parsed[tuple[EndedJob, ...]]:
    """Read the jobs, starting at the line of the first one."""
    jobs: list[EndedJob] = []
    gaps: list[ParseGap] = []
    end = at
    for first, stop in _blocks(lines, at):
        fields: dict[str, str] = {}
        for line in lines[first:stop]:
            for name, value in _PAIR.findall(line.text[:4000]):
                fields.setdefault(name, value)
        if "JobState" not in fields:
            gaps.append(ParseGap(lines[first].number, "the state of the job is missing"))
        nodes, reason = fields.get("NodeList", ""), fields.get("Reason", "")
        jobs.append(EndedJob(fields["JobId"], fields.get("JobName", ""), fields.get("JobState", ""),
                             fields.get("ExitCode", ""), "" if nodes == "(null)" else nodes, lines[first].number,
                             "" if reason == "None" else reason, fields))  # fmt: skip
        end = stop
    return Parsed(tuple(jobs), tuple(gaps), max(end, at + 1))


def _blocks(lines: Lines, at: int) -> Iterator[tuple[int, int]]:
    begin = at
    end = at + 1
    while end < len(lines):
        text = lines[end].text
        if text.lstrip().startswith("JobId="):
            yield begin, end
            begin = end
        elif text.strip() and not (text[0].isspace() and "=" in text):
            break
        end += 1
    while end > begin + 1 and not lines[end - 1].text.strip():
        end -= 1
    yield begin, end


def seff_begins(lines: Lines, at: int) -> bool:
    """Return whether ``seff`` output begins at a line."""
    return bool(re.fullmatch(r"Job ID: \d{1,12}(?:_\d{1,9})?", lines[at].text)) and any(
        line.text.startswith("State: ") for line in lines[at + 1 : at + 6]
    )


def parse_seff(lines: Lines, at: int) -> Parsed[tuple[EndedJob, ...]]:
    """Read the report of ``seff`` on one job."""
    fields: dict[str, str] = {}
    end = at
    while end < len(lines) and (match := re.fullmatch(r"([A-Z][\w /-]{1,40}): (.*)", lines[end].text)):
        fields.setdefault(match[1], match[2])
        end += 1
    state = re.fullmatch(r"(\S+)(?: \(exit code (\d{1,6})\))?.*", fields.get("State", ""))
    memory = fields.get("Memory Efficiency", "")
    job = EndedJob(fields["Job ID"], "", state[1] if state else "", state[2] or "" if state else "", "",
                   lines[at].number, f"memory {memory}" if memory else "")  # fmt: skip
    return Parsed((job,), (), max(end, at + 1))

"""A jump of the wall clock changes no deadline: time limits use the monotonic clock."""

from __future__ import annotations

import ast

from tests.support.paths import ROOT

#: Modules that read the wall clock, and their reasons: none of them is a time limit.
READERS = {
    "preflight/campaign/rounds.py": "dates in the journal, and age of session folders",
    "preflight/collect/local.py": "date of the evidence", "preflight/commands/history.py": "date of a record",
    "preflight/commands/lint.py": "waivers that ended", "preflight/collect/scheduler.py": "date of the evidence",
    "preflight/gate/verdict_cache.py": "age of a verdict on disk",
    "preflight/gate/fleet_status.py": "age of marks in Slurm",
    "preflight/gate/published_verdicts.py": "age of a verdict on disk",
    "preflight/gate/configuration.py": "age of a copy on disk",
    "preflight/gate/request.py": "date of the verdict",
    "preflight/gate/slurm/drain.py": "age of marks in Slurm",
    "preflight/history/findings_history.py": "date of a report",
    "preflight/run/judge_run.py": "date of the report", "preflight/transport/local/node.py": "date of the evidence",
    "preflight/transport/errors.py": "date of the evidence",
    "preflight/transport/ssh/session.py": "host keys that expire",
}  # fmt: skip

_CLOCKS = {("time", "time"), ("time", "gmtime"), ("time", "localtime"), ("datetime", "now"), ("datetime", "utcnow"),
           ("datetime", "today"), ("date", "today")}  # fmt: skip


def _is_clock(call: ast.Call) -> bool:
    """Return whether a call reads the clock; ``gmtime(at)`` formats a given time."""
    function = call.func
    if not isinstance(function, ast.Attribute) or (function.attr in ("gmtime", "localtime") and call.args):
        return False
    return (getattr(function.value, "id", ""), function.attr) in _CLOCKS


def readers() -> set[str]:
    """Return the modules that call a wall clock."""
    found = set()
    for folder in ("preflight", "checks", "reports"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_symlink() or any(parent.is_symlink() for parent in path.parents) or "collector" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _is_clock(node):
                    found.add(str(path.relative_to(ROOT)))
    return found


def test_the_wall_clock_is_read_for_dates_only() -> None:
    assert readers() == set(READERS)

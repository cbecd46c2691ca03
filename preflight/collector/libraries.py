"""Library calls, in one killable child process for each library.

A hung driver costs only the answers of its own library.
"""

import json
import sys

from . import library, library_nvml, library_psutil
from .commands import execute
from .records import Deadline, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: Kind of probe -> its package, and the module with its calls.
_PACKAGES = {"nvml": ("pynvml", library_nvml), "psutil": ("psutil", library_psutil)}


def call_library(kind: str, calls: "List[str]", timeout_s: float, deadline: Deadline, cap: int) -> "Dict[str, Record]":
    """Call one library (``nvml`` or ``psutil``); return a record for each call."""
    package, module = _PACKAGES[kind]
    supported = [call for call in calls if call in module.CALLS]
    records: Dict[str, Record] = {
        call: {"status": "error", "why": "this collector has no call of that name"} for call in calls
    }
    if supported:
        records.update(_run_child(package, module, supported, timeout_s, deadline, cap))
    return records


def _run_child(
    package: str, module: "Any", calls: "List[str]", timeout_s: float, deadline: Deadline, cap: int
) -> "Dict[str, Record]":
    request = {"library": package, "calls": calls, "source": _source(package)}
    request["answers"] = _source(module.__name__, module)
    argv = [sys.executable, "-I", "-S", "-c", _source(library.__name__)]
    child = execute(argv, timeout_s, deadline, cap, json.dumps(request).encode("ascii"))
    answers: Dict[str, Record] = {}
    for line in child.get("out", "").splitlines():
        try:
            answer = json.loads(line)
            answers[answer["call"]] = answer["record"]
        except (ValueError, KeyError, TypeError):  # output of the library, or the truncated line
            continue
    return {call: _judge(answers.get(call), child) for call in calls}


def _judge(answer: "Any", child: Record) -> Record:
    """Return a call's record: its last answer; if that is cut, how the child ended."""
    partial = dict(answer or {}, seconds=child.get("seconds", 0.0))
    if answer and answer["status"] != "cut":
        return partial
    reasons = [child.get("why"), answer and answer.get("why")]
    if child["status"] == "ok":
        how = "status" if child["rc"] >= 0 else "signal"
        last = child["err"].strip().splitlines()[-1:]
        reasons = ["the library's process ended with {} {}".format(how, abs(child["rc"])), *reasons[1:], *last]
    status = "error" if child["status"] == "ok" else child["status"]
    child_fields = {key: child[key] for key in ("kernel", "bytes") if key in child}
    return dict(partial, status=status, why="; ".join(part for part in reasons if part), **child_fields)


def _source(name: str, beside: "Any" = library) -> str:
    """Return the source of a shipped module; empty if there is none."""
    loader: Any = beside.__spec__ and beside.__spec__.loader
    archive = getattr(loader, "archive", "")
    try:
        if archive and "." not in name:  # single-file build: included packages are at its top level
            loader = type(loader)(archive)
        return str(loader.get_source(name) or "")
    except ImportError:
        return ""

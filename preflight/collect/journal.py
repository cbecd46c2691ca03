"""Resuming an interrupted run: nodes that have answered are not queried again.

``--save DIR`` also contains a journal of the nodes and the plan. A document belongs to that run if it was written after
the journal; a node without an answer is queried again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight.archive.directory import file_name, write
from preflight.errors import PreflightError
from preflight.evidence import json_limits, safe_read
from preflight.evidence.document import DocumentError, Evidence, read
from preflight.nodeset import fold
from preflight.schemas.conform import find_error

#: The journal's file name; no document has this suffix.
JOURNAL = ".preflight-run"
SCHEMA = "preflight.run/1"


class ResumeError(PreflightError):
    """A run cannot be continued; the text states the reason and the fix."""


def describe_run(
    hosts: Sequence[str], cluster_file: Path | None, plan: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the properties that must be equal for a run to be resumed.

    These are the nodes, the cluster file, the plan and the options.
    """
    raw = cluster_file.read_bytes() if cluster_file else b""
    return {
        "schema": SCHEMA,
        "hosts": sorted(hosts),
        "cluster_file": hashlib.sha256(raw).hexdigest() if cluster_file else None,
        "plan": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest(),
        "options": dict(options),
    }


def begin(folder: Path, run: Mapping[str, Any]) -> None:
    """Write the journal; raises OSError.

    Documents that are already in the folder belong to earlier runs.
    """
    write(folder / JOURNAL, json.dumps(run, indent=1) + "\n")


def proceed(folder: Path, run: Mapping[str, Any]) -> list[Evidence]:
    """Return the documents of the nodes that answered.

    Raises ResumeError if there is no journal, or it is damaged or belongs to another run.
    """
    journal = folder / JOURNAL
    try:
        started_ns = journal.stat().st_mtime_ns
        before = json_limits.read(journal, longest=safe_read.BY_HAND, once=True)
    except FileNotFoundError:
        raise ResumeError(f"{folder} has no run to resume; omit --resume") from None
    except OSError as error:
        raise ResumeError(f"{journal} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ResumeError(f"{journal} is damaged ({error}); omit --resume to start again") from None
    if wrong := find_error(before, "run-1", exact=True):
        raise ResumeError(f"{journal} is damaged ({wrong}), or of another version; omit --resume to start again")
    if differences := list(_differences(before, run)):
        raise ResumeError(f"{folder}: holds another run: {'; '.join(differences)}; omit --resume to start again")
    found = (_answer(folder / file_name(host), host, started_ns) for host in run["hosts"])
    return [evidence for evidence in found if evidence is not None]


def _answer(path: Path, host: str, started_ns: int) -> Evidence | None:
    try:
        if path.stat().st_mtime_ns < started_ns:
            return None
        evidence = read(path)
    except (OSError, DocumentError):
        return None
    return evidence if evidence.node == host and evidence.answered else None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe what differs from the earlier run."""
    differences = []
    was, is_now = set(before["hosts"]), set(now["hosts"])
    if more := is_now - was:
        differences.append(f"{fold(more)} {'was' if len(more) == 1 else 'were'} not among its nodes")
    if less := was - is_now:
        differences.append(f"{fold(less)} {'was' if len(less) == 1 else 'were'} among its nodes")
    if before["cluster_file"] != now["cluster_file"]:
        differences.append("its cluster file was different")
    if before["plan"] != now["plan"]:
        differences.append("it collected other records (another version of preflight, or other plug-ins)")
    for name, value in now["options"].items():
        if before["options"].get(name) != value:
            differences.append(f"it ran with another --{name}")
    return differences

"""Reports read from files (``--json``); damaged ones are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight.errors import PreflightError
from preflight.evidence import json_limits, report_file
from preflight.schemas.conform import find_error

_KIND = "preflight.report/"


class ReportError(PreflightError):
    """A report cannot be read; the message names the file and the fault."""


def read(path: Path, needed: tuple[str, ...] = (), partly: bool = False) -> Mapping[str, Any] | None:
    """Return the report in a file; None if the file contains something else.

    ``needed`` replaces the schema's list of required keys; with ``partly``, nested keys may be missing. Raises
    ReportError if the file cannot be read or the report is damaged.
    """
    try:
        document = report_file.read(path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from None
    except json_limits.DocumentTooLarge as error:
        raise ReportError(f"{path} cannot be read: {error}") from None
    except ValueError:
        return None
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(_KIND):
        return None
    wrong = find_error(document, "report-1", ("schema", *needed) if needed else (), partly=partly)
    if wrong := wrong or _loose_incident(document):
        raise ReportError(f"{path}: an incomplete or damaged report ({wrong}); write it again with --json")
    return document


def _loose_incident(document: Mapping[str, Any]) -> str:
    """Name the first incident that refers to a missing finding; empty if none does."""
    count = len(document.get("findings", ()))
    for number, incident in enumerate(document.get("incidents", ())):
        if any(not 0 <= place < count for place in incident.get("findings", ())):
            return f"incidents[{number}] refers to a missing finding"
    return ""

"""The description of a training job given to ``preflight plan``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.parsers.job_config import reader
from preflight.parsers.job_config.settings import JobSetting, JobSettings, merged

#: The record of a run that holds it.
RECORD = "job:description"


@dataclass(frozen=True)
class JobDescription:
    """JobSettings of a job, and the cluster that the command line names."""

    settings: JobSettings
    on: str = ""  # such as "512 x HGX H100, rail-optimised"
    nodes: int | None = None


def record(
    sources: Mapping[str, str], stated: Mapping[str, Any], on: str = "", nodes: int | None = None
) -> dict[str, Any]:
    """Return the record of a description: texts by name, and stated settings."""
    value = {"sources": dict(sources), "set": dict(stated), "on": on, "nodes": nodes}
    return {"status": "ok", "value": value}


def described_job(evidence: Evidence) -> JobDescription | None:
    """Return the description of a run's job, or None; raises EvidenceError."""
    if RECORD not in evidence:
        return None
    value = evidence.record(RECORD).value
    try:
        parts = [reader.parse(text, name) for name, text in value["sources"].items()]
        stated = {name: JobSetting(own, "--set") for name, own in value["set"].items()}
        return JobDescription(merged([*parts, JobSettings(stated)]), value.get("on") or "", value.get("nodes"))
    except (AttributeError, KeyError, TypeError) as error:
        raise EvidenceError(RECORD, f"it is damaged: {error}") from None
    except reader.JobConfigError as error:
        raise EvidenceError(RECORD, str(error)) from None

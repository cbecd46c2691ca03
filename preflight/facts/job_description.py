"""Description of a training job given to ``preflight plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts import job_nodes
from preflight.facts.job_nodes import JobNode
from preflight.parsers.job_config import reader
from preflight.parsers.job_config.settings import JobConfigError, JobSetting, JobSettings, merged

#: Key of the description's record in a run.
RECORD = "job:description"


@dataclass(frozen=True)
class JobDescription:
    """Settings of a job, and the cluster named on the command line."""

    settings: JobSettings
    on: str = ""  # such as "512 x HGX H100, rail-optimised"
    nodes: tuple[JobNode, ...] = ()  # as found in their evidence
    oversubscription: float | None = None  # of the leaves above these nodes, as a sweep shows it
    hostfile: tuple[str, str] | None = None  # name and text
    chosen: tuple[str, ...] = ()  # names of the job's nodes; empty: those of the cluster file
    racks: Mapping[str, str] = field(default_factory=dict)  # node -> rack, of the cluster file
    leaves: Mapping[str, str] = field(default_factory=dict)  # node -> leaf, or group of leaves


def record(
    sources: Mapping[str, str], stated: Mapping[str, Any], on: str = "", nodes: Sequence[JobNode] = (),
    oversubscription: float | None = None, hostfile: tuple[str, str] | None = None,
    declared: tuple[str, Mapping[str, Any]] = ("", {}), places: Mapping[str, Mapping[str, str]] | None = None,
    chosen: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return a description as a record: texts by name, and stated settings.

    ``nodes`` come from collected evidence. ``hostfile`` is a name and a text. ``declared`` is the name of a cluster
    file and its job settings. ``places`` has racks and leaves, each by node. ``chosen`` names the job's nodes if no
    evidence was collected.
    """
    value: dict[str, Any] = {"sources": dict(sources), "set": dict(stated), "on": on}
    value |= {"nodes": job_nodes.to_record(nodes), "oversubscription": oversubscription}
    if declared[1]:
        value["declared"] = [declared[0], dict(declared[1])]
    value |= {table: dict(own) for table, own in (places or {}).items()}
    if chosen:
        value["chosen"] = list(chosen)
    if hostfile is not None:
        value["hostfile"] = list(hostfile)
    return {"status": "ok", "value": value}


def described_job(evidence: Evidence) -> JobDescription | None:
    """Return the description of a run's job, or None; raises EvidenceError."""
    if RECORD not in evidence:
        return None
    value = evidence.record(RECORD).value
    try:
        parts = [reader.parse(text, name) for name, text in value["sources"].items()]
        file, declared = value.get("declared") or ("", {})
        site = JobSettings({name: JobSetting(own, f"{file}: job.{name}") for name, own in declared.items()})
        stated = {name: JobSetting(own, "--set") for name, own in value["set"].items()}
        nodes = job_nodes.from_record(value.get("nodes") or ())
        name, text = value.get("hostfile") or ("", "")
        hostfile = (str(name), str(text)) if name else None
        return JobDescription(
            merged([site, *parts, JobSettings(stated)]),
            value.get("on") or "",
            nodes,
            value.get("oversubscription"),
            hostfile,
            tuple(map(str, value.get("chosen") or ())),
            *(dict(value.get(table) or {}) for table in ("racks", "leaves")),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise EvidenceError(RECORD, f"it is damaged: {error}") from None
    except JobConfigError as error:
        raise EvidenceError(RECORD, str(error)) from None

"""Ethernet switches of a run: names, probes and documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.collect.targets import TargetError, checked_names
from preflight.evidence.document import SWITCH, EvidenceError
from preflight.parsers.switch.sonic_tables import COUNTERS, TABLES, TWICE
from preflight.probes.probe import Probe, plan
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from preflight.collect.options import CollectOptions
    from preflight.evidence.document import Evidence
    from preflight.expectations import Cluster

_SONIC, _OS_RELEASE = "/etc/sonic/sonic_version.yml", "/etc/os-release"

#: ``ID`` in os-release -> platform, for switches that are not supported yet.
_PLATFORMS = {"cumulus-linux": "cumulus", "nexus": "nxos"}
_ID = re.compile(r"^ID=[\"']?([\w.-]{1,40})[\"']?\s*$", re.MULTILINE)


def switch_names(cluster: Cluster) -> tuple[str, ...]:
    """Return the names of the switches to read; raises UsageError."""
    names = cluster.switches.settings.names
    if not names:
        raise UsageError('--switches: name them in the cluster file: [switches] hosts = "leaf[1-8],spine[1-4]"')
    try:
        return checked_names(tuple(sorted(names)), "[switches] hosts")
    except TargetError as error:
        raise UsageError(str(error)) from None


def switch_probes() -> tuple[Probe, ...]:
    """Return the probes of a SONiC switch; all of them are read-only."""
    return (
        Probe("file", _SONIC, "release of SONiC"),
        Probe("file", _OS_RELEASE, "operating system of the switch"),
        *(Probe("redis", f"{database} {table}", about, 30, twice=(database, table) in TWICE, fields=fields)
          for database, tables in TABLES.items() for table, (about, fields) in tables.items()),
        *(Probe("redis", f"COUNTERS_DB {what}", about, 30, twice=True, fields=fields, names=names)
          for what, (about, names, fields) in COUNTERS.items()),
    )  # fmt: skip


def switch_plan(node: str, deadline_s: float, options: CollectOptions) -> Mapping[str, Any]:
    """Return the plan of one switch, which runs no command and never uses sudo."""
    return plan(switch_probes(), node=node, deadline_s=deadline_s, parallel=1, window_s=options.window_s)


def as_switch(evidence: Evidence) -> Evidence:
    """Turn the evidence of a switch's collector into a switch document."""
    notes = [str(note) for note in evidence.collector.get("notes", ())]
    collector = {"via": evidence.collector.get("via", "ssh"), "notes": notes}
    return replace(evidence, kind=SWITCH, platform=evidence.platform or _platform(evidence), collector=collector)


def _platform(evidence: Evidence) -> str:
    if any(key.startswith("redis:") and record.get("status") == "ok" for key, record in evidence.records.items()):
        return "sonic"
    for path in (_SONIC, _OS_RELEASE):
        try:
            text = evidence.text(f"file:{path}")
        except EvidenceError:
            continue
        if path == _SONIC:
            return "sonic"
        if match := _ID.search(text):
            return _PLATFORMS.get(match[1].lower(), "unknown")
    return "unknown"

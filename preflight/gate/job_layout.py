"""The layout of a starting job, judged by the checks of ``[gate] layout``.

The batch script describes the job; its nodes are those of its allocation, in Slurm's order. Only a failure refuses the
job. A script that describes no training job, or lacks a setting, is reported as not judged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import replace as changed
from preflight.checks import registry
from preflight.errors import PreflightError
from preflight.evidence.document import Evidence, EvidenceError
from preflight.expectations import Cluster
from preflight.expectations.gate_table import matches
from preflight.facts import job_description
from preflight.facts.job import RUN, RunFacts
from preflight.gate import announce, scheduler_env
from preflight.gate.request import GateRequest
from preflight.gate.result import Judgement
from preflight.gate.slurm import drain_settings
from preflight.gate.slurm.scontrol import Controller
from preflight.gate.values import replace
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason
from preflight.gate.watchdog import Watch
from preflight.judge import judge
from preflight.layout.job import LayoutError
from preflight.layout.plan import Plan
from preflight.nodeset import unfold

#: Name of the batch script in messages.
_SCRIPT = "the batch script"

#: Maximum size in bytes of a batch script.
_MOST_BYTES = 2_000_000

#: Seconds of the deadline reserved for writing the result.
_RESERVE_S = 0.5


def with_layout(judgement: Judgement, request: GateRequest, cluster: Cluster, watch: Watch) -> Judgement:
    """Return the judgement of a job's nodes together with that of its layout."""
    if cluster.gate is None or not cluster.gate.layout:
        return judgement
    watch.enter("judging the layout of the job")
    settings = drain_settings.of(cluster.gate)
    settings = changed(settings, deadline_s=max(_RESERVE_S, watch.left_s - _RESERVE_S))
    try:
        script = Controller(settings, os.environ).batch_script(request.job)
        failed = failures(script, cluster, unfold(scheduler_env.node_list()))
    except (PreflightError, ValueError) as error:
        return replace(judgement, lines=(*judgement.lines, announce.plain_line(f"  layout NOT JUDGED: {error}")))
    if not failed:
        return judgement
    first = failed[0]
    verdict = Verdict(
        announce.name(request.node), "fail", request.at, boot_id=judgement.verdict.boot_id, cause=first["check"],
        reason=ascii_reason(f"{PREFIX}{first['check']}: {first['message']}"), owner="job", action="fix-job",
        causes=tuple(dict.fromkeys([*(finding["check"] for finding in failed), *judgement.verdict.causes])),
        unknowns=judgement.verdict.unknowns, off=judgement.verdict.off, seconds=request.seconds,
    )  # fmt: skip
    lines = (f"  FAIL {own['check']}: {own['message']} [job] action: {own['fix']}" for own in failed)
    return replace(judgement, verdict=verdict, lines=(*map(announce.plain_line, lines), *judgement.lines))


def failures(script: str, cluster: Cluster, nodes: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the failed findings about a job's layout; raises LayoutError."""
    if len(script) > _MOST_BYTES:
        raise LayoutError(f"{_SCRIPT} is longer than {_MOST_BYTES} bytes")
    names = list({cluster.class_of(node) for node in nodes})
    if len(names) != 1 or names[0] is None:
        raise LayoutError("the job's nodes are not all of one class of the cluster file")
    cluster = changed(cluster, classes={names[0]: cluster.classes[names[0]]})
    failed = _failures(script, cluster, nodes)
    certain = _failures(_decided(script), cluster, nodes) if failed else []
    if len(certain) < len(failed):
        raise LayoutError(f"conditions of {_SCRIPT} select its layout")
    return failed


def _failures(script: str, cluster: Cluster, nodes: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the failed findings on a script's layout; raises LayoutError."""
    sources = {_SCRIPT: f"#SBATCH --nodes={len(nodes)}\n{script}"}
    places = {"racks": cluster.racks, "leaves": cluster.leaves}
    run = Evidence(RUN, "", {job_description.RECORD: job_description.record(sources, {}, places=places, chosen=nodes)})
    _check_described(run, cluster, len(nodes))
    globs = (cluster.gate.layout if cluster.gate is not None else None) or ()
    checks = [check for check in registry().checks if matches(check.id, globs)]
    findings = judge((), checks, cluster, run=run)["findings"]
    failed = [finding for finding in findings if finding["status"] == "fail"]
    if not failed and (vague := [finding for finding in findings if finding["status"] == "unknown"]):
        raise LayoutError(f"{vague[0]['check']}: {vague[0]['message']}")
    return failed


#: A value that the environment of the submission may replace.
_DEFAULT = re.compile(r"\$\{(\w+):?[-=][^{}]*\}")
_BLOCK = re.compile(r"\s*(?:(if|case|for|while|until|select)\b|(fi|esac|done)\b|[\w-]+\s*\(\)\s*(\{)|(\}))")
_END = re.compile(r"\s*(?:exit|return)\b")
_SOURCED = re.compile(r"\s*(?:source|\.)\s+(\S+)")
_HARMLESS = re.compile(r"(?:activate|bashrc|bash_profile|profile|modules?|lmod|init|conda)(?:\.sh|/\w+)?[\"']?$|^/etc/")


def _decided(script: str) -> str:
    """Return the commands of a script that always run.

    Values that the environment may replace are left undefined. Raises LayoutError if the script sources a file that may
    set the layout.
    """
    rows, depth = [], 0
    for row in _DEFAULT.sub(r"$\1", script).splitlines():
        sourced = _SOURCED.match(row)
        if sourced and not _HARMLESS.search(sourced[1]):
            raise LayoutError(f"{_SCRIPT} reads {sourced[1][:80]}, which may set the layout")
        if depth == 0 and _END.match(row):
            break
        block = _BLOCK.match(row)
        opens = block is not None and bool(block[1] or block[3])
        depth += opens
        rows.append("" if depth else re.split(r"\|\||&&", row, maxsplit=1)[0])
        if block is not None and not opens:
            depth = max(0, depth - 1)
        if opens and re.search(r"[;\s](?:fi|esac|done|\})\s*$", row):  # a block on one line
            depth -= 1
    return "\n".join(rows)


def _check_described(run: Evidence, cluster: Cluster, nodes: int) -> None:
    """Raise LayoutError unless the script describes one job of this size."""
    try:
        description = RunFacts(run).description
    except EvidenceError:
        description = None
    if description is None:
        raise LayoutError(f"{_SCRIPT} describes no training job")
    if several := next((gap for gap in description.settings.gaps if " replaces " in gap), ""):
        raise LayoutError(f"{several}: which one the job uses is unknown")
    plan = Plan(description, cluster.run_site(()))
    stated, hardware = plan.described.values.get("gpus"), plan.hardware
    if hardware is not None and stated is not None and stated != nodes * hardware.each:
        raise LayoutError(f"{_SCRIPT} describes a job of {stated} GPUs; its nodes have {nodes * hardware.each}")

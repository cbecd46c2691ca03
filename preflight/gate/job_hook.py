"""The hook ``slurm-controller``: it refuses a job whose nodes or layout fail.

The nodes publish their verdicts (``[gate] publish``), or are queried now over SSH (``--hosts``). The controller cannot
know the boot of a node, so only a verdict's node and age are verified, and the two clocks may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from preflight import errors
from preflight.checks import registry
from preflight.expectations.gate_table import Gate
from preflight.gate import (
    announce,
    configuration,
    published_verdicts,
    remote_verdicts,
    scheduler_env,
    slurm,
    verdict_cache,
)
from preflight.gate.configured_rules import configured_deadline_s, configured_rules
from preflight.gate.job_layout import with_layout
from preflight.gate.request import GateRequest
from preflight.gate.result import GateResult, Judgement, Progress, in_time
from preflight.gate.slurm import drain_settings
from preflight.gate.values import replace
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason
from preflight.gate.watchdog import Watch
from preflight.nodeset import unfold

_MOST_LINES = 10


def run(request: GateRequest, watch: Watch) -> GateResult:
    """Judge a job by its nodes and its layout; return the result."""
    options = request.options
    watch.enter("reading the cluster file")
    config = configuration.read(options.cluster, None, _ids)
    watch.limit_to(configured_deadline_s(request, config))
    folded = options.hosts or scheduler_env.node_list()
    request = replace(request, node=folded or request.node)
    progress = watch.advance(replace(watch.progress, request=request, rules=configured_rules(request, config)))
    if not config.usable:
        return in_time(progress.unjudged("gate.configuration", config.error, "error"))
    try:
        nodes = unfold(folded, groups=bool(options.hosts)) if folded else ()
    except ValueError as error:
        return in_time(progress.unjudged("gate.nodes", f"{folded!r} names no nodes: {error}", "error"))
    if not nodes:
        return in_time(progress.unjudged("gate.nodes", "neither SLURM_JOB_NODELIST nor --hosts names nodes"))
    try:
        judgement = _of_nodes(request, config, nodes, watch)
    except (configuration.UnknownCheck, errors.DuplicateCheck, remote_verdicts.UsageError) as error:
        return in_time(progress.unjudged("gate.configuration", str(error), "error"))
    progress = watch.advance(replace(progress, judgement=judgement))
    judgement = with_layout(judgement, request, config.cluster, watch)
    return in_time(watch.advance(_held(replace(progress, judgement=judgement), config.gate, watch)))


def _of_nodes(
    request: GateRequest, config: configuration.Configuration, nodes: Sequence[str], watch: Watch
) -> Judgement:
    """Judge a job's nodes by their verdicts, published earlier or collected now."""
    options = request.options
    folder = options.verdicts or config.gate.publish
    if options.hosts:
        watch.enter("collecting from the nodes over SSH")
        return _together(request, nodes, remote_verdicts.verdicts(nodes, request, config, watch.left_s))
    if folder:
        watch.enter(f"reading {announce.plain(folder)}")
        most_s = verdict_cache.INTERVALS * (config.gate.refresh_s or verdict_cache.REFRESH_S)
        return _together(request, nodes, published_verdicts.collect(Path(folder), nodes, most_s))
    why = "no verdicts: set the directory to which nodes publish them ([gate] publish, or --verdicts), or use --hosts"
    return Judgement(request.unknown_verdict("gate.no-verdict", why))


def _held(progress: Progress, gate: Gate, watch: Watch) -> Progress:
    """Hold a job that failed because of its settings; Slurm would keep restarting it."""
    request, judgement = progress.request, progress.judgement
    if judgement is None or judgement.verdict.owner != "job" or progress.rules.dry_run or not request.job:
        return progress
    verdict = judgement.verdict
    rule = progress.rules.rule(request.hook.name, verdict.status)
    if verdict.status != "fail" or rule.action != "refuse":
        return progress
    watch.enter("updating Slurm")
    return replace(progress, slurm=slurm.hold_job(request.job, verdict, rule, drain_settings.of(gate)))


def _ids() -> list[str]:
    try:
        return registry().ids()
    except errors.DuplicateCheck:  # reported when the checks run
        return []


def _together(request: GateRequest, nodes: Sequence[str], verdicts: Mapping[str, Verdict | str]) -> Judgement:
    """Combine verdicts: fail if one fails, pass only if all pass."""
    failed = {name: v for name in nodes if isinstance(v := verdicts[name], Verdict) and _bad(v)}
    vague = {name: _why(v) for name in nodes if _why(v := verdicts[name])}
    lines = [
        f"  FAIL {name}: {v.reason.removeprefix(PREFIX)} [{v.owner}] action: {v.action}" for name, v in failed.items()
    ]
    lines += [f"  NOT JUDGED {name}: {why}" for name, why in vague.items()]
    more = len(lines) - _MOST_LINES
    shown = map(announce.plain_line, lines[:_MOST_LINES])
    return Judgement(
        _job_verdict(request, len(nodes), failed, vague),
        (*shown, *([f"  and {more} more nodes"] if more > 0 else [])),
    )


def _job_verdict(request: GateRequest, nodes: int, failed: Mapping[str, Verdict], vague: Mapping[str, str]) -> Verdict:
    name = announce.name(request.node)
    if failed:
        node, first = next(iter(failed.items()))
        others = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
        return Verdict(
            name, "fail", request.at, cause=first.cause, owner=first.owner, action=first.action,
            seconds=request.seconds,
            causes=tuple(dict.fromkeys(cause for v in failed.values() for cause in (v.cause, *v.causes))),
            reason=ascii_reason(f"{PREFIX}{node}: {first.reason.removeprefix(PREFIX)}", 170) + others,
        )  # fmt: skip
    if vague:
        node, why = next(iter(vague.items()))
        others = f" (and {len(vague) - 1} more of {nodes} nodes)" if len(vague) > 1 else ""
        return Verdict(
            name, "unknown", request.at, unknowns=("gate.nodes",), seconds=request.seconds,
            reason=ascii_reason(f"{PREFIX}gate.nodes: {node}: {why}", 150) + others,
        )  # fmt: skip
    return Verdict(name, "pass", request.at, seconds=request.seconds)


def _bad(verdict: Verdict) -> bool:
    """Return whether a node is bad for any job.

    A failure owned by an earlier job ended with that job.
    """
    return verdict.status == "fail" and verdict.owner != "job"


def _why(verdict: Verdict | str) -> str:
    """Return why a node is neither good nor bad, or ""."""
    if isinstance(verdict, str):
        return verdict
    if verdict.status == "pass" or _bad(verdict):
        return ""
    return verdict.reason.removeprefix(PREFIX) + (" [an earlier job's]" if verdict.status == "fail" else "")

"""Judging this node for a hook.

The cluster file is read, the node is queried and judged, and the verdict is cached and applied in Slurm. Each step
receives the progress of earlier steps, and passes its own to the deadline thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from preflight._startup import prestart
from preflight.gate import announce, policy, scheduler_env, verdict_cache
from preflight.gate.cache_writer import CacheWriter
from preflight.gate.configured_rules import configured_deadline_s, configured_rules
from preflight.gate.ownership import relevant_probes
from preflight.gate.result import GateResult, Judgement, PassedOn, in_time, written
from preflight.gate.state_dir import StateDir, StateDirError, locate
from preflight.gate.values import replace
from preflight.gate.verdict import PREFIX, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preflight.checks import Registry
    from preflight.evidence.document import Evidence
    from preflight.expectations.gate_table import Gate
    from preflight.gate.configuration import Configuration
    from preflight.gate.evaluate import CheckSelection, NodeEvaluation
    from preflight.gate.request import GateRequest
    from preflight.gate.result import Progress
    from preflight.gate.verdict_cache import Cached
    from preflight.gate.watchdog import Watch
    from preflight.probes.probe import Probe

#: Part of the deadline reserved for judging, Slurm and writing: seconds, and maximum share.
_RESERVE_S, _RESERVE_SHARE = 3.0, 0.35

#: Seconds that ``transport.local.node`` waits beyond the collector's time limit.
_SLACK_S = 1.0

_LOCK = "refresh.lock"
_MOST_LINES = 12


def run(request: GateRequest, watch: Watch, before: Cached | None) -> GateResult | PassedOn:
    """Judge this node; return the result.

    ``before`` is a cached verdict that is still valid, or None.
    """
    if request.hook.name == "slurm-step":
        if scheduler_env.other_task():
            why = f"task 0 of this node judges it, not task {os.environ['SLURM_LOCALID'][:9]}"
            return PassedOn(0, f"{PREFIX}{request.node}: {why}", loud=False)
        if why := scheduler_env.uncovered():
            return in_time(watch.progress.unjudged("gate.coverage", why))
    watch.run_single_threaded(prestart.start)
    store, store_error = _store(request)
    if store is not None and request.options.refresh and _is_judged_elsewhere(store):
        status = policy.rule(request.hook.name, "unknown").exit
        return PassedOn(status, f"{PREFIX}{request.node}: another process is already judging this node", loud=True)
    cache = CacheWriter(store, store_error, request.options.cluster)
    watch.advance(replace(watch.progress, cache=cache))
    return _judge(watch, cache, before)


def _store(request: GateRequest) -> tuple[StateDir | None, str]:
    """Return the state directory of a caching hook, or why there is none."""
    if not request.hook.cached:
        return None, ""
    try:
        return StateDir(locate(request.options.state_dir), create=True), ""
    except StateDirError as error:
        return None, str(error)


def _is_judged_elsewhere(store: StateDir) -> bool:
    """Return whether another process is judging this node; if not, take the lock."""
    try:
        return store.lock(_LOCK) is None
    except StateDirError:  # a read-only file system does not prevent judging
        return False


def _judge(watch: Watch, cache: CacheWriter, before: Cached | None) -> GateResult:
    from preflight.checks import DuplicateCheck, registry
    from preflight.gate import configuration

    watch.enter("reading the cluster file")
    request, check_registry, clash = watch.progress.request, None, ""
    try:
        check_registry = registry()
    except DuplicateCheck as error:
        clash = str(error)
    config = configuration.read(cache.cluster, cache.store, check_registry.ids if check_registry else list)
    watch.limit_to(configured_deadline_s(request, config))
    rules = configured_rules(request, config)
    cache = replace(cache, config=config, error=rules.error)
    progress = watch.advance(replace(watch.progress, rules=rules, cache=cache))
    if check_registry is None or not config.usable:
        judgement = _misconfigured(request, clash or config.error)
    else:
        try:
            judgement = _judgement(request, watch, config, check_registry, before)
        except configuration.UnknownCheck as error:
            judgement = _misconfigured(request, str(error))
    progress = watch.advance(replace(progress, judgement=judgement))
    if judgement.cacheable:
        progress = watch.advance(written(progress, complete=True))
    return in_time(watch.advance(_applied(progress, config.gate, watch)))


def _misconfigured(request: GateRequest, why: str) -> Judgement:
    """Return the judgement for a configuration error."""
    verdict = request.unknown_verdict("gate.configuration", why, "error")
    return Judgement(verdict, tuple(announce.plain(part) for part in why.split(" | ")), cacheable=True)


def _judgement(
    request: GateRequest, watch: Watch, config: Configuration, check_registry: Registry, before: Cached | None
) -> Judgement:
    """Collect from this node and judge it; raises UnknownCheck."""
    evaluator = _Evaluator(request, config, check_registry)
    evidence = _collect(request, watch, check_registry.probes, config, meanwhile=evaluator.prepare)
    watch.enter("judging")
    result = evaluator.evaluate(evidence)
    verdict = _verdict(request, evaluator, result)
    if before is not None and verdict.status == "unknown" and before.verdict.cause in verdict.unknowns:
        verdict = before.verdict  # an earlier failure could not be checked this time
    from preflight.run.run_block import run_block

    about = run_block(f"gate {request.hook.name}", request.at, request.seconds, config.cluster.path)
    judgement = Judgement(verdict, _lines(result), {**result.report, "run": about}, evidence, cacheable=result.all_gpus)
    if request.hook.name != "slurm-step" or not scheduler_env.first_task():
        return judgement
    from preflight.gate.job_layout import with_layout

    return with_layout(judgement, request, config.cluster, watch)


class _Evaluator:
    """Evaluates the evidence of a node; imports what it needs in ``prepare``."""

    def __init__(self, request: GateRequest, config: Configuration, check_registry: Registry) -> None:
        self.config = config
        self._request, self._check_registry = request, check_registry
        self._selection: CheckSelection | None = None

    @property
    def selection(self) -> CheckSelection:
        """The checks of this hook; raises UnknownCheck."""
        from preflight.gate import evaluate

        if self._selection is None:
            hook, gate = self._request.hook.name, self.config.gate
            self._selection = evaluate.select(self._check_registry.checks, gate, gate.hook(hook), hook)
        return self._selection

    def prepare(self) -> None:
        """Import the checks and the verdict code."""
        import syslog  # noqa: F401

        from preflight.judge import prepare

        prepare(self.selection.checks)

    def evaluate(self, evidence: Evidence) -> NodeEvaluation:
        """Judge the evidence of the node for the hook."""
        from preflight.gate import evaluate

        hook = self._request.hook
        gpus = scheduler_env.gpus() if hook.name in ("slurm-prolog", "slurm-step") else None
        return evaluate.evaluate_node(
            evidence, self.config.cluster, self.selection, hook=hook.name, expects=hook.expects, gpus=gpus
        )


def _collect(
    request: GateRequest, watch: Watch, probes: Sequence[Probe], config: Configuration, meanwhile: Callable[[], object]
) -> Evidence:
    from preflight.collect.local import collect
    from preflight.collect.options import CollectOptions
    from preflight.collect.request import CollectRequest

    reserve_s = min(_RESERVE_S, _RESERVE_SHARE * watch.deadline_s) + _SLACK_S
    limit_s = max(0.5, watch.left_s - reserve_s)
    watch.enter("collecting from this node")
    options = CollectOptions(deadline_s=limit_s)
    wanted = CollectRequest((request.node,), relevant_probes(probes), options, config.cluster)
    return collect(wanted, meanwhile)


def _verdict(request: GateRequest, evaluator: _Evaluator, result: NodeEvaluation) -> Verdict:
    gpus = () if result.all_gpus else sorted(scheduler_env.gpus() or ())
    choices = [f"{request.hook.name} {gpus}" if gpus else request.hook.name]
    return Verdict(
        announce.name(request.node), result.status, request.at, boot_id=verdict_cache.boot_id(),
        policy=evaluator.config.policy((f"{check.id} {check.gating}" for check in evaluator.selection.checks), choices),
        cause=result.cause, reason=result.reason, owner=result.owner, action=result.action, causes=result.causes,
        unknowns=result.unknowns, off=result.off, seconds=request.seconds,
    )  # fmt: skip


def _lines(result: NodeEvaluation) -> tuple[str, ...]:
    more = len(result.lines) - _MOST_LINES
    return result.lines[:_MOST_LINES] + ((f"  and {more} more: see the report",) if more > 0 else ())


def _applied(progress: Progress, gate: Gate, watch: Watch) -> Progress:
    """Apply a verdict in Slurm, if the hook may change nodes there."""
    request, judgement = progress.request, progress.judgement
    if judgement is None or not request.hook.drains:
        return progress
    verdict = judgement.verdict
    rule = progress.rules.rule(request.hook.name, verdict.status)
    lifts = verdict.status == "pass" and request.hook.name == "slurm-healthcheck"
    if not (rule.action in ("drain", "refuse") or lifts):
        return progress
    watch.enter("updating Slurm")
    from preflight._startup.lightclass import replace as replace_settings
    from preflight.gate import slurm
    from preflight.gate.slurm import drain_settings

    settings = drain_settings.of(gate)
    limit_s = max(1.0, min(settings.deadline_s, watch.left_s - 0.5))
    settings = replace_settings(settings, dry_run=progress.rules.dry_run, deadline_s=limit_s)
    return replace(progress, slurm=slurm.apply(verdict, rule, settings))

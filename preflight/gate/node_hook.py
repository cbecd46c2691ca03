"""Judging this node for a hook: collect, judge, cache the verdict, apply and print it."""

from __future__ import annotations

import gc
import json
import os
import time
from typing import TYPE_CHECKING

from preflight._startup import prestart
from preflight.gate import announce, policy, scheduler_env, verdict_cache
from preflight.gate.apply_configuration import actions, apply_configuration
from preflight.gate.gate_run import GateRun
from preflight.gate.ownership import relevant_probes
from preflight.gate.state_dir import StateDir, StateDirError, locate
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from preflight.checks import Registry
    from preflight.evidence.document import Evidence
    from preflight.gate.configuration import Configuration
    from preflight.gate.evaluate import CheckSelection, NodeEvaluation
    from preflight.gate.verdict_cache import Cached
    from preflight.probes import Probe

    Keep = Callable[[Verdict, bool], None]

#: Seconds of a deadline that are reserved for judging, Slurm and writing; and the share of it at most.
_RESERVE_S, _RESERVE_SHARE = 3.0, 0.35

#: Seconds of the collector's time that ``transport.local.node`` waits beyond it.
_SLACK_S = 1.0

_LOCK, _REPORT = "refresh.lock", "report.json"
_MOST_LINES = 12


def run(gate_run: GateRun, before: Cached | None) -> int:
    """Judge this node, or the nodes of a job; return the exit status. ``before`` is a verdict that is still good."""
    options = gate_run.options
    if options.hook == "slurm-controller":
        from preflight.gate import job_hook

        return job_hook.run(gate_run)
    if options.hook == "slurm-step":
        if scheduler_env.other_task():
            announce.print_line(f"{PREFIX}{gate_run.node}: task 0 of this node judges it, not task "
                     f"{os.environ['SLURM_LOCALID'][:9]}", loud=False)  # fmt: skip
            return 0
        if why := scheduler_env.uncovered():
            return gate_run.finish(gate_run.unknown_verdict("gate.coverage", why))
    gate_run.watch.run_single_threaded(prestart.start)
    store, why = _store(gate_run)
    if store is not None and options.refresh:
        try:
            alone = store.lock(_LOCK) is not None
        except StateDirError:  # a file system that was made read-only; judge all the same
            alone = True
        if not alone:
            announce.print_line(f"{PREFIX}{gate_run.node}: another process is judging this node already", loud=True)
            return policy.rule(options.hook, "unknown").exit
    return _judge(gate_run, before, store, why)


def _store(gate_run: GateRun) -> tuple[StateDir | None, str]:
    """Return the state directory of a hook that caches verdicts, or why there is none."""
    if not policy.HOOKS[gate_run.options.hook].cached:
        return None, ""
    try:
        return StateDir(locate(gate_run.options.state_dir), create=True), ""
    except StateDirError as error:
        return None, str(error)


def _judge(gate_run: GateRun, before: Cached | None, store: StateDir | None, cache_error: str) -> int:
    from preflight.checks import DuplicateCheck, registry
    from preflight.gate import configuration

    options, watch = gate_run.options, gate_run.watch
    gate_run.keep = _cache_writer(gate_run, store, cache_error)
    watch.phase = "reading the cluster file"
    check_registry, clash = None, ""
    try:
        check_registry = registry()
    except DuplicateCheck as error:
        clash = str(error)
    config = configuration.read(options.cluster, store, check_registry.ids if check_registry else list)
    apply_configuration(gate_run, config)
    gate_run.keep = _cache_writer(gate_run, store, cache_error, config)
    if check_registry is None or not config.usable:
        return _misconfigured(gate_run, config, clash or config.error)
    try:
        evaluator = _Evaluator(gate_run, config, check_registry)
        evidence = _collect(gate_run, check_registry.probes, config, meanwhile=evaluator.prepare)
        watch.phase = "judging"
        result = evaluator.evaluate(evidence)
    except configuration.UnknownCheck as error:
        return _misconfigured(gate_run, config, str(error))
    verdict = _verdict(gate_run, evaluator, result)
    if before is not None and verdict.status == "unknown" and before.verdict.cause in verdict.unknowns:
        verdict = before.verdict  # what failed a while ago could not be seen this time
    gate_run.verdict, gate_run.evidence = verdict, evidence
    gate_run.lines = _lines(result)
    gate_run.report = {**result.report, "run": _about(gate_run, config)}
    if result.all_gpus:
        gate_run.keep(verdict, True)
    _apply_to_slurm(gate_run, verdict, config)
    return gate_run.finish(verdict)


class _Evaluator:
    """Evaluates the evidence of a node; its imports are done while the node is being queried."""

    def __init__(self, gate_run: GateRun, config: Configuration, check_registry: Registry) -> None:
        self.config = config
        self._gate_run, self._check_registry = gate_run, check_registry
        self._selection: CheckSelection | None = None

    @property
    def selection(self) -> CheckSelection:
        """The checks of this hook; raises UnknownCheck."""
        from preflight.gate import evaluate

        if self._selection is None:
            hook, gate = self._gate_run.options.hook, self.config.gate
            self._selection = evaluate.select(self._check_registry.checks, gate, gate.hook(hook), hook)
        return self._selection

    def prepare(self) -> None:
        """Import the checks, and what turns their findings into a verdict."""
        import syslog  # noqa: F401

        from preflight.judge import prepare

        prepare(self.selection.checks)

    def evaluate(self, evidence: Evidence) -> NodeEvaluation:
        """Judge the answer of the node."""
        from preflight.gate import evaluate

        hook = self._gate_run.options.hook
        gpus = scheduler_env.gpus() if hook in ("slurm-prolog", "slurm-step") else None
        expects = policy.HOOKS[hook].expects
        return evaluate.evaluate_node(
            evidence, self.config.cluster, self.selection, hook=hook, expects=expects, gpus=gpus
        )


def _misconfigured(gate_run: GateRun, config: Configuration, why: str) -> int:
    """End without a verdict on the node: what is wrong is the configuration, and no node is drained for that."""
    verdict = gate_run.unknown_verdict("gate.configuration", why, "error")
    gate_run.lines = tuple(announce.plain(part) for part in why.split(" | "))
    if gate_run.keep is not None:
        gate_run.keep(verdict, True)
    _apply_to_slurm(gate_run, verdict, config)
    return gate_run.finish(verdict)


def _collect(
    gate_run: GateRun, probes: Sequence[Probe], config: Configuration, meanwhile: Callable[[], object]
) -> Evidence:
    from preflight.probes import checkpoints, plan
    from preflight.transport.local.node import collect

    watch, name = gate_run.watch, config.cluster.class_of(gate_run.node)
    path = config.cluster.classes[name].checkpoint.path if name is not None else None
    reserve_s = min(_RESERVE_S, _RESERVE_SHARE * watch.deadline_s) + _SLACK_S
    limit_s = max(0.5, watch.left_s - reserve_s)
    watch.phase = "asking this node"
    wanted = [*relevant_probes(probes), *([checkpoints(path)] if path else [])]
    document = collect(plan(wanted, node=gate_run.node, deadline_s=limit_s), meanwhile=meanwhile)
    gc.freeze()  # a collection need not look at what was imported
    gc.enable()
    from preflight.evidence.document import DocumentError, from_document, no_answer

    try:
        return from_document(document, gate_run.node)
    except DocumentError as error:
        return no_answer(gate_run.node, "read", str(error), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def _verdict(gate_run: GateRun, evaluator: _Evaluator, result: NodeEvaluation) -> Verdict:
    gpus = () if result.all_gpus else sorted(scheduler_env.gpus() or ())
    choices = [f"{gate_run.options.hook} {gpus}" if gpus else gate_run.options.hook]
    return Verdict(
        announce.name(gate_run.node), result.status, gate_run.at, boot_id=verdict_cache.boot_id(),
        policy=evaluator.config.policy((f"{check.id} {check.gating}" for check in evaluator.selection.checks), choices),
        cause=result.cause, reason=result.reason, owner=result.owner, causes=result.causes, unknowns=result.unknowns,
        off=result.off, seconds=round(time.monotonic() - gate_run.watch.began, 3),
    )  # fmt: skip


def _cache_writer(
    gate_run: GateRun, store: StateDir | None, cache_error: str, config: Configuration | None = None
) -> Keep:
    """Return what writes a verdict to the state directory; one that is not complete is never served."""

    def keep(verdict: Verdict, complete: bool) -> None:
        if store is None:
            gate_run.cache_error = cache_error
            return
        gate = config.gate if config is not None else None
        refresh_s = (gate.refresh_s if gate is not None else None) or verdict_cache.REFRESH_S
        hooks = {name: _rules(gate.hook(name)) for name in policy.HOOKS} if gate is not None else {}
        path = gate_run.options.cluster or ""
        inputs = config.inputs(path) if complete and config is not None else [(path or "?", [])]
        try:
            verdict_cache.put(store, verdict, refresh_s, hooks, inputs, gate_run.error)
            if complete and gate_run.report is not None:
                store.write(_REPORT, json.dumps(gate_run.report).encode())
        except StateDirError as error:
            gate_run.cache_error = str(error)

    return keep


def _rules(settings: Any) -> dict[str, Any]:
    return {"strict": bool(settings.strict), "cached": settings.cached is not False, "actions": actions(settings)}


def _lines(result: NodeEvaluation) -> tuple[str, ...]:
    more = len(result.lines) - _MOST_LINES
    return result.lines[:_MOST_LINES] + ((f"  and {more} more: see the report",) if more > 0 else ())


def _about(gate_run: GateRun, config: Configuration) -> Mapping[str, Any]:
    from preflight.version import VERSION

    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(gate_run.at)), "version": VERSION,
        "command": f"gate {gate_run.options.hook}", "seconds": round(time.monotonic() - gate_run.watch.began, 3),
        "cluster_file": config.cluster.path or None,
    }  # fmt: skip


def _apply_to_slurm(gate_run: GateRun, verdict: Verdict, config: Configuration) -> None:
    """Apply a verdict in Slurm, if the hook may; the result is announced with the verdict."""
    rule = gate_run.rule(verdict.status)
    lifts = verdict.status == "pass" and gate_run.options.hook == "slurm-healthcheck"
    if not policy.HOOKS[gate_run.options.hook].drains or not (rule.action in ("drain", "refuse") or lifts):
        return
    gate_run.watch.phase = "telling Slurm"
    from preflight._startup.lightclass import replace
    from preflight.gate import slurm
    from preflight.gate.slurm import drain_settings

    settings = drain_settings.of(config.gate)
    settings = replace(
        settings, dry_run=gate_run.dry_run, deadline_s=max(1.0, min(settings.deadline_s, gate_run.watch.left_s - 0.5))
    )
    outcome = slurm.apply(verdict, rule, settings)
    if outcome.line:
        gate_run.slurm_line = ascii_reason(f"{PREFIX}{outcome.line.removeprefix(PREFIX)}", 1000)
        gate_run.lines = (gate_run.slurm_line, *gate_run.lines)
    gate_run.exit = outcome.exit

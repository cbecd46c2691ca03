"""Judging this node for a seat: ask it, judge it, keep the verdict, do what follows, tell."""

from __future__ import annotations

import gc
import json
import os
import time

from preflight.collect import prestart
from preflight.gate import announce, policy, scheduler_env, verdict_cache
from preflight.gate.apply_configuration import actions, apply_configuration
from preflight.gate.gate_run import Sitting
from preflight.gate.ownership import heeded
from preflight.gate.state_dir import StateDirError, Store, locate
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from preflight.checks import Registry
    from preflight.evidence.document import Evidence
    from preflight.gate.configuration import Configuration
    from preflight.gate.evaluate import Judged, Selection
    from preflight.gate.verdict_cache import Cached
    from preflight.probes import Probe

    Keep = Callable[[Verdict, bool], None]

#: Seconds of a deadline that are kept for judging, telling Slurm and writing; and the share of it at most.
_RESERVE_S, _RESERVE_SHARE = 3.0, 0.35

#: Seconds of the collector's time that ``transport.local.node`` waits beyond it.
_SLACK_S = 1.0

_LOCK, _REPORT = "refresh.lock", "report.json"
_MOST_LINES = 12


def run(sitting: Sitting, before: Cached | None) -> int:
    """Judge this node, or the nodes of a job; return the exit status. ``before`` is a verdict that is still good."""
    asked = sitting.asked
    if asked.seat == "slurm-controller":
        from preflight.gate import job_hook

        return job_hook.run(sitting)
    if asked.seat == "slurm-step":
        if scheduler_env.other_task():
            announce.say(f"{PREFIX}{sitting.node}: task 0 of this node judges it, not task "
                     f"{os.environ['SLURM_LOCALID'][:9]}", loud=False)  # fmt: skip
            return 0
        if why := scheduler_env.uncovered():
            return sitting.finish(sitting.untold("gate.coverage", why))
    sitting.watch.alone(prestart.start)
    store, why = _store(sitting)
    if store is not None and asked.refresh:
        try:
            alone = store.lock(_LOCK) is not None
        except StateDirError:  # a file system that was made read-only; judge all the same: what is kept is told below
            alone = True
        if not alone:
            announce.say(f"{PREFIX}{sitting.node}: another process is judging this node already", loud=True)
            return policy.rule(asked.seat, "unknown").exit
    return _judge(sitting, before, store, why)


def _store(sitting: Sitting) -> tuple[Store | None, str]:
    """Return the state directory of a seat that keeps verdicts, or why there is none."""
    if not policy.SEATS[sitting.asked.seat].cached:
        return None, ""
    try:
        return Store(locate(sitting.asked.state_dir), create=True), ""
    except StateDirError as error:
        return None, str(error)


def _judge(sitting: Sitting, before: Cached | None, store: Store | None, unkept: str) -> int:
    from preflight.checks import DuplicateCheck, registry
    from preflight.gate import configuration

    asked, watch = sitting.asked, sitting.watch
    sitting.keep = _keeper(sitting, store, unkept)
    watch.phase = "reading the cluster file"
    known, clash = None, ""
    try:
        known = registry()
    except DuplicateCheck as error:
        clash = str(error)
    found = configuration.read(asked.cluster, store, known.ids if known else list)
    apply_configuration(sitting, found)
    sitting.keep = _keeper(sitting, store, unkept, found)
    if known is None or not found.usable:
        return _misconfigured(sitting, found, clash or found.error)
    try:
        bench = _Bench(sitting, found, known)
        evidence = _ask(sitting, known.probes, found, meanwhile=bench.prepare)
        watch.phase = "judging"
        result = bench.judged(evidence)
    except configuration.UnknownCheck as error:
        return _misconfigured(sitting, found, str(error))
    verdict = _verdict(sitting, bench, result)
    if before is not None and verdict.status == "unknown" and before.verdict.cause in verdict.unknowns:
        verdict = before.verdict  # what failed a while ago could not be seen this time
    sitting.verdict, sitting.evidence = verdict, evidence
    sitting.lines = _lines(result)
    sitting.report = {**result.report, "run": _about(sitting, found)}
    if result.whole:
        sitting.keep(verdict, True)
    _settle(sitting, verdict, found)
    return sitting.finish(verdict)


class _Bench:
    """What judging needs; it is imported and read while the node is being asked."""

    def __init__(self, sitting: Sitting, found: Configuration, known: Registry) -> None:
        self.found = found
        self._sitting, self._known = sitting, known
        self._selection: Selection | None = None

    @property
    def selection(self) -> Selection:
        """The checks of this seat; raises UnknownCheck."""
        from preflight.gate import evaluate

        if self._selection is None:
            seat, gate = self._sitting.asked.seat, self.found.gate
            self._selection = evaluate.select(self._known.checks, gate, gate.seat(seat), seat)
        return self._selection

    def prepare(self) -> None:
        """Import the checks, and what turns their findings into a verdict."""
        import syslog  # noqa: F401

        from preflight.judge import prepare

        prepare(self.selection.checks)

    def judged(self, evidence: Evidence) -> Judged:
        """Judge what the node has answered."""
        from preflight.gate import evaluate

        seat = self._sitting.asked.seat
        gpus = scheduler_env.gpus() if seat in ("slurm-prolog", "slurm-step") else None
        expects = policy.SEATS[seat].expects
        return evaluate.judged(evidence, self.found.cluster, self.selection, seat=seat, expects=expects, gpus=gpus)


def _misconfigured(sitting: Sitting, found: Configuration, why: str) -> int:
    """End without a verdict on the node: what is wrong is the configuration, and no node is drained for that."""
    verdict = sitting.untold("gate.configuration", why, "error")
    sitting.lines = tuple(announce.plain(part) for part in why.split(" | "))
    if sitting.keep is not None:
        sitting.keep(verdict, True)
    _settle(sitting, verdict, found)
    return sitting.finish(verdict)


def _ask(sitting: Sitting, probes: Sequence[Probe], found: Configuration, meanwhile: Callable[[], object]) -> Evidence:
    from preflight.probes import checkpoints, plan
    from preflight.transport.local.node import collect

    watch, name = sitting.watch, found.cluster.class_of(sitting.node)
    path = found.cluster.classes[name].checkpoint.path if name is not None else None
    reserve_s = min(_RESERVE_S, _RESERVE_SHARE * watch.deadline_s) + _SLACK_S
    limit_s = max(0.5, watch.left_s - reserve_s)
    watch.phase = "asking this node"
    wanted = [*heeded(probes), *([checkpoints(path)] if path else [])]
    document = collect(plan(wanted, node=sitting.node, deadline_s=limit_s), meanwhile=meanwhile)
    gc.freeze()  # a collection need not look at what was imported
    gc.enable()
    from preflight.evidence.document import DocumentError, from_document, no_answer

    try:
        return from_document(document, sitting.node)
    except DocumentError as error:
        return no_answer(sitting.node, "read", str(error), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def _verdict(sitting: Sitting, bench: _Bench, result: Judged) -> Verdict:
    gpus = () if result.whole else sorted(scheduler_env.gpus() or ())
    choices = [f"{sitting.asked.seat} {gpus}" if gpus else sitting.asked.seat]
    return Verdict(
        announce.name(sitting.node), result.status, sitting.at, boot_id=verdict_cache.boot_id(),
        policy=bench.found.policy((f"{check.id} {check.gating}" for check in bench.selection.checks), choices),
        cause=result.cause, reason=result.reason, whose=result.whose, causes=result.causes, unknowns=result.unknowns,
        off=result.off, seconds=round(time.monotonic() - sitting.watch.began, 3),
    )  # fmt: skip


def _keeper(sitting: Sitting, store: Store | None, unkept: str, found: Configuration | None = None) -> Keep:
    """Return what writes a verdict to the state directory; one that is not whole is never believed by anybody."""

    def keep(verdict: Verdict, whole: bool) -> None:
        if store is None:
            sitting.unkept = unkept
            return
        gate = found.gate if found is not None else None
        refresh_s = (gate.refresh_s if gate is not None else None) or verdict_cache.REFRESH_S
        seats = {name: _rules(gate.seat(name)) for name in policy.SEATS} if gate is not None else {}
        path = sitting.asked.cluster or ""
        inputs = found.inputs(path) if whole and found is not None else [(path or "?", [])]
        try:
            verdict_cache.put(store, verdict, refresh_s, seats, inputs, sitting.error)
            if whole and sitting.report is not None:
                store.write(_REPORT, json.dumps(sitting.report).encode())
        except StateDirError as error:
            sitting.unkept = str(error)

    return keep


def _rules(seat: Any) -> dict[str, Any]:
    return {"strict": bool(seat.strict), "cached": seat.cached is not False, "actions": actions(seat)}


def _lines(result: Judged) -> tuple[str, ...]:
    more = len(result.lines) - _MOST_LINES
    return result.lines[:_MOST_LINES] + ((f"  and {more} more: see the report",) if more > 0 else ())


def _about(sitting: Sitting, found: Configuration) -> Mapping[str, Any]:
    from preflight.version import VERSION

    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(sitting.at)), "version": VERSION,
        "command": f"gate {sitting.asked.seat}", "seconds": round(time.monotonic() - sitting.watch.began, 3),
        "cluster_file": found.cluster.path or None,
    }  # fmt: skip


def _settle(sitting: Sitting, verdict: Verdict, found: Configuration) -> None:
    """Tell Slurm, if the seat may; what came of it is told with the verdict."""
    rule = sitting.rule(verdict.status)
    lifts = verdict.status == "pass" and sitting.asked.seat == "slurm-healthcheck"
    if not policy.SEATS[sitting.asked.seat].drains or not (rule.action in ("drain", "refuse") or lifts):
        return
    sitting.watch.phase = "telling Slurm"
    from preflight._startup.lightclass import replace
    from preflight.gate import slurm
    from preflight.gate.slurm import drain_settings

    how = drain_settings.of(found.gate)
    how = replace(how, dry_run=sitting.dry_run, deadline_s=max(1.0, min(how.deadline_s, sitting.watch.left_s - 0.5)))
    settled = slurm.settle(verdict, rule, how)
    if settled.line:
        sitting.settled = ascii_reason(f"{PREFIX}{settled.line.removeprefix(PREFIX)}", 1000)
        sitting.lines = (sitting.settled, *sitting.lines)
    sitting.exit = settled.exit

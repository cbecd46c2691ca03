"""The way into ``preflight gate``: a fresh verdict is served before anything that judges is imported.

However it goes wrong, the process ends as the hook's table says: a typo in a script must not drain a cluster.
"""

from __future__ import annotations

import os

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.gate_run import GateRun
from preflight.gate.options import Options, parse_plain
from preflight.gate.watchdog import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preflight.gate.verdict_cache import Cached

#: The caller when the first word is no hook: SLURM_SCRIPT_CONTEXT -> hook (slurm.conf(5)).
_CONTEXTS = {"prolog_slurmd": "slurm-prolog", "prolog_slurmctld": "slurm-controller"}


def main(words: Sequence[str], otherwise: Callable[[Sequence[str]], int]) -> int:
    """Carry out the words after ``preflight gate``; return the exit status.

    ``otherwise`` carries out what is not plain: help, and errors, which it leaves to ``usage_error``.
    """
    parsed = parse_plain(words)
    if parsed is not None:
        return run_hook(parsed)
    try:
        return otherwise(words)
    except Exception as error:
        return usage_error(words[0] if words else "", f"{type(error).__name__}: {error}")


def run_hook(options: Options) -> int:
    """Run a hook; return the exit status. Never raises, nor takes longer than its deadline and a second."""
    scheduler_env.sanitize_process()
    hook = policy.HOOKS[options.hook]
    watch = Watch(options.deadline or hook.deadline_s)
    if (
        options.hook == "init-container"
        and options.termination_log is None
        and os.path.exists(announce.TERMINATION_LOG)
    ):
        options.termination_log = announce.TERMINATION_LOG
    gate_run = GateRun(options, scheduler_env.node_name(options.node), watch)
    watch.start(gate_run.on_deadline)
    try:
        return _serve_or_judge(gate_run, hook)
    except Exception as error:  # a fault of ours is none of the node's
        return gate_run.finish(gate_run.unknown_verdict("gate.crash", f"preflight itself failed: {_where(error)}"))


def crashed(hook: str, error: Exception) -> int:
    """Report a fault of ours that no verdict could be made of; return the exit status of *unknown*."""
    hook = hook if hook in policy.HOOKS else _CONTEXTS.get(os.environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    text = announce.plain(f"preflight: NOT JUDGED: preflight itself failed: {_where(error)} (gate {hook})")
    announce.print_line(text, loud=True)
    if not hook:
        return 3
    announce.log(text, "error")
    return policy.rule(hook, "unknown").exit


def usage_error(hook: str, what: str) -> int:
    """Report a usage error of a hook; return the exit status."""
    if hook not in policy.HOOKS:
        hook = _CONTEXTS.get(os.environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    status = policy.rule(hook, "error").exit if hook else 2
    unjudged = ": the job starts, NOT JUDGED" if status == 0 else ""
    text = announce.plain(f"preflight: USAGE ERROR: {what} (gate{' ' * bool(hook)}{hook}{unjudged})")
    announce.print_line(text, loud=True)
    if hook:
        announce.log(text, "error")
    return status


def _serve_or_judge(gate_run: GateRun, hook: policy.Hook) -> int:
    options, cached = gate_run.options, None
    if hook.cached and not options.refresh:
        gate_run.watch.phase = "reading the state directory"
        cached, why = _look(gate_run)
        periodic = options.hook == "slurm-healthcheck"
        if cached is not None and (periodic or cached.allowed(options.hook)):
            if periodic or cached.rule(options.hook, options.strict).exit == 0:
                return _serve(gate_run, cached, refresh=periodic and cached.due)
        elif periodic and _in_background(gate_run):
            return gate_run.finish(gate_run.unknown_verdict("gate.no-verdict", f"{why}; one is being made"))
    from preflight.gate import node_hook

    return node_hook.run(gate_run, cached)


def _look(gate_run: GateRun) -> tuple[Cached | None, str]:
    """Return the verdict that is in the state directory, or why none there is good."""
    from preflight.gate import state_dir, verdict_cache
    from preflight.gate.verdict import UnusableVerdict

    try:
        state = state_dir.StateDir(state_dir.locate(gate_run.options.state_dir))
        try:
            return verdict_cache.look(state, announce.name(gate_run.node), gate_run.options.cluster), ""
        finally:
            state.close()
    except (state_dir.StateDirError, UnusableVerdict) as error:
        return None, str(error)


def _serve(gate_run: GateRun, cached: Cached, *, refresh: bool) -> int:
    rules = cached.hooks.get(gate_run.options.hook, {})
    gate_run.actions = rules.get("actions", {})
    gate_run.strict = gate_run.strict or bool(rules.get("strict"))
    gate_run.error = cached.error
    if refresh:
        _in_background(gate_run)
    return gate_run.finish(cached.verdict, cached.age_s)


def _in_background(gate_run: GateRun) -> bool:
    """Judge the node in a process that outlives this one; return whether its verdict can be written."""
    from preflight.gate import background_refresh

    placed: list[bool] = []
    gate_run.watch.run_single_threaded(lambda: placed.append(background_refresh.start(gate_run.options, run_hook)))
    return placed == [True]


def _where(error: Exception) -> str:
    """Name an exception and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{at}"

"""Entry point of ``preflight gate``.

A fresh verdict is served before the judge is imported. Other requests are judged (``node_hook``, ``job_hook``). The
policy turns the verdict into a result, which this thread writes; at the deadline, the deadline thread writes the
completed part. After any failure the process exits as defined by the hook's policy: a typo in a script must not drain a
cluster.
"""

from __future__ import annotations

import os

from preflight.gate import announce, policy, result, scheduler_env
from preflight.gate.options import Options, parse_plain
from preflight.gate.request import GateRequest, from_options
from preflight.gate.watchdog import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preflight.gate.result import GateResult, PassedOn, Progress
    from preflight.gate.verdict_cache import Cached

#: The hook that is assumed if the first word is not one: SLURM_SCRIPT_CONTEXT -> hook (slurm.conf(5)).
_CONTEXTS = {"prolog_slurmd": "slurm-prolog", "prolog_slurmctld": "slurm-controller"}


def main(words: Sequence[str], otherwise: Callable[[Sequence[str]], int]) -> int:
    """Run the arguments of ``preflight gate``; return the exit status.

    ``otherwise`` handles help and unusual arguments, and passes errors to ``usage_error``.
    """
    parsed = parse_plain(words)
    if parsed is not None:
        return run_hook(parsed)
    try:
        return otherwise(words)
    except Exception as error:
        return usage_error(words[0] if words else "", f"{type(error).__name__}: {error}")


def run_hook(options: Options) -> int:
    """Run a hook; return the exit status.

    Never raises. After the deadline, at most ``watchdog.OUTPUT_S`` seconds are left for the output.
    """
    scheduler_env.sanitize_process()
    request = from_options(options)
    watch = Watch(request.began, request.deadline_s, result.begun(request), _finish_late)
    watch.start()
    gate_result: GateResult | PassedOn
    try:
        gate_result = _run(request, watch)
    except Exception as error:  # an internal error is not a fault of the node
        why = f"preflight itself failed: {_where(error)}"
        gate_result = result.in_time(watch.progress.unjudged("gate.crash", why))
    watch.close(gate_result.exit_status)
    if isinstance(gate_result, result.PassedOn):
        announce.print_line(gate_result.text, loud=gate_result.loud)
        return gate_result.exit_status
    return announce.announce(gate_result)


def _finish_late(progress: Progress, why: str, killed: bool) -> int:
    """End a run in the deadline thread; return the exit status."""
    return announce.announce(result.late(progress, why, killed))


def crashed(hook: str, error: Exception) -> int:
    """Report an internal error that left no verdict.

    Return the exit status of *unknown*.
    """
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


def _run(request: GateRequest, watch: Watch) -> GateResult | PassedOn:
    """Serve a cached verdict that is valid for the hook, or judge."""
    hook, options, cached = request.hook, request.options, None
    if hook.cached and not options.refresh:
        watch.enter("reading the state directory")
        cached, why = _look(request)
        periodic = hook.name == "slurm-healthcheck"
        if cached is not None and (periodic or cached.allowed(hook.name)):
            if periodic or cached.rule(hook.name, options.strict).exit == 0:
                if periodic and cached.due:
                    _in_background(request, watch)
                return result.in_time(result.served(request, cached))
        elif periodic and _in_background(request, watch):
            return result.in_time(watch.progress.unjudged("gate.no-verdict", f"{why}; one is being made"))
    if hook.name == "slurm-controller":
        from preflight.gate import job_hook

        return job_hook.run(request, watch)
    from preflight.gate import node_hook

    return node_hook.run(request, watch, cached)


def _look(request: GateRequest) -> tuple[Cached | None, str]:
    """Return the cached verdict, or None and the reason why none is valid."""
    from preflight.gate import state_dir, verdict_cache
    from preflight.gate.verdict import UnusableVerdict

    try:
        state = state_dir.StateDir(state_dir.locate(request.options.state_dir))
        try:
            return verdict_cache.look(state, announce.name(request.node), request.options.cluster), ""
        finally:
            state.close()
    except (state_dir.StateDirError, UnusableVerdict) as error:
        return None, str(error)


def _in_background(request: GateRequest, watch: Watch) -> bool:
    """Judge the node in a process that outlives this one.

    Return whether its verdict can be written.
    """
    from preflight.gate import background_refresh

    return watch.run_single_threaded(lambda: background_refresh.start(request.options, run_hook))


def _where(error: Exception) -> str:
    """Describe an exception and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{at}"

"""The way into ``preflight gate``: a fresh verdict is served before anything that judges is imported.

However it goes wrong, the process ends as the seat's table says: a typo in a script must not drain a cluster.
"""

from __future__ import annotations

import os

from preflight.gate import announce, options, policy, scheduler_env
from preflight.gate.gate_run import Sitting
from preflight.gate.options import Options
from preflight.gate.watchdog import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preflight.gate.verdict_cache import Cached

#: Who calls when the first word is no seat: SLURM_SCRIPT_CONTEXT -> seat (slurm.conf(5)).
_CONTEXTS = {"prolog_slurmd": "slurm-prolog", "prolog_slurmctld": "slurm-controller"}


def main(words: Sequence[str], otherwise: Callable[[Sequence[str]], int]) -> int:
    """Carry out the words after ``preflight gate``; return the exit status.

    ``otherwise`` carries out what is not plain: help, and mistakes, which it leaves to ``usage_error``.
    """
    asked = options.plain(words, tuple(policy.SEATS))
    if asked is not None:
        return answer(asked)
    try:
        return otherwise(words)
    except Exception as error:
        return usage_error(words[0] if words else "", f"{type(error).__name__}: {error}")


def answer(asked: Options) -> int:
    """Answer for a seat; return the exit status. Never raises, nor takes longer than its deadline and a second."""
    scheduler_env.settle_in()
    seat = policy.SEATS[asked.seat]
    watch = Watch(asked.deadline or seat.deadline_s)
    if asked.seat == "init-container" and asked.termination_log is None and os.path.exists(announce.TERMINATION_LOG):
        asked.termination_log = announce.TERMINATION_LOG
    sitting = Sitting(asked, scheduler_env.node_name(asked.node), watch)
    watch.start(sitting.late)
    try:
        return _sit(sitting, seat)
    except Exception as error:  # a fault of ours is none of the node's
        return sitting.finish(sitting.untold("gate.crash", f"preflight itself failed: {_where(error)}"))


def crashed(seat: str, error: Exception) -> int:
    """Report a fault of ours that no verdict could be made of; return the exit status of one that could not be told."""
    seat = seat if seat in policy.SEATS else _CONTEXTS.get(os.environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    text = announce.plain(f"preflight: NOT JUDGED: preflight itself failed: {_where(error)} (gate {seat})")
    announce.say(text, loud=True)
    if not seat:
        return 3
    announce.log(text, "error")
    return policy.rule(seat, "unknown").exit


def usage_error(seat: str, what: str) -> int:
    """Say what is wrong with how a seat was called; return the exit status."""
    if seat not in policy.SEATS:
        seat = _CONTEXTS.get(os.environ.get("SLURM_SCRIPT_CONTEXT", ""), "")
    status = policy.rule(seat, "error").exit if seat else 2
    unjudged = ": the job starts, NOT JUDGED" if status == 0 else ""
    text = announce.plain(f"preflight: USAGE ERROR: {what} (gate{' ' * bool(seat)}{seat}{unjudged})")
    announce.say(text, loud=True)
    if seat:
        announce.log(text, "error")
    return status


def _sit(sitting: Sitting, seat: policy.Seat) -> int:
    asked, found = sitting.asked, None
    if seat.cached and not asked.refresh:
        sitting.watch.phase = "reading the state directory"
        found, why = _look(sitting)
        periodic = asked.seat == "slurm-healthcheck"
        if found is not None and (periodic or found.allowed(asked.seat)):
            if periodic or found.rule(asked.seat, asked.strict).exit == 0:
                return _serve(sitting, found, refresh=periodic and found.due)
        elif periodic and _in_background(sitting):
            return sitting.finish(sitting.untold("gate.no-verdict", f"{why}; one is being made"))
    from preflight.gate import node_hook

    return node_hook.run(sitting, found)


def _look(sitting: Sitting) -> tuple[Cached | None, str]:
    """Return the verdict that is in the state directory, or why none there is good."""
    from preflight.gate import state_dir, verdict_cache
    from preflight.gate.verdict import UnusableVerdict

    try:
        state = state_dir.Store(state_dir.locate(sitting.asked.state_dir))
        try:
            return verdict_cache.look(state, announce.name(sitting.node), sitting.asked.cluster), ""
        finally:
            state.close()
    except (state_dir.StateDirError, UnusableVerdict) as error:
        return None, str(error)


def _serve(sitting: Sitting, found: Cached, *, refresh: bool) -> int:
    rules = found.seats.get(sitting.asked.seat, {})
    sitting.actions = rules.get("actions", {})
    sitting.strict = sitting.strict or bool(rules.get("strict"))
    sitting.error = found.error
    if refresh:
        _in_background(sitting)
    return sitting.finish(found.verdict, found.age_s)


def _in_background(sitting: Sitting) -> bool:
    """Have the node judged by a process that outlives this one; tell whether there is a place for its verdict."""
    from preflight.gate import background_refresh

    placed: list[bool] = []
    sitting.watch.alone(lambda: placed.append(background_refresh.start(sitting.asked, answer)))
    return placed == [True]


def _where(error: Exception) -> str:
    """Name an exception and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{at}"

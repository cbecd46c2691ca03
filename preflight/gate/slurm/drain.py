"""Setting and lifting drains: read, act, read again.

Only drains set by preflight are changed. slurmctld has no compare-and-set: an administrator may drain the node between
reading and acting; the second reading shows their drain only if it was set after ours.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from preflight._startup.lightclass import dataclass
from preflight.gate.slurm import drain_limit, drain_reason
from preflight.gate.slurm.drain_settings import Settings
from preflight.gate.slurm.scontrol import Controller, ControllerError
from preflight.gate.slurm.scontrol_nodes import Node
from preflight.gate.verdict import PREFIX, Verdict

#: Seconds after which no later drain can have the same time: slurmctld has a resolution of one second.
_NEXT_SECOND = 1.1


@dataclass(frozen=True)
class DrainOutcome:
    """Outcome for a node: a log line, whether it is drained, whether to alert."""

    line: str
    drained: bool = False
    human: bool = False


def drain(
    controller: Controller, name: str, verdict: Verdict, settings: Settings, wait: Callable[[float], None] = time.sleep
) -> DrainOutcome:
    """Drain a node that failed; raises ControllerError.

    The node is left unchanged if it is down, or if others drained it or set a reason; it stays in service if too many
    nodes are drained.
    """
    text = drain_reason.drained(name, verdict.reason, verdict.owner)
    nodes = controller.nodes()
    own = _own(nodes, name)
    if mark := drain_reason.ours(name, own.reason):
        return _update_reason(controller, own, mark, text, verdict, settings)
    if own.drained or own.down or own.reason:
        return DrainOutcome(
            f"the node is left unchanged: {_as_it_is(own)}; found: {verdict.reason}", own.drained or own.down
        )
    if why := drain_limit.before(nodes, own, verdict.cause, int(time.time()), settings):
        return _hold(controller, own, verdict, why, settings)
    if settings.dry_run:
        return DrainOutcome(f"dry run: would drain the node{_jobs(own)}: {text}")
    controller.drain(name, text)
    wait(_NEXT_SECOND)
    try:
        return _look_again(controller, name, text, verdict, settings)
    except ControllerError as error:
        return DrainOutcome(
            f"drained the node: {text}; it is not known whether too many are drained: {error}", True, True
        )


def _look_again(controller: Controller, name: str, text: str, verdict: Verdict, settings: Settings) -> DrainOutcome:
    """Verify our drain, and undo it if it exceeds the limit.

    Raises ControllerError.
    """
    nodes = controller.nodes()
    own = _own(nodes, name)
    if own.reason != text:
        return DrainOutcome(f"changed concurrently: {_as_it_is(own)}; found: {verdict.reason}", own.drained)
    if why := drain_limit.after(nodes, own, settings):
        lifted = _undrain(controller, own)
        return lifted if lifted.drained else _hold(controller, own, verdict, why, settings)
    if drain_reason.ours(name, own.comment):  # the node was held and is now drained
        _comment(controller, name, "")
    return DrainOutcome(f"drained the node{_jobs(own)}: {text}", True)


def lift(controller: Controller, name: str, verdict: Verdict, settings: Settings) -> DrainOutcome:
    """Lift our drain or remove our comment from a node that passed.

    Raises ControllerError.
    """
    own = controller.node(name)
    if own.drained and drain_reason.ours(name, own.reason):
        if verdict.at <= own.at:
            return DrainOutcome("the node stays drained: it was drained after it passed", True)
        if own.down:
            return DrainOutcome(f"the node stays drained: {_as_it_is(own)}", True)
        if settings.dry_run:
            return DrainOutcome(f"dry run: would lift our drain: {own.reason}", True)
        outcome = _undrain(controller, own)
    elif own.drained or own.down:
        outcome = DrainOutcome(f"the node passed, and is left unchanged: {_as_it_is(own)}", True)
    else:
        outcome = DrainOutcome("")
    if drain_reason.ours(name, own.comment) and not settings.dry_run:
        _comment(controller, name, "")
        return DrainOutcome(outcome.line or "the node is healthy again: removed our comment", outcome.drained)
    return outcome


def _update_reason(
    controller: Controller, own: Node, mark: drain_reason.DrainMark, text: str, verdict: Verdict, settings: Settings
) -> DrainOutcome:
    """Leave our drain in place; update its reason if the cause has changed."""
    if mark.cause in verdict.causes or settings.dry_run:
        return DrainOutcome(f"the node is already drained: {own.reason}", True)
    controller.set_reason(own.name, text)
    now = controller.node(own.name)
    if now.reason != text:
        return DrainOutcome(f"changed concurrently: {_as_it_is(now)}; found: {verdict.reason}", now.drained)
    return DrainOutcome(f"the node stays drained, now for a different cause: {text}", True)


def _undrain(controller: Controller, own: Node) -> DrainOutcome:
    """Lift our drain if it is unchanged since the last reading; verify the result."""
    before = controller.node(own.name)
    if (before.reason, before.at, before.user) != (own.reason, own.at, own.user):
        return DrainOutcome(f"the drain is no longer ours and stays: {_as_it_is(before)}", before.drained)
    controller.undrain(own.name)
    now = controller.node(own.name)
    if now.drained:
        return DrainOutcome(f"the node was drained by another user at the same time: {_as_it_is(now)}", True)
    return DrainOutcome(f"lifted our drain: {own.reason}")


def _hold(controller: Controller, own: Node, verdict: Verdict, why: str, settings: Settings) -> DrainOutcome:
    """Leave a failed node in service, with an alert in the log and its comment.

    Comments set by others are not overwritten.
    """
    line = f"NOT DRAINED, alert an administrator: {why}; [{verdict.owner}] {verdict.reason.removeprefix(PREFIX)}"
    if settings.dry_run:
        return DrainOutcome(f"dry run: {line}", human=True)
    now, mark = int(time.time()), drain_reason.ours(own.name, own.comment)
    stale = mark is None or mark.cause != verdict.cause or mark.at < now - settings.window_s // 2
    if stale and (mark or own.comment in ("", "(null)")):
        _comment(controller, own.name, drain_reason.held(own.name, verdict.reason, verdict.owner, now))
    return DrainOutcome(line, human=True)


def _comment(controller: Controller, name: str, text: str) -> None:
    """Set a node's comment; errors are ignored, since it is only informative."""
    with contextlib.suppress(ControllerError):
        controller.comment(name, text)


def _own(nodes: dict[str, Node], name: str) -> Node:
    if name not in nodes:
        raise ControllerError(f"the controller does not know node {name}")
    return nodes[name]


def _as_it_is(node: Node) -> str:
    """Return a node's state and the reason set by others, which is untrusted."""
    reason = node.reason.encode("ascii", "backslashreplace").decode()
    reason = " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())[:200]
    return f"{'+'.join(node.states)}{f' by {node.user}' if node.user else ''}: {reason or 'no reason given'}"


def _jobs(node: Node) -> str:
    return f" (jobs on {node.cpus_in_use} of its CPUs continue)" if node.cpus_in_use else ""

"""Application of a verdict in Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.gate.policy import PolicyRule
from preflight.gate.slurm import drain, requeue
from preflight.gate.slurm.drain import DrainOutcome
from preflight.gate.slurm.drain_settings import Settings
from preflight.gate.slurm.scontrol import Controller, ControllerError
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason


@dataclass(frozen=True)
class SlurmResult:
    """Result in Slurm: a log line, whether the node is drained, the exit status.

    ``exit`` is the rule's exit status, unless it would make slurmd drain a node that must not be drained: then it is 0,
    and the job was removed from the node. ``human``: an administrator must act.
    """

    line: str
    drained: bool
    exit: int
    human: bool = False


def apply(
    verdict: Verdict, rule: PolicyRule, settings: Settings | None = None, environ: Mapping[str, str] = os.environ
) -> SlurmResult:
    """Apply a verdict on this node: drain, undrain, or remove the job.

    Change only the node in SLURMD_NODENAME, and only if its host name is this host's. Remove the job in SLURM_JOB_ID
    only in a Prolog. Failures are reported in the line; no exception is raised.
    """
    settings = settings or Settings()
    number = _job(environ)
    try:
        controller = Controller(settings, environ)
        name = _this_node(controller, environ)
        outcome = _act(controller, name, verdict, rule, settings)
        if number and not outcome.drained and rule.action in ("refuse", "drain") and rule.exit != 0:
            return _job_away(controller, number, verdict, rule, outcome, settings)
    except ControllerError as error:
        line = f"Slurm was not updated: {_plain(str(error))}; {verdict.reason}"
        return SlurmResult(line, False, rule.exit, human=rule.exit != 0)
    return SlurmResult(_plain(outcome.line), outcome.drained, rule.exit, outcome.human)


def hold_job(
    number: str, verdict: Verdict, rule: PolicyRule, settings: Settings, environ: Mapping[str, str] = os.environ
) -> SlurmResult:
    """Requeue and hold a job that failed because of its own settings; never raises.

    A job that cannot be requeued is cancelled.
    """
    try:
        why = ascii_reason(verdict.reason)
        done = requeue.put_back(Controller(settings, environ), number, why, settings, hold=True)
    except ControllerError as error:
        return SlurmResult(_plain(f"job {number} could not be held: {error}"), False, rule.exit, human=True)
    return SlurmResult(_plain(done), False, 0)


def _act(controller: Controller, name: str, verdict: Verdict, rule: PolicyRule, settings: Settings) -> DrainOutcome:
    if verdict.status == "pass":
        return drain.lift(controller, name, verdict, settings)
    if verdict.status == "fail" and rule.action == "drain" and verdict.owner != "job":
        return drain.drain(controller, name, verdict, settings)
    return DrainOutcome(f"the node is not drained: [{verdict.owner}] {verdict.reason}")


def _job_away(
    controller: Controller, number: str, verdict: Verdict, rule: PolicyRule, outcome: DrainOutcome, settings: Settings
) -> SlurmResult:
    """Remove the job from the node, so that the Prolog can exit 0.

    After a non-zero exit status, slurmd would drain the node with the reason "Prolog error".
    """
    if settings.dry_run:
        return SlurmResult(_plain(f"{outcome.line}; dry run: job {number} starts"), False, 0, outcome.human)
    try:
        why = ascii_reason(f"{PREFIX}{verdict.node}: {verdict.reason.removeprefix(PREFIX)}")
        done = requeue.put_back(controller, number, why, settings, hold=verdict.owner == "job")
    except ControllerError as error:
        line = f"{outcome.line}; job {number} could not be requeued, so Slurm drains the node: {error}"
        return SlurmResult(_plain(line), False, rule.exit, human=True)
    return SlurmResult(_plain(f"{outcome.line}; {done}"), False, 0, outcome.human)


def _this_node(controller: Controller, environ: Mapping[str, str]) -> str:
    """Return Slurm's name of this node.

    Raises ControllerError if it is another node's name.
    """
    name = environ.get("SLURMD_NODENAME", "")
    if not name:
        raise ControllerError("SLURMD_NODENAME is not set: not started by slurmd")
    host, own = controller.node(name).host.partition(".")[0], os.uname().nodename.partition(".")[0]
    if host.lower() != own.lower():
        raise ControllerError(f"node {name} is host {host}, but this is {own}: other nodes are never changed")
    return name


def _job(environ: Mapping[str, str]) -> str:
    """Return the id of the job of this Prolog; empty in other hooks."""
    number = environ.get("SLURM_JOB_ID", "")
    in_prolog = environ.get("SLURM_SCRIPT_CONTEXT", "prolog_slurmd") == "prolog_slurmd"
    return number if in_prolog and re.fullmatch(r"[0-9]{1,10}", number) else ""


def _plain(text: str) -> str:
    """Return text as one line of printable ASCII, for comments, logs, terminals."""
    ascii_text = " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")
    return "".join(letter if letter.isprintable() else "?" for letter in ascii_text)[:1000]

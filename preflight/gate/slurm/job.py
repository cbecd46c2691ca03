"""What becomes of the job of a node that failed and may not be drained.

A Prolog has one word for "not here", an exit status that is not 0, and slurmd makes a drain of it (``Prolog error``):
exactly what the breaker, or the policy, has just forbidden. So the job is taken off the node through the controller,
before the Prolog ends with 0: slurmd then finds it "already killed" and starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.gate.slurm.controller import Controller, ControllerError
from preflight.gate.slurm.settings import Settings

#: States of a job that starts (squeue(1), JOB STATE CODES); in any other it is not going to be here.
_STARTS = ("CONFIGURING", "RUNNING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED")


def put_back(controller: Controller, number: str, why: str, settings: Settings, hold: bool = False) -> str:
    """Take a job off this node before it starts, and say how; raises ControllerError if it would start all the same.

    A batch job goes back into the queue, for ``put_back_s`` seconds or, with ``hold``, until somebody releases it. A
    job of srun or salloc, and one submitted with --no-requeue, ends, as Slurm itself ends them when a Prolog fails;
    its owner is told. Several nodes of one job may do this at once.
    """
    job = controller.job(number)
    if gone := _gone(job):
        return gone
    number = job.get("HetJobId", number)  # only the whole of a heterogeneous job can be requeued
    if job.get("BatchFlag") == "1" and job.get("Requeue") != "0":
        try:
            return _requeued(controller, number, why, settings, hold)
        except ControllerError as error:
            if gone := _gone(controller.job(number)):  # another node of the job did the same at the same time
                return gone
            raise error
    _tell(controller, number, why)
    controller.cancel(number)
    return f"job {number} was cancelled (it cannot be requeued)"


def _gone(job: Mapping[str, str]) -> str:
    """Say that a job is off its nodes; empty if it may still start there."""
    state = job.get("JobState", "")
    return "" if not state or state in _STARTS else f"job {job.get('JobId', '')} is off the node already ({state})"


def _requeued(controller: Controller, number: str, why: str, settings: Settings, hold: bool) -> str:
    if hold:
        controller.hold(number, why)
        return f"job {number} was requeued and is held: scontrol release {number}"
    controller.requeue(number)
    controller.hold_back(number, settings.put_back_s, why)
    return f"job {number} was requeued, to start in {settings.put_back_s / 60:g} min at the earliest"


def _tell(controller: Controller, number: str, why: str) -> None:
    try:
        controller.notify(number, why)
    except ControllerError:  # its srun is gone, and so is whoever could have read it
        return

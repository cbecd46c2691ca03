"""Handling of the job on a failed node that may not be drained.

A Prolog can refuse a job only by a non-zero exit status, which makes slurmd drain the node (``Prolog error``); the
breaker or the policy has just forbidden that. So the job is removed through the controller before the Prolog exits 0:
slurmd then finds it "already killed" and does not start it.
"""

from __future__ import annotations

from preflight.gate.slurm.drain_settings import Settings
from preflight.gate.slurm.scontrol import Controller, ControllerError
from preflight.gate.slurm.squeue import SlurmJob

#: States of a job that starts (squeue(1), JOB STATE CODES); in other states it will not run on this node.
_STARTS = ("CONFIGURING", "RUNNING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED")


def put_back(controller: Controller, number: str, why: str, settings: Settings, hold: bool = False) -> str:
    """Remove a job from this node before it starts; return how.

    A batch job is requeued, and delayed by ``put_back_s`` seconds or, with ``hold``, held until it is released. A job
    of srun or salloc, or submitted with --no-requeue, is cancelled, as by Slurm itself when a Prolog fails; its owner
    is notified. Several nodes of one job may do this at the same time. Raises ControllerError if the job would still
    start.
    """
    job = controller.job(number)
    if job is None or job.state not in _STARTS:
        return _gone(number, job)
    if job.returns:
        try:
            return _requeued(controller, job.target_id, why, settings, hold)
        except ControllerError as error:
            now = controller.job(number)
            if now is None or now.state not in _STARTS:  # another node of the job did the same at the same time
                return _gone(number, now)
            raise error
    _notify_owner(controller, number, why)
    controller.cancel(job.target_id)
    return f"job {job.target_id} was cancelled (it cannot be requeued)"


def _gone(number: str, job: SlurmJob | None) -> str:
    return f"job {number} is already off the node ({job.state if job is not None else 'it has ended'})"


def _requeued(controller: Controller, number: str, why: str, settings: Settings, hold: bool) -> str:
    if hold:
        controller.hold(number, why)
        return f"job {number} was requeued and is held; release it with: scontrol release {number}"
    controller.requeue(number)
    controller.hold_back(number, settings.put_back_s, why)
    return f"job {number} was requeued and starts in {settings.put_back_s / 60:g} min at the earliest"


def _notify_owner(controller: Controller, number: str, why: str) -> None:
    try:
        controller.notify(number, why)
    except ControllerError:  # its srun has ended
        return

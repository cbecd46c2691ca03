"""The request for one run of the gate: hook, options, node, time.

Imported before every job.
"""

from __future__ import annotations

import os
import time

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.options import Options
from preflight.gate.values import dataclass
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class GateRequest:
    """One call of a hook.

    ``node`` is the subject: this node, or the nodes of a job as folded by Slurm. ``job`` is the Slurm job id (""
    outside a job), ``at`` the time in seconds since 1970 UTC, ``began`` the same moment on the monotonic clock.
    ``deadline_s`` comes from the option or the hook; the cluster file and slurmd may limit it further.
    """

    hook: policy.Hook
    options: Options
    node: str
    job: str
    at: int
    began: float
    deadline_s: float

    @property
    def seconds(self) -> float:
        """Seconds since the hook was called."""
        return round(time.monotonic() - self.began, 3)

    def unknown_verdict(self, check: str, why: str, status: str = "unknown") -> Verdict:
        """Return the verdict on a node that could not be judged.

        ``check`` names the cause.
        """
        from preflight.gate.verdict_cache import boot_id

        return Verdict(
            announce.name(self.node), status, self.at, boot_id=boot_id(),
            reason=ascii_reason(f"{PREFIX}{check}: {why}"),
            unknowns=(check,) if status == "unknown" else (), seconds=self.seconds,
        )  # fmt: skip


def from_options(options: Options) -> GateRequest:
    """Return the request from a command line and the scheduler's environment."""
    hook = policy.HOOKS[options.hook]
    default_log = hook.name == "init-container" and options.termination_log is None
    if default_log and os.path.exists(announce.TERMINATION_LOG):
        options = changed(options, termination_log=announce.TERMINATION_LOG)
    return GateRequest(
        hook, options, scheduler_env.node_name(options.node), scheduler_env.job(), int(time.time()), time.monotonic(),
        options.deadline or hook.deadline_s,
    )  # fmt: skip


def changed(options: Options, **changes: Any) -> Options:
    """Return a copy of the options with changes."""
    return Options(**{name: getattr(options, name) for name in Options.__slots__} | changes)

"""Error messages of srun: node and cause.

Messages of Slurm 22.05 (tested) to 25.05; unknown messages are reported unchanged.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from preflight.transport.errors import NoAnswer, quoted

#: A node on which no task could be started: its slurmd is dead, hangs or refuses.
_LAUNCH = re.compile(r"srun: error: Task launch for (?:StepId=)?\S+ failed on node (\S+): (.*)")
#: A task that failed, or several of one node.
_ENDED = re.compile(r"srun: error: (\S+): tasks? (\d+)[\d,-]*: (.*)")
#: A node that went down during the step.
_NODE_DOWN = re.compile(r"srun: error: Node failure on (\S+)")
_EXIT = re.compile(r"Exited with exit code (\d+)")

#: Messages without a cause: consequences of another failure, or the state of the queue.
_CONSEQUENCES = re.compile(
    r"Application launch failed|Job step aborted|forcing job termination|Terminating StepId|slurm_receive_msgs"
    r"|queued and waiting|has been allocated|got SIG|\*\*\* STEP|Force Terminated"
)


class SrunMessage(NamedTuple):
    """One line of srun's output; ``node`` is empty if the line names none."""

    node: str = ""
    task: int | None = None
    status: int | None = None  # exit status of the task
    answer: NoAnswer | None = None  # why the node does not answer
    cause: str = ""  # why no node answers


def meaning(line: bytes) -> SrunMessage:
    """Parse a line of srun's standard error."""
    text = quoted(line)
    if found := _LAUNCH.match(text):
        why = f"its slurmd did not start the task: {found[2]}; check: scontrol show node {found[1]}"
        return SrunMessage(found[1], answer=NoAnswer("start", why))
    if found := _ENDED.match(text):
        code = _EXIT.search(found[3])
        return SrunMessage(found[1], int(found[2]), int(code[1]) if code else None)
    if found := _NODE_DOWN.match(text):
        return SrunMessage(found[1], answer=NoAnswer("collect", "Slurm reports that the node failed during the step"))
    if not text or _CONSEQUENCES.search(text):
        return SrunMessage()
    return SrunMessage(cause=re.sub(r"^srun: (error: )?", "", text))

"""Judging in the background: HealthCheckProgram may not be kept waiting for a slow disk.

The process is forked, not started: who was started without a path may not know its own interpreter.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from preflight.gate.options import Options

#: Seconds that judging in the background may take.
DEADLINE_S = 60.0


def start(asked: Options, judge: Callable[[Options], object]) -> bool:
    """Judge this node anew in a process of its own; return False if there is nowhere to write the verdict.

    ``judge`` runs a hook. The process belongs to another session, so that slurmd does not end it with the process
    group of its caller.
    """
    from preflight.gate import state_dir

    try:
        state_dir.Store(state_dir.locate(asked.state_dir), create=True).close()
    except state_dir.StateDirError:
        return False
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return True
    try:
        os.setsid()
        if os.fork() == 0:
            _refresh(asked, judge)
    finally:
        os._exit(0)


def _refresh(asked: Options, judge: Callable[[Options], object]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 1024)
    os.chdir("/")
    asked.refresh = True
    asked.deadline = max(asked.deadline or 0, DEADLINE_S)
    judge(asked)

"""Judgement in the background, so that HealthCheckProgram never waits for it.

Fork rather than exec: ``sys.executable`` can be empty when PATH is unset.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from preflight.gate import state_dir
from preflight.gate.request import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from preflight.gate.options import Options

#: Time limit in seconds for judging in the background.
DEADLINE_S = 60.0


def start(options: Options, judge: Callable[[Options], object]) -> bool:
    """Judge this node again in a separate process.

    Returns False if the state directory cannot be used. ``judge`` runs a hook. The process has its own session, so
    that slurmd does not end it with the process group of its caller.
    """
    try:
        state_dir.StateDir(state_dir.locate(options.state_dir), create=True).close()
    except state_dir.StateDirError:
        return False
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return True
    try:
        os.setsid()
        if os.fork() == 0:
            _refresh(options, judge)
    finally:
        os._exit(0)


def _refresh(options: Options, judge: Callable[[Options], object]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 1024)
    os.chdir("/")
    judge(changed(options, refresh=True, deadline=max(options.deadline or 0, DEADLINE_S)))

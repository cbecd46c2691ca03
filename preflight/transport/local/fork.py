"""A collector of this node that is a fork of this very process: no interpreter to start, little left to import.

A lock that another thread holds would never be released in the copy, so only a process with a single thread is
forked: one at its very start, which is also when its memory is small.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, NoReturn


class Forked:
    """A collector started by a fork; of Popen's attributes those that are used here."""

    def __init__(self) -> None:
        """Start it; raise OSError if that cannot be done, NotImplementedError where it would not be safe."""
        if len(os.listdir("/proc/self/task")) != 1:
            raise NotImplementedError
        pipes = [os.pipe() for _ in range(3)]
        try:
            if min(map(min, pipes)) < 3:  # this process was started without its standard streams
                raise NotImplementedError
            (plan, stdin), (stdout, answer), (stderr, errors) = pipes
            self.pid = os.fork()
            if self.pid == 0:
                _become_collector(plan, answer, errors)
        except BaseException:
            for fd in [fd for pipe in pipes for fd in pipe]:
                os.close(fd)
            raise
        for fd in (plan, answer, errors):
            os.close(fd)
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb", 0)
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb", 0)
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb", 0)

    def wait(self) -> int:
        """Reap it and return its exit status, negative if a signal ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _become_collector(*streams: int) -> NoReturn:
    """Do as ``ship.BOOT_INSTALLED`` does, in a session and with standard streams of its own."""
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.closerange(3, 256)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        gc.freeze()  # else a collection would visit, and so copy, all that is the other process's
        from preflight.collector.__main__ import main

        plan = open(0, "rb", closefd=False).readline()  # noqa: SIM115
        if plan.endswith(b"\n"):
            main(plan)
    except Exception as error:
        print(f"the collector failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)

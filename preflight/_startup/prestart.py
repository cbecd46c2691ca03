"""Early start of this node's collector, while the command line is imported.

Both take about the same time. The collector is a fork of this process, which saves the start of an interpreter and most
imports. It waits for a plan, and exits if this process ends without one. A lock held by another thread would never be
released in the copy, so only a single-threaded process is forked: at its start, when its memory is also small.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, NoReturn

_COMMANDS = ("check", "collect")

#: Options that select other nodes, or no node.
_ELSEWHERE = ("--hosts", "--hostfile", "--job", "--rerun", "--pods", "--via", "--help", "-h")


def collects_locally(words: Sequence[str]) -> bool:
    """Return whether an unparsed command line collects from this node."""
    return bool(words) and words[0] in _COMMANDS and not any(word.startswith(_ELSEWHERE) for word in words)


def start() -> None:
    """Start this node's collector if a fork is safe; otherwise it starts later."""
    gc.disable()  # until everything is imported; modules never become garbage (``collect.local.collect``)
    try:
        _started.append(Forked())
    except (OSError, NotImplementedError):
        return


def take() -> Forked | None:
    """Return the collector that was started early, at most once; else None."""
    return _started.pop() if _started else None


class Forked:
    """A collector started by a fork, with the attributes of ``Popen`` that are used."""

    def __init__(self) -> None:
        """Fork the collector; raises OSError on failure, NotImplementedError if unsafe."""
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
        """Reap the collector; return its exit status, negative if a signal ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _become_collector(*streams: int) -> NoReturn:
    """Run like ``payload.BOOT_INSTALLED``, in a new session with new streams."""
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.closerange(3, 256)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        gc.freeze()  # a collection would visit, and so copy, the parent's objects
        from preflight.collector.__main__ import main

        plan = open(0, "rb", closefd=False).readline()  # noqa: SIM115
        if plan.endswith(b"\n"):
            main(plan)
    except Exception as error:
        print(f"the collector failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


_started: list[Forked] = []

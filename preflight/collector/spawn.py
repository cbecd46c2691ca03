"""Start of commands in a new session, with their output in pipes.

A fork copies the page tables of the collector while all its threads wait. posix_spawn does not, but its caller's
threads wait for the execve, which hangs on a dead file server. So only binaries on the same file system as this
interpreter are started with posix_spawn.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Any, Dict, List, Optional, Sequence, Tuple, Union

    Process = Union["Spawned", subprocess.Popen[bytes]]

_ELF = b"\x7fELF"


class Spawned:
    """A command started by posix_spawn, with the attributes of Popen that are used."""

    def __init__(self, argv: "Sequence[bytes]", variables: "Dict[str, str]", fed: bool) -> None:
        """Start the command; raise OSError or NotImplementedError.

        Needs Python 3.8. NotImplementedError means that the system does not support it.
        """
        self.stdin: "Optional[IO[bytes]]" = None
        actions: "List[Any]" = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]  # novermin
        theirs, ours = [], []
        try:
            if fed:
                end, mine = _pipe()
                theirs, ours, actions = [end], [mine], [(os.POSIX_SPAWN_DUP2, end, 0)]  # novermin
            for fd in (1, 2):
                mine, end = _pipe()
                theirs.append(end)
                ours.append(mine)
                actions.append((os.POSIX_SPAWN_DUP2, end, fd))  # novermin
            self.pid = os.posix_spawn(  # novermin
                argv[0], list(argv), variables, file_actions=actions, setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )  # fmt: skip
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        if fed:
            self.stdin = os.fdopen(ours.pop(0), "wb", 0)
        self.stdout, self.stderr = (os.fdopen(fd, "rb", 0) for fd in ours)

    def wait(self) -> int:
        """Reap the command; return its exit status, negative if a signal ended it."""
        status = os.waitpid(self.pid, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def start(argv: "Sequence[str]", variables: "Dict[str, str]", fed: bool) -> "Process":
    """Start a command; its standard input is a pipe if ``fed``. Raises OSError."""
    words = [_encoded(word) for word in argv]
    if hasattr(os, "posix_spawn") and _is_near(argv[0]):
        try:
            return Spawned(words, variables, fed)
        except NotImplementedError:  # setsid needs a C library of 2018
            pass
    import subprocess

    # With vfork, used by newer versions, a fork would also wait for the execve.
    subprocess._USE_VFORK = False  # type: ignore[attr-defined]
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=variables,
        start_new_session=True,
    )


def _encoded(word: str) -> bytes:
    """Return a word as bytes, even if Python in the C locale knows only ASCII."""
    try:
        return os.fsencode(word)
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogateescape")


def _pipe() -> "Tuple[int, int]":
    ends = os.pipe()
    if min(ends) < 3:  # this process was started without its standard streams
        for fd in ends:
            os.close(fd)
        raise NotImplementedError
    return ends


def _is_near(path: str) -> bool:
    """Return whether a path is a binary on the file system of this interpreter."""
    try:
        if os.stat(path).st_dev != os.stat(sys.executable).st_dev:
            return False
        with open(path, "rb", buffering=0) as stream:
            return stream.read(4) == _ELF
    except OSError:
        return False

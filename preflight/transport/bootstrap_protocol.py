"""Protocol that starts the collector behind any login shell.

It uses one command and one channel, and writes no file on the node. The command searches for Python and announces
itself on standard output; until then, no input is sent that a shell could execute. The module does no I/O, so every
transport with three streams can use it.
"""

from __future__ import annotations

import base64
import functools
import re
import zlib
from collections.abc import Mapping
from typing import Any

from preflight.collector import frame
from preflight.evidence import document as evidence
from preflight.evidence import node_result
from preflight.transport import answer_memory, payload
from preflight.transport.errors import NoAnswer, quoted
from preflight.transport.ssh.switch_cli import network_switch

#: Names of Python 3 to search for, in this order.
PYTHONS = (
    "python3",
    "/usr/libexec/platform-python",
    *(f"python3.{minor}" for minor in range(14, 5, -1)),
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
)

_READY, _NO_PYTHON, _BOOT = "PREFLIGHT-READY", "PREFLIGHT-NO-PYTHON", "preflight-boot"
_ON_TERMINAL = "PREFLIGHT-ON-TERMINAL"
_UNUSABLE, _UNFED, _UNHEARD = 97, 95, 94

# Contains no quote and no shell metacharacter.
_STAGE = (
    f"import signal,sys;sys.version_info<(3,6)and sys.exit({_UNUSABLE});signal.alarm(60);"
    f"i=sys.stdin and sys.stdin.buffer or sys.exit({_UNFED});i.isatty()and sys.exit(sys.argv[3]);"
    # a file or /dev/null: the answer would be lost
    f"sys.stdout and not sys.stdout.seekable()or sys.exit({_UNHEARD});"
    "print(sys.argv[1],sys.hexversion,flush=True);"
    "n=next((int(l.split()[1])for l in iter(i.readline,bytes())if l.startswith(sys.argv[2].encode())),0);"
    f"n or sys.exit({_UNFED});exec(i.read(n))"
)

# The same for a request in the arguments; standard input then only shows that the caller is alive.
_STAGE_OF_ARGUMENTS = (
    f"import base64,io,signal,sys,types,zlib;sys.version_info<(3,6)and sys.exit({_UNUSABLE});signal.alarm(60);"
    "print(sys.argv[1],sys.hexversion,flush=True);"
    "i=io.BytesIO(zlib.decompress(base64.b64decode(str().join(sys.argv[2:]))));"
    "sys.stdin=types.SimpleNamespace(buffer=i);exec(i.read(int(i.readline().split()[1])))"
)


def _script(stage: str, arguments: str) -> str:
    return (
        f"for p in {' '.join(PYTHONS)};do command -v $p >/dev/null 2>&1||continue;"
        f'$p -I -S -c "{stage}" {arguments};s=$?;'
        f'case $s in {_UNUSABLE}|126|127)o="$o $p";;*)exit $s;;esac;done;'
        f'echo {_NO_PYTHON} "$o" : $PATH >&2;exit 127'
    )


# Quoted in single quotes, without inner quotes, backslashes, exclamation marks or line ends, so that sh, bash, zsh,
# fish, csh and tcsh parse it the same way. Without a leading exec, a restricted shell runs it as well.
_SCRIPT = _script(_STAGE, f"{_READY} {_BOOT} {_ON_TERMINAL}")

#: For transports without a login shell: the argument of ``sh -c``, and a command without sh.
SCRIPT = _SCRIPT
SCRIPT_OF_ARGUMENTS = _script(_STAGE_OF_ARGUMENTS, f'{_READY} "$@"')
WITHOUT_SHELL = ("python3", "-I", "-S", "-c", _STAGE, _READY, _BOOT, _ON_TERMINAL)

#: The command to run on the node, for a login shell of any kind.
COMMAND = f"sh -c '{_SCRIPT}'"

#: A start-up file may read a line of our input, or exec a shell that runs our input as a script: then the only command
#: it gets is to exit.
_LEFT = 96
OPENING = b"exit %d\n" % _LEFT * 3

#: Maximum bytes of an answer, and of all other output of a node; more ends the connection.
ANSWER_LIMIT = 16 * 1024 * 1024
NOISE_LIMIT = 4 * 1024 * 1024

_ANNOUNCED = re.compile(rb"%s \d+\r?\n" % _READY.encode())
# What the node prints differs from the text in the command, which a start-up file with "set -x" or "set echo" prints.
_NOT_FOUND = re.compile(rb"%s  (?P<unusable>[^:\n]*):(?P<path>[^\n]*)" % _NO_PYTHON.encode())
_AT_TERMINAL = re.compile(rb"%s\r?\n" % _ON_TERMINAL.encode())
_TAIL = 4000

#: Reasons why a login shell is late; fish reads all input before it runs the first line.
HANGS = "a start-up file hangs, or execs a shell or program that takes our input (exec fish)"

_GUARD = "guard it there with: case $- in *i*) exec …;; esac"
_REDIRECTED = {
    _UNFED: f"the collector's input does not arrive: a start-up file redirects standard input; {_GUARD}",
    _UNHEARD: f"the collector's output does not arrive: a start-up file redirects standard output; {_GUARD}",
}


@functools.cache
def collector() -> bytes:
    """Return the packed collector, the same bytes for all nodes of a run."""
    return payload.archive()


def request(plan: Mapping[str, Any], source: str = payload.BOOT) -> bytes:
    """Return the input for a command that has announced itself.

    ``source`` starts the collector on the node.
    """
    boot = source.encode("ascii")
    return b"%s %d\n%s" % (_BOOT.encode(), len(boot), boot) + payload.frame_of(collector(), plan)


def arguments(wanted: bytes) -> list[str]:
    """Return a request as the arguments of ``sh -c SCRIPT_OF_ARGUMENTS sh``.

    The kernel accepts at most 128 KiB in each argument.
    """
    text = base64.b64encode(zlib.compress(wanted, 9)).decode("ascii")
    return [text[at : at + 100_000] for at in range(0, len(text), 100_000)]


def lacks_python(stderr: bytes) -> bool:
    """Return whether the command ran and found no usable Python."""
    return bool(_NOT_FOUND.search(stderr))


class CollectorProtocol:
    """The protocol of one exchange with a node, fed with the node's output.

    Write OPENING first and, when ``announced`` becomes true, ``request(plan)``; then keep the node's standard input
    open. Stop reading when ``over`` is true; ``document`` then returns the answer.
    """

    def __init__(self) -> None:
        """Expect the first byte of the node's output."""
        self.announced = False
        self.complete = False
        self.stdout_bytes = 0
        self.stderr_bytes = 0
        self._reader = answer_memory.Reader()
        self._noise = b""
        self._stderr = b""

    @property
    def over(self) -> bool:
        """Whether reading can stop: the answer is complete, or the output is too long."""
        return self.complete or bool(self._flood())

    def hear(self, data: bytes) -> None:
        """Process bytes from the node's standard output."""
        self.stdout_bytes += len(data)
        if self.announced:
            self.complete = self._reader.feed(data) or self.complete
            return
        self._noise += data
        found = _ANNOUNCED.search(self._noise)
        if found:
            self.announced = True
            self._noise, rest = self._noise[: found.start()], self._noise[found.end() :]
            self.complete = self._reader.feed(rest)
        self._noise = self._noise[-_TAIL:]

    def hear_error(self, data: bytes) -> None:
        """Process bytes from the node's standard error."""
        self.stderr_bytes += len(data)
        self._stderr = (self._stderr + data)[-_TAIL:]

    def document(self, ended: str, status: int | None = None, *, late: bool = False) -> dict[str, Any]:
        """Return the node's Evidence document, or raise NoAnswer with the cause.

        ``ended`` is the reason for an abnormal end (``the connection was lost``); ``status`` is the command's exit
        status if known; ``late`` is true if the deadline ended the command.
        """
        if flood := self._flood():
            raise NoAnswer("read" if self.announced else "start", flood)
        if not self.announced:
            raise NoAnswer("start", self._not_started(ended, status, late))
        try:
            document = answer_memory.SHARED.document(self._reader)
            if not node_result.is_result(document):
                evidence.from_document(document, "the answer")
        except frame.NoFrame:
            if status == _UNFED and not ended:
                raise NoAnswer("start", _REDIRECTED[status]) from None
            raise NoAnswer("collect", self._with_output(_ended(ended, status))) from None
        except frame.CutFrame as error:
            raise NoAnswer("read", f"{_ended(ended, status)}: {error}") from None
        except (frame.FrameError, evidence.DocumentError) as error:
            raise NoAnswer("read", str(error)) from None
        return document

    def packed(self) -> tuple[bytes, int]:
        """Return the compressed document, after ``document``, and its inflated size."""
        return self._reader.packed()

    def _flood(self) -> str:
        if self.announced and self.stdout_bytes > ANSWER_LIMIT:
            return f"the answer is longer than {ANSWER_LIMIT >> 20} MiB"
        for count, stream in ((self.stdout_bytes, "output"), (self.stderr_bytes, "error")):
            if count > NOISE_LIMIT and not (self.announced and stream == "output"):
                excerpt = quoted((self._stderr if stream == "error" else self._noise)[:40])
                return f"more than {NOISE_LIMIT >> 20} MiB of other text on standard {stream}: {excerpt}"
        return ""

    def _not_started(self, ended: str, status: int | None, late: bool) -> str:
        if match := _NOT_FOUND.search(self._stderr):
            unusable = quoted(match["unusable"])
            also = f"; {unusable} cannot be used" if unusable else ""
            return f"no python3 (3.6 or newer) on the node{also}; searched PATH {quoted(match['path'])}"
        if system := network_switch(b"\n".join((self._stderr, self._noise))):
            why = f"this is a network switch ({system}), not a server: its command line rejected the collector"
            return self._with_output(f"{why}; remove it from --hosts")
        if ended:
            why = f": {HANGS}" if late else ""
            return self._with_output(f"{ended} before the login shell ran our command{why}; try: ssh HOST true")
        if status == _LEFT:
            why = "the login shell did not run our command: a start-up file execs another shell"
            return self._with_output(f"{why}; {_GUARD}")
        if status in _REDIRECTED:
            return self._with_output(_REDIRECTED[status])
        if _AT_TERMINAL.search(self._stderr + self._noise):
            why = "a start-up file gives our command a terminal, as session recorders do (script, tlog)"
            return f"{why}; {_GUARD}"
        if status == 0:
            why = "the login shell ended with status 0 and never ran our command: a start-up file exits"
            why += ", or sshd runs another command instead (ForceCommand)"
            return self._with_output(why)
        return self._with_output(f"the login shell did not run our command: {_ended('', status)}")

    def _with_output(self, reason: str) -> str:
        output = quoted(b" ".join(part for part in (self._stderr, self._noise, self._reader.noise) if part))
        return f"{reason}; the node printed: {output}" if output else reason


def _ended(ended: str, status: int | None) -> str:
    if ended:
        return ended
    if status is None or status < 0:
        return "the command ended without a status: killed, or the node went down"
    if status > 128:
        return f"the command was killed by signal {status - 128}" + (" (out of memory?)" if status == 137 else "")
    return f"exit status {status}"

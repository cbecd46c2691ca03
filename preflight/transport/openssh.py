"""Nodes over the system's own ``ssh``, for what paramiko cannot do: Kerberos, FIDO keys, host-based login.

One process for each node, in a process group of its own, which never asks anything. The frames are
those of every other transport; the user's configuration is read by ``ssh`` itself.
"""

from __future__ import annotations

import os
import random
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from preflight.transport import openssh_words
from preflight.transport.child import has_ended, kill_group, pipes
from preflight.transport.outcome import NoAnswer, TransportError, utc_now
from preflight.transport.remote import COMMAND, OPENING, Conversation, request

# RemoteCommand, LocalCommand and forwardings are for people's sessions; a shared connection (ControlMaster)
# would outlive ours and its deadline.
_OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "NumberOfPasswordPrompts=0", "UpdateHostKeys=no",
    "ControlMaster=no", "ControlPath=none", "RemoteCommand=none", "PermitLocalCommand=no",
    "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "Tunnel=no", "RequestTTY=no",
    "EscapeChar=none", "VisualHostKey=no", "LogLevel=INFO",
)  # fmt: skip

#: ssh's own exit status when it, and not the command on the node, has failed.
_SSH_FAILED = 255

#: Connections that end at once are tried so often, with pauses that grow from one to the other, seconds.
_ATTEMPTS, _PAUSE_S, _LONGEST_PAUSE_S = 8, 0.3, 3.0

#: Seconds kept of a node's time for bringing the answer back, and for ssh to end by itself.
_RETURN_S, _GRACE_S = 1.0, 0.3

_CHUNK, _STDERR_KEPT = 65536, 8000


class OpenSshTransport:
    """Collects from nodes over ``ssh`` processes; every method may be called from any thread."""

    def __init__(self, config: Path | None, hosts: Sequence[str], connect_timeout_s: float = 10.0) -> None:
        """Look at ``ssh`` and its configuration; raise TransportError if they are of no use."""
        self.warnings: tuple[str, ...] = ()
        self._connect_timeout_s = connect_timeout_s
        self._ssh = [shutil.which("ssh") or "", *(["-F", str(config)] if config else [])]
        self._environment = {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._processes: set[subprocess.Popen[bytes]] = set()
        if not self._ssh[0]:
            raise TransportError("there is no `ssh` in PATH: install OpenSSH, or use --via ssh")
        if hosts:
            self._check(hosts[0])

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan on a node by ``until`` on the monotonic clock; return its Evidence document.

        Whatever goes wrong is a ``no_answer`` document. The collector is given less time than the
        plan says if the connection has used it up.
        """
        at = utc_now()
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(host, plan, until)
            except _Busy as busy:
                pause_s = min(_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
                last = busy.answer
                if attempt == _ATTEMPTS - 1 or time.monotonic() + pause_s + _RETURN_S > until:
                    break
                self._closed.wait(pause_s)
            except NoAnswer as answer:
                last = answer
                break
        return last.document(host, at)

    def close(self) -> None:
        """End every ``ssh`` that still runs; what it has started on a node ends with it."""
        self._closed.set()
        with self._lock:
            for process in self._processes:
                kill_group(process)

    def _check(self, host: str) -> None:
        """Let ``ssh`` read the configuration, so that a mistake in it is found before any node is touched."""
        command = [*self._ssh, "-G", "--", host]
        try:
            ran = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=self._environment,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TransportError(f"`{' '.join(command)}` could not be run: {error}") from None
        if ran.returncode:
            said = " ".join(ran.stderr.decode("utf-8", "backslashreplace").split())
            raise TransportError(f"ssh does not accept its configuration: {said}")

    def _once(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        left_s = until - time.monotonic()
        connect_s = max(1, round(min(self._connect_timeout_s, left_s)))
        options = [part for option in (*_OPTIONS, f"ConnectTimeout={connect_s}") for part in ("-o", option)]
        process = self._start([*self._ssh, "-T", *options, "--", host, COMMAND])
        talk = _Talk(process, plan, until)
        try:
            talk.run()
        finally:
            status = self._end(process, _GRACE_S if talk.heard_out else 0.0)
        heard = talk.conversation
        if self._closed.is_set() and not heard.complete:
            raise NoAnswer("collect", "interrupted")
        if talk.late:
            ended = f"no answer within {left_s:.3g} s"
        elif status == _SSH_FAILED and not heard.announced:
            meaning = openssh_words.meaning(talk.stderr)
            raise _Busy(meaning.answer) if meaning.busy else meaning.answer
        else:
            ended = "the connection was lost" if status == _SSH_FAILED and talk.stderr else ""
        return heard.document(ended, None if status == _SSH_FAILED else status)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed.is_set():
                raise NoAnswer("connect", "interrupted")
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                    start_new_session=True, env=self._environment,
                )  # fmt: skip
            except OSError as error:
                raise NoAnswer("connect", f"{command[0]} could not be executed: {error.strerror}") from None
            self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes], patience_s: float) -> int | None:
        """End an ``ssh`` and its jump; return its exit status, None if it did not end by itself."""
        by_itself = has_ended(process.pid, patience_s)
        with self._lock:
            self._processes.discard(process)
            kill_group(process)
        for stream in pipes(process):
            stream.close()
        status = process.wait()
        return status if by_itself else None


class _Busy(Exception):
    """The connection was ended before anything was said on it; ``answer`` is what to tell if it stays so."""

    def __init__(self, answer: NoAnswer) -> None:
        super().__init__(str(answer))
        self.answer = answer


class _Talk:
    """Both directions of the conversation with a node, through one ``ssh``, up to a deadline."""

    def __init__(self, process: subprocess.Popen[bytes], plan: Mapping[str, Any], until: float) -> None:
        self.conversation = Conversation()
        self.stderr = b""
        self.late = self.heard_out = False
        self._plan, self._until = plan, until
        self._stdin, self._stdout, self._stderr = pipes(process)
        self._to_write = memoryview(OPENING)
        self._requested = False

    def run(self) -> None:
        """Go on until the answer is whole, ``ssh`` has closed its side, or the time is over."""
        os.set_blocking(self._stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            reading = [self._stdout, self._stderr]
            for stream in reading:
                selector.register(stream, selectors.EVENT_READ)
            while reading and not self.conversation.over:
                left_s = self._until - time.monotonic()
                if left_s <= 0:
                    self.late = True
                    return
                for key, _ in selector.select(left_s):
                    if key.fileobj is not self._stdin and not self._read(key.fd):
                        selector.unregister(key.fileobj)
                        reading.remove(cast("IO[bytes]", key.fileobj))
                self._write(selector)
            self.heard_out = not reading

    def _write(self, selector: selectors.BaseSelector) -> None:
        """Write what the pipe takes; watch it only while there is something to write."""
        if self.conversation.announced and not self._requested:
            left_s = self._until - time.monotonic() - _RETURN_S
            deadline_s = max(0.1, min(self._plan["deadline_s"], left_s))
            wanted = request({**self._plan, "deadline_s": deadline_s})
            self._to_write, self._requested = memoryview(bytes(self._to_write) + wanted), True
        watched = self._stdin in selector.get_map()
        try:
            while self._to_write:
                self._to_write = self._to_write[os.write(self._stdin.fileno(), self._to_write[:_CHUNK]) :]
        except BlockingIOError:
            if not watched:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            return
        except BrokenPipeError:
            self._to_write = self._to_write[:0]
        if watched:
            selector.unregister(self._stdin)

    def _read(self, fd: int) -> bool:
        data = os.read(fd, _CHUNK)
        if fd == self._stdout.fileno():
            self.conversation.hear(data)
        else:
            self.conversation.hear_error(openssh_words.LOST.sub(b"", data))
            self.stderr = (self.stderr + data)[-_STDERR_KEPT:]
        return bool(data)

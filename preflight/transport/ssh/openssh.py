"""Transport over the system's ``ssh``: Kerberos, FIDO keys, host-based login.

It is used for features that paramiko lacks. Each node has one process in its own process group, which never prompts.
The frames are those of the other transports; ``ssh`` itself reads the user's configuration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight.transport.bootstrap_protocol import COMMAND, HANGS
from preflight.transport.child_transport import ConnectionRejected, PipedTransport
from preflight.transport.errors import NoAnswer, TransportError, check_readable
from preflight.transport.ssh import error_messages

# RemoteCommand, LocalCommand and forwardings are for people's sessions; a shared connection (ControlMaster) would
# outlive this one and its deadline.
_OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "NumberOfPasswordPrompts=0", "UpdateHostKeys=no",
    "ControlMaster=no", "ControlPath=none", "RemoteCommand=none", "PermitLocalCommand=no",
    "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "Tunnel=no", "RequestTTY=no",
    "EscapeChar=none", "VisualHostKey=no", "LogLevel=INFO",
)  # fmt: skip

#: ssh's own exit status when it, and not the command on the node, has failed.
_SSH_FAILED = 255


class OpenSshTransport(PipedTransport):
    """Transport over ``ssh`` processes; methods are thread-safe."""

    def __init__(self, config: Path | None, hosts: Sequence[str], connect_timeout_s: float = 10.0) -> None:
        """Check ``ssh`` and its configuration; raise TransportError if unusable."""
        super().__init__({**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"})
        if config:
            check_readable(config)
        self._connect_timeout_s = connect_timeout_s
        self._ssh = [shutil.which("ssh") or "", *(["-F", str(config)] if config else [])]
        if not self._ssh[0]:
            raise TransportError("no `ssh` in PATH: install OpenSSH, or use --via ssh")
        if hosts:
            self._check(hosts[0])

    def _check(self, host: str) -> None:
        """Let ``ssh`` read the configuration.

        An error in it is found before any node is contacted.
        """
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
            message = " ".join(ran.stderr.decode("utf-8", "backslashreplace").split())
            raise TransportError(f"ssh rejects its configuration: {message}")

    def _once(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        left_s = until - time.monotonic()
        connect_s = max(1, round(min(self._connect_timeout_s, left_s)))
        options = [part for option in (*_OPTIONS, f"ConnectTimeout={connect_s}") for part in ("-o", option)]
        command = [*self._ssh, "-T", *options, "--", host, COMMAND]
        channel, status = self._converse(command, plan, until, error_messages.LOST)
        protocol = channel.protocol
        # ssh always prints why it could not connect; a silent end was a login that a signal ended
        silent = status == _SSH_FAILED and not channel.stderr.strip()
        before_login = not (protocol.stdout_bytes or silent or error_messages.LOGGED_IN.search(channel.stderr))
        if channel.late:
            # Behind a jump host, ssh may have printed the reason and still wait for its child ssh.
            if before_login and (failure := error_messages.known_meaning(channel.stderr)):
                raise failure.answer
            ended = f"no answer within {left_s:.3g} s"
            if not (protocol.stdout_bytes or channel.stderr.strip()):  # ssh does not report whether it has logged in
                raise NoAnswer("start", f"{ended}: sshd hangs during the login, or {HANGS}; try: ssh -v HOST true")
        elif status == _SSH_FAILED and before_login:
            meaning = error_messages.meaning(channel.stderr)
            raise ConnectionRejected(meaning.answer) if meaning.busy else meaning.answer
        else:
            ended = "the connection was lost" if status == _SSH_FAILED and channel.stderr else ""
        return protocol.document(ended, None if status == _SSH_FAILED else status, late=channel.late)

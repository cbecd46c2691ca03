"""Commands of a device without a shell, one after the other over one connection."""

from __future__ import annotations

import time
from collections.abc import Sequence

import paramiko

from preflight.transport.errors import NoAnswer
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.session import SshSession

#: Maximum bytes read from a stream at once.
_PIECE = 1 << 16


class CommandList:
    """A list of commands, each on its own channel.

    ``outputs`` has the output of each command that completed; None if it was too long.
    """

    def __init__(self, session: SshSession, commands: Sequence[str], gap_s: float, most_bytes: int) -> None:
        """Set the pause between commands, and the maximum size of an output in bytes."""
        self._session, self._commands, self._gap_s, self._most = session, commands, gap_s, most_bytes
        self.outputs: list[bytes | None] = []

    def script(self) -> Script:
        """Run the commands; raises NoAnswer."""
        try:
            for command in self._commands:
                if self.outputs:
                    time.sleep(self._gap_s)
                channel = yield from self._session.start_command(command)
                yield from self._listen(channel)
                channel.close()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self.outputs:
                raise NoAnswer("collect", f"the switch does not run commands: {error}") from None

    def _listen(self, channel: paramiko.Channel) -> Script:
        output = bytearray()
        while True:
            at_end = channel.eof_received or channel.closed or not self._session.active
            while channel.recv_stderr_ready():
                channel.recv_stderr(_PIECE)
            while channel.recv_ready():
                output += channel.recv(_PIECE)
                if len(output) > self._most:
                    self.outputs.append(None)
                    return
            if at_end:
                if channel.eof_received:  # otherwise the connection ended within the answer
                    self.outputs.append(bytes(output))
                return
            yield

"""Commands of a device without a shell, one after the other over one connection."""

from __future__ import annotations

import time
from collections.abc import Sequence

import paramiko

from preflight.transport.command_rules import CommandRules
from preflight.transport.errors import NoAnswer
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.session import SshSession

#: Maximum bytes read from a stream at once.
_PIECE = 1 << 16


class CommandList:
    """A list of commands, each on its own channel."""

    def __init__(self, session: SshSession, commands: Sequence[str], rules: CommandRules) -> None:
        """Set the commands and how they are sent."""
        self._session, self._commands, self._rules = session, commands, rules

    def script(self) -> Script:
        """Run the commands; raises NoAnswer."""
        begun = False
        try:
            for command in self._commands:
                if begun:
                    time.sleep(self._rules.gap_s)
                channel = yield from self._session.start_command(command)
                yield from self._listen(channel)
                channel.close()
                begun = True
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not begun:
                raise NoAnswer("collect", f"the switch does not run commands: {error}") from None

    def _listen(self, channel: paramiko.Channel) -> Script:
        output = bytearray()
        while True:
            at_end = channel.eof_received or channel.closed or not self._session.active
            while channel.recv_stderr_ready():
                channel.recv_stderr(_PIECE)
            while channel.recv_ready():
                output += channel.recv(_PIECE)
                if len(output) > self._rules.most_bytes:
                    self._rules.heard(None)
                    return
            if at_end:
                if channel.eof_received:  # otherwise the connection ended within the answer
                    self._rules.heard(bytes(output))
                return
            yield

"""SSH per host: paramiko, which is faster, or ``ssh``, which supports more.

A host goes to ``ssh`` if its configuration needs a feature that paramiko lacks, or if paramiko and the host have no
common algorithm or key type. A wrong host key, a refused login or a deadline does not: ``ssh`` would fail the same way.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.transport.command_rules import CommandRules
from preflight.transport.errors import NoAnswer, OpenSshRequired, utc_now
from preflight.transport.ssh.openssh import OpenSshTransport
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport

#: Minimum remaining seconds of a node's time for a second attempt.
_LEAST_S = 1.0


class AutoTransport:
    """SSH for one run; every method may be called from any thread.

    ``through_openssh`` has the reason for each host that used the system's ``ssh``.
    """

    def __init__(self, options: SshOptions, hosts: Sequence[str]) -> None:
        """Resolve the configuration of all hosts.

        Raises TransportError for an unusable configuration.
        """
        self.through_openssh: dict[str, str] = {}
        self._options = options
        self._ssh = SshTransport(options, hosts)
        self._lock = threading.Lock()
        self._openssh: OpenSshTransport | None = None
        self._closed = False

    @property
    def warnings(self) -> list[str]:
        """Warnings about the configuration, each once."""
        return self._ssh.notes

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan on a host by ``until``; always return a document.

        ``until`` is on the monotonic clock.
        """
        at, node = utc_now(), plan["node"] or host
        try:
            try:
                if demands := self._ssh.demands(host):
                    raise OpenSshRequired("connect", ", ".join(demands))
                return self._ssh.answer(host, plan, until)
            except OpenSshRequired as need:
                return {**self._system(host, need, until).collect(host, {**plan, "node": node}, until), "node": node}
        except NoAnswer as end:
            return end.document(node, at)

    def run_commands(self, host: str, commands: Sequence[str], rules: CommandRules, until: float) -> None:
        """Run commands of a device without a shell; raises NoAnswer.

        Only paramiko is used, because a connection of ``ssh`` runs only one command.
        """
        if demands := self._ssh.demands(host):
            raise NoAnswer("connect", f"show commands are not run through the system's ssh: {', '.join(demands)}")
        self._ssh.run_commands(host, commands, rules, until)

    def close(self) -> None:
        """Close all connections; processes on the hosts then exit."""
        with self._lock:
            self._closed = True
            openssh = self._openssh
        self._ssh.close()
        if openssh:
            openssh.close()

    def _system(self, host: str, need: OpenSshRequired, until: float) -> OpenSshTransport:
        """Return the system's ``ssh``, and record why a host needs it.

        Raises NoAnswer if it cannot be used.
        """
        if shutil.which("ssh") is None:
            raise NoAnswer(need.phase, f"{need.why}: this needs `ssh`, which is not in PATH: install OpenSSH")
        if until - time.monotonic() < _LEAST_S:
            raise NoAnswer(need.phase, f"{need.why}: this needs `ssh`, but no time is left")
        with self._lock:
            if self._closed:
                raise NoAnswer("connect", "interrupted")
            if self._openssh is None:
                # No hosts: the configuration has already been read and validated
                self._openssh = OpenSshTransport(self._options.config_file, (), self._options.connect_timeout_s)
            self.through_openssh[host] = need.why
            return self._openssh

"""Transport over SSH with paramiko: one connection and channel per node.

Keys, known hosts and configuration are read once per run. Every wait ends at the node's own deadline; a failing node
cannot delay another.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight._startup import paramiko_import  # noqa: F401  # before paramiko
from preflight.transport import bootstrap_protocol, errors
from preflight.transport.command_rules import CommandRules
from preflight.transport.errors import NoAnswer, TransportError
from preflight.transport.ssh import host_keys, stream
from preflight.transport.ssh import session as ssh_session
from preflight.transport.ssh.channel import CollectorChannel
from preflight.transport.ssh.command_list import CommandList
from preflight.transport.ssh.config import HostConfig, SshConfig
from preflight.transport.ssh.deadline_thread import DeadlineThread
from preflight.transport.ssh.host import HostSpec
from preflight.transport.ssh.jump import Jump
from preflight.transport.ssh.keys import KeyRing
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.session import SshSession
from preflight.transport.ssh.stream import ConnectionDropped, RecordedStream

__all__ = ["SshOptions", "SshTransport", "TransportError"]

#: Maximum number of attempts at a connection that the other side drops, and seconds before the second attempt; the
#: pause doubles.
_ATTEMPTS = 6
_PAUSE_S = 0.15

#: Maximum number of jump hosts in a row; more are treated as a loop.
_CHAIN = 8


@dataclass(frozen=True)
class SshOptions:
    """SSH options of the command line, for all nodes.

    ``config_file`` replaces the user's and the system's configuration. ``connect_timeout_s`` is the time from the
    first packet to sshd's banner. ``known_hosts`` replaces the configured files.
    """

    config_file: Path | None = None
    user: str | None = None
    connect_timeout_s: float = 15.0
    known_hosts: tuple[Path, ...] = ()


class SshTransport:
    """SSH for one run; ``warnings`` names unsupported settings."""

    def __init__(self, options: SshOptions, hosts: Sequence[str]) -> None:
        """Resolve the configuration of all hosts.

        Raises TransportError for an unusable configuration.
        """
        self.through_openssh: dict[str, str] = {}
        self._options = options
        self._config = SshConfig(options.config_file, options.user or "")
        self._configs = self._config.resolve(hosts)
        self._keys = KeyRing()
        self._alarm = DeadlineThread()
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, ...], host_keys.HostKeys] = {}
        self._revoked: dict[str, frozenset[bytes]] = {"": frozenset()}
        self._jumps: dict[tuple[HostConfig, ...], Jump] = {}
        self._sessions: set[SshSession] = set()
        self._closed = False
        bootstrap_protocol.collector()
        for config in self._configs.values():
            self._keys.identities(config)
            self._known_keys(config)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the configuration, each once."""
        beyond = dict.fromkeys(text for config in self._configs.values() for text in config.beyond)
        return [*(f"{text} of the SSH configuration is ignored; --via auto follows it" for text in beyond), *self.notes]

    @property
    def notes(self) -> list[str]:
        """The warnings that also apply to the system's ``ssh``."""
        unread = [text for known in self._known.values() for text in known.unread]
        return [*self._config.warnings, *(f"known hosts cannot be read: {text}" for text in unread)]

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Run a plan on a host; always return an Evidence document.

        Thread-safe. It returns by ``until`` on the monotonic clock; a host without an answer yields a ``no_answer``
        document with one of ``errors.PHASES`` and the cause.
        """
        at, node = errors.utc_now(), plan["node"] or host
        try:
            return self.answer(host, plan, until)
        except NoAnswer as end:
            return end.document(node, at)

    def answer(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Collect like ``collect``, but raise NoAnswer instead of returning its document."""
        node = plan["node"] or host
        try:
            return {**self._collect_from(host, {**plan, "node": node}, until), "node": node}
        except NoAnswer:
            raise
        except Exception as error:
            raise NoAnswer("read", f"preflight failed: {type(error).__name__}: {error}") from None

    def run_commands(self, host: str, commands: Sequence[str], rules: CommandRules, until: float) -> None:
        """Run commands of a device without a shell; raises NoAnswer."""
        self.carry_out(self._config_of(host), lambda session: CommandList(session, commands, rules).script(), until)

    def demands(self, host: str) -> tuple[str, ...]:
        """Return the settings of a host that only the system's ``ssh`` supports.

        The settings of its jump hosts are included.
        """
        config = self._config_of(host)
        jumps = [f"jump host {hop.name}: {text}" for hop in self._route(config) for text in hop.beyond]
        return tuple(dict.fromkeys((*config.beyond, *jumps)))

    def close(self) -> None:
        """Close all connections, also those in use: their collectors end themselves."""
        with self._lock:
            self._closed = True
            sessions, jumps = list(self._sessions), list(self._jumps.values())
            self._jumps.clear()
        for session in sessions:
            session.close()
        for jump in jumps:
            jump.close()
        self._keys.close()
        self._alarm.close()

    # One node

    def _collect_from(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        config = self._config_of(host)
        exchange: CollectorChannel | None = None

        def begin(session: SshSession) -> Script:
            nonlocal exchange
            exchange = CollectorChannel(session, plan, until, self._alarm)
            return exchange.script()

        self.carry_out(config, begin, until)
        assert exchange
        return exchange.document()

    def _config_of(self, host: str) -> HostConfig:
        with self._lock:
            config = self._configs.get(host)
        return config or self._resolve(host)

    def carry_out(self, config: HostConfig, begin: Callable[[SshSession], Script], until: float) -> None:
        """Connect, authenticate, run a script and disconnect.

        Raises NoAnswer, and the script's exceptions.
        """
        self._connect(config, self._route(config), begin, until)

    @contextlib.contextmanager
    def _registered(self, session: SshSession) -> Iterator[None]:
        """Register a session for ``close`` as long as it is in use."""
        with self._lock:
            self._sessions.add(session)
            late = self._closed
        if late:
            session.close()
        try:
            yield
        finally:
            with self._lock:
                self._sessions.discard(session)

    def _resolve(self, host: str) -> HostConfig:
        try:
            with self._lock:
                return self._config.resolve_one(host)
        except TransportError as error:
            raise NoAnswer("resolve", str(error)) from None

    def _connect(
        self,
        config: HostConfig,
        route: Sequence[HostConfig],
        begin: Callable[[SshSession], Script] | None,
        until: float,
    ) -> SshSession:
        """Open a connection; retry with growing random pauses if sshd drops it.

        A busy sshd drops connections. The connection closes after its script; without a script, it stays open.
        """
        again_until = self._soon(until)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._attempt(config, route, begin, until)
            except ConnectionDropped as drop:
                pause_s = _PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                if attempt == _ATTEMPTS or time.monotonic() + pause_s > again_until:
                    raise NoAnswer(drop.phase, f"{drop.reason} ({attempt} attempts)") from None
            time.sleep(pause_s)
        raise AssertionError("unreachable")

    def _soon(self, until: float) -> float:
        return min(until, time.monotonic() + self._options.connect_timeout_s)

    def _attempt(
        self,
        config: HostConfig,
        route: Sequence[HostConfig],
        begin: Callable[[SshSession], Script] | None,
        until: float,
    ) -> SshSession:
        banner_until = self._soon(until)
        known = self._known_to(config)
        offer = ssh_session.offer(config, known)  # unsupported settings are found before connecting
        if route:
            wire = self._jump(tuple(route)).through(config, self._options.connect_timeout_s, until)
            banner_until = self._soon(until)  # the jump host's time is not the node's
        elif config.proxy_command:
            wire = stream.proxy(config)
        else:
            wire = stream.connect(config, banner_until)
        session = _session(wire, config)
        try:
            session.choose(offer)
            opening = session.opening(known, self._keys.identities(config))
            with (
                self._alarm.at(banner_until, session.close_without_banner),
                self._alarm.at(until, session.close),
                self._registered(session),
            ):
                if begin is None:
                    session.keep(opening)
                else:
                    session.drive(_after(opening, begin(session)))
        except BaseException:
            session.close()
            raise
        return session

    def _known_keys(self, config: HostConfig) -> host_keys.HostKeys:
        files = self._options.known_hosts or config.known_hosts
        with self._lock:
            if files not in self._known:
                self._known[files] = host_keys.HostKeys(files)
            return self._known[files]

    def _known_to(self, config: HostConfig) -> host_keys.Known:
        with self._lock:
            if config.revoked not in self._revoked:
                self._revoked[config.revoked] = host_keys.revoked_keys(Path(config.revoked))
        return host_keys.known(
            self._known_keys(config),
            config.hostname,
            config.port,
            alias=config.host_key_alias,
            strict=config.strict,
            revoked=self._revoked[config.revoked],
        )

    # Jump hosts

    def _route(self, config: HostConfig) -> list[HostConfig]:
        """Return the jump hosts on the way to a host, in the order of connection."""
        route: list[HostConfig] = []
        jumps = config.proxy_jump
        while jumps:
            hops = [self._resolve(hop) for hop in jumps.split(",")]
            route = [*hops, *route]
            # As in OpenSSH, only the first of them uses its own configuration: "Host *" with a ProxyJump also matches
            # the jump host, which must not jump through itself.
            jumps = hops[0].proxy_jump
            if hops[0].name in [HostSpec.parse(hop).name for hop in jumps.split(",") if hop]:
                jumps = ""
            if len(route) > _CHAIN:
                raise NoAnswer(
                    "connect", f"ProxyJump leads through more than {_CHAIN} hosts: a loop in the SSH configuration"
                )
        return route

    def _jump(self, route: tuple[HostConfig, ...]) -> Jump:
        with self._lock:
            if route not in self._jumps:

                def open_session() -> SshSession:
                    return self._connect(route[-1], route[:-1], None, self._soon(math.inf))

                self._jumps[route] = Jump(route[-1].name, open_session)
            return self._jumps[route]


def _after(first: Script, then: Script) -> Script:
    yield from first
    yield from then


def _session(wire: RecordedStream, config: HostConfig) -> SshSession:
    try:
        return SshSession(wire, config)
    except BaseException:
        wire.close()
        raise

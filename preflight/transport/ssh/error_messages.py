"""Error messages of an ``ssh`` that cannot connect; OpenSSH 7.4 to 10."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.transport.errors import NoAnswer, quoted

_BULK = "for many: ssh-keyscan -f HOSTFILE >>~/.ssh/known_hosts, then compare the keys with a source you trust"

# Anchored at the start of a line: a start-up file on the node may print "Permission denied" as well.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (r"ssh: Could not resolve hostname (?P<where>\S+?): (?P<why>.+)", "resolve", "the name does not resolve: {why}"),
    (
        r"ssh: connect to host (?P<where>\S+) port (?P<port>\d+): Connection refused",
        "connect",
        "connection refused on port {port}: is sshd running?",
    ),
    (
        r"ssh: connect to host \S+ port (?P<port>\d+): (?P<why>.*timed out)",
        "connect",
        "no answer to the connection on port {port}: the node is down, or packets are dropped",
    ),
    (r"ssh: connect to host \S+ port (?P<port>\d+): (?P<why>.+)", "connect", "cannot connect to port {port}: {why}"),
    (r"channel \d+: open failed: (?P<why>.+)", "connect", "the jump host cannot connect to the node: {why}"),
    (
        r"Unable to negotiate with .*?: " r"(?P<why>no matching .+)",
        "banner",
        "ssh and the node have no common algorithm: {why}",
    ),
    (
        r"@ +WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED.*",
        "host-key",
        "the host key has changed: the node was reinstalled, or another host intercepts the connection; if it was "
        "reinstalled: "
        "ssh-keygen -R NODE",
    ),
    (r"@ +WARNING: REVOKED HOST KEY DETECTED.*", "host-key", "the host key is marked @revoked in known_hosts"),
    (
        r"No .+ host key is known for .+",
        "host-key",
        "the host key is unknown; add it with: ssh NODE true, answering yes; " + _BULK,
    ),
    (r"Host key verification failed\.", "host-key", "the host key could not be verified; try: ssh NODE true"),
    (
        r"\S+: Permission denied \((?P<why>.*)\)\.",
        "authenticate",
        "it accepts none of your keys, or not this user (or the account is locked); it accepts {why}",
    ),
    (
        r"Permission denied \((?P<why>.*)\)\.",
        "authenticate",
        "it accepts none of your keys, or not this user (or the account is locked); it accepts {why}",
    ),
    (
        r"(?:Received disconnect from|Disconnected from) .*(?P<why>Too many authentication failures).*",
        "authenticate",
        "too many keys were offered: set IdentitiesOnly and IdentityFile",
    ),
    (
        r"Connection timed out during banner exchange",
        "banner",
        "connected, but received no SSH banner: sshd hangs, the node is overloaded, or it is not an SSH server",
    ),
    (r"Bad (?:packet length|remote protocol version).*", "banner", "it is not an SSH server"),
    (
        r"(?:kex|ssh)_exchange_identification: (?P<why>(?!.*(?:closed|reset)).+)",
        "banner",
        "it is not an SSH server: {why}",
    ),
)

_COMPILED = tuple((re.compile(pattern), phase, reason) for pattern, phase, reason in _MEANINGS)

# Messages if sshd is at its MaxStartups limit; it accepts connections later.
_ENDED = re.compile(r"(?:kex|ssh)_exchange_identification: (?P<why>.+)|Connection (?P<how>closed|reset) by .*")
_RESET = re.compile(r"ssh: connect to host \S+ port \d+: Connection reset by peer")

#: Messages of ``ssh`` itself, not of the node, if a connection ends early.
LOST = re.compile(
    rb"^(?:client_loop: |Connection (?:to|closed|reset) |packet_write_\w+: |ssh_dispatch_run_fatal: ).*\n?",
    re.M,
)

#: Messages that ``ssh`` prints only for an established session.
LOGGED_IN = re.compile(rb"^(?:client_loop: |Connection to \S+ closed by remote host)", re.M)

#: Message of ``ssh`` if the login was accepted but the session was not; behind a jump host, another line follows.
_REFUSED = re.compile(r"channel \d+: open failed: (?P<why>.+)")
_FORWARDED = "stdio forwarding failed"

#: Name that ``ssh`` prints for the other end of a connection over a jump host or ProxyCommand.
_CARRIED = "UNKNOWN port 65535"


@dataclass(frozen=True)
class ConnectFailure:
    """Why ``ssh`` gave up before the login; ``busy`` is true if a retry may help."""

    answer: NoAnswer
    busy: bool


def meaning(stderr: bytes) -> ConnectFailure:
    """Return the meaning of the standard error of an ``ssh`` before the login."""
    silent = NoAnswer("connect", f"ssh gave up: {quoted(stderr) or 'without a message'}")
    return known_meaning(stderr) or ConnectFailure(silent, False)


def known_meaning(stderr: bytes) -> ConnectFailure | None:
    """Return the meaning of a known error message; None for an unknown one."""
    printed = stderr.decode("utf-8", "backslashreplace").replace("\r", "").splitlines()
    lines = [line.rstrip() for line in printed]
    carried = any(_CARRIED in line for line in lines)
    for line in lines:
        if _RESET.fullmatch(line):
            return ConnectFailure(_cut_off("reset", carried), True)
    refused = None if _FORWARDED in lines else next(filter(None, map(_REFUSED.fullmatch, lines)), None)
    if refused:
        why = f"sshd refused a session: {refused['why']} (MaxSessions, or a full process table)"
        return ConnectFailure(NoAnswer("start", why), False)
    for pattern, phase, reason in _COMPILED:
        for line in lines:
            if found := pattern.fullmatch(line):
                # Messages about the jump host itself; a node behind it has different messages.
                where = "the jump host: " if carried and not line.startswith(("channel", "Connection")) else ""
                return ConnectFailure(NoAnswer(phase, where + reason.format_map(found.groupdict())), False)
    for line in lines:
        if ended := _ENDED.fullmatch(line):
            return ConnectFailure(
                _cut_off("reset" if "reset" in (ended["how"] or ended["why"]) else "closed", carried), True
            )
    return None


def _cut_off(how: str, carried: bool) -> NoAnswer:
    where = "while connecting through the jump host, " if carried else ""
    return NoAnswer(
        "banner",
        f"{where}the connection was {how} before the login: sshd refuses more (MaxStartups), or dies",
    )

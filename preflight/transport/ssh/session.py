"""One SSH connection, from a stream to an authenticated transport.

Every failure is reported with its cause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, PartialAuthentication

from preflight.transport.errors import NoAnswer, OpenSshRequired, quoted
from preflight.transport.ssh import algorithms
from preflight.transport.ssh.config import HostConfig
from preflight.transport.ssh.connection import Connection
from preflight.transport.ssh.host_keys import Known
from preflight.transport.ssh.keys import Identities
from preflight.transport.ssh.plain_connection import Script
from preflight.transport.ssh.stream import ConnectionDropped, RecordedStream, no_banner

_LOG = "preflight.transport.ssh.paramiko_transport.paramiko"
logging.getLogger(_LOG).setLevel(logging.CRITICAL)  # its messages are used as a reason

# paramiko would poll ten times a second for the end; closing the socket also wakes it. Without a time limit a socket
# needs one system call less per read; a channel of a jump host's connection keeps a limit.
_IDLE_S = 2.0

#: Messages that OpenSSH sends instead of a banner if it has too many connections.
_BUSY = (b"Exceeded MaxStartups", b"Not allowed at this time")


@dataclass(frozen=True)
class Offer:
    """The algorithms offered to a host, best first."""

    kex: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    keys: tuple[str, ...]


def offer(config: HostConfig, known: Known) -> Offer:
    """Choose the offer to a host before connecting; raises OpenSshRequired."""
    kinds = {entry.kind for entry in known.plain}
    if kinds and all(kind.startswith("sk-") for kind in kinds):
        raise OpenSshRequired("connect", "its known host key is a FIDO key")
    able = Connection.algorithms()
    return Offer(
        algorithms.offered(able["kex"], algorithms.KEX, config.kex, "KexAlgorithms"),
        algorithms.offered(able["cipher"], algorithms.CIPHERS, config.ciphers, "Ciphers"),
        algorithms.offered(able["mac"], algorithms.MACS, config.macs, "MACs"),
        algorithms.host_keys(able["key"], tuple(known.algorithms), config.host_key_algorithms),
    )


class SshSession(Connection):
    """An authenticated connection to one host."""

    def __init__(self, wire: RecordedStream, config: HostConfig) -> None:
        """Prepare the session; ``drive`` sends the first message."""
        super().__init__(wire, config.pubkey_algorithms)
        self.config = config
        self.set_log_channel(_LOG)
        wire.settimeout(None if wire.wakes else _IDLE_S)

    def opening(self, known: Known, identities: Identities) -> Script:
        """Verify the host's key and authenticate.

        Raises NoAnswer, or ConnectionDropped if a retry may succeed.
        """
        if not self.active or not self.agreed.is_set():
            self._fail(self.agreed.is_set())
        self._check_host_key(known)
        yield from self._authenticate(identities)

    def close(self) -> None:
        """Close the connection; processes on the host get end-of-file."""
        super().close()
        self.wire.close()

    def close_without_banner(self) -> None:
        """Close the connection if the host has not sent its SSH banner yet."""
        if not self.remote_version:
            self.close()

    def choose(self, offer: Offer) -> None:
        """Set the algorithms offered to the host."""
        options = self.get_security_options()
        options.kex, options.ciphers = offer.kex, offer.ciphers
        options.digests, options.key_types = offer.macs, offer.keys

    def _fail(self, ended: bool) -> None:
        """Raise the error of a connection that failed before authentication."""
        error, banner = self.get_exception(), quoted(self.wire.first)
        if not self.remote_version:
            busy = self.wire.first.startswith(_BUSY)
            if self.wire.first and not busy and self.wire.first[:4] != b"SSH-"[: len(self.wire.first)]:
                raise NoAnswer("banner", f"it is not an SSH server; it sent: {banner}")
            if not ended:
                raise NoAnswer(
                    "banner",
                    f"{self.config.itself} accepted the connection and sent no SSH banner: sshd hangs",
                )
            raise no_banner(self.config, f"sends {banner!r} and disconnects" if busy else _hung_up(self.wire))
        if not ended:
            raise NoAnswer("banner", f"{self.config.itself} sent only its banner: sshd hangs in the key exchange")
        if isinstance(error, IncompatiblePeer):
            raise OpenSshRequired("banner", f"paramiko and the host have no common algorithm: {error}")
        if self.wire.ended:
            raise ConnectionDropped("banner", f"{self.config.itself} {_hung_up(self.wire)} during the key exchange")
        raise NoAnswer("banner", f"the key exchange failed: {error or 'no reason given'}")

    def _check_host_key(self, known: Known) -> None:
        key = self.get_remote_server_key()
        shown = key.public_blob.key_blob if key.public_blob is not None else key.asbytes()
        known.check(bytes(shown), time.time(), self.get_security_options().key_types, self.config.ca_algorithms)
        if short := _too_short(key, self.config):
            raise NoAnswer("host-key", f"the host's RSA key {short}")

    def _authenticate(self, identities: Identities) -> Script:
        if not self.config.public_key:
            raise OpenSshRequired("authenticate", "PubkeyAuthentication is off in the SSH configuration")
        tried: list[str] = []
        excluded: list[str] = []
        for identity in identities.offered:
            if why_not := _excluded(identity.key, self.config):
                excluded.append(f"{identity.label} {why_not}")
                continue
            done, refused = threading.Event(), ""
            try:
                self.log_in(self.config.user, identity.key, done)
            except paramiko.SSHException as failure:
                refused = str(failure)
                done.set()
            yield from self.wait(done)
            refused = refused or getattr(identity.key, "refusal", "")
            tried.append(f"{identity.label}: {refused}" if refused else identity.label)
            if not done.is_set():
                raise NoAnswer(
                    "authenticate", "no reply to the authentication: sshd waits for its user database or home folder"
                )
            if self.is_authenticated():
                return
            error = self.get_exception()
            if not self.is_active():
                self._cut_off(tried, error)
            allowed: Sequence[str] = getattr(error, "allowed_types", None) or ("publickey",)
            if isinstance(error, PartialAuthentication):
                also = f"the key was accepted, but {' or '.join(allowed)} is required as well"
                raise (
                    OpenSshRequired("authenticate", also) if "publickey" in allowed else NoAnswer("authenticate", also)
                )
            if "publickey" not in allowed:
                raise NoAnswer("authenticate", f"the host accepts only {', '.join(allowed)}, not keys")
        if identities.beyond:
            raise OpenSshRequired(
                "authenticate", f"no key that paramiko can use was accepted, and {identities.beyond[0]}"
            )
        raise NoAnswer("authenticate", self._refused(tried, (*identities.notes, *excluded)))

    def _cut_off(self, tried: Sequence[str], error: BaseException | None) -> None:
        if isinstance(error, paramiko.SSHException) or len(tried) > 1:
            many = (
                f"the host disconnected after {len(tried)} keys: too many; set IdentityFile and IdentitiesOnly for it"
            )
            raise NoAnswer("authenticate", many if len(tried) > 1 else f"the host disconnected: {error}")
        raise ConnectionDropped("authenticate", f"{self.config.itself} {_hung_up(self.wire)} during authentication")

    def _refused(self, tried: Sequence[str], notes: Sequence[str]) -> str:
        user, also = self.config.user, "".join(f"; {note}" for note in notes)
        if not tried:
            return f"there is no key to offer for {user}{also}; ssh-add a key, or set IdentityFile"
        return (
            f"no key was accepted for {user} (offered: {', '.join(tried)}): not in authorized_keys, no "
            f"such user, or a locked account{also}. Try `ssh -v`"
        )


def _too_short(key: paramiko.PKey, config: HostConfig) -> str:
    """Return why an RSA key is too short; empty if it is not, or not RSA."""
    if "rsa" not in key.get_name() or not (bits := key.get_bits()) or bits >= config.rsa_bits:
        return ""
    return f"has {bits} bits, and RequiredRSASize of the SSH configuration is {config.rsa_bits}"


def _excluded(key: paramiko.PKey, config: HostConfig) -> str:
    """Return why the configuration forbids offering a key, or ""."""
    accepted = config.pubkey_algorithms
    name = key.public_blob.key_type if key.public_blob is not None else key.get_name()
    rsa = [algorithm + name.removeprefix("ssh-rsa") for algorithm in ("rsa-sha2-512", "rsa-sha2-256")]
    if accepted and not set(rsa if name.startswith("ssh-rsa") else [name]) & set(accepted):
        return "is excluded by PubkeyAcceptedAlgorithms of the SSH configuration"
    return _too_short(key, config)


def _hung_up(wire: RecordedStream) -> str:
    if wire.complaint:
        return f"hung up (the ProxyCommand printed: {wire.complaint})"
    odd = f"hung up ({wire.ended})" if wire.ended else "hung up"
    return {"reset": "reset the connection", "closed": "hung up"}.get(wire.ended, odd)

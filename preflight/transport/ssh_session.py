"""One SSH connection, from a stream to an authenticated transport, each failure by its true name."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Iterable, Sequence

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, PartialAuthentication

from preflight.transport.host_keys import Known
from preflight.transport.outcome import NoAnswer, quoted
from preflight.transport.ssh_config import HostConfig
from preflight.transport.ssh_keys import Identities
from preflight.transport.ssh_script import Script, Scripted
from preflight.transport.ssh_socket import Dropped, Wire, no_banner

#: Cheapest first: OpenSSL's P-256 takes sshd 3 ms less than OpenSSH's own curve25519, and the client as much;
#: classic Diffie-Hellman costs a client 7 to 23 times the whole rest of a connection.
_KEX = ("ecdh-sha2-nistp256", "curve25519-sha256@libssh.org", "curve25519-sha256", "ecdh-sha2-nistp384")
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr")

_LOG = "preflight.transport.ssh.paramiko"
logging.getLogger(_LOG).setLevel(logging.CRITICAL)  # what it has to say becomes a reason

# paramiko would wake ten times a second to see whether it was closed; closing a wire wakes it. Without any
# limit a socket needs one system call less each time; a channel of a jump host's connection keeps one
_IDLE_S = 2.0

#: What OpenSSH says before it hangs up for want of room, instead of a banner.
_BUSY = (b"Exceeded MaxStartups", b"Not allowed at this time")


class Session(Scripted):
    """An authenticated connection to one host."""

    def __init__(self, wire: Wire, config: HostConfig) -> None:
        """Prepare; nothing is sent before ``drive``."""
        super().__init__(wire)
        self.config = config
        self.refused_channel = ""
        self.set_log_channel(_LOG)
        wire.settimeout(None if wire.wakes else _IDLE_S)

    def opening(self, known: Known, identities: Identities) -> Script:
        """Check the host's key and authenticate; raises NoAnswer, or Dropped if it is worth another try."""
        if not self.active or not self.agreed.is_set():
            self._fail(self.agreed.is_set())
        self._check_host_key(known)
        yield from self._authenticate(identities)

    def close(self) -> None:
        """Close everything at once; what runs on the host sees the end of its input."""
        super().close()
        self.wire.close()

    def close_without_banner(self) -> None:
        """Close it if the host has not said yet that it speaks SSH."""
        if not self.remote_version:
            self.close()

    def choose(self, keys: Iterable[str]) -> None:
        """Prefer what is cheap, keep what a site may need, and heed what its configuration forbids."""
        options = self.get_security_options()
        options.kex = _chosen(tuple(options.kex), _KEX, tuple(self.config.kex), "KexAlgorithms")
        options.ciphers = _chosen(tuple(options.ciphers), _CIPHERS, tuple(self.config.ciphers), "Ciphers")
        options.digests = _chosen(tuple(options.digests), (), tuple(self.config.macs), "MACs")
        wanted = [key for key in dict.fromkeys(keys) if key in self._key_info]  # type: ignore[attr-defined]
        able = (*wanted, *(key for key in options.key_types if key not in wanted))
        options.key_types = _chosen(able, (), tuple(self.config.host_key_algorithms), "HostKeyAlgorithms")

    def _fail(self, ended: bool) -> None:
        """Raise what a connection without a session came to."""
        error, said = self.get_exception(), quoted(self.wire.first)
        if not self.remote_version:
            busy = self.wire.first.startswith(_BUSY)
            if self.wire.first and not busy and self.wire.first[:4] != b"SSH-"[: len(self.wire.first)]:
                raise NoAnswer("banner", f"what answers there is no SSH server; it says: {said}")
            if not ended:
                raise NoAnswer(
                    "banner",
                    f"{self.config.itself} accepted the connection and sent no SSH banner: sshd hangs",
                )
            raise no_banner(self.config, f"says {said!r} and hangs up" if busy else _hung_up(self.wire))
        if not ended:
            raise NoAnswer(
                "banner", f"{self.config.itself} sent its banner and then nothing: sshd hangs in the key exchange"
            )
        if isinstance(error, IncompatiblePeer):
            raise NoAnswer(
                "banner", f"{error}; --via openssh may know the algorithms of {quoted(self.remote_version.encode())}"
            )
        if self.wire.ended:
            raise Dropped("banner", f"{self.config.itself} {_hung_up(self.wire)} during the key exchange")
        raise NoAnswer("banner", f"the key exchange failed: {error or 'no reason given'}")

    def _check_host_key(self, known: Known) -> None:
        key = self.get_remote_server_key()
        shown = key.public_blob.key_blob if key.public_blob is not None else key.asbytes()
        known.check(bytes(shown), time.time())

    def _authenticate(self, identities: Identities) -> Script:
        if not self.config.public_key:
            raise NoAnswer("authenticate", "PubkeyAuthentication is off in the SSH configuration; use --via openssh")
        tried: list[str] = []
        for identity in identities.offered:
            done = threading.Event()
            try:
                self.log_in(self.config.user, identity.key, done)
                tried.append(identity.label)
            except paramiko.SSHException as refusal:
                tried.append(f"{identity.label}: {refusal}")
                done.set()
            yield from self.wait(done)
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
                raise NoAnswer(
                    "authenticate",
                    f"the key was accepted, and {' or '.join(allowed)} is wanted as well: use --via openssh",
                )
            if "publickey" not in allowed:
                raise NoAnswer("authenticate", f"the host accepts only {', '.join(allowed)}: try --via openssh")
        raise NoAnswer("authenticate", self._refused(tried, identities.notes))

    def _cut_off(self, tried: Sequence[str], error: BaseException | None) -> None:
        if isinstance(error, paramiko.SSHException) or len(tried) > 1:
            many = f"the host hung up after {len(tried)} keys: too many; set IdentityFile and IdentitiesOnly for it"
            raise NoAnswer("authenticate", many if len(tried) > 1 else f"the host hung up: {error}")
        raise Dropped("authenticate", f"{self.config.itself} {_hung_up(self.wire)} during authentication")

    def _refused(self, tried: Sequence[str], notes: Sequence[str]) -> str:
        user, also = self.config.user, "".join(f"; {note}" for note in notes)
        if not tried:
            return f"there is no key to offer for {user}{also}; ssh-add a key, or set IdentityFile"
        return (
            f"no key was accepted for {user} (offered: {', '.join(tried)}): not in authorized_keys, no such "
            f"user, or a locked account; the host does not say which{also}. Try `ssh -v` to it"
        )

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        """Keep the host's own words, which paramiko only logs."""
        with contextlib.suppress(Exception):
            copy = paramiko.Message(m.asbytes())
            copy.get_int(), copy.get_int()
            self.refused_channel = copy.get_text()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]


def _hung_up(wire: Wire) -> str:
    if wire.complaint:
        return f"hung up (the ProxyCommand says: {wire.complaint})"
    odd = f"hung up ({wire.ended})" if wire.ended else "hung up"
    return {"reset": "reset the connection", "closed": "hung up"}.get(wire.ended, odd)


@functools.lru_cache(1024)
def _chosen(able: tuple[str, ...], preferred: tuple[str, ...], allowed: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Put the preferred first and drop what is not allowed; an empty ``allowed`` allows all."""
    ordered = [*(name for name in preferred if name in able), *(name for name in able if name not in preferred)]
    chosen = tuple(name for name in ordered if not allowed or name in allowed)
    if not chosen:
        raise NoAnswer(
            "banner", f"none of the {what} that the SSH configuration allows is supported; use --via openssh"
        )
    return chosen

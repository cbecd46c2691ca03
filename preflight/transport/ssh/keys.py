"""Keys of the user who runs preflight: files, certificates, agent keys.

They are read once per run. No passphrase is ever requested: a key with a passphrase is used only through the agent.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from preflight.evidence import safe_read
from preflight.transport.ssh import certificate
from preflight.transport.ssh.config import HostConfig

_AGENT_LIMIT_S, _CONFIRMATION_S = 5.0, 30.0

# draft-miller-ssh-agent
_LIST_REQUEST, _LIST_RESPONSE, _SIGN_REQUEST, _SIGN_RESPONSE = 11, 12, 13, 14

#: Maximum bytes of an agent's answer, as in OpenSSH.
_LONGEST_ANSWER = 256 * 1024

#: Start of an unencrypted OpenSSH private key whose other half is in a FIDO token (PROTOCOL.key).
_FIDO = re.compile(
    rb"openssh-key-v1\x00" + rb"\x00\x00\x00\x04none" * 2 + rb"\x00\x00\x00\x00" + rb"\x00\x00\x00\x01" + rb".{8}sk-",
    re.DOTALL,
)

_RSA_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}


@dataclass(frozen=True)
class Identity:
    """A key to offer; ``label`` is its source, for messages."""

    label: str
    key: paramiko.PKey


@dataclass(frozen=True)
class Identities:
    """The keys to offer to a host, in OpenSSH's order, and why others are omitted.

    ``beyond`` are keys that only ssh can use.
    """

    offered: tuple[Identity, ...]
    notes: tuple[str, ...]
    beyond: tuple[str, ...] = ()


class _Agent:
    """A thread-safe connection to an agent (draft-miller-ssh-agent).

    Raises OSError, SSHException.
    """

    def __init__(self, path: str) -> None:
        self._turn = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(_AGENT_LIMIT_S)
        try:
            self.socket.connect(path)
            self.keys = self._list()
            self.socket.settimeout(_CONFIRMATION_S)  # a signature may wait for the user
        except BaseException:
            self.socket.close()
            raise

    def _list(self) -> tuple[tuple[bytes, str], ...]:
        """Return the blob and comment of each of the agent's keys."""
        kind, answer = self.query(bytes([_LIST_REQUEST]))
        if kind != _LIST_RESPONSE:
            raise paramiko.SSHException("could not get keys from ssh-agent")
        return tuple((answer.get_binary(), answer.get_text()) for _ in range(answer.get_int()))

    def query(self, request: bytes) -> tuple[int, paramiko.Message]:
        """Send a request to the agent; return the type and content of its answer."""
        with self._turn:
            self.socket.sendall(len(request).to_bytes(4, "big") + request)
            size = int.from_bytes(self._read(4), "big")
            if not 1 <= size <= _LONGEST_ANSWER:
                raise paramiko.SSHException(f"the agent sent {size} bytes")
            answer = self._read(size)
        return answer[0], paramiko.Message(answer[1:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (piece := self.socket.recv(size - len(data))):
                raise paramiko.SSHException("lost ssh-agent")
            data += piece
        return data


class _Held(AgentKey):
    """A key of the agent, with the agent's comment.

    It replaces paramiko's class, which confuses the certificates of RSA keys.
    """

    def __init__(self, agent: _Agent, blob: bytes, comment: str) -> None:
        super().__init__(agent, blob, comment)  # type: ignore[arg-type]
        self._signer = agent
        self.refusal = ""
        if self.get_name().endswith("-cert-v01@openssh.com"):
            self.public_blob = PublicBlob(self.get_name(), blob)  # type: ignore[assignment]

    def asbytes(self) -> bytes:
        return self.blob

    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> paramiko.Message:
        request = paramiko.Message()
        request.add_byte(bytes([_SIGN_REQUEST]))
        request.add_string(self.blob)
        request.add_string(data)
        request.add_int(next((flag for name, flag in _RSA_FLAGS.items() if name in (algorithm or "")), 0))
        try:
            kind, answer = self._signer.query(request.asbytes())
        except (OSError, paramiko.SSHException) as error:
            kind, self.refusal = 0, str(error)
        if kind == _SIGN_RESPONSE:
            return answer.get_binary()  # type: ignore[return-value]
        self.refusal = self.refusal or "the agent refused to sign"
        return b""  # type: ignore[return-value]  # the host refuses that, and the next key is tried


class KeyRing:
    """All keys of a run, by source."""

    def __init__(self) -> None:
        """Start empty; files and agents are read when a host first needs them."""
        self._lock = threading.Lock()
        self._found: dict[object, Identities] = {}
        self._agents: dict[str, tuple[_Agent | None, str]] = {}

    def identities(self, config: HostConfig) -> Identities:
        """Return the keys to offer to a host."""
        wanted = (config.identity_files, config.certificate_files, config.identities_only, config.agent)
        with self._lock:
            if wanted not in self._found:
                self._found[wanted] = self._read(config)
            return self._found[wanted]

    def close(self) -> None:
        """Close the connections to agents."""
        with self._lock:
            for agent, _ in self._agents.values():
                if agent is not None:
                    agent.socket.close()
            self._agents.clear()

    def _read(self, config: HostConfig) -> Identities:
        notes: list[str] = []
        beyond: list[str] = []
        held = self._held(config.agent, notes, beyond)
        files: list[Identity] = []
        first: list[Identity] = []
        for name in config.identity_files:
            path = Path(name)
            public = _public(path)
            mine = [identity for identity in held if public is not None and _plain(identity.key) == public]
            first += mine
            if not mine:
                files += _load(path, notes, beyond)
        certificates = [blob for name in config.certificate_files if (blob := _certificate(Path(name), notes))]
        rest = [] if config.identities_only else [identity for identity in held if identity not in first]
        offered: list[Identity] = []
        for identity in (*first, *rest, *files):
            offered += _certified(identity, certificates)
            offered.append(identity)
        return Identities(tuple(offered), tuple(notes), tuple(beyond))

    def _held(self, path: str, notes: list[str], beyond: list[str]) -> list[Identity]:
        """Return the agent's usable keys."""
        if not path:
            return []
        if path not in self._agents:
            try:
                self._agents[path] = _Agent(path), ""
            except (OSError, paramiko.SSHException) as error:
                self._agents[path] = None, f"the agent {path} does not answer ({error})"
        agent, note = self._agents[path]
        if note:
            notes.append(note)
        keys = [_Held(agent, blob, comment) for blob, comment in agent.keys] if agent else []
        unusable = [key for key in keys if key.get_name().startswith("sk-")]
        if unusable:
            beyond.append("the agent has FIDO keys")
        return [Identity(f"agent key {key.comment or key.get_name()}", key) for key in keys if key not in unusable]


def _load(path: Path, notes: list[str], beyond: list[str]) -> Iterator[Identity]:
    """Yield a private key, preceded by its certificate; none if it cannot be used."""
    try:
        text = safe_read.content(path, safe_read.BY_HAND)
        if _needs_passphrase(text):
            notes.append(f"{path} needs a passphrase (ssh-add {path})")
            return
        if _FIDO.match(_raw(text)):
            beyond.append(f"{path} is a FIDO key")
            return
        key = paramiko.PKey.from_path(path)
    except FileNotFoundError:
        return
    except OSError as error:
        notes.append(f"{path} cannot be read ({error.strerror})")
        return
    except (ValueError, TypeError, UnknownKeyType, UnsupportedAlgorithm, paramiko.SSHException):
        notes.append(f"{path} is not a usable key (ssh-keygen -y -f {path} shows why)")
        return
    if key.public_blob is not None:
        yield Identity(f"{path}-cert.pub", key)
        key = copy.copy(key)
        key.public_blob = None
    yield Identity(str(path), key)


def _raw(text: bytes) -> bytes:
    """Return the content of OpenSSH's own key format; empty for another format."""
    if b"BEGIN OPENSSH PRIVATE KEY" not in text:
        return b""
    return base64.b64decode(b"".join(line for line in text.splitlines() if b"-" not in line))


def _needs_passphrase(text: bytes) -> bool:
    """Return whether a private key is encrypted, in OpenSSH's format or as PEM."""
    raw = _raw(text)
    return not raw.removeprefix(b"openssh-key-v1\0").startswith(b"\0\0\0\4none") if raw else b"ENCRYPTED" in text


def _certified(identity: Identity, files: list[tuple[str, PublicBlob]]) -> Iterator[Identity]:
    """Yield a copy of a key for each CertificateFile that matches it."""
    for name, blob in files:
        parsed = certificate.parse(blob.key_blob)
        if parsed and parsed.key == identity.key.asbytes():
            signed = copy.copy(identity.key)
            signed.public_blob = blob
            yield Identity(name, signed)


def _certificate(path: Path, notes: list[str]) -> tuple[str, PublicBlob] | None:
    try:
        return str(path), PublicBlob.from_file(str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        notes.append(f"{path} is not a usable certificate ({error})")
        return None


def _public(path: Path) -> bytes | None:
    """Return the public key of a private key, from its .pub file or the file itself.

    The public key identifies the agent's key. None if neither can be read.
    """
    for candidate in (path.with_name(path.name + ".pub"), path):
        with contextlib.suppress(OSError, ValueError):
            return bytes(PublicBlob.from_file(str(candidate)).key_blob)
    return None


def _plain(key: paramiko.PKey) -> bytes:
    return bytes(key.asbytes())

"""The keys of the user who runs preflight: files, their certificates, and the agent's. Read once per run.

A passphrase is never asked for: a key that needs one is left to the agent.
"""

from __future__ import annotations

import contextlib
import copy
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob, UnknownKeyType

from preflight.transport.ssh_config import HostConfig

_AGENT_LIMIT_S = 30.0


@dataclass(frozen=True)
class Identity:
    """A key to offer; ``label`` says where it is from, for messages."""

    label: str
    key: paramiko.PKey


@dataclass(frozen=True)
class Identities:
    """The keys to offer to a host, in OpenSSH's order, and why others cannot be."""

    offered: tuple[Identity, ...]
    notes: tuple[str, ...]


class _Agent(AgentSSH):
    """An agent that many threads may use."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._turn = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(_AGENT_LIMIT_S)  # it may be asking its user for a confirmation
        try:
            self.socket.connect(path)
            self._connect(self.socket)  # type: ignore[attr-defined]
        except BaseException:
            self.socket.close()
            raise

    def _send_message(self, msg: object) -> object:
        with self._turn:
            return super()._send_message(msg)  # type: ignore[misc]


class KeyRing:
    """All keys of a run, by where they come from."""

    def __init__(self) -> None:
        """Begin without any; files and agents are read when a host first needs them."""
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
        held = self._held(config.agent, notes)
        files: list[Identity] = []
        first: list[Identity] = []
        for name in config.identity_files:
            path = Path(name)
            public = _public(path)
            mine = [identity for identity in held if public is not None and _plain(identity.key) == public]
            first += mine
            if not mine:
                files += _load(path, notes)
        certificates = [blob for name in config.certificate_files if (blob := _certificate(Path(name), notes))]
        rest = [] if config.identities_only else [identity for identity in held if identity not in first]
        offered: list[Identity] = []
        for identity in (*first, *rest, *files):
            offered += _certified(identity, certificates)
            offered.append(identity)
        return Identities(tuple(offered), tuple(notes))

    def _held(self, path: str, notes: list[str]) -> list[Identity]:
        """Return the agent's keys."""
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
        keys = agent.get_keys() if agent else ()
        unusable = [key for key in keys if key.get_name().startswith("sk-")]
        if unusable:
            notes.append("the agent's FIDO keys need --via openssh")
        return [Identity(f"agent key {key.comment or key.get_name()}", key) for key in keys if key not in unusable]


def _load(path: Path, notes: list[str]) -> Iterator[Identity]:
    """Yield a private key, its certificate first; a file that is not there is no key."""
    try:
        key = paramiko.PKey.from_path(path)
    except FileNotFoundError:
        return
    except (TypeError, paramiko.PasswordRequiredException):
        notes.append(f"{path} needs a passphrase (ssh-add {path})")
        return
    except UnknownKeyType:
        notes.append(f"{path} is of a kind that needs --via openssh")
        return
    except OSError as error:
        notes.append(f"{path} cannot be read ({error.strerror})")
        return
    except (ValueError, paramiko.SSHException) as error:
        told = "needs a passphrase" if "password" in str(error).lower() else f"is no key that can be used ({error})"
        notes.append(f"{path} {told}")
        return
    if key.public_blob is not None:
        yield Identity(f"{path}-cert.pub", key)
        key = copy.copy(key)
        key.public_blob = None
    yield Identity(str(path), key)


def _certified(identity: Identity, certificates: list[tuple[str, PublicBlob]]) -> Iterator[Identity]:
    """Yield a key once more for each CertificateFile that is about it."""
    for name, blob in certificates:
        if isinstance(identity.key, AgentKey) or identity.key.public_blob is not None:
            continue
        with contextlib.suppress(ValueError, paramiko.SSHException):
            signed = copy.copy(identity.key)
            if type(signed)(msg=paramiko.Message(blob.key_blob)).asbytes() == signed.asbytes():
                signed.public_blob = blob
                yield Identity(name, signed)


def _certificate(path: Path, notes: list[str]) -> tuple[str, PublicBlob] | None:
    try:
        return str(path), PublicBlob.from_file(str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        notes.append(f"{path} is no certificate that can be used ({error})")
        return None


def _public(path: Path) -> bytes | None:
    """Return the public key beside a private one, or in the file itself: it tells which key of the agent is meant."""
    for candidate in (path.with_name(path.name + ".pub"), path):
        with contextlib.suppress(OSError, ValueError):
            return bytes(PublicBlob.from_file(str(candidate)).key_blob)
    return None


def _plain(key: paramiko.PKey) -> bytes:
    return bytes(key.asbytes())

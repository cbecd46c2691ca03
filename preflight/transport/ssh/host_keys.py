"""Known host keys: ``known_hosts`` files, read once and compared as bytes.

Exact and hashed names, patterns, ``[host]:port``, ``@cert-authority`` and ``@revoked`` are supported. An unknown or
changed key is never accepted silently, and no file is ever written.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.evidence import safe_read
from preflight.transport.errors import NoAnswer, OpenSshRequired
from preflight.transport.ssh import certificate

_SSH_PORT = 22
_CERT = "-cert-v01@openssh.com"

#: Signature algorithms by key type, best first.
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True)
class KnownHost:
    """One key in a ``known_hosts`` file.

    ``marker`` is empty, ``@cert-authority`` or ``@revoked``.
    """

    marker: str
    names: str
    kind: str
    blob: bytes
    where: str


class HostKeys:
    """Entries of ``known_hosts`` files, looked up by name."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Read the files; a missing one is empty, an unreadable one is in ``unread``."""
        self.files: list[Path] = []
        self.unread: list[str] = []
        self._exact: dict[str, list[KnownHost]] = {}
        self._hashed: list[tuple[bytes, bytes, KnownHost]] = []
        self._patterns: list[KnownHost] = []
        for path in files:
            self.files.append(path)
            try:
                self._read(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.unread.append(f"{path}: {error.strerror}")

    def entries(self, name: str) -> list[KnownHost]:
        """Return the entries of a host.

        Names are those of ``known_hosts`` (``gpu001``, ``[gpu001]:2222``).
        """
        name = name.lower()
        found = list(self._exact.get(name, ()))
        found += [entry for entry in self._patterns if matches(name, entry.names)]
        if self._hashed:
            wanted = name.encode()
            found += [entry for salt, digest, entry in self._hashed if _hash(salt, wanted) == digest]
        return found

    def _read(self, path: Path) -> None:
        for number, line in enumerate(safe_read.content(path, safe_read.DOCUMENT).splitlines(), 1):
            entry = _parse(line, f"{path}:{number}")
            if entry is None:
                continue
            if entry.names.startswith("|1|"):
                try:
                    salt, digest = (base64.b64decode(part) for part in entry.names[3:].split("|"))
                except (binascii.Error, ValueError):
                    continue
                self._hashed.append((salt, digest, entry))
            elif any(c in entry.names for c in "*?!"):
                self._patterns.append(entry)
            else:
                for name in entry.names.lower().split(","):
                    self._exact.setdefault(name, []).append(entry)


def _hash(salt: bytes, name: bytes) -> bytes:
    return hmac.digest(salt, name, "sha1")


def _parse(line: bytes, where: str) -> KnownHost | None:
    fields = line.decode("utf-8", "replace").split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if len(fields) < 3 or marker not in ("", "@cert-authority", "@revoked"):
        return None
    try:
        return KnownHost(marker, fields[0], fields[1], base64.b64decode(fields[2], validate=True), where)
    except binascii.Error:
        return None


def matches(name: str, patterns: str) -> bool:
    """Match a name against comma-separated OpenSSH patterns; ``!`` excludes."""
    matched = False
    for pattern in patterns.lower().split(","):
        if _glob(pattern.lstrip("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


@functools.cache
def _glob(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)


@dataclass(frozen=True)
class Known:
    """Known keys of one host, and verification of the key it presents."""

    name: str
    port: int
    alias: bool
    entries: tuple[KnownHost, ...]
    bare: tuple[KnownHost, ...]
    files: tuple[Path, ...]
    strict: bool
    revoked: frozenset[bytes]

    @property
    def plain(self) -> list[KnownHost]:
        """The known keys of this host."""
        return [entry for entry in self.entries if not entry.marker]

    @property
    def algorithms(self) -> Iterator[str]:
        """The key algorithms to request, best first, to get a known key."""
        if any(entry.marker == "@cert-authority" for entry in self.entries):
            for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"):
                yield kind + _CERT
            yield from (kind + _CERT for kind in _SIGNATURES["ssh-rsa"])
        for entry in (*self.entries, *self.bare):
            if not entry.marker:
                yield from _algorithms(entry.kind)

    @property
    def label(self) -> str:
        """The host's name as ``known_hosts`` writes it."""
        return _label(self.name, 0 if self.alias else self.port)

    def check(self, shown: bytes, now: float, offered: Collection[str] = (), signatures: Collection[str] = ()) -> None:
        """Verify the key or certificate that a host presents, as a blob.

        Raises NoAnswer if it is not valid. ``now`` is the time in seconds since 1970, for the validity of certificates.
        ``offered`` are the algorithms that were offered to the host, ``signatures`` the signature algorithms that an
        authority may use, if not the default.
        """
        shown_by = certificate.parse(shown)
        key = shown_by.key if shown_by else shown
        signer = shown_by.signer if shown_by else b""
        if not self.revoked.isdisjoint((key, signer)):
            raise NoAnswer("host-key", f"the host key is revoked (RevokedHostKeys): {fingerprint(key)}; do not connect")
        for entry in self.entries:
            if entry.marker == "@revoked" and entry.blob in (key, signer):
                raise NoAnswer(
                    "host-key", f"the host key is revoked ({entry.where}): {fingerprint(key)}; do not connect"
                )
        why_not = ""
        for entry in self.entries:
            if shown_by and entry.marker == "@cert-authority" and entry.blob == signer:
                why_not = shown_by.host_refusal(self.name, now, signatures)
                if not why_not:
                    return
        if any(entry.blob == key for entry in (*self.plain, *self.bare)):
            return
        if why_not:
            raise NoAnswer("host-key", f"the host certificate is not valid: {why_not}; have it signed again")
        if self.plain:
            comparable = [entry for entry in self.plain if not offered or set(_algorithms(entry.kind)) & set(offered)]
            # Known key types were requested first, so the host no longer has those keys.
            raise NoAnswer("host-key", self._changed(key) if comparable else self._incomparable(key))
        if self.strict:
            raise NoAnswer("host-key", self._unknown(key, shown_by is not None))

    def _changed(self, key: bytes) -> str:
        entry = next((entry for entry in self.plain if entry.kind == _kind(key)), self.plain[0])
        file = entry.where.rpartition(":")[0]
        return (
            f"the host key has changed: {entry.where} has {fingerprint(entry.blob)}, the node shows "
            f"{fingerprint(key)}; it was reinstalled, or another host intercepts the connection. If it was "
            "reinstalled: "
            f"ssh-keygen -R {shlex.quote(self.label)} -f {shlex.quote(file)}"
        )

    def _incomparable(self, key: bytes) -> str:
        kinds = " and ".join(sorted({entry.kind for entry in self.plain}))
        return (
            f"the host key cannot be compared: only {kinds} keys are known for {self.label}, which "
            "HostKeyAlgorithms of the SSH configuration or paramiko excludes; the node shows "
            f"{fingerprint(key)}. {self._learn()}"
        )

    def _unknown(self, key: bytes, signed: bool) -> str:
        also = ", and its certificate is of an unknown authority" if signed else ""
        return (
            f"the host key is unknown: no line for {self.label} in {', '.join(map(str, self.files)) or 'any file'}"
            f"{also}; the node shows {fingerprint(key)}. {self._learn()}"
        )

    def _learn(self) -> str:
        file = self.files[0] if self.files else Path("~/.ssh/known_hosts")
        port = f"-p {self.port} " if self.port != _SSH_PORT else ""
        return f"Check that, then: ssh-keyscan -H {port}{self.name} >> {file}"


def known(
    keys: HostKeys,
    hostname: str,
    port: int,
    *,
    alias: str = "",
    strict: bool = True,
    revoked: frozenset[bytes] = frozenset(),
) -> Known:
    """Look up the known keys of a host.

    ``alias`` is its HostKeyAlias; ``strict`` refuses a host without a known key.
    """
    name = (alias or hostname).lower()
    entries = keys.entries(_label(name, 0 if alias else port))
    # As in OpenSSH, an identical key that is known without the port is accepted.
    bare = [] if alias or port == _SSH_PORT else [entry for entry in keys.entries(name) if not entry.marker]
    return Known(name, port, bool(alias), tuple(entries), tuple(bare), tuple(keys.files), strict, revoked)


def revoked_keys(path: Path) -> frozenset[bytes]:
    """Read a RevokedHostKeys file of public keys.

    Raises OpenSshRequired for a KRL, and NoAnswer for an unreadable file, because OpenSSH then refuses to connect as
    well.
    """
    try:
        raw = safe_read.content(path, safe_read.DOCUMENT)
    except OSError as error:
        raise NoAnswer("host-key", f"RevokedHostKeys {path} cannot be read: {error.strerror}") from None
    if raw.startswith(b"SSHKRL"):
        raise OpenSshRequired("host-key", f"RevokedHostKeys {path} is a KRL")
    entries = [_parse(b"* " + line, f"{path}:{number}") for number, line in enumerate(raw.splitlines(), 1)]
    return frozenset(entry.blob for entry in entries if entry)


def _algorithms(kind: str) -> tuple[str, ...]:
    return _SIGNATURES.get(kind, (kind,))


def _label(name: str, port: int) -> str:
    return name if port in (0, _SSH_PORT) else f"[{name}]:{port}"


def _kind(blob: bytes) -> str:
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")


def fingerprint(blob: bytes) -> str:
    """Return a key's type and SHA256 fingerprint as ``ssh-keygen -l`` writes it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{_kind(blob)} SHA256:{digest}"


def trust_command(unknown: Sequence[str], changed: Sequence[str] = ()) -> str:
    """Return the shell line that adds many host keys, for a user who has checked them."""
    forget = [f"for host in {shlex.join(changed)}; do ssh-keygen -R $host; done"] if changed else []
    wanted = [*unknown, *changed]
    learn = [f"ssh-keyscan -H {shlex.join(wanted)} >> ~/.ssh/known_hosts"] if wanted else []
    return "; ".join([*forget, *learn])

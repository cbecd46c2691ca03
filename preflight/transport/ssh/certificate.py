"""OpenSSH certificates (PROTOCOL.certkeys), and verification of host certificates."""

from __future__ import annotations

import fnmatch
import struct
from collections.abc import Collection
from dataclasses import dataclass

from paramiko import Message, PKey

_CERT = "-cert-v01@openssh.com"
_HOST = 2

#: Number of fields of the key itself, after the nonce, by key type.
_KEY_FIELDS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
}

#: Allowed signature algorithms of an authority, without SHA-1.
_SIGNATURES = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-256", "rsa-sha2-512",
)  # fmt: skip


@dataclass(frozen=True)
class Certificate:
    """A certificate: ``key`` is the certified key's blob, ``signer`` the authority's."""

    key: bytes
    signer: bytes
    kind: int
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: bytes
    signed: bytes
    signature: bytes

    def host_refusal(self, name: str, now: float, signatures: Collection[str] = ()) -> str:
        """Return why a host certificate is invalid at a given time; empty if it is valid.

        The time is in seconds since 1970. ``signatures`` are allowed signature algorithms of an authority
        (CASignatureAlgorithms), if not the default.
        """
        if not self._is_signed(signatures or _SIGNATURES):
            return "its signature is wrong"
        if self.kind != _HOST:
            return "it is not a host certificate"
        if now < self.valid_after:
            return "it is not valid yet; compare the clocks"
        if now >= self.valid_before:
            return "it has expired"
        if self.principals and not any(fnmatch.fnmatchcase(name, p.lower()) for p in self.principals):
            return f"it is for {', '.join(self.principals)}, not for {name}"
        if self.critical:
            return "it has critical options that are not understood"
        return ""

    def _is_signed(self, signatures: Collection[str]) -> bool:
        try:
            name, value = _strings(self.signature)  # stricter than paramiko
            algorithm = name.decode("ascii")
            if algorithm.startswith("ecdsa-"):
                _r, _s = _strings(value)
            key = PKey.from_type_string(_strings(self.signer, 1)[0].decode("ascii"), self.signer)
            return algorithm in signatures and bool(key.verify_ssh_sig(self.signed, Message(self.signature)))
        except Exception:  # damaged input makes the libraries raise various exceptions
            return False


def parse(blob: bytes) -> Certificate | None:
    """Parse a certificate; None for a plain key or an unknown format."""
    try:
        kind = _strings(blob, 1)[0].decode("ascii", "replace")
        plain = kind.removesuffix(_CERT)
        if plain == kind or plain not in _KEY_FIELDS:
            return None
        fields = _strings(blob, 2 + _KEY_FIELDS[plain])
        at = sum(4 + len(field) for field in fields)
        _serial, usage = struct.unpack_from(">QI", blob, at)
        _key_id, principals = _strings(blob[at + 12 :], 2)
        at += 12 + 8 + len(_key_id) + len(principals)
        after, before = struct.unpack_from(">QQ", blob, at)
        critical, _extensions, _reserved, signer, signature = rest = _strings(blob[at + 16 :], 5)
        signed = at + 16 + sum(4 + len(field) for field in rest[:-1])
        if signed + 4 + len(signature) != len(blob):
            return None
        names = tuple(name.decode("utf-8", "replace") for name in _strings(principals))
        key = b"".join(_packed(field) for field in (plain.encode(), *fields[2:]))
        return Certificate(key, signer, usage, names, after, before, critical, blob[:signed], signature)
    except (struct.error, ValueError):
        return None


def _strings(data: bytes, number: int = -1) -> list[bytes]:
    """Return the first length-prefixed strings, or all; raise ValueError if fewer."""
    found, at = list[bytes](), 0
    while at < len(data) if number < 0 else len(found) < number:
        (length,) = struct.unpack_from(">I", data, at)
        at += 4 + length
        if at > len(data):
            raise ValueError("the certificate is truncated")
        found.append(data[at - length : at])
    return found


def _packed(field: bytes) -> bytes:
    return struct.pack(">I", len(field)) + field

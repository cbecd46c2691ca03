"""Algorithms offered to a host: OpenSSH's defaults that paramiko supports.

Anything weaker (CBC ciphers, MD5, truncated or SHA-1 exchanges) is offered only where ssh_config names it.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Sequence

from preflight.transport.errors import OpenSshRequired

# The post-quantum exchange is first, as in OpenSSH since 9.9: it costs nothing on hosts without it. The cheapest
# follow: OpenSSL's P-256 saves sshd and the client 3 ms each compared with OpenSSH's own curve25519; classic
# Diffie-Hellman costs a client 7 to 23 times the rest of a connection.
KEX = (
    "mlkem768x25519-sha256", "ecdh-sha2-nistp256", "curve25519-sha256", "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp384", "ecdh-sha2-nistp521", "diffie-hellman-group-exchange-sha256",
    "diffie-hellman-group16-sha512", "diffie-hellman-group14-sha256",
)  # fmt: skip
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = (
    "hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512", "hmac-sha1",
)  # fmt: skip
KEYS = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
)  # fmt: skip

#: Default list of ssh_config by keyword.
USUAL = {
    "kexalgorithms": KEX, "ciphers": CIPHERS, "macs": MACS,
    "hostkeyalgorithms": (*(f"{name}-cert-v01@openssh.com" for name in KEYS), *KEYS),
    "pubkeyacceptedalgorithms": (*(f"{name}-cert-v01@openssh.com" for name in KEYS), *KEYS),
    "casignaturealgorithms": KEYS,
}  # fmt: skip

USUAL["pubkeyacceptedkeytypes"] = USUAL["pubkeyacceptedalgorithms"]  # its name before OpenSSH 8.5

#: Pairs of names for the same algorithm.
_ALIASES = (
    ("curve25519-sha256", "curve25519-sha256@libssh.org"),
    ("sntrup761x25519-sha512", "sntrup761x25519-sha512@openssh.com"),
    ("aes256-cbc", "rijndael-cbc@lysator.liu.se"),
)
_SAME = {one: other for pair in _ALIASES for one, other in (pair, pair[::-1])}


def listed(text: str, usual: Sequence[str]) -> tuple[str, ...]:
    """Parse a list of algorithms from ssh_config.

    ``+`` appends names to the defaults (``usual``), ``^`` puts them first, ``-`` removes those that match. ``ssh -G``
    prints such a list in full; this is used on machines without ``ssh``.
    """
    sign = text[:1] if text[:1] in ("+", "-", "^") else ""
    named = [name.strip() for name in text.removeprefix(sign).split(",")]
    if sign == "-":
        return tuple(name for name in usual if not any(fnmatch.fnmatchcase(name, pattern) for pattern in named))
    first, then = (usual, named) if sign == "+" else (named, usual if sign == "^" else ())
    return tuple(dict.fromkeys((*first, *then)))


@functools.lru_cache(1024)
def offered(able: tuple[str, ...], usual: tuple[str, ...], named: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the algorithms to offer, best first.

    Names and order are those of the configuration, or else the defaults. Raises OpenSshRequired if paramiko supports
    none of them.
    """
    found = dict.fromkeys(
        name if name in able else _SAME[name]
        for name in named or usual
        if name in able or _SAME.get(name) in able
    )  # fmt: skip
    if not found:
        raise OpenSshRequired("connect", f"paramiko supports none of the {what} of the SSH configuration")
    return tuple(found)


@functools.lru_cache(1024)
def host_keys(able: tuple[str, ...], known: tuple[str, ...], named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the host key algorithms to offer, those of known keys first.

    The host then presents one of them. A certificate is requested only if its authority is known.
    """
    wanted = dict.fromkeys((*known, *(name for name in named or KEYS if "-cert-" not in name)))
    allowed = tuple(name for name in wanted if not named or name in named)
    return offered(able, (), allowed or named, "HostKeyAlgorithms")

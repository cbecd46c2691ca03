"""Parts of a farm: addresses, ports, key pairs, and the installed sshd."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def addresses(number: int, first: int = 1) -> tuple[str, ...]:
    """Return ``127.77.0.1``, ``127.77.0.2``, …: at most 250 to a /24."""
    return tuple(f"127.77.{i // 250}.{i % 250 + 1}" for i in range(first - 1, first - 1 + number))


def keygen(path: Path, *arguments: str, kind: str = "ed25519") -> Path:
    """Make a key pair without a passphrase; return the private key's path."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", path.name, "-f", str(path), *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def public(key: Path) -> str:
    """Return a key pair's public half as ``TYPE BASE64``."""
    return " ".join(Path(f"{key}.pub").read_text(encoding="utf-8").split()[:2])


def reserved() -> socket.socket:
    """Return a socket that reserves its TCP port among farms while open; its address gets no connection."""
    holder = socket.socket()
    holder.bind(("127.76.0.1", 0))
    return holder


def free_port() -> int:
    """Return a TCP port that is unused at this moment."""
    with reserved() as holder:
        return int(holder.getsockname()[1])

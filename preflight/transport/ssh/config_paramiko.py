"""The user's SSH configuration, parsed by paramiko if OpenSSH is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from preflight.evidence import safe_read
from preflight.transport.errors import TransportError

if TYPE_CHECKING:
    from preflight.transport.ssh.host import HostSpec

#: Criteria of a Match line that paramiko understands; it ignores others, as if they matched.
_CRITERIA = frozenset(("all", "canonical", "final", "host", "originalhost", "user", "localuser"))

_DEFAULTS = {
    "identityfile": ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"),
    "userknownhostsfile": ("~/.ssh/known_hosts ~/.ssh/known_hosts2",),
    "globalknownhostsfile": ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",),
}


def read(
    file: Path | None, hosts: Sequence[HostSpec], warn: Callable[[str], None]
) -> dict[HostSpec, Mapping[str, Sequence[str]]]:
    """Return each host's values as ``ssh -G`` would print them, as far as known.

    ``warn`` is called for each Include, which is not read. Raises TransportError.
    """
    paths = [file] if file else [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
    configs = [config for path in paths if (config := _parsed(path, warn))]
    values_of: dict[HostSpec, Mapping[str, Sequence[str]]] = {}
    for spec in hosts:
        values: dict[str, list[str]] = {}
        for config in configs:  # the first value applies
            for keyword, value in config.lookup(spec.name).items():
                if keyword == "hostname" and value == spec.name:
                    continue
                values.setdefault(keyword, value if isinstance(value, list) else [str(value)])
        values_of[spec] = {**_DEFAULTS, **values}
    return values_of


def _parsed(path: Path, warn: Callable[[str], None]) -> paramiko.SSHConfig | None:
    try:
        text = safe_read.content(path, safe_read.BY_HAND).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TransportError(f"cannot read the SSH configuration {path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        keyword = line.strip().replace("=", " ").split(None, 1)[:1]
        if keyword and keyword[0].lower() == "match":
            _check_criteria(line, f"{path}:{number}")
        if keyword and keyword[0].lower() == "include":
            warn(f"{path}:{number}: Include is not read; install the OpenSSH client, and preflight uses its ssh -G")
    try:
        return paramiko.SSHConfig.from_text(text)
    except (paramiko.ConfigParseError, paramiko.SSHException, ValueError) as error:
        raise TransportError(f"{path}: {error}; install the OpenSSH client, which supports more") from None


def _check_criteria(line: str, where: str) -> None:
    words = line.replace('"', " ").split()[1:]
    while words:
        criterion = words.pop(0).lstrip("!").lower()
        if criterion not in _CRITERIA:
            raise TransportError(f"{where}: Match {criterion} cannot be read; install the OpenSSH client, which can")
        del words[: criterion not in ("all", "canonical", "final")]

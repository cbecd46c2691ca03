"""The user's SSH configuration by paramiko's own reader, where OpenSSH is not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from preflight.transport.outcome import TransportError

if TYPE_CHECKING:
    from preflight.transport.ssh_config import Asked

#: What the reader understands and the transport heeds.
_HEEDED = frozenset((
    "host", "match", "hostname", "port", "user", "identityfile", "certificatefile", "identitiesonly",
    "identityagent", "proxyjump", "proxycommand", "userknownhostsfile", "globalknownhostsfile",
    "revokedhostkeys", "hostkeyalias", "stricthostkeychecking", "addressfamily", "bindaddress",
    "pubkeyauthentication", "hostkeyalgorithms", "kexalgorithms", "ciphers", "macs",
))  # fmt: skip

#: What makes no difference to one command without a terminal.
_HARMLESS = frozenset((
    "batchmode", "controlmaster", "controlpath", "controlpersist", "loglevel", "forwardagent", "forwardx11",
    "forwardx11trusted", "compression", "serveraliveinterval", "serveralivecountmax", "tcpkeepalive",
    "visualhostkey", "hashknownhosts", "addkeystoagent", "updatehostkeys", "sendenv", "connecttimeout",
    "connectionattempts", "checkhostip", "escapechar", "requesttty", "passwordauthentication",
    "kbdinteractiveauthentication", "preferredauthentications", "permitlocalcommand", "ignoreunknown",
))  # fmt: skip

#: Criteria of a Match line that paramiko understands; it passes over others, as if they were met.
_CRITERIA = frozenset(("all", "canonical", "final", "host", "originalhost", "user", "localuser"))

_DEFAULTS = {
    "identityfile": ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"),
    "userknownhostsfile": ("~/.ssh/known_hosts ~/.ssh/known_hosts2",),
    "globalknownhostsfile": ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",),
}


def read(
    file: Path | None, hosts: Sequence[Asked], warn: Callable[[str], None]
) -> dict[Asked, Mapping[str, Sequence[str]]]:
    """Return for each host what ``ssh -G`` would print, as far as it is known; raises TransportError.

    ``warn`` is told of each keyword that is not heeded.
    """
    paths = [file] if file else [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
    configs = [config for path in paths if (config := _parsed(path, warn))]
    found: dict[Asked, Mapping[str, Sequence[str]]] = {}
    for ask in hosts:
        values: dict[str, list[str]] = {}
        for config in configs:  # what was said first holds
            for keyword, value in config.lookup(ask.name).items():
                if keyword == "hostname" and value == ask.name:
                    continue
                values.setdefault(keyword, value if isinstance(value, list) else [str(value)])
        found[ask] = {**_DEFAULTS, **values}
    return found


def _parsed(path: Path, warn: Callable[[str], None]) -> paramiko.SSHConfig | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TransportError(f"cannot read the SSH configuration {path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        keyword = line.strip().replace("=", " ").split(None, 1)[:1]
        if keyword and keyword[0].lower() == "match":
            _check_criteria(line, f"{path}:{number}")
        if not keyword or keyword[0].startswith("#") or keyword[0].lower() in _HEEDED | _HARMLESS:
            continue
        warn(f"{path}:{number}: {keyword[0]} is not heeded; install the OpenSSH client, whose ssh -G is then asked")
    try:
        return paramiko.SSHConfig.from_text(text)
    except (paramiko.ConfigParseError, paramiko.SSHException, ValueError) as error:
        raise TransportError(f"{path}: {error}; install the OpenSSH client, which reads more") from None


def _check_criteria(line: str, where: str) -> None:
    words = line.replace('"', " ").split()[1:]
    while words:
        criterion = words.pop(0).lstrip("!").lower()
        if criterion not in _CRITERIA:
            raise TransportError(f"{where}: Match {criterion} cannot be read; install the OpenSSH client, which can")
        del words[: criterion not in ("all", "canonical", "final")]

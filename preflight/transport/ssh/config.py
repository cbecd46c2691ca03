"""The user's SSH configuration, resolved per host by ``ssh -G``.

OpenSSH itself handles Include and Match. Hosts that no pattern distinguishes share one call. If OpenSSH is not
installed, paramiko's own parser is used, with a warning for each keyword that it or this transport does not support.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from preflight.transport.errors import TransportError, check_readable
from preflight.transport.ssh import algorithms
from preflight.transport.ssh.config_groups import ConfigGroups
from preflight.transport.ssh.config_paramiko import read
from preflight.transport.ssh.host import HostSpec
from preflight.transport.ssh.requirements import Demands

_CALLS_AT_ONCE = 8
_CALL_LIMIT_S = 20.0

#: Values of ``ssh -G`` for one host: each keyword, in lower case, with all its values.
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class HostConfig:
    """How to reach one host. Paths are expanded; ``strict`` rejects unknown keys.

    ``beyond`` are settings that only OpenSSH's own client supports.
    """

    name: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = ""
    proxy_jump: str = ""
    proxy_command: str = ""
    known_hosts: tuple[Path, ...] = ()
    revoked: str = ""
    host_key_alias: str = ""
    strict: bool = True
    family: socket.AddressFamily = socket.AF_UNSPEC
    bind_address: str = ""
    public_key: bool = True
    kex: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    host_key_algorithms: tuple[str, ...] = ()
    pubkey_algorithms: tuple[str, ...] = ()
    ca_algorithms: tuple[str, ...] = ()
    rsa_bits: int = 0
    beyond: tuple[str, ...] = ()

    @property
    def itself(self) -> str:
        """How the host's own document refers to it.

        ``the host``, so that equal causes can be grouped; with its address if the configuration redirects its name.
        """
        return "the host" if self.hostname.startswith(self.name) else f"the host ({self.hostname}:{self.port})"


class SshConfig:
    """The configuration of one run; ``warnings`` names unsupported settings."""

    def __init__(self, file: Path | None = None, user: str = "") -> None:
        """Use a file instead of the user's and the system's configuration.

        Raises TransportError if it cannot be read.
        """
        self.warnings: list[str] = []
        self._user, self._file = user, file
        if file is not None:
            check_readable(file)
        self._ssh = shutil.which("ssh")
        self._known: dict[HostSpec, HostConfig] = {}
        self._expand = functools.cache(_expanded)  # few distinct values for all hosts
        self._path = functools.cache(Path)
        self._defaults: Values | None = None
        self._demands = Demands()

    def resolve(self, hosts: Iterable[str]) -> dict[str, HostConfig]:
        """Return each host's configuration.

        Raises TransportError for an error in the configuration.
        """
        specs = {host: HostSpec.parse(host, self._user) for host in hosts}
        missing = [spec for spec in dict.fromkeys(specs.values()) if spec not in self._known]
        if missing and self._ssh:
            self._query_ssh(missing)
        elif missing:
            values = read(self._file, missing, self._warn)
            self._known.update({spec: self._config(spec, values[spec]) for spec in missing})
        return {host: self._known[spec] for host, spec in specs.items()}

    def resolve_one(self, host: str) -> HostConfig:
        """Return one host's configuration; see ``resolve``."""
        return self.resolve([host])[host]

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _query_ssh(self, missing: Sequence[HostSpec]) -> None:
        """Query ``ssh -G`` for two hosts of each group.

        If both answers agree, they apply to the rest of the group.
        """
        first, files = self._call(missing[0], verbose=True)
        if self._defaults is None:
            self._defaults = self._call(HostSpec("localhost"), file="none")[0]
        stanzas = ConfigGroups.read(files)
        answers: dict[HostSpec, Values] = {missing[0]: first}
        groups = stanzas.groups(missing, key=lambda spec: (spec.user, spec.port), name=lambda spec: spec.name)
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            wanted = [spec for group in groups for spec in dict.fromkeys((group[0], group[-1])) if spec not in answers]
            answers.update(zip(wanted, pool.map(lambda spec: self._call(spec)[0], wanted), strict=True))
            single: list[HostSpec] = []
            for group in groups:
                shared = stanzas.shared(group[0].name, answers[group[0]], group[-1].name, answers[group[-1]])
                for spec in group:
                    if spec in answers:
                        continue
                    if shared:
                        answers[spec] = shared(spec.name)
                    else:
                        single.append(spec)
            answers.update(zip(single, pool.map(lambda spec: self._call(spec)[0], single), strict=True))
        self._known.update({spec: self._config(spec, answers[spec]) for spec in missing})

    def _call(self, spec: HostSpec, file: str = "", verbose: bool = False) -> tuple[Values, list[str]]:
        """Return the output of ``ssh -G`` for a host, and the files that it read."""
        named = file or str(self._file or "")
        command = [self._ssh or "ssh", *(["-v"] if verbose else []), "-G", *(["-F", named] if named else [])]
        command += [
            *(["-l", spec.user] if spec.user else []),
            *(["-p", str(spec.port)] if spec.port else []),
            "--",
            spec.name,
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CALL_LIMIT_S,
                encoding="utf-8",
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TransportError(f"{' '.join(command)} did not answer: {error}") from None
        if done.returncode:
            errors = [
                line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("debug", "OpenSSH_"))
            ]
            raise TransportError(f"ssh -G {spec.name}: {' '.join(errors[-3:])[:500] or 'failed'}")
        values: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            keyword, _, value = line.partition(" ")
            values.setdefault(keyword.lower(), []).append(value)
        files = re.findall(r"^debug1: Reading configuration data (.+?)\r?$", done.stderr, re.MULTILINE)
        return values, files

    @functools.cached_property
    def _own_tokens(self) -> dict[str, str]:
        """The tokens of ssh_config that do not depend on the host."""
        here = socket.gethostname()
        return {
            "%": "%", "u": getpass.getuser(), "i": str(os.getuid()), "d": str(Path.home()),
            "l": here, "L": here.split(".")[0],
        }  # fmt: skip

    def _config(self, spec: HostSpec, values: Values) -> HostConfig:
        def one(keyword: str, default: str = "") -> str:
            value = next(iter(values.get(keyword, ())), default)
            return default if value.lower() == "none" else value

        def lists(keyword: str) -> tuple[str, ...]:
            """Return the algorithms that the configuration chooses; empty if none."""
            chosen, usual = values.get(keyword), (self._defaults or {}).get(keyword)
            if not chosen or chosen == usual:
                return ()
            return algorithms.listed(chosen[0], algorithms.USUAL[keyword]) or ("",)  # all were removed

        name, hostname = spec.name, one("hostname", spec.name)
        user, port = spec.user or one("user") or self._own_tokens["u"], spec.port or int(one("port", "22"))
        alias = one("hostkeyalias")
        tokens = {
            **self._own_tokens,
            "h": hostname, "n": name, "p": str(port), "r": user, "k": alias or name, "j": one("proxyjump"),
        }  # fmt: skip

        def expand(text: str) -> str:
            return self._expand(re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text))

        def paths(keyword: str) -> tuple[str, ...]:
            return tuple(expand(_unquoted(value)) for value in values.get(keyword, ()) if value.lower() != "none")

        files = [path for key in ("userknownhostsfile", "globalknownhostsfile") for path in _words(one(key))]
        strict = one("stricthostkeychecking", "ask").lower()
        if strict in ("accept-new", "no", "off", "false"):
            self._warn(
                f"StrictHostKeyChecking is {strict!r}: hosts with unknown keys are trusted (changed keys never are)"
            )
        families = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
        return HostConfig(
            name=name,
            hostname=hostname,
            port=port,
            user=user,
            identity_files=paths("identityfile"),
            certificate_files=paths("certificatefile"),
            identities_only=one("identitiesonly") == "yes",
            agent=_agent(next(iter(values.get("identityagent", ())), ""), expand),
            proxy_jump=one("proxyjump"),
            proxy_command=re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), one("proxycommand")),
            known_hosts=tuple(self._path(expand(path)) for path in files),
            revoked=expand(one("revokedhostkeys")),
            host_key_alias=alias,
            strict=strict not in ("accept-new", "no", "off", "false"),
            family=families.get(one("addressfamily"), socket.AF_UNSPEC),
            bind_address=one("bindaddress"),
            public_key=one("pubkeyauthentication", "yes").lower() not in ("no", "false"),
            kex=lists("kexalgorithms"),
            ciphers=lists("ciphers"),
            macs=lists("macs"),
            host_key_algorithms=lists("hostkeyalgorithms"),
            pubkey_algorithms=lists("pubkeyacceptedalgorithms") or lists("pubkeyacceptedkeytypes"),
            ca_algorithms=lists("casignaturealgorithms"),
            rsa_bits=int(one("requiredrsasize") or one("rsaminsize", "1024")),
            beyond=self._demands.of(values, self._defaults or {}),
        )


def _agent(value: str, expand: object) -> str:
    """Return the path of the agent's socket; empty if none."""
    if value.lower() == "none":
        return ""
    if not value or value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if value.startswith("$"):
        return os.environ.get(value.strip("${}"), "")
    assert callable(expand)
    return str(expand(_unquoted(value)))


def _expanded(text: str) -> str:
    """Expand environment variables and home folders."""
    return os.path.expanduser(re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), text))


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _words(value: str) -> list[str]:
    return [found[0] or found[1] for found in re.findall(r'"([^"]*)"|(\S+)', value)]

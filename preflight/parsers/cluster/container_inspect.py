"""``docker inspect`` and ``podman inspect``: limits, devices and state.

Both complete objects and excerpts are read, such as a ``HostConfig`` that ``jq`` printed. Sources: Docker's Engine API
(``ContainerInspect``), podman-inspect(1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import json_at, json_head
from preflight.textprep.lines import Lines

HINTS = ("{", "[")

#: Names of a container's object or of its ``HostConfig``, and how many of them identify one.
_KEYS = re.compile(
    r'"(?:HostConfig|ShmSize|IpcMode|Ulimits|DeviceRequests|NetworkMode|CapAdd|OOMKilled|Privileged|MemorySwap'
    r'|CgroupParent|RestartCount|OomScoreAdj|PidMode|Runtime)"\s*:'
)
_ENOUGH = 2
#: A line with a plain value, of a truncated object.
_PLAIN = re.compile(r'\s*"(\w{1,40})"\s*:\s*("(?:[^"\\]|\\.){0,400}"|-?\d{1,20}|true|false|null)\s*,?\s*')
_MOST = 1000  # containers


@dataclass(frozen=True)
class InspectedContainer:
    """One container; a value that the text lacks is None."""

    name: str
    line: int
    image: str | None = None
    state: str | None = None  # running, exited, …
    exit_code: int | None = None
    oom_killed: bool | None = None
    error: str = ""
    restarts: int | None = None
    shm_bytes: int | None = None
    ipc: str | None = None  # private, shareable, host, container:…
    network: str | None = None  # host, bridge, …
    privileged: bool | None = None
    ulimits: Mapping[str, int] | None = None  # soft limits by name without RLIMIT_; -1: unlimited
    devices: tuple[str, ...] | None = None  # paths on the host
    capabilities: tuple[str, ...] | None = None  # added ones, without CAP_
    gpus: str | None = None  # requested: all, a number, or a list of devices; empty: none
    runtime: str | None = None
    memory_bytes: int | None = None  # limit; 0: none
    variables: Mapping[str, str] | None = None


def begins(lines: Lines, at: int) -> bool:
    """Return whether a container's object or an excerpt of one begins at a line."""
    if lines[at].text[:1] not in "{[":
        return False
    near = json_head(lines, at)
    return '"apiVersion"' not in near and len(set(_KEYS.findall(near))) >= _ENOUGH


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[InspectedContainer, ...]]:
    """Read the containers that begin at a line."""
    number = lines[at].number
    if (read := json_at(lines, at)) is None:
        plain = {}
        end = at + 1
        while end < len(lines) and (lines[end].text[:1] in " \t}]" or not lines[end].text):
            if match := _PLAIN.fullmatch(lines[end].text):
                plain[match[1]] = json_limits.text(match[2])
            end += 1
        return Parsed(
            (_container(plain, number),) if plain else (), (ParseGap(number, "the JSON value is cut or invalid"),), end
        )
    end, value = read
    entries = value if isinstance(value, list) else [value]
    containers = tuple(_container(entry, number) for entry in entries[:_MOST] if isinstance(entry, dict))
    return Parsed(containers, () if containers else (ParseGap(number, "no container follows"),), end)


def _container(entry: Mapping[str, Any], line: int) -> InspectedContainer:
    def part(name: str) -> Mapping[str, Any]:
        value = entry.get(name)
        return value if isinstance(value, dict) else entry

    host, state, config = part("HostConfig"), part("State"), part("Config")
    requests = host.get("DeviceRequests")
    runtime = _text(host.get("Runtime"))
    return InspectedContainer(
        (_text(entry.get("Name")) or "").lstrip("/")[:200], line, image=_text(config.get("Image")),
        state=_text(state.get("Status")), exit_code=_integer(state.get("ExitCode")),
        oom_killed=_bool(state.get("OOMKilled")), error=_text(state.get("Error")) or "",
        restarts=_integer(entry.get("RestartCount")),
        shm_bytes=_integer(host.get("ShmSize")), ipc=_text(host.get("IpcMode")), network=_text(host.get("NetworkMode")),
        privileged=_bool(host.get("Privileged")), ulimits=_limits(host), devices=_devices(host),
        capabilities=_capabilities(host), runtime=runtime, memory_bytes=_integer(host.get("Memory")),
        gpus=_gpus(requests) if "DeviceRequests" in host else None, variables=_variables(config),
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return value[:400] if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))


def _limits(host: Mapping[str, Any]) -> Mapping[str, int] | None:
    if "Ulimits" not in host:
        return None
    return {
        name.lower().removeprefix("rlimit_"): soft
        for entry in _objects(host["Ulimits"])
        if (name := _text(entry.get("Name"))) and (soft := _integer(entry.get("Soft"))) is not None
    }


def _devices(host: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "Devices" not in host:
        return None
    return tuple(path for entry in _objects(host["Devices"]) if (path := _text(entry.get("PathOnHost"))))


def _capabilities(host: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "CapAdd" not in host:
        return None
    added = host["CapAdd"] if isinstance(host["CapAdd"], list) else []
    return tuple(name.upper().removeprefix("CAP_") for name in added if isinstance(name, str))


def _gpus(requests: Any) -> str:
    for request in _objects(requests):
        wanted = json.dumps(request.get("Capabilities"))
        if '"gpu"' in wanted or _text(request.get("Driver")) in ("nvidia", "cdi"):
            named, number = request.get("DeviceIDs"), _integer(request.get("Count"))
            if isinstance(named, list) and named:
                return ", ".join(map(str, named))[:400]
            return "all" if number == -1 else str(number)
    return ""


def _variables(config: Mapping[str, Any]) -> Mapping[str, str] | None:
    listed = config.get("Env")
    if not isinstance(listed, list):
        return None
    pairs = (item.partition("=") for item in listed if isinstance(item, str))
    return {name: value[:400] for name, sign, value in pairs if sign}


def facts(containers: tuple[InspectedContainer, ...]) -> dict[str, Any]:
    """Return the containers as `preflight read --json` prints them."""
    return {
        "containers": [
            {
                "name": item.name or None, "image": item.image, "state": item.state, "exit_code": item.exit_code,
                "oom_killed": item.oom_killed, "restarts": item.restarts, "shm_bytes": item.shm_bytes, "ipc": item.ipc,
                "network": item.network, "privileged": item.privileged,
                "ulimits": None if item.ulimits is None else dict(item.ulimits),
                "devices": None if item.devices is None else list(item.devices),
                "capabilities": None if item.capabilities is None else list(item.capabilities),
                "gpus": item.gpus, "runtime": item.runtime, "memory_bytes": item.memory_bytes, "line": item.line,
            }
            for item in containers
        ]
    }  # fmt: skip


def summary(containers: tuple[InspectedContainer, ...]) -> str:
    """Return a one-line summary of the containers."""
    names = ", ".join(item.name for item in containers[:4] if item.name)
    return f"{len(containers)} container{'s' if len(containers) > 1 else ''}{f': {names}' if names else ''}"

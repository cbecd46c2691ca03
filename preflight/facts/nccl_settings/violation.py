"""Violations of rules, the scope of settings, and access to settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts.nccl_environment import NcclEnvironment, Setting
from preflight.facts.nccl_settings.catalogue import Version


@dataclass(frozen=True)
class Violation:
    """A violated rule, and the settings that violate it."""

    rule: str
    settings: tuple[Setting, ...]  # the first is the one to change
    what: str  # a complete sentence
    expected: str
    fatal: bool = False  # the job fails at start, computes wrong results, or loses its network

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that violate the rule."""
        return tuple(setting.name for setting in self.settings)


@dataclass(frozen=True)
class SettingScope:
    """What is known about the node and the job of the settings; None: unknown."""

    versions: tuple[Version, ...] = ()  # versions of NCCL that a job may load; empty: unknown
    rdma: bool | None = None  # whether there are RDMA devices
    nvlink: bool | None = None  # whether NVLink connects the GPUs
    nvswitch: bool | None = None
    peer_memory: bool | None = None  # a peer-memory module is loaded
    infiniband: bool | None = None  # the ports in use are InfiniBand; False: RoCE
    rails_apart: bool | None = None  # whether each rail is a separate subnet
    ranks: int | None = None  # number of ranks in the job
    nodes: int | None = None
    libfabric: bool = False  # the plug-in aws-ofi-nccl carries the traffic between nodes

    @property
    def version(self) -> Version | None:
        """The version, if there is only one."""
        return self.versions[0] if len(set(self.versions)) == 1 else None


class SettingRule(Protocol):
    """A rule, which finds violations in one environment."""

    __name__: str

    def __call__(self, env: NcclEnvironment, here: SettingScope, /) -> Iterator[Violation]:
        """Yield the violations, without side effects."""
        ...


class SettingsReader:
    """The settings as NCCL reads them, for rules about several settings."""

    def __init__(self, env: NcclEnvironment) -> None:
        self.env = env

    def text(self, name: str) -> str:
        """Return a value; empty if unset."""
        setting = self.env.get(name)
        return setting.value if setting is not None else ""

    def number(self, name: str) -> int | None:
        """Return a number as NCCL parses it; None if NCCL uses its default."""
        try:
            return self.env.integer(name)
        except EvidenceError:
            return None

    def set(self, *names: str) -> tuple[Setting, ...]:
        """Return the settings of these names that are in force and not empty."""
        found = (self.env.get(name) for name in names)
        return tuple(setting for setting in found if setting is not None and setting.value)

    def clash(self, what: str, expected: str, *names: str, fatal: bool = False) -> Violation:
        """Return the violation of settings that conflict with each other."""
        settings = self.set(*names)
        set_to = " with ".join(setting.text for setting in settings)
        text = f"{set_to} {what}" if what.startswith("has ") else f"{set_to}: {what}"
        return Violation("contradiction", settings, text, expected, fatal)

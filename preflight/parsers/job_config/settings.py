"""Settings of a training job, each with its origin in the job's description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.errors import PreflightError


class JobConfigError(PreflightError, ValueError):
    """The file describes no supported job; the message names the file and the fix."""


@dataclass(frozen=True)
class JobSetting:
    """A setting's value, and its origin, such as ``train.sh:12: --num-layers``."""

    value: Any
    origin: str


@dataclass(frozen=True)
class JobSettings:
    """The settings that a job's description states."""

    values: Mapping[str, JobSetting] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()  # values that could not be read, each with its location and the fix
    unread: frozenset[str] = frozenset()  # names of settings that are stated but unreadable

    def get(self, name: str) -> Any:
        """Return a setting's value; None if it is not stated."""
        setting = self.values.get(name)
        return setting.value if setting is not None else None


def merged(parts: Iterable[JobSettings]) -> JobSettings:
    """Merge descriptions; later values take precedence, except framework defaults."""
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    unread: set[str] = set()
    for part in parts:
        # a stated value replaces a framework's default
        values |= {
            name: setting
            for name, setting in part.values.items()
            if name not in values or not setting.origin.startswith(DEFAULT)
        }
        gaps += part.gaps
        unread = (unread - part.values.keys()) | part.unread
    return JobSettings(values, tuple(gaps), frozenset(unread))


#: Prefix of a setting's origin if the value is a framework's default.
DEFAULT = "default of "

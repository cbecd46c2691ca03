"""Values of a job's description, each with the place it was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.errors import PreflightError


class JobConfigError(PreflightError, ValueError):
    """A file describes no job that is understood; the text names the file and the fix."""


@dataclass(frozen=True)
class JobSetting:
    """A value and its origin, such as ``train.sh:12: --num-layers``."""

    value: Any
    origin: str


@dataclass(frozen=True)
class JobSettings:
    """What a description states of a job."""

    values: Mapping[str, JobSetting] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()  # what was found and could not be read, each with its place and the fix
    unread: frozenset[str] = frozenset()  # names of settings that are stated without a readable value

    def get(self, name: str) -> Any:
        """Return a value; None if it is not stated."""
        setting = self.values.get(name)
        return setting.value if setting is not None else None


def merged(parts: Iterable[JobSettings]) -> JobSettings:
    """Return the settings of several descriptions; the last value counts."""
    values: dict[str, JobSetting] = {}
    gaps: list[str] = []
    unread: set[str] = set()
    for part in parts:
        # a written value replaces the default of a framework
        values |= {
            name: setting
            for name, setting in part.values.items()
            if name not in values or not setting.origin.startswith(DEFAULT)
        }
        gaps += part.gaps
        unread = (unread - part.values.keys()) | part.unread
    return JobSettings(values, tuple(gaps), frozenset(unread))


#: How the origin of a framework's default begins.
DEFAULT = "default of "

"""Third-party checks.

An entry point names a module that contains checks and, optionally, ``PROBES``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType
    from typing import Any

    from preflight.model import Check, Finding
    from preflight.probes.probe import Probe

GROUP = "preflight.checks"

#: The check that exists only if a plug-in cannot be loaded.
LOADED = "site.plugins"

#: Maximum length of a reported exception, in characters.
_LONGEST = 200


@dataclass(frozen=True)
class Plugins:
    """Loaded plug-in modules, their probes, and one line for each failure."""

    modules: tuple[ModuleType, ...] = ()
    probes: tuple[Probe, ...] = ()
    broken: tuple[str, ...] = ()


def load() -> Plugins:
    """Import every installed plug-in.

    A plug-in that cannot be imported is reported and does not end the run.
    """
    modules: list[ModuleType] = []
    probes: list[Probe] = []
    broken: list[str] = []
    for point in entry_points():
        try:
            module = point.load()
            probes += _probes(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            import logging

            logging.getLogger(__name__).info("the plug-in %s cannot be loaded", point.name, exc_info=True)
            broken.append(f"{_origin(point)}: {' '.join(f'{type(error).__name__}: {error}'.split())[:_LONGEST]}")
            continue
        modules.append(module)
    return Plugins(tuple(modules), tuple(probes), tuple(broken))


def unloaded(broken: Sequence[str]) -> Check:
    """Return the check that reports plug-ins that failed to load."""
    from preflight.model import check, unknown

    @check(
        LOADED,
        title="Every installed plug-in can be loaded",
        source="the entry points of the installed distributions",
        fix="Correct or reinstall the plug-in, or uninstall it; `preflight -v list` prints the traceback.",
    )
    def loaded(node: object, site: object) -> Iterator[Finding]:
        """Report each plug-in that is installed and cannot be imported.

        ## Why it matters
        The plug-in's checks did not run, so they protect no node.

        ## False alarms
        A plug-in that is no longer needed; uninstall it.
        """
        for one in broken:
            yield unknown(f"a plug-in cannot be loaded: {one}", subject=one.partition(":")[0], fix=loaded.fix)

    return loaded


def entry_points() -> Sequence[EntryPoint]:
    """Return the entry points of preflight's group, sorted by name.

    ``importlib.metadata`` is imported only if a distribution may have one: the import takes longer than all checks
    together.
    """
    if not _may_have_any(sys.path):
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _may_have_any(paths: Iterable[str]) -> bool:
    """Return whether an ``entry_points.txt`` on these paths may name our group.

    The distributions in the directories of ``sys.path`` are searched. With an archive or a custom finder, which is not
    searched, the result is True.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if not _is_path_finder(finder)):
        return True
    try:
        return any(_names_group(path or ".") for path in paths)
    except OSError:  # importlib.metadata reports the read error
        return True


def _is_path_finder(finder: object) -> bool:
    return getattr(finder, "__name__", "") == "PathFinder" and finder.__module__.endswith("importlib_external")


def _names_group(path: str) -> bool:
    try:
        entries = os.listdir(path)
    except (FileNotFoundError, PermissionError):
        return False
    for entry in entries:
        if entry.lower().endswith((".dist-info", "egg-info")):
            try:
                with open(os.path.join(path, entry, "entry_points.txt"), "rb", buffering=0) as stream:
                    if GROUP.encode() in stream.read():
                        return True
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
    return False


def _probes(module: ModuleType | Any) -> list[Probe]:
    from preflight.probes.probe import Probe

    probes = list(getattr(module, "PROBES", ()))
    if wrong := [probe for probe in probes if not isinstance(probe, Probe)]:
        raise TypeError(f"PROBES holds a {type(wrong[0]).__name__}, not a Probe")
    return probes


def _origin(point: EntryPoint) -> str:
    return f"{point.name} ({point.dist.name} {point.dist.version})" if point.dist else point.name

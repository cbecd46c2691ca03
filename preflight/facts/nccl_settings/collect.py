"""NCCL settings from a log, a pasted list or the processes of a running job.

All sources yield :class:`~preflight.facts.nccl_environment.NcclEnvironment`, so that one set of rules judges them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass, field
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nccl_environment import NcclEnvironment, Setting

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import ReportedVariable
    from preflight.textprep.numbered_text import NumberedText

RANKS = "env:ranks"

#: Maximum number of lines read from a pasted list, and of settings used from it.
LONGEST_LIST, MAX_SETTINGS = 200_000, 5000

#: Names to find in a pasted list: NCCL's own, those of its plug-ins, and those that state the size of the job.
_WANTED = re.compile(
    r"N{1,2}C{1,2}L{1,2}_\w+|nccl_\w+|TORCH_(?:NCCL|FR)_\w+|OFI_NCCL_\w+|SHARP_COLL_\w+|WORLD_SIZE|OMPI_COMM_WORLD_SIZE"
    r"|SLURM_(?:STEP_NUM_TASKS|NTASKS)"
)


@dataclass(frozen=True)
class CollectedSettings:
    """Settings of several processes, in which a name may have several values."""

    settings: tuple[Setting, ...]
    placeholders: tuple[str, ...] = ()  # names whose values a shell, a template or a user has yet to replace
    nodes: int | None = None  # number of nodes of the job, as far as its command shows

    @property
    def environment(self) -> NcclEnvironment:
        """The first value of each name."""
        first: dict[str, Setting] = {}
        for setting in self.settings:
            first.setdefault(setting.name, setting)
        return NcclEnvironment(tuple(first.values()), {})

    @property
    def values(self) -> Mapping[str, tuple[str, ...]]:
        """The different values of each name, in order of appearance."""
        found: dict[str, dict[str, None]] = {}
        for setting in self.settings:
            found.setdefault(setting.name, {})[setting.value] = None
        return {name: tuple(values) for name, values in found.items()}


def of_log(variables: Iterable[ReportedVariable], key: str) -> CollectedSettings:
    """Collect the ``NAME set by environment to VALUE`` lines of a log.

    Numbers are shown as NCCL parsed them.
    """
    return CollectedSettings(tuple(Setting(one.name, one.value, key, one.first.number) for one in variables))


def of_listing(text: str | NumberedText, key: str) -> CollectedSettings | None:
    """Parse pasted lines of ``NAME=value``; None if no line names NCCL.

    The lines may come from ``env``, ``export -p`` or ``srun -l env``. Never raises.
    """
    from preflight.parsers.job_output import lines
    from preflight.parsers.setting_lines import listed
    from preflight.textprep.launcher_prefixes import strip_launcher_prefix

    if "NCCL" not in (text if isinstance(text, str) else text.text).upper():
        return None
    found: list[Setting] = []
    for number, line in lines(text, "="):
        if number > LONGEST_LIST or len(found) >= MAX_SETTINGS:
            break
        assignment = listed(line) or listed(strip_launcher_prefix(line)[1])
        if assignment is not None and _WANTED.fullmatch(assignment.name):
            found.append(Setting(assignment.name, assignment.value, key, number))
    return CollectedSettings(tuple(found)) if any("NCCL" in setting.name.upper() for setting in found) else None


@dataclass(frozen=True)
class RankEnvironment:
    """The environment that some processes of a job were started with."""

    pids: tuple[int, ...]  # pids of the first of these processes
    count: int
    name: str  # name of their program
    variables: Mapping[str, str]
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # variable -> rank numbers in the job

    @property
    def who(self) -> str:
        """The processes in words: ``process 4711 (python3) and 7 more``."""
        name = self.name[:40] if self.name.isprintable() else repr(self.name[:40])
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return f"process {self.pids[0]} ({name}){more}"

    @property
    def settings(self) -> NcclEnvironment:
        """The variables as settings, without NCCL's files.

        A process in a container has different files from its host.
        """
        holder = f"the environment of {self.who}"
        made = tuple(Setting(name, value, RANKS, holder=holder) for name, value in self.variables.items())
        return NcclEnvironment(made, {})


@dataclass(frozen=True)
class Ranks:
    """The processes on a node that are ranks of a job."""

    environments: tuple[RankEnvironment, ...]  # distinct environments
    denied: int  # processes of other users, with unreadable environments
    complete: bool  # False: there were more processes than examined


def ranks(evidence: Evidence) -> Ranks:
    """Return the start environments of the ranks on a node.

    Variables that a program sets later are not visible. Raises EvidenceError if the environments were not collected.
    """
    value = evidence.value(RANKS)
    if not isinstance(value, Mapping) or not isinstance(value.get("environments"), list):
        raise EvidenceError(RANKS, "holds no environments")
    denied = value.get("denied", 0)
    found = tuple(_rank(entry) for entry in value["environments"])
    return Ranks(found, denied if isinstance(denied, int) else 0, value.get("cut") is not True)


def _rank(entry: object) -> RankEnvironment:
    if not isinstance(entry, Mapping):
        raise EvidenceError(RANKS, "an environment is not an object")
    pids, names = entry.get("pids"), entry.get("environment")
    if not isinstance(pids, list) or not pids or not all(isinstance(pid, int) for pid in pids):
        raise EvidenceError(RANKS, "an environment names no process")
    if not isinstance(names, Mapping) or not all(isinstance(value, str) for value in names.values()):
        raise EvidenceError(RANKS, "an environment has no names and values")
    count = entry.get("count", len(pids))
    return RankEnvironment(
        tuple(pids),
        count if isinstance(count, int) else len(pids),
        str(entry.get("name", "?")),
        {str(name): value for name, value in names.items()},
        _numbers(entry.get("numbers")),
    )


def _numbers(value: object) -> dict[str, tuple[int, ...]]:
    """Return variable -> rank numbers; empty for records of older collectors."""
    if not isinstance(value, Mapping):
        return {}
    return {
        str(name): tuple(number for number in numbers if isinstance(number, int) and 0 <= number < 10_000_000)
        for name, numbers in value.items() if isinstance(numbers, list)
    }  # fmt: skip

"""Hostfiles of Open MPI, MPICH, DeepSpeed and PBS: hosts and their slots.

A line is ``gpu001 slots=8`` (Open MPI and DeepSpeed), ``gpu001:8`` (MPICH, Intel MPI) or a bare name; a PBS nodefile
has a line for each rank. Sources: mpirun(1); the DeepSpeed documentation; the Hydra process manager's guide.
"""

from __future__ import annotations

import re

from preflight.parsers.job_config.settings import JobConfigError

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]{0,252})(?::(?P<count>\d{1,6}))?(?P<options>(?:\s+[\w-]+=\S+)*)", re.ASCII
)
_RANKFILE = re.compile(r"rank\s+\d+\s*=")
_SLOTS = re.compile(r"(?<!\S)slots=(\d{1,6})(?!\S)", re.ASCII)

#: Maximum number of lines in a file, and of ranks.
MOST_LINES, MOST_RANKS = 1_000_000, 1 << 18


def parse(text: str, source: str, each: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the hosts, and the index of each rank's host among them.

    A host without a number of slots has ``each`` slots, or one per line if a name is repeated. Raises JobConfigError.
    """
    entries: list[tuple[str, int | None]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        if _RANKFILE.match(line):
            raise JobConfigError(f"{source}:{number}: rankfiles are not supported; list hosts, such as: gpu001 slots=8")
        host = _LINE.fullmatch(line)
        if host is None or number > MOST_LINES:
            raise JobConfigError(
                f"{source}:{number}: {line[:60]!r} is not a host; write one per line, such as: gpu001 slots=8"
            )
        slots = _SLOTS.search(host["options"])
        if slots is None and "slots=" in host["options"]:
            raise JobConfigError(f"{source}:{number}: the slots of {host['name']} are not a number: {line[:60]!r}")
        count = slots[1] if slots else host["count"]
        entries.append((host["name"], int(count) if count else None))
    if not entries:
        raise JobConfigError(f"{source} contains no host; write one per line, such as: gpu001 slots=8")
    numbers: dict[str, int] = {}
    for name, _ in entries:
        numbers.setdefault(name, len(numbers))
    alone = each if len(numbers) == len(entries) else 1
    if sum(count if count is not None else alone for _, count in entries) > MOST_RANKS:
        raise JobConfigError(f"{source} has more than {MOST_RANKS:,} ranks")
    order = [numbers[name] for name, count in entries for _ in range(count if count is not None else alone)]
    return tuple(numbers), tuple(order)

"""Lines of sudoers(5) that let ``--sudo`` run exactly its probes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.probes.probe import Probe


def sudoers(probes: Iterable[Probe]) -> list[str]:
    """Return the lines for these probes; empty if none of them needs root."""
    privileged = [probe for probe in probes if probe.needs and probe.argv]
    commands = sorted({command for probe in privileged for command in _commands(probe)})
    if not commands:
        return []
    return [
        "# complete each path with `command -v` on your nodes",
        "Cmnd_Alias PREFLIGHT = " + ", ".join(f"/usr/sbin/{command}" for command in commands),
        "preflight ALL=(root) NOPASSWD: PREFLIGHT",
    ]


def _commands(probe: Probe) -> list[str]:
    """Return the commands that a probe may run.

    Items listed by another command are written as numbers: a wildcard would also match options.
    """
    if not probe.listed:
        return [_escaped(probe.target)]
    numbers = [_escaped(probe.target.replace("{}", "[0-9]" * digits)) for digits in range(1, 6)]
    return [_escaped(probe.listed[0]), *numbers]


def _escaped(target: str) -> str:
    """Return a command with its arguments escaped for sudoers(5).

    Each ``{}`` becomes a wildcard. For a command without arguments, sudo would allow any, such as an output file, so
    ``""`` forbids them.
    """
    escaped = re.sub(r"([,:=\\])", r"\\\1", target).replace("{}", "*")
    return escaped if " " in escaped else f'{escaped} ""'

"""The lines of sudoers(5) that let ``--sudo`` run what needs root, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.probes import Probe


def sudoers(probes: Iterable[Probe]) -> list[str]:
    """Return the lines for these probes; none if none of them needs root."""
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
    """Return what a probe may run. What another command lists is a number: a wildcard would let options through."""
    if not probe.listed:
        return [_escaped(probe.target)]
    numbers = [_escaped(probe.target.replace("{}", "[0-9]" * digits)) for digits in range(1, 6)]
    return [_escaped(probe.listed[0]), *numbers]


def _escaped(target: str) -> str:
    """Write a command as sudoers(5) wants its arguments; each word that ``{}`` stands for is any.

    A command without arguments may be given any, such as a file to write to, unless ``""`` forbids it.
    """
    escaped = re.sub(r"([,:=\\])", r"\\\1", target).replace("{}", "*")
    return escaped if " " in escaped else f'{escaped} ""'

"""Probes of what the cluster file declares: mounts, services, processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from preflight.probes.probe import Probe


def checkpoints(path: str) -> Probe:
    """Return the probe for a directory's checkpoints and their change times."""
    command = f"find -H {shlex.quote(path)} -maxdepth 2 -printf '%T@ %y %P\\n'"
    return Probe("cmd", command, "age of the newest checkpoint, if the cluster file names its directory", 20)


def space(place: str) -> Probe:
    """Return the probe of a mount; a separate process, as its server may be dead."""
    command = f"df -B1 --output=fstype,size,avail,itotal,iavail,target -- {shlex.quote(place)}"
    return Probe("cmd", command, "existence, response and free space of a declared mount")


def units(names: Iterable[str]) -> Probe:
    """Return the probe of the state of systemd units."""
    listed = " ".join(unit_name(name) for name in names)
    command = f"systemctl show --property=Id,Names,LoadState,ActiveState,SubState -- {listed}"
    return Probe("cmd", command, "state of the declared services", where=("systemd",))


def unit_name(name: str) -> str:
    """Return the full name of a unit: ``slurmd`` is ``slurmd.service``."""
    return name if name.rpartition(".")[2] in UNIT_TYPES else f"{name}.service"


#: Types of systemd units.
UNIT_TYPES = ("service", "socket", "target", "mount", "automount", "swap", "timer", "path", "slice", "scope", "device")


#: The command that lists the processes of a node.
PROCESSES = "ps -e -o pid=,ppid=,stat=,uid=,user:32=,comm="


def processes(programs: Iterable[str] = (), users: Iterable[str] = ()) -> Probe:
    """Return the probe of zombies, and of processes with forbidden names or users."""
    wanted = [r"1\s", r"[0-9]+\s+[0-9]+\s+Z"]
    fields = r"[0-9]+\s+[0-9]+\s+\S+\s+"
    if names := "|".join(re.escape(user) for user in users):
        wanted.append(rf"{fields}(?:(?:{names})|[0-9]+\s+(?:{names}))\s")
    if names := "|".join(re.escape(program[:15]) for program in programs):
        wanted.append(rf"{fields}[0-9]+\s+\S+\s+(?:{names})(?:\s|$)")
    return Probe("cmd", PROCESSES, "zombies, and forbidden programs and users; other processes are left out", 10,
                 twice=True, omit=rf"(?!\s*(?:{'|'.join(wanted)}))")  # fmt: skip

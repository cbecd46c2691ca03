"""Turns a made-up machine into a real host: its evidence as files, device nodes and tools below one folder.

``assign_root`` lets a host of the farm use it. The collector then reads what ``tests.support.machines`` rendered in its
usual places, through the login shell, over the network. Needs root.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support import machines
from tests.support.machines import Machine
from tests.support.sshfarm import Farm, View

# /proc/self differs between processes. Before Python starts, a privileged process puts its content in place: a shell
# left behind in this namespace, as root.
_SELF = """mkfifo -m 666 /dev/shm/ask /dev/shm/told
(read pid </dev/shm/ask
for name in status limits; do mount --bind {root}/proc/self/$name /proc/$pid/$name; done
echo >/dev/shm/told) </dev/null >/dev/null 2>&1 &"""
_PYTHON = """#!/bin/sh
echo $$ >/dev/shm/ask
read told </dev/shm/told
exec /usr/bin/python3 "$@"
"""

_NULL = os.makedev(1, 3)
_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHONS = ("/usr/bin/python3*", "/usr/local/bin/python3*", "/usr/libexec/platform-python*")


def write(machine: Machine, folder: Path, *, hung: Sequence[str] = (), python: bool = True) -> Path:
    """Write a machine's root and return it; ``hung`` names tools that never end, ``python`` whether it has Python."""
    records: Mapping[str, Mapping[str, Any]] = machines.evidence(machine)["records"]
    tools: dict[str, dict[tuple[str, ...], Mapping[str, Any]]] = {}
    _devices(folder / "dev")
    for key in sorted(records, key=lambda key: (not key.startswith("dir:"), key)):
        kind, target = key.split(":", 1)
        if records[key]["status"] != "ok" or ("*" in target and kind != "cmd"):
            continue
        if kind == "dir":
            _directory(folder, target, records[key]["entries"])
        elif kind == "file":
            _file(folder / target.lstrip("/"), records[key]["out"])
        elif kind == "files":
            for name, text in records[key]["value"].items():
                _file(folder / target.lstrip("/") / name, f"{text}\n")
        elif kind == "cmd":
            tool, *arguments = shlex.split(target)
            record = records[key] if "%T@" not in target else {**records[key], "shell": _as_old_as(records[key]["out"])}
            tools.setdefault(tool, {})[tuple(arguments)] = record
    tools.setdefault("ip", {})[("-j", "addr")] = {"out": _ip_addr(records["psutil:net_if_addrs"]["value"]), "rc": 0}
    for tool, answers in tools.items():
        _file(folder / "bin" / tool, "#!/bin/sh\nexec sleep 1000\n" if tool in hung else _script(answers), 0o755)
    if python:
        _file(folder / "bin" / "python3", _PYTHON, 0o755)
    _file(folder / "shm", str(records["statvfs:/dev/shm"]["value"]["total_bytes"]))
    return folder


def assign_root(
    farm: Farm,
    host: str,
    root: Path,
    *,
    shell: str = "/bin/bash",
    bashrc: str = "",
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> None:
    """Make a root the file system of a farm's host, with this login shell, start-up file, variables and more files."""
    seen = view(root, shell=shell, bashrc=bashrc, environment=environment, files=files)
    farm.view(host, seen)
    furnish(farm._rooms[host].enter, root)


def view(
    root: Path,
    *,
    shell: str = "/bin/bash",
    bashrc: str = "",
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> View:
    """Return the visible content of a host with this root, apart from /sys, /proc and /dev."""
    return View(
        shell=shell,
        files={**_elsewhere(root), **({"~/.bashrc": bashrc} if bashrc else {}), **(files or {})},
        environment={"PATH": f"{root}/bin:{_PATH}", **(environment or {})},
        without=()
        if (root / "bin" / "python3").exists()
        else tuple(p for p in _PYTHONS if os.path.isdir(os.path.dirname(p))),
    )


def furnish(enter: Path, root: Path) -> None:
    """Make the script that enters the namespace mount the root's /sys, /proc and /dev first."""
    before, last = enter.read_text(encoding="utf-8").rsplit("exec ", 1)
    size = (root / "shm").read_text(encoding="utf-8")
    mounts = [f"mount --bind {root}{path} {path}" for path in ("/sys", *_mounted_in_proc(root))]
    mounts += [f"mount --rbind {root}/dev /dev", f"mount -t tmpfs -o size={size} tmpfs /dev/shm"]
    lines = [before.rstrip("\n"), *mounts, _SELF.format(root=root), f"exec {last}"]
    enter.write_text("\n".join(lines), encoding="utf-8")


def _mounted_in_proc(root: Path) -> list[str]:
    """Return the paths mounted over /proc: files, or the folder above a file that this machine lacks."""
    found = dict[str, None]()
    for path in sorted((root / "proc").rglob("*")):
        place = Path("/") / path.relative_to(root)
        if path.is_file() and place.parts[2] != "self":
            while not place.exists():
                place = place.parent
            if place != Path("/proc"):  # over all of it: a host would lose its own processes
                found[str(place)] = None
    return list(found)


def _elsewhere(root: Path) -> dict[str, str]:
    """Return the files that are neither below /sys, /proc and /dev nor tools."""
    tops = [top for top in root.iterdir() if top.is_dir() and top.name not in ("sys", "proc", "dev", "bin")]
    files = [path for top in tops for path in top.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(root)}": path.read_text(encoding="utf-8") for path in files}


def _file(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _devices(folder: Path) -> None:
    for name in ("shm", "pts"):
        (folder / name).mkdir(parents=True)
    for name, minor in _DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        (folder / name).chmod(0o666)
    (folder / "fd").symlink_to("/proc/self/fd")


def _directory(root: Path, target: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    folder = root / target.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in entries.items():
        if entry["type"] == "link":
            Path(os.path.normpath(folder / entry["target"])).mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(entry["target"])
        elif entry["type"] == "char":
            os.mknod(folder / name, stat.S_IFCHR | 0o600, _NULL)
            (folder / name).chmod(int(entry["mode"], 8))
        else:
            (folder / name).mkdir()


def _as_old_as(listed: str) -> str:
    """Return commands that print ``find -printf '%T@ …'``, with each file's age as it was when rendered."""
    rendered_s = datetime.fromisoformat(machines.COLLECTED_AT.replace("Z", "+00:00")).timestamp()
    lines = [line.split(" ", 1) for line in listed.splitlines()]
    return "; ".join(
        f'echo "$(($(date +%s) - {round(rendered_s - float(changed))})).0" {shlex.quote(rest)}'
        for changed, rest in lines
    )


def _ip_addr(interfaces: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """Return psutil's rendered answer as ``ip -j addr``: a node's own Python lacks psutil."""
    links = []
    for name, entries in interfaces.items():
        ips = [entry for entry in entries if entry["family"] in ("inet", "inet6")]
        pairs = [(entry, ipaddress.ip_interface(f"{entry['address']}/{entry['netmask']}")) for entry in ips]
        found = [
            {"family": entry["family"], "local": str(ip.ip), "prefixlen": ip.network.prefixlen} for entry, ip in pairs
        ]
        links.append({"ifname": name, "addr_info": found})
    return json.dumps(links)


def _script(answers: Mapping[tuple[str, ...], Mapping[str, Any]]) -> str:
    """Return a tool that prints the recorded output of each command line that it knows."""
    cases = []
    for arguments, record in answers.items():
        command = record.get("shell") or f"printf %s {shlex.quote(record.get('out', ''))}"
        if err := record.get("err"):
            command += f"; printf %s {shlex.quote(err)} >&2"
        cases.append(f"{shlex.quote(' '.join(arguments))}) {command}; exit {record['rc']};;\n")
    return '#!/bin/sh\ncase "$*" in\n' + "".join(cases) + '*) echo "unknown arguments: $*" >&2; exit 64;;\nesac\n'

"""View of one host of the farm: its files, tools and login shell.

Each connection enters a private mount namespace before sshd starts in it, so the files are in their usual places
(``/sys/class/net/eth0/mtu``) and the login shell is that of the host's own ``/etc/passwd``. Needs root.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: The ordinary user that logs in if the farm runs as root.
USER, UID, GID = "operator", 7077, 7077


@dataclass(frozen=True)
class View:
    """One host as its user sees it.

    ``files`` maps paths to contents; those below ``/sys`` replace all of it, others are added to what the machine has.
    ``~/`` is the home folder; scripts and programs are executable. ``links`` are symbolic links (``path: target``),
    ``folders`` empty folders, ``devices`` character devices. ``tools`` are scripts that come first in PATH, ``without``
    patterns of files that must not be there. ``memlock_bytes`` is the limit of locked memory, ``sshd`` are lines of its
    sshd_config, ``network`` is the name of its network namespace (ip-netns(8)); its sshd can be reached nevertheless.
    """

    shell: str = "/bin/bash"
    hostname: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    memlock_bytes: int | None = None
    sshd: tuple[str, ...] = ()
    network: str = ""


class Room:
    """A view on disk: a folder with the files, and the script that enters it."""

    def __init__(self, folder: Path, view: View) -> None:
        """Create ``folder``, which belongs to this room alone, and write its files."""
        self.view = view
        self._folder, self._root, self._home = folder, folder / "root", folder / "home"
        self._tools = folder / "bin"
        for made in (self._root, self._home, self._tools):
            made.mkdir(parents=True)
        self._mounts: list[tuple[Path, str]] = []
        self._write()
        self.enter = folder / "enter"
        self.enter.write_text(self._script(), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that sshd sets for this host's commands."""
        path = f"{self._tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, **self.view.environment}

    @property
    def command(self) -> list[str]:
        """The prefix of ``sshd`` that makes it start inside."""
        spaces = ["--mount", "--propagation", "private", *(["--uts"] if self.view.hostname else [])]
        network = ["nsenter", f"--net=/run/netns/{self.view.network}"] if self.view.network else []
        return [*network, "unshare", *spaces, "sh", str(self.enter)]

    def _write(self) -> None:
        passwd = Path("/etc/passwd").read_text(encoding="utf-8")
        passwd += f"{USER}:*:{UID}:{GID}::{self._home}:{self.view.shell}\n"
        files: dict[str, str | bytes] = {"/etc/passwd": passwd}
        files.update(self.view.files)
        if self.view.hostname:
            files["/etc/hostname"] = self.view.hostname + "\n"
        wanted = [*files, *self.view.links, *self.view.folders, *self.view.devices]
        for top in sorted({self._top(path) for path in wanted if not path.startswith("~/")}):
            self._mirror(top, path_is_file=top in files)
        for pattern in self.view.without:
            self._mirror(os.path.dirname(pattern), path_is_file=False)
        for path, content in files.items():
            at = self._made(path)
            data = content.encode() if isinstance(content, str) else content
            at.write_bytes(data)
            at.chmod(0o755 if data.startswith((b"#!", b"\x7fELF")) else 0o644)
        for path, target in self.view.links.items():
            self._made(path).symlink_to(target)
        for path in self.view.folders:
            self._at(path).mkdir(parents=True, exist_ok=True)
        for path in self.view.devices:
            self._made(path).touch()
            self._mounts.append((Path("/dev/null"), path))
        for pattern in self.view.without:
            for name in os.listdir(self._at(os.path.dirname(pattern))):
                if fnmatch.fnmatch(name, os.path.basename(pattern)):
                    (self._at(os.path.dirname(pattern)) / name).unlink()
        for name, script in self.view.tools.items():
            tool = self._tools / name
            tool.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n", encoding="utf-8")
            tool.chmod(0o755)
        for made in (self._home, *self._home.rglob("*")):
            os.chown(made, UID, GID)

    def _at(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else self._root / path.lstrip("/")

    def _made(self, path: str) -> Path:
        at = self._at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_symlink():
            at.unlink()
        return at

    @staticmethod
    def _top(path: str) -> str:
        """Return the mount needed to show a path: the path itself, or its first missing folder."""
        if path.startswith("/sys/"):
            return "/sys"
        if os.path.lexists(path) and not os.path.isdir(path):
            return path
        while not os.path.isdir(path):
            path = os.path.dirname(path)
        return path

    def _mirror(self, path: str, *, path_is_file: bool) -> None:
        """Prepare a mount over ``path``; a folder contains links to what the machine has there."""
        at = self._at(path)
        if (at, path) in self._mounts:
            return
        self._mounts.append((at, path))
        if path_is_file:
            at.parent.mkdir(parents=True, exist_ok=True)
            return
        at.mkdir(parents=True, exist_ok=True)
        if path == "/sys":
            return
        real = self._folder / "real" / path.lstrip("/")
        real.mkdir(parents=True, exist_ok=True)
        self._mounts.insert(0, (Path(path), str(real)))
        for entry in os.scandir(path):
            (at / entry.name).symlink_to(real / entry.name)

    def _script(self) -> str:
        lines = [f"mount --rbind {source} {target}" for source, target in self._mounts]
        if self.view.hostname:
            lines.append(f"hostname {shlex.quote(self.view.hostname)}")
        if self.view.memlock_bytes is not None:
            lines.append(f"ulimit -l {self.view.memlock_bytes // 1024}")
        return "set -e\n" + "\n".join(lines) + '\nexec "$@"\n'

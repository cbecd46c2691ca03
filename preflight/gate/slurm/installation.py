"""Files of the hooks, in the folder that slurm.conf names.

They are written from package data; only files written by preflight are replaced or removed. Such a file ends in a line
with the checksum of all lines above it. A file without this line, or edited since, is left alone.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from preflight import deploy
from preflight._startup.lightclass import dataclass
from preflight.archive.directory import replacing
from preflight.errors import PreflightError
from preflight.gate.slurm.scontrol import untrusted
from preflight.gate.slurm.slurm_conf import ConfLine

#: Where slurmd looks for the scripts, unless another folder is given.
FOLDER = "/etc/slurm/preflight"

#: Name -> mode; ``slurm.conf`` holds the lines for this cluster.
FILES = {"prolog": 0o755, "healthcheck": 0o755, "epilog": 0o755, "epilog-slurmctld": 0o755, "job.sh": 0o755,
         "slurm.conf": 0o644}  # fmt: skip

#: Where EpilogSlurmctld records the times of jobs, unless another file is given.
HISTORY = "/var/lib/preflight-history/history.db"

#: Longest start of preflight, on a loaded machine.
_START_S = 60.0

_PROGRAM, _MOST_BYTES = "/opt/preflight/bin/python3 -I -m preflight", 1 << 20
_SEAL = "# Written by preflight slurm install, which leaves an edited file alone. sha256:"
_SEALED = re.compile(rf"(?s)(.*){re.escape(_SEAL)}([0-9a-f]{{64}})\n")
#: Paths that need no quotes in a shell.
_PATH = re.compile(r"/[A-Za-z0-9/._+-]{1,200}")


class InstallError(PreflightError):
    """Nothing was written or removed; the text names the file and the fix."""


@dataclass(frozen=True)
class HookTarget:
    """Paths in the scripts: folder, interpreter or single file, cluster file, history."""

    folder: str
    program: str
    cluster: str
    history: str = HISTORY

    def conf(self) -> str:
        """Return the lines of slurm.conf for this folder."""
        return deploy.recipe("slurm/slurm.conf").replace(FOLDER, self.folder)


@dataclass(frozen=True)
class HookFile:
    """A file to write or remove; ``state`` is new, same, ours, foreign or absent."""

    path: Path
    mode: int
    text: str
    state: str


def place(folder: Path, cluster: Path | None, python: Path | None, history: Path = Path(HISTORY)) -> HookTarget:
    """Return the paths; raises InstallError for an invalid or untrusted one."""
    if python is not None and not (python.is_file() and os.access(python, os.X_OK)):
        raise InstallError(f"{python}: not an executable file")
    program, files = _program(python)
    paths = (str(folder), str(cluster or folder / "cluster.toml"), str(history), *files)
    for path in paths:
        if not _PATH.fullmatch(path) or "/../" in path:
            raise InstallError(f"{path!r}: use an absolute path of letters, digits and . _ + - /")
    for path in files:
        try:
            why = untrusted(path)
        except OSError as error:
            raise InstallError(f"{path}: {error.strerror}") from None
        if why:
            raise InstallError(f"{why}: root would run it before each job")
    if why := _fails(program):
        raise InstallError(f"`{program} --version` fails: {why}; install preflight into that Python, or use --python")
    return HookTarget(paths[0], program, *paths[1:3])


def _fails(program: str) -> str:
    """Return why a command of plain words does not start preflight; empty if it does."""
    try:
        ran = subprocess.run([*program.split(), "--version"], cwd="/", env={}, stdin=subprocess.DEVNULL,
                             capture_output=True, timeout=_START_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    last = ran.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return "" if ran.returncode == 0 else "".join(last)[:200] or f"exit status {ran.returncode}"


def _program(python: Path | None) -> tuple[str, tuple[str, ...]]:
    """Return the command, and the files that root would run with it."""
    package = Path(deploy.__file__).parents[1]
    archive = package.parent
    if archive.is_file():  # the single-file build
        return f"{python or sys.executable} -I {archive}", (str(python or sys.executable), str(archive))
    return f"{python or sys.executable} -I -m preflight", (str(python or sys.executable), str(package))


def plan(where: HookTarget, lines: Sequence[ConfLine]) -> list[HookFile]:
    """Compare the files to be written with those in the folder; raises InstallError."""
    planned = []
    for name, mode in FILES.items():
        text = deploy.recipe(f"slurm/{name}")
        if name == "slurm.conf":
            text = "# The lines for slurm.conf of this cluster; slurmctld does not read this file.\n"
            text += "".join(f"{line.line}\n" for line in lines)
        text = text.replace(_PROGRAM, where.program).replace(f"{FOLDER}/cluster.toml", where.cluster)
        body = text.replace(FOLDER, where.folder).replace(HISTORY, where.history)
        path = Path(where.folder, name)
        planned.append(HookFile(path, mode, _sealed(body), _state(path, _sealed(body), mode)))
    return planned


def remaining(folder: Path) -> list[HookFile]:
    """Return the files with their state (ours, foreign, absent); raises InstallError."""
    return [HookFile(folder / name, mode, "", _state(folder / name, None, mode)) for name, mode in FILES.items()]


def write(where: HookTarget, files: Sequence[HookFile]) -> None:
    """Write the files that are new or changed, each atomically; raises InstallError."""
    _as_root()
    if foreign := [str(file.path) for file in files if file.state == "foreign"]:
        raise InstallError(f"{', '.join(foreign)}: not written by preflight, or edited since; move it away")
    folder = Path(where.folder)
    try:
        for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            missing.mkdir(0o755)
            missing.chmod(0o755)  # mkdir applies the umask
        if why := untrusted(str(folder)):
            raise InstallError(why)
        for file in files:
            if file.state != "same":
                with replacing(file.path, file.mode) as stream:
                    stream.write(file.text.encode())
    except OSError as error:
        raise InstallError(f"{error.filename or folder}: {error.strerror}") from None


def remove(files: Sequence[HookFile]) -> None:
    """Remove our files, and the folder if it is empty; raises InstallError."""
    _as_root()
    try:
        for file in files:
            if file.state == "ours":
                file.path.unlink()
        if not any(files[0].path.parent.iterdir()):
            files[0].path.parent.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InstallError(f"{error.filename}: {error.strerror}") from None


def _as_root() -> None:
    if os.geteuid() != 0:
        raise InstallError("--apply: run it as root, which will run these scripts")


def _sealed(text: str) -> str:
    return f"{text}{_SEAL}{sha256(text.encode()).hexdigest()}\n"


def _state(path: Path, text: str | None, mode: int) -> str:
    """Return the state of a path.

    ``text`` is the expected content, or None if the file is to be removed. Raises InstallError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "absent" if text is None else "new"
    except OSError as error:
        if path.is_symlink():
            return "foreign"
        raise InstallError(f"{path}: {error.strerror}") from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        return "foreign"
    with os.fdopen(fd, "rb") as stream:
        content = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    sealed = _SEALED.fullmatch(content)
    if sealed is None or sha256(sealed[1].encode()).hexdigest() != sealed[2]:
        return "foreign"
    same = content == text and stat.S_IMODE(info.st_mode) == mode and info.st_uid == os.geteuid()
    return "same" if same else "ours"

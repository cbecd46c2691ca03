"""podman for tests: private storage, a root with this machine's python3, no downloads, no leftovers.

Needs root, and the packages podman and runc. Containers run on a folder (``--rootfs``), not on an image in layers:
that needs no overlay file system, which a machine that is a container itself may not have. runc instead of crun:
crun refuses hosts that mix cgroups v1 and v2. Rlimits are dropped from runc's configuration: podman requests more open
files than a machine that is a container itself may give, and without CAP_SYS_RESOURCE no container would start.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

_TOOLS = ("podman", "runc", "conmon")

#: Content of a container besides Python; the planted tools are shell scripts.
_PROGRAMS = ("/bin/sh", "/usr/bin/find")

_PATH = "/usr/local/bin:/usr/bin:/bin"

#: Open files that podman itself would request.
_FILES = 1048576

_RUNTIME = """#!{python} -IS
import json, os, sys
words = sys.argv[1:]
if "create" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    config["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(config, file)
elif "exec" in words and "--process" in words:
    path = words[words.index("--process") + 1]
    with open(path) as file:
        process = json.load(file)
    process.pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(process, file)
os.execv("{runc}", ["runc", *words])
"""

_CONTAINERS = """[containers]
default_ulimits = ["nofile={files}:{files}"]
cgroupns = "host"
[engine]
runtime = "plain"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
plain = ["{folder}/runtime"]
"""

_STORAGE = """[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


def why_not() -> str:
    """Return why podman cannot be used here; empty if it can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "podman is used as root"


class Podman:
    """A podman with private storage, and the root of its containers."""

    def __init__(self) -> None:
        """Set up podman and make the root; ``close`` removes everything."""
        self.folder = Path(tempfile.mkdtemp(prefix="preflight-podman-"))
        self.folder.chmod(0o755)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = hard if 0 < hard < _FILES else _FILES
        made = {
            "containers.conf": _CONTAINERS.format(folder=self.folder, files=files),
            "storage.conf": _STORAGE.format(folder=self.folder),
            "runtime": _RUNTIME.format(python="/usr/bin/python3", runc=shutil.which("runc")),
        }
        for name, text in made.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / "runtime").chmod(0o755)
        self.environment = {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }
        try:
            self._fill(self.folder / "root")
        except BaseException:
            self.close()
            raise

    def command(self, *options: str) -> list[str]:
        """Return the command that runs python3 in a new container; Python's arguments may follow."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        run = ["podman", "run", "--rm", "--interactive", "--network=none", "--env", f"PATH={_PATH}", *options]
        return ["env", *variables, *run, "--rootfs", str(self.folder / "root"), "/usr/bin/python3"]

    def close(self) -> None:
        """Stop all containers and remove them, the root and the storage."""
        subprocess.run(["podman", "rm", "--all", "--force", "--time", "0"], env={**os.environ, **self.environment},
                       capture_output=True, check=False, timeout=120)  # fmt: skip
        shutil.rmtree(self.folder)

    def _fill(self, root: Path) -> None:
        """Copy the machine's own python3 with all its libraries."""
        python = Path("/usr/bin/python3").resolve()
        library = Path("/usr/lib") / python.name
        unwanted = shutil.ignore_patterns("__pycache__", "test", "idlelib", "tkinter", "ensurepip", "config-*")
        shutil.copytree(library, root / library.relative_to("/"), ignore=unwanted, ignore_dangling_symlinks=True)
        for program in (str(python), *_PROGRAMS, *map(str, (library / "lib-dynload").glob("*.so"))):
            for path in (program, *_linked(program)):
                _copy(path, root)
        for folder in ("dev", "proc", "sys", "tmp", "etc", "usr/local/bin"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/python3").symlink_to(python.name)
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\nrank:x:1000:1000::/tmp:/bin/sh\n")


def _linked(program: str) -> list[str]:
    output = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", output)


def _copy(path: str, root: Path) -> None:
    target = root / path.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

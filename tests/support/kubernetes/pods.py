"""Real pods for tests: the image of deploy/container, built here without a network, and `podman kube play`.

This is not a kubelet: it has no scheduler, retries, downward API, device plug-in or service account. Their
contributions to a container are mounted from made-up host paths. Needs what tests/support/kubernetes/podman.py needs,
and catatonit for the pod's own container.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.kubernetes import podman
from tests.support.paths import ROOT

IMAGE, BASE = "localhost/preflight:1", "localhost/base:1"

_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'

#: Soft and hard limit of locked memory that pods inherit here, in bytes: a container runtime's default.
_MEMLOCK = 65536

#: Packages omitted from the tests' image to save time: SSH, and frames on a terminal.
_APART = ("paramiko", "rich")

Kube = Mapping[str, Any]


def why_not() -> str:
    """Return why no pods can run here; empty if they can."""
    if reason := podman.why_not():
        return reason
    pause = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/lib/podman/catatonit")
    return "" if any(map(os.path.exists, pause)) else "not installed: catatonit"


class Pods(podman.Podman):
    """A podman with the image of deploy/container; ``close`` removes everything."""

    def __init__(self) -> None:
        """Build the image from this machine's python3 and this tree; raise RuntimeError with podman's message."""
        super().__init__()
        try:
            (self.folder / "storage.conf").write_text(_STORAGE.format(folder=self.folder), encoding="utf-8")
            packed = self._packed(self.folder / "root")
            self.podman("import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "-", BASE, given=packed)
            digest = self.podman("image", "inspect", "--format={{.Digest}}", BASE).strip()
            base = f"{BASE.partition(':')[0]}@{digest}"
            _app(self.folder / "build" / "app", self.folder)
            self.built = self.podman(
                "build", "--network=none", "--isolation=oci", f"--build-arg=BASE={base}", "--build-arg=TOOLS=",
                f"--file={ROOT}/deploy/container/Containerfile", f"--tag={IMAGE}", str(self.folder / "build"),
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def podman(self, *words: str, given: bytes | None = None, limit_s: float = 120) -> str:
        """Run podman and return its output."""
        ran = self.run(*words, given=given, limit_s=limit_s)
        if ran.returncode:
            raise RuntimeError(f"podman {' '.join(words)}: {ran.stderr.decode(errors='replace')[-2000:]}")
        return ran.stdout.decode(errors="replace")

    def run(
        self, *words: str, given: bytes | None = None, limit_s: float = 120
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        """Run podman with a low limit of locked memory to inherit."""
        return subprocess.run(
            ["podman", *words], env={**os.environ, **self.environment}, input=given or b"", capture_output=True,
            check=False, timeout=limit_s, preexec_fn=_little_memlock,
        )  # fmt: skip

    def play(self, pod: Kube, network: str = "none") -> tuple[int, str]:
        """Start a pod and wait for its init containers; return podman's exit status and output."""
        file = self.folder / f"{pod['metadata']['name']}.json"
        file.write_text(json.dumps(pod))
        ran = self.run("kube", "play", f"--network={network}", str(file))
        return ran.returncode, (ran.stdout + ran.stderr).decode(errors="replace")

    def down(self, name: str) -> None:
        """Remove a pod."""
        self.run("kube", "down", str(self.folder / f"{name}.json"))

    def state(self, container: str) -> str:
        """Return a container's state, ``created``, ``running``, ``exited``; empty if there is none."""
        ran = self.run("inspect", "--format={{.State.Status}}", container)
        return ran.stdout.decode().strip() if ran.returncode == 0 else ""

    def ended(self, container: str, limit_s: float = 90) -> bool:
        """Wait until a container has run to its end."""
        until = time.monotonic() + limit_s
        while self.state(container) != "exited":
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Stop everything and remove pods, containers, images and storage."""
        self.run("pod", "rm", "--all", "--force", "--time", "0")
        self.run("rm", "--all", "--force", "--time", "0")
        self.run("rmi", "--all", "--force")
        super().close()

    def _packed(self, root: Path) -> bytes:
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            archive.add(root, arcname=".")
        return held.getvalue()


def _little_memlock() -> None:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (_MEMLOCK, _MEMLOCK))


def _app(target: Path, scratch: Path) -> None:
    """Create the result of ``pip install --target``: our wheel and its dependencies, from this environment."""
    source, wheels = scratch / "source", scratch / "wheels"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("preflight", "checks", "reports", "deploy"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)],
                   check=True, capture_output=True, timeout=120)  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as members:
        members.extractall(target)
        names = next(name for name in members.namelist() if name.endswith("/METADATA"))
        needed = re.findall(r"^Requires-Dist: ([\w.-]+)(?!.*extra ==)", members.read(names).decode(), re.M)
    done = set(_APART)
    while needed:
        name = needed.pop().lower()
        if name in done:
            continue
        done.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another Python or system
            continue
        needed += [re.split(r"[^\w.-]", line)[0] for line in distribution.requires or () if "extra ==" not in line]
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                place = target / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place)

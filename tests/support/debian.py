"""Small packages for tests of installation: a wheel without dependencies, and a Debian package of a folder."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from preflight.version import VERSION

INFO = f"gpu_preflight-{VERSION}.dist-info"
SHARE = f"gpu_preflight-{VERSION}.data/data/share"
FILES = {
    "preflight/__init__.py": "",
    "preflight/version.py": f"VERSION = '{VERSION}'\n",
    "preflight/cli/__init__.py": "",
    "preflight/cli/main.py": "import sys\n\n\ndef main() -> None:\n    print(sys.executable, sys.flags.isolated)\n",
    f"{SHARE}/man/man1/preflight.1": ".TH preflight 1\n",
    f"{SHARE}/zsh/site-functions/_preflight": "#compdef preflight\n",
    f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: gpu-preflight\nVersion: {VERSION}\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/entry_points.txt": "[console_scripts]\npreflight = preflight.cli.main:main\n",
    f"{INFO}/licenses/LICENSE": "Apache\n",
}


def small_wheel(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """Write a wheel of preflight's name and version with these files; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu_preflight-{VERSION}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name), text)  # the same text, the same file
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text)}\n"
        wheel.writestr(zipfile.ZipInfo(f"{INFO}/RECORD"), f"{record}{INFO}/RECORD,,\n")
    return path


def package(tree: Path, output: Path) -> Path:
    """Write a Debian package that installs a folder's content in ``/``; return its path."""
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: gpu-preflight\nVersion: {VERSION}\nArchitecture: all\nMaintainer: tests <root@localhost>\n"
        "Depends: python3\nDescription: a package of the tests\n"
    )
    sums = (f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
            for path in sorted(tree.rglob("*")) if path.is_file() and "DEBIAN" not in path.parts)  # fmt: skip
    (tree / "DEBIAN/md5sums").write_text("".join(sums))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(output)], check=True,
                   capture_output=True)  # fmt: skip
    return output

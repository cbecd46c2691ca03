"""The single-file build: ``python -m preflight.cli.zipapp -o preflight.pyz``."""

from __future__ import annotations

import argparse
import io
import marshal
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.archive import directory
from preflight.cli import startup_tables
from preflight.errors import PreflightError
from preflight.gate import policy
from preflight.version import VERSION

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: Distribution -> path of the included files: only pure Python, no compiled code.
CARRIED = {
    "click": "click/", "ClusterShell": "ClusterShell/", "Jinja2": "jinja2/", "MarkupSafe": "markupsafe/",
    "nvidia-ml-py": "pynvml.py", "PyYAML": "yaml/", "rich": "rich/", "tomli": "tomli/",
}  # fmt: skip

#: The interpreter of the first line, an absolute path; ``-I`` makes it ignore PYTHONPATH and the user's packages.
PYTHON = "/usr/bin/python3"

_OURS = ("preflight", "preflight.checks", "preflight.deploy", "preflight.reports")
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: Bit 0: hash-based; bit 1 not set: the source is not checked for changes (PEP 552).
_UNCHECKED_HASH = 0b01

_MAIN = """\
import os
import sys

if sys.version_info < {floor}:
    hook = sys.argv[2:3] if sys.argv[1:2] == ["gate"] else []
    passes = bool(hook) and hook[0] in {passing}
    sys.stderr.write(
        "preflight: CONFIGURATION ERROR: this file needs Python {words} or newer, and %s is %s%s\\n"
        % (sys.executable or "this one", sys.version.split()[0], ": the job starts, NOT JUDGED" if passes else "")
    )
    sys.exit(0 if passes else 2)
sys.path[0] = os.path.abspath(sys.path[0])

from preflight.cli.main import main

if __name__ == "__main__":
    main()
"""


class MissingPackage(PreflightError):
    """A package that the file must include is not installed."""


@dataclass(frozen=True)
class Contents:
    """The files of the archive; ``floor`` is the oldest supported Python."""

    files: Mapping[str, bytes]
    floor: tuple[int, int]


def contents() -> Contents:
    """Collect the archive's content from the installation; raises MissingPackage."""
    files = dict(_own()) | {f"preflight/{name}": text().encode() for name, text in startup_tables.TABLES.items()}
    floor = (3, 10)
    for name, prefix in CARRIED.items():
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name != "tomli":  # part of Python since 3.11
                raise MissingPackage(f"{name} is not installed, but the file must include it") from None
            floor = (3, 11)
            continue
        files.update(_carried(found, prefix))
    passing = tuple(hook for hook in policy.HOOKS if policy.rule(hook, "error").exit == 0)
    main = _MAIN.format(floor=floor, passing=repr(passing), words=".".join(map(str, floor)))
    return Contents({**files, "__main__.py": main.encode()}, floor)


def build(found: Contents, python: str = PYTHON) -> bytes:
    """Return the file: an interpreter line and a zip archive.

    Each source has byte code for the Python that builds the file; other versions ignore it.
    """
    files = dict(found.files)
    for name, source in found.files.items():
        if name.endswith(".py"):
            files[name + "c"] = _compiled(name, source)
    packed = io.BytesIO()
    packed.write(f"#!{python} -I\n".encode())
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as members:
        for name in sorted(files):
            member = zipfile.ZipInfo(name, _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.create_system = 3
            members.writestr(member, files[name])
    return packed.getvalue()


def _own() -> Iterator[tuple[str, bytes]]:
    for package in _OURS:
        yield from _tree(resources.files(package), package.replace(".", "/"))
    about = f"Metadata-Version: 2.1\nName: gpu-preflight\nVersion: {VERSION}\n"
    yield f"gpu_preflight-{VERSION}.dist-info/METADATA", about.encode()


def _tree(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_dir():
            yield from _tree(entry, f"{name}/{entry.name}")
        else:
            yield f"{name}/{entry.name}", entry.read_bytes()


def _carried(found: metadata.Distribution, prefix: str) -> Iterator[tuple[str, bytes]]:
    for path in found.files or ():
        name = path.as_posix()
        about = ".dist-info/" in name and (path.name == "METADATA" or "/licenses/" in name)
        if about or (name.startswith(prefix) and name.endswith(".py")):
            yield name, path.read_binary()


def _compiled(name: str, source: bytes) -> bytes:
    """Return byte code that Python loads without comparing it with the source."""
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), 2)
    return MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + source_hash(source) + code


def main() -> int:
    """Run the command line: write the single file; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preflight.cli.zipapp", description="Write preflight as a single file that needs only Python."
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="output file, such as preflight.pyz"
    )
    parser.add_argument("-p", "--python", default=PYTHON, help="interpreter of its first line (default: %(default)s)")
    arguments = parser.parse_args()
    if not arguments.python.startswith("/") or not arguments.python.isprintable() or len(arguments.python) > 100:
        parser.error("--python: use an absolute path; PATH cannot be trusted before every job")
    try:
        found = contents()
        data = build(found, arguments.python)
        with directory.replacing(arguments.output.absolute(), 0o755) as out:
            out.write(data)
    except (MissingPackage, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    floor = ".".join(map(str, found.floor))
    print(f"{arguments.output}: preflight {VERSION}, {len(data)} bytes, for Python {floor} or newer; without paramiko")
    return 0


if __name__ == "__main__":
    sys.exit(main())

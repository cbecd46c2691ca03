"""Payload for a node: the collector's source, a plan, and a loader.

``python3 -I -S -c BOOT`` reads all of it from standard input and imports the collector from memory; nothing is written
on the node. The payload is independent of the transport. On a machine with preflight installed, ``python3 -I -S -c
BOOT_INSTALLED FOLDER`` needs only the plan.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Source that reads the collector and a plan and imports the collector, for Python 3.6 and later.
LOAD = """\
import json, signal, sys, zlib
from importlib.machinery import ModuleSpec
signal.alarm(60)
line = sys.stdin.buffer.readline().split()
if len(line) != 3 or line[0] != b"preflight":
    sys.exit("the collector did not arrive")
sizes = [int(size) for size in line[1:]]
archive, plan = [sys.stdin.buffer.read(size) for size in sizes]
if [len(archive), len(plan)] != sizes:
    sys.exit("the collector arrived incomplete")
sources = json.loads(zlib.decompress(archive).decode("ascii"))

class Shipped:
    @staticmethod
    def path(name):
        stem = name.replace(".", "/")
        return next((p for p in (stem + "/__init__.py", stem + ".py") if p in sources), None)

    def find_spec(self, name, path=None, target=None):
        origin = self.path(name)
        if origin and (path is not None or name == "collector"):
            return ModuleSpec(name, self, origin=origin, is_package=origin.endswith("__init__.py"))

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        origin = module.__spec__.origin
        exec(compile(sources[origin], origin, "exec"), module.__dict__)

    def get_source(self, name):
        return sources.get(self.path(name))

sys.meta_path.insert(0, Shipped())
from collector.__main__ import main
"""

#: Source that starts the collector; passed to the interpreter as one argument.
BOOT = LOAD + "main(plan)\n"

#: The same for a collector that is installed in a folder: its byte code is used, and only the plan is sent, as one
#: line.
BOOT_INSTALLED = """\
import os, signal, sys
signal.alarm(60)
os.closerange(3, 256)
sys.path.append(sys.argv[1])
from collector.__main__ import main
sys.path.pop()
plan = sys.stdin.buffer.readline()
if not plan.endswith(b"\\n"):
    sys.exit("the plan did not arrive")
main(plan)
"""

#: Interpreter options: ignore environment variables, user and site packages.
OPTIONS = ("-I", "-S", "-c")

_PACKAGE = "preflight.collector"


def archive(extra: Mapping[str, bytes] | None = None) -> bytes:
    """Return the collector as compressed JSON of its sources by name.

    The result is deterministic. One stream is a quarter smaller than a zip of the same files, and saves a node 8 ms of
    CPU for the import of zipfile. ``extra`` adds modules for nodes that lack them (``{"pynvml.py": source}``), for the
    library child.
    """
    import zlib

    files = {f"collector/{name}": source for name, source in _sources().items()}
    files.update(extra or {})
    texts = {name: source.decode("utf-8") for name, source in files.items()}
    return zlib.compress(json.dumps(texts, sort_keys=True).encode("ascii"), 9)


@functools.cache
def _sources() -> Mapping[str, bytes]:
    from importlib import resources

    folder = resources.files(_PACKAGE)
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name.endswith(".py")}


def frames_for(plan: Mapping[str, Any], extra: Mapping[str, bytes] | None = None) -> bytes:
    """Return the standard input of BOOT, which must then stay open.

    When it is closed, the collector exits and ends its children.
    """
    return frame_of(archive(extra), plan)


def frame_of(packed: bytes, plan: Mapping[str, Any]) -> bytes:
    """Return BOOT's standard input for an archive packed once for all nodes of a run."""
    document = plan_line(plan)
    return b"preflight %d %d\n" % (len(packed), len(document)) + packed + document


def plan_line(plan: Mapping[str, Any]) -> bytes:
    """Return the standard input of BOOT_INSTALLED, which must then stay open."""
    return json.dumps(plan, sort_keys=True).encode("ascii") + b"\n"

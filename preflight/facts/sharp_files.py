"""Files of NCCL's SHARP plug-in, its library, and the loader's path.

Sources: HPC-X and its nccl_rdma_sharp_plugin folder, /opt/mellanox/sharp of DOCA and MLNX_OFED; ld.so(8).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.facts.versions import Library, parse_libraries

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts

#: Record key of the search for plug-in and library in the usual locations of packages and HPC-X, as in
#: ``preflight.probes.node``.
FILES = (
    "cmd:find -H /opt /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/local/lib -maxdepth 4"
    " ( -name libsharp_coll.so* -o -name libnccl-net*.so* ) -printf '%s %p %l\\n'"
)

#: Folders that the loader searches by default.
_USUAL = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")


@dataclass(frozen=True)
class SharpPlugin:
    """The files of NCCL's SHARP plug-in."""

    plugins: tuple[Library, ...]  # libnccl-net*.so in one of SHARP's folders
    others: tuple[Library, ...]  # libnccl-net*.so elsewhere: of unknown origin
    libraries: tuple[Library, ...]  # libsharp_coll.so.*


def plugin(node: NodeFacts) -> SharpPlugin:
    """Return the files of the plug-in; raises EvidenceError."""
    text = node.evidence.text(FILES, allow_rc=(0, 1))  # 1: a directory is missing
    try:
        found = parse_libraries(text)
    except ValueError as error:
        raise EvidenceError(FILES, f"cannot be parsed: {error}") from None
    nets = [one for one in found if one.name.startswith("libnccl-net")]
    return SharpPlugin(
        tuple(one for one in nets if "sharp" in posixpath.dirname(one.path) or "sharp" in one.name),
        tuple(one for one in nets if "sharp" not in one.path),
        tuple(one for one in found if one.name.startswith("libsharp_coll.so")),
    )


def on_the_path(libraries: Iterable[Library], search: str) -> Library | None:
    """Return the first library on LD_LIBRARY_PATH or in the usual folders, or None."""
    folders = [posixpath.normpath(folder) for folder in search.split(":") if folder.startswith("/")] + [*_USUAL]
    return next((one for folder in folders for one in libraries if posixpath.dirname(one.path) == folder), None)

"""Files that NCCL's variables name, with their accessibility.

``env:files`` follows NCCL_CONF_FILE, NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_FILE and, where it names a path,
NCCL_NET_PLUGIN, from the environment or a configuration file, in NCCL's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError

FILES = "env:files"


@dataclass(frozen=True)
class Named:
    """One file that a variable names."""

    variable: str
    path: str
    status: str  # "ok": it was read; "missing", "denied", … as of a record
    type: str = ""  # file, dir, …
    access: str = ""  # this user's access: "r", "rw", …
    folder_access: str = ""  # the same for its directory; empty: missing, or no access
    text: str | None = None  # content of a file that NCCL reads as text
    why: str = ""

    @property
    def missing(self) -> bool:
        """Whether the file is missing."""
        return self.status == "missing"


def named(evidence: Evidence) -> Mapping[str, Named]:
    """Return the named files by variable.

    Raises EvidenceError if they were not collected.
    """
    value = evidence.value(FILES)
    if not isinstance(value, Mapping):
        raise EvidenceError(FILES, f"contains a {type(value).__name__}, not names and files")
    return {str(name): _named(str(name), entry) for name, entry in value.items()}


def _named(name: str, entry: object) -> Named:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
        raise EvidenceError(FILES, f"the entry of {name[:60]!r} is not a file")
    words = {field: entry.get(field, "") for field in ("status", "type", "access", "folder_access", "why")}
    if wrong := [field for field, word in words.items() if not isinstance(word, str)]:
        raise EvidenceError(FILES, f"the {wrong[0]} of {name[:60]!r} is not text")
    text = entry.get("out")
    return Named(name, entry["path"], text=text if isinstance(text, str) else None, **words)


def topology_gpus(text: str) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs in a topology file; raises ValueError.

    The addresses are in the kernel's form. A ``pci`` element of class 0x0302 (or 0x0300) is a GPU. The file is
    searched, not parsed as XML, so a truncated or hostile one is harmless.
    """
    if "<system" not in text:
        raise ValueError("has no <system>, so it is not an NCCL topology file")
    found = []
    for element in re.findall(r"<pci\b([^<>]{0,2000})>", text):
        fields = dict(re.findall(r'\b(busid|class)="([^"]{0,64})"', element))
        if fields.get("class", "").startswith(("0x0302", "0x0300")) and (bus := fields.get("busid")):
            found.append(bus.lower() if bus.count(":") == 2 else f"0000:{bus.lower()}")
    return tuple(dict.fromkeys(found))

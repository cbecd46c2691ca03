"""An import of paramiko without ``invoke`` and ``importlib.metadata``.

They take as long to import as the rest of paramiko.

paramiko uses ``invoke`` for ``Match exec`` in its configuration reader and works without it; preflight's reader rejects
that line. paramiko uses ``importlib.metadata`` to read its own version, which is also in the name of a directory.
Import this module before paramiko.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_INVOKE, _METADATA = "invoke", "importlib.metadata"


class _Version(ModuleType):
    """Replacement for ``importlib.metadata``, which is imported only if needed."""

    def version(self, name: str) -> str:
        """Return a distribution's version; paramiko's is read from a directory name."""
        spec = find_spec(name) if name == "paramiko" else None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found = [info.name for info in Path(folder).parent.glob("paramiko-*.dist-info")]
            if len(found) == 1:
                return found[0].removeprefix("paramiko-").removesuffix(".dist-info")
        return str(self.__getattr__("version")(name))

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(_METADATA) is self:
            del sys.modules[_METADATA]
        from importlib import metadata

        return getattr(metadata, name)


if "paramiko" not in sys.modules:
    stand_ins = {_INVOKE: None, _METADATA: _Version(_METADATA)}  # None: as if it were not installed
    stood_in = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stood_in)  # type: ignore[arg-type]
    try:
        import paramiko as paramiko
    finally:
        for name, module in stood_in.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]

"""The table of all checks (``checks/_registry/generated.py``), which ``python -m tests.support.declared`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from preflight.checks import MODULES
from preflight.checks._registry import lazy
from tests.support import paths

CHECKS = paths.ROOT / "checks"
TABLE = CHECKS / "_registry" / "generated.py"

_HEAD = '''\
"""What all checks are, so that the modules of those that do not run need not be imported (``lazy.py``).

Written by ``python -m tests.support.declared`` from what stands above each check: change it there.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from typing import Any

#: Module -> bytes of its source, checksum of its declarations, and its checks as ``lazy.FIELDS`` has them.
TABLE: dict[str, tuple[int, int, tuple[tuple[Any, ...], ...]]] = {
'''


def text() -> str:
    """Return the table as it has to be."""
    return "".join([_HEAD, *(line for name in MODULES for line in _module(name)), "}\n"])


def _module(name: str) -> Iterator[str]:
    source = (CHECKS / f"{name.replace('.', '/')}.py").read_bytes()
    yield f"    {_literal(name)}: ({len(source)}, {lazy.fingerprint(source)}, (\n"
    for known_as, check in lazy.written(import_module(f"{lazy.PACKAGE}.{name}")):
        yield f"        ({', '.join(map(_literal, lazy.row(known_as, check)))}),\n"
    yield "    )),\n"


def _literal(value: Any) -> str:
    """Write a value in Python's words."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
    print(f"{TABLE.name}: {len(MODULES)} modules")

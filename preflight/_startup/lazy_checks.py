"""The generated table of checks, and functions that are imported when called.

Most checks do not apply to most nodes, and a gate runs before every job. The decorator remains the only declaration of
a check: a module that no longer matches the table is imported immediately. The build writes the table
(``preflight.cli.startup_tables``); a clone that was not installed has none.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    #: A check as a row of literals; the last literal is the name of its function.
    Row = tuple[Any, ...]


#: Fields of a row of the table; the last is the name of the check in its module.
FIELDS = ("id", "title", "scope", "source", "fix", "answers", "gating", "sweep", "window", "pair", "reads",
          "needs", "history", "unless", "action", "impact", "owner", "explains", "fault", "separate",
          "switches", "name")  # fmt: skip


def table() -> Mapping[str, tuple[int, int, tuple[Row, ...]]]:
    """Return the table: module -> source size, checksum of declarations, rows.

    Empty if the package was not built, or if an older version wrote other fields.
    """
    global _table
    if _table is None:
        try:
            from preflight._startup import generated_checks

            _table = generated_checks.TABLE if generated_checks.FIELDS == FIELDS else {}
        except (ImportError, AttributeError):
            _table = {}
        if not _table:
            import logging

            logging.getLogger(__name__).info(
                "no table of checks: all their modules are imported, which takes longer; `pip install -e .` writes it"
            )
    return _table


_table: Mapping[str, tuple[int, int, tuple[Row, ...]]] | None = None


def is_current(module: str, folder: str) -> bool:
    """Return whether the table matches a module of ``folder``, without importing it.

    Every run compares every module: by the size of the source, and if that differs, by the text of the declarations. So
    a change in a check's body needs no new table. A source that cannot be read, as in the single-file build, was
    compared at build time.
    """
    size, declarations, _ = table().get(module, (-1, 0, ()))
    path = f"{folder}/{module.replace('.', '/')}.py"
    try:
        if os.stat(path).st_size == size:
            return True
        with open(path, "rb") as stream:
            return fingerprint(stream.read()) == declarations
    except OSError:
        return module in table()


def fingerprint(source: bytes) -> int:
    """Return a checksum of a module's checks: ``@check(`` to the function's name."""
    import re
    from zlib import crc32

    return crc32(b"\n".join(re.findall(rb"^@check\(.*?^def \w+", source, re.DOTALL | re.MULTILINE)))


class LazyFunction:
    """A function that ``load`` imports at the first call; ``doc`` has its docstring."""

    def __init__(
        self, module: str, name: str, load: Callable[[], Callable[..., Any]], doc: Callable[[], str | None]
    ) -> None:
        self.__module__ = module
        self.__name__: str = name
        self._load, self._doc = load, doc
        self._function: Callable[..., Any] | None = None

    def __call__(self, facts: Any, site: Any, /) -> Any:
        """Call the function; raises the exceptions of ``load``."""
        if self._function is None:
            self._function = self._load()
        return self._function(facts, site)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._doc()

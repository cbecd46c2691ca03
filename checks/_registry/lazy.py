"""Checks whose modules are imported when they are to run; until then ``declared.py`` says what they are.

Most nodes lack most of what there is to check, and a gate runs before every job. The decorator remains the only
place where a check is written: a module whose declarations are no longer those of the table is imported at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from preflight.checks import applicability
from preflight.errors import PreflightError
from preflight.model import Check, Scope, docstring

if TYPE_CHECKING:
    from preflight.model import CheckFunction, Finding

PACKAGE = "preflight.checks"

#: The fields of a row of the table; the last is the name of the check in its module.
FIELDS = ("id", "title", "scope", "source", "fix", "answers", "gating", "sweep", "window", "pair", "reads", "needs",
          "history", "unless", "action", "name")  # fmt: skip


#: How to bring the table of checks up to date with the modules.
REGENERATE = "run `python -m tests.support.declared`"


class StaleRegistry(PreflightError):
    """A module declares a check otherwise than the table says."""


@cache
def checks_of(module: str) -> tuple[Check, ...]:
    """Return the checks of one of our modules, in the order in which they are written."""
    if not is_current(module):
        return tuple(check for _, check in written(import_module(f"{PACKAGE}.{module}")))
    return from_table(module)


def from_table(module: str) -> tuple[Check, ...]:
    """Return the checks that the table has of a module."""
    from preflight.checks._registry.generated import TABLE

    return tuple(_check(module, declared) for declared in TABLE[module][2])


def is_current(module: str) -> bool:
    """Tell whether the table has what a module declares, without importing it.

    Every run asks it of every module: the size of the source tells, and where that is another one, the text of the
    declarations, so that a change of what a check does needs no new table. A source that is nowhere, as in preflight
    as one file, was compared when that was made.
    """
    from preflight.checks._registry.generated import TABLE

    size, declarations, _ = TABLE.get(module, (-1, 0, ()))
    path = f"{os.path.dirname(os.path.dirname(__file__))}/{module.replace('.', '/')}.py"
    try:
        if os.stat(path).st_size == size:
            return True
        with open(path, "rb") as stream:
            return fingerprint(stream.read()) == declarations
    except OSError:
        return module in TABLE


def fingerprint(source: bytes) -> int:
    """Return a checksum of the declarations in a module's source: from each ``@check(`` to its function's name."""
    import re
    from zlib import crc32

    return crc32(b"\n".join(re.findall(rb"^@check\(.*?^def \w+", source, re.DOTALL | re.MULTILINE)))


def row(name: str, check: Check) -> tuple[Any, ...]:
    """Return the row of a check that has this name in its module."""
    values = {field: getattr(check, field) for field in FIELDS[:-1]}
    values |= {"scope": str(check.scope), "unless": tuple(absent.__name__ for absent in check.unless)}
    return (*values.values(), name)


def written(module: object) -> Iterator[tuple[str, Check]]:
    """Yield a module's checks by name, in the order in which they are written."""
    return ((name, value) for name, value in vars(module).items() if isinstance(value, Check))


def _check(module: str, declared: tuple[Any, ...]) -> Check:
    id, title, scope, source, fix, answers, gating, sweep, window, pair, reads, needs, history, unless, action, _ = (
        declared
    )
    run: CheckFunction = LazyCheck(module, declared)
    return Check(id, title, Scope(scope), source, fix, answers, gating, run, sweep, window, pair, reads, needs, history,
                 tuple(getattr(applicability, name) for name in unless), action)  # fmt: skip


class LazyCheck:
    """The function of a check; its module is imported at the first call, or when its docstring is read."""

    def __init__(self, module: str, declared: tuple[Any, ...]) -> None:
        self.__module__ = f"{PACKAGE}.{module}"
        self.__name__: str = declared[-1]
        self._declared = declared
        self._function: CheckFunction | None = None

    def __call__(self, facts: Any, site: Any, /) -> Iterator[Finding]:
        """Yield findings; raise StaleRegistry where the module has another check of this name, or none."""
        if self._function is None:
            found = self._written()
            if found is None or row(self.__name__, found) != self._declared:
                raise StaleRegistry(
                    f"{self.__module__} declares {self.__name__} otherwise than the table: {REGENERATE}"
                )
            self._function = found.run
        return self._function(facts, site)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        found = self._written()
        return docstring(found.run) if found else None

    def _written(self) -> Check | None:
        found = getattr(import_module(self.__module__), self.__name__, None)
        return found if isinstance(found, Check) else None

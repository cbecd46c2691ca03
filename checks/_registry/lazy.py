"""Checks of the generated table; each module is imported when it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from preflight._startup import lazy_checks
from preflight.errors import PreflightError
from preflight.model import Check, Scope, docstring

if TYPE_CHECKING:
    from preflight._startup.lazy_checks import Row
    from preflight.model import Applicability, CheckFunction

PACKAGE = "preflight.checks"

#: The command that regenerates the table of checks.
REGENERATE = "run `python -I -m preflight.cli.startup_tables`"

_FOLDER = os.path.dirname(os.path.dirname(__file__))


class StaleRegistry(PreflightError):
    """A module declares a check that differs from its row in the table."""


@cache
def checks_of(module: str) -> tuple[Check, ...]:
    """Return the checks of one of preflight's modules, in source order."""
    if not is_current(module):
        return tuple(check for _, check in written(import_module(f"{PACKAGE}.{module}")))
    return from_table(module)


def from_table(module: str) -> tuple[Check, ...]:
    """Return a module's checks from the table."""
    return tuple(_check(module, declared) for declared in lazy_checks.table()[module][2])


def is_current(module: str) -> bool:
    """Return whether the table matches the declarations of a module."""
    return lazy_checks.is_current(module, _FOLDER)


def row(name: str, check: Check) -> Row:
    """Return the table row of a check, given its name in the module."""
    values = {field: getattr(check, field) for field in lazy_checks.FIELDS[:-1]}
    values |= {"scope": str(check.scope), "unless": tuple(map(_path, check.unless))}
    return (*values.values(), name)


def written(module: object) -> Iterator[tuple[str, Check]]:
    """Yield the checks that a module defines, with their names, in source order."""
    return ((name, value) for name, value in vars(module).items() if isinstance(value, Check))


def _check(module: str, declared: Row) -> Check:
    (id, title, scope, source, fix, answers, gating, sweep, window, pair, reads, needs, history, unless, action, impact,
     owner, explains, fault, separate, switches, name) = declared  # fmt: skip
    path = f"{PACKAGE}.{module}"

    def find() -> Check | None:
        found = getattr(import_module(path), name, None)
        return found if isinstance(found, Check) else None

    def load() -> CheckFunction:
        """Import the function; raise StaleRegistry if the table names another check."""
        found = find()
        if found is None or row(name, found) != declared:
            raise StaleRegistry(f"{path} declares {name} differently from the table: {REGENERATE}")
        return found.run

    def doc() -> str | None:
        found = find()
        return docstring(found.run) if found else None

    run = lazy_checks.LazyFunction(path, name, load, doc)
    return Check(id, title, Scope(scope), source, fix, answers, gating, run, sweep, window, pair, reads, needs, history,
                 tuple(map(_applicability, unless)), action, impact, owner, explains, fault, separate,
                 switches)  # fmt: skip


def _path(function: Applicability) -> str:
    """Return the import path of an ``unless`` function below ``checks``."""
    return f"{function.__module__.removeprefix(PACKAGE + '.')}.{function.__name__}"


@cache
def _applicability(path: str) -> Applicability:
    """Return an ``unless`` function that is imported when called."""
    module, _, name = path.rpartition(".")
    module = f"{PACKAGE}.{module}"

    def load() -> Applicability:
        found: Applicability | None = getattr(import_module(module), name, None)
        if found is None:
            raise StaleRegistry(f"{module} has no {name}, which the table names: {REGENERATE}")
        return found

    return lazy_checks.LazyFunction(module, name, load, lambda: docstring(load()))

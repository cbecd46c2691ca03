"""Number of assertions on a text, counted in the source of the tests, for ``tests/support/remade.py``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any


def counts(entry: dict[str, Any]) -> tuple[int, int, int]:
    """Return the numbers of kinds, of failing checks (plus one) and of facts that an index entry asserts."""
    return len(entry.get("kinds", ())), len(entry["bad"]) + 1 if "bad" in entry else 0, len(entry.get("facts", ()))


def statements(sources: Iterable[str]) -> list[ast.stmt]:
    """Return the statements of test modules."""
    return [statement for source in sources for statement in ast.parse(source).body]


def in_tests(modules: list[ast.stmt], file: str) -> tuple[int, int]:
    """Return the numbers of values and of assertions on a text in the statements of test modules.

    Values are the constants under the text's name in a table; assertions are those of functions that name the text.
    """
    names = {PurePosixPath(file).name, PurePosixPath(file).stem}
    values = assertions = 0
    for node in modules:
        if isinstance(node, ast.FunctionDef):
            assertions += _assertions(node) if names & _constants(node) else 0
        else:
            values += sum(_leaves(value) for key, value in _entries(node) if key in names)
    return values, assertions


def _constants(node: ast.AST) -> set[object]:
    return {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)}


def _assertions(node: ast.AST) -> int:
    """Return the number of assertions in a function; each ``with``, as for an expected exception, counts as one."""
    return sum(isinstance(inner, (ast.Assert, ast.With)) for inner in ast.walk(node))


def _entries(node: ast.AST) -> list[tuple[object, ast.expr]]:
    """Return keys and values of the tables in a statement."""
    return [(key.value, value) for table in ast.walk(node) if isinstance(table, ast.Dict)
            for key, value in zip(table.keys, table.values, strict=True) if isinstance(key, ast.Constant)]  # fmt: skip


def _leaves(value: ast.expr) -> int:
    """Return the number of values in an expected value; an empty list counts as one."""
    return sum(
        isinstance(each, ast.Constant) or (isinstance(each, (ast.List, ast.Tuple)) and not each.elts)
        for each in ast.walk(value)
    )

"""One way to declare where a check does not apply: the functions of ``unless``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module

from preflight.checks import MODULES, in_module
from preflight.model import Applicability, Check, CheckFunction
from tests.support.paths import ROOT

CHECKS = [check for name in MODULES for check in in_module(import_module(f"preflight.checks.{name}"))]


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function of the checks with the path of its module."""
    for path in sorted((ROOT / "checks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield path.relative_to(ROOT).as_posix(), node


def is_check(function: ast.FunctionDef) -> bool:
    """Return whether a function is decorated as a check."""
    return any(isinstance(made, ast.Call) and ast.unparse(made.func) == "check" for made in function.decorator_list)


def is_generator(function: ast.FunctionDef) -> bool:
    """Return whether a function yields."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def home(function: Applicability | CheckFunction) -> str:
    """Return the path of a function's module."""
    return f"{function.__module__.removeprefix('preflight.').replace('.', '/')}.py"


def test_declared_by_functions_that_return_a_finding_or_none() -> None:
    for check in CHECKS:
        for function in check.unless:
            signature = inspect.signature(function)
            assert signature.return_annotation == "Finding | None", (check.id, function.__name__)
            assert len(signature.parameters) == 2, (check.id, function.__name__)
            assert inspect.getdoc(function), (check.id, function.__name__)


def test_shared_or_of_the_same_folder() -> None:
    """A function of ``unless`` is next to its check, or in the module that needs no import of the check."""

    def near(check: Check, function: Applicability) -> bool:
        shared = ("checks/applicability.py", "checks/logs.py")
        return home(function) in shared or home(function).rpartition("/")[0] == home(check.run).rpartition("/")[0]

    assert not [
        (check.id, function.__name__) for check in CHECKS for function in check.unless if not near(check, function)
    ]


def test_no_check_calls_them_itself() -> None:
    names = {function.__name__ for check in CHECKS for function in check.unless}
    called = {
        (path, function.name, node.func.id)
        for path, function in functions()
        if is_generator(function)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }
    assert not called


def test_no_function_returns_a_finding_in_place_of_its_value() -> None:
    for path, function in functions():
        words = ast.unparse(function.returns).split(" | ") if function.returns else []
        assert "Finding" not in words or set(words) <= {"Finding", "None"}, (path, function.name)


def test_no_check_skips_and_returns() -> None:
    """A check that skips does so for one subject of several, never for the complete check."""
    for path, function in functions():
        for node in ast.walk(function) if is_check(function) else ():
            for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                if isinstance(block, list) and block and isinstance(block[-1], ast.Return) and node is not function:
                    text = "\n".join(ast.unparse(statement) for statement in block)
                    assert "yield skipped(" not in text, (path, function.name)

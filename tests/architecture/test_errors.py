"""One exception tree: it has every exception class of the product, as drawn in the module's docstring."""

from __future__ import annotations

import builtins
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module

import pytest

import preflight
from preflight import errors
from preflight.errors import HOMES, PreflightError

COLLECTOR = "preflight.collector"


def exceptions() -> Iterator[type[BaseException]]:
    """Yield every exception class that a module of the product defines, including nested ones."""
    for module in pkgutil.walk_packages(preflight.__path__, "preflight."):
        if module.name.endswith("__main__"):
            continue
        for _, value in inspect.getmembers(import_module(module.name), inspect.isclass):
            if value.__module__ == module.name:
                members = (value, *(inner for inner in vars(value).values() if inspect.isclass(inner)))
                yield from (cls for cls in members if issubclass(cls, BaseException))


def test_every_exception_is_in_the_tree() -> None:
    outside = {cls for cls in exceptions() if not issubclass(cls, PreflightError)}
    assert {cls.__qualname__ for cls in outside if not cls.__module__.startswith(COLLECTOR)} == set()
    assert {cls.__name__ for cls in outside} == {
        "FrameError",
        "NoFrame",
        "CutFrame",
        "DamagedFrame",
        "RedisError",
        "Unjudged",
    }


def test_a_name_is_defined_once_and_listed() -> None:
    public = [cls for cls in exceptions() if not cls.__name__.startswith("_") and cls is not PreflightError]
    names = Counter(cls.__name__ for cls in public)
    assert [name for name, count in names.items() if count > 1] == []
    listed = {cls.__name__: cls.__module__ for cls in public if issubclass(cls, PreflightError)}
    assert listed == HOMES


def test_no_name_hides_a_builtin() -> None:
    assert [name for name in HOMES if hasattr(builtins, name)] == []


@pytest.mark.parametrize("name", HOMES)
def test_each_is_imported_from_errors_and_has_a_docstring(name: str) -> None:
    cls = getattr(errors, name)
    assert issubclass(cls, PreflightError)
    assert vars(cls)["__doc__"]
    assert name in dir(errors)


def test_the_docstring_draws_the_tree() -> None:
    drawn: list[tuple[str, str]] = []
    parent = "PreflightError"
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    (│   )?[├└]── (\w+)  +(\S.*)", line):
            nested, name, text = match.groups()
            drawn.append((name, parent if nested else "PreflightError"))
            parent = parent if nested else name
            for base in (OSError, ValueError):
                assert issubclass(getattr(errors, name), base) == (
                    f"(also a{'n' * (base is OSError)} {base.__name__})" in text
                )
    assert sorted(name for name, _ in drawn) == sorted(HOMES)
    for name, above in drawn:
        assert getattr(errors, name).__bases__[0] is getattr(errors, above), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = errors.Nonsense


def test_importing_the_tree_imports_no_other_module() -> None:
    code = "import sys, preflight.errors; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("preflight")} == {
        "preflight",
        "preflight.errors",
        "preflight.version",
    }

"""Import of a package's modules on first use: ``facts.xid`` imports that module."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Return a package's ``__getattr__`` (PEP 562) that imports the named module."""

    def getattr(name: str) -> ModuleType:
        from importlib import import_module

        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return getattr

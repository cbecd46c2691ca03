"""``dataclass`` and ``replace`` for the frozen values of a gate.

The modules of these values are imported before every job, and ``preflight._startup.lightclass`` takes longer to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    _MISSING = object()

    def dataclass(*, frozen):
        """Create a class of frozen values; attributes without a default are required."""
        return _frozen

    def replace(value, **changes):
        """Return a copy of a value with some attributes changed."""
        return type(value)(**{**value.__dict__, **changes})

    def _frozen(cls):
        cls.__init__, cls.__repr__, cls.__eq__, cls.__hash__ = _init, _repr, _eq, None
        cls.__setattr__ = cls.__delattr__ = _refuse
        return cls

    def _init(self, *args, **named):
        names = type(self).__annotations__
        given = {**dict(zip(names, args, strict=False)), **named}
        values = {name: given.get(name, getattr(type(self), name, _MISSING)) for name in names}
        if len(given) != len(args) + len(named) or not given.keys() <= names.keys() or _MISSING in values.values():
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}, and was given {', '.join(given)}")
        self.__dict__.update(values)

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def _eq(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def _refuse(self, name, value=None):
        raise AttributeError(f"{type(self).__name__} does not change: {name}")


__all__ = ["dataclass", "replace"]

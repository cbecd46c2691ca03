"""``dataclass`` and ``replace`` for the frozen values of a gate.

The modules of these values are imported before every job, and ``preflight._startup.lightclass`` takes longer to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(*, frozen):
        """Make a class of frozen values; attributes without a default are required."""
        return _frozen

    def replace(value, **changes):
        """Return a copy of a value, some attributes changed."""
        return type(value)(**{**value.__dict__, **changes})

    def _frozen(cls):
        cls.__init__, cls.__repr__ = _init, _repr
        cls.__setattr__ = cls.__delattr__ = _refuse
        return cls

    def _init(self, *args, **named):
        names = type(self).__annotations__
        values = {**dict(zip(names, args, strict=False)), **named}
        missing = [name for name in names if name not in values and not hasattr(type(self), name)]
        if missing or len(values) != len(args) + len(named) or not values.keys() <= names.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}, and was given {', '.join(values)}")
        self.__dict__.update(values)

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def _refuse(self, name, value=None):
        raise AttributeError(f"{type(self).__name__} does not change: {name}")


__all__ = ["dataclass", "replace"]

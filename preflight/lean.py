"""``dataclass`` as in the standard library, but for the time that its definition takes at import.

There every method of every class is written out and compiled anew, half a millisecond for each class. Here
only ``__init__`` is; the other methods are shared.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, *, frozen=False):
        """Make a dataclass: its fields, defaults, equality, hash and ``repr`` are those of the standard library."""
        return _made(cls, frozen) if cls is not None else lambda cls: _made(cls, frozen)

    def _made(cls, frozen):
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the signature would be written out
        made = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        fields = dataclasses.fields(made)
        compared = [field.name for field in fields if field.compare]
        if not compared or not all(field.init and not field.kw_only for field in fields):
            raise TypeError(f"{cls.__qualname__} needs the dataclass of the standard library")
        methods = {"_compared": attrgetter(*compared), "__init__": _init(made, fields), "__repr__": _repr}
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        for name, method in methods.items():
            if cls.__dict__.get(name) is None:
                setattr(made, name, method)
        return made

    def _init(cls, fields):
        """Compile ``__init__``; defaults are looked up where a default argument keeps them: in the function."""
        names, parameters, lines = {}, [], []
        for field in fields:
            value = field.name
            if field.default_factory is not dataclasses.MISSING:
                names[f"make_{field.name}"] = field.default_factory
                names["missing"] = dataclasses.MISSING
                value = f"make_{field.name}() if {field.name} is missing else {field.name}"
                parameters.append(f"{field.name}=missing")
            elif field.default is not dataclasses.MISSING:
                names[f"default_{field.name}"] = field.default
                parameters.append(f"{field.name}=default_{field.name}")
            else:
                parameters.append(field.name)
            lines.append(f"  own[{field.name!r}] = {value}\n")
        after = "  self.__post_init__()\n" if hasattr(cls, "__post_init__") else ""
        source = f"def __init__({', '.join(['self', *parameters])}):\n  own = self.__dict__\n{''.join(lines)}{after}"
        exec(source, names)
        made = names["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        return made

    def _repr(self):
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
        return f"{type(self).__qualname__}({shown})"

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(self._compared(self) == self._compared(other))

    def _hash(self):
        return hash(self._compared(self))

    def _refuse_to_set(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


__all__ = ["dataclass"]

"""A ``dataclass`` whose definition is fast at import.

The standard library generates and compiles every method of every class, which takes a sixth of a millisecond per class
and imports much of the compiler. Here only ``__init__`` is compiled, and only for classes with many objects: a run
never uses most imported classes. The functions of the standard library for dataclasses work with these classes.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    _MISSING = object()

    #: Number of objects after which a class's ``__init__`` is compiled, which takes as long as creating fifty objects.
    _WORTH_COMPILING = 50

    class _Field:
        """A field: its name, its annotation and the arguments of ``field``."""

        __slots__ = ("compare", "default", "default_factory", "metadata", "name", "repr", "type")

        def __init__(self, default, default_factory, repr, compare, metadata):
            self.default, self.default_factory, self.metadata = default, default_factory, metadata
            self.repr, self.compare = repr, compare

        @property
        def optional(self):
            return self.default is not _MISSING or self.default_factory is not _MISSING

    def field(*, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, metadata=None):
        """Declare a field with more than a default."""
        return _Field(default, default_factory, repr, compare, metadata or {})

    def fields(cls):
        """Return the fields of a class made by ``dataclass``, or of its object, in order."""
        return cls._lean_fields

    def replace(made, **changes):
        """Return a copy of an object with some fields changed."""
        if not hasattr(made, "_lean_fields"):
            import dataclasses

            return dataclasses.replace(made, **changes)
        unchanged = {own.name: getattr(made, own.name) for own in made._lean_fields if own.name not in changes}
        return made.__class__(**unchanged, **changes)

    def dataclass(cls=None, *, frozen=False):
        """Create a dataclass with fields, equality, hash and ``repr`` as in the stdlib."""
        return _made(cls, frozen) if cls is not None else lambda cls: _made(cls, frozen)

    def _made(cls, frozen):
        known = {one.name: one for base in reversed(cls.__mro__[1:]) for one in base.__dict__.get("_lean_fields", ())}
        known |= {one.name: one for one in _own(cls)}
        ours = tuple(known.values())
        optional = [one.optional for one in ours]
        if optional != sorted(optional):
            raise TypeError(f"{cls.__qualname__}: a field without a default follows one with a default")
        names = tuple(known)
        compared = [one.name for one in ours if one.compare] or names
        methods = {"_lean_fields": ours, "_compared": attrgetter(*compared), "__match_args__": names}
        methods |= {"__dataclass_fields__": _Standard(), "__init__": _first_init(cls, ours), "__repr__": _repr}
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        methods |= {"__doc__": cls.__name__}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        for name, method in methods.items():
            if cls.__dict__.get(name) is None:
                setattr(cls, name, method)
        return cls

    def _own(cls):
        """Yield the fields that a class declares; attributes keep their defaults."""
        for name, declared in cls.__annotations__.items():
            attribute = cls.__dict__.get(name, _MISSING)
            if "__slots__" in cls.__dict__ or str(declared).startswith(("ClassVar", "InitVar", "KW_ONLY")):
                raise TypeError(f"{cls.__qualname__} needs the dataclass of the standard library")
            one = attribute if isinstance(attribute, _Field) else _translated(attribute)
            one.name, one.type = name, declared
            if type(one.default).__hash__ is None:
                raise ValueError(f"{cls.__qualname__}.{name}: a mutable default needs a default_factory")
            if one.default is not _MISSING:
                setattr(cls, name, one.default)
            elif attribute is not _MISSING:
                delattr(cls, name)
            yield one

    def _translated(attribute):
        """Return the field of an attribute, which may be a standard-library field."""
        if type(attribute).__module__ != "dataclasses":
            return field(default=attribute)
        from dataclasses import MISSING

        default, factory = (
            _MISSING if one is MISSING else one for one in (attribute.default, attribute.default_factory)
        )
        return _Field(default, factory, attribute.repr, attribute.compare, attribute.metadata)

    def _first_init(cls, ours):
        """Return a generic ``__init__``: faster than compiling one for a few objects."""
        names = tuple(one.name for one in ours)
        required = {one.name for one in ours if not one.optional}
        left = _WORTH_COMPILING

        def __init__(self, *args, **named):
            nonlocal left
            left -= 1
            given = {**dict(zip(names, args, strict=False)), **named}
            clear = len(given) == len(args) + len(named) and required <= given.keys() <= own_names
            if left < 0 or not clear:
                cls.__init__ = _init(cls, ours)
                return cls.__init__(self, *args, **named)
            own = self.__dict__
            for one in ours:
                if one.name in given:
                    own[one.name] = given[one.name]
                else:
                    own[one.name] = one.default if one.default is not _MISSING else one.default_factory()
            if has_more:
                self.__post_init__()

        own_names, has_more = set(names), hasattr(cls, "__post_init__")
        return __init__

    def _init(cls, ours):
        """Compile ``__init__``; defaults are those of the fields."""
        names, parameters, lines = {"missing": _MISSING}, [], []
        for one in ours:
            value, parameter = one.name, one.name
            if one.default_factory is not _MISSING:
                names[f"make_{one.name}"] = one.default_factory
                value = f"make_{one.name}() if {one.name} is missing else {one.name}"
                parameter += "=missing"
            elif one.default is not _MISSING:
                names[f"default_{one.name}"] = one.default
                parameter += f"=default_{one.name}"
            parameters.append(parameter)
            lines.append(f"  own[{one.name!r}] = {value}\n")
        after = "  self.__post_init__()\n" if hasattr(cls, "__post_init__") else ""
        source = f"def __init__({', '.join(['self', *parameters])}):\n  own = self.__dict__\n{''.join(lines)}{after}"
        exec(source, names)
        made = names["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        return made

    class _Standard:
        """The fields in the form of the standard library, created on first use."""

        def __get__(self, made, cls):
            import dataclasses

            def specification(one):
                plain = {"repr": one.repr, "compare": one.compare, "metadata": one.metadata}
                plain |= {"default": one.default} if one.default is not _MISSING else {}
                plain |= {"default_factory": one.default_factory} if one.default_factory is not _MISSING else {}
                return one.name, one.type, dataclasses.field(**plain)

            twin = dataclasses.make_dataclass(cls.__name__, [specification(one) for one in cls._lean_fields])
            cls.__dataclass_fields__ = twin.__dataclass_fields__
            return cls.__dataclass_fields__

    def _repr(self):
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in self._lean_fields if one.repr)
        return f"{type(self).__qualname__}({shown})"

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(self._compared(self) == self._compared(other))

    def _hash(self):
        return hash(self._compared(self))

    def _refuse_to_set(self, name, value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")


__all__ = ["dataclass", "field", "fields", "replace"]

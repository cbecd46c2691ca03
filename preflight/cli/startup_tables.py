"""Tables for a fast start: declarations of checks, and command-line options.

``python -m preflight.cli.startup_tables`` writes both into this tree. The build does so for wheels, editable installs
and the single-file build (``preflight._startup.build``, ``preflight.cli.zipapp``); the tests do so if they are stale. A
run never writes them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import click

from preflight import _startup
from preflight._startup import lazy_checks
from preflight.checks import MODULES
from preflight.checks._registry import lazy
from preflight.commands.check import check
from preflight.commands.gate import gate

#: Top directory of the package.
ROOT = Path(_startup.__path__[0]).parent

#: Command -> click command, sources of its options, and options that only click handles.
COMMANDS: Mapping[str, tuple[click.Command, tuple[str, ...], frozenset[str]]] = {
    "check": (check, ("commands/check.py", "commands/options.py"), frozenset()),
    "gate": (gate, ("commands/gate.py", "gate/options.py", "gate/policy.py"), frozenset({"policy"})),
}

_HEAD = '''\
"""{title} Written by the build (``preflight.cli.startup_tables``); not committed."""

# ruff: noqa
# fmt: off
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

'''


def checks_table() -> str:
    """Return the source of the module ``_startup.generated_checks``."""
    lines = [
        _HEAD.format(title="Declarations of all checks."),
        "#: The fields of a row.\n",
        f"FIELDS = {_literal(lazy_checks.FIELDS)}\n\n",
        "#: Module -> bytes of its source, checksum of its declarations, and its checks in the order of ``FIELDS``.\n",
        "TABLE: dict[str, tuple[int, int, tuple[tuple[Any, ...], ...]]] = {\n",
        *(line for name in MODULES for line in _module(name)),
        "}\n",
    ]
    return "".join(lines)


def options_table() -> str:
    """Return the source of the module ``_startup.generated_options``."""
    lines = [
        _HEAD.format(title="Options of commands that are parsed without click."),
        "#: Command -> its options, its positional arguments with their choices, and the default of each value.\n",
        "TABLES: dict[str, tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {\n",
    ]
    for name, (command, _, left) in COMMANDS.items():
        lines.append(f"    {_literal(name)}: ({{\n")
        lines += [f"        {_literal(word)}: {_literal(row)},\n" for word, row in _options(command, left)]
        defaults = {param: value for param, value in _defaults(command).items() if param not in left}
        lines.append(f"    }}, {_literal(_arguments(command))}, {defaults!r}),\n")
    lines.append("}\n\n#: Command -> the sources of its options, each with its checksum.\n")
    lines.append("SOURCES: dict[str, tuple[tuple[str, int], ...]] = {\n")
    for name, (_, sources, _) in COMMANDS.items():
        checksums = tuple((path, crc32((ROOT / path).read_bytes())) for path in sources)
        lines.append(f"    {_literal(name)}: {_literal(checksums)},\n")
    lines.append("}\n")
    return "".join(lines)


#: File below ``preflight`` -> function that returns its content.
TABLES: Mapping[str, Callable[[], str]] = {
    "_startup/generated_checks.py": checks_table,
    "_startup/generated_options.py": options_table,
}


def write(folder: Path) -> list[str]:
    """Write the tables that changed below a top directory; return their names."""
    changed = []
    for name, text in TABLES.items():
        path, data = folder / name, text()
        if not path.exists() or path.read_text(encoding="utf-8") != data:
            path.write_text(data, encoding="utf-8")
            changed.append(name)
    return changed


def _module(name: str) -> Iterator[str]:
    source = (ROOT / "checks" / f"{name.replace('.', '/')}.py").read_bytes()
    yield f"    {_literal(name)}: ({len(source)}, {lazy_checks.fingerprint(source)}, (\n"
    for known_as, declared in lazy.written(import_module(f"{lazy.PACKAGE}.{name}")):
        yield f"        ({', '.join(map(_literal, lazy.row(known_as, declared)))}),\n"
    yield "    )),\n"


def _known(command: click.Command, left: frozenset[str]) -> Iterator[click.Parameter]:
    """Yield the parameters that the fast parser sets."""
    return (param for param in command.params if param.name not in left)


def _options(command: click.Command, left: frozenset[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each spelling of the options that can be parsed without click."""
    for param in _known(command, left):
        if not isinstance(param, click.Option) or param.is_eager or param.callback or param.prompt or param.envvar:
            continue
        kind = ("flag", ()) if param.is_flag else _kind(param.type)
        if kind and param.nargs == 1 and not param.count and not param.secondary_opts:
            for word in param.opts:
                yield word, (param.name, kind[0], param.multiple, kind[1])


def _kind(type: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return how values of a click type are converted; None if only click can."""
    if isinstance(type, click.IntRange | click.FloatRange):
        if type.min is None or type.max is None or type.min_open or type.max_open or type.clamp:
            return None
        return ("int" if isinstance(type, click.IntRange) else "float"), (type.min, type.max)
    if isinstance(type, click.Choice):
        return ("choice", tuple(type.choices)) if type.case_sensitive else None
    if isinstance(type, click.Path):
        if type.exists or type.resolve_path or type.type not in (None, Path):
            return None
        return ("path" if type.type is Path else "text"), ()
    return ("text", ()) if type is click.STRING else None


def _arguments(command: click.Command) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the positional arguments of a command, with the choices of each."""
    return tuple(
        (str(param.name), tuple(param.type.choices))
        for param in command.params
        if isinstance(param, click.Argument) and isinstance(param.type, click.Choice)
    )


def _defaults(command: click.Command) -> Mapping[str, Any]:
    """Return the values of a command that is called without arguments."""
    with command.make_context(str(command.name), []) as context:
        return dict(context.params)


def _literal(value: Any) -> str:
    """Return a value as Python source; text in double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def main() -> None:
    """Write the tables into this tree, or into a built copy of it."""
    parser = argparse.ArgumentParser(prog="python -m preflight.cli.startup_tables", description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT, metavar="DIR", help="top of the package (default: this one)")
    changed = write(parser.parse_args().into)
    print(f"written: {', '.join(changed)}" if changed else "the tables are up to date")


if __name__ == "__main__":
    main()

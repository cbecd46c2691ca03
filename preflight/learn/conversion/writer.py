"""The text of a converted cluster file: values, then lines not converted."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.learn.conversion.draft import Entry, Loss, Path
from preflight.learn.majority import written
from preflight.nodeset import fold, unfold

_WIDTH = 110
_LONGEST = 300
_MOST_LINES = 16

#: Tables of a class in the order of the file; others follow by name.
_ORDER = ("", "ports", "firmware", "host", "host.mounts", "rails")


@dataclass(frozen=True)
class ConvertedClass:
    """One node class: its nodes and their expected values."""

    nodes: tuple[str, ...]  # empty: all that no other class lists
    pattern: str  # a target whose nodes cannot be listed: the class becomes a comment
    entries: Mapping[Path, Entry]


def write_classes(source: str, classes: Sequence[ConvertedClass], losses: Sequence[Loss]) -> str:
    """Return the text of the converted file."""
    lines = _comment(
        f"Converted by `preflight learn --from` from {source}. Each value has its source line as a "
        "comment. Review the file before using it: a node that misses a declared value fails."
    )
    for members, name in zip(classes, _names(classes), strict=True):
        lines += ["", *_class(members, name)]
    for title, covered in (("Not converted:", False), ("Judged without a key:", True)):
        if group := [loss for loss in losses if loss.covered is covered]:
            lines += ["", f"# {title}"]
            for loss in group:
                lines += _comment(describe_loss(source, loss), "#   ")
    return "\n".join(lines) + "\n"


def describe_loss(source: str, loss: Loss) -> str:
    """Return file, line number, text and reason of a loss, as printable text."""
    return _words(f"{source}:{loss.line}: {_words(loss.text[:400])[:120]}: {loss.reason}")


def _names(classes: Sequence[ConvertedClass]) -> list[str]:
    """Derive class names from those of their nodes: ``gpu``, ``gpu-2``, ``nodes``."""
    taken: Counter[str] = Counter()
    names = []
    for members in classes:
        lead = re.match(r"[!/{^]*([A-Za-z][A-Za-z-]*)", members.nodes[0] if members.nodes else members.pattern)
        name = lead[1].lower().rstrip("-")[:40] if lead else "nodes"
        name = f"not-{name}" if members.pattern.startswith("!") else name
        taken[name] += 1
        names.append(name if taken[name] == 1 else f"{name}-{taken[name]}")
    return names


def _class(members: ConvertedClass, name: str) -> Iterator[str]:
    lead = "# " if members.pattern else ""
    yield f"{lead}[class.{name}]"
    if members.nodes:
        folded = fold(members.nodes)
        listed = folded if set(unfold(folded)) == set(members.nodes) else sorted(members.nodes)
        yield f"nodes = {written(listed)}"
    elif not members.pattern:
        yield "# all nodes that no other class lists"
    else:
        yield from _comment(
            f"nodes = …  (those that match {members.pattern}: list them, and remove the # of this class)"
        )
    tables: dict[str, list[tuple[Path, Entry]]] = {}
    for path, entry in members.entries.items():
        tables.setdefault(_table_of(path), []).append((path, entry))
    for table in sorted(tables, key=lambda table: (_rank(table), table)):
        if table:
            yield ""
            yield f"{lead}[class.{name}.{table}]"
        for path, entry in tables[table]:
            if path[-1]:  # a mount with only its path expected is a table without keys
                note = f"; {_words(entry.note)}" if entry.note else ""
                yield f"{lead}{_key(path[-1])} = {written(entry.value)}  # {_lines(entry.lines)}{note}"


def _lines(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f"lines {', '.join(map(str, numbers[:_MOST_LINES]))}{more}"


def _table_of(path: Path) -> str:
    return ".".join(map(_key, path[:-1]))


def _rank(table: str) -> int:
    parents = [at for at, parent in enumerate(_ORDER) if parent and f"{table}.".startswith(f"{parent}.")]
    return max(parents, default=0 if not table else len(_ORDER))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name).replace("\x7f", "\\u007f")


def _words(text: str) -> str:
    """Return text of the source as one printable line, for a comment."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(line.split()) if len(line) <= _LONGEST else f"{' '.join(line[:_LONGEST].split())}…"


def _comment(sentence: str, lead: str = "# ") -> list[str]:
    return textwrap.wrap(sentence, _WIDTH, initial_indent=lead, subsequent_indent=lead,
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip

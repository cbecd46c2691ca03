"""Text of a learnt cluster file: plain TOML, each value with its source."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.learn.classes import NodeKind
from preflight.learn.majority import Value, written
from preflight.learn.self_check import Fault
from preflight.model import counted
from preflight.nodeset import fold, is_name, unfold

_WIDTH = 110

#: Maximum number of nodes and lines of exceptions in a class's comment.
_MOST_LINES = 40


@dataclass(frozen=True)
class Class:
    """A class of nodes with its values."""

    kind: NodeKind
    values: tuple[Value, ...]


def text(
    classes: Sequence[Class], faults: Sequence[Fault], apart: Sequence[str], silent: Sequence[str],
    unnamed: Sequence[str],
) -> str:  # fmt: skip
    """Return the text of a learnt cluster file."""
    total = sum(len(one.kind.members) for one in classes)
    lines = [
        *_comment(
            f"Learnt by `preflight learn` from {counted(total, 'node')}: a value is included if all nodes of its "
            "class have it, or 60% of at least three, with its source as a comment. Review it before "
            "using it: it lists actual values, not desired ones."
        ),
    ]
    for fault in faults:
        if fault.systemic:
            lines += ["#", *_comment(
                f"SYSTEMIC: {fault.check} {fault.status}s on {len(fault.nodes)} of {fault.of} nodes of class "
                f"{fault.class_name} ({_words(fault.message)}): probably a site-wide problem, not a node's. "
                f"{_nodes(fault.nodes)}"
            )]  # fmt: skip
    if apart:
        lines += ["#", *_comment(f"In no class, since they have no GPU: {_nodes(apart)}")]
    if unnamed:
        lines += ["#", *_comment(f"In no class, because a list of nodes cannot contain their names: {_nodes(unnamed)}")]
    if silent:
        lines += ["#", *_comment(f"No answer: {_nodes(silent)}")]
    for one in classes:
        lines += ["", *_class(one, [fault for fault in faults if fault.class_name == one.kind.name])]
    lines += [
        "",
        *_comment(
            "Declare values that evidence does not show: ports.load_balancing (how switches spread flows), "
            "thresholds.gpu_memory_gib and nic_gbps_per_gpu (what the job needs of each), [fabric]; "
            "`preflight lint` checks this file."
        ),
    ]
    return "\n".join(lines) + "\n"


def _class(one: Class, faults: Sequence[Fault]) -> Iterator[str]:
    name = one.kind.name
    yield f"[class.{name}]"
    members = [member.node for member in one.kind.members]
    yield f"nodes = {written(_listed([name for name in members if is_name(name)]))}"
    if one.kind.part is not None:
        yield f"part = {written(one.kind.part.name)}  # by the PCI ids of its GPUs; {_words(one.kind.part.source)}"
    for table in dict.fromkeys(("", *(value.table for value in one.values))):
        mine = [value for value in one.values if value.table == table]
        if table and mine:
            yield ""
            # a table also becomes a comment if all its values were rejected
            yield f"[class.{name}.{table}]" if any(value.learnt for value in mine) else f"# [class.{name}.{table}]"
        for value in mine:
            yield from _value(value)
    if ordinary := [fault for fault in faults if not fault.systemic]:
        yield ""
        yield "# Exceptions, by this file:"
        for fault in ordinary[:_MOST_LINES]:
            yield from _comment(f"{fault.status} {fault.check}: {_words(fault.message)}: {_nodes(fault.nodes)}", "#   ")
        if len(ordinary) > _MOST_LINES:
            yield f"#   and {len(ordinary) - _MOST_LINES} more"


def _value(value: Value) -> Iterator[str]:
    if not value.learnt:
        shown = f"{value.key} = {value.written}" if value.written else value.key
        yield from _comment(f"NOT LEARNT: {shown}: {_words(value.comment)}")
        return
    yield f"{value.key} = {value.written}  # {_words(value.comment)}"
    if value.odd:
        yield from _comment(f"otherwise on {_nodes(value.odd)}")


def _listed(names: list[str]) -> str | list[str]:
    """Return the names as one folded text, or as a list if they cannot be folded."""
    folded = fold(names)
    return folded if set(unfold(folded)) == set(names) else names


def _nodes(names: Sequence[str]) -> str:
    good = [name for name in names if is_name(name)]
    odd = [_words(json.dumps(name)) for name in names if not is_name(name)]
    return ", ".join([*([fold(good)] if good else []), *odd])


def _words(message: str) -> str:
    """Return text of a node as one line of printable characters, for a comment."""
    line = "".join(sign if sign.isprintable() else " " for sign in message)
    return " ".join(line.split())[:400]


def _comment(sentence: str, lead: str = "# ") -> list[str]:
    line = _words(sentence) if len(sentence) < 400 else " ".join(sentence.split())
    return textwrap.wrap(line, _WIDTH, initial_indent=lead, subsequent_indent=lead,
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip

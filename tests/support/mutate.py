"""Hostile variants of real text: cut, and changed by terminals, editors, other tools and attackers."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from preflight.evidence.document import SCHEMA, Evidence, from_document
from preflight.judge.record_usage import TrackedRecords
from tests.support.fixture import whole_node
from tests.support.parser_registry import Parser

#: Replacements of a number: signs, fractions, other bases, digits of other scripts, values beyond any type.
NUMBERS = ("-1", "0", "00", "1e999", "-inf", "nan", "0x10", "9" * 19, "9" * 400, "9" * 5000, "1." + "0" * 400,
           "²", "٣", "１２", "1_0", "+7", " ", "")  # fmt: skip

#: Insertions into a text.
SPLINTERS = (
    "\x00", "\udcff", "\ud800", "\r\n", "\r", "\x1b[31m", "\x1b]0;", "\x1b[", "\ufeff", "\u2028", "\x85", "\x1c",
    "\t", "\n\n", " " * 300, "x" * 3000, "[" * 3000, '{"a":' * 1500, "<a>" * 3000, "\\", '"', "'", "=", ":", ",",
    "(", ")", "<!--", "]]>", "&#0;", "&x;", "<!ENTITY x 'y'>", "null", "NaN", "Infinity", "[]", "{}", "true", "-",
    "N/A", "İ", "ﬁ", "..", "/", "%", "@", "^", "#", "*", "[0-999999999]", "0-999999",
)  # fmt: skip

Mutation = tuple[int, int, int, str]

_PLACE = st.integers(0, 2**31)
_MUTATIONS = st.lists(
    st.tuples(st.integers(0, 13), _PLACE, _PLACE, st.one_of(st.sampled_from(SPLINTERS), st.text(max_size=12))),
    min_size=1, max_size=4,
)  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(SPLINTERS)
    | st.sampled_from([10**400, -(2**64), float("inf"), float("nan"), "0000:18:00.0", "GPU-0", "/virtual/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def mutated(text: str, mutations: Sequence[Mutation]) -> str:
    """Apply mutations to a text, one after the other."""
    for kind, one, other, splinter in mutations:
        text = _mutated(text, kind, one, other, splinter)
    return text


def _mutated(text: str, kind: int, one: int, other: int, splinter: str) -> str:
    at = one % (len(text) + 1)
    if kind == 0:  # cut, perhaps within a character
        raw = text.encode("utf-8", "surrogatepass")
        return raw[: one % (len(raw) + 1)].decode("utf-8", "surrogateescape")
    if kind == 1:  # the start is missing
        return text[at:]
    if kind == 2:
        return text[:at] + splinter + text[at:]
    if kind == 3:
        return text[:at] + splinter + text[at + other % 40 :]
    if kind == 4:  # another number
        numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
        if not numbers:
            return text + NUMBERS[other % len(NUMBERS)]
        start, end = numbers[one % len(numbers)].span()
        return text[:start] + NUMBERS[other % len(NUMBERS)] + text[end:]
    if kind == 5:  # line ends of another system
        return text.replace("\n", ("\r\n", "\r", "\x85", "\x0b", "\u2029")[one % 5])
    if kind == 6:  # a word twice, or missing
        words = [match.span() for match in re.finditer(r"\S+", text)] or [(0, 0)]
        start, end = words[one % len(words)]
        return text[:start] + text[start:end] * (other % 3) + text[end:]
    if kind == 7:  # a bracket closes too often or never
        return text[:at] + "[{(<\"'"[other % 6] * (1, 2, 1000)[one % 3] + text[at:]
    if kind == 8:  # colours
        return text.replace(" ", "\x1b[0m ", 1 + other % 50)
    lines = text.split("\n")
    line, count = one % len(lines), other % 4
    if kind == 9:
        del lines[line : line + count + 1]
    elif kind == 10:
        lines[line:line] = lines[line : line + count + 1] * (1 + other % 3)
    elif kind == 11:
        random.Random(other).shuffle(lines)
    elif kind == 12:  # two lines joined
        lines[line : line + 2] = ["".join(lines[line : line + 2])]
    else:  # a line of another text
        lines.insert(line, splinter)
    return "\n".join(lines)


def texts(parser: Parser) -> st.SearchStrategy[str]:
    """Draw any text, a mutated seed, or a JSON seed with one value replaced."""
    decoded = [value for value in map(_decoded, parser.seeds) if isinstance(value, (list, dict))]
    seeds = parser.seeds

    @st.composite
    def draw_one(draw: st.DrawFn) -> str:
        kind = draw(st.integers(0, 9))
        if kind == 0:
            return draw(st.text(max_size=200))
        if kind <= 3 and decoded:
            return json.dumps(draw(values(decoded)))
        text = mutated(seeds[draw(_PLACE) % len(seeds)], draw(_MUTATIONS))
        return text if kind < 9 else text + mutated(seeds[0], draw(_MUTATIONS))

    return draw_one()


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- values ----------------------------------------------------------------------------------------


def values(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Draw one of the values with a part replaced, removed, added, or nested deeply."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> Any:
        seed = seeds[draw(_PLACE) % len(seeds)]
        return _exchanged(seed, draw(_PLACE), draw(st.integers(0, 6)), draw(JSON), draw(st.text(max_size=6)))

    return draw_one()


def _exchanged(value: Any, place: int, how: int, other: Any, name: str) -> Any:
    value = json.loads(json.dumps(value))
    holders = list(_holders(value))
    if not holders or how == 6:
        return other
    holder = holders[place % len(holders)]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return value
    key = keys[place // 7 % len(keys)]
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[name] = holder.pop(key)
    elif how == 2:
        holder[key] = _nested(place % 1200)
    elif how == 3 and isinstance(holder[key], str):
        holder[key] = mutated(holder[key], [(place % 14, place // 3, place // 5, name)])
    else:
        holder[key] = other
    return value


def _holders(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            if one:
                yield one
            waiting += one.values() if isinstance(one, dict) else one


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


# --- documents -------------------------------------------------------------------------------------


def keys_read(call: Callable[[Evidence], object], name: str) -> tuple[str, ...]:
    """Return the keys of the records of a complete node that a reader uses."""
    document = dict(whole_node(name))
    records = TrackedRecords(document["records"])
    with contextlib.suppress(Exception):
        call(Evidence(name, "", records))
    return tuple(sorted(records.used_keys & set(document["records"])))


def documents(parser: Parser) -> st.SearchStrategy[Evidence]:
    """Draw a complete node with damage to some of the records that the reader uses."""
    pairs = [(name, key) for name in parser.seeds for key in keys_read(parser.call, name)]
    nodes = sorted({name for name, _ in pairs}) or list(parser.seeds)

    @st.composite
    def draw_one(draw: st.DrawFn) -> Evidence:
        name = nodes[draw(_PLACE) % len(nodes)]
        keys = [key for node, key in pairs if node == name]
        records = dict(whole_node(name)["records"])
        for key in sorted({keys[draw(_PLACE) % len(keys)] for _ in range(draw(st.integers(1, 3)))} if keys else ()):
            how, place = draw(st.integers(0, 5)), draw(_PLACE)
            records[key] = _damaged(dict(records[key]), how, draw(_MUTATIONS), draw(JSON), place)
        return from_document({"schema": SCHEMA, "node": name, "records": records}, name)

    return draw_one()


def _damaged(record: dict[str, Any], how: int, mutations: list[Mutation], other: Any, number: int) -> Any:
    if how == 0:
        return other
    if how == 1:
        return {**record, "status": ("missing", "denied", "cut", "timeout", "x", 1)[number % 6]}
    for part in ("value", "entries"):
        if isinstance(record.get(part), Mapping):
            return {**record, part: _exchanged(record[part], number, how, other, mutations[0][3])}
    return {**record, "out": mutated(str(record.get("out", "")), mutations)}


# --- size ------------------------------------------------------------------------------------------

_UNITS = (" ", "\t", "\n", "a", "0", "²", "\\", '"', "'", "[", "(", "{", "<", "<a>", "=", ":", ",", "-", ".", "/", "x ",
          "1,", "1 ", "\n ", "0-999999,", "\x1b[", "\x1b]", "\x1b[1", '{"a":', "a=", "a:b\n", "\r", "1-")  # fmt: skip
_RUNS = (" ", "\n", "\t", "a", "9", "x ", "1 ")


def long_texts(parser: Parser, size: int, points: int) -> Iterator[tuple[str, str]]:
    """Yield named texts of about ``size`` characters that take a careless parser forever."""
    for unit in _UNITS:
        yield f"{unit!r} repeated", unit * (size // len(unit))
    for number, seed in enumerate(parser.seeds[:points]):
        yield f"seed {number} repeated", (seed * (size // max(len(seed), 1) + 1))[: max(size, len(seed))]
        for line in [line for line in dict.fromkeys(seed.split("\n")) if line][:points]:
            half = line[: len(line) // 2 + 1]
            yield f"{line[:30]!r} repeated", (line + "\n") * (size // (len(line) + 1))
            yield f"{half[:30]!r} without line ends", half * (size // len(half))
        ends = [match.end() for match in re.finditer(r"[:=\s](?=\S)|\w(?=\W)", seed)]
        for at in ends[:: max(len(ends) // points, 1)][:points]:
            for unit in _RUNS:
                yield (f"a run of {unit!r} after {seed[max(at - 20, 0) : at]!r}",
                       seed[:at] + unit * (size // len(unit)) + seed[at:])  # fmt: skip
    wide = size // 12
    yield "a wide header and many rows", " ".join(f"GPU{n % 999}" for n in range(wide)) + "\n" + "x\n" * (size // 4)
    names = " ".join(["GPU0", *(f"n{n}" for n in range(wide // 2))])
    yield "a wide header and its rows", names + "\n" + "\n".join(names.split(" "))

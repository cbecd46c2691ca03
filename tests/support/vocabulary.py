"""Counts of private words and shapes in the source: a ratchet, whose record may only fall.

``python -m tests.support.vocabulary`` prints the counts, ``--list names.told`` the places of one, ``--write`` lowers
the record (``tests/support/vocabulary.toml``) to today's counts and never raises it. Where a count has risen, use a
standard word: report, print, contain; collect, query; hook; error; fix; cached, saved; apply; complete; peers; unknown;
the user.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORD = Path(__file__).with_name("vocabulary.toml")

#: Word -> its forms.
WORDS = {
    "tell": "tell tells telling told untold",
    "say": "say says saying said unsaid",
    "ask": "ask asks asking asked",
    "sitting": "sitting sittings",
    "seat": "seat seats",
    "whose": "whose",
    "manner": "manner manners",
    "careful": "careful carefully",
    "heed": "heed heeds heeded heeding",
    "mend": "mend mends mended mending",
    "cure": "cure cures cured",
    "mistake": "mistake mistakes mistaken",
    "kept": "kept",
    "settle": "settle settles settled settling",
    "whole": "whole wholly",
    "nobody": "nobody",
    "somebody": "somebody",
    "whoever": "whoever whomever",
    "whatever": "whatever",
    "matter": "matter",
    "alike": "alike",
    "stand": "stand stands stood standing",
    "the others": "the others",
    "handed over": "handed over",
    "hands over": "hands over",
    "rests on": "rests on",
    "what becomes of": "what becomes of",
    "what became of": "what became of",
    "is no": "is no",
    "are no": "are no",
}
_FORMS = {form: word for word, forms in WORDS.items() for form in ([forms] if forms == word else forms.split())} | {
    "told": "tell"
}
#: Words that are counted only in sentences: as part of a name they are clear.
IN_SENTENCES = ("matter", "alike", "stand")
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(map(re.escape, _FORMS), key=len, reverse=True))})(?![\w-])", re.I)

#: Names that do not describe their value.
VARIABLES = ("found", "said", "told", "known", "seen", "one")

#: Public functions that too many modules define under one name.
FUNCTIONS = ("told", "_told", "read", "judge", "whole")

LONGEST = 80

#: Exceptions from the counts: (categories, expression, reason). The rest of a matching text is counted.
ALLOWED = (
    ("prose messages docs", r"\bthere (is|are) no\b", "standard English"),
    ("prose messages docs", r"\b(is|are) no (longer|more than|less than|fewer than)\b", "standard English"),
    ("prose messages docs", r"\b(do|does|did) not matter\b", "standard English"),
    ("prose messages docs", r"\bstands? for\b", "standard English"),
    ("prose messages docs", r"\bwhose\b", "standard English in a sentence; as a name it is a puzzle"),
    ("prose messages docs", r"`[^`]*`", "code: its names are counted where they are defined"),
    ("messages", r"\b(kubectl|ssh|srun|scontrol) said\b", "a quotation of the program's own words follows"),
    ("names", r"(?:is_)?known_hosts\w*", "the file of OpenSSH"),
    ("names", r"whole_node\w*", "a machine, as opposed to records of it"),
)

#: Generated files, whose source is counted.
GENERATED = {
    "docs/checklist.md", "preflight/_startup/generated_checks.py", "preflight/_startup/generated_options.py",
}  # fmt: skip

_NOT_IMPERATIVE = {
    "a", "an", "the", "whether", "one", "it", "its", "some", "any", "each", "every", "all", "without", "with", "more",
    "nothing", "none", "newer", "older", "where", "what", "how", "who", "when", "why", "empty", "true", "false", "in",
    "of", "for", "at", "by", "no", "not", "this", "that", "these", "those", "if", "as", "from", "on", "both",
}  # fmt: skip


@dataclass(frozen=True)
class WordUse:
    """One occurrence: its key (category.word) and location."""

    key: str
    where: str
    text: str


def product() -> list[Path]:
    """Return the Python files of the product."""
    return sorted(
        path
        for folder in ("preflight", "checks", "reports")
        for path in (ROOT / folder).rglob("*.py")
        if not _through_link(path) and _name(path) not in GENERATED
    )


def developer_sources() -> list[Path]:
    """Return the Python files of the tests and benchmarks, without data."""
    paths = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in paths if "data" not in path.relative_to(ROOT).parts)


def _through_link(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] in (("preflight", "checks"), ("preflight", "reports"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def places() -> Iterator[WordUse]:
    """Yield every occurrence in the product, its documentation and its tests."""
    classes: dict[str, list[str]] = {}
    for path in product():
        tree, source = _parsed(path)
        yield from _of_module(path, "", tree, source)
        yield from _shapes(path, tree)
        _add_classes(classes, path, tree)
    for path in developer_sources():
        tree, source = _parsed(path)
        yield from _of_module(path, "tests-", tree, source)
        _add_classes(classes, path, tree)
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("*.md")]):
        if _name(path) not in GENERATED | {"CHANGELOG.md"}:
            text = re.sub(r"^```.*?^```", _line_ends, path.read_text(), flags=re.M | re.S)
            yield from _words("docs", _name(path), 1, text)
    yield from _defined_twice(classes)


def _parsed(path: Path) -> tuple[ast.Module, str]:
    source = path.read_text()
    return ast.parse(source), source


def _of_module(path: Path, prefix: str, tree: ast.Module, source: str) -> Iterator[WordUse]:
    """Yield the occurrences in names, docstrings and comments, and in the other strings of the product."""
    where = _name(path)
    docstrings = set()
    yield from _of_name(prefix, where, 1, path.parent.name if path.name == "__init__.py" else path.stem)
    for node in ast.walk(tree):
        if name := _defined(node):
            yield from _of_name(prefix, where, getattr(node, "lineno", 1), name)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring, line = ast.get_docstring(node, clean=False) or "", _docstring_line(node)
            docstrings.add(line)
            yield from _words(f"{prefix}prose", where, line, docstring)
    if any(_WORD.search(line.partition("#")[2]) for line in source.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield from _words(f"{prefix}prose", where, token.start[0], token.string)
    for line, text in _messages(tree) if not prefix else ():
        if line not in docstrings:
            yield from _words(f"{prefix}messages", where, line, text)


def _docstring_line(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.body[0].lineno if ast.get_docstring(node) else 0


#: The attribute of a node with the name that it defines; `ast.Name` and `ast.Attribute` define one when they store.
_DEFINED = {
    **dict.fromkeys((ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef), "name"), ast.arg: "arg",
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), "name"), ast.MatchMapping: "rest",
    ast.alias: "asname", ast.Name: "id", ast.Attribute: "attr",
}  # fmt: skip


def _defined(node: ast.AST) -> str | None:
    """Return the name that a node defines."""
    attribute = _DEFINED.get(type(node))
    if not attribute or (isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Store)):
        return None
    name: str | None = getattr(node, attribute)
    return name


def _of_name(prefix: str, where: str, line: int, name: str) -> Iterator[WordUse]:
    """Yield the private words in a name: as parts of ``snake_case`` and ``CamelCase``, so `task` has no `ask`."""
    if name in VARIABLES:
        yield WordUse(f"{prefix}variables.{name}", f"{where}:{line}", name)
    if any("names" in kinds and re.fullmatch(allowed, name) for kinds, allowed, _ in ALLOWED):
        return
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name):
        if (word := _FORMS.get(part.lower())) and word not in IN_SENTENCES:
            yield WordUse(f"{prefix}names.{word}", f"{where}:{line}", name)


def _messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield strings of more than one word: keys and identifiers have no blank, and expressions are passed to re."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Call) and _root(node.func) in ("re", "regex"):
            skipped.update(id(inner) for argument in node.args for inner in ast.walk(argument))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(inner) for inner in node.values if isinstance(inner, ast.Constant))
            yield node.lineno, "".join(_piece(inner) for inner in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def _root(node: ast.expr) -> str:
    """Return the first name of a dotted one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _piece(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def _line_ends(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") or "_"


def _words(kind: str, where: str, line: int, text: str) -> Iterator[WordUse]:
    """Yield the private words of a text that is not allowed."""
    for kinds, allowed, _ in ALLOWED:
        if kind.removeprefix("tests-") in kinds.split():
            text = re.sub(allowed, _line_ends, text, flags=re.I)
    flat = text.replace("\n", " ")
    for match in _WORD.finditer(flat):
        excerpt = flat[max(0, match.start() - 30) : match.end() + 30].strip()
        yield WordUse(
            f"{kind}.{_FORMS[match[0].lower()]}", f"{where}:{line + text.count(chr(10), 0, match.start())}", excerpt
        )


def _shapes(path: Path, tree: ast.Module) -> Iterator[WordUse]:
    """Yield docstrings with a bad first line, and names that too many modules define."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _shape(_name(path), node)


def _add_classes(classes: dict[str, list[str]], path: Path, tree: ast.Module) -> None:
    """Add the places of the public classes that a module defines."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
            classes.setdefault(statement.name, []).append(f"{_name(path)}:{statement.lineno}")


def _defined_twice(classes: Mapping[str, Sequence[str]]) -> Iterator[WordUse]:
    """Yield each definition of a public class that another file defines as well."""
    for name, homes in sorted(classes.items()):
        if len(homes) > 1:
            yield from (WordUse(f"classes.{name}", home, name) for home in homes)


def _shape(where: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[WordUse]:
    place = f"{where}:{getattr(node, 'lineno', 1)}"
    first = (ast.get_docstring(node) or "").split("\n")[0]
    if len(first) > LONGEST:
        yield WordUse("shapes.docstring-too-long", place, first)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if first and not is_property and not _is_imperative(first):
            yield WordUse("shapes.docstring-not-imperative", place, first)
        if node.name in FUNCTIONS:
            yield WordUse(f"functions.{node.name}", place, node.name)


def _is_imperative(line: str) -> bool:
    """Guess whether a sentence begins with a verb: no article, pronoun, plural, acronym, code or gerund."""
    word = line.split()[0].strip(".,:;()")
    plural = word.endswith("s") and not word.endswith("ss")
    return (
        word.isalpha()
        and word.istitle()
        and not plural
        and not word.endswith("ing")
        and word.lower() not in _NOT_IMPERATIVE
    )


@cache
def counts() -> Counter[str]:
    """Return the count of each key."""
    return Counter(place.key for place in places())


def recorded() -> dict[str, int]:
    """Return the record as one mapping of ``category.word``."""
    tables = tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {f"{table}.{word}": number for table, words in tables.items() for word, number in words.items()}


def text(numbers: dict[str, int]) -> str:
    """Return the record as TOML; keys that reached zero are left out."""
    lines = ["# Written by `python -m tests.support.vocabulary --write`: counts that may only fall."]
    tables: dict[str, list[str]] = {}
    for key, number in sorted(numbers.items()):
        table, _, word = key.partition(".")
        if number:
            tables.setdefault(table, []).append(f'"{word}" = {number}')
    for table, rows in tables.items():
        lines += ["", f"[{table}]", *rows]
    return "\n".join(lines) + "\n"


def lowered(record: dict[str, int], today: Counter[str]) -> dict[str, int]:
    """Return the record with every count that has fallen; without a record, today's counts."""
    return {key: min(number, today[key]) for key, number in record.items()} if record else dict(today)


def main(arguments: Iterable[str]) -> int:
    """Print the counts, list the places of one, or lower the record."""
    match list(arguments):
        case ["--write"]:
            record = recorded()
            RECORD.write_text(text(lowered(record, counts())))
            risen = {key: number for key, number in counts().items() if number > record.get(key, 0)} if record else {}
            for key, number in sorted(risen.items()):
                print(f"{key}: {number}, recorded {record.get(key, 0)}; the record is not raised")
            return 1 if risen else 0
        case ["--list", key]:
            for place in places():
                if place.key == key:
                    print(f"{place.where}: {place.text}")
        case []:
            print(text(dict(counts())), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Generated pages of the documentation: checks, checklist items, JSON Schemas, commands."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import click

from preflight.checklist.items import ITEMS
from preflight.checks import registry
from preflight.cli.app import COMMANDS, main
from preflight.commands.catalogue import check_facts
from preflight.model import Check
from tests.support import paths
from tests.support.checklist_page import DOCUMENTS, ONLY, escaped

SCHEMAS = paths.ROOT / "preflight" / "schemas"
#: Pages outside ``docs``, each with its place on the site.
ELSEWHERE = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/slurm/README.md": "slurm.md",
    "LICENSE": "license.md",
}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each generated page."""
    checks = registry().checks
    yield "checks/index.md", checks_index(checks)
    for check in checks:
        yield f"checks/{check.id}.md", check_page(check, checks)
    for item in ITEMS:
        yield f"items/{item.id}.md", "\n".join(_item(item))
    for path in sorted(SCHEMAS.glob("*.json")):
        yield f"schemas/{path.stem}.md", schema_page(json.loads(path.read_text("utf-8")))
    yield "schemas/index.md", schemas_index()
    yield "commands.md", commands_page()


def checks_index(checks: Collection[Check]) -> str:
    """Return the list of all checks."""
    lines = ["# Checks\n", f"preflight has {len(checks)} checks. *Gates* marks those that hold a job back.\n"]
    lines += ["| check | what it states | looks at | |", "|---|---|---|---|"]
    lines += [
        f"| `{check.id}` | {escaped(check.title)} | {check.scope} | {'gates' if check.gating else ''} |"
        for check in checks
    ]
    return "\n".join(lines) + "\n"


def check_page(check: Check, checks: Collection[Check]) -> str:
    """Return the output of ``preflight explain`` for a check."""
    gates = "it gates jobs" if check.gating else "it reports only"
    lines = [f"# {check.id}\n", f"**{_text(check.title)}.** A {check.scope} check; {gates}.\n"]
    for heading, text in check.page.items():
        lines += [f"## {heading}\n", f"{_text(text)}\n"]
    (_, fix), *facts = check_facts(check, checks)
    lines += ["## What to do\n", f"{_text(fix)}\n", "| | |", "|---|---|"]
    ids = {other.id for other in checks} | set(check.answers)
    lines += [f"| {label} | {_marked(escaped(text), ids)} |" for label, text in facts]
    return "\n".join(lines) + "\n"


def _marked(text: str, ids: Collection[str]) -> str:
    """Mark ids, so that they become links."""
    return re.sub(
        r"[\w-]+(?:\.[\w-]+)?",
        lambda word: (f"`{word[0]}`" if "." in word[0] else f"**{word[0]}**") if word[0] in ids else word[0],
        text,
    )


def _item(item: Any) -> Iterator[str]:
    yield f"# {item.id}\n"
    yield f"**{_text(item.title)}**\n"
    yield f"Of the list: {_text(DOCUMENTS[item.document])}.\n"
    yield "| question | answered by, or missing | |"
    yield "|---|---|---|"
    for question in item.questions:
        by = ", ".join(f"`{check}`" for check in question.checks) or f"*missing:* {escaped(question.missing)}"
        needs = f"; needs {escaped(question.needs)}" if question.needs else ""
        yield f"| {escaped(question.text)} | {by}{needs} | {ONLY[question.where] if question.where else ''} |"
    if item.within:
        yield f"\nThe answer is bound to this evidence: {_text(item.within)}"
    yield "\nThe item passes only if every question is answered. [All items](../checklist.md)\n"


def schemas_index() -> str:
    """Return the list of all schemas."""
    lines = ["# JSON Schemas\n", "| schema | |", "|---|---|"]
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        lines.append(f"| [{path.stem}]({path.stem}.md) | {escaped(schema['description'])} |")
    return "\n".join(lines) + "\n\n[How to use the documents](../documents.md)\n"


def schema_page(schema: Mapping[str, Any]) -> str:
    """Return the fields of a document and of its parts."""
    lines = [f"# {schema['title']}\n", f"{_text(schema['description'])}\n", *_fields("The document", schema)]
    for name, part in schema.get("$defs", {}).items():
        if "properties" in part:
            lines += _fields(name, part)
    lines += ["## The schema\n", "```json", json.dumps(schema, indent=1, ensure_ascii=False), "```"]
    return "\n".join(lines) + "\n"


def _fields(name: str, part: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    if "description" in part and name != "The document":
        yield f"{_text(part['description'])}\n"
    yield "| field | type | |"
    yield "|---|---|---|"
    for field, value in part.get("properties", {}).items():
        optional = "" if field in part.get("required", ()) else "optional; "
        yield f"| `{field}` | {_type(value)} | {escaped(optional + value.get('description', '')).removesuffix('; ')} |"
    yield ""


def _type(value: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"*{name}*"
    if "const" in value or "enum" in value:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in value.get("enum", [value.get("const")]))
    if "oneOf" in value or "anyOf" in value:
        return " or ".join(_type(choice) for choice in value.get("oneOf") or value["anyOf"])
    kinds = value.get("type", "anything")
    kind = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    return f"{kind} of {_type(value['items'])}" if value.get("items") else kind


def commands_page() -> str:
    """Return the help of every command."""
    lines = ["# Commands\n", "What `preflight COMMAND --help` prints. `man preflight` has the same and more.\n"]
    top = click.Context(main, info_name="preflight", **main.context_settings)
    for name in COMMANDS:
        command = main.get_command(top, name)
        assert command is not None
        lines += [f"## {name}\n", "```text", _help(command, name, top), "```\n"]
        if isinstance(command, click.Group):
            inside = click.Context(command, info_name=name, parent=top)
            for word in command.list_commands(inside):
                inner = command.get_command(inside, word)
                assert inner is not None
                lines += [f"### {name} {word}\n", "```text", _help(inner, word, inside), "```\n"]
    return "\n".join(lines)


def _help(command: click.Command, name: str, parent: click.Context) -> str:
    return command.get_help(click.Context(command, info_name=name, parent=parent, terminal_width=90))


def linked(text: str, up: str, itself: str = "") -> str:
    """Link the ids of checks and checklist items; ``up`` is the path to the top of the site."""
    checks = {check.id for check in registry().checks} - {itself}
    items = {item.id for item in ITEMS} - {itself}

    def link(match: re.Match[str]) -> str:
        if match[1]:  # a block of code, a link or a heading
            return match[0]
        if match[2]:
            return f"[{match[0]}]({up}checks/{match[2]}.md)" if match[2] in checks else match[0]
        return f"[{match[0]}]({up}items/{match[3]}.md)" if match[3] in items else match[0]

    taken = r"(^```.*?^```|\[[^\]]*\]\([^)]*\)|^#[^\n]*)"
    return re.sub(rf"{taken}|`([a-z][\w-]*\.[\w-]+)`|\*\*([A-Z]+-[\w-]+)\*\*", link, text, flags=re.M | re.S)


def moved(text: str, origin: str) -> str:
    """Adapt the links of a page to the site; files that the site lacks are only named."""
    folder = posixpath.dirname(origin)

    def move(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        place = posixpath.normpath(posixpath.join(folder, path))
        uri = ELSEWHERE.get(place, place.removeprefix("docs/") if place.startswith("docs/") else "")
        return f"{image}[{words}]({uri}{'#' + anchor if anchor else ''})" if uri else words

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", move, text)


def network_loads(text: str) -> str:
    """Return what a page or a style sheet would load from the network."""
    load = re.search(
        r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//|<link\b[^>]*\shref=["']?(?:https?:)?//"""
        r"""|(?:url\(|@import)\s*["']?(?:https?:)?//""",
        text,
    )
    return load[0] if load else ""


def _text(text: str) -> str:
    """Return text without HTML that Markdown would interpret."""
    return text.replace("<", "&lt;")

"""One parser for each format: only ``parsers`` matches the output of tools."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from preflight.checks import registry as checks
from preflight.parsers import registry
from preflight.recognition import judges
from tests.support.paths import ROOT

#: Words in the patterns of these formats, and of no others.
WORDS = (
    "CA:?", "Physical state", "Port GUID", "Infiniband device", "hca_id", "active_mtu", "physical_state", "==>",
    "n_gids_found", "LinkDowned", "PortSelect", "NIC statistics", "Pause parameters", "RX negotiated",
    "firmware-version",
    "Laser ", "Settings for", "Link detected", "PFC configuration", "Priority trust", "prio-pfc", "dscp-prio",
    "Lnk(Cap|Sta)",
    "ACSCtl", "MaxReadReq", "networks?-status", "#bytes", "LOWER_UP", "Slave Interface", "Bonding Mode", r"UCX\s",
    "OpenFabrics",
)  # fmt: skip

FOLDERS = ("preflight/facts", "preflight/recognition", "checks")
_COMPILE = {"compile", "regex", "match", "fullmatch", "search", "findall", "finditer", "sub", "split"}


def patterns(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the literal patterns that a module compiles, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        is_regex = isinstance(function, ast.Name) and function.id == "regex"
        is_re = (
            isinstance(function, ast.Attribute)
            and function.attr in _COMPILE
            and isinstance(function.value, ast.Name)
            and function.value.id == "re"
        )
        if is_regex or is_re:
            for part in ast.walk(ast.Module([ast.Expr(argument) for argument in node.args[:1]], [])):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield node.lineno, part.value


def matched(path: Path) -> list[tuple[int, str]]:
    return [(line, word) for line, pattern in patterns(path) for word in WORDS if word in pattern]


@pytest.mark.parametrize("folder", FOLDERS)
def test_patterns_of_a_tools_output_are_in_parsers(folder: str) -> None:
    matches = {
        str(path.relative_to(ROOT)): where for path in sorted((ROOT / folder).rglob("*.py")) if (where := matched(path))
    }
    assert not matches


def test_the_words_are_those_of_the_parsers() -> None:
    """A word that no parser has would protect nothing."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "preflight/parsers").rglob("*.py"))
    assert not [word for word in WORDS if word not in text]


@pytest.mark.parametrize("kind", [kind for family in registry.FAMILIES for kind in family])
def test_every_registered_format_has_a_parser(kind: str) -> None:
    assert registry.parser(kind).name == kind


def test_every_judge_has_the_id_of_a_check() -> None:
    ids = {check.id for check in checks().checks}
    modules = [import_module(f"preflight.recognition.judges.{name}") for name in judges.MODULES]
    tables = [entries for module in modules for entries in module.JUDGES.values() if isinstance(entries, tuple)]
    named = {id for entries in tables for id, _ in entries}
    assert named <= ids
    judged = {kind for module in modules for kind in module.JUDGES}
    assert judged >= set(registry.NETWORK), "every format of the network is judged"

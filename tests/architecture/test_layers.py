"""Imports run one way: each layer knows only those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

#: Modules of preflight that each layer may import; no others.
LAYERS = {
    "collector": set[str](),
    "version": set[str](),
    "errors": set[str](),
    "probes": set[str](),
    "schemas": set[str](),
    "evidence": {"schemas"},
    "transport": {"collector", "evidence"},
    "demo": set[str](),
    "deploy": set[str](),
    "nodeset": set[str](),
    "textprep": {"evidence"},
    # collector: the rows of a switch's database, the same from a dump and from the switch.
    "parsers": {"collector", "evidence", "textprep"},
    "facts": {"bench", "evidence", "parsers", "textprep"},
    "reports": {"evidence", "facts", "incidents", "nodeset", "parsers", "schemas", "version"},
    "archive": {"evidence", "facts", "parsers", "textprep"},
    "redact": {"archive", "collector", "evidence", "nodeset"},
    "history": {"evidence", "facts", "incidents", "model", "parsers", "schemas"},
    # _startup: forks the collector before anything else is imported.
    "_startup": {"collector"},
    "expectations": {"evidence", "facts", "nodeset", "parsers"},
    "model": {"expectations", "textprep"},
    "checklist": {"model"},
    "checks": {"bench", "evidence", "expectations", "facts", "layout", "model", "parsers", "probes", "textprep"},
    "judge": {
        "bench", "checklist", "checks", "evidence", "expectations", "facts", "incidents", "model", "parsers", "reports",
        "schemas", "version",
    },
    "learn": {"checks", "evidence", "expectations", "facts", "judge", "model", "nodeset", "parsers"},
    "plugin_fixture": {"evidence", "expectations", "facts", "judge", "model"},
    "plugin": {"checks", "evidence", "expectations", "facts", "model", "plugin_fixture", "probes", "textprep"},
    "diff": {"archive", "checks", "evidence", "expectations", "facts", "incidents", "judge", "model", "reports"},
    "lint": {"evidence", "expectations", "judge", "model", "nodeset"},
    "recognition": {
        "bench", "checks", "evidence", "expectations", "facts", "judge", "model", "nodeset", "parsers", "textprep",
    },
    "terminal": set[str](),
    # collect: joins nodes, transports and plans.
    "collect": {
        "archive", "evidence", "expectations", "nodeset", "parsers", "probes", "reports", "schemas", "terminal",
        "transport",
    },
    # run: one run of a command combines set-up, collection, judgement and outputs.
    "run": {
        "archive", "bench", "campaign", "checks", "collect", "evidence", "expectations", "history", "judge", "model",
        "nodeset", "reports", "terminal", "version",
    },
    # pair: tests between two nodes: it plans and collects.
    "pair": {"checks", "collect", "evidence", "expectations", "facts", "model", "parsers", "probes", "terminal"},
    # gate: a separate entry point for schedulers: it collects, judges and reports without a command line.
    "gate": {
        "archive", "checks", "collect", "deploy", "evidence", "expectations", "facts", "judge", "layout", "model",
        "nodeset", "probes", "reports", "run", "schemas", "terminal", "transport", "version",
    },
    # commands: bodies of the commands; each combines the parts that it needs.
    "commands": {
        "archive", "bench", "campaign", "checklist", "checks", "collect", "collector", "diff", "evidence",
        "expectations", "facts", "gate", "history", "incidents", "judge", "layout", "learn", "lint", "model", "nodeset",
        "pair", "parsers", "probes", "recognition", "redact", "reports", "run", "schemas", "terminal", "version",
    },
    # cli: the top layer: entry point, fast path and the single-file build.
    "cli": {"archive", "checks", "collect", "commands", "gate", "reports", "run", "terminal", "version"},
    "bench": {"parsers", "schemas"},
    # campaign: launched benchmarks between nodes: it examines nodes, launches runs and records them.
    "campaign": {
        "archive", "bench", "collect", "evidence", "facts", "nodeset", "parsers", "probes", "terminal", "transport",
    },
    "incidents": {"expectations", "facts", "model"},
    "layout": {"evidence", "expectations", "facts", "nodeset", "parsers"},
}  # fmt: skip


#: Modules that every layer may import.
EVERYWHERE = {"_startup", "errors"}

#: Folders at the top of the repository that install inside preflight, where each has a link.
LINKED = ("checks", "deploy", "reports")


def layer_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    if relative.parts[0] in LINKED:
        return relative.parts[0]
    return relative.parts[1].removesuffix(".py")


def sources() -> Iterator[Path]:
    for folder in ("preflight", *LINKED):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT).parts
            if "__pycache__" not in inside and inside[:2] not in [("preflight", name) for name in LINKED]:
                yield path


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"preflight.{alias.name}" for alias in node.names] if node.module == "preflight" else [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "preflight" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("path", list(sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_layer(path: Path) -> None:
    layer = layer_of(path)
    if layer in ("__init__", "__main__"):
        return
    assert layer in LAYERS, f"say in LAYERS what {layer} may import"
    wrong = set(imported(path)) - LAYERS[layer] - {layer}
    if layer != "collector":  # it is sent to nodes alone
        wrong -= EVERYWHERE
    assert not wrong, f"{layer} may not import {', '.join(sorted(wrong))}"


def module_of(path: Path) -> str:
    """Return the import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "preflight" else ("preflight", *parts)
    return ".".join(parts).removesuffix(".__init__")


@cache
def graph() -> dict[str, set[str]]:
    """Return the imports between modules of the product, without those for type checkers only."""
    modules = {module_of(path): path for path in sources()}
    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        for branch in [node for node in ast.walk(tree) if isinstance(node, ast.If)]:
            if "TYPE_CHECKING" in ast.unparse(branch.test):
                branch.body = [ast.Pass()]
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & set(modules)
                names |= submodules or {node.module}
        edges[module] = names & set(modules) - {module}
    return edges


def test_no_module_imports_one_that_imports_it() -> None:
    edges = graph()
    state: dict[str, int] = {}  # 1: being visited, 2: done

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != 1, f"import cycle: {' -> '.join((*path[path.index(module) :], module))}"
        if module not in state:
            state[module] = 1
            for other in sorted(edges[module]):
                visit(other, (*path, module))
            state[module] = 2

    for module in sorted(edges):
        visit(module, ())


def test_no_two_folders_import_each_other() -> None:
    """A folder may import a nested one, and vice versa: the outer one is the interface of the inner one."""
    packages = {module_of(path) for path in sources() if path.name == "__init__.py"}

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    pairs = {(folder(module), folder(other)) for module, others in graph().items() for other in others}
    both = {(a, b) for a, b in pairs if (b, a) in pairs and a < b and not b.startswith(f"{a}.")}
    assert not both


def test_links_point_at_the_top_level_folders() -> None:
    for name in LINKED:
        link = ROOT / "preflight" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name

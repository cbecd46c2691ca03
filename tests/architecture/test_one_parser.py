"""One parser for each format: facts, checks and recognition compile no pattern of a tool's output.

This holds for the formats of the families in ``parsers/registry.py``; those of NICs and fabrics are not in it yet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.checks import registry as checks
from preflight.parsers import registry
from preflight.parsers.nvidia.query_log import QueryLog
from preflight.recognition.formats import kinds
from preflight.recognition.judges import MODULES, checks_of
from tests.support.paths import ROOT

#: Modules that know these formats and must leave their texts to the parsers.
PLACES = (
    "preflight/facts/nvidia", "preflight/facts/xid.py", "preflight/facts/kernel_log.py", "preflight/recognition/judges",
    "preflight/recognition/formats/nvidia_smi", "preflight/recognition/formats/host.py",
    "preflight/recognition/formats/messages.py", "preflight/recognition/formats/cluster.py",
    "preflight/recognition/formats/dcgmi.py", "preflight/recognition/formats/typed.py", "checks/gpu",
    "checks/host/kernel_events.py", "checks/host/kernel_judgement.py", "checks/host/kernel_links.py",
    "checks/host/kernel_storage.py", "checks/host/kernel_problem.py",
)  # fmt: skip

#: Modules with patterns, and what these are.
EXCEPTIONS = {
    "preflight/recognition/judges/kubernetes_words.py": "words in a reason, status or message that the parser returned",
    "preflight/recognition/judges/slurm.py": "words in a reason or state that the parser returned",
    "preflight/recognition/judges/kernel.py": "words of lines that the parser returned and no rule knows",
}

_FUNCTIONS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "sub", "split", "regex"}


def modules() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        yield from [path] if path.suffix else sorted(path.rglob("*.py"))


def has_pattern(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re":
                return called.attr in _FUNCTIONS
            if isinstance(called, ast.Name) and called.id == "regex":
                return True
    return False


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_pattern_of_a_tool_outside_the_parsers(path: Path) -> None:
    assert not has_pattern(path) or str(path.relative_to(ROOT)) in EXCEPTIONS


def test_each_exception_is_needed() -> None:
    assert {str(path.relative_to(ROOT)) for path in modules() if has_pattern(path)} == set(EXCEPTIONS)


def test_each_format_of_the_registry_is_recognised_by_its_parser() -> None:
    names = [name for family in registry.FAMILIES for name in family]
    assert len(names) == len(set(names))
    recognised = {kind.name: kind.matches for kind in kinds()}
    for name in names:
        assert recognised[name] is registry.parser(name).begins, name


def test_each_judge_has_the_id_of_a_check() -> None:
    from importlib import import_module

    ids = {check.id for check in checks().checks}
    for module in MODULES:
        for kind, judges in import_module(f"preflight.recognition.judges.{module}").JUDGES.items():
            if isinstance(judges, tuple):
                assert {id for id, _ in judges} <= ids, kind
                assert [check.id for check in checks_of(kind, None)] == [id for id, _ in judges]
    assert "gpu.driver" in {check.id for check in checks_of("nvidia-smi -q", QueryLog({}, ()))} <= ids


def test_each_signature_has_the_id_of_a_check_and_three_commands() -> None:
    from preflight.parsers.messages.scan import SIGNATURES

    ids = {check.id for check in checks().checks}
    assert len({signature.id for signature in SIGNATURES}) == len(SIGNATURES)
    for signature in SIGNATURES:
        assert signature.check in ids, signature.id
        assert len(signature.commands) == 3
        assert all(signature.hints), signature.id

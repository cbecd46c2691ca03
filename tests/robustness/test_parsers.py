"""Every parser on any text and on mutated real text: a value or a ValueError with a message, in linear time."""

from __future__ import annotations

import ast
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight import facts
from preflight.evidence.document import SCHEMA, from_document
from preflight.facts import rdma_ports
from preflight.facts.nvidia import nvml
from tests.support import mutate, parser_registry
from tests.support.fixture import whole_node
from tests.support.parser_registry import Parser

#: Types of parameters with foreign text.
FOREIGN = {"str", "str | None", "Any", "object", "Evidence", "Mapping[str, str]", "Mapping[str, Any]", "Iterable[Line]"}

#: Names of parameters that only name something.
WORDS = {"name", "path", "key", "what"}

#: Maximum length of an error message in characters: it becomes part of a finding.
LONGEST_MESSAGE = 2000

#: CPU seconds for 200 KB; a linear parser takes milliseconds, a quadratic one minutes.
ENOUGH_S = 10
#: Characters of a long text.
LONG = 40_000


def _parsing(module: Path) -> Iterator[str]:
    """Yield the public functions and class methods of a module whose first argument is foreign data."""
    tree = ast.parse(module.read_text())
    functions = [(node, f"{module.stem}.{node.name}") for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            functions += [
                (method, f"{module.stem}.{node.name}.{method.name}")
                for method in node.body
                if isinstance(method, ast.FunctionDef) and method.args.args and method.args.args[0].arg == "cls"
            ]
    for function, name in functions:
        taken = [argument for argument in function.args.args if argument.arg != "cls"][:1]
        types = {ast.unparse(one.annotation) for one in taken if one.annotation and one.arg not in WORDS}
        if not function.name.startswith("_") and types & FOREIGN:
            yield name


def test_every_parser_is_registered() -> None:
    folders = {"": Path(facts.__file__).parent, "parsers.": Path(facts.__file__).parent.parent / "parsers"}
    elsewhere = tuple(f"{name}." for name in parser_registry.ELSEWHERE)
    found = {
        prefix + ".".join((*parts[:-1], name))
        for prefix, folder in folders.items()
        for path in folder.rglob("*.py")
        for parts in [path.relative_to(folder).with_suffix("").parts]
        for name in _parsing(path)
        if not f"{prefix}{'.'.join(parts)}.".startswith(elsewhere)
    }
    known = {parser.name for parser in parser_registry.ALL} | set(parser_registry.APART)
    assert found - known == set(), "register them in tests/support/parser_registry.py, with a text that they read"


def refused(parser: Parser, argument: Any) -> str:
    """Call a parser; return its error message, fail on any other exception."""
    try:
        parser.call(argument)
    except parser.raises as error:
        words = str(error)
        assert words, "a refusal without words"
        assert len(words) <= LONGEST_MESSAGE or not parser.foreign, f"{len(words)} characters: {words[:200]}"
        return words
    return ""


@pytest.mark.parametrize("parser", parser_registry.TEXT, ids=str)
def test_it_reads_its_seeds(parser: Parser) -> None:
    assert parser.seeds
    for seed in parser.seeds:
        assert refused(parser, seed) == ""


#: Enough to find common errors; ``python -m tests.robustness.fuzz --minutes 10`` looks for rare ones.
FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@pytest.mark.parametrize("parser", parser_registry.TEXT, ids=str)
@given(data=st.data())
def test_any_text_and_mutated_text(parser: Parser, data: st.DataObject) -> None:
    refused(parser, data.draw(mutate.texts(parser)))


@FEW
@pytest.mark.parametrize("parser", parser_registry.VALUE, ids=str)
@given(data=st.data())
def test_any_value(parser: Parser, data: st.DataObject) -> None:
    refused(parser, data.draw(mutate.values([json.loads(seed) for seed in parser.seeds])))


@settings(FEW, max_examples=6)
@pytest.mark.parametrize("parser", parser_registry.EVIDENCE, ids=str)
@given(data=st.data())
def test_damaged_records(parser: Parser, data: st.DataObject) -> None:
    refused(parser, data.draw(mutate.documents(parser)))


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this many seconds of CPU time."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still at it after {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("parser", [parser for parser in parser_registry.TEXT if parser.foreign], ids=str)
def test_long_text_is_read_in_linear_time(parser: Parser) -> None:
    for name, text in mutate.long_texts(parser, LONG, points=1):
        try:
            with bounded(ENOUGH_S * LONG / 200_000):
                refused(parser, text)
        except TimeoutError as error:
            pytest.fail(f"{name}: {error}")


#: Former findings of ``python -m tests.robustness.fuzz`` and of foreign texts: each hung, crashed or printed nothing.
FOUND: dict[str, tuple[str, str]] = {
    "textprep.plain_text.id_list": ("0-99999," * 10, "more than"),
    "rdma_ports.parse_ibstat": ("CA 'mlx5_0'\n Port 1:\n  State: A" + " " * 200_000 + "x\n", "missing"),
    "parsers.host.clock_reading.parse_tracking": (
        "Reference ID    : A29FC801\nSystem time : 0.1 seconds fast of NTP time\nLeap status : x" + " " * 200_000 + "x",
        "leap",
    ),
    "parsers.nvidia.driver_version.driver_version": ("NVRM version:" * 15_000, "contains no"),
    "parsers.qos.mlnx_qos.parse_record": ("PFC configuration:" + "\n" * 200_000, "PFC configuration is missing"),
    "parsers.nvidia.topo_matrix.parse": ("GPU0 " + "a b c " * 30_000, "no matrix header"),
    "evidence.decode": ('{"schema": ' + "9" * 5000 + "}", "digits"),
    "cluster.decode": ("[class.a]\ngpus = " + "9" * 5000, "digits"),
}


@pytest.mark.parametrize("name", FOUND)
def test_faults_that_were_found(name: str) -> None:
    text, words = FOUND[name]
    (parser,) = (parser for parser in parser_registry.TEXT if parser.name == name)
    with bounded(ENOUGH_S):
        assert words in refused(parser, text)


@pytest.mark.parametrize("name", ["mlx5_²", "²", "9" * 5000])
def test_names_of_devices_that_are_no_numbers(name: str) -> None:
    assert rdma_ports.natural(name)


def test_numbers_that_nvml_cannot_give() -> None:
    records = dict(whole_node("hgx-h100")["records"])
    value = json.loads(json.dumps(records["nvml:gpus"]["value"]))
    value["gpus"][0] |= {"index": 10**400, "power_limit_mw": 10**400}
    value["gpus"][1] |= {"memory_total_bytes": 10**400}
    records["nvml:gpus"] = {"status": "ok", "value": value}
    found = nvml.read_health(from_document({"schema": SCHEMA, "node": "n", "records": records}, "n"))
    assert len(found.silent) == 1, "a GPU without an index"
    assert found.gpus[0].memory_total_mib is None

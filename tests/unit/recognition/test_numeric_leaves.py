"""Every number in the sections of errors, repairs and clocks of ``nvidia-smi -q`` is a fact by its own name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from preflight.parsers import registry
from preflight.recognition.formats import kinds
from preflight.textprep.lines import bare, lines_of
from tests.support import paths
from tests.support.fixture import whole_node

SECTIONS = ("ecc_errors", "retired_pages", "remapped_rows", "clocks", "applications_clocks",
            "default_applications_clocks", "max_clocks", "max_customer_boost_clocks",
            "clocks_event_reasons_counters")  # fmt: skip

TEXTS: dict[str, tuple[str, Callable[[], str]]] = {
    "text": ("nvidia-smi -q", lambda: (paths.DATA / "nvidia_smi_q_r570.txt").read_text(encoding="utf-8")),
    "XML": ("nvidia-smi -q -x", lambda: str(whole_node("hgx-h100")["records"]["cmd:nvidia-smi -q -x"]["out"])),
    "XML with MIG": (
        "nvidia-smi -q -x",
        lambda: (paths.DATA / "outside" / "nvidia_smi_a100_mig.xml").read_text(encoding="utf-8"),
    ),
}  # fmt: skip


def numbers(tree: Any) -> Iterator[float]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from numbers(value)
    elif isinstance(tree, str) and tree[:1].isdigit():
        yield float(tree.split()[0])


def values(facts: Any) -> Iterator[float]:
    if isinstance(facts, dict):
        for value in facts.values():
            yield from values(value)
    elif isinstance(facts, (int, float)) and not isinstance(facts, bool):
        yield float(facts)


@pytest.mark.parametrize("case", TEXTS)
def test_no_number_is_lost(case: str) -> None:
    kind, text = TEXTS[case]
    lines = bare(lines_of(text()))
    parser = registry.parser(kind)
    at = next(at for at in range(len(lines)) if parser.begins(lines, at))
    log = parser.parse_lines(lines, at).value
    facts = next(format_ for format_ in kinds() if format_.name == kind).parse(lines, at).facts["gpus"]
    counted = 0
    for (_, tree), gpu in zip(log.gpus, facts, strict=True):
        for section in SECTIONS:
            printed = sorted(numbers(tree.get(section)))
            counted += len(printed)
            missing = list(printed)
            for value in values(gpu[section]):
                if value in missing:
                    missing.remove(value)
            assert not missing, section
    assert counted > 4

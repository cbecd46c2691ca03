"""Relations between checks: declared next to them, consistent, and listed by explain."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from preflight.checks import registry
from preflight.incidents.relations import acyclic
from preflight.model import IMPACTS, OWNERS, RELATIONS, Check, check
from tests.support.in_process import run

CHECKS = registry().checks


@pytest.mark.parametrize("declared", [check for check in CHECKS if check.explains], ids=lambda check: check.id)
def test_relations_name_checks_that_exist(declared: Check) -> None:
    for relation in declared.relations:
        assert any(fnmatchcase(other.id, relation.effect) for other in CHECKS), relation
        assert relation.on in RELATIONS


def test_no_chain_of_relations_leads_back() -> None:
    assert acyclic(CHECKS)


@pytest.mark.parametrize("declared", CHECKS, ids=lambda check: check.id)
def test_every_check_declares_its_impact(declared: Check) -> None:
    assert declared.impact in IMPACTS
    assert declared.owner in ("", *OWNERS)


@pytest.mark.parametrize(
    "words",
    [{"impact": "hurts"}, {"owner": "nature"}, {"explains": [("a.b",)]}, {"explains": [("a.b", "somehow")]}],
    ids=lambda words: next(iter(words)),
)
def test_wrong_declaration_is_an_error_at_import(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"check made\.up"):
        check("made.up", title="t", source="s", fix="f", **words)(_made_up)  # type: ignore[arg-type]


def _made_up(facts: object, site: object) -> None:
    """Compare nothing.

    ## Why it matters
    It does not.
    """


def test_explain_lists_what_a_check_explains_and_what_explains_it() -> None:
    shown = " ".join(run("explain", "nvlink.links").split())
    assert "Impact: slows-job; owner: node" in shown
    assert "Explains: topology.nvlink (of the same part)" in shown
    shown = " ".join(run("explain", "topology.nvlink").split())  # wrapped
    assert "Explained by:" in shown
    assert "nvlink.links (of the same part)" in shown

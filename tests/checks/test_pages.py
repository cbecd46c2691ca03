"""``preflight explain``: each check's page is a runbook page, with everything needed at 3 a.m."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli.app import main
from preflight.model import (
    FALSE_ALARMS,
    SOURCES,
    VERDICTS,
    WHAT,
    WHY,
    Check,
    Finding,
    Scope,
    check,
    passed,
)

CHECKS = registry().checks

#: What a check does.
VERBS = re.compile(r"(Compare|Check|Read|Look|Find|Judge|Hold|Count|Measure|Send)\b")

#: Names of the verdicts on the pages.
VERDICT = re.compile(
    r"\b(fails?|warns?|pass(es)?|unknown|judged|skip(s|ped)?|never a fail|gates? no job)\b", re.IGNORECASE
)

#: Signs of a concrete fix: a command, an option, a file, a setting, or work on the hardware.
ACTION = re.compile(
    r"`[^`]+`|--[a-z]|\b(nvidia-smi|systemctl|sysctl|modprobe|journalctl|torchrun|Limit[A-Z]+|NCCL_[A-Z_]+|nvidia\.com/gpu)\b"
    r"|/etc/|\b(reseat|power-cycle)\b",
    re.IGNORECASE,
)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_page_has_its_headings(check: Check) -> None:
    page = check.page
    assert list(page) == [WHAT, WHY, VERDICTS, FALSE_ALARMS, SOURCES], "docs/adding-a-check.md"

    assert words(page[WHAT]) >= 5, "what is compared"
    assert "\n\n" not in page[WHAT]
    assert re.match(VERBS, page[WHAT]), "the first word is what the check does"

    assert words(page[WHY]) >= 12, "what happens to a job"

    assert words(page[VERDICTS]) >= 6, "when it fails or warns, and why there"
    assert VERDICT.search(page[VERDICTS]), "which verdict follows from which value"

    assert words(page[FALSE_ALARMS]) >= 6, "how a false alarm looks, so that it is recognised"

    assert re.search(r"https?://|\(\d\)|[A-Z]|the cluster file", page[SOURCES]), "a source has a name or an address"

    assert words(check.fix) >= 3, "what to do"
    assert ACTION.search(check.fix), "the next step is a command or an act, not advice"


#: One page of each scope, as a sample of `explain`; pages of node checks differ most, so all are tested.
SHOWN = [check for check in CHECKS if check.scope is Scope.NODE or check.id in ("fleet.rails", "nccl.transport")]


@pytest.mark.parametrize("check", SHOWN, ids=lambda check: check.id)
def test_explain_shows_all_of_it(check: Check) -> None:
    page = CliRunner().invoke(main, ["explain", check.id]).output
    for heading, text in check.page.items():
        assert re.search(rf"^{heading}$", page, re.M)
        assert " ".join(text.split()) in " ".join(page.split()), text
    assert check.fix in page
    assert max(map(len, page.splitlines())) <= 240


def test_no_two_pages_share_a_text() -> None:
    seen: dict[str, str] = {}
    for made in CHECKS:
        for text in (made.page[WHAT], made.page[WHY]):
            assert text not in seen, f"{made.id} and {seen[text]}"
            seen[text] = made.id


def test_a_page_without_headings_has_its_reason_in_the_second_paragraph() -> None:
    """Older plug-ins use this form."""

    @check("made.old", title="t", source="s", fix="f")
    def old(node: object, site: object) -> Iterator[Finding]:
        """Compare two things.

        It slows jobs.

        It fails.

        Sometimes.
        """
        yield passed("good")

    assert old.page == {
        WHAT: "Compare two things.", WHY: "It slows jobs.", VERDICTS: "It fails.\n\nSometimes.", SOURCES: "s",
    }  # fmt: skip
    assert old.why == "It slows jobs."

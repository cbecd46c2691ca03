"""``preflight explain``: each check's page is a page of a runbook, with what is needed at three in the morning."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli.app import main
from preflight.model import Check, Scope

CHECKS = registry().checks
MARK = "A false alarm:"

#: What a check does.
VERBS = re.compile(r"(Compare|Read|Look|Find|Judge|Hold|Count|Measure|Tell)\b")

#: What a verdict is called on the pages.
VERDICTS = re.compile(
    r"\b(fails?|warns?|pass(es)?|unknown|judged|skip(s|ped)?|never a fail|gates? no job)\b", re.IGNORECASE
)

#: What makes a remedy more than advice: a command, an option, a file, a setting, or a hand on the hardware.
ACTION = re.compile(
    r"`[^`]+`|--[a-z]|\b(nvidia-smi|systemctl|sysctl|modprobe|journalctl|torchrun|Limit[A-Z]+|NCCL_[A-Z_]+|nvidia\.com/gpu)\b"
    r"|/etc/|\b(reseat|power-cycle)\b",
    re.IGNORECASE,
)


def paragraphs(check: Check) -> list[str]:
    return [" ".join(part.split()) for part in check.doc.split("\n\n")]


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_page_has_its_five_parts(check: Check) -> None:
    what, why, *rest = paragraphs(check)
    alarms = [part for part in rest if part.startswith(MARK)]
    threshold = " ".join(part for part in rest if part not in alarms)

    assert words(what) >= 5, "what is compared"
    assert re.match(VERBS, what), "the first word is what the check does"

    assert words(why) >= 12, "why it hurts: what happens to a job"

    assert words(threshold) >= 6, "when it fails or warns, and why there"
    assert VERDICTS.search(threshold), "which verdict follows from which value"

    assert len(alarms) == 1, f"a paragraph of its own that begins with {MARK!r}"
    assert words(alarms[0]) >= 9, "how a false alarm looks, so that it is recognised"

    assert re.search(r"https?://|\(\d\)|[A-Z]|the cluster file", check.source), "a source has a name or an address"

    assert words(check.fix) >= 3, "what to do"
    assert ACTION.search(check.fix), "the next step is a command or an act, not advice"


#: One page of each scope shows what `explain` does with a page; those of nodes, which differ most, are all looked at.
SHOWN = [check for check in CHECKS if check.scope is Scope.NODE or check.id in ("fleet.rails", "nccl.transport")]


@pytest.mark.parametrize("check", SHOWN, ids=lambda check: check.id)
def test_explain_shows_all_of_it(check: Check) -> None:
    page = CliRunner().invoke(main, ["explain", check.id]).output
    for part in (*paragraphs(check), check.fix, check.source):
        assert part in " ".join(page.split()), part
    assert max(map(len, page.splitlines())) <= 240


def test_no_two_pages_share_a_paragraph() -> None:
    seen: dict[str, str] = {}
    for check in CHECKS:
        for part in paragraphs(check)[:2]:
            assert part not in seen, f"{check.id} and {seen[part]}"
            seen[part] = check.id

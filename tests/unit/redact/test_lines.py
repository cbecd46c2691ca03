"""Random secrets and identities in lines that operators paste: none remains, and nothing else changes.

Each run draws new ones; a failure prints the seed to repeat it: `REDACT_SEED=… pytest tests/unit/redact/test_lines.py`.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable

import pytest

from preflight.collector.redact import MARK, redact, redact_value
from preflight.redact import Redactor
from tests.support.secret_lines import DRAWS, IDENTITIES, LOOKALIKES, NO_IDENTITIES, SECRETS, drawn

SEED = os.environ.get("REDACT_SEED") or str(random.SystemRandom().randrange(1 << 32))
#: Text around a line: a log's prefix, a mail's quote mark, terminal colours, JSON.
AROUND: dict[str, Callable[[str], str]] = {
    "alone": lambda line: line,
    "indented": lambda line: f"\t{line}\n",
    "syslog": lambda line: f"Nov 21 03:00:00 h1 app[1]: {line}",
    "pod": lambda line: f"2026-02-18T12:54:01.123Z {line}",
    "carriage returns": lambda line: line.replace("\n", "\r\n") + "\r\n",
    "JSON": lambda line: json.dumps({"a": line}),
    "colours": lambda line: f"\x1b[1m{line}\x1b[0m",
    "mail": lambda line: "> " + line.replace("\n", "\n> "),
    "brackets": lambda line: f"({line})",
    "sentence": lambda line: f"{line}.",
    "element": lambda line: f"<pre>{line}</pre>",
}
#: Those that can also surround a prompt or a table.
AROUND_LINES = {name: AROUND[name] for name in ("alone", "carriage returns", "colours")}


def chance(*what: object) -> random.Random:
    return random.Random(f"{SEED} {what}")


def test_there_are_enough_of_each() -> None:
    assert len({*SECRETS, *IDENTITIES}) >= 200
    assert len({*LOOKALIKES, *NO_IDENTITIES}) >= 100


@pytest.mark.parametrize("template", SECRETS)
def test_no_secret_is_left(template: str) -> None:
    draw = chance(template)
    for turn in range(60):
        around = list(AROUND)[turn % len(AROUND)]
        line, secrets = drawn(template, draw)
        left = redact(AROUND[around](line))
        assert MARK in left
        for secret in secrets:
            assert secret not in left, f"REDACT_SEED={SEED}, {around}: {line!r} -> {left!r}"
        assert redact(left) == left, f"REDACT_SEED={SEED}"


@pytest.mark.parametrize("template", [one for one in SECRETS if "\\n" not in one and "://" not in one][::6])
def test_no_secret_is_left_in_a_value(template: str) -> None:
    line, secrets = drawn(template, chance(template))
    left = json.dumps(redact_value({"records": {"cmd:x": {"status": "ok", "out": f"a\n{line}\nb"}}}))
    assert not [secret for secret in secrets if secret in left], f"REDACT_SEED={SEED}: {line!r} -> {left}"


@pytest.mark.parametrize("kind", ["aws", "b32", "b32open", "b64"])
def test_random_strings_are_found_without_a_name(kind: str) -> None:
    draw = chance(kind)
    for _ in range(500):
        secret = DRAWS[kind](draw)
        assert redact(f"got {secret} here") == f"got {MARK} here", f"REDACT_SEED={SEED}: {secret}"


@pytest.mark.parametrize("template", LOOKALIKES)
def test_no_look_alike_is_touched(template: str) -> None:
    draw = chance(template)
    for turn in range(40):
        around = list(AROUND)[turn % len(AROUND)]
        line = AROUND[around](drawn(template, draw)[0])
        assert redact(line) == line, f"REDACT_SEED={SEED}, {around}"


@pytest.mark.parametrize("template", IDENTITIES)
def test_no_identity_is_left(template: str) -> None:
    draw = chance(template)
    for turn in range(12):
        around = list(AROUND_LINES)[turn % len(AROUND_LINES)]
        line, names = drawn(template, draw)
        text = AROUND[around](line)
        left = redacted(text).lower()
        for name in names:
            assert name.lower() not in left, f"REDACT_SEED={SEED}, {around}: {line!r} -> {left!r}"


@pytest.mark.parametrize("template", NO_IDENTITIES)
def test_lines_without_identities_are_unchanged(template: str) -> None:
    line, _ = drawn(template, chance(template))
    assert redacted(line) == line, f"REDACT_SEED={SEED}"


def redacted(text: str) -> str:
    redactor = Redactor()
    redactor.learn(text)
    return redactor.text(text)


@pytest.mark.parametrize("letter", "bfnrtux")
@pytest.mark.parametrize("separator", ["\\", "\\\\"])
def test_a_windows_user_is_replaced_behind_what_looks_like_an_escape(letter: str, separator: str) -> None:
    path = separator.join(["C:", "Users", f"{letter}0041oreno", "run"])
    assert "oreno" not in redacted(path)
    assert redacted(path).endswith(separator + "run")


@pytest.mark.parametrize("line", ['Authorization="Bearer {} x', '"authorization": "{} y', 'Cookie: "session={}; a=b'])
def test_a_header_that_is_cut_off_within_its_quotes_is_replaced(line: str) -> None:
    secret = "q8Zr2LmX0aPd7Tk"
    once = redact(line.format(secret))
    assert secret not in once
    assert MARK in once
    assert redact(once) == once

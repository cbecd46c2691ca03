"""`preflight redact` in this process, with the same key in every run."""

from __future__ import annotations

from click.testing import CliRunner

from preflight.cli.app import main

KEY = b"the same in every run of the tests"


def run(*arguments: str, expect: int = 0) -> str:
    result = CliRunner().invoke(main, ["redact", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == expect, result.output
    return result.output

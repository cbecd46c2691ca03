"""Commands in this process."""

from __future__ import annotations

from click.testing import CliRunner

from preflight.cli.app import main


def run(*arguments: str, expect: tuple[int, ...] = (0,)) -> str:
    result = CliRunner().invoke(main, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in expect, result.output
    return result.stdout

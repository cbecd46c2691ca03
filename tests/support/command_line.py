"""Commands run in this process or in a separate one, and the schemas of their output."""

from __future__ import annotations

import json

from click.testing import CliRunner
from jsonschema import Draft202012Validator

from preflight.cli.app import main
from tests.support import paths

SCHEMAS = paths.ROOT / "preflight" / "schemas"


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def run(*arguments: str, expect: int | None = 0) -> str:
    result = CliRunner().invoke(main, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    if expect is not None:
        assert result.exit_code == expect, result.output
    return result.output


def without_run(text: str) -> str:
    document = json.loads(text)
    document.pop("run")
    return json.dumps(document)

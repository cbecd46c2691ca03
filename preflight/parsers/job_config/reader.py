"""Reader of job descriptions in any supported format."""

from __future__ import annotations

import sys
from typing import Any

from preflight.evidence import json_limits
from preflight.parsers.job_config import deepspeed, huggingface, megatron, nemo, torchtitan
from preflight.parsers.job_config.settings import JobConfigError, JobSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_KNOWN = (
    "a command line or script with Megatron's arguments, a DeepSpeed configuration, a job of NeMo or torchtitan, or a "
    "model's config.json"
)

#: Maximum number of dots in a line of TOML.
_MOST_DOTS = 500


def parse(text: str, source: str) -> JobSettings:
    """Detect the format of a job description and return its settings.

    ``source`` names the file in origins and messages. Raises JobConfigError if the text is in no supported format.
    """
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:1]
    if start == "{":
        data = _decoded(text, source)
        if deepspeed.begins(data):
            return deepspeed.parse(data, source)
        if huggingface.begins(data):
            return huggingface.parse(data, source)
        language = data.get("text_config") if isinstance(data, dict) else None
        if isinstance(language, dict) and huggingface.begins(language):
            return huggingface.parse(language, f"{source}: text_config")
        raise JobConfigError(f"{source}: this JSON is neither a model's config.json nor a DeepSpeed configuration")
    if megatron.begins(text):
        return megatron.parse(text, source)
    for number, row in enumerate(text.splitlines(), start=1):
        if row.count(".") > _MOST_DOTS:  # the time of tomllib grows with the square of the parts of a key
            raise JobConfigError(f"{source}:{number}: the line has more than {_MOST_DOTS} dots")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        data = None
    if torchtitan.begins(data):
        return torchtitan.parse(data, source)
    if nemo.looks_like(text) and nemo.begins(job := nemo.decoded(text, source)):
        return nemo.parse(job, source)
    raise JobConfigError(f"{source} does not describe a job in a supported format: {_KNOWN}")


def _decoded(text: str, source: str) -> Any:
    try:
        return json_limits.text(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise JobConfigError(
            f"{source}:{line}: invalid JSON: {getattr(error, 'msg', str(error)[:80] or 'nested too deeply')}"
        ) from None

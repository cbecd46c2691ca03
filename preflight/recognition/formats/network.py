"""Output formats of the network and of tools, described by their parsers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from preflight.parsers.registry import NETWORK, TOOLS
from preflight.recognition.formats.typed import output_format


def _description(module: str) -> Callable[[Any], tuple[dict[str, Any], str]]:
    parser = import_module(f"preflight.parsers.{module}")
    return lambda value: (parser.facts(value), parser.summary(value))


KINDS = tuple(output_format(name, _description(module)) for name, module in (*NETWORK.items(), *TOOLS.items()))

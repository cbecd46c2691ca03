"""The blocks of ``parsers.text_block``, by the name under which the formats of NICs import them."""

from __future__ import annotations

from preflight.parsers.text_block import (
    block,
    broken_off,
    cpu_ids,
    field,
    follows_command,
    is_prompt,
    json_at,
    number,
    queried_device,
    stops_in,
    value_or_none,
)

__all__ = [
    "block", "broken_off", "cpu_ids", "field", "follows_command", "is_prompt", "json_at", "number", "queried_device",
    "stops_in", "value_or_none",
]  # fmt: skip

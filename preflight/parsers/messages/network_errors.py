"""Parser of lines with an error signature of the kind ``NETWORK_TOOL``."""

from __future__ import annotations

from preflight.parsers.messages.scan import begins_with, hints, parser_of
from preflight.parsers.messages.signature import NETWORK_TOOL

begins = begins_with(NETWORK_TOOL)
parse_lines = parser_of(NETWORK_TOOL)
HINTS = hints(NETWORK_TOOL)

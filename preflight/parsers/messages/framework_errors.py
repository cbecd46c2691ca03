"""Parser of lines with an error signature of the kind ``FRAMEWORK``."""

from __future__ import annotations

from preflight.parsers.messages.scan import begins_with, hints, parser_of
from preflight.parsers.messages.signature import FRAMEWORK

begins = begins_with(FRAMEWORK)
parse_lines = parser_of(FRAMEWORK)
HINTS = hints(FRAMEWORK)

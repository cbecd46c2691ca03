"""Parser of lines with an error signature of the kind ``NVIDIA_SMI``."""

from __future__ import annotations

from preflight.parsers.messages.scan import begins_with, hints, parser_of
from preflight.parsers.messages.signature import NVIDIA_SMI

begins = begins_with(NVIDIA_SMI)
parse_lines = parser_of(NVIDIA_SMI)
HINTS = hints(NVIDIA_SMI)

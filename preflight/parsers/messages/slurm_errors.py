"""Parser of lines with an error signature of the kind ``SLURM``."""

from __future__ import annotations

from preflight.parsers.messages.scan import begins_with, hints, parser_of
from preflight.parsers.messages.signature import SLURM

begins = begins_with(SLURM)
parse_lines = parser_of(SLURM)
HINTS = hints(SLURM)

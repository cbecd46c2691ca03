"""Texts in the form of a real tool, recorded or re-made from public ones; never printed by this project.

``tests/data/outside/index.toml`` gives the origin of each file's form; ``preflight/parsers/provenance.py``
gives it to ``preflight explain``, and a test compares the two.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

from tests.support import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = paths.DATA / "outside"


@dataclass(frozen=True)
class Sample:
    """One text from outside."""

    file: str
    format: str  # a name of preflight.parsers.provenance
    origin: str  # URL of its form, or the machine on which it was recorded
    date: str  # time of recording or publication, as far as known
    version: str  # of the tool, if the origin states it; else empty
    note: str  # removed or redacted parts; empty: none
    refused: bool = False  # whether its parser must reject it
    remade: bool = False  # whether its names, addresses, times and values are invented

    @property
    def text(self) -> str:
        """The text as printed."""
        return (FOLDER / self.file).read_bytes().decode("utf-8", "surrogateescape")


@cache
def every() -> tuple[Sample, ...]:
    """Return all samples."""
    raw = tomllib.loads((FOLDER / "index.toml").read_text(encoding="utf-8"))
    return tuple(
        Sample(name, entry["format"], entry["origin"], entry["date"], entry.get("version", ""), entry.get("note", ""),
               entry.get("refused", False), entry.get("text") == "re-made")
        for name, entry in raw.items()
    )  # fmt: skip


def samples(format: str) -> tuple[Sample, ...]:
    """Return the samples of one format."""
    return tuple(sample for sample in every() if sample.format == format)


def text(file: str) -> str:
    """Return the text of one sample."""
    return next(sample.text for sample in every() if sample.file == file)

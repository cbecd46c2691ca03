"""Output within comments or list items: ``# driver: mlx5_core``, ``* driver: …``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from preflight.textprep.lines import Line, Lines

_MARK = re.compile(r"\s{0,12}(#|\*|//|;|-|>)(?:\s|$)")
#: Minimum number of consecutive lines with the same mark.
_LEAST = 2


def commented(lines: Lines, taken: Set[int]) -> Iterator[list[Line]]:
    """Yield runs of lines with a common mark, without the mark.

    Lines whose numbers are in ``taken``, which a parser has already read, are left out.
    """
    stretch: list[Line] = []
    mark = ""
    for line in lines:
        match = _MARK.match(line.text) if line.number not in taken else None
        if stretch and (not match or match[1] != mark):
            if len(stretch) >= _LEAST:
                yield stretch
            stretch = []
        if match:
            mark = match[1]
            stretch.append(Line(line.number, line.text[match.end() :]))
    if len(stretch) >= _LEAST:
        yield stretch

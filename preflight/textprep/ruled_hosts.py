"""Sections of ``clush -b`` and ``dshbak``, each with its hosts.

The hosts are between two lines of dashes above their output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.textprep.lines import Lines

_RULE = re.compile(r"-{15,16}\s*")
_HOSTS = re.compile(r"([A-Za-z](?=[\w.,\[\]-]{0,500}\d)[\w.,\[\]-]{0,500})(?P<number> \(\d{1,6}\))?\s*")


def split_by_heading(lines: Lines) -> Iterator[tuple[str, Lines]]:
    """Yield the sections with the hosts of their heading, as the tool writes them.

    Lines before the first heading have no host. A lone heading without a count of hosts is ignored: it may belong to a
    table.
    """
    heads = [
        (at, match)
        for at in range(1, len(lines) - 1)
        if lines[at - 1].text.startswith("-----------")
        and _RULE.fullmatch(lines[at - 1].text)
        and _RULE.fullmatch(lines[at + 1].text)
        and (match := _HOSTS.fullmatch(lines[at].text))
    ]
    if len(heads) < 2 and not any(match["number"] for _, match in heads):
        heads = []
    ends = [at - 1 for at, _ in heads] + [len(lines)]
    if ends[0]:
        yield "", lines[: ends[0]]
    for (at, match), end in zip(heads, ends[1:], strict=True):
        yield match[1], lines[at + 2 : end]

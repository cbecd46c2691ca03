"""``nvidia-smi -q`` without its line ends.

A page or a chat joined its lines, ``MIG Mode Current : N/A Pending …``.

Fields are separated by the known names of the tool. Before an unknown name, the end of a value is unknown: that value
is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from preflight.parsers.nvidia.query_log import key
from preflight.parsers.nvidia.query_sections import HEADS, NAMES

_COLON = re.compile(r"\s:(?:\s|$)")
#: Words of the output; without any of them in a line, more of its fields must be known.
_WORDS = ("NVSMI LOG", "Attached GPUs", "Product Name", "GPU UUID", "Power Limit", "Persistence Mode")
_BANNER = re.compile(r"(?<!=)=+\s?NVSMI LOG\s?=+")
_GPU = re.compile(r"(?<!\S)GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7](?!\S)")
#: Names before the GPUs, and names too common to identify this output.
_OTHERS = frozenset(("timestamp", "driver_version", "cuda_version", "attached_gpus", "type", "name"))
#: Minimum fields of one line, and known ones among them; the longest name in words.
_LEAST, _LEAST_KNOWN, _LEAST_ALONE, _LONGEST = 5, 4, 8, 7


def is_glued(text: str) -> bool:
    """Return whether a line has many fields of this output."""
    if text.count(" :") < _LEAST:
        return False
    before = [piece.split() for piece in _COLON.split(text)[:-1]]
    least = _LEAST_KNOWN if any(word in text for word in _WORDS) else _LEAST_ALONE
    return sum(bool(_tail(words, _is_field)) for words in before) >= max(least, len(before) / 2)


def apart(text: str) -> list[str]:
    """Return the lines of a joined one: ``name : value``, and section heads."""
    found: list[str] = []
    if banner := _BANNER.search(text):
        found.append(banner[0])
        text = text[banner.end() :]
    at = 0
    for match in _GPU.finditer(text):
        found += [*_fields(text[at : match.start()]), match[0]]
        at = match.end()
    return [*found, *_fields(text[at:])]


def _fields(text: str) -> Iterator[str]:
    gaps = [piece.split() for piece in _COLON.split(text)]
    name = ""
    for number, words in enumerate(gaps):
        last = number == len(gaps) - 1
        length = 0 if last else _tail(words, _is_field)
        end = len(words) - length
        behind = words[end:]
        heads: list[str] = []
        while head := _tail(words, HEADS.__contains__, end):
            heads.append(" ".join(words[end - head : end]))
            end -= head
        if name and (length or last):
            yield f"{name} : {' '.join(words[:end])}"
        yield from reversed(heads)
        name = " ".join(behind)


def _tail(words: Sequence[str], known: Callable[[str], bool], end: int | None = None) -> int:
    """Return the number of words before ``end`` that form a known name; 0 if none.

    The longest name is used.
    """
    end = len(words) if end is None else end
    return next((n for n in range(min(_LONGEST, end), 0, -1) if known(key(" ".join(words[end - n : end])))), 0)


def _is_field(name: str) -> bool:
    return name in NAMES or name in _OTHERS

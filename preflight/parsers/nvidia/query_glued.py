"""``nvidia-smi -q`` without line breaks.

A web page or chat joined the lines: ``MIG Mode Current : N/A Pending …``. The text is split at known field names. A
value that precedes an unknown name is left out, because its end is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from preflight.parsers.nvidia.query_log import key
from preflight.parsers.nvidia.query_sections import HEADS, NAMES

_COLON = re.compile(r"\s:(?:\s|$)")
#: Words that identify the output; a line without any of them must contain more known fields.
_WORDS = ("NVSMI LOG", "Attached GPUs", "Product Name", "GPU UUID", "Power Limit", "Persistence Mode")
_BANNER = re.compile(r"(?<!=)=+\s?NVSMI LOG\s?=+")
_GPU = re.compile(r"(?<!\S)GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7](?!\S)")
#: Further field names: those above the first GPU, and those that other tools also print.
_OTHERS = frozenset(("timestamp", "driver_version", "cuda_version", "attached_gpus", "type", "name"))
#: Minimum fields of a line; minimum known fields, with and without the words above; maximum words of a name.
_LEAST, _LEAST_KNOWN, _LEAST_ALONE, _LONGEST = 5, 4, 8, 7


def is_glued(text: str) -> bool:
    """Return whether a line contains many joined fields of ``nvidia-smi -q``."""
    if text.count(" :") < _LEAST:
        return False
    before = [piece.split() for piece in _COLON.split(text)[:-1]]
    least = _LEAST_KNOWN if any(word in text for word in _WORDS) else _LEAST_ALONE
    return sum(bool(_tail(words, _is_field)) for words in before) >= max(least, len(before) / 2)


def apart(text: str) -> list[str]:
    """Split a joined line into fields (``name : value``) and section headings."""
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
    """Return how many words before ``end`` form a known name.

    The longest name is used; without one, the result is 0.
    """
    end = len(words) if end is None else end
    return next((n for n in range(min(_LONGEST, end), 0, -1) if known(key(" ".join(words[end - n : end])))), 0)


def _is_field(name: str) -> bool:
    return name in NAMES or name in _OTHERS

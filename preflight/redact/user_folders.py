"""Aliases of users' folders, and of the names below them."""

from __future__ import annotations

import re
from collections.abc import Callable

from preflight.redact.aliases import WORD, Names
from preflight.redact.public_words import NO_USERS, vocabulary

#: Common file extensions.
_FILE = re.compile(
    r"\.(?:py|sh|txt|log|json|jsonl|toml|ya?ml|conf|cfg|ini|xml|csv|bin|dat|pt|so|md|[ch]|cpp|cu|out|err|gz|tar|zip|sqsh|"
    r"sif|img|ipynb|html?|db|parquet|safetensors)\Z"
)


def aliased(path: str, names: Names, words: Callable[[str], str]) -> str:
    """Return a path to a home directory, or below one, with aliases.

    Common words and standard accounts in it are preserved.
    """
    _, *parts = path.split("/")
    aliased_parts = [""]
    for place, part in enumerate(parts):
        if place == 0 or not owns(part, place < len(parts) - 1):
            aliased_parts.append(words(part) if place else part)
            continue
        aliased_parts.append(part if names.is_everywhere(part) else names.alias("user", part))
        aliased_parts += [words(more) if _is_usual(more) else _entry(more, names, words) for more in parts[place + 1 :]]
        break
    return "/".join(aliased_parts)


def owns(name: str, is_folder: bool) -> bool:
    """Return whether a name in a folder such as `/home` is that of a user.

    Shared folders and files are not users.
    """
    if name.lower() in NO_USERS or not re.match(r"[^\W\d]", name):
        return False
    return is_folder or not _FILE.search(name)


def _is_usual(part: str) -> bool:
    return all(
        word in vocabulary() or word.isdigit() or re.fullmatch("[a-z]{1,3}[0-9]{1,4}", word)
        for word in (match[0].lower() for match in WORD.finditer(part))
    )


def _entry(part: str, names: Names, words: Callable[[str], str]) -> str:
    stem, dot, ending = part.partition(".")
    known = dot and stem and _is_usual(ending)
    return names.alias("path", stem if known else part) + (f".{words(ending)}" if known else "")

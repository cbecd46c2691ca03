"""Secrets stay on the node: what is named or shaped like one is replaced by ``[redacted]``.

Every expression here takes time linear in the text: a name is matched once per run of its
characters, and whatever is unbounded is anchored at a start that cannot repeat within it.
"""

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Mapping

MARK = "[redacted]"

_SECRET_NAME = re.compile(
    r"token(?!s|iz)|secret|passw(?:or)?d|passphrase|(?:api|access|private)[ _-]?key|credential"
    r"|authorization|bearer",
    re.I,
)
_NAMED = re.compile(
    r"""(?<![\w.-])
    (?P<name>(?:(?:api|access|private)[ ])?[\w.-]+)
    (?P<sep>\\?["']?(?:[ \t]{1,8}=[ \t]{0,8}|=|[ \t]{0,8}:[ \t]{0,8})|["'],[ \t]{0,8}|[ \t\0]{1,8})
    """,
    re.I | re.X,
)
_VALUE = re.compile(
    r"""\\(?P<escaped>["'])(?P<inside>(?:(?!\\(?P=escaped))[^\n\0])+)\\(?P=escaped)
    |(?P<quote>["'])(?P<quoted>(?:\\[^\n\0]|(?!(?P=quote))[^\\\n\0])+)(?P=quote)
    |(?P<bare>(?:[^\s\0"']|["'](?![\s,}\])\0]|\Z))+)
    """,
    re.X,
)
_SCHEME = re.compile(r"(?:bearer|basic|digest|negotiate|token)[ \t]+[^\s\0\"']+", re.I)
_REST_OF_LINE = re.compile(r"[^\n\0\"']+")

_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.S,
)
_URL_PASSWORD = re.compile(r"(://[^\s/:@\0]{0,256}:)[^\s/\0]+@")
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
    eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?
    |(?:
        A[KS]IA[0-9A-Z]{16}
        |gh[pousr]_[A-Za-z0-9]{20,}
        |github_pat_\w{20,}
        |glpat-[\w-]{16,}
        |xox[a-z]-[\w-]{10,}
        |hf_[A-Za-z0-9]{16,}
        |sk-(?=[\w-]*[0-9])[\w-]{20,}
        |nvapi-[\w-]{16,}
    )(?![A-Za-z0-9]))""",
    re.X | re.A,
)
#: Characters of the shortest secret that is known by its shape: ``eyJ`` and twice five.
_SHORTEST = 14
#: Characters of the shortest text that names one: ``token``.
_SHORTEST_NAME = 5
_LONG = re.compile(r"(?<![A-Za-z0-9+])[A-Za-z0-9+]{32,}={0,2}")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"), re.compile("[g-zG-Z+]"))


def redact(text: str) -> str:
    """Return the text without its secrets; what is no secret keeps every character."""
    if len(text) < _SHORTEST_NAME:
        return text
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(MARK, text)
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1" + MARK + "@", text)
    if len(text) >= _SHORTEST:  # nearly all that a node says is a word or a number
        text = _SHAPES.sub(MARK, text)
        text = _LONG.sub(_long, text)
    return _named(text) if _SECRET_NAME.search(text) else text


def _long(found: "Any") -> str:
    """Redact a long string of mixed case with digits, unless it is a mangled C++ symbol."""
    run = found.group()
    symbol = run.startswith("Z") and found.string[: found.start()].endswith("_")
    return run if symbol or not all(part.search(run) for part in _MIXED) else MARK


def _named(text: str) -> str:
    """Redact the value that follows a secret's name in any of the forms people write."""
    pieces, done = [], 0
    for found in _NAMED.finditer(text):
        name, sep = found.group("name").lower(), found.group("sep")
        if found.start() < done or not _SECRET_NAME.search(name):
            continue
        assigned = "=" in sep or ":" in sep
        if not (assigned or name.startswith("-") or (name == "bearer" and "," not in sep)):
            continue
        value = _VALUE.match(text, found.end())
        if not value or value.group() in ('"', "'") or (not assigned and value.group().startswith("--")):
            continue
        start, end = value.span(next(form for form in ("inside", "quoted", "bare") if value.group(form)))
        whole = (_REST_OF_LINE if "authorization" in name else _SCHEME).match(text, start)
        pieces += [text[done:start], MARK]
        done = max(end, whole.end()) if whole else end
    return "".join(pieces) + text[done:]


@functools.lru_cache(maxsize=512)
def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))


def redact_value(value: "Any", name: str = "") -> "Any":
    """Return a JSON value without its secrets; ``name`` is the key under which it stood."""
    if isinstance(value, str):
        return MARK if name and value and _is_secret(name) else redact(value)
    if isinstance(value, dict):
        return {key: redact_value(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [redact_value(part, name) for part in value]
    return value


def environment(allowed: "Iterable[str]", variables: "Mapping[str, str]") -> "Dict[str, str]":
    """Return the variables whose names are allowed, exactly or by a trailing ``*``, without secrets."""
    names = [name for name in allowed if not name.endswith("*")]
    prefixes = tuple(name[:-1] for name in allowed if name.endswith("*"))
    kept = {name: value for name, value in variables.items() if name in names or name.startswith(prefixes)}
    return {name: redact_value(value, name) for name, value in sorted(kept.items())}

"""Redaction on the node: secrets are replaced by ``[redacted]``.

Secrets are recognised by name, context or shape.
"""

import re

from .secret_names import HINT, MARK, NONE, PASSWORD, STRONG, WEAK, is_secret, is_secret_value, strength
from .secret_places import in_places
from .secret_shapes import in_shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Tuple

__all__ = ["MARK", "environment", "is_secret", "redact", "redact_value"]

_SEPARATOR = re.compile(
    r"""\\?["']?\]?(?:[ \t\x1c]{1,40}(?::=|=>|[:=])[ \t\x1c]{0,40}|(?::=|=>|[:=])[ \t\x1c]{0,40})(?=\S|\Z)
    |["'],[ \t]{0,8}|[ \t\0\x1c]{1,8}|>(?=[^<])""",
    re.X,
)
_VALUE = re.compile(
    r"""\\(?P<escaped>["'])(?P<inside>(?:(?!\\(?P=escaped))[^\n\0])+)\\(?P=escaped)
    |(?P<quote>["'])(?P<quoted>(?:\\[^\n\0]|(?!(?P=quote))[^\\\n\0])+)(?P=quote)
    |(?P<bare>(?:[^\s\0"'<]|<(?!/)|["'](?![\s,}\])\0]|\Z))+)
    """,
    re.X,
)
_SCHEME = re.compile(r"(?:bearer|basic|digest|negotiate|token)[ \t]+[^\s\0\"']+", re.I)
_REST_OF_LINE = re.compile(r"[^\n\0\"']+")
#: The same after a quote that a truncated line does not close.
_UNCLOSED = re.compile(r"\\?[\"'](?P<rest>[^\n\0\"']+)(?=[\n\0]|\Z)")
_REST_OF_NAME = re.compile(r"[\w.-]*")
_LIST = re.compile("[&?;,:{<|]")
_IN_ADDRESS = re.compile(r"[^\s\0\"'&#<>;]+")
_IN_DOCUMENT = re.compile(r"[^\s\0\"',}\]]+")
_IN_ELEMENT = re.compile(r"[^<\n\0]+")
#: A YAML block on the lines below its key, also as quoted in a mail or escaped in JSON.
_BLOCK = re.compile(
    r"""[|>][-+0-9]{0,2}[ \t]{0,8}
    (?:\r?\n(?P<mail>(?:>[ ])?)(?P<indent>[ \t]{1,80})[^\s\0][^\n\0]*(?:\n(?P=mail)(?P=indent)[^\n\0]*)*
    |(?:\\r)?\\n(?P<spaces>[ ]{1,80})(?:[^\s\0"\\]|\\")(?:[^\n\0"\\]|\\(?!n)[^\n\0]|\\n(?P=spaces))*)
    """,
    re.X,
)
#: The same up to its first line, whose indentation identifies a block without reading all of it.
_BLOCK_BEGINS = re.compile(r"[|>][-+0-9]{0,2}[ \t]{0,8}\r?\n(?P<mail>(?:>[ ])?)(?P<indent>[ \t]{1,80})[^\s\0]")
_INDENT = re.compile(r"[ \t]*")
#: Words before a name that belong to it: `API key: x`, `Access Key ID: x`.
_QUALIFIED = re.compile(
    r"(?:\b(?:api|access|private|secret|licen[cs]e|signing|encryption|auth|account|storage|session|client|master|root|"
    r"admin|shared|user|wandb|bmc)[ ])\Z",
    re.I,
)
#: Syntax that sets a variable without an equals sign: csh, fish, Dockerfiles.
_SETS = re.compile(r"\b(?:setenv|ENV|ARG|set[ ]-[a-z]{1,3})[ \t]{1,4}\Z")
#: The cookie of an Open vSwitch flow, which is a number, not a secret.
_FLOW = re.compile(r"0x[0-9a-f]{1,16}(?:, |\s|\Z)")
#: A name and its value as separate fields: `- name: X_TOKEN` and `value: y`, also in JSON and XML.
_PAIR = re.compile(
    r"""\b(?:name|key)(?:\\?["'])?(?:[ \t]{0,8}[:=][ \t]{0,8}|>)(?:\\?["'])?(?P<name>[\w.-]{2,100})(?:\\?["'])?
    (?:,\s{0,40}|\s{1,40}(?:>\s{1,20})?|(?:\\[nrt]|[ ]){1,40}|</(?:name|key)>\s{0,40}<)
    (?:\\?["'])?value(?:\\?["'])?(?:[ \t]{0,8}[:=][ \t]{0,8}|>)""",
    re.X | re.I,
)
#: A value right after the word "password", without a separator, is redacted unless it is a word of a sentence.
_WORD_OF_A_SENTENCE = re.compile(r"[A-Za-z]?[a-z]*[a-z'][,;.:!?)]?|[A-Z]{2,12}|\W+|[\w-]+[:=(].*|.*\(\)?", re.S)

#: Colour codes of a terminal, also in escaped form, and their placeholder: white space that never occurs in text.
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|\u241b)\[(?:[0-9;?]{1,32}[A-Za-z]|[mKHJ])", re.I)
_IN_PLACE = "\x1c"

#: Minimum characters of a text with a named secret, and maximum characters of a name.
_SHORTEST, _LONGEST_NAME = 5, 128
#: Maximum number of characters of a value that are examined: values may be nested.
_LONGEST_JUDGED = 128


def redact(text: str) -> str:
    """Return the text without its secrets; all other text is unchanged."""
    if len(text) < _SHORTEST:
        return text
    if "[" in text and _IN_PLACE not in text and _COLOUR.search(text):
        return _coloured(text)
    return _named(in_places(in_shapes(text)))


def _coloured(text: str) -> str:
    """Redact text with colour codes, which count as spaces and are restored."""
    colours = iter(_COLOUR.findall(text))
    plain = _named(in_places(in_shapes(_COLOUR.sub(_IN_PLACE, text))))
    return re.sub(_IN_PLACE, lambda _: next(colours), plain)


def _named(text: str) -> str:
    """Redact the values that follow names of secrets, in all common notations."""
    if not HINT.search(text):
        return text
    spans = []  # type: List[Tuple[int, int]]
    seen = 0
    for hint in HINT.finditer(text):
        if hint.start() < seen:
            continue
        start = _start_of_name(text, hint.start(), seen)
        end = seen = _REST_OF_NAME.match(text, hint.end()).end()  # type: ignore[union-attr]
        if end - start > _LONGEST_NAME:
            start = end - _LONGEST_NAME
        span = _value_of(text, start, end)
        if span:
            seen = max(seen, span[1])
            if span[0] < span[1]:
                spans.append(span)
    if "value" in text.lower():
        spans = _merged(spans + _pairs(text))
    return _replaced(text, spans)


def _start_of_name(text: str, at: int, floor: int) -> int:
    floor = max(floor, at - _LONGEST_NAME)
    while at > floor and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        at -= 1
    return at


def _value_of(text: str, start: int, end: int) -> "Tuple[int, int]":
    """Return the span of the secret after a name; empty if there is none.

    A span of length zero is the end of a value that is not secret and contains no further name.
    """
    name = text[start:end]
    how, last = strength(name.strip(".-"))
    before = text[start - 1 : start]
    queried = before in ("?", "&") and start > 0
    if before == " ":
        qualified = _QUALIFIED.search(text, max(0, start - 14), start)
        if qualified:
            how, last = max((how, last), strength(qualified.group().replace(" ", "_") + name))
    elif how == NONE and name.lower() in ("key", "code", "sig") and queried:
        how, last = WEAK, True
    if how == NONE:
        return ()  # type: ignore[return-value]
    sep = _SEPARATOR.match(text, end)
    if not sep:
        return ()  # type: ignore[return-value]
    mark = sep.group()
    assigned = "=" in mark or ":" in mark
    flag = name.startswith("-")
    element = mark == ">" and before == "<"
    sets = _SETS.search(text, max(0, start - 12), start) is not None
    if not (assigned or flag or element or (mark[:1] in " \t\0" and (sets or _follows(name)))):
        return ()  # type: ignore[return-value]
    at = sep.end()
    if mark == ":" and text[at : at + 1] == ":":  # `pass::before`, `key::type`
        return ()  # type: ignore[return-value]
    block = _block(text, start, at) if how >= STRONG and ":" in mark and text[at : at + 1] in ("|", ">") else ()
    if block:
        return block
    tight = mark.strip("\"'\\") == "=" or flag
    header = assigned and ("authorization" in name.lower() or name.lower().strip(".-") in ("cookie", "set-cookie"))
    remainder = (_REST_OF_LINE if header else _SCHEME).match(text, at)
    if remainder and not (header and how == WEAK and (len(remainder.group()) < 12 or _FLOW.match(text, at))):
        return at, remainder.end()
    unclosed = _UNCLOSED.match(text, at) if header else None
    if unclosed and not (how == WEAK and len(unclosed.group("rest")) < 12):
        return unclosed.span("rest")
    if queried and "=" in mark:
        pattern = _IN_ADDRESS
    elif element:
        pattern = _IN_ELEMENT
    elif mark[:1] in "\"'" and text[at : at + 1] not in ("'", '"', "\\"):
        pattern = _IN_DOCUMENT
    else:
        pattern = _VALUE
    value = pattern.match(text, at, at + _LONGEST_JUDGED)
    if not value or value.group() in ('"', "'") or (element and text[value.end() : value.end() + 2] != "</"):
        return ()  # type: ignore[return-value]
    form = next((form for form in ("inside", "quoted", "bare") if value.groupdict().get(form)), 0)
    found, (first, final) = value.group(form), value.span(form)
    if not assigned and not element and (found.startswith("--") or (not flag and not _is_password(found, name))):
        return ()  # type: ignore[return-value]
    if not is_secret_value(found.strip(), how, last, tight or queried, name.lower().endswith("s")):
        # no further name in it, unless it is a list
        return () if _LIST.search(found) else (value.end(), value.end())  # type: ignore[return-value]
    if value.end() == at + _LONGEST_JUDGED:  # read completely only here, so that each value is read once
        value = pattern.match(text, at)
        final = value.end() if value else final
    if header and form == "bare" and how > WEAK:
        rest = _REST_OF_LINE.match(text, final)
        final = rest.end() if rest else final
    return first, final


def _block(text: str, start: int, at: int) -> "Tuple[int, int]":
    """Return the span of a YAML block; empty if it is not indented below its key."""
    begun = _BLOCK_BEGINS.match(text, at)
    if begun:
        mark = len(begun.group("mail"))
        line = text.rfind("\n", max(0, start - 200), start) + 1
        outer = _INDENT.match(text, line + mark, start).end() - line  # type: ignore[union-attr]
        if mark + len(begun.group("indent")) <= outer:
            return ()  # type: ignore[return-value]
    found = _BLOCK.match(text, at)
    return (at, found.end()) if found else ()  # type: ignore[return-value]


def _follows(name: str) -> bool:
    """Return whether the value may follow a name directly: `password x`."""
    return name.lower() == "bearer" or (strength(name)[0] == PASSWORD and name.lower() != "pass")


def _is_password(text: str, name: str) -> bool:
    if name.lower() == "bearer":
        return True
    return len(text) > 3 and not _WORD_OF_A_SENTENCE.fullmatch(text[:200])


def _pairs(text: str) -> "List[Tuple[int, int]]":
    spans = []
    for found in _PAIR.finditer(text):
        value = _VALUE.match(text, found.end())
        if found.group().endswith(">"):
            value = _IN_ELEMENT.match(text, found.end())
        if value:
            form = next((form for form in ("inside", "quoted", "bare") if value.groupdict().get(form)), 0)
            if is_secret(found.group("name"), value.group(form)):
                spans.append(value.span(form))
    return spans


def _merged(spans: "List[Tuple[int, int]]") -> "List[Tuple[int, int]]":
    """Return spans in order, without those that overlap an earlier one."""
    merged = []  # type: List[Tuple[int, int]]
    for span in sorted(spans):
        if not merged or span[0] >= merged[-1][1]:
            merged.append(span)
    return merged


def _replaced(text: str, spans: "List[Tuple[int, int]]") -> str:
    pieces, done = [], 0
    for start, end in spans:
        pieces += [text[done:start], MARK]
        done = end
    return "".join(pieces) + text[done:]


def redact_value(value: "Any", name: str = "") -> "Any":
    """Return a JSON value without secrets; ``name`` is its key."""
    if isinstance(value, str):
        return MARK if name and value and is_secret(name, value) else redact(value)
    if isinstance(value, dict):
        named = value.get("name")
        paired = named if isinstance(named, str) and "value" in value else ""
        return {key: redact_value(part, paired if paired and key == "value" else key) for key, part in value.items()}
    if isinstance(value, list):
        return [redact_value(part, name) for part in value]
    return value


def environment(allowed: "Iterable[str]", variables: "Mapping[str, str]") -> "Dict[str, str]":
    """Return the allowed variables without secrets.

    ``allowed`` lists names, and prefixes with a trailing ``*``.
    """
    names = [name for name in allowed if not name.endswith("*")]
    prefixes = tuple(name[:-1] for name in allowed if name.endswith("*"))
    selected = {name: value for name, value in variables.items() if name in names or name.startswith(prefixes)}
    return {name: redact_value(value, name) for name, value in sorted(selected.items())}

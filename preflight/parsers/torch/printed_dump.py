"""Printed flight-recorder dumps: Python literals and the analyser's output.

``print(pickle.load(f))`` prints single quotes, tuples, True and None; the analyser ``torchfrtrace`` prints lines of
``name: value``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

from preflight._startup.lightclass import dataclass

_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|\b(?P<word>True|False|None)\b|(?P<tuple>[()])"
    r"|(?P<last>,)(?=\s*[)\]}])|(?<=[{,\s])(?P<key>\d{1,9})(?=\s?:)"
)
#: Marks that a user writes instead of omitted elements.
_LEFT_OUT = re.compile(r"(?m)^[ \t]*\.{3},?[ \t]*$|\.{3}(?=\s*[\]}])")
_WORDS = {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]"}


def as_json(text: str) -> str:
    """Convert a Python literal to JSON; return other text unchanged."""

    def replaced(match: re.Match[str]) -> str:
        if match["text"]:
            return _quoted(match["text"])
        if match["last"]:
            return ""
        return f'"{match["key"]}"' if match["key"] else _WORDS[match[0]]

    return _TOKEN.sub(replaced, _LEFT_OUT.sub("", text))


def _quoted(text: str) -> str:
    if "\\" not in text:
        return json.dumps(text[1:-1], ensure_ascii=False)
    try:
        return json.dumps(str(ast.literal_eval(text)), ensure_ascii=False)
    except (ValueError, SyntaxError):
        return json.dumps(text[1:-1], ensure_ascii=False)


#: The analyser's message about a failed collective, since PyTorch 2.5. Older versions name the entry of the dump; newer
#: ones print a sequence number.
ANALYSED = re.compile(
    r"(?:.{0,120}?[\]:])?\s{0,8}(?:(?P<what>Not all ranks joining collective|Input/output mismatch in the collective"
    r"|Collective errors for collective|Error found in collective)"
    r"(?:[,:]? sequence number:?|)\s{0,2}(?P<seq>\d{1,12})?(?: at entry \d{1,9})?"
    r"|Collective(?: sequence number:?)? (?P<errs>\d{1,12})(?: at entry \d{1,9})?(?: has)? errors?\b).{0,200}"
)
_FIELD = re.compile(
    r"(?:.{0,120}?\]\s|[A-Z]{4,8}:[\w.]{1,60}:)?\s{0,8}"  # a logger's mark
    r"(?P<name>internal record id|group info|collective|missing ranks|input sizes|output sizes"
    r"|total (?:in|out)put numel|world size|expected ranks|collective state|error msg|(?:found |candidate )?ranks)"
    r"\s?: ?(?P<value>.{0,2000})"
)


@dataclass(frozen=True)
class Analysed:
    """The analyser's result for one collective; a value that is not printed is None."""

    what: str
    seq: int | None
    group: str | None
    description: str | None
    op: str | None
    missing_ranks: tuple[int, ...] | None
    input_sizes: Any
    output_sizes: Any
    expected_ranks: int | None
    state: str | None


def analysed(first: str, after: Iterable[str]) -> tuple[Analysed, int] | None:
    """Return the analyser's result for one collective, and its number of lines.

    None if the text does not start with such a result.
    """
    if not (match := ANALYSED.fullmatch(first)):
        return None
    fields: dict[str, str] = {}
    count = 1
    for line in after:
        if not (field := _FIELD.fullmatch(line)) or field["name"] in fields:
            break
        fields[field["name"]] = field["value"].strip()
        count += 1
    if not fields:
        return None
    group, _, about = fields.get("group info", "").partition(":")
    expected = fields.get("expected ranks", fields.get("world size", ""))
    ranks = _ranks(expected)
    seq = match["seq"] or match["errs"]
    return Analysed(
        match["what"] or "Collective errors", int(seq) if seq else None, group or None, about or None,
        fields.get("collective"), _ranks(fields["missing ranks"]) if "missing ranks" in fields else None,
        _literal(fields.get("input sizes")), _literal(fields.get("output sizes")),
        len(ranks) if expected[:1] == "{" else ranks[0] if len(ranks) == 1 else None, fields.get("collective state"),
    ), count  # fmt: skip


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d{1,7}", text[:100_000]))


def _literal(text: str | None) -> Any:
    if text is None or not re.fullmatch(r"[\d\s,\[\]()]{1,2000}", text):
        return None
    try:
        return json.loads(as_json(text))
    except ValueError:
        return None

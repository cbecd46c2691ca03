"""Replace typographic characters with those that tools print."""

from __future__ import annotations

import re

from preflight.textprep.plain_text import uncoloured

#: Invisible characters: word breaks and text direction.
_UNSEEN = dict.fromkeys(
    [0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF]
)
_BLANK = dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
#: Characters that no known tool prints; typesetting creates them from plain ones.
_TYPESET = {
    **dict.fromkeys([0x2018, 0x2019, 0x201B], "'"), **dict.fromkeys([0x201C, 0x201D, 0x201F], '"'),
    **dict.fromkeys([0x2010, 0x2011, 0x2012, 0x2013, 0x2212], "-"),
}  # fmt: skip
_PLAIN: dict[int, str | None] = {**_UNSEEN, **_BLANK, **_TYPESET}
_ANY = re.compile("[" + "".join(map(re.escape, map(chr, _PLAIN))) + "]")
#: A dash that typesetting created from two or three hyphens.
_RULE = re.compile(r"(?<!\S)-*—[—-]*(?!\S)")

#: A colour sequence as viewers, loggers and syslog show it: ``^[[0m``, ``\x1b[0m``, ``\033[0m``, ``#033[0m``,
#: ``ESC[0m``.
_SHOWN_COLOUR = re.compile(r"(?:\^\[|\\(?:x1[bB]|033|u001[bB]|e)|#033|ESC|[\u241b\ufffd])\[[0-9;:]{0,20}[mK]")
#: A cursor movement to the right, used instead of blanks.
_GO_RIGHT = re.compile(r"\x1b\[(\d{1,3})C")
#: A character and the backspace that deleted it.
_TAKEN_BACK = re.compile(r"[^\x08\n]\x08(?: \x08)?")
_MOST_TAKEN_BACK = 64


def plain_characters(text: str) -> str:
    """Remove colours and invisible characters, and replace typographic ones.

    The number of lines is preserved.
    """
    if "\x1b" in text:
        text = uncoloured(_GO_RIGHT.sub(lambda match: " " * int(match[1]), text))
    if "[" in text and _SHOWN_COLOUR.search(text):
        text = _SHOWN_COLOUR.sub("", text)
    if "\x08" in text:
        text = _without_taken_back(text)
    text = text.replace("\f", "").replace("\v", "")
    if text.isascii() or not (_ANY.search(text) or "—" in text):
        return text
    return _RULE.sub(lambda rule: "---" * len(rule[0]), text.translate(_PLAIN))


def _without_taken_back(text: str) -> str:
    for _ in range(_MOST_TAKEN_BACK):
        again = _TAKEN_BACK.sub("", text)
        if again == text:
            break
        text = again
    return text

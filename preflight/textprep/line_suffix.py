"""Suffixes of messages, from terminals, web pages, source code or log viewers."""

from __future__ import annotations

import re

from preflight.textprep.plain_text import strip_ray_repeat

#: A single word, from which nothing is removed, such as most channel transports.
_WORD = re.compile(r"[\w/:.()-]*[\w)]", re.ASCII)
#: Citation marks that a language model appends to a line.
_CITED = re.compile(r"\s*\[cite: [\d, ]{1,40}\]$")
#: The end of a string in source code or JSON.
_QUOTED = re.compile(r"(?:\\n)?([\"'`])[\s,;+)\\]*$")
_AFTER_QUOTED = tuple("\"'`,;+)\\")
#: A comment after a message; NCCL's messages are ASCII and contain none of these marks.
_ANNOTATION = re.compile(r"(?<=\S)\s+(?:#\s|//\s|<-{1,2}\s|[^\x00-\x7f│┃║]).*", re.DOTALL)
_FRAMES = " \t│┃║`|"
_WRITTEN_OUT = ('\\n"', "\\n'", "\\n", "**")
_LEFT_BEHIND = (*_FRAMES[2:], *_WRITTEN_OUT)


def trimmed(text: str) -> str:
    """Remove suffixes: terminal text, comments, frames, quotes and escaped line ends."""
    if _WORD.fullmatch(text):
        return text
    text = strip_ray_repeat(text.partition("\r")[0].strip())
    if "[cite: " in text:
        text = _CITED.sub("", text)
    if not text.isascii() or "# " in text or "// " in text or "<-" in text:
        text = _ANNOTATION.sub("", text)
    if text.endswith(_AFTER_QUOTED) and (quote := _QUOTED.search(text)) and text.count(quote[1]) % 2:
        text = text[: quote.start()].rstrip()
    while text.endswith(_LEFT_BEHIND):
        text = text.rstrip(_FRAMES)
        for end in _WRITTEN_OUT:
            text = text.removesuffix(end)
    return text

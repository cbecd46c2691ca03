"""Markdown for chats and tickets: text of nodes is shown, never interpreted."""

from __future__ import annotations

import re

from preflight.reports.sanitize import one_line

_CODE = re.compile(r"`([^`]+)`")
_MARKUP = re.compile(r"([\\*_{}\[\]<>#|!~])")


def plain(text: object) -> str:
    """Escape Markdown and chat markup, and disable mentions and links."""
    escaped = _MARKUP.sub(r"\\\1", one_line(str(text)))
    return escaped.replace("`", "'").replace("@", "@\u200b").replace("://", ":\u200b//")


def code(text: object) -> str:
    """Return text as a code span."""
    return "`" + one_line(str(text)).replace("`", "'") + "`"


def prose(text: object) -> str:
    """Escape a sentence, but keep commands between backticks as code spans."""
    parts = _CODE.split(one_line(str(text)))
    return "".join(code(part) if number % 2 else plain(part) for number, part in enumerate(parts))

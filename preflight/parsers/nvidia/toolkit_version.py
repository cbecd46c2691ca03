"""``nvidia-ctk --version``: the NVIDIA Container Toolkit."""

from __future__ import annotations

import re

_VERSION = re.compile(r"\bversion:? ([0-9][\w.+~-]{0,40})")


def toolkit_version(text: str) -> str:
    """Return the version; raises ValueError."""
    if not (match := _VERSION.search(text)):
        raise ValueError(f"{text.strip()[:60]!r} names no version")
    return match[1]

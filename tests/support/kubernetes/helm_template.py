"""Renderer for the templates of our chart where helm is missing: exactly the actions that they use.

``{{ .Values.a.b }}`` with ``quote`` and ``indent N``, and ``{{- if .Values.a.b }}`` to ``{{- end }}`` on lines of their
own, not nested. Anything else is refused, so that a template cannot use what only helm can judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_ACTION = re.compile(r"\{\{(.*?)\}\}", re.S)
_IF = re.compile(r"\{\{- if \.Values\.([\w.]+) \}\}")
_VALUE = re.compile(r" \.Values\.([\w.]+)((?: \| (?:quote|indent \d+))*) ")


def _value(values: Mapping[str, Any], path: str) -> Any:
    value: Any = values
    for name in path.split("."):
        value = value[name]  # KeyError: the chart has no such value
    return value


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Render one template; raise ValueError for an action that the chart does not use today."""

    def action(match: re.Match[str]) -> str:
        use = _VALUE.fullmatch(match[1])
        if use is None:
            raise ValueError(f"this renderer does not know {match[0]}")
        value = _value(values, use[1])
        if isinstance(value, (Mapping, list, bool)) or value is None:
            raise ValueError(f"{use[1]} is no text or number")
        text = str(value)
        for function in use[2].split(" | ")[1:]:
            name, _, by = function.partition(" ")
            text = json.dumps(text) if name == "quote" else re.sub("^", " " * int(by), text, flags=re.M)
        return text

    lines: list[str] = []
    shown = open_ = None
    for line in template.splitlines():
        if match := _IF.fullmatch(line):
            if open_:
                raise ValueError("nested conditions")
            open_, shown = line, bool(_value(values, match[1]))
        elif line == "{{- end }}":
            if not open_:
                raise ValueError("an end without a condition")
            open_ = shown = None
        elif shown is not False:
            lines.append(line)
    if open_:
        raise ValueError(f"no end of {open_}")
    return _ACTION.sub(action, "\n".join(lines) + "\n")

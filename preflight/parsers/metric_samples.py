"""Samples of metrics in the Prometheus text format (exposition format 0.0.4)."""

from __future__ import annotations

import re

#: Maximum length of a line.
LONGEST = 20_000

_NAME = r"[A-Za-z_:][\w:]{0,199}"
#: A sample: its name, its labels with braces, and its value.
SAMPLE = re.compile(
    rf"({_NAME})(\{{(?:[^{{}}\"\\]|\"(?:[^\"\\]|\\.){{0,2000}}\"){{0,400}}\}})?\s{{1,8}}"
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?|Inf|NaN))(?:\s{1,8}-?\d{1,17})?"
    r"(?:\s# \{.{0,400})?\s*"  # an OpenMetrics exemplar
)
COMMENT = re.compile(r"# (?:HELP|TYPE|UNIT|EOF)\b")
LABEL = re.compile(r"([A-Za-z_]\w{0,99})\s?=\s?\"((?:[^\"\\]|\\.){0,2000})\"")

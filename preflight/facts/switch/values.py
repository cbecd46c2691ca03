"""Values in the answers of a switch, which may be of any type.

A value of the wrong type is None or empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_number(value: Any) -> int | None:
    """Return the value if it is a non-negative integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number_in(value: Any) -> int | None:
    """Return the number that a string consists of, else None."""
    digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 21
    return int(value) if digits else None


def as_decimal(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if real else None

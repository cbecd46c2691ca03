"""Rates of large copies within a GPU's memory, from a trace.

A copy reads and writes each byte once. Kineto reports the bytes in ``args`` of a ``gpu_memcpy`` event.
"""

from __future__ import annotations

from array import array
from typing import Any

#: Minimum number of bytes in a copy; smaller ones fit in the cache of a GPU.
_LARGE = 256 << 20
#: Maximum number of bytes in a copy, of stored copies, and minimum number of copies for a rate.
_SANE, _MOST, _ENOUGH = 1 << 40, 10_000, 3


class MemoryCopies:
    """Rates of large copies from a GPU to itself."""

    def __init__(self) -> None:
        self._rates = array("d")  # bytes/s, read and written
        self._largest = 0

    def copied(self, amount: int | None, length_us: float) -> None:
        """Add a copy of ``amount`` bytes."""
        if amount is None or not _LARGE <= amount < _SANE or length_us <= 0 or len(self._rates) >= _MOST:
            return
        self._rates.append(2 * amount / length_us * 1e6)
        self._largest = max(self._largest, amount)

    def document(self) -> dict[str, Any] | None:
        """Return the highest rate; None for too few copies.

        Kernels that run at the same time slow copies down.
        """
        if len(self._rates) < _ENOUGH:
            return None
        return {"count": len(self._rates), "bytes": self._largest, "bytes_per_s": round(max(self._rates))}

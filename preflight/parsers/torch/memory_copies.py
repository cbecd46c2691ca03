"""Large copies within the memory of a GPU in a trace: bytes over time.

A copy reads and writes each byte once. Kineto gives the bytes of copies, in ``args`` of ``gpu_memcpy`` events.
"""

from __future__ import annotations

from array import array
from typing import Any

#: Minimum bytes of a copy: smaller ones fit in the cache of a GPU.
_LARGE = 256 << 20
#: Maximum bytes of a copy, maximum number of stored copies, and minimum number for a rate.
_SANE, _MOST, _ENOUGH = 1 << 40, 10_000, 3


class MemoryCopies:
    """Rates of large copies from a GPU to itself."""

    def __init__(self) -> None:
        self._rates = array("d")  # bytes/s, read and written
        self._largest = 0

    def copied(self, amount: int | None, length_us: float) -> None:
        """Add a copy of some bytes."""
        if amount is None or not _LARGE <= amount < _SANE or length_us <= 0 or len(self._rates) >= _MOST:
            return
        self._rates.append(2 * amount / length_us * 1e6)
        self._largest = max(self._largest, amount)

    def document(self) -> dict[str, Any] | None:
        """Return the highest rate, since kernels slow down other copies; None below three."""
        if len(self._rates) < _ENOUGH:
            return None
        return {"count": len(self._rates), "bytes": self._largest, "bytes_per_s": round(max(self._rates))}

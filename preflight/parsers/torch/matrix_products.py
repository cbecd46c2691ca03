"""Large matrix products in a trace: their operations and their kernels' time.

A trace has shapes and types with ``record_shapes=True``. A kernel names the operator that launched it by External id.
A product of M x K by K x N takes 2 M N K floating-point operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from preflight.parsers.torch.trace_events import Arguments

#: Minimum number of floating-point operations of a stored product, and its minimum dimension; smaller products are
#: limited by memory or launch overhead.
_LARGE, _LEAST_SIDE = 1e11, 1024
#: Maximum number of stored products.
_MOST = 20_000
#: Minimum number of products of one size for a median.
_ENOUGH = 3
#: Operator -> index of the argument with the first matrix, and whether arguments are batches of matrices.
_PRODUCTS = {"aten::mm": (0, False), "aten::addmm": (1, False), "aten::bmm": (0, True), "aten::baddbmm": (1, True)}
NAMES = frozenset(_PRODUCTS)
_TYPES = {"c10::bfloat16": "bfloat16", "c10::half": "float16"}


class MatrixProducts:
    """Large products of 16-bit matrices, and the times of their kernels."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[str, float]] = {}  # External id → type, number of operations
        self._us: dict[int, float] = {}

    def called(self, name: str, arguments: Arguments) -> None:
        """Add a CPU operator; ``name`` is one of ``NAMES``."""
        if len(self._of) >= _MOST:
            return
        number, dims, types = arguments.external_id, arguments.shapes, arguments.types
        first, batched = _PRODUCTS[name]
        if number is None or not isinstance(dims, list) or not isinstance(types, list):
            return
        if len(dims) < first + 2 or len(types) < first + 2:
            return
        kind = _TYPES.get(str(types[first]).lower())
        sides = _sides(dims[first], dims[first + 1], batched)
        if kind and sides and min(sides[-3:]) >= _LEAST_SIDE:
            operations = 2.0
            for side in sides:
                operations *= side
            if _LARGE <= operations < 1e18:
                self._of[number] = (kind, operations)

    def ran(self, number: int | None, length: float) -> None:
        """Add a compute kernel of an operator, with its duration in microseconds."""
        if number in self._of:
            self._us[number] = self._us.get(number, 0.0) + length

    def largest(self) -> dict[str, Any] | None:
        """Return the rate of the largest product with three or more samples, or None."""
        by_size: dict[tuple[float, str], list[float]] = {}
        for number, length in self._us.items():
            kind, operations = self._of[number]
            if length > 0:
                by_size.setdefault((operations, kind), []).append(length)
        enough = [size for size, lengths in by_size.items() if len(lengths) >= _ENOUGH]
        if not enough:
            return None
        operations, kind = max(enough)
        lengths = by_size[operations, kind]
        return {
            "dtype": kind, "operations": operations, "count": len(lengths),
            "median_us": round(median(lengths), 3), "flops": round(operations / median(lengths) * 1e6),
        }  # fmt: skip


def _sides(first: object, second: object, batched: bool) -> Sequence[int]:
    """Return M, K and N of a product, after the batch if any; else empty."""
    if not isinstance(first, list) or not isinstance(second, list):
        return ()
    if len(first) != 2 + batched or len(second) != 2 + batched:
        return ()
    sides = (*first, second[-1])
    return sides if all(type(side) is int and 0 < side < 1 << 31 for side in sides) else ()

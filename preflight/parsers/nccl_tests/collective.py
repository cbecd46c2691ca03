"""Detection of the collective of an nccl-tests table that does not name it.

Two ratios differ between collectives (nccl-tests doc/PERFORMANCE.md and src/*.cu): busbw / algbw, and size / (elements
x bytes per element), which is the number of ranks for the gather family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.parsers.nccl_tests.model import Measurement, Row

#: Bytes per element, by type name in nccl-tests and RCCL's tests.
TYPE_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "float16": 2,
    "bfloat16": 2, "int": 4, "int32": 4, "uint32": 4, "float": 4, "float32": 4, "int64": 8, "uint64": 8, "double": 8,
    "float64": 8,
}  # fmt: skip

#: Collectives with the data of all ranks as their size.
GATHERING = frozenset({"all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter", "hypercube"})


def factor(collective: str, ranks: int) -> float | None:
    """Return busbw / algbw of a collective (doc/PERFORMANCE.md); None if unknown."""
    if ranks < 1:
        return None
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if collective in ("broadcast", "reduce", "sendrecv", "hypercube") else None


def ranks_of(row: Row) -> int | None:
    """Return size / (elements x bytes per element); None if it is not an integer.

    It is the number of ranks for the gather family, and otherwise 1.
    """
    width = TYPE_BYTES.get(row.dtype)
    if not width or row.count <= 0 or row.bytes <= 0 or row.bytes % (row.count * width):
        return None
    return row.bytes // (row.count * width)


def ratio_of(row: Row) -> float | None:
    """Return busbw / algbw; None below 1 GB/s, where rounding makes it inaccurate."""
    for half in row.halves:
        if half.algbw_gbytes_s >= 1 and math.isfinite(half.busbw_gbytes_s + half.algbw_gbytes_s):
            return half.busbw_gbytes_s / half.algbw_gbytes_s
    return None


def collective_of(
    rows: Sequence[Row], ranks: int | None = None, called: str | None = None, has_redop: bool | None = None
) -> str | None:
    """Return the collective of a table; None if several fit.

    ``called`` is the collective of a preceding command line; it is returned if the table fits or is not conclusive.
    """
    if not rows:
        return called
    could_be = candidates(rows, ranks, has_redop)
    if called is not None and (called in could_be or not could_be):
        return called
    if could_be == ("all_reduce", "sendrecv"):
        return "all_reduce" if any(_checked(row.in_place) for row in rows) else None
    return could_be[0] if len(could_be) == 1 else None


def candidates(rows: Sequence[Row], ranks: int | None, has_redop: bool | None) -> tuple[str, ...]:
    """Return the collectives that fit a table; empty if none can be concluded."""
    sized = sorted((row for row in rows if row.bytes > 0), key=lambda row: row.bytes)
    row = next((row for row in reversed(sized) if ratio_of(row) is not None), sized[-1] if sized else None)
    if row is None:
        return ()
    ratio, spread = ratio_of(row), ranks_of(row)
    if spread is not None and spread > 1 and ranks == 1:
        return ()
    one = ratio is not None and abs(ratio - 1) < 0.02
    reduces, rooted = row.redop not in (None, "none"), row.root is not None and row.root >= 0
    gathers = spread > 1 if spread is not None else ratio is not None and ratio < 0.98
    if reduces:
        return _reducing(row, ratio, rooted, ranks)
    if rooted:
        return ("gather", "scatter") if gathers else ("broadcast",) if one or ratio is None else ()
    if not gathers:
        return ("sendrecv",) if one and spread == 1 else ()
    if row.redop is None and has_redop:
        return ("alltoall",)  # alltoall leaves the column blank up to 2.12
    if row.redop is None and has_redop is False:
        return ("all_gather",)
    if one and spread is not None:
        return ("hypercube", "all_gather")
    if (unchecked := _unchecked_in_place(row)) is None:
        return ("all_gather", "alltoall")
    return ("alltoall",) if unchecked else ("all_gather",)


def _reducing(row: Row, ratio: float | None, rooted: bool, ranks: int | None) -> tuple[str, ...]:
    spread = ranks_of(row)
    if rooted:
        return ("reduce",) if ratio is None or abs(ratio - 1) < 0.02 else ()
    if spread is not None and spread > 1:
        return ("reduce_scatter",)
    if _unchecked_in_place(row):
        return ("sendrecv",)
    if ratio is None:
        return ("all_reduce", "sendrecv") if spread == 1 else ()
    if ratio < 0.98:
        return ("reduce_scatter",) if spread is None else ()
    if ratio > 1.02:
        return ("all_reduce",)
    return ("sendrecv",) if ranks is not None and ranks > 2 else ("all_reduce", "sendrecv")


def _checked(half: Measurement | None) -> bool:
    return half is not None and (half.wrong is not None or half.max_error is not None)


def _unchecked_in_place(row: Row) -> bool | None:
    """Return whether only the out-of-place half was checked, as in alltoall.

    Older versions of sendrecv do the same. None if neither half was checked, or one is missing.
    """
    out, inside = row.out_of_place, row.in_place
    if out is None or inside is None or not (_checked(out) or _checked(inside)):
        return None
    return not _checked(inside)


def contradictions(rows: Sequence[Row], collective: str | None, ranks: int | None) -> tuple[str, ...]:
    """Return descriptions of columns that contradict the collective and ranks.

    The collective, the number of ranks or the figures may be wrong. busbw may differ from algbw times its factor by 1%
    and by rounding to two decimals.
    """
    if collective is None or ranks is None or ranks < 2:
        return ()
    found = []
    wanted = factor(collective, ranks)
    for row in rows:
        spread = ranks_of(row)
        # up to 2.0.0, all_gather and reduce_scatter counted the bytes that a rank receives
        known = {wanted, 1.0} if collective in GATHERING else {wanted}
        if wanted is not None and not any(_fits(half, f) for half in row.halves for f in known if f is not None):
            found.append(
                f"line {row.line}: busbw is not algbw x {wanted:.4g}, the factor of {collective} over {ranks} ranks"
            )
            break
        if spread is not None and spread != (ranks if collective in GATHERING else 1):
            found.append(
                f"line {row.line}: the size is {spread} times that of the elements, which is wrong for "
                f"{collective} over {ranks} ranks"
            )
            break
    return tuple(found)


def _fits(half: Measurement, wanted: float) -> bool:
    expected = half.algbw_gbytes_s * wanted
    if not math.isfinite(expected + half.busbw_gbytes_s):
        return True
    return abs(half.busbw_gbytes_s - expected) <= 0.01 * abs(expected) + 0.02

"""Reports of nccl-tests, version by version, generated from its grammar; the figures are invented.

The formats follow src/common.cu, src/util.cu and the table headers of v1.0.0, v2.0.0 … v2.19.6. A report is a text and
its certain facts, with which the result for a marked, noisy or cut text is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WIDTH = {"float": 4, "half": 2, "double": 8, "int8": 1, "bfloat16": 2, "uint64": 8, "f8e4m3": 1}
GATHERING = {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"}
REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}

#: Columns between type and time, up to 2.12.
OLD_COLUMNS = {
    "all_reduce": "redop", "reduce_scatter": "redop", "alltoall": "redop", "all_gather": "", "sendrecv": "",
    "broadcast": "root", "reduce": "redop root", "gather": "root", "scatter": "root",
}  # fmt: skip

VERSIONS = ("1.0.0", "2.0.0", "2.12.0", "2.13.3", "2.14.0", "2.16.7", "2.17.3", "2.17.6", "2.19.6", "2.20.0")


@dataclass(frozen=True)
class Run:
    """One run: its measurements, place and version."""

    collective: str = "all_reduce"
    version: str = "2.19.6"
    hosts: tuple[str, ...] = ("gpu001",)
    gpus: int = 8
    sizes: tuple[int, ...] = (1024, 1 << 20, 1 << 28, 1 << 30)
    peak: float = 480.0  # busbw of the largest size, GB/s
    dtype: str = "float"
    check: bool = True
    wrong: int = 0
    name: str = "NVIDIA H100 80GB HBM3"
    options: frozenset[str] = frozenset()  # "timestamp", "iters", "per-iteration", "cputime", "tuning"
    busbw: tuple[float, ...] = ()  # of each size; empty: rising to the peak

    @property
    def at_least(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    @property
    def ranks(self) -> int:
        return len(self.hosts) * self.gpus

    @property
    def factor(self) -> float:
        if self.collective == "all_reduce":
            return 2 * (self.ranks - 1) / self.ranks
        if self.collective in GATHERING:
            old = self.at_least < (2, 9) and self.collective in ("all_gather", "reduce_scatter")
            return 1.0 if old else (self.ranks - 1) / self.ranks
        return 1.0


@dataclass
class Printed:
    """A printed text and its certain facts."""

    text: str
    truth: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)


def printed(run: Run) -> Printed:
    """Print a run."""
    rows: list[dict[str, Any]] = []
    lines = [*_head(run), *_columns(run)]
    for place, size in enumerate(run.sizes):
        busbw = run.busbw[place] if run.busbw else run.peak * size / (size + run.sizes[-1] / 20)
        line, row = _row(run, size, busbw, place)
        lines.append(line)
        rows.append(row)
    values = [half["busbw"] for row in rows for half in (row["out_of_place"], row["in_place"]) if half]
    average = float(f"{sum(values) / len(values):g}")
    lines += _foot(run, average)
    named = run.at_least >= (2, 16, 7)
    truth = {
        "collective": run.collective if named else None,
        "nranks": run.ranks,
        "nnodes": len(run.hosts),
        "hosts": [host.split(".")[0] for host in run.hosts],
        "rows": rows,
        "avg_busbw": average,
        "max_busbw": max(values),
        "wrong": (2 * run.ranks if run.wrong else 0) if run.check else None,
        "status": "failed" if run.wrong else "ok",
        "nccl_version": "2.30.7" if run.at_least >= (2, 17, 4) else None,
    }
    return Printed("\n".join(lines) + "\n", truth, rows)


def _head(run: Run) -> list[str]:
    version, lines = run.at_least, []
    if version >= (2, 17, 4):
        sha = " (0123abc)" if version >= (2, 20) else ""
        lines.append(f"# nccl-tests version {run.version}{sha} nccl-headers=23007 nccl-library=23007")
    if version >= (2, 16, 7):
        lines.append(f"# Collective test starting: {run.collective}_perf")
    options = (
        f"nThread 1 nGpus {run.gpus} minBytes {run.sizes[0]} maxBytes {run.sizes[-1]} step: 2(factor) "
        f"warmup iters: 5 iters: 20 "
    )
    if version >= (2, 13):
        options += "agg iters: 1 "
    options += f"validation: {int(run.check)} "
    if version >= (2, 13):
        options += "graph: 0"
    if version >= (2, 18, 2):
        options += " unalign: 0"
    lines += [options if version < (2,) else f"# {options}", "#", "# Using devices"]
    for rank in range(run.ranks):
        host, index = run.hosts[rank // run.gpus].split(".")[0], rank % run.gpus
        bus = f"0000:{index + 16:02x}:00" if version >= (2, 14, 1) else f"0x{index + 16:02x}"
        pid = f" Pid {20837 + rank:6d}" if version >= (2,) else ""
        group = " Group  0" if version >= (2, 13, 4) else ""
        blanks = "  " if version >= (2, 13, 4) else "   "
        lines.append(f"#{blanks}Rank {rank:2d}{group}{pid} on {host:>10s} device {index:2d} [{bus}] {run.name}")
    return [*lines, "#"]


_UNITS = "(us)  (GB/s)  (GB/s)"


def _columns(run: Run) -> list[str]:
    version = run.at_least
    if version < (2,):
        half = "     time  algbw  busbw      res"
        middle = "op  root" if run.collective == "reduce" else {"broadcast": "root"}.get(run.collective, "op")
        middle = "" if run.collective == "all_gather" else middle
        both = half if run.collective == "broadcast" else half * 2
        return [f"#     bytes             N    type  {middle}{both}"]
    time = "cputime" if "cputime" in run.options else "time"
    if version < (2, 13):
        left = "".join(f"{name:>8s}" for name in OLD_COLUMNS[run.collective].split())
        return [
            f"#{'out-of-place':>67s}{'in-place':>31s}          ",
            f"#       size         count      type{left}" + "     time   algbw   busbw  error" * 2,
            f"#        (B)    (elements){_UNITS:>44s}{_UNITS:>33s}       ",
        ]
    check = " #wrong" if version >= (2, 17, 3) else "#wrong"
    half = f"  {time:>7s}   algbw   busbw {check}"
    if "per-iteration" in run.options:
        half += "   i_min   i_max   i_p99   i_cv%"
    if "tuning" in run.options:
        half += "   impl   algo   proto"
    more = "   timestamp" * ("timestamp" in run.options) + "   #iters" * ("iters" in run.options)
    return [
        f"#{'out-of-place':>74s}{'in-place':>31s}          ",
        f"#       size         count      type   redop    root{half * 2}{more}",
        f"#        (B)    (elements){_UNITS:>51s}{_UNITS:>33s}       ",
    ]


def _number(value: float, room: int, version: tuple[int, ...]) -> str:
    """Write a time or bandwidth in the version's format."""
    if version >= (2, 17, 3):
        for form in ("%.2f", "%.1f", "%.0f"):
            if len(text := form % value) <= room:
                return text
        return ("%.1e" if room > 6 else "%.0e") % value
    if room > 6:
        return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"
    return f"{value:.2f}"


def _row(run: Run, size: int, busbw: float, place: int) -> tuple[str, dict[str, Any]]:
    version = run.at_least
    spread = run.ranks if run.collective in GATHERING else 1
    count = size // (spread * WIDTH[run.dtype])
    size = count * spread * WIDTH[run.dtype]
    redop = "sum" if run.collective in REDUCING or (run.collective == "sendrecv" and version >= (2, 13)) else None
    root = 0 if run.collective in ROOTED else -1 if version >= (2, 13) else None
    if version < (2, 13):
        columns = OLD_COLUMNS[run.collective].split()
        left = f"{size:12d}  {count:12d}  {run.dtype:>8s}"
        left += f"  {redop or '':>6s}" * ("redop" in columns) + f"  {root}" * ("root" in columns)
    else:
        redop = redop or "none"
        left = f"{size:12d}  {count:12d}  {run.dtype:>8s}  {redop:>6s}  {root:6d}"
    halves: list[dict[str, Any] | None] = []
    text = left
    for half in range(2):
        algbw = busbw / run.factor * (1 + half / 1000)
        written = _number(busbw * (1 + half / 1000), 6, version)
        time = size / (algbw * 1e3)
        if version < (2,):
            if half and run.collective == "broadcast":
                halves.append(None)
                continue
            text += f"  {time / 1000:7.3f}  {algbw:5.2f}  {busbw * (1 + half / 1000):5.2f}  {2e-7:7.0e}"
            halves.append({"busbw": float(f"{busbw * (1 + half / 1000):5.2f}"), "wrong": None,
                           "time_us": pytest_approx(float(f"{time / 1000:7.3f}") * 1000)})  # fmt: skip
            continue
        text += f"  {_number(time, 7, version):>7s}  {_number(algbw, 6, version):>6s}  {written:>6s}"
        unchecked = not run.check or (half and run.collective in ("alltoall", "sendrecv") and version >= (2, 13))
        wrong = run.wrong if place == len(run.sizes) - 1 else 0
        if version < (2, 13):
            text += f"  {'N/A' if unchecked else '2e-07':>5s}"
        else:
            text += f"  {'N/A' if unchecked else f'{wrong:g}':>5s}"
        if "per-iteration" in run.options:
            text += "   20.11   23.45   22.90    3.21"
        if "tuning" in run.options:
            text += "   kernel   RING   SIMPLE"
        halves.append({
            "busbw": float(written), "time_us": float(_number(time, 7, version)),
            "wrong": None if unchecked or version < (2, 13) else int(float(f"{wrong:g}")),
        })  # fmt: skip
    text += " 2026-01-01 12:00:00" * ("timestamp" in run.options) + "   20" * ("iters" in run.options)
    row = {"bytes": size, "count": count, "dtype": run.dtype, "redop": redop, "root": root,
           "out_of_place": halves[0], "in_place": halves[1]}  # fmt: skip
    return text, row


def pytest_approx(value: float) -> Any:
    """Return a value for approximate comparison: a thousand times ms is inexact."""
    import pytest

    return pytest.approx(value)


def _foot(run: Run, average: float) -> list[str]:
    version = run.at_least
    bad = 2 * run.ranks if run.wrong else 0
    mark = "# " if version >= (2,) else " "
    lines = [
        f"{mark}{'Out of bounds values':<20s} : {bad} {'FAILED' if bad else 'OK'}",
        f"{mark}{'Avg bus bandwidth':<20s} : {average:g} ",
    ]
    if version >= (2,):
        lines.append("#")
    if version >= (2, 16, 7):
        lines += [f"# Collective test concluded: {run.collective}_perf", "#", ""]
    return lines

"""Speed of `preflight check --log` and `preflight read`, compared with ``grep -cE``.

Run ``python -m benchmarks.nccl_log --mib 10 50 200 1024 --rounds 3`` from the top of the repository. Each figure is the
time of a command as users call it, minus its time on an empty log, which is also printed. The logs are generated in a
temporary folder (see ``tests/support/nccl_log_generate.py`` and ``tests/support/nccl_log_shapes.py``) and removed
afterwards; rounds of the commands and of grep alternate. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.nccl_log_shapes import SHAPES

PATTERNS = Path(__file__).with_name("nccl_log_patterns.txt")
COMMANDS = {"check --log": ["check", "--log"], "read": ["read"]}
_SAMPLED_EVERY_S = 0.05


@dataclass(frozen=True)
class ReaderSample:
    """Cost of one run: wall and CPU seconds of all its processes, and peak PSS in MiB."""

    what: str
    shape: str
    mib: float
    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--json", type=Path, help="also write all samples here")
    given = parser.parse_args()
    samples: list[ReaderSample] = []
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors", flush=True)
    with tempfile.TemporaryDirectory(prefix="nccl-log-") as folder:
        path = Path(folder) / "job.log"
        # byte code as in a user's second run, even if this shell disables it
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        _compile(path, given.shapes)
        path.write_bytes(b"")
        empty = {what: [_command(what, path, "empty", 0) for _ in range(given.rounds)] for what in COMMANDS}
        for what, some in empty.items():
            print(f"empty log, {what:11}  wall {_median(some, 'wall_s'):6.2f} s, CPU {_median(some, 'cpu_s'):6.2f} s")
        for shape in given.shapes:
            for size in given.mib:
                with path.open("wb") as out:
                    SHAPES[shape](size << 20, out)
                mib = path.stat().st_size / 2**20
                print(f"{shape}, {mib:.0f} MiB, load {os.getloadavg()[0]:.1f}", flush=True)
                rows = {what: list[ReaderSample]() for what in (*COMMANDS, "grep")}
                for _ in range(given.rounds):
                    for what in COMMANDS:
                        rows[what].append(_command(what, path, shape, mib))
                    rows["grep"].append(_grep(path, shape, mib))
                _print_rows(rows, empty, mib)
                samples += [sample for some in rows.values() for sample in some]
    if given.json:
        given.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n")


def _compile(path: Path, shapes: Sequence[str]) -> None:
    """Run each command once on a short log of each shape, to compile all modules."""
    for shape in shapes:
        with path.open("wb") as out:
            SHAPES[shape](1 << 20, out)
        for what in COMMANDS:
            _command(what, path, shape, 1)


def _command(what: str, path: Path, shape: str, mib: float) -> ReaderSample:
    executable = Path(sys.executable).with_name("preflight")
    return _timed(what, shape, mib, [str(executable), *COMMANDS[what], str(path)])


def _grep(path: Path, shape: str, mib: float) -> ReaderSample:
    return _timed("grep", shape, mib, ["grep", "-cE", "-f", str(PATTERNS), str(path)])


def _timed(what: str, shape: str, mib: float, command: Sequence[str]) -> ReaderSample:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # grep writes to a pipe: with /dev/null it would stop at the first match
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}
    )
    peak = _PeakMemory(running.pid)
    running.communicate()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ReaderSample(what, shape, mib, wall, cpu, peak.stop())


class _PeakMemory:
    """Samples the memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak_kib, self._ended = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Return the peak, in MiB."""
        self._ended.set()
        self._thread.join()
        return self._peak_kib / 1024

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLED_EVERY_S):
            self._peak_kib = max(self._peak_kib, sum(map(_pss_kib, _family(self._pid))))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in _family(int(child)))]


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _median(rows: Sequence[ReaderSample], name: str) -> float:
    return float(statistics.median(getattr(row, name) for row in rows))


def _print_rows(rows: dict[str, list[ReaderSample]], empty: dict[str, list[ReaderSample]], mib: float) -> None:
    grep = {name: max(_median(rows["grep"], name), 0.001) for name in ("wall_s", "cpu_s")}
    print(f"  grep         wall {grep['wall_s']:6.2f} s, CPU {grep['cpu_s']:6.2f} s", flush=True)
    megabytes = mib * 1.048576
    for what in COMMANDS:
        words = []
        for label, name in (("wall", "wall_s"), ("CPU", "cpu_s")):
            beyond = _median(rows[what], name) - _median(empty[what], name)
            rate = f"{megabytes / beyond:6.1f} MB/s, x{beyond / grep[name]:.2f}" if beyond > 0 else "within the noise"
            words.append(f"{label} {beyond:6.2f} s = {rate}")
        peak = max(row.peak_mib for row in rows[what])
        print(f"  {what:11}  beyond the empty log: {'; '.join(words)} of grep; peak {peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()

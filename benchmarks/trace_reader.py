"""Speed of `preflight trace` on a profile, compared with ``json.load``.

Run ``python -m benchmarks.trace_reader --events 1000000 TRACE...`` from the top of the repository. It generates a long
trace in a temporary folder (``tests/support/training_job.py``), plain and compressed, and measures these and the given
ones. Each figure is from a separate process: CPU time including start-up, and peak memory. ``--ranks 64`` instead runs
``preflight trace`` once on the compressed traces of this many ranks. See README.md.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.support.training_job import write_long

_PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
PROGRAMS = {
    "json.load": "import gzip, json, sys; path = sys.argv[1]; "
    f"json.load((gzip.open if path.endswith('.gz') else open)(path)); {_PEAK}",
    "the reader": "import sys; from pathlib import Path; from preflight.facts.streamed_log import seen_on_disk; "
    f"seen_on_disk(Path(sys.argv[1])).trace.document; {_PEAK}",
}


def measure(code: str, path: Path) -> tuple[float, int]:
    """Return the CPU seconds of a program and its peak memory, MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=600
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(done.stdout)


def measure_ranks(path: Path, folder: Path, ranks: int) -> str:
    """Return time and memory of ``preflight trace`` and its processes on many traces."""
    for rank in range(ranks):
        (folder / f"rank{rank}.json.gz").hardlink_to(path)
    cpu: dict[int, float] = {}
    peaks: dict[int, int] = {}
    most, start = 0, time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "preflight", "trace", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as command:
        parent = psutil.Process(command.pid)
        while command.poll() is None:
            now = 0
            try:
                for process in (parent, *parent.children(recursive=True)):
                    cpu[process.pid] = sum(process.cpu_times()[:2])
                    memory = process.memory_info().rss >> 20
                    peaks[process.pid] = max(memory, peaks.get(process.pid, 0))
                    now += memory
            except psutil.NoSuchProcess:
                continue
            most = max(most, now)
            time.sleep(0.1)
    return (
        f"{ranks} ranks: {time.monotonic() - start:.1f} s, CPU {sum(cpu.values()):.1f} s, at most "
        f"{max(peaks.values())} MiB in a process and {most} MiB together"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "rank0.json"), Path(folder, "rank0.json.gz")
        with plain.open("w") as stream:
            write_long(stream, chosen.events)
        with plain.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            shutil.copyfileobj(source, target)
        if chosen.ranks:
            alone, _ = measure(PROGRAMS["the reader"], packed)
            (ranks := Path(folder, "ranks")).mkdir()
            print(f"one rank: CPU {alone:.1f} s; {measure_ranks(packed, ranks, chosen.ranks)}")
            return
        for path in (plain, packed, *chosen.traces):
            best = {what: min(measure(code, path) for _ in range(chosen.rounds)) for what, code in PROGRAMS.items()}
            figures = ", ".join(f"{what} {cpu:.2f} s {peak} MiB" for what, (cpu, peak) in best.items())
            ratio = best["the reader"][0] / best["json.load"][0]
            print(f"{path.name}: {figures}, CPU ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()

"""How fast the reader of NCCL's log is, beside ``LC_ALL=C grep -cE`` of a file of patterns.

``python -m benchmarks.nccl_log --gib 0.1 0.3 1 --rounds 3`` from the top of the repository. Each figure is of
a whole process: start of Python, imports, all facts. The log is made anew in a temporary folder (see
``tests/support/nccl_log_generate.py``) and taken away again; rounds of reader and grep alternate. See README.md.
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
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.nccl_log_generate import VERSIONS, Job, generate

PATTERNS = Path(__file__).with_name("nccl_log_patterns.txt")

#: The reader, and what it needed; helpers are the processes that it starts itself.
_READ = """
import json, resource, sys
from pathlib import Path
from preflight.parsers import nccl_log
log = nccl_log.read([Path(sys.argv[1])], int(sys.argv[2]) or None)
# VmHWM: ru_maxrss also counts what the process was before it became Python
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
peak = [own / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024]
facts = [log.lines, log.nranks, log.nnodes, len(log.hosts), sum(c.count for c in log.channels), len(log.failures)]
json.dump({"peak_mib": peak, "facts": facts}, sys.stdout)
"""


@dataclass(frozen=True)
class Sample:
    """What one run took; seconds, MiB."""

    what: str
    mib: float
    wall_s: float
    cpu_s: float
    peak_mib: float | None = None


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--version", choices=VERSIONS, default="2.21")
    parser.add_argument("--processes", type=int, default=0, help="0: as many as processors")
    parser.add_argument("--json", type=Path, help="also write all samples here")
    given = parser.parse_args()
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="nccl-log-") as folder:
        for gib in given.gib:
            path = Path(folder) / "job.log"
            with path.open("wb") as out:
                lines = generate(Job(given.version, given.ranks, dead=given.ranks // 2), int(gib * 2**30), out)
            mib = path.stat().st_size / 2**20
            print(f"{mib:.0f} MiB, {lines} lines of {given.ranks} ranks, NCCL {given.version}", flush=True)
            for number in range(given.rounds):
                reader, facts = _reader(path, mib, given.processes)
                samples += [reader, _grep(path, mib)]
                if number == 0:
                    print("  lines, ranks, nodes, hosts, network channels, failures:", *facts, flush=True)
            _told(samples, mib)
    if given.json:
        given.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n")


def _reader(path: Path, mib: float, processes: int) -> tuple[Sample, Sequence[int]]:
    wall, cpu, out = _timed([sys.executable, "-c", _READ, str(path), str(processes)])
    said = json.loads(out)
    return Sample("reader", mib, wall, cpu, sum(said["peak_mib"])), said["facts"]


def _grep(path: Path, mib: float) -> Sample:
    wall, cpu, _ = _timed(["grep", "-cE", "-f", str(PATTERNS), str(path)])
    return Sample("grep", mib, wall, cpu)


def _timed(command: Sequence[str]) -> tuple[float, float, str]:
    """Run a command; return seconds of wall and of CPU, and what it wrote."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", "PYTHONPATH": "."}
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def _told(samples: Sequence[Sample], mib: float) -> None:
    by_name = {what: [s for s in samples if s.what == what and s.mib == mib] for what in ("reader", "grep")}
    grep = statistics.median(sample.wall_s for sample in by_name["grep"])
    grep_cpu = statistics.median(sample.cpu_s for sample in by_name["grep"])
    for what, rows in by_name.items():
        wall, cpu = (statistics.median(getattr(row, name) for row in rows) for name in ("wall_s", "cpu_s"))
        print(
            f"  {what:6}  wall {wall:6.2f} s = {mib * 1.048576 / wall:6.1f} MB/s, CPU {cpu:6.2f} s"
            f" = {mib * 1.048576 / cpu:6.1f} MB/s; to grep: wall x{wall / grep:.2f}, CPU x{cpu / grep_cpu:.2f}"
            + (f"; peak {max(row.peak_mib or 0 for row in rows):.0f} MiB" if what == "reader" else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()

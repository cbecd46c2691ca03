"""Judging a large fleet: ``python -m benchmarks.judge_scale --nodes 10000``.

The fleet is made by hand (``tests/support/planted_fleet.py``): DGX H100 on RoCE, seeded variation, 25 planted
differences. It is written to a folder, 0.5 MB a node, and judged by ``preflight judge`` with all checks, in a separate
process with an 80x24 terminal. The benchmark measures the CPU time of all its processes and their total memory (PSS),
sampled five times a second. The first screen must fit the terminal. With ``--verdicts``, each node has judged itself
(``collect --judge``) before the measurement.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from preflight.checks import registry
from preflight.evidence import node_result
from preflight.evidence.document import dump, read
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.judge.node_verdict import verdict
from tests.support import planted_fleet

#: The size of the terminal, and its control sequences.
LINES, COLUMNS = 24, 80
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become children of this process


def main() -> None:
    """Create and judge the fleet; return 1 unless exactly the planted faults are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep the fleet and the report here, and use what is there")
    parser.add_argument("--verdicts", action="store_true", help="judge documents of nodes that judged themselves")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="judge-scale-"))
    try:
        sys.exit(_run(folder, options.nodes, options.verdicts))
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, count: int, verdicts: bool) -> int:
    evidence, cluster = folder / "evidence", folder / "cluster.toml"
    expected_file = folder / "planted.json"
    if not expected_file.exists():
        began = time.process_time()
        expected = planted_fleet.write(evidence, count)
        cluster.write_text(planted_fleet.CLUSTER)
        expected_file.write_text(json.dumps({name: sorted(findings) for name, findings in expected.items()}))
        print(f"made {count} nodes: {1000 * (time.process_time() - began) / count:.1f} ms CPU each")
    if verdicts:
        began = time.monotonic()
        evidence = _with_verdicts(evidence, cluster)
        print(f"nodes judged themselves: {time.monotonic() - began:.0f} s here, on all processors")
    sizes = [path.stat().st_size for path in evidence.glob("*.json")]
    print(
        f"evidence: {len(sizes)} documents, {sum(sizes) / len(sizes) / 1000:.0f} kB each, least {min(sizes) / 1000:.0f}"
    )
    page, report = folder / "report.html", folder / "report.json"
    command = [sys.executable, "-m", "preflight", "judge", str(evidence), "--cluster", str(cluster)]
    wall_s, cpu_s, peak, text = _measured([*command, "--html", str(page), "--json", str(report)])
    print(f"judge: {wall_s:.0f} s, {1000 * cpu_s / count:.1f} ms CPU a node, {peak / 2**20:.0f} MiB at most")
    screen = _STEERING.sub("", text).splitlines()
    shown = sum(re.match(r"\s*\d+  \w", line) is not None for line in screen)
    print(f"report: HTML {page.stat().st_size / 1e6:.2f} MB, JSON {report.stat().st_size / 1e6:.0f} MB, "
          f"screen {len(screen)} lines, {shown} incidents")  # fmt: skip
    print("\n".join(f"    | {line}" for line in screen))
    document = json.loads(report.read_bytes())
    reported = planted_fleet.reported(document)
    expected = {
        name: frozenset(map(tuple, findings)) for name, findings in json.loads(expected_file.read_text()).items()
    }
    for name in sorted(reported.keys() | expected.keys()):
        if reported.get(name) != expected.get(name):
            print(f"{name}: planted {sorted(expected.get(name, ()))}, reported {sorted(reported.get(name, ()))}")
    right = sum(reported.get(name) == findings for name, findings in expected.items())
    wrong = reported.keys() - expected.keys()
    print(f"planted differences reported: {right} of {len(expected)}; nodes reported without cause: {len(wrong)}")
    incidents = len(document["incidents"])
    print(f"incidents: {incidents}")
    return 0 if reported == expected and incidents == len(expected) and shown == 10 and len(screen) <= LINES else 1


def _with_verdicts(evidence: Path, cluster: Path) -> Path:
    """Write the documents of nodes that judge themselves, beside their evidence; return the folder."""
    folder = evidence.with_name("results")
    folder.mkdir(exist_ok=True)
    expectations = load(cluster)
    left = [path for path in sorted(evidence.glob("*.json")) if not (folder / path.name).exists()]
    with ProcessPoolExecutor() as pool:
        for _ in pool.map(partial(_judge_itself, folder, expectations), left, chunksize=16):
            pass
    return folder


def _judge_itself(folder: Path, expectations: Cluster, path: Path) -> None:
    evidence = read(path)
    result = verdict(evidence, registry().checks, expectations)
    assert result is not None
    (folder / path.name).write_text(node_result.dump(evidence.node, result, dump(evidence)))


def _measured(command: list[str]) -> tuple[float, float, int, str]:
    """Run a command; return wall time, CPU time, peak memory in bytes, and output."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    before, began = _children_s(), time.monotonic()
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdout=end)
    os.close(end)
    peaks = [0]
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.2):
            peaks.append(_memory(os.getpid()))

    sampler = threading.Thread(target=sample)
    sampler.start()
    text = _read(terminal)
    process.wait()
    wall_s = time.monotonic() - began
    over.set()
    sampler.join()
    while True:  # the pool's server ends by itself soon after
        try:
            os.wait()
        except ChildProcessError:
            break
    return wall_s, _children_s() - before, max(peaks), text


def _read(terminal: int) -> str:
    """Return the output to a terminal until its last writer has closed it."""
    pieces = []
    with open(terminal, "rb", buffering=0) as stream:
        while True:
            try:
                piece = stream.read(65536)
            except OSError:  # EIO: the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(top: int) -> int:
    """Return the total PSS of a process's descendants, in bytes."""
    total = 0
    below = _below(top)
    for pid in below:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _below(top: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    descendants, left = [], [top]
    while left:
        children = parents.get(left.pop(), [])
        descendants += children
        left += children
    return descendants


if __name__ == "__main__":
    main()

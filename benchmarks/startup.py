"""Start-up cost of preflight, compared with an interpreter that does nothing.

Run ``python -m benchmarks.startup --rounds 21`` from the top of the repository; the figures in README.md are from a
machine without a GPU. The rows are interleaved, and every second round runs in reverse order; the medians are printed
in milliseconds and as multiples of ``python -c pass``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

#: Exit statuses of a check without a cluster file: 0, or 3 if something is unknown.
_STATUSES = (0, 3)

#: Cluster files of the gate: the GPU class from README.md, and a class that includes this machine.
_CLUSTER = """
[class.h100]
nodes = "gpu[001-064]"
gpus = 8
hcas = 8
[class.h100.ports]
compute = "mlx5_[0,3-6,9-11]"
storage = "mlx5_[1-2,7-8]"
[class.cpu]
gpus = 0
hcas = 0
[gate]
refresh_s = 86400
"""


@dataclass(frozen=True)
class StartupCase:
    """A command line, and its name in the table."""

    name: str
    command: Sequence[str]


@dataclass(frozen=True)
class StartupSample:
    """One run: wall milliseconds, and CPU milliseconds including ended children."""

    wall_ms: float
    cpu_ms: float


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--preflight", type=Path, default=Path(sys.executable).with_name("preflight"),
                        help="the console script; its interpreter is the one in its first line")  # fmt: skip
    parser.add_argument("--no-bytecode", action="store_true",
                        help="compile preflight anew each time, as an installation nobody may write to")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write all samples here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="startup-") as name, _environment(Path(name), options.no_bytecode) as env:
        rows = _rows(options.preflight, Path(name))
        for row in rows:  # reads the files into memory, and writes the byte code
            run(row, env)
        samples: dict[str, list[StartupSample]] = {row.name: [] for row in rows}
        for number in range(options.rounds):
            for row in rows if number % 2 == 0 else reversed(rows):
                samples[row.name].append(run(row, env))
    _print(samples, options)
    if options.json:
        document = {name: [asdict(sample) for sample in group] for name, group in samples.items()}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _rows(script: Path, folder: Path) -> list[StartupCase]:
    lines = script.read_text(encoding="utf-8").splitlines(keepends=True)
    python = lines[0].removeprefix("#!").strip()
    hollow = folder / "preflight"
    hollow.write_text("".join(_without_us(lines)), encoding="utf-8")
    hollow.chmod(0o755)
    cluster = folder / "cluster.toml"
    cluster.write_text(_CLUSTER, encoding="utf-8")
    gate = [str(script), "gate", "slurm-prolog", "--cluster", str(cluster), "--state-dir", str(folder / "state")]
    return [
        StartupCase("python -c pass", [python, "-c", "pass"]),
        StartupCase("python -I -S -c pass", [python, "-I", "-S", "-c", "pass"]),
        StartupCase("the console script's own lines", [str(hollow)]),
        StartupCase("preflight --version", [str(script), "--version"]),
        StartupCase("preflight check", [str(script), "check"]),
        StartupCase("preflight check --json -", [str(script), "check", "--json", "-"]),
        StartupCase("preflight gate slurm-prolog, judging", [*gate, "--refresh"]),
        StartupCase("preflight gate slurm-prolog, fresh verdict", gate),
    ]


def _without_us(lines: Sequence[str]) -> Iterator[str]:
    """Yield a console script that calls an empty function instead of preflight."""
    for line in lines:
        yield "main = int\n" if line.startswith("from preflight") else line


@contextmanager
def _environment(folder: Path, no_bytecode: bool) -> Iterator[Mapping[str, str]]:
    """Yield an environment with Python's defaults and byte code outside the tree."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    plain |= {"PYTHONDONTWRITEBYTECODE": "1"} if no_bytecode else {"PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    yield plain


def run(row: StartupCase, environment: Mapping[str, str]) -> StartupSample:
    """Run a row once; end the benchmark if it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(
        row.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read()
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall_ms = 1000 * (time.perf_counter() - began)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode not in _STATUSES:
        sys.exit(f"{' '.join(row.command)} ended with {process.returncode}: {errors.decode(errors='replace')[-400:]}")
    return StartupSample(wall_ms, 1000 * (used.ru_utime + used.ru_stime))


def _print(samples: Mapping[str, Sequence[StartupSample]], options: argparse.Namespace) -> None:
    cached = "compiled anew by each run" if options.no_bytecode else "byte code cached"
    print(f"{options.rounds} rounds interleaved, {os.cpu_count()} CPUs, {cached}; medians, and the best of the rounds")
    print("CPU: with all children that ended; x: multiple of python -c pass in the same run\n")
    print("| command | wall ms | x | best ms | x | CPU ms | x |")
    print("|---" + "|--:" * 6 + "|")
    unit = _measures(next(iter(samples.values())))
    for name, group in samples.items():
        cells = [f"{ms:.1f} | {ms / base:.2f}" for ms, base in zip(_measures(group), unit, strict=True)]
        print(f"| `{name}` | {' | '.join(cells)} |")


def _measures(samples: Sequence[StartupSample]) -> tuple[float, float, float]:
    walls = [sample.wall_ms for sample in samples]
    return statistics.median(walls), min(walls), statistics.median(sample.cpu_ms for sample in samples)


if __name__ == "__main__":
    main()

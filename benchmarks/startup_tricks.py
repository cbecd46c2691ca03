"""Gain of each start-up technique: the same run with and without it.

Run ``python -m benchmarks.startup_tricks --rounds 15`` from the top of the repository. Each row runs a command with one
technique of ``preflight/_startup`` disabled before anything else is imported. Rounds are interleaved, and every second
one runs in reverse order; the medians of wall and CPU time are printed, with their difference from the run with all
techniques. On a shared machine, CPU time is the reliable figure. docs/startup.md has the latest results.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.startup import StartupCase, StartupSample, run

#: Code before each run.
_START = "import sys; sys.argv[0] = 'preflight'\n"
_END = "from preflight.cli.main import main; main()\n"

_NO_MODULE = "sys.modules['preflight._startup.{}'] = None\n"
_LIGHT = "import preflight._startup.lightclass as light\n"

#: Technique -> the code that disables it.
CHECK: Mapping[str, str] = {
    "lazy registry: a check's module is imported when it runs": _NO_MODULE.format("generated_checks"),
    "options parsed without click": _NO_MODULE.format("generated_options"),
    "collector forked before the command line is parsed": (
        "from preflight._startup import prestart; prestart.collects_locally = lambda words: False\n"
    ),
    "light classes": (
        _LIGHT + "import dataclasses as std\nlight.dataclass, light.field = std.dataclass, std.field\n"
        "light.fields, light.replace = std.fields, std.replace\n"
    ),
    "lazy packages: a parser is imported when it is named": (
        "import importlib, pkgutil, preflight.facts, preflight.parsers\n"
        "for package in (preflight.facts, preflight.parsers):\n"
        "    for found in pkgutil.iter_modules(package.__path__):\n"
        "        importlib.import_module(f'{package.__name__}.{found.name}')\n"
    ),
    "plug-ins looked for without importlib.metadata": "import importlib.metadata\n",
    "no garbage collection while importing": "import gc\ngc.disable = lambda: None\n",
}
GATE: Mapping[str, str] = {
    "options parsed without click": _NO_MODULE.format("generated_options"),
    "no typing": "import typing\n",
    "exit without interpreter shutdown": "import os\nos._exit = sys.exit\n",
}
SSH = "import sys; from preflight.transport.ssh import paramiko_transport\n"
PARAMIKO: Mapping[str, str] = {"paramiko without invoke and importlib.metadata": "import paramiko\n"}


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tricks-") as name:
        state = str(Path(name) / "state")
        cluster = Path(name) / "cluster.toml"
        cluster.write_text("[class.cpu]\ngpus = 0\nhcas = 0\n[gate]\nrefresh_s = 86400\n")
        gate = ["gate", "slurm-prolog", "--state-dir", state, "--cluster", str(cluster)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env["PYTHONPYCACHEPREFIX"] = str(Path(name) / "pycache")
        env["PYTHONPATH"] = os.getcwd()
        subprocess.run([sys.executable, "-m", "preflight", *gate], env=env, check=True, capture_output=True)
        for title, off, words, end in (
            ("preflight check", CHECK, ["check"], _END),
            ("preflight gate slurm-prolog, fresh verdict", GATE, gate, _END),
            ("import of the SSH transport", PARAMIKO, [], SSH),
        ):
            rows = [StartupCase("all tricks", _command("", end, words))]
            rows += [StartupCase(trick, _command(code, end, words)) for trick, code in off.items()]
            _print(title, measured(rows, env, options.rounds))


def _command(code: str, end: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", _START + code + end, *words]


def measured(rows: Sequence[StartupCase], env: Mapping[str, str], rounds: int) -> Mapping[str, Sequence[StartupSample]]:
    """Run the rows interleaved; return name -> samples."""
    samples: dict[str, list[StartupSample]] = {row.name: [] for row in rows}
    for row in rows:
        run(row, env)
    for number in range(rounds):
        for row in rows if number % 2 == 0 else reversed(rows):
            samples[row.name].append(run(row, env))
    return samples


def _print(title: str, samples: Mapping[str, Sequence[StartupSample]]) -> None:
    print(f"\n{title}\n\n| without | wall ms | buys | CPU ms | buys |\n|---" + "|--:" * 4 + "|")
    medians = {
        name: (statistics.median(s.wall_ms for s in found), statistics.median(s.cpu_ms for s in found))
        for name, found in samples.items()
    }
    wall, cpu = medians["all tricks"]
    for name, (wall_ms, cpu_ms) in medians.items():
        print(f"| {name} | {wall_ms:.0f} | {wall_ms - wall:+.0f} | {cpu_ms:.0f} | {cpu_ms - cpu:+.1f} |", flush=True)


if __name__ == "__main__":
    main()

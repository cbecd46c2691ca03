"""The overhead of `preflight bench` per round: everything but the launched benchmark.

Run ``python -m benchmarks.bench_rounds --nodes 64`` as root, from the top of the repository. The nodes are real sshds
on loopback addresses; ``mpirun`` is a script that prints a result at once. One node is slow, so that three rounds run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.pair_runs import GIB, log
from tests.support.paths import ROOT
from tests.support.sshfarm import SSHD, addresses
from tests.support.sshfarm.farm import Farm

#: Limit of the CPU time per round, in seconds. The wall time also contains the work of the nodes on this machine.
ROUND_S = 2.0

_MPIRUN = """\
#!/bin/sh
case " $* " in
  *"{slow}:1"*) exec cat "{folder}/slow";;
esac
exec cat "{folder}/fast"
"""


def main() -> int:
    """Run a campaign and print its overhead; return 1 if it exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    options = parser.parse_args()
    if os.getuid() != 0 or not SSHD:
        sys.exit("needs root and sshd")
    with tempfile.TemporaryDirectory(prefix="rounds-") as name, Farm(options.nodes) as farm:
        folder = Path(name)
        folder.chmod(0o755)  # hosts run as another user
        hosts = addresses(options.nodes)
        for rate, file in ((44.0, "fast"), (22.0, "slow")):
            text = log("alltoall", {"a": ["0000:1a:00"], "b": ["0000:1a:00"]}, {GIB: rate})
            (folder / file).write_text(text)
        for program, content in (("mpirun", _MPIRUN.format(folder=folder, slow=hosts[0])), ("alltoall_perf", "")):
            (folder / program).write_text(content)
            (folder / program).chmod(0o755)
        command = [
            sys.executable, "-m", "preflight", "bench", "--hosts", ",".join(hosts), "--gpus", "1", "--yes",
            "--allow-root", "--ssh-config", str(farm.ssh_config), "--binary", name, "--save", f"{name}/campaign",
        ]  # fmt: skip
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{name}:{os.environ['PATH']}"}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=name, env=environment)
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        path = folder / "campaign/journal.jsonl"
        journal = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rounds = sum("runs" in line for line in journal)
    launches = sum(line.get("state") == "ended" for line in journal)
    if ran.returncode != 1 or f"node {hosts[0]}" not in ran.stdout:
        sys.exit(f"the slow node was not reported: {ran.stdout}{ran.stderr}")
    print(f"{options.nodes} nodes, {rounds} rounds, {launches} launches: {wall:.1f} s, {cpu:.1f} s of CPU; per round "
          f"{wall / rounds:.2f} s, {cpu / rounds:.2f} s of CPU, start and report included")  # fmt: skip
    return int(cpu / rounds > ROUND_S)


if __name__ == "__main__":
    sys.exit(main())

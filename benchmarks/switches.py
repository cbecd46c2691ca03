"""Cost of judging many Ethernet switches.

Run ``python -m benchmarks.switches --switches 64 --ports 512`` from the top of the repository. It writes the documents
of SONiC switches, with two readings, to a temporary folder and runs ``preflight judge`` on them in a separate process.
It prints CPU time including start-up, and peak memory. See README.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from preflight.archive import directory
from tests.support.wide_switches import wide_switch


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=64)
    parser.add_argument("--ports", type=int, default=512)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.switches):
            directory.save(Path(folder), [wide_switch(f"leaf{number + 1:03}", chosen.ports)])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "preflight", "judge", folder],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{chosen.switches} switches x {chosen.ports} ports: {cpu:.1f} s of CPU, {after.ru_maxrss // 1024} MiB, "
          f"exit status {done.returncode}")  # fmt: skip
    print("\n".join((done.stdout or done.stderr).splitlines()[:4]))


if __name__ == "__main__":
    main()

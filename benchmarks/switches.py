"""Cost of judging many Ethernet switches.

``python -m benchmarks.switches --switches 64 --ports 512`` from the top of the repository. It writes the documents of
SONiC switches, with two readings, to a temporary folder and runs ``preflight judge`` on them in a separate process. It
prints CPU time including start-up, and peak memory. See README.md.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

from preflight._startup.lightclass import replace
from preflight.archive import directory
from preflight.evidence.document import Evidence
from tests.support.clos import Clos

_FIRST = re.compile(r"Ethernet0(?=$|[|:])")


def _widen(rows: dict[str, Any], ports: int) -> dict[str, Any]:
    """Return the rows of the first port repeated for each port; other rows stay."""
    wide = {name: row for name, row in rows.items() if "Ethernet" not in name}
    for name, row in rows.items():
        if _FIRST.match(name):
            wide |= {_FIRST.sub(f"Ethernet{place * 8}", name): row for place in range(ports)}
    return wide


def wide_switch(name: str, ports: int) -> Evidence:
    """Return the document of a switch with this many ports."""
    template = Clos(hosts=False).switch("leaf1")
    records = deepcopy(dict(template.records))
    for record in records.values():
        for reading in (record, record.get("again")):
            if reading and "rows" in reading["value"]:
                reading["value"]["rows"] = _widen(reading["value"]["rows"], ports)
            elif reading:
                reading["value"] = _widen(reading["value"], ports)
    lengths = records["redis:CONFIG_DB CABLE_LENGTH"]["value"]
    lengths["AZURE"] = {f"Ethernet{place * 8}": "40m" for place in range(ports)}
    records["redis:CONFIG_DB DEVICE_METADATA"]["value"]["localhost"]["hostname"] = name
    return replace(template, node=name, records=records)


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

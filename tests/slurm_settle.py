"""Settles a verdict where it is run: on a node of a real Slurm cluster, in the place of a gate.

``python -m tests.slurm_settle VERDICT.json [--dry-run] [--go FILE]``; prints what was settled as JSON. ``--go`` waits
for a file first, so that several may act at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from preflight.gate.policy import rule
from preflight.gate.slurm import Settings, settle
from preflight.gate.verdict import from_document


def main(words: list[str]) -> None:
    document = json.loads(Path(words[0]).read_text())
    status = document["status"]
    verdict = from_document(document)
    if "--go" in words:
        go, until = Path(words[words.index("--go") + 1]), time.monotonic() + 60
        Path(f"{words[0]}.ready").touch()
        while not go.exists() and time.monotonic() < until:
            time.sleep(0.002)
    settled = settle(verdict, rule("slurm-prolog", status), Settings(dry_run="--dry-run" in words))
    told = {"line": settled.line, "drained": settled.drained, "exit": settled.exit, "human": settled.human}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])

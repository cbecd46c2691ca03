"""A process that applies a verdict in a real Slurm cluster, as a gate does.

``python -m tests.support.slurm.apply_verdict VERDICT.json [--dry-run] [--go FILE]``; prints the result as JSON.
``--go`` first waits for a file, so that several processes can act at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from preflight.gate.policy import rule
from preflight.gate.slurm import Settings, apply
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
    result = apply(verdict, rule("slurm-prolog", status), Settings(dry_run="--dry-run" in words))
    printed = {"line": result.line, "drained": result.drained, "exit": result.exit, "human": result.human}
    print(json.dumps(printed))


if __name__ == "__main__":
    main(sys.argv[1:])

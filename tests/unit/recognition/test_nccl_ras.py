"""``ncclras``: processes that do not answer, ranks that lag behind; made by hand in the form of NCCL's user guide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from preflight.recognition import read_text

HEAD = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  {errors}
    1         8         2         1         2        16   RUNNING      OK
"""
OK = HEAD.format(errors="OK")
BEHIND = (
    HEAD.format(errors="MISMATCH")
    + """
Errors
======


Warnings
========

#0-0 (51c07a3be9d2f604) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation {most}
  Rank 11 has launched up to operation {least} -- GPU 3 managed by process 20418 on node gpu-b07
"""
)
STOPPED = (
    HEAD.format(errors="INCOMPLETE")
    + """
Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 20418 on node gpu-b07 managing GPU 3

#0-0 (51c07a3be9d2f604) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 11

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""
)
DEAD = STOPPED.replace(
    "INCOMPLETE\n  Missing communicator data from 1 job process",
    "DEAD\n  1 job process is considered dead (unreachable via the RAS network)",
)
SEVERAL = (
    HEAD.format(errors="MISMATCH")
    + """
Warnings
========

#0-0 (51c07a3be9d2f604) MISMATCH
  Communicator ranks have different collective operation counts
  14 ranks have launched up to operation 905
  2 ranks have launched up to operation 902
  Rank 4 -- GPU 4 managed by process 1190 on node gpu-b06
  Rank 11 -- GPU 3 managed by process 20418 on node gpu-b07
"""
)
STARTING = (
    HEAD.format(errors="MISMATCH")
    + """
Warnings
========

#0-0 (51c07a3be9d2f604) MISMATCH
  Communicator ranks have different status
  12 ranks have status RUNNING
  4 ranks have status INIT
"""
)
CASES = {
    "no rank behind": (OK, ["unknown"], "RAS reaches all 16 processes, and no rank is behind"),
    "one query": (
        BEHIND.format(most=640, least=612),
        ["unknown"],
        "rank 11 (gpu-b07, GPU 3, PID 20418) is at operation 612",
    ),
    "two ranks": (
        SEVERAL,
        ["unknown"],
        "ranks 4 (gpu-b06, GPU 4, PID 1190), 11 (gpu-b07, GPU 3, PID 20418) are at operation 902",
    ),
    "no progress": (2 * BEHIND.format(most=640, least=612), ["unknown", "fail"], "as in the previous query"),
    "progress": (
        BEHIND.format(most=640, least=612) + BEHIND.format(most=900, least=872),
        ["unknown", "pass"],
        "all ranks have launched more",
    ),
    "only the others go on": (
        BEHIND.format(most=640, least=612) + BEHIND.format(most=645, least=612),
        ["unknown", "unknown"],
        "33 operations behind",
    ),
    "only the ranks behind go on": (
        BEHIND.format(most=640, least=612) + BEHIND.format(most=640, least=613),
        ["unknown", "unknown"],
        "27 operations behind",
    ),
    "equal counts": (
        2 * BEHIND.format(most=0, least=0),
        ["unknown", "unknown"],
        "reports different counts, but those in the text are all 0",
    ),
    "stopped": (STOPPED, ["warn"], "process 20418 on gpu-b07 (GPU 3) does not answer"),
    "dead": (DEAD, ["fail"], "could not reach process 20418 on gpu-b07 (GPU 3) for 60 s"),
    "starting": (STARTING, ["unknown"], "12 ranks: status RUNNING; 4 ranks: status INIT"),
    "asynchronous error": (
        HEAD.format(errors="ERROR")
        + "\nErrors\n======\n\n#0-0 (51c07a3be9d2f604) ERROR\n  Communicator ranks report a fault\n",
        ["warn"],
        "reports ERROR: Communicator ranks report a fault",
    ),
    "truncated": (BEHIND.partition("\nErrors")[0], ["unknown"], "are not in the text"),
}


def findings(text: str) -> list[Mapping[str, Any]]:
    parts = read_text(text, "p")
    assert {part.kind for part in parts} == {"ncclras"}
    named = [finding for part in parts for finding in part.findings]
    assert {finding["check"] for finding in named} == {"nccl.ras"}
    return named


@pytest.mark.parametrize(("text", "statuses", "message"), CASES.values(), ids=CASES)
def test_each_state(text: str, statuses: Sequence[str], message: str) -> None:
    named = findings(text)
    assert [finding["status"] for finding in named] == statuses
    assert message in f"{named[-1]['message']} ({named[-1]['found']})"


def test_every_value_is_read() -> None:
    (part,) = read_text(SEVERAL, "p")
    facts = part.taken.facts
    assert facts["processes"] == "16"
    assert [(group["communicators"], group["errors"]) for group in facts["groups"]] == [(1, "MISMATCH"), (8, "OK")]
    (problem,) = facts["problems"]
    assert [ranks["count"] for ranks in problem["ranks"]] == [14, 2]
    assert problem["ranks"][1]["ranks"][1] == {"rank": 11, "node": "gpu-b07", "pid": 20418, "gpu": "3"}

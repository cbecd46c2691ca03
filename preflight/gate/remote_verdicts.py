"""The nodes of a job, asked now over SSH, for a controller to which they publish no verdicts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from preflight.checks import registry
from preflight.collect.options import Manner, plans
from preflight.collect.scheduler import Limits, Transport, gather
from preflight.gate import announce, evaluate
from preflight.gate.ownership import heeded
from preflight.gate.verdict import Verdict
from preflight.run.fleet import connection
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from preflight.gate.configuration import Configuration
    from preflight.gate.gate_run import Sitting

__all__ = ["UsageError", "verdicts"]

#: Seconds kept for judging.
_RESERVE_S = 1.5


def verdicts(nodes: Sequence[str], sitting: Sitting, found: Configuration) -> Mapping[str, Verdict | str]:
    """Return what each node is judged to be, or why it was not.

    Raises UsageError if SSH is configured wrongly, UnknownCheck if the table [gate] is.
    """
    known = registry()
    seat = sitting.asked.seat
    selection = evaluate.select(known.checks, found.gate, found.gate.seat(seat), seat)
    limit_s = max(1.0, sitting.watch.left_s - _RESERVE_S)
    config = Path(sitting.asked.ssh_config) if sitting.asked.ssh_config else None
    manner = Manner(deadline_s=limit_s, ssh_config=config, connect_timeout_s=min(15.0, limit_s))
    plan_for = plans(heeded(known.probes), found.cluster, manner)
    answers: dict[str, Verdict | str] = dict.fromkeys(nodes, "it was not asked in time")
    with connection(nodes, manner) as transport:
        for evidence in gather(nodes, cast(Transport, transport), plan_for, Limits(manner.fanout, limit_s, limit_s)):
            began = time.monotonic()
            result = evaluate.judged(
                evidence, found.cluster, selection, seat=sitting.asked.seat, expects=True, gpus=None
            )  # fmt: skip
            answers[evidence.node] = Verdict(
                announce.name(evidence.node), result.status, sitting.at, cause=result.cause, reason=result.reason,
                whose=result.whose, causes=result.causes, unknowns=result.unknowns,
                off=result.off, seconds=round(time.monotonic() - began, 3),
            )  # fmt: skip
    return answers

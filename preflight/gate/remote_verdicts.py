"""Verdicts on a job's nodes, collected now over SSH.

For a controller without published verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from preflight.checks import registry
from preflight.collect.connection import connection
from preflight.collect.options import CollectOptions
from preflight.collect.request import CollectRequest
from preflight.collect.scheduler import Limits, NodeTransport, gather
from preflight.gate import announce, evaluate
from preflight.gate.ownership import relevant_probes
from preflight.gate.verdict import Verdict
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from preflight.gate.configuration import Configuration
    from preflight.gate.request import GateRequest

__all__ = ["UsageError", "verdicts"]

#: Seconds reserved for judging.
_RESERVE_S = 1.5


def verdicts(
    nodes: Sequence[str], request: GateRequest, config: Configuration, left_s: float
) -> Mapping[str, Verdict | str]:
    """Return the verdict on each node, or the error, within ``left_s`` seconds.

    Raises UsageError for an invalid SSH configuration, and UnknownCheck if the table [gate] leaves no check.
    """
    check_registry, hook = registry(), request.hook.name
    selection = evaluate.select(check_registry.checks, config.gate, config.gate.hook(hook), hook)
    limit_s = max(1.0, left_s - _RESERVE_S)
    ssh_config = Path(request.options.ssh_config) if request.options.ssh_config else None
    options = CollectOptions(deadline_s=limit_s, ssh_config=ssh_config, connect_timeout_s=min(15.0, limit_s))
    wanted = CollectRequest(tuple(nodes), relevant_probes(check_registry.probes), options, config.cluster)
    answers: dict[str, Verdict | str] = dict.fromkeys(nodes, "it did not answer in time")
    with connection(wanted) as transport:
        for evidence in gather(
            nodes, cast(NodeTransport, transport), wanted.plans(), Limits(options.fanout, limit_s, limit_s)
        ):
            began = time.monotonic()
            result = evaluate.evaluate_node(evidence, config.cluster, selection, hook=hook, expects=True, gpus=None)
            answers[evidence.node] = Verdict(
                announce.name(evidence.node), result.status, request.at, cause=result.cause, reason=result.reason,
                owner=result.owner, action=result.action, causes=result.causes, unknowns=result.unknowns,
                off=result.off, seconds=round(time.monotonic() - began, 3),
            )  # fmt: skip
    return answers

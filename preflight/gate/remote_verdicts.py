"""The nodes of a job, queried now over SSH, for a controller to which they publish no verdicts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from preflight.checks import registry
from preflight.collect.options import CollectOptions, plans
from preflight.collect.scheduler import Limits, NodeTransport, gather
from preflight.gate import announce, evaluate
from preflight.gate.ownership import relevant_probes
from preflight.gate.verdict import Verdict
from preflight.run.fleet import connection
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from preflight.gate.configuration import Configuration
    from preflight.gate.gate_run import GateRun

__all__ = ["UsageError", "verdicts"]

#: Seconds reserved for judging.
_RESERVE_S = 1.5


def verdicts(nodes: Sequence[str], gate_run: GateRun, config: Configuration) -> Mapping[str, Verdict | str]:
    """Return what each node is judged to be, or why it was not.

    Raises UsageError if SSH is configured wrongly, UnknownCheck if the table [gate] is.
    """
    check_registry = registry()
    hook = gate_run.options.hook
    selection = evaluate.select(check_registry.checks, config.gate, config.gate.hook(hook), hook)
    limit_s = max(1.0, gate_run.watch.left_s - _RESERVE_S)
    ssh_config = Path(gate_run.options.ssh_config) if gate_run.options.ssh_config else None
    collect_options = CollectOptions(deadline_s=limit_s, ssh_config=ssh_config, connect_timeout_s=min(15.0, limit_s))
    plan_for = plans(relevant_probes(check_registry.probes), config.cluster, collect_options)
    answers: dict[str, Verdict | str] = dict.fromkeys(nodes, "it was not asked in time")
    with connection(nodes, collect_options) as transport:
        for evidence in gather(
            nodes, cast(NodeTransport, transport), plan_for, Limits(collect_options.fanout, limit_s, limit_s)
        ):
            began = time.monotonic()
            result = evaluate.evaluate_node(
                evidence, config.cluster, selection, hook=gate_run.options.hook, expects=True, gpus=None
            )  # fmt: skip
            answers[evidence.node] = Verdict(
                announce.name(evidence.node), result.status, gate_run.at, cause=result.cause, reason=result.reason,
                owner=result.owner, action=result.action, causes=result.causes, unknowns=result.unknowns,
                off=result.off, seconds=round(time.monotonic() - began, 3),
            )  # fmt: skip
    return answers

"""Check of the states of a pod's containers: restarts, and how they ended."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import outside_pod
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.pod import POD, Container, pod
from preflight.model import Finding, check, counted, none_of, passed, skipped, times, unknown, warned


def no_restarts(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a pod whose API object was not read, or lacks the restart counts."""
    try:
        node.evidence.value(POD)
    except EvidenceError as error:
        return skipped(f"the pod's object was not read: {error}", evidence=[POD])
    try:
        containers = pod(node.evidence).containers
    except EvidenceError:
        return None
    if any(container.restarts is not None for container in containers):
        return None
    return skipped("the pod's object does not state how often its containers were restarted", evidence=[POD])


@check(
    "container.state",
    title="The pod's containers were started once, and none of them failed",
    fault="A container of the pod failed, or was restarted",
    impact="blocks-job",
    source="Kubernetes API reference, core/v1 ContainerStatus: restartCount, state, lastState",
    fix="Run `kubectl describe pod POD` and `kubectl logs --previous POD`: they show why the container ended.",
    action="fix-job",
    unless=(outside_pod, no_restarts),
)
def container_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read how often each container of the pod was restarted, and how it last ended.

    ## Why it matters
    A container that is killed at its memory limit is restarted within seconds: the job hangs in the collective that it
    left, and nothing on the node looks wrong.

    ## Verdicts
    A container that ended with an error or at its memory limit warns, whether or not it was restarted. Restarts without
    a reason warn as well. A pod without access to the API is skipped, and so is an object without
    restart counts, as collected by an earlier version. `preflight read` judges pasted pods, events and containers by
    this check: a container that cannot start fails there.

    ## False alarms
    A container that was restarted on purpose, for example for a new image version.
    """
    containers = pod(node.evidence).containers
    reported = [container for container in containers if container.restarts is not None]
    bad = [container for container in reported if container.restarts or _failed(container)]
    for container in bad:
        what = f"was restarted {times(container.restarts)}" if container.restarts else "is not running"
        reason, _, code = container.ended.rpartition(" ")
        last = f"; it last ended with exit code {code}" + f" ({reason})" * bool(reason) if container.ended else ""
        yield warned(f"container {container.name} {what}{last}", subject=container.name,
                     found=container.ended or str(container.restarts), expected="no restart",
                     evidence=[POD], fix=_fix(container))  # fmt: skip
    if len(reported) < len(containers):
        yield unknown(
            f"the pod's object has no state of {counted(len(containers) - len(reported), 'container')}",
            evidence=[POD],
        )
    elif not bad:
        yield passed(f"{none_of(len(reported), 'container')} has failed or was restarted", evidence=[POD])


def _failed(container: Container) -> bool:
    reason, _, code = container.ended.rpartition(" ")
    return bool(container.ended) and (reason or code) != "Completed" and code != "0"


def _fix(container: Container) -> str:
    if "OOMKilled" in container.ended or container.ended.endswith(" 137"):
        return "Raise the container's memory limit (`kubectl describe pod POD`), or use fewer data-loader workers."
    return ""

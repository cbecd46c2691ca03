"""Check of the network between prefill and decode workers of a served model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.fabric import leaves
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, skipped, unknown, warned
from preflight.parsers.network.lldp import LLDP

_ROLES = ("prefill", "decode")


@dataclass(frozen=True)
class _Place:
    """A worker's place; empty strings if it is unknown or has none."""

    leaf: str
    domain: str


@check(
    "serving.placement",
    title="Prefill and decode workers are near each other",
    fault="Prefill and decode workers are on different leaves of an oversubscribed fabric",
    impact="slows-job",
    source="the KV cache of each request moves from a prefill to a decode worker: NVIDIA Dynamo, disaggregated serving",
    fix="Start workers of both roles below each leaf, or in each NVLink domain (`sbatch --nodelist`, a pod's node "
    "affinity), and route requests to near workers.",
    action="fix-site",
    gating=False,
    answers=("NT-INF-4",),
    scope="fleet",
    reads=(LLDP, "nvml:gpus"),
)
def placement(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the leaves and NVLink domains of prefill and decode workers.

    ## Why it matters
    The KV cache of each request moves from a prefill to a decode worker, often gigabytes. Over an oversubscribed spine,
    the first token waits for it.

    ## Verdicts
    Roles are those of `role` in [class.NAME.serving] of the cluster file. A worker is near those of the other role
    below the same leaf or group of leaves, in the same NVLink domain, or on the same node. Workers without one warn if
    the spine is oversubscribed, and pass if the cluster file declares that it is not: `oversubscription = 1` in
    [class.NAME.tree]. Without that number, without the leaf of a node ([leaves] of the cluster file, or LLDP), or
    without any node of the other role, the result is *unknown*.

    ## False alarms
    Decode workers that get their KV cache from a shared store instead of from prefill workers.
    """
    roles = {node.node: sites[node.node].members.serving.role for node in nodes}
    if idle := [name for name, role in roles.items() if not role]:
        yield skipped("the cluster file declares no serving role for these nodes", evidence=[LLDP]).on(idle)
    workers = [node for node in nodes if roles[node.node]]
    of_role = {role: [node.node for node in workers if roles[node.node] in (role, "both")] for role in _ROLES}
    for absent, other in (_ROLES, _ROLES[::-1]):
        if workers and not of_role[absent]:
            yield unknown(f"no {absent} worker was judged, so the network between them is unknown",
                          fix="judge the nodes of both roles together").on(of_role[other])  # fmt: skip
            return
    place_of = _places(workers, sites)
    for role, other in (_ROLES, _ROLES[::-1]):
        yield from _of_role(role, [name for name in of_role[role] if roles[name] != "both"],
                            [place_of[name] for name in of_role[other]], place_of, sites)  # fmt: skip
    if both := [name for name in of_role["prefill"] if roles[name] == "both"]:
        yield passed("prefill and decode workers share the node", evidence=[LLDP]).on(both)


def _of_role(
    role: str, names: Sequence[str], others: Sequence[_Place], place_of: Mapping[str, _Place], sites: Mapping[str, Site]
) -> Iterator[Finding]:
    other = _ROLES[role == "prefill"]
    near: list[str] = []
    apart: list[str] = []
    unplaced: list[str] = []
    for name in names:
        own = place_of[name]
        if any(
            (own.leaf and own.leaf == there.leaf) or (own.domain and own.domain == there.domain) for there in others
        ):
            near.append(name)
        elif own.leaf and all(there.leaf for there in others):
            apart.append(name)
        else:
            unplaced.append(name)
    if near:
        yield passed(f"a {other} worker is below the same leaf or in the same NVLink domain", evidence=[LLDP]).on(near)
    if unplaced:
        yield unknown(
            f"not all leaves of {role} and {other} workers are known, and no NVLink domain joins them",
            evidence=[LLDP], fix="declare the leaf of each node in [leaves] of the cluster file, or run lldpd",
        ).on(unplaced)  # fmt: skip
    by_ratio: dict[float | None, list[str]] = defaultdict(list)
    for name in apart:
        by_ratio[sites[name].members.tree.oversubscription].append(name)
    for ratio, members in by_ratio.items():
        message = f"no {other} worker is below the leaf of this {role} worker"
        if ratio is None:
            yield unknown(f"{message}; whether the spine is oversubscribed is not declared", evidence=[LLDP],
                          fix="declare oversubscription in [class.NAME.tree]").on(members)  # fmt: skip
        elif ratio > 1:
            yield warned(f"{message}, and the spine is oversubscribed {ratio:g}:1", found=f"{ratio:g}:1",
                         expected=f"a {other} worker below the same leaf", evidence=[LLDP]).on(members)  # fmt: skip
        else:
            yield passed(f"{message}; the spine is not oversubscribed", found="1:1", evidence=[LLDP]).on(members)


def _places(workers: Sequence[NodeFacts], sites: Mapping[str, Site]) -> dict[str, _Place]:
    """Return the place of each worker; the declared leaf takes precedence over LLDP."""
    heard = {
        node.node: node.remember_for_fleet("switches of compute ports", _heard, node, sites[node.node])
        for node in workers
    }
    groups = leaves.groups_of(leaves.announced(heard))
    return {node.node: _Place(sites[node.node].leaf or groups.get(node.node, ""), _domain(node)) for node in workers}


def _heard(node: NodeFacts, site: Site) -> tuple[leaves.HeardSwitch, ...]:
    return leaves.heard(node, lambda node: site.roles(node).compute)


def _domain(node: NodeFacts) -> str:
    try:
        return node.remember_for_fleet("multi-node NVLink domain", _of_gpus, node)
    except EvidenceError:
        return ""


def _of_gpus(node: NodeFacts) -> str:
    domains = {gpu.fabric.domain for gpu in node.gpu_health.gpus if gpu.fabric is not None}
    return domains.pop() if len(domains) == 1 else ""

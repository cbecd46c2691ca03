"""NCCL on all ranks of a job: the same version, and the same settings wherever they must agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from preflight.checks.fleet import equal
from preflight.checks.nccl_place import nccl_versions
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.fleet import settles
from preflight.facts.nccl_env import PROCESS
from preflight.facts.nccl_lint.sources import RANKS
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, failed, passed, unknown, warned


@check(
    "fleet.nccl-equal",
    title="All nodes have the same NCCL",
    source="NCCL: all ranks of a communicator must run one version; majority of at least 3 nodes and 60 %",
    fix="`ldconfig -p | grep nccl`; bring the odd nodes to the version of the others; in containers pull one "
    "image by digest.",
    answers=("PA-03", "NT-PIT-4"),
    scope="fleet",
)
def version_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the NCCL versions that are installed across nodes of the same kind.

    Ranks on different versions pick different algorithms and message sizes: the job ends in its start with
    "message truncated", or hangs in its first collective.

    Both the system's NCCL and those of Python packages count. Nodes that have none do not vote; a node that differs
    from a majority fails.

    A false alarm: a spare package on one node that no job loads.
    """

    def read(node: NodeFacts, site: Site) -> str | None:
        if not node.gpus_on_bus:
            return None
        node.evidence.text(LIBRARIES, allow_rc=(0, 1))
        return " and ".join(".".join(map(str, version)) for version in sorted(set(nccl_versions(node)))) or None

    yield from equal(nodes, sites, "NCCL", read, LIBRARIES)


@check(
    "fleet.ranks-agree",
    title="NCCL's settings are the same on every rank",
    source="NCCL user guide, Environment Variables: some must be equal on all ranks; majority of 3 nodes and 60 %",
    fix="Set it in one place for all ranks: the job script, or the same /etc/nccl.conf on every node.",
    answers=("NT-ENV-14",),
    scope="fleet",
)
def ranks_agree(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare NCCL's variables across the nodes of the same kind, and across the ranks that run on them.

    Ranks that disagree on an algorithm, a protocol or a buffer's size wait for messages that the others never send:
    the job hangs in its first collective, or ends with "message truncated", and no rank is to blame by itself.

    Where ranks of a job run on a node their own environments count, else what a job started there would inherit.
    Algorithm, protocol, buffer sizes, threads, numbers of channels, cuMem, NVLink SHARP and the network fail where
    they differ; other variables warn. A value that is the default is the same as unset. Names of interfaces, HCAs
    and files, GID indices and debugging may differ from node to node.

    A false alarm: nodes of two jobs that were judged together; give the nodes of one job (`--job`, `--hosts`).
    """
    groups: dict[Hashable, dict[str, list[dict[str, str]]]] = defaultdict(dict)
    for node in nodes:
        site = sites[node.node]
        try:
            known = node.ballot("ranks' settings", _settings, node)
        except EvidenceError as error:
            yield unknown(f"NCCL's settings could not be read: {error}", evidence=[error.key]).on([node.node])
            continue
        groups[site.class_name, site.part.name if site.part else ""][node.node] = known
    for group in groups.values():
        yield from _agree(group)


def _settings(node: NodeFacts) -> list[dict[str, str]]:
    from preflight.facts.nccl_lint.agree import values

    return [values(env) for env in _environments(node)]


def _environments(node: NodeFacts) -> Iterator[Mapping[str, str]]:
    """Yield the settings of each kind of rank on a node, or of the process that was asked; raises EvidenceError."""
    try:
        ranks = node.nccl_ranks.environments
    except EvidenceError:
        ranks = ()
    if ranks:
        if len({rank.variables.get("SLURM_JOB_ID") for rank in ranks}) > 1:
            raise EvidenceError(RANKS, "ranks of several jobs run here")
        yield from (rank.variables for rank in ranks)
        return
    env = node.nccl_env
    if env.unreadable:
        key, why = next(iter(env.unreadable.items()))
        raise EvidenceError(key, why)
    yield {setting.name: setting.value for setting in env.settings}


def _agree(group: Mapping[str, list[dict[str, str]]]) -> Iterator[Finding]:
    names = sorted({name for envs in group.values() for env in envs for name in env})
    odd: set[str] = set()
    several = len(group) > 1 or any(len(envs) > 1 for envs in group.values())
    if not several:
        yield unknown("the only node of its kind, nothing to compare with", evidence=[PROCESS]).on(group)
        return
    for name in names:
        for finding in _one(name, group):
            odd.update(finding.nodes)
            yield finding
    if fine := [node for node in group if node not in odd]:
        count = f"{len(names)} NCCL variables are" if names else "no NCCL variable is set,"
        yield passed(f"{count} the same on all ranks", evidence=[PROCESS, RANKS]).on(fine)


def _one(name: str, group: Mapping[str, list[dict[str, str]]]) -> Iterator[Finding]:
    """Compare one variable: within each node first, then each node with the others."""
    from preflight.facts.nccl_lint.agree import MUST

    say = failed if name in MUST else warned
    single: dict[str, list[str]] = defaultdict(list)
    for node, envs in group.items():
        found = list(dict.fromkeys(env.get(name, "unset") for env in envs))
        if len(found) > 1:
            yield say(f"{name} differs between ranks of one node: {' and '.join(found[:3])}", subject=name,
                      found=", ".join(found[:8]), expected="one value", evidence=[RANKS]).on([node])  # fmt: skip
        else:
            single[found[0]].append(node)
    total = sum(map(len, single.values()))
    if len(single) < 2:
        return
    usual, holders = max(single.items(), key=lambda item: (len(item[1]), item[0]))
    if settles(len(holders), total):
        for value, odd in sorted(single.items()):
            if value != usual:
                yield say(f"{name} is {value}, {usual} on {len(holders)} of {total} nodes", subject=name,
                          found=value, expected=f"{usual} ({len(holders)} of {total} nodes)",
                          evidence=[PROCESS, RANKS]).on(odd)  # fmt: skip
        return
    listed = "; ".join(f"{value} on {len(names)}" for value, names in sorted(single.items()))
    yield say(f"{name} differs, and no value has a majority: {listed}", subject=name, found=listed,
              expected="one value on all ranks", evidence=[PROCESS, RANKS]).on(
        sorted(node for nodes in single.values() for node in nodes)
    )  # fmt: skip

"""Checks that all ranks of a job have the same NCCL version and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from preflight._startup.lightclass import dataclass
from preflight.checks.comparison import declared_values
from preflight.checks.comparison.compare import COLLECT_MORE, ONLY_NODE, differences, equal
from preflight.checks.comparison.electorate import Electorate, Trait, failing, kinds
from preflight.checks.nccl import environment, fabric_fit, features, load_balancing
from preflight.checks.nccl import settings as nccl_lint
from preflight.checks.nccl.settings_scope import nccl_versions
from preflight.checks.roce import fleet
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.nccl_settings.collect import RANKS
from preflight.facts.nccl_settings.rank_agreement import MUST, compared, values
from preflight.facts.node import NodeFacts
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, clause, failed, passed, unknown, warned


@check(
    "fleet.nccl-equal",
    title="All nodes have the same NCCL version",
    fault="A node has a different NCCL version",
    impact="blocks-job",
    explains=(("versions.nccl", "node", "*", "several NCCL versions *"),),
    source="NCCL: all ranks of a communicator must run the same version; majority of at least 3 nodes and 60%",
    fix="Decide which version is right (`ldconfig -p | grep nccl`) and install it on all nodes; for containers, "
    "pull one image by digest.",
    action="fix-site",
    answers=("PA-03", "NT-PIT-4"),
    scope="fleet",
)
def version_equal(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the installed NCCL versions across nodes of the same kind.

    ## Why it matters
    Ranks on different versions select different algorithms and message sizes: the job fails at start with "message
    truncated", or hangs in its first collective.

    ## Verdicts
    The system's NCCL and those of Python packages are compared. Nodes without NCCL do not vote. A node that differs
    from the majority fails; without a majority, all nodes fail.

    ## False alarms
    A spare package on one node that no job loads.
    """
    yield from equal(nodes, sites, NCCL)


def _versions(node: NodeFacts, site: Site) -> str | None:
    if not node.gpus_on_bus:
        return None
    node.evidence.text(LIBRARIES, allow_rc=(0, 1))
    return " and ".join(".".join(map(str, version)) for version in sorted(set(nccl_versions(node)))) or None


NCCL = Trait("NCCL", LIBRARIES, _versions, breaks=True, expects="versions.nccl")


@check(
    "fleet.ranks-agree",
    title="NCCL settings are equal on every rank",
    fault="NCCL settings differ between ranks",
    impact="blocks-job",
    owner="job",
    explains=(("nccl.run-settings", "log"), ("nccl.pinned-choices", "part")),
    source="NCCL user guide, Environment Variables: some must be equal on all ranks; majority of 3 nodes and 60%",
    fix="Set it in one place for all ranks: the job script, or the same /etc/nccl.conf on every node.",
    action="fix-site",
    answers=("NT-ENV-14",),
    scope="fleet",
)
def ranks_agree(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare NCCL variables across nodes of the same kind and their ranks.

    ## Why it matters
    Ranks that disagree on an algorithm, a protocol or a buffer size wait for messages that their peers never send. The
    job hangs in its first collective, or fails with "message truncated", and no single rank shows the fault.

    ## Verdicts
    The environments of ranks running on a node are compared, else the environment that a new job would inherit.
    Differences in algorithm, protocol, buffer sizes, threads, numbers of channels, cuMem, NVLink SHARP or network fail;
    other variables warn. A default value is equal to an unset variable. Names of interfaces, HCAs and files, GID
    indexes and debug settings may differ between nodes. A node whose own checks reject a variable
    (nccl.left-over-disables, nccl.load-balancing, the traffic class of roce.chain, …) does not vote on it.

    ## False alarms
    Nodes of two jobs judged together; select the nodes of one job (`--job`, `--hosts`).
    """
    for members in kinds(nodes, sites):
        group: dict[str, _Settings] = {}
        for node in members:
            try:
                group[node.node] = node.remember_for_fleet("ranks' settings", _settings, node, sites[node.node])
            except EvidenceError as error:
                yield unknown(f"the NCCL settings could not be read: {error}", evidence=[error.key]).on([node.node])
        if group:
            yield from _agree(group)


@dataclass(frozen=True)
class _Settings:
    """Variables set by each kind of rank on a node, and the checks that reject them."""

    of_ranks: tuple[Mapping[str, str], ...]
    faults: Mapping[str, tuple[str, ...]]

    def values(self, name: str) -> list[str]:
        """Return the distinct values of a variable on the node's ranks."""
        return list(dict.fromkeys(settings.get(name, "unset") for settings in self.of_ranks))


#: Checks whose findings have the variable as their subject.
_OF_ONE = (environment.left_over_disables, nccl_lint.variable_values, fabric_fit.fit, features.mnnvl)

_TRAFFIC_CLASS = "NCCL_IB_TC"


def _settings(node: NodeFacts, site: Site) -> _Settings:
    of_ranks = tuple(values(env) for env in _environments(node))
    faults = {name: failing(_OF_ONE, node, site, name) for settings in of_ranks for name in settings}
    if by := failing((load_balancing.load_balancing,), node, site):
        faults |= dict.fromkeys(load_balancing.VARIABLES, by)
    for trait in declared_variables(site):
        if compared(trait.what) and declared_values.misses(trait, _shown(of_ranks, trait.what), site):
            faults[trait.what] = (*faults.get(trait.what, ()), declared_values.CHECK)
    with suppress(EvidenceError):
        faults[_TRAFFIC_CLASS] = fleet.breaks("traffic class", "DSCP")(node, site)
    return _Settings(of_ranks, {name: by for name, by in faults.items() if by})


def declared_variables(site: Site) -> Iterator[Trait]:
    """Yield a trait for each variable that the cluster file declares for all ranks."""
    for name in site.members.nccl or ():

        def normal(value: str, name: str = name) -> str:
            return values({name: value}).get(name, "unset") if compared(name) else value

        def read(node: NodeFacts, site: Site, name: str = name, normal: Callable[[str], str] = normal) -> str | None:
            settings = [{name: normal(env[name])} if name in env else {} for env in _environments(node)]
            return _shown(settings, name)

        yield Trait(name, PROCESS, read, breaks=name in MUST, expects=f"nccl.{name}", form=normal)


def _shown(of_ranks: Sequence[Mapping[str, str]], name: str) -> str:
    """Return the values of a variable on a node's ranks, as one text."""
    return " and ".join(sorted({settings.get(name, "unset") for settings in of_ranks}) or ["unset"])


def _environments(node: NodeFacts) -> Iterator[Mapping[str, str]]:
    """Yield the settings of each kind of rank, or of the collecting process.

    Raises EvidenceError.
    """
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


def _agree(group: Mapping[str, _Settings]) -> Iterator[Finding]:
    names = sorted({name for node in group.values() for settings in node.of_ranks for name in settings})
    odd: set[str] = set()
    if len(group) < 2 and all(len(node.of_ranks) < 2 for node in group.values()):
        yield unknown(ONLY_NODE, evidence=[PROCESS],
                      fix=COLLECT_MORE).on(group)  # fmt: skip
        return
    for name in names:
        for finding in _one(name, group):
            odd.update(finding.nodes)
            yield finding
    if fine := [node for node in group if node not in odd]:
        on = "on most nodes" if odd else "on all ranks"
        message = f"{clause(len(names), 'NCCL variable', 'is')} the same {on}"
        yield passed(message if names else "no rank sets an NCCL variable", evidence=[PROCESS, RANKS]).on(fine)


def _one(name: str, group: Mapping[str, _Settings]) -> Iterator[Finding]:
    """Compare one variable, first within each node, then across nodes."""
    trait = Trait(name, PROCESS, lambda node, site: None, breaks=name in MUST)
    single: dict[str, str] = {}
    for node, settings in group.items():
        found = settings.values(name)
        if len(found) > 1:
            grade = failed if trait.breaks else warned
            yield grade(f"{name} differs between the ranks of one node: {' and '.join(found[:3])}", subject=name,
                      found=", ".join(found[:8]), expected="one value", evidence=[RANKS]).on([node])  # fmt: skip
        else:
            single[node] = found[0]
    reported = {node: by for node in single if (by := group[node].faults.get(name, ()))}
    yield from differences(trait, Electorate(
        {node: value for node, value in single.items() if node not in reported},
        {node: value for node, value in single.items() if node in reported}, reported, {},
    ))  # fmt: skip

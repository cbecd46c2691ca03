"""Check whether the places of late ranks in their nodes explain the delay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from preflight.checks.job.torch_collectives import HARDLY
from preflight.checks.job.torch_trace import each
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.node import TOPO
from preflight.model import Finding, check, none_of, passed, unknown, warned
from preflight.parsers.nvidia.topology import NEAR_CODES, RANK

if TYPE_CHECKING:
    from preflight.facts.trace.job import JobTrace
    from preflight.parsers.nvidia.topology import Topology

#: Minimum number of hosts on which the ranks in one place are late.
_HOSTS = 2
#: Maximum number of hosts named in a message.
MOST_HOSTS = 16


@check(
    "torch.placement",
    title="No rank is late because of its place in the node",
    fault="Ranks are late because of their place in the node",
    impact="slows-job",
    explains=(("torch.straggler", "node"),),
    source="nvidia-smi topo -m (legend); torchrun numbers the ranks of a node in the order of its GPUs",
    fix="Bind each rank near its GPU (`numactl`, `--cpu-bind`), and compare `nvidia-smi topo -m` with the NICs in use.",
    answers=("NT-LENS-6",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def placement(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the places of late ranks in their nodes, and the paths from their GPUs.

    ## Why it matters
    A GPU whose NIC is behind the other socket delays its rank on every node that is built or bound this way. To each
    node alone it looks like one slow GPU.

    ## Verdicts
    The late ranks are those of torch.straggler. The check warns if ranks in one place, such as the third of each host,
    are late on at least two hosts and on more than half of them; hosts with fewer ranks in the traces than usual, or
    whose first rank is not known, do not count. If every GPU of a node has a rank in the traces, it also warns if
    `nvidia-smi topo -m` shows a longer path to the nearest NIC for a late rank's GPU than for the GPUs of its peers. A
    job without a late rank passes if all ranks could be compared. A late rank without evidence from its node is
    unknown.

    ## False alarms
    Layouts that give the ranks in one place more work, such as the last stage of a pipeline.
    """
    job = run.job_trace
    keys = list(run.traces)
    if not job.stragglers:
        yield _none_late(run, job, keys)
        return
    places = _places(job)
    late = {straggler.rank for straggler in job.stragglers}
    comparable = _comparable(job, places)
    same = {at: hosts for at, hosts in _late_places(comparable, late).items() if _everywhere(comparable, at, hosts)}
    for at, hosts in same.items():
        named = ", ".join(hosts[:MOST_HOSTS])
        yield warned(
            f"the ranks in place {at} of {len(hosts)} hosts are late: {named}", subject=f"place {at}",
            found=f"{len(hosts)} hosts", expected="no place that is late on several hosts", evidence=keys,
        )  # fmt: skip
    for rank in sorted(late):
        host = job.ranks[rank].host
        if host is None or rank not in places.get(host, ()):
            yield unknown(f"the trace of the late rank {rank} names no host", subject=f"rank {rank}",
                          evidence=[job.ranks[rank].key])  # fmt: skip
        elif host not in same.get(places[host].index(rank), ()):
            yield _on_node(run, job, rank, places[host])


def _none_late(run: RunFacts, job: JobTrace, keys: list[str]) -> Finding:
    """Report a job without a late rank."""
    shares = [facts["gpu"]["communication_share"] for _, _, facts in each(run) if facts["gpu"]]
    if len(shares) > 1 and max(share or 0.0 for share in shares) <= HARDLY:
        return passed("no rank is late: hardly any communication", evidence=keys)
    gaps = job.missing or job.refused or job.unnamed or job.repeated or job.suspects or job.slow_transfers
    if gaps or not job.matched:
        return unknown("no late rank is known, but not all ranks could be compared: see torch.straggler", evidence=keys,
                       fix="pass the traces of all ranks, of the same steps")  # fmt: skip
    return passed(f"{none_of(len(job.compared), 'rank')} is late", evidence=keys)


def _places(job: JobTrace) -> Mapping[str, tuple[int, ...]]:
    """Return the ranks of each host in order, if their numbers are consecutive."""
    hosts: dict[str, list[int]] = defaultdict(list)
    for rank, trace in sorted(job.ranks.items()):
        if trace.host:
            hosts[trace.host].append(rank)
    return {host: tuple(ranks) for host, ranks in hosts.items() if ranks[-1] - ranks[0] == len(ranks) - 1}


def _comparable(job: JobTrace, places: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    """Return the hosts that have the usual number of ranks and a known first rank."""
    most = max(map(len, places.values()), default=0)
    return {
        host: ranks for host, ranks in places.items()
        if len(ranks) == most and (ranks[0] == 0 or (ranks[0] - 1 in job.ranks and job.ranks[ranks[0] - 1].host))
    }  # fmt: skip


def _late_places(places: Mapping[str, tuple[int, ...]], late: set[int]) -> Mapping[int, list[str]]:
    """Map each place to the hosts on which the rank in that place is late.

    Hosts on which all ranks are late are left out.
    """
    hosts: dict[int, list[str]] = defaultdict(list)
    for host, ranks in places.items():
        for at, rank in enumerate(ranks):
            if rank in late and not late.issuperset(ranks):
                hosts[at].append(host)
    return hosts


def _everywhere(places: Mapping[str, tuple[int, ...]], at: int, hosts: list[str]) -> bool:
    return len(hosts) >= _HOSTS and 2 * len(hosts) > sum(len(ranks) > at for ranks in places.values())


def _on_node(run: RunFacts, job: JobTrace, rank: int, ranks: tuple[int, ...]) -> Finding:
    """Compare the path from a late rank's GPU to its NIC with those of peers."""
    host = job.ranks[rank].host
    at: dict[str, Any] = {"subject": f"rank {rank}", "evidence": [job.ranks[rank].key]}
    node = run.host(host)
    if node is None:
        return unknown(f"rank {rank} is late, and no evidence from its node {host} is given",
                       fix=f"judge it with the traces: preflight check --hosts {host} --log …", **at)  # fmt: skip
    try:
        topology = node.topology
    except EvidenceError as error:
        return unknown(f"rank {rank} is late, and the topology of {host} is not known: {error}", **at)
    if len(topology.gpus) != len(ranks) or not topology.nics or topology.cut_rows:
        return unknown(f"rank {rank} is late; {host} has {len(topology.gpus)} GPUs, {len(topology.nics)} NICs and "
                       f"{len(ranks)} ranks in the traces, so its GPU is not known", **at)  # fmt: skip
    return _by_matrix(topology, ranks.index(rank), f"rank {rank} on {host}", at)


def _by_matrix(topology: Topology, place: int, who: str, at: Mapping[str, Any]) -> Finding:
    codes = [topology.nearest_nics(gpu)[0] for gpu in topology.gpus]
    own, peers = codes[place], [code for number, code in enumerate(codes) if number != place]
    nearest = min(peers, key=lambda code: RANK.get(code, 99), default=own)
    message = f"{who} is late; {topology.gpus[place]} reaches its nearest NIC by {own} ({TOPO.removeprefix('cmd:')})"
    if own not in NEAR_CODES and RANK.get(own, 99) > RANK.get(nearest, 99):
        return warned(f"{message}, its peers by {nearest}", found=own, expected=nearest, **at)
    return passed(f"{message}, as near as its peers: its place does not explain it", found=own, **at)

"""Check of the transport between nodes in a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import facts, parsers
from preflight.checks.job.cause import HostGroup, because, blamed, contradictions, fix, grouped, named, of_log, witness
from preflight.checks.logs import RERUN, cited, log_name, no_nccl, node_count
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, verb

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause import HostStatements
    from preflight.parsers.nccl_log import LogLine, NcclLog

TROUBLESHOOTING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"

MIB, GIB = 2**20, 2**30


def _traffic(nodes: int | None) -> str:
    return f"the traffic of {nodes} nodes" if nodes else "the network traffic"


@check(
    "nccl.transport",
    title="Traffic between nodes uses RDMA, not TCP",
    fault="Traffic between nodes uses TCP, not RDMA",
    impact="slows-job",
    explains=(
        ("nccl.run-settings", "node", "*NCCL_IB_DISABLE*", "NCCL_IB_DISABLE"),
        ("nccl.run-settings", "node", "*NCCL_NET=*", "NCCL_NET"),
        ("nccl.rails", "node"),
        ("nccl.hca-roles", "node"),
        ("nccl-tests.busbw", "node"),
        ("nccl-tests.curve", "node"),
    ),
    source=f"{TROUBLESHOOTING}; line formats as in NCCL 2.4 … 2.30",
    fix="Set NCCL_NET=IB so that a run fails rather than falls back, then fix the first cause that the log states.",
    action="fix-job",
    answers=("NT-NCCL-1", "NT-NCCL-2", "NT-LENS-3", "NT-PIT-2"),
    separate=True,
    scope="run",
    unless=(no_nccl,),
)
def transport(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the network in use between nodes with InfiniBand, RoCE or a plug-in.

    ## Why it matters
    NCCL falls back to TCP without an error: the job gets a fraction of the fabric's bandwidth, and the CPUs copy the
    data.

    ## Verdicts
    Channel lines ("via NET/X") take precedence over "Using network X". A transport that was only initialised, or a
    plug-in that was only loaded, does not count as used. TCP between nodes fails; hosts that differ are named with
    their ranks. A job on one node needs no network (`nccl.within-node`).

    The evidence of the log's hosts (`preflight check --hosts … --log FILE`, `preflight judge EVIDENCE --log FILE`) may
    show the cause. The finding states the first that applies: NCCL_IB_DISABLE or NCCL_NET disables RDMA, there is no
    RDMA NIC (skipped, unless the cluster file expects one), no RDMA driver, no /dev/infiniband or no verbs library,
    NCCL_IB_HCA selects nothing, all ports are down, or the plug-in is missing. A log alone gives the probable cause and
    how to confirm it; if log and node contradict each other, the cause is unknown, and both are quoted.

    ## False alarms
    A cluster without RDMA; declare hcas = 0 in the cluster file. The cause may be wrong if the evidence is from the
    host of a container, or from after a repair; collect where and while the job runs.
    """
    for key, log in run.nccl_logs.items():
        nodes = node_count(run, key)
        if _over_tcp(log, nodes):
            yield from _fallback(run, log, nodes, site, key)
        else:
            yield _transport(log, nodes, key)


def _over_tcp(log: NcclLog, nodes: int | None) -> bool:
    """Return whether TCP carries traffic between nodes.

    If the number of nodes is unknown, the log must also have channel lines.
    """
    tcp = any(parsers.nccl_log.is_tcp(network) for network in log.network_names)
    tcp = tcp or any(host.falls_back for host in of_log(log))
    return tcp and nodes != 1 and (nodes is not None or bool(log.channels))


def _transport(log: NcclLog, nodes: int | None, key: str) -> Finding:
    name, networks = log_name(key), log.network_names
    if nodes == 1:
        return skipped(
            f"{name}: the job runs on one node, so there is no traffic between nodes", subject=name, evidence=[key]
        )
    if not networks:
        return unknown(f"{name}: no line shows which network is used", evidence=[key], fix=RERUN)
    if any(parsers.nccl_log.is_tcp(network) for network in networks):
        return unknown(
            f"{name}: NCCL chose TCP sockets, and it is not known whether the run had several nodes",
            found="TCP sockets",
            evidence=[key],
            fix=RERUN,
            quote=cited(_decisive(log)),
        )
    if log.ofi_provider is not None and log.ofi_provider.name.startswith(("tcp", "sockets", "udp")):
        return failed(
            f"{name}: libfabric's {log.ofi_provider.name} provider carries {_traffic(nodes)} instead of efa",
            subject=name,
            found=log.ofi_provider.name,
            expected="an RDMA provider",
            evidence=[key],
            fix=f"{_OF_LIBFABRIC} With FI_PROVIDER=efa, a run fails instead of falling back.",
            quote=cited(log.ofi_provider.first, _decisive(log)),
        )
    found = " and ".join(_kind(log, network) for network in networks)
    return passed(f"{name}: {found} carries {_traffic(nodes)}", subject=name, found=found, evidence=[key])


def _decisive(log: NcclLog, *, tcp: bool = True) -> LogLine | None:
    """Return the first line that shows TCP (or else the first network) in use."""
    networks = [(c.network, c.first) for c in log.channels] or [(use.name, use.first) for use in log.networks]
    return next(
        (line for network, line in networks if parsers.nccl_log.is_tcp(network) is tcp),
        networks[0][1] if networks else None,
    )


def _fallback(run: RunFacts, log: NcclLog, nodes: int | None, site: Site, key: str) -> Iterator[Finding]:
    name = log_name(key)
    if site.hcas.value == 0:
        yield passed(
            f"{name}: TCP carries {_traffic(nodes)}, as the site has no HCA ({site.hcas.source})",
            subject=name,
            found="NET/Socket",
            evidence=[key],
        )
        return
    hosts = of_log(log)
    fallen = [host for host in hosts if host.falls_back] or list(hosts)
    others = [host for host in hosts if host.networks and not host.falls_back] if len(fallen) < len(hosts) else []
    groups = grouped(run, fallen, facts.nccl_root_cause.of_fallback)
    expected = site.hcas.value or site.members.ports.compute
    for group in groups:
        if not others and not expected and group.agreed and group.cause and group.cause.kind.id == "no-rdma-nic":
            message = f"{name}: TCP carries {_traffic(nodes)}{because(group)}"
            yield skipped(message, subject=name, evidence=[key])
        else:
            yield _fallen(log, _traffic_of_group(log, group, others, nodes, apart=len(groups) > 1), group, key)
    yield from contradictions(groups, key, "the fallback to TCP")


def _traffic_of_group(
    log: NcclLog, group: HostGroup, others: list[HostStatements], nodes: int | None, *, apart: bool
) -> str:
    """Describe the traffic that TCP carries, of all nodes or some hosts.

    For some hosts, the share of lines is added.
    """
    total = sum(channel.count for channel in log.channels)
    tcp = sum(channel.count for channel in log.channels if parsers.nccl_log.is_tcp(channel.network))
    share = f" on {tcp} of {total} channels" if tcp < total else ""
    if not others:
        return (f"the traffic of {group.named}" if apart else _traffic(nodes)) + share
    ways = sorted({f"NET/{network}" for host in others for network in host.networks})
    carried = f"{' and '.join(ways)} {verb(len(ways), 'carries')} that of {named(others)}"
    return f"the traffic of {group.named}{share}, but {carried}"


#: Next step where the plug-in for libfabric (EFA) did not start.
_OF_LIBFABRIC = (
    "Run `fi_info -p efa` where the job runs, also in its container; pass the devices of /dev/infiniband to it, and "
    "install libfabric with the EFA provider."
)


def _fallen(log: NcclLog, traffic: str, group: HostGroup, key: str) -> Finding:
    name, cause = log_name(key), group.cause
    message = f"{name}: TCP sockets, not RDMA, carry {traffic}"
    stated = log.obstacles[0] if log.obstacles else None
    if cause is not None:
        message += because(group, named_before=group.named in traffic)
    elif stated is not None:
        cause_text = stated.message[:120].rstrip(".")
        message += f"; the first cause that the log states is in line {stated.number}: {cause_text}"
    elif log.ib_devices:
        names = ", ".join(f"{device.name}:{device.port}" for device in log.ib_devices[:4])
        message += f"; RDMA was found but not used: {names}"
    of_plugin = cause is None and stated is not None and stated.message.startswith("NET/OFI ")
    quoted = [cited(cause.line if cause else stated, _decisive(log)), witness(group)]
    return failed(
        message,
        subject=name,
        found="NET/Socket",
        expected="NET/IB, or a plug-in's network",
        evidence=[key],
        fix=_OF_LIBFABRIC if of_plugin else fix(group),
        quote="\n".join(text for text in quoted if text)[:600],
    ).from_cause(blamed(group))


def _kind(log: NcclLog, network: str) -> str:
    """Describe a network, with the link layer of its ports if the log lists them."""
    layers = sorted({"RoCE" if device.roce else "InfiniBand" for device in log.ib_devices})
    return f"NET/{network}" + (f" ({' and '.join(layers)})" if layers else "")

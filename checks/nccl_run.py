"""A run's logs: which way the traffic took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight import facts
from preflight.cluster import Site
from preflight.facts import RunFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nccl_log import Line, NcclLog

TROUBLESHOOTING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"
ASK = "run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"

MIB, GIB = 2**20, 2**30


def _name(key: str) -> str:
    return key.removeprefix("log:")


def _quote(*lines: Line | None) -> str:
    """Return lines with their numbers, in order, at most 600 characters."""
    said = sorted({line for line in lines if line is not None}, key=lambda line: line.number)
    return "\n".join(str(line) for line in said)[:600]


def _nodes(run: RunFacts, key: str) -> int | None:
    """Number of nodes of a log: NCCL's own word, else the hosts of the nccl-tests reports in it."""
    if (log := run.nccl_logs.get(key)) is not None and log.nnodes is not None:
        return log.nnodes
    return max((report.nnodes for report in run.nccl_tests.get(key, ()) if report.nnodes), default=None)


def _no_nccl(run: RunFacts) -> Iterator[Finding]:
    """Say that no log tells anything of NCCL's transports; nothing where one does."""
    if not run.logs:
        yield unknown("no log was given", fix="give the job's log: --log FILE")
    elif not run.nccl_logs:
        yield unknown("no line of NCCL in any log", evidence=run.logs, fix=ASK)


def _traffic(nodes: int | None) -> str:
    return f"the traffic of {nodes} nodes" if nodes else "the network traffic"


# --- transport -------------------------------------------------------------------------------------


@check(
    "nccl.transport",
    title="Traffic between nodes takes RDMA, not TCP",
    source=f"{TROUBLESHOOTING}; line formats as in NCCL 2.4 … 2.30",
    fix="Set NCCL_NET=IB so that a run fails rather than falls back, then cure the first cause that the log states.",
    answers=("NT-NCCL-1", "NT-NCCL-2", "NT-LENS-3", "NT-PIT-2"),
    scope="run",
)
def transport(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the network that NCCL's log shows in use between nodes with InfiniBand, RoCE or a plug-in.

    NCCL falls back to TCP without an error: the job runs, at a tenth of the fabric's bandwidth, and
    its CPUs copy what the HCAs should.

    Channel lines ("via NET/X") decide; without them "Using network X" does. That a transport was initialised or
    a plug-in loaded is no use of it. One node needs no network, whatever NCCL chose.

    A false alarm: a cluster without RDMA; say hcas = 0 in the cluster file.
    """
    yield from _no_nccl(run)
    for key, log in run.nccl_logs.items():
        yield _transport(log, _nodes(run, key), site, key)


def _transport(log: NcclLog, nodes: int | None, site: Site, key: str) -> Finding:
    name, networks = _name(key), log.network_names
    if nodes == 1:
        return _one_node(log, key)
    if not networks:
        return unknown(f"{name}: no line says which network is used", evidence=[key], fix=ASK)
    if any(facts.nccl_log.is_tcp(network) for network in networks):
        if nodes is None and not log.channels:
            return unknown(
                f"{name}: NCCL chose TCP sockets, and nothing says whether the run had several nodes",
                evidence=[key],
                fix=ASK,
                quote=_quote(_decisive(log)),
            )
        return _fallback(log, nodes, site, key)
    if log.ofi_provider is not None and log.ofi_provider.name.startswith(("tcp", "sockets", "udp")):
        return failed(
            f"{name}: libfabric's {log.ofi_provider.name} provider carries {_traffic(nodes)}, expected efa",
            subject=name,
            found=log.ofi_provider.name,
            expected="an RDMA provider",
            evidence=[key],
            quote=_quote(log.ofi_provider.first, _decisive(log)),
        )
    found = " and ".join(_kind(log, network) for network in networks)
    return passed(f"{name}: {found} carries {_traffic(nodes)}", subject=name, found=found, evidence=[key])


def _one_node(log: NcclLog, key: str) -> Finding:
    """GPUs of one node that talk over a network cannot use NVLink, PCIe or shared memory."""
    name = _name(key)
    if not log.channels:
        return skipped(f"{name}: one node, no traffic between nodes", subject=name, evidence=[key])
    count = sum(channel.count for channel in log.channels)
    return warned(
        f"{name}: one node, but {count} channel connections over NET/{log.channels[0].network}",
        subject=name,
        found=f"NET/{log.channels[0].network}",
        expected="P2P or SHM between the GPUs of one node",
        evidence=[key],
        why="GPUs of one node that cannot use peer-to-peer or shared memory run at the pace of a NIC.",
        fix="Remove NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; ranks in separate containers must share /dev/shm and IPC.",
        quote=_quote(log.channels[0].first),
    )


def _decisive(log: NcclLog, *, tcp: bool = True) -> Line | None:
    """Return the first line that shows TCP (or else the first network) in use."""
    said = [(c.network, c.first) for c in log.channels] or [(use.name, use.first) for use in log.networks]
    return next((line for network, line in said if facts.nccl_log.is_tcp(network) is tcp), said[0][1] if said else None)


def _fallback(log: NcclLog, nodes: int | None, site: Site, key: str) -> Finding:
    name = _name(key)
    if site.hcas.value == 0:
        return passed(
            f"{name}: TCP carries {_traffic(nodes)}, as the site has no HCA ({site.hcas.source})",
            subject=name,
            found="NET/Socket",
            evidence=[key],
        )
    total = sum(channel.count for channel in log.channels)
    tcp = sum(channel.count for channel in log.channels if facts.nccl_log.is_tcp(channel.network))
    share = f" on {tcp} of {total} channels" if tcp < total else ""
    cause = log.obstacles[0] if log.obstacles else None
    message = f"{name}: TCP sockets carry {_traffic(nodes)}{share}, expected RDMA"
    if cause is not None:
        message += f"; first stated cause, line {cause.number}: {cause.message[:120]}"
    elif log.ib_devices:
        names = ", ".join(f"{device.name}:{device.port}" for device in log.ib_devices[:4])
        message += f"; RDMA was found and not used: {names}"
    return failed(
        message,
        subject=name,
        found="NET/Socket",
        expected="NET/IB, or a plug-in's network",
        evidence=[key],
        quote=_quote(cause, _decisive(log)),
    )


def _kind(log: NcclLog, network: str) -> str:
    """Name a network, with what its ports speak where the log lists them."""
    layers = sorted({"RoCE" if device.roce else "InfiniBand" for device in log.ib_devices})
    return f"NET/{network}" + (f" ({' and '.join(layers)})" if layers else "")


# --- GPUDirect RDMA --------------------------------------------------------------------------------


@check(
    "nccl.gpudirect-rdma",
    title="Every network channel uses GPUDirect RDMA",
    source=f"{TROUBLESHOOTING}#gpu-direct; `/GDRDMA` on channel lines, NCCL 2.4 … 2.30",
    fix="Load nvidia-peermem, or use the open kernel modules (DMA-BUF); then check GPU-NIC locality, ACS and IOMMU.",
    scope="run",
)
def gpudirect_rdma(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the network channels that end in /GDRDMA with all network channels of each log.

    Without GPUDirect RDMA each byte is copied through host memory: half the bandwidth or less, and CPU
    and memory traffic that grow with it.

    Only channel lines show use: "GDR 1" on the ring line, "DMA-BUF is available" and "GPU Direct RDMA
    Enabled for HCA" tell what could be used. Channels of one GPU far from every NIC stage through the
    host by design, so that some without only warn.
    """
    yield from _no_nccl(run)
    for key, log in run.nccl_logs.items():
        yield _gpudirect(log, _nodes(run, key), key)


def _gpudirect(log: NcclLog, nodes: int | None, key: str) -> Finding:
    name = _name(key)
    channels = [channel for channel in log.channels if not facts.nccl_log.is_tcp(channel.network)]
    if nodes == 1:
        return skipped(f"{name}: one node, no traffic between nodes", subject=name, evidence=[key])
    if not channels and log.network_names and all(facts.nccl_log.is_tcp(network) for network in log.network_names):
        return skipped(f"{name}: TCP sockets have no GPUDirect RDMA (see nccl.transport)", subject=name, evidence=[key])
    if not channels:
        return unknown(f"{name}: no channel line shows whether GPUDirect RDMA is used", evidence=[key], fix=ASK)
    total = sum(channel.count for channel in channels)
    direct = sum(channel.count for channel in channels if channel.gpudirect)
    if direct == total:
        return passed(f"{name}: all {total} network channels use GPUDirect RDMA", subject=name, evidence=[key])
    say = warned if direct else failed
    return say(
        f"{name}: {total - direct} of {total} network channels go without GPUDirect RDMA",
        subject=name,
        found=f"{direct} of {total} with /GDRDMA",
        expected="all",
        evidence=[key],
        quote=_quote(next(channel.first for channel in channels if not channel.gpudirect), *log.gpudirect_disabled[:1]),
    )

"""Checks of GPUDirect RDMA in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from preflight import facts, parsers
from preflight.checks.job.cause import HostGroup, because, blamed, contradictions, fix, grouped, of_log, witness
from preflight.checks.job.transport import TROUBLESHOOTING
from preflight.checks.logs import RERUN, cited, gpu_names, log_name, no_nccl, node_count
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.nccl_gpudirect import Ability, ability, network_of
from preflight.model import Finding, all_of, check, failed, passed, skipped, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog, NetChannels


@check(
    "nccl.gpudirect-rdma",
    title="Every network channel uses GPUDirect RDMA",
    fault="A network channel does not use GPUDirect RDMA",
    impact="slows-job",
    explains=(("nccl.run-settings", "node", "*NCCL_NET_GDR_LEVEL*", "NCCL_NET_GDR_LEVEL"),),
    separate=True,
    source=f"{TROUBLESHOOTING}#gpu-direct; `/GDRDMA` on channel lines, NCCL 2.4 … 2.30",
    fix="Compare GPU-NIC locality first (`nvidia-smi topo -m`, NCCL_NET_GDR_LEVEL); the finding names the fix "
    "for the network or its plug-in.",
    action="fix-job",
    scope="run",
    unless=(no_nccl,),
)
def gpudirect_rdma(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the /GDRDMA channels of each log with all its network channels.

    ## Why it matters
    Without GPUDirect RDMA, each byte is copied through host memory, which costs bandwidth and loads the CPU and the
    memory.

    ## Verdicts
    Only channel lines show that GPUDirect RDMA is used; "GDR 1" on the ring line, "DMA-BUF is available" and "GPU
    Direct RDMA Enabled for HCA" only show that it is possible. Channels without it fail if other channels or hosts in
    the log use it, or if the GPU is known (from nccl-tests or the node's evidence) and supports it on this network.
    They warn if the GPU is unknown, or if only sending channels lack it on GPUs without NVLink (NCCL_NET_GDR_READ).
    GeForce, GB10, and EFA instances before p4d do not support it and are skipped.

    The finding states a cause if the log and its hosts' evidence agree: NCCL_NET_GDR_LEVEL=LOC, neither nvidia-peermem
    nor DMA-BUF, or a NIC that is far from every GPU. If they contradict each other, the cause is unknown.

    ## False alarms
    NCCL up to 2.22 does not detect the nvidia-peermem of newer drivers; the node's evidence then contradicts the log.
    """
    for key, log in run.nccl_logs.items():
        yield from _gpudirect(run, log, node_count(run, key), key)


def _gpudirect(run: RunFacts, log: NcclLog, nodes: int | None, key: str) -> Iterator[Finding]:
    name = log_name(key)
    channels = _rdma_channels(log)
    if nodes == 1:
        yield skipped(
            f"{name}: the job runs on one node, so there is no traffic between nodes", subject=name, evidence=[key]
        )
    elif not channels and log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
        yield skipped(f"{name}: TCP sockets have no GPUDirect RDMA (see nccl.transport)", subject=name, evidence=[key])
    elif not channels:
        yield unknown(f"{name}: no channel line shows whether GPUDirect RDMA is used", evidence=[key], fix=RERUN)
    elif all(channel.gpudirect for channel in channels):
        total = sum(channel.count for channel in channels)
        yield passed(
            f"{name}: {all_of(total, 'network channel')} {verb(total, 'uses')} GPUDirect RDMA",
            subject=name,
            evidence=[key],
        )
    else:
        yield from _staged(run, log, key)


def _rdma_channels(log: NcclLog) -> list[NetChannels]:
    """Return RDMA channels whose lines show whether they use GPUDirect.

    Truncated lines do not.
    """
    return [one for one in log.channels if not parsers.nccl_log.is_tcp(one.network) and one.gpudirect is not None]


def _staged(run: RunFacts, log: NcclLog, key: str) -> Iterator[Finding]:
    """Report channels without GPUDirect RDMA, one finding per cause."""
    name, hosts = log_name(key), of_log(log)
    staged = [host for host in hosts if host.staged]
    groups = grouped(run, staged, facts.nccl_root_cause.of_staging) or [HostGroup(tuple(hosts), None)]
    channels = _rdma_channels(log)
    without = [channel for channel in channels if not channel.gpudirect]
    uses = any(channel.gpudirect for channel in channels)
    for group in groups:
        all_staged = not any(host.direct for host in group.hosts)
        apart = len(groups) > 1 or (all_staged and any(host.direct for host in hosts))
        direct = sum(channel.count for channel in channels if channel.gpudirect)
        number = sum(channel.count for channel in without)
        if apart:
            direct, number = sum(host.direct for host in group.hosts), sum(host.staged for host in group.hosts)
        network = without[0].network
        can = ability(network, gpu_names(run, key, [host.host for host in group.hosts]), _shape(log))
        cause = group.cause
        message = (
            f"{name}: {some_of(number, direct + number, 'network channel')}{f' of {group.named}' if apart else ''} "
            f"{verb(number, 'runs')} without GPUDirect RDMA{because(group, named_before=apart)}"
        )
        if can.able is False and not uses:
            yield skipped(f"{message}: {can.why}", subject=name, evidence=[key])
            continue
        quoted = [
            cited(without[0].first, *([cause.line] if cause else log.gpudirect_disabled[:1])),
            witness(group),
        ]
        grade, why = _grade(channels, direct, number, uses, can)
        yield grade(
            f"{message}{why}",
            subject=name,
            found=f"{direct} of {direct + number} with /GDRDMA",
            expected="all",
            evidence=[key],
            fix=_next(network, group),
            quote="\n".join(text for text in quoted if text)[:600],
        ).from_cause(blamed(group))
    yield from contradictions(groups, key, "channels without GPUDirect RDMA")


def _grade(
    channels: list[NetChannels], direct: int, without: int, uses: bool, can: Ability
) -> tuple[Callable[..., Finding], str]:
    """Return the constructor for channels without GPUDirect RDMA, and the reason.

    The reason is the end of a sentence.
    """
    if direct == without and _sends_only(channels):
        return warned, "; only sending channels are affected, because NCCL_NET_GDR_READ is 0 for GPUs without NVLink"
    if uses:
        return failed, "" if direct else "; other hosts of this log use it"
    return (failed, "") if can.able else (warned, f"; {can.why}")


def _sends_only(channels: list[NetChannels]) -> bool:
    """Return whether only the receiving channels use GPUDirect RDMA.

    The first line of each channel decides.
    """
    ways = {bool(channel.gpudirect): channel.first.message for channel in channels}
    return "[send]" in ways.get(False, "") and "[receive]" in ways.get(True, "")


def _shape(log: NcclLog) -> str:
    """Return the name of the topology file, which identifies a cloud instance, or ""."""
    found = log.variable("NCCL_TOPO_FILE")
    return found.value.rpartition("/")[2] if found is not None else ""


def _next(network: str, group: HostGroup) -> str:
    """Return the fix of a confirmed cause, else one that fits the network.

    Locality is checked first.
    """
    family = network_of(network)
    if group.agreed and (group.cause is None or group.cause.kind.id != "no-peer-memory" or family.able):
        return fix(group)
    step = fix(group) if family.able else ""
    return f"{family.fix} {step}".strip()

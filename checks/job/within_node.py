"""Check of the transports between the GPUs of a node in a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.checks.job.transport import TROUBLESHOOTING
from preflight.checks.logs import RERUN, cited, gpu_names, log_name, no_nccl, node_count
from preflight.expectations import Site
from preflight.expectations.catalogue import PARTS
from preflight.expectations.roofline.machine import gpu_named
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import LocalChannels, NcclLog

_PEER, _SHARED = "NT-LENS-4", "NT-LENS-5"


@check(
    "nccl.within-node",
    title="GPUs of a node exchange data directly, not through the host or a NIC",
    fault="GPUs of a node exchange data through the host or a NIC",
    impact="slows-job",
    explains=(
        ("nccl.run-settings", "node", "*NCCL_P2P_*", "NCCL_P2P_DISABLE"),
        ("nccl.run-settings", "node", "*NCCL_P2P_*", "NCCL_P2P_LEVEL"),
        ("nccl.run-settings", "node", "*NCCL_SHM_*", "NCCL_SHM_DISABLE"),
        ("nccl-tests.busbw", "node"),
    ),
    source=f"{TROUBLESHOOTING}#gpu-to-gpu-communication; `via P2P/…` and `via SHM/…` lines, NCCL 2.4 … 2.30",
    fix="Remove NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and NCCL_SHM_DISABLE. Ranks in separate containers must share IPC and "
    "/dev/shm, and see all GPUs of the node. `nvidia-smi topo -p2p r` shows whether the driver allows peer-to-peer.",
    action="fix-job",
    answers=(_PEER, _SHARED),
    scope="run",
    gating=False,  # never fails
    unless=(no_nccl,),
)
def within_node(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Read how the GPUs of each node exchange data, from the channel lines of a log.

    ## Why it matters
    Without peer-to-peer, each byte between two GPUs is copied through host memory: NVLink is idle. Without shared
    memory as well, it goes to a NIC and back.

    ## Verdicts
    Shared memory between GPUs that are all linked by NVLink warns. GPUs count as linked if NVLink SHARP is available,
    or if their names in nccl-tests or in the evidence of the log's hosts are those of a board with NVSwitches. For
    other GPUs, shared memory is unknown: NCCL also uses it between GPUs on different sockets. A network between the
    GPUs of a job on one node warns. A log without P2P and SHM lines of a host with several ranks is unknown in a job of
    several nodes, since NCCL connects ranks on first use; it warns if the log shows that both are disabled.

    ## False alarms
    A single node on which NCCL finds the path over its NICs faster than the one through the host.
    """
    for key, log in run.nccl_logs.items():
        yield from _within(run, log, node_count(run, key), key)


def _within(run: RunFacts, log: NcclLog, nodes: int | None, key: str) -> Iterator[Finding]:
    name = log_name(key)
    on_network = sum(channel.count for channel in log.channels)
    peers = [channel for channel in log.local if channel.transport != "SHM"]
    shared = [channel for channel in log.local if channel.transport == "SHM"]
    if nodes == 1 and on_network:
        network = f"NET/{log.channels[0].network}"
        channels = counted(on_network, "channel connection uses", "channel connections use")
        yield warned(f"{name}: the job runs on one node, but {channels} {network}", subject=name,
                     found=network, expected="P2P or SHM between the GPUs of one node", evidence=[key],
                     quote=cited(log.channels[0].first))  # fmt: skip
    elif not log.local:
        yield from _nothing_local(log, nodes, key)
    else:
        linked = _all_linked(run, log, key)
        if shared:
            yield _of_shared_memory(shared, linked, key)
            yield passed(f"{name}: {_shown(shared)}", subject=name, found="SHM", evidence=[key]).about(_SHARED)
        else:
            yield passed(f"{name}: {_shown(peers)}", subject=name, found=peers[0].transport,
                         evidence=[key]).about(_PEER)  # fmt: skip
            yield _without_shared_memory(name, linked=bool(linked) or nodes == 1, key=key)


def _of_shared_memory(shared: Sequence[LocalChannels], linked: str, key: str) -> Finding:
    """Judge shared memory between GPUs that may be linked by NVLink."""
    name = log_name(key)
    if linked:
        return warned(f"{name}: {_shown(shared)}, though {linked}", subject=name, found="SHM", expected="P2P",
                      evidence=[key], quote=cited(shared[0].first)).about(_PEER)  # fmt: skip
    return unknown(f"{name}: {_shown(shared)}; it is not known whether NVLink or PCIe could carry their data directly",
                   subject=name, found="SHM", expected="P2P, unless the GPUs are on different sockets without NVLink",
                   evidence=[key], fix="Compare with `nvidia-smi topo -m` and `nvidia-smi topo -p2p r` on that node, "
                   "or judge the log with the node's evidence.").about(_PEER)  # fmt: skip


def _without_shared_memory(name: str, *, linked: bool, key: str) -> Finding:
    """Judge a log in which no GPUs use shared memory, though some use peer-to-peer."""
    if linked:
        return passed(f"{name}: no two GPUs on a node need shared memory", subject=name, evidence=[key]).about(_SHARED)
    return unknown(f"{name}: no line shows shared memory; GPUs of a node without peer-to-peer may use the network",
                   subject=name, evidence=[key], fix="Run nccl-tests on one of the nodes, with NCCL_DEBUG=INFO."
                   ).about(_SHARED)  # fmt: skip


def _nothing_local(log: NcclLog, nodes: int | None, key: str) -> Iterator[Finding]:
    """Judge a log without P2P and SHM lines."""
    name = log_name(key)
    hosts = [host for _, host in log.ranks]
    several = sorted({host for host in hosts if hosts.count(host) > 1})
    if log.nranks is not None and nodes is not None and log.nranks <= nodes and not several:
        yield skipped(f"{name}: each node has one rank", subject=name, evidence=[key])
    elif several and log.channels and _off(log, "NCCL_P2P_DISABLE") and _off(log, "NCCL_SHM_DISABLE"):
        yield warned(f"{name}: the ranks of {several[0]} use only the network, because peer-to-peer and shared memory "
                     "are disabled", subject=name, found=f"NET/{log.channels[0].network}", expected="P2P or SHM",
                     evidence=[key], quote=cited(log.channels[0].first))  # fmt: skip
    else:
        yield unknown(f"{name}: no line shows how the GPUs of a node exchange data", evidence=[key], fix=RERUN)


def _off(log: NcclLog, variable: str) -> bool:
    reported = log.variable(variable)
    return reported is not None and reported.value.strip(". ") == "1"


def _all_linked(run: RunFacts, log: NcclLog, key: str) -> str:
    """Return why all GPUs of a node are known to have NVLink to each other; or ""."""
    if log.nvls is not None or log.nvls_support:
        return "NCCL reports NVLink SHARP"
    names = set(gpu_names(run, key, [channel.host for channel in log.local]))
    models = {gpu_named(name) for name in names}
    if models and all(any(part.gpu is model and part.nvswitch for part in PARTS) for model in models):
        return f"its GPUs ({min(names)}) are linked by NVLink"
    return ""


def _shown(channels: Sequence[LocalChannels]) -> str:
    """Describe channels within nodes: their number, transport and hosts."""
    hosts = list(dict.fromkeys(channel.host for channel in channels if channel.host is not None))
    transports = " and ".join(dict.fromkeys(channel.transport for channel in channels))
    within = f"within {hosts[0]}" if len(hosts) == 1 else f"within {len(hosts)} hosts" if hosts else "within a host"
    number = sum(channel.count for channel in channels)
    return f"{counted(number, 'channel connection')} {within} {'uses' if number == 1 else 'use'} {transports}"

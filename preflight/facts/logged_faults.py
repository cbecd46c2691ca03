"""Node faults that a log reports: the check for each, and the rank's GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.evidence.document import EvidenceError
from preflight.facts.kernel_log import all_levels
from preflight.facts.nccl_root_cause.host_statements import hosts
from preflight.parsers.host.kernel_events import KernelEvent, events, of_container
from preflight.parsers.host.mounts import MOUNTS, parse
from preflight.parsers.nccl_log.signatures import by_id

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts
    from preflight.parsers.nccl_log import Failure, NcclLog

#: Checks of single GPUs: on a node, an error in a log is the same fault only if it is of the same GPU.
_OF_GPUS = ("gpu.", "xid.", "nvlink.")

#: Checks of file systems: an error in a log is the same fault only if it is of the same mount.
_OF_FILES = ("host.file-systems", "host.mounts")

#: Age in seconds from which a process that the kernel killed is not taken for one of the log: PIDs are reused.
_OLD_S = 86_400

#: Layer of the failures whose message is an error of CUDA.
_CUDA = "cuda"


def check_of(failure: Failure) -> str:
    """Return the id of the check that finds the same fault on a node; may be empty."""
    if check := next((signature.check for signature in by_id([failure.id])), ""):
        return check
    if failure.layer != _CUDA:
        return ""
    error = importlib.import_module("preflight.parsers.messages.scan").error_in(failure.line.message)
    return str(error[0].check) if error else ""


def places(
    log: NcclLog | None,
    check: str,
    writers: Iterable[tuple[str | None, int | None, int | None]],
    nodes: Mapping[str | None, NodeFacts],
) -> Iterator[str]:
    """Yield where a fault was logged, such as ``gpu004 GPU3: gpu.ecc-uncorrected``.

    ``writers`` are the host, rank and CUDA device of each process; ``nodes`` are the nodes of the hosts.
    """
    ranks = _ranks(log) if log and check.startswith(_OF_GPUS) else None
    for host, rank, device in writers:
        own, node = (ranks or {}).get(host, []), nodes.get(host)
        gpu = _gpu(own, rank, device) if ranks is not None and not _uses_some(own, node) else None
        at = node.node if node else host or (f"rank {rank}" if rank is not None else "")
        if at:
            yield f"{at}{f' GPU{gpu}' if gpu is not None else ''}: {check}"


def blamed_processes(
    blamed: Iterable[tuple[str | None, Iterable[str]]], check: str, nodes: Mapping[str | None, NodeFacts]
) -> Iterator[str]:
    """Yield blamed processes, such as ``gpu004 process 5120: kernel.events``.

    ``blamed`` are the host of each message and its processes; ``nodes`` are the nodes of the hosts.
    """
    for host, processes in blamed:
        if host in nodes:
            yield from (f"{nodes[host].node} {process}: {check}" for process in processes)


def killed_by_kernel(node: NodeFacts) -> Mapping[str, KernelEvent]:
    """Return the processes that the kernel killed for lack of memory, by PID.

    Return none if one of them was in a container: its log shows other PIDs.
    """
    try:
        log = all_levels(node.kernel_log, node.kernel_notices)
    except EvidenceError:
        return {}
    logged = events((number, line.at_s, line.text) for number, line in enumerate(log.lines, 1))
    kills = [event for event in logged if event.kind == "out-of-memory"]
    if any(map(of_container, kills)):
        return {}
    return {
        event.detail: event for event in kills
        if event.device and (log.now_s is None or event.at_s is None or log.now_s - event.at_s < _OLD_S)
    }  # fmt: skip


def blamed_mounts(blamed: Iterable[tuple[NodeFacts | None, Iterable[str]]], check: str) -> Iterator[str]:
    """Yield the mounts of blamed files: ``gpu004 /scratch: host.file-systems``.

    ``blamed`` are the node of each message, if known, and the paths in it. Paths on
    a node without a table of mounts are left out.
    """
    for node, paths in blamed if check.startswith(_OF_FILES) else ():
        if node is None:
            continue
        try:
            places = [mount.place for mount in node.parsed(MOUNTS, parse)]
        except EvidenceError:
            continue
        for path in paths:
            over = [place for place in places if f"{path}/".startswith(f"{place.rstrip('/')}/")]
            if over:
                yield f"{node.node} {max(over, key=len)}: {check}"


def _ranks(log: NcclLog) -> dict[str | None, list[int]]:
    """Return the ranks of each host whose ranks are all in the log, in order."""
    ranks = {name: sorted(host.ranks) for name, host in hosts(log).items() if len(host.ranks) > 1}
    return {name: own for name, own in ranks.items() if log.nnodes and len(own) * log.nnodes == log.nranks}


def _uses_some(ranks: Sequence[int], node: NodeFacts | None) -> bool:
    """Return whether a job uses some of a node's GPUs: it numbers them from 0."""
    try:
        return node is not None and 0 < len(ranks) < len(node.gpus_on_bus)
    except EvidenceError:
        return False


def _gpu(ranks: Sequence[int], rank: int | None, device: int | None) -> int | None:
    """Return the number of a rank's GPU on its node; None if unknown.

    It is the number of the rank on its host, if the CUDA device agrees: a process that sees one GPU has device 0.
    """
    if rank not in ranks:
        return device or None  # 0 may be the only visible one
    own = ranks.index(rank)
    return own if device in (None, 0, own) else None

"""Decision on the cause: symptoms suggest suspects, and evidence confirms one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.evidence.document import EvidenceError
from preflight.facts.nccl_environment import strtoll
from preflight.facts.nccl_root_cause import causes
from preflight.facts.nccl_root_cause.device_evidence import value
from preflight.facts.nccl_root_cause.model import SILENT, Cause, NodeEvidence, Proof, Suspect
from preflight.parsers.nccl_log.model import is_tcp

if TYPE_CHECKING:
    from preflight.facts.nccl_root_cause.host_statements import HostStatements
    from preflight.facts.node import NodeFacts
    from preflight.parsers.nccl_log import Failure, LogLine


def of_fallback(host: HostStatements, node: NodeFacts | None = None) -> Cause | None:
    """Return why TCP carries a host's traffic; None if unknown.

    ``node`` has the facts of that host, if they were collected.
    """
    return _decide(list(_of_fallback(host, node)), host, node)


def of_staging(host: HostStatements, node: NodeFacts | None = None) -> Cause | None:
    """Return why RDMA channels of a host lack GPUDirect; None if unknown."""
    return _decide(list(_of_staging(host)), host, node)


def of_failure(failure: Failure, host: HostStatements, node: NodeFacts | None = None) -> Cause | None:
    """Return the cause of a network failure on a host; None if unknown.

    Also None for other failures. A failure has many possible causes, listed in its signature: only one that the node
    confirms is reported.
    """
    cause = _decide(list(_of_failure(failure, host)), host, node)
    return cause if cause is not None and cause.proof is not Proof.PROBABLE else None


# --- suspects ----------------------------------------------------------------------------------------


def _of_fallback(host: HostStatements, node: NodeFacts | None) -> Iterator[Suspect]:
    none_found = host.line("ib_no_device_tcp_fallback")
    shut = host.line("ib_unable_open_device")
    off = _switch(host)
    if off or (not none_found and not shut):
        yield Suspect(causes.SWITCHED_OFF, off)
    if off:
        return
    if node is None and host.line("ofi_protocol_failed"):  # the log has NET/IB's line for any node with EFA
        return
    if not host.has_devices:
        if library := host.line("ibverbs_missing"):
            yield Suspect(causes.NO_VERBS, library)
            return
        if not shut:
            yield Suspect(causes.NO_NIC, none_found)
            yield Suspect(causes.NOT_REGISTERED, none_found)
        yield Suspect(causes.DEVICE_NODES, shut or none_found)
        if value(node, host, "NCCL_IB_HCA"):
            yield Suspect(causes.HCA_FILTER, none_found)
        yield Suspect(causes.PORTS_DOWN, none_found)
    if line := _plugin(host):
        yield Suspect(causes.NO_PLUGIN, line)


def _switch(host: HostStatements) -> LogLine | None:
    """Return the line that reports RDMA switched off by a setting, or None."""
    if (disable := host.variable("NCCL_IB_DISABLE")) is not None and strtoll(disable.value) != 0:
        return disable.first
    if (network := host.variable("NCCL_NET")) is not None and is_tcp(network.value):
        return network.first
    return None


def _plugin(host: HostStatements) -> LogLine | None:
    """Return the line that reports a required plug-in as not loaded, or None."""
    if line := host.line("ofi_no_provider", "net_plugin_not_found"):
        return line
    wanted = host.variable("NCCL_NET_PLUGIN")
    required = wanted is not None and wanted.value not in ("", "none")
    for plugin in host.log.plugins:
        if plugin.state == "unsupported" or (plugin.state == "failed" and plugin.name not in (None, "IB", "Socket")):
            return plugin.first
        if plugin.state == "not found" and required:
            return plugin.first
    return None


def _of_staging(host: HostStatements) -> Iterator[Suspect]:
    level = host.variable("NCCL_NET_GDR_LEVEL")
    if level is not None and level.value in ("LOC", "0"):
        yield Suspect(causes.GPUDIRECT_OFF, level.first)
        return
    far, closed = host.line("gdr_disabled_distance"), host.line("gdr_disabled_capability")
    if not far and not closed:
        yield Suspect(causes.GPUDIRECT_OFF)
    if closed or not far:
        yield Suspect(causes.NO_PEER_MEMORY, closed)
    if far or not closed:
        yield Suspect(causes.NEAR_PORT_DOWN, far)
        yield Suspect(causes.DISTANCE, far)


_NO_MEMORY = ("errno 12", "Cannot allocate memory")
_REGISTERS = ("ib_reg_mr_failed", "ib_create_qp_cq_failed")
_GID = ("ib_modify_qp_enodata", "ib_modify_qp_einval", "ib_modify_qp_nodev", "ib_modify_qp_netunreach")
_ROUTE = ("ib_modify_qp_timeout", "ib_modify_qp_netunreach", "ib_completion_retry_exceeded")
#: Failures of a connection between two ports, one of which may be down or damage packets.
CONNECTION = (*_ROUTE, "ib_async_port_error", "ib_modify_qp_other")
#: Symptoms of peer-to-peer traffic blocked by ACS or the IOMMU: it hangs, is refused, or is corrupted.
_SWALLOWED = ("ib_completion_local_protection", "nccl_tests_timeout", "nccl_tests_wrong")


def _of_failure(failure: Failure, host: HostStatements) -> Iterator[Suspect]:
    line, name = failure.line, failure.id
    if name in ("net_plugin_not_found", "ofi_no_provider"):
        yield Suspect(causes.NO_PLUGIN, line)
    if name in _REGISTERS:
        has_reason = "errno" in line.message or "with error" in line.message
        if not has_reason or any(word in line.message for word in _NO_MEMORY):
            yield Suspect(causes.MEMLOCK, line)
        elif name == "ib_reg_mr_failed":
            yield Suspect(causes.NO_PEER_MEMORY, line)
    # only ENODATA means an empty row; the other errors have further causes, which no node shows
    if name in _GID:
        yield Suspect(causes.GID, line, states=name == "ib_modify_qp_enodata")
    if name in CONNECTION:
        yield Suspect(causes.PORT_DOWN, line)
        for kind in (causes.PORT_FLAPS, causes.PORT_DAMAGE, causes.PORT_LOSS):
            yield Suspect(kind, line, states=False)
    if name in _ROUTE:
        yield Suspect(causes.NO_ROUTE, line, states=False)
    if name in _SWALLOWED and any(channel.gpudirect for channel in host.log.channels):
        yield Suspect(causes.ACS, line, states=False)
        yield Suspect(causes.IOMMU, line, states=False)


# --- the cause ---------------------------------------------------------------------------------------


def _decide(suspects: Sequence[Suspect], host: HostStatements, node: NodeFacts | None) -> Cause | None:
    """Return the first suspect that the node confirms, else the log's own cause.

    None if neither shows one.
    """
    examined: list[tuple[Suspect, NodeEvidence]] = []
    for suspect in suspects:
        evidence = _node_evidence(suspect, host, node)
        if evidence.confirms or (suspect.line is not None and suspect.kind.proved):
            proof = Proof.AGREED if suspect.states else Proof.LIKELY
            return Cause(suspect.kind, proof, suspect.line, evidence.summary, evidence.keys)
        examined.append((suspect, evidence))
    stated = [(suspect, evidence) for suspect, evidence in examined if suspect.line is not None and suspect.states]
    if not stated:
        return None
    if silent := [suspect for suspect, evidence in stated if evidence.confirms is None]:
        first, *others = silent
        return Cause(first.kind, Proof.PROBABLE, first.line, "", (), tuple(one.kind for one in others))
    summary = "; ".join(dict.fromkeys(evidence.summary for _, evidence in stated))
    keys = tuple(dict.fromkeys(key for _, evidence in stated for key in evidence.keys))
    return Cause(stated[0][0].kind, Proof.CONTRADICTED, stated[0][0].line, summary, keys)


def _node_evidence(suspect: Suspect, host: HostStatements, node: NodeFacts | None) -> NodeEvidence:
    if node is None:
        return SILENT
    try:
        return suspect.kind.examine(node, host, suspect.line)
    except EvidenceError:
        return SILENT

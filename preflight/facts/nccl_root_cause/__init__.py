"""Causes of missing RDMA or GPUDirect, from a log and its hosts' evidence.

There is one pure function per symptom, which uses the statements of a host and, if known, the facts of that node.
Causes are ordered by layer, from settings over devices and libraries to the fabric, and the first one wins: without a
device node, no process reaches the GID table.
"""

from __future__ import annotations

from preflight.facts.nccl_root_cause.causes import KINDS
from preflight.facts.nccl_root_cause.connection_evidence import ConnectionEnd, ends, split
from preflight.facts.nccl_root_cause.decide import CONNECTION, of_failure, of_fallback, of_staging
from preflight.facts.nccl_root_cause.host_statements import HostStatements, hosts
from preflight.facts.nccl_root_cause.model import Cause, CauseKind, Proof

__all__ = [
    "CONNECTION", "KINDS", "Cause", "CauseKind", "ConnectionEnd", "HostStatements", "Proof", "ends", "hosts",
    "of_failure", "of_fallback", "of_staging", "split",
]  # fmt: skip

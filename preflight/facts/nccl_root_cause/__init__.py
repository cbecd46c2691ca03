"""Causes of missing RDMA or GPUDirect, from a log and its hosts' evidence.

One pure function for each symptom: from the statements of a host and, where known, the facts of that node. Causes are
in the order of their layers, from settings over devices and libraries to the fabric, and the earliest wins: without a
device node, no process gets as far as a GID table.
"""

from __future__ import annotations

from preflight.facts.nccl_root_cause.causes import KINDS
from preflight.facts.nccl_root_cause.decide import of_failure, of_fallback, of_staging
from preflight.facts.nccl_root_cause.host_statements import HostStatements, hosts
from preflight.facts.nccl_root_cause.model import Cause, CauseKind, Proof

__all__ = ["KINDS", "Cause", "CauseKind", "HostStatements", "Proof", "hosts", "of_failure", "of_fallback", "of_staging"]

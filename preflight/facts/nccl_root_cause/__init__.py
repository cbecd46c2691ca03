"""Why a run does not use RDMA, or GPUDirect, or fails on it: a log's words joined with its hosts' evidence.

One pure function for each symptom: of what a host said and, where it is known, of the facts of that node. The causes
stand in the order of their layers, from settings over devices and libraries to the fabric, and the earliest wins:
without a device node nobody gets as far as a GID table.
"""

from __future__ import annotations

from preflight.facts.nccl_root_cause.causes import KINDS
from preflight.facts.nccl_root_cause.decide import of_failure, of_fallback, of_staging
from preflight.facts.nccl_root_cause.host_statements import HostStatements, hosts
from preflight.facts.nccl_root_cause.model import Cause, CauseKind, Proof

__all__ = ["KINDS", "Cause", "CauseKind", "HostStatements", "Proof", "hosts", "of_failure", "of_fallback", "of_staging"]

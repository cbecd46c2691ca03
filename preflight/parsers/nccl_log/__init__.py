"""NCCL's log (NCCL_DEBUG=INFO): networks, transports, warnings.

Formats of NCCL 2.3 … 2.30 (src/debug.cc, src/init.cc, src/plugin/, src/transport/), behind any launcher's
prefix. The NET subsystem is off by default: a missing line proves nothing. A line on what *could* be used
(a plug-in was loaded, DMA-BUF is available, "use ring PXN 0 GDR 1") does not prove its use; only channel lines do.

Data flow: ``line_source`` (lines of a file, which ``textprep``, ``restore_prefix`` and ``truncation`` restore) →
``fast_scanner`` and ``line_parser`` (with ``prefix``, ``textprep`` and ``messages``, which uses ``channels``,
``networks`` and ``communicators``) → ``counters`` (which add up over processes) → ``summarize`` (with ``transports``,
``job_size``, ``ranks``, ``rails`` and ``failures``) → ``model`` → ``to_json``.
"""

from __future__ import annotations

from preflight.parsers.nccl_log.model import (
    Affinity,
    ChannelCounts,
    Communicators,
    Failure,
    Hca,
    HostChannels,
    IbDevice,
    LogLine,
    Missing,
    NcclLog,
    NetChannels,
    PluginStatus,
    Rails,
    ReportedVariable,
    Unfinished,
    Use,
    is_tcp,
)
from preflight.parsers.nccl_log.reader import NoNcclOutput, parse, read, read_stream

__all__ = [
    "Affinity",
    "ChannelCounts",
    "Communicators",
    "Failure",
    "Hca",
    "HostChannels",
    "IbDevice",
    "LogLine",
    "Missing",
    "NcclLog",
    "NetChannels",
    "NoNcclOutput",
    "PluginStatus",
    "Rails",
    "ReportedVariable",
    "Unfinished",
    "Use",
    "is_tcp",
    "parse",
    "read",
    "read_stream",
]

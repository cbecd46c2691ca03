"""Parser of NCCL's log (NCCL_DEBUG=INFO): networks, transports, warnings.

It reads the formats of NCCL 2.3 … 2.30 (src/debug.cc, src/init.cc, src/plugin/, src/transport/), after any launcher's
prefix. NCCL does not log the NET subsystem by default, so a missing line proves nothing. A line about an available
feature (a loaded plug-in, DMA-BUF, "use ring PXN 0 GDR 1") does not prove its use; only channel lines do.

Data flow: ``textprep.line_source`` (lines of a file, restored by ``restore_prefix`` and ``truncation``) →
``fast_scanner`` and ``line_parser`` (with ``prefix``, ``textprep`` and ``messages``, which uses ``channels``,
``networks`` and ``communicators``) → ``counters`` (summed over processes) → ``summarize`` (with ``transports``,
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
    HostHcas,
    IbDevice,
    LocalChannels,
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
    "HostHcas",
    "IbDevice",
    "LocalChannels",
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

"""NCCL's own log (NCCL_DEBUG=INFO): which network it chose, over what its channels run, what it warned of.

Formats of NCCL 2.3 … 2.30 (src/debug.cc, src/init.cc, src/plugin/, src/transport/), behind any launcher's
marks. The NET subsystem is off by default: that a line is absent says nothing. A line that tells what
*could* be used (a plug-in was loaded, DMA-BUF is available, "use ring PXN 0 GDR 1") is no use of it;
only channel lines are.

The data goes one way: ``source`` (lines of a file, which ``wrapped``, ``restored`` and ``cut`` mend) → ``scan``
(with ``prefix``, ``trim`` and ``messages``, which asks ``channel_lines``, ``network_lines`` and ``comm_lines``) →
``tally`` (adds up, whatever was read by whom) → ``finish`` (with ``ways``, ``sizes``, ``ranks``, ``rails`` and
``failures``) → ``model`` → ``document`` (for JSON).
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
    Line,
    Missing,
    NcclLog,
    NetChannels,
    Plugin,
    Rails,
    Unfinished,
    Use,
    Variable,
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
    "Line",
    "Missing",
    "NcclLog",
    "NetChannels",
    "NoNcclOutput",
    "Plugin",
    "Rails",
    "Unfinished",
    "Use",
    "Variable",
    "is_tcp",
    "parse",
    "read",
    "read_stream",
]

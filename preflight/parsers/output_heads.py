"""First lines that identify a tool's output, and end the output before it."""

from __future__ import annotations

import re

from preflight.textprep.lines import Lines

_HEADS = (
    ("ibstat", re.compile(r"\s*CA '[^'\s]{1,64}'\s*")),
    ("ibstatus", re.compile(r"\s*Infiniband device '[^']{1,64}' port \d{1,3} status:\s*")),
    ("ibv_devinfo", re.compile(r"\s*hca_id:\s*[\w.-]{1,64}\s*")),
    ("ethtool -S", re.compile(r"\s*(?:NIC statistics|Standard stats for [\w.@-]{1,64}):\s*")),
    ("ethtool -a", re.compile(r"\s*Pause parameters for [\w.@-]{1,64}:\s*")),
    ("ethtool", re.compile(r"\s*Settings for [\w.@-]{1,64}:\s*")),
    ("ethtool -m", re.compile(r"\s*Identifier\s{2,}:\s0x[0-9a-fA-F]{2} \(.*")),
    ("nvidia-smi -q", re.compile(r"\s*=+\s*NVSMI LOG\s*=+\s*")),
    ("nvidia-smi -q -x", re.compile(r"\s*<!DOCTYPE nvidia_smi_log\b.*")),
    ("nvidia-smi topo", re.compile(r"\s*GPU0\s+GPU1\s.*")),
    ("perfquery", re.compile(r"\s*# Port (?:extended )?counters: Lid \d.*")),
    ("mlnx_qos", re.compile(r"\s*(?:DCBX mode:\s.*|Priority trust state:\s.*)")),
    ("show_gids", re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\b.*")),
    ("numactl", re.compile(r"\s*available: \d{1,4} nodes \(.*\)\s*")),
    ("kernel log", re.compile(r"(?:\[[^\]]{5,40}\] )?NVRM: Xid \(.*")),
)
#: Formats that have a line like the head of another one.
_ALIKE = frozenset({("rocm-smi", "nvidia-smi topo")})
#: A word of each head; nearly all other lines lack them, and are skipped without trying the patterns.
_WORDS = re.compile(
    r"CA '|Infiniband dev|hca_id:|statistics:|stats for|Pause par|Settings for|Identifier|NVSMI LOG|<!DOCTYPE|GPU0"
    r"|# Port|mode:|trust state|INDEX|available:|NVRM: Xid"
)


def next_head(kind: str, lines: Lines, begin: int, end: int) -> int:
    """Return the position of the first head of another format; ``end`` without one."""
    for at in range(begin, end):
        text = lines[at].text
        if _WORDS.search(text):
            head = next((name for name, pattern in _HEADS if pattern.fullmatch(text)), None)
            if head is not None and not kind.startswith(head) and (kind, head) not in _ALIKE:
                return at
    return end

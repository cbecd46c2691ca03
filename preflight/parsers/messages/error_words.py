"""Table of the checks that judge errors without a signature, by their words."""

from __future__ import annotations

import re

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), check)
    for pattern, check in (
        (r"not responding|unexpectedly rebooted|slurmd|munge|clock", "host.services"),
        (r"kill task failed|not ending|unkillable|zombie", "host.zombies"),
        (r"low (?:real_?)?memory|low socket|low cpu|low core|low tmpdisk", "host.inventory"),
        (r"xid", "xid.gpu"), (r"\becc\b|remap|retired page", "gpu.ecc-uncorrected"),
        (r"nvlink|nvswitch|fabric ?manager", "nvlink.links"),
        (r"device plugin|nvidia\.com/gpu", "container.device-plugin"),
        (r"\bcni\b|sandbox|multus|sriov", "container.networks"),
        (r"gres/gpu|\bgpus?\b|nvidia|nvml|\bcuda", "gpu.count"),
        (r"\bib\b|infiniband|\brdma|link down|\bmlx|\bhca\b|\bports?\b (?:down|error)", "rdma.port-state"),
        (r"\bmounts?\b|\bnfs\b|lustre|gpfs|beegfs|weka", "host.mounts"),
        (r"\bdisk|file ?system|no space|quota", "host.file-systems"),
        (r"prolog|epilog|health|\bnhc\b|preflight|kubelet|containerd|cgroup|systemd", "host.services"),
        (r"\boom|memory", "kernel.events"),
    )
)  # fmt: skip


def check_of(text: str, otherwise: str) -> str:
    """Return the id of the check for a text's first known subject, else ``otherwise``."""
    return next((check for pattern, check in _WORDS if pattern.search(text)), otherwise)

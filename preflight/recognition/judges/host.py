"""Judges of ``lscpu`` and ``numactl -H``."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Finding, passed, unknown, warned
from preflight.parsers.host.numa_nodes import HostCpus
from preflight.recognition.judges import Judges, PastedValue

#: A NUMA node with less than this share of the largest node's memory has a failed module, or is unevenly populated.
_EVEN = 0.8


def _memory(part: PastedValue) -> Iterator[Finding]:
    """Compare the memory of the NUMA nodes that have CPUs."""
    host: HostCpus = part.value
    sizes = {
        name: node.memory_bytes for name, node in host.nodes.items() if node.memory_bytes is not None and node.cpus
    }
    most = max(sizes.values(), default=0)
    few = {name: size for name, size in sizes.items() if size < _EVEN * most}
    if bare := [name for name, size in few.items() if not size]:
        yield unknown(
            f"NUMA node {', '.join(bare)} has CPUs but no memory: by design on some processors, "
            "otherwise modules are missing",
            found="0 GiB",
            expected=f"{_gib(most)} GiB, like the largest",
            evidence=part.evidence,
            fix="Compare `dmidecode -t memory` with an identical machine.",
        )
    for name, size in few.items():
        if not size:
            continue
        yield warned(
            f"NUMA node {name} has {_gib(size)} GiB of memory, the largest {_gib(most)} GiB", subject=f"node {name}",
            found=f"{_gib(size)} GiB", expected=f"{_gib(most)} GiB, like the largest", evidence=part.evidence,
            fix="Compare the memory modules of both sockets: `dmidecode -t memory`, `ras-mc-ctl --errors`.",
        )  # fmt: skip
    if len(sizes) > 1 and not few and part.complete:
        yield passed(f"{len(sizes)} NUMA nodes have about {_gib(most)} GiB each", evidence=part.evidence)
    elif len(sizes) == 1 and part.complete:
        yield passed("there is one NUMA node with memory and CPUs", evidence=part.evidence)


def _gib(size: int) -> str:
    return f"{size / 2**30:.0f}"


def _cpus(part: PastedValue) -> Iterator[Finding]:
    """Compare the CPUs of the NUMA nodes, and look for offline CPUs."""
    host: HostCpus = part.value
    counts = {name: len(node.cpus) for name, node in host.nodes.items() if node.cpus}
    if host.offline:
        yield warned(f"CPUs {host.offline[:80]} are offline", found=host.offline[:80], expected="none offline",
                     evidence=part.evidence, fix="echo 1 > /sys/devices/system/cpu/cpuN/online, or see the boot "
                     "options (nosmt, maxcpus).")  # fmt: skip
    if not part.complete:
        return
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"node {name} {number}" for name, number in counts.items())
        yield unknown(
            f"the NUMA nodes have different numbers of CPUs: {listed}",
            found=listed,
            evidence=part.evidence,
            fix="Compare with an identical machine, or check whether the hypervisor configured it.",
        )
    elif counts and not host.offline:
        number = next(iter(counts.values()))
        yield passed(f"{len(counts)} NUMA node{'s have' if len(counts) > 1 else ' has'} {number} CPUs each",
                     evidence=part.evidence)  # fmt: skip
    elif not counts and host.cpus:
        yield passed(f"{host.cpus} CPUs", evidence=part.evidence)


JUDGES: Judges = {"numactl": (("numa.memory", _memory), ("numa.affinity", _cpus)), "lscpu": (("numa.affinity", _cpus),)}

"""NUMA: may the processes of a job run near their GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.checks.presence import PCI_BUS, no_gpu
from preflight.cluster import Site
from preflight.facts import NodeFacts
from preflight.facts.host import STATUS
from preflight.facts.text import fold_ids
from preflight.model import Finding, check, failed, passed, unknown, warned


@check(
    "numa.affinity",
    title="Allowed CPUs reach every GPU's NUMA node",
    source="https://docs.kernel.org/ABI/testing/sysfs-bus-pci (local_cpulist); NCCL user guide, CPU affinity",
    fix="Widen the job's CPU mask (`--cpus-per-task`, `--cpu-bind=none`, cpuset) or bind each rank near its GPU.",
    answers=("PA-04", "NT-LENS-6"),
)
def affinity(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the CPUs that this process may use with the CPUs local to each GPU.

    A rank that may not run near its GPU copies every byte over the inter-socket link, and all ranks
    squeezed on a few CPUs starve their NCCL proxies and data loaders: both look like a slow network.

    Run it where the job runs (inside the allocation or container): a login shell is bound to nothing.
    """
    if absent := no_gpu(node, site):
        yield absent
        return
    allowed = node.allowed_cpus
    gpus = node.gpus_on_bus
    silent = [gpu.address for gpu in gpus if not gpu.local_cpus]
    far = [gpu for gpu in gpus if gpu.local_cpus and not gpu.local_cpus & allowed]
    near = [gpu for gpu in gpus if gpu.local_cpus and gpu.local_cpus & allowed]
    details: dict[str, Any] = {"found": f"CPUs {fold_ids(allowed)}", "evidence": [STATUS, PCI_BUS]}
    if far:
        cpus = fold_ids(frozenset().union(*(gpu.local_cpus or () for gpu in far)))
        yield failed(
            f"{len(far)} of {len(gpus)} GPUs have no CPU near them in the allowed CPUs {fold_ids(allowed)}",
            subject=far[0].address if len(far) == 1 else "",
            expected=f"some of {cpus}, near {', '.join(gpu.address for gpu in far)}",
            **details,
        )
    elif near and len(allowed) < len(gpus):
        yield warned(
            f"{len(allowed)} CPUs for {len(gpus)} GPUs: every rank's proxy and loader share them",
            expected=f"at least {len(gpus)} CPUs",
            **details,
        )
    elif near:
        yield passed(f"the allowed CPUs {fold_ids(allowed)} reach all {len(near)} GPUs", evidence=[STATUS, PCI_BUS])
    if silent:
        yield unknown(
            f"nobody says which CPUs are near {', '.join(silent)}",
            evidence=[PCI_BUS],
            fix="a virtual machine hides it (numa_node -1): give the VM its NUMA topology",
        )

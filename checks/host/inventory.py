"""What a server should have: whether the cluster file declares it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.inventory import nvme_drives
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, unknown, warned

#: Keys of ``[class.X.host]`` without which it is not known what a server lacks, and what each would catch.
_KEYS = ("memory_gib", "cpus", "smt", "numa_nodes", "nvme", "swap", "mounts", "services")


@check(
    "host.inventory",
    title="The cluster file declares what each server should have",
    source="the cluster file: [class.NAME.host]; what health checks of nodes (LBNL NHC and others) have in their "
    "configuration",
    fix="`preflight learn` writes the values of most nodes; read them, and copy the table into the cluster file.",
    gating=False,
    action="fix-site",
)
def inventory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for parts of a server that its class does not declare.

    A node that lost a DIMM, a drive, a mount or a service answers every question as a healthy one does: that something
    is missing shows only beside what should be there. A job then runs out of memory, or fills the wrong disk.

    What is declared is judged by `node.expected` (memory, CPUs, multithreading, NUMA nodes, drives, swap),
    `host.mounts`, `host.services` and `host.processes`, and not here. What is not is unknown here, in
    one finding, and holds no job back. An NVMe drive that the kernel has given up (state *dead*) warns here where the
    number of drives is not declared.

    A false alarm: none; a class of nodes without swap, NVMe drives or mounts declares `swap = false`, `nvme = 0`, and a
    site that does not care switches the check off (`[checks] off`).
    """
    host = site.members.host
    yield from _dead_drives(node, host.nvme is not None)
    open_keys = [key for key in _KEYS if not _declared(getattr(host, key))]
    if not open_keys:
        yield passed("the cluster file declares what this server should have", found=", ".join(_KEYS))
        return
    table = site.host("mounts").key.rpartition(".")[0]
    what = "nothing declares" if len(open_keys) == len(_KEYS) else "the cluster file does not declare"
    yield unknown(
        f"{what} what this server should have: {', '.join(open_keys)}",
        expected=f"a table [{table}]",
        fix=f"`preflight learn` shows what most nodes have; write it into the cluster file: [{table}]",
    )


def _dead_drives(node: NodeFacts, declared: bool) -> Iterator[Finding]:
    """Yield drives that are a fault at every site, where node.expected counts none."""
    with suppress(EvidenceError):
        for name, state in () if declared else nvme_drives(node.evidence):
            if state == "dead":
                key = f"file:/sys/class/nvme/{name}/state"
                yield warned(f"the kernel has given up the NVMe drive {name}", subject=name, found=state,
                             expected="live", evidence=[key],
                             fix="`dmesg | grep nvme`, `nvme list`; reseat or replace the drive.")  # fmt: skip


def _declared(value: object) -> bool:
    return value is not None and value != {}

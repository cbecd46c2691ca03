"""Check that the cluster file declares what a server should have."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.inventory import NVME, nvme_drives
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, unknown, warned

#: Keys of ``[class.X.host]`` without which it is not known what a server lacks, and what each would catch.
_KEYS = ("memory_gib", "cpus", "smt", "numa_nodes", "nvme", "swap", "mounts", "services")


@check(
    "host.inventory",
    title="The cluster file declares what each server should have",
    fault="The server lacks what it should have, or nothing declares it",
    impact="drifts",
    source="the cluster file: [class.NAME.host]; what health checks of nodes (LBNL NHC and others) have in their "
    "configuration",
    fix="`preflight learn` writes the values of most nodes; read them, and copy the table into the cluster file.",
    gating=False,
    action="fix-site",
    explains=[
        ("node.expected", "node", "*NVMe drive*", "NVMe drives*"),
        ("fleet.host", "node", "*NVMe drive*", "NVMe drives*"),
    ],
)
def inventory(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for parts of a server that its class does not declare.

    ## Why it matters
    A node that lost a DIMM, a drive, a mount or a service answers every question as a healthy one does: that something
    is missing shows only beside what should be there. A job then runs out of memory, or fills the wrong disk.

    ## Verdicts
    What is declared is judged by `node.expected` (memory, CPUs, multithreading, NUMA nodes, drives, swap),
    `host.mounts`, `host.services` and `host.processes`, and not here. What is not is unknown here, in
    one finding, and holds no job back. An NVMe drive that the kernel has given up (state *dead*) warns
    here, declared or not.

    ## False alarms
    None; a class of nodes without swap, NVMe drives or mounts declares `swap = false`, `nvme = 0`, and a
    site that does not care switches the check off (`[checks] off`).
    """
    host = site.members.host
    open_keys = [key for key in _KEYS if not _declared(getattr(host, key))]
    try:
        drives = nvme_drives(node.evidence)
    except EvidenceError:
        if not open_keys:
            raise
        drives = ()
    dead = [name for name, state in drives if state == "dead"]
    for name in dead:
        yield warned(f"the kernel has given up the NVMe drive {name}", subject=name, found="dead", expected="live",
                     evidence=[f"file:/sys/class/nvme/{name}/state"], action="monitor",
                     fix="`dmesg | grep nvme`, `nvme list`; reseat or replace the drive.")  # fmt: skip
    if not open_keys:
        if not dead:
            yield passed("the cluster file declares what this server should have; no NVMe drive was given up",
                         found=", ".join(_KEYS), evidence=[NVME])  # fmt: skip
        return
    table = site.host("mounts").key.rpartition(".")[0]
    what = "nothing declares" if len(open_keys) == len(_KEYS) else "the cluster file does not declare"
    yield unknown(
        f"{what} what this server should have: {', '.join(open_keys)}",
        expected=f"a table [{table}]",
        fix=f"`preflight learn` shows what most nodes have; write it into the cluster file: [{table}]",
    )


def _declared(value: object) -> bool:
    return value is not None and value != {}

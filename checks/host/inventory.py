"""Check that the cluster file declares the parts of a server."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.inventory import NVME, nvme_drives
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, unknown, warned

#: Keys of ``[class.X.host]`` that are needed to notice missing parts.
_KEYS = ("memory_gib", "cpus", "smt", "numa_nodes", "nvme", "swap", "mounts", "services")


@check(
    "host.inventory",
    title="The cluster file declares the parts of each server",
    fault="The server lacks parts, or its parts are not declared",
    impact="drifts",
    source="the cluster file: [class.NAME.host]; the configuration of node health checks (LBNL NHC and others)",
    fix="Run `preflight learn` for the values of most nodes; review them and copy the table into the cluster file.",
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
    A node that lost a DIMM, a drive, a mount or a service looks healthy until it is compared with its declared parts.
    A job then runs out of memory, or fills the wrong disk.

    ## Verdicts
    Declared parts are judged by `node.expected` (memory, CPUs, multithreading, NUMA nodes, drives, swap),
    `host.mounts`, `host.services` and `host.processes`. Undeclared parts are unknown, in one finding that never gates
    a job. An NVMe drive that the kernel disabled (state *dead*) warns, declared or not.

    ## False alarms
    None known. For nodes without swap or NVMe drives, declare `swap = false` and `nvme = 0`, or disable the check
    (`[checks] off`).
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
        yield warned(f"the kernel has disabled the NVMe drive {name}", subject=name, found="dead", expected="live",
                     evidence=[f"file:/sys/class/nvme/{name}/state"], action="monitor",
                     fix="Run `dmesg | grep nvme` and `nvme list`; reseat or replace the drive.")  # fmt: skip
    if not open_keys:
        if not dead:
            yield passed("the cluster file declares the parts of this server; no NVMe drive is disabled",
                         found=", ".join(_KEYS), evidence=[NVME])  # fmt: skip
        return
    table = site.host("mounts").key.rpartition(".")[0]
    what = "nothing declares" if len(open_keys) == len(_KEYS) else "the cluster file does not declare"
    yield unknown(
        f"{what} these parts of the server: {', '.join(open_keys)}",
        expected=f"a table [{table}]",
        fix=f"run `preflight learn`, which prints the values of most nodes; add them to the cluster file: [{table}]",
    )


def _declared(value: object) -> bool:
    return value is not None and value != {}

"""Host limits that NCCL runs into."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from preflight.checks.presence import no_rdma
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.host import LIMITS, PORT_RANGE, SHM, STATUS, may_lock_memory, port_range, shm_bytes
from preflight.model import Finding, Status, check, compare, failed, passed, skipped, warned

GIB = 1 << 30


@check(
    "host.memlock",
    title="RDMA may pin memory without limit",
    source="setrlimit(2); ibv_reg_mr(3); floor 1 GiB: below it registration of NCCL's buffers fails",
    fix="LimitMEMLOCK=infinity for slurmd, containerd, sshd; `* - memlock unlimited` in limits.d; IPC_LOCK in the pod.",
    answers=("NT-PIT-6",),
)
def memlock(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the limit of locked memory with unlimited.

    RDMA pins every buffer that it touches. At the limit ibv_reg_mr fails with "Cannot allocate
    memory", hours into a job or right at its start.

    Unlimited passes; below 1 GiB fails; a finite limit above that warns, unless the cluster file sets
    a floor. A process with CAP_IPC_LOCK is not bound by the limit. Judge it where the job runs: the
    limit of an SSH login is not slurmd's.
    """
    if (absent := no_rdma(node, site)) and absent.status is Status.SKIP:
        yield skipped("without an RDMA device nothing is pinned: " + absent.message, evidence=absent.evidence)
        return
    limit = node.memlock_bytes
    floor = site.threshold("memlock_gib").value
    gib = f"{limit / GIB:.4g} GiB" if limit >= GIB else f"{limit / 2**20:.4g} MiB"
    if math.isinf(limit):
        yield passed("locked memory is unlimited", found="unlimited", evidence=[LIMITS])
    elif _cap_ipc_lock(node):
        yield passed(f"locked memory is limited to {gib}, lifted by CAP_IPC_LOCK", evidence=[LIMITS, STATUS])
    elif floor is not None and limit >= floor * GIB:
        yield passed(f"locked memory {gib}, expected at least {floor:g} GiB", found=gib, evidence=[LIMITS])
    elif floor is not None or limit < GIB:
        yield failed(
            f"locked memory is limited to {gib}, expected {f'{floor:g} GiB' if floor else 'unlimited'}",
            found=gib,
            expected=f"at least {floor:g} GiB" if floor else "unlimited",
            evidence=[LIMITS],
        )
    else:
        yield warned(f"locked memory is limited to {gib}", found=gib, expected="unlimited", evidence=[LIMITS])


def _cap_ipc_lock(node: NodeFacts) -> bool:
    try:
        return node.parsed(STATUS, may_lock_memory)
    except EvidenceError:
        return False


@check(
    "host.shm",
    title="/dev/shm has room for NCCL",
    source="runc default 64 MiB; floors 1 GiB (several GPUs) and 8 GiB: AMD Primus preflight",
    fix="Kubernetes: mount an emptyDir with medium Memory at /dev/shm; Docker: --shm-size; host: remount tmpfs larger.",
)
def shm(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the size of /dev/shm, GiB, with 8 GiB, or with the cluster file's floor.

    NCCL and data loaders exchange memory between the processes of a node through /dev/shm; a
    container's default of 64 MiB ends in "No space left on device" as soon as several ranks start.

    Below 1 GiB fails on a node with several GPUs and warns on any other.
    """
    size = round(shm_bytes(node.evidence) / GIB, 3)
    floor = site.threshold("shm_gib")
    if floor.value is not None:
        yield compare(size, floor, what="size of /dev/shm", at_least=True, unit="GiB", evidence=[SHM])
        return
    several = len(node.gpus_on_bus) > 1
    details: dict[str, Any] = {"found": f"{size:g} GiB", "expected": "at least 8 GiB", "evidence": [SHM]}
    if size >= 8:
        yield passed(f"/dev/shm has {size:g} GiB", found=f"{size:g} GiB", evidence=[SHM])
    elif size < 1 and several:
        yield failed(f"/dev/shm has {size:g} GiB for {len(node.gpus_on_bus)} GPUs, expected at least 8 GiB", **details)
    else:
        yield warned(f"/dev/shm has {size:g} GiB, expected at least 8 GiB", **details)


@check(
    "host.local-ports",
    title="The ephemeral port range is wide enough",
    source="https://docs.kernel.org/networking/ip-sysctl.html (default 32768 60999); floor 10,000: judgement",
    fix="`sysctl -w net.ipv4.ip_local_port_range='32768 60999'`, and open it in the firewall between nodes.",
    answers=("NT-PIT-5",),
)
def local_ports(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the number of ephemeral ports with 10,000, or with the cluster file's floor.

    NCCL's bootstrap and socket transport open connections from this range between all ranks; on a
    narrowed range a large job fails with "Address already in use" or hangs in its start.
    """
    first, last = node.parsed(PORT_RANGE, port_range)
    if last < first:
        yield failed(
            f"the ephemeral port range {first} to {last} is empty",
            found=f"{first} {last}",
            expected="32768 60999",
            evidence=[PORT_RANGE],
        )
        return
    number = last - first + 1
    if site.threshold("local_ports").value is not None:
        yield compare(
            number,
            site.threshold("local_ports"),
            what="ephemeral ports",
            at_least=True,
            evidence=[PORT_RANGE],
        )
    elif number >= 10_000:
        yield passed(f"{number} ephemeral ports ({first} to {last})", found=str(number), evidence=[PORT_RANGE])
    else:
        yield warned(
            f"{number} ephemeral ports ({first} to {last}), expected at least 10000",
            found=str(number),
            expected="at least 10000",
            evidence=[PORT_RANGE],
        )

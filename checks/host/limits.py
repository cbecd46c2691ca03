"""Checks of host limits that affect NCCL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from preflight.checks.applicability import no_rdma
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.clock import Clock
from preflight.facts.host import (
    LIMITS,
    PORT_RANGE,
    SHM,
    STATUS,
    may_lock_memory,
    open_files,
    port_range,
    shm_bytes,
    size_text,
)
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.rank_binding import world_size
from preflight.model import Finding, Status, check, compare, failed, passed, skipped, warned

GIB = 1 << 30


def nothing_to_pin(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without RDMA devices if none is expected."""
    absent = no_rdma(node, site)
    if absent is None or absent.status is not Status.SKIP:
        return None
    return skipped(f"without an RDMA device, no memory is pinned: {absent.message}", evidence=absent.evidence)


@check(
    "host.memlock",
    title="RDMA may pin memory without limit",
    fault="RDMA may not pin enough memory",
    impact="blocks-job",
    explains=IN_LOGS,
    source="setrlimit(2); ibv_reg_mr(3); floor 1 GiB: below it registration of NCCL's buffers fails",
    fix="Set LimitMEMLOCK=infinity for slurmd, containerd, sshd; `* - memlock unlimited` in limits.d; IPC_LOCK "
    "in the pod.",
    action="fix-site",
    answers=("NT-PIT-6",),
    unless=(nothing_to_pin,),
)
def memlock(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the locked-memory limit with *unlimited*, or the cluster file's floor.

    ## Why it matters
    RDMA pins every buffer it uses. At the limit, ibv_reg_mr fails with "Cannot allocate memory", at the start of a job
    or hours later.

    ## Verdicts
    Unlimited passes; a limit below 1 GiB fails; a higher one warns. If the cluster file sets a floor, a limit below it
    fails, and any other passes. CAP_IPC_LOCK lifts the limit.

    ## False alarms
    An SSH login may have a different limit from slurmd or containerd; run the check where the job runs.
    """
    limit = node.memlock_bytes
    floor = site.threshold("memlock_gib").value
    size = size_text(limit)
    if math.isinf(limit):
        yield passed("locked memory is unlimited", found="unlimited", evidence=[LIMITS])
    elif _cap_ipc_lock(node):
        yield passed(f"CAP_IPC_LOCK lifts the limit of locked memory ({size})", evidence=[LIMITS, STATUS])
    elif floor is not None and limit >= floor * GIB:
        yield passed(
            f"locked memory is limited to {size}, expected at least {floor:g} GiB", found=size, evidence=[LIMITS]
        )
    elif floor is not None or limit < GIB:
        yield failed(
            f"locked memory is limited to {size}, expected {f'at least {floor:g} GiB' if floor else 'unlimited'}",
            found=size,
            expected=f"at least {floor:g} GiB" if floor else "unlimited",
            evidence=[LIMITS],
            fix=_IN_A_POD if node.in_container else "",
        )
    else:
        yield warned(f"locked memory is limited to {size}, expected unlimited", found=size, expected="unlimited",
                     evidence=[LIMITS])  # fmt: skip


_IN_A_POD = "Add the capability IPC_LOCK to the container's securityContext, or raise LimitMEMLOCK of its runtime."


def _cap_ipc_lock(node: NodeFacts) -> bool:
    try:
        return node.parsed(STATUS, may_lock_memory)
    except EvidenceError:
        return False


@check(
    "host.shm",
    title="/dev/shm has room for NCCL",
    fault="/dev/shm is too small for NCCL",
    impact="blocks-job",
    explains=IN_LOGS,
    source="runc default 64 MiB; 8 GiB: AMD Primus preflight; 1 GiB with several GPUs: a judgement",
    fix="In Kubernetes, mount an emptyDir with medium Memory at /dev/shm; in Docker, use --shm-size=8g; on a host, run "
    "`mount -o remount,size=50% /dev/shm`.",
    action="fix-site",
)
def shm(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the size of /dev/shm with 8 GiB, or with the cluster file's floor.

    ## Why it matters
    NCCL and data loaders exchange memory between the processes of a node through /dev/shm; with a container's default
    of 64 MiB, several ranks fail at start with "No space left on device".

    ## Verdicts
    Less than 1 GiB fails on a node with several GPUs and warns on any other; less than 8 GiB warns. A floor in the
    cluster file replaces these limits.

    ## False alarms
    A container with a single rank and no data-loader workers, which needs no shared memory.
    """
    size_bytes = shm_bytes(node.evidence)
    size, shown = round(size_bytes / GIB, 3), size_text(size_bytes)
    floor = site.threshold("shm_gib")
    if floor.value is not None:
        yield compare(size, floor, what="size of /dev/shm", at_least=True, unit="GiB", evidence=[SHM])
        return
    several = len(node.gpus_on_bus) > 1
    details: dict[str, Any] = {"found": shown, "expected": "at least 8 GiB", "evidence": [SHM]}
    if node.in_container:
        details["fix"] = "Mount an emptyDir with medium Memory at /dev/shm; in Docker, use --shm-size=8g."
    if size >= 8:
        yield passed(f"/dev/shm has {shown}", found=shown, evidence=[SHM])
    elif size < 1 and several:
        yield failed(f"/dev/shm has {shown} for {len(node.gpus_on_bus)} GPUs, expected at least 8 GiB", **details)
    else:
        yield warned(f"/dev/shm has {shown}, expected at least 8 GiB", **details)


@check(
    "host.local-ports",
    title="The ephemeral port range is wide enough",
    fault="The ephemeral port range is too narrow",
    impact="blocks-job",
    source="https://docs.kernel.org/networking/ip-sysctl.html (default 32768 60999); floor 10,000: judgement",
    fix="Run `sysctl -w net.ipv4.ip_local_port_range='32768 60999'`, and open the range in the firewall between nodes.",
    action="fix-site",
    answers=("NT-PIT-5",),
)
def local_ports(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the number of ephemeral ports with the job's ranks, or a floor.

    The floor is 10,000, or the cluster file's.

    ## Why it matters
    NCCL's bootstrap and socket transport open connections from this range between all ranks; with a narrow range, a
    large job fails with "Address already in use" or hangs at start.

    ## Verdicts
    Fewer ports than the job's ranks fail, because a rank may connect to every other rank. The number of ranks comes
    from the job's environment (WORLD_SIZE, SLURM_NTASKS). Fewer ports than a floor in the cluster file fail as well;
    without one, fewer than 10,000 warn.

    ## False alarms
    A small job on InfiniBand, which needs few of these ports.
    """
    first, last = node.parsed(PORT_RANGE, port_range)
    number, floor = max(last - first + 1, 0), site.threshold("local_ports")
    ranks = world_size(node.environment) if PROCESS in node.evidence else None
    details: dict[str, Any] = {"found": str(number), "evidence": [PORT_RANGE]}
    if not number:
        yield failed(f"the ephemeral port range {first} to {last} is empty", found=f"{first} {last}",
                     expected="32768 60999", evidence=[PORT_RANGE])  # fmt: skip
    elif ranks and number < ranks:
        details["evidence"] = [PORT_RANGE, PROCESS]
        yield failed(f"a job of {ranks} ranks has only {number} ephemeral ports ({first} to {last})",
                     expected=f"at least {ranks}", **details)  # fmt: skip
    elif floor.value is not None:
        yield compare(number, floor, what="ephemeral ports", at_least=True, evidence=[PORT_RANGE])
    elif number >= 10_000:
        yield passed(f"the ephemeral port range has {number} ports ({first} to {last})", **details)
    else:
        yield warned(f"the ephemeral port range has {number} ports ({first} to {last}), expected at least 10000",
                     expected="at least 10000", **details)  # fmt: skip


@check(
    "host.open-files",
    explains=IN_LOGS,
    title="The limit of open files is high enough",
    fault="The limit of open files is too low",
    impact="blocks-job",
    source="getrlimit(2), RLIMIT_NOFILE; 65,536 is a common floor of operators, 1,048,576 usual for large jobs",
    fix="Set LimitNOFILE=1048576 for slurmd, containerd and sshd, and `* - nofile 1048576` in limits.d.",
    action="fix-site",
)
def files(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the limit of open files with 65,536.

    ## Why it matters
    Each connection, shared-memory segment and data-loader worker takes a descriptor; at the limit, a large job fails
    with "Too many open files", often in its first collective.

    ## Verdicts
    A lower limit only warns, because small jobs never reach it.

    ## False alarms
    An SSH login may have a different limit from slurmd (often 1024, which programs may raise); run the check where the
    job runs.
    """
    limit = node.parsed(LIMITS, open_files)
    if limit >= 65_536:
        shown = "unlimited" if limit == math.inf else f"{limit:.0f}"
        yield passed(f"the limit of open files is {shown}", found=shown, evidence=[LIMITS])
    else:
        yield warned(f"the limit of open files is {limit:.0f}, expected at least 65536", found=f"{limit:.0f}",
                     expected="at least 65536", evidence=[LIMITS])  # fmt: skip


@check(
    "host.time-sync",
    title="The clock is synchronised",
    fault="The clock is not synchronised",
    impact="drifts",
    source="chronyc(1), timedatectl(1); 50 ms is a judgement: logs of ranks are merged by time",
    fix="Enable chronyd (or ptp4l with phc2sys) and make sure it reaches its server; run `chronyc makestep` on "
    "a drained node.",
    action="fix-site",
    gating=False,  # never fails
)
def time_sync(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the clock's offset from true time with 50 ms.

    ## Why it matters
    To find the rank that stalled first, logs of many nodes are merged by time; a wrong clock blames the wrong rank.
    Tickets, certificates and checkpoint ages are affected as well.

    ## Verdicts
    A clock that is not synchronised, or more than 50 ms off, warns. timedatectl reports no offset, but covers PTP and
    ntpd. In a container, the host's daemon is queried; if it is unreachable, the result is unknown.

    ## False alarms
    A virtual machine whose hypervisor sets its clock (Hyper-V, VMware tools) without a daemon that reports it.
    """
    yield judge_clock(node.clock)


def judge_clock(clock: Clock) -> Finding:
    """Judge whether the clock is synchronised, and its offset."""
    keys = [clock.evidence]
    if not clock.synchronised:
        return warned("the clock is not synchronised", found="not synchronised", expected="synchronised", evidence=keys)
    if clock.offset_s is None:
        return passed("the clock is synchronised", found="synchronised, offset not reported", evidence=keys)
    if abs(clock.offset_s) > 0.05:
        words = f"{abs(clock.offset_s) * 1000:.0f} ms {'ahead' if clock.offset_s > 0 else 'behind'}"
        return warned(
            f"the clock is {words}, expected within 50 ms", found=words, expected="within 50 ms", evidence=keys
        )
    return passed("the clock is synchronised within 50 ms", found=f"{clock.offset_s * 1000:.3g} ms", evidence=keys)

"""Checks of RDMA from user space: device nodes, active MTU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from preflight.checks.applicability import RDMA_CLASS, efa_only, failing, no_compute_port, no_rdma
from preflight.evidence.document import with_subject
from preflight.expectations import Expected, Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import DEVICE_NODES, DEVINFO, ROOT, Port
from preflight.model import Finding, check, failed, passed, skipped, some_of, unknown, verb, warned

#: Usual RDMA MTU of training fabrics in bytes.
USUAL_MTU = 4096

#: Pattern of the message about a device that hangs, and the checks that then are unknown.
HANG = "an RDMA device may hang*"
_OF_HANGING = (
    "rdma.*", "pcie.*", "gpudirect.*", "topology.*", "roce.*", "counters.*", "optics.*", "rails.*", "storage.network",
    "switch.*", "nccl.*", "host.memlock", "container.rdma-address",
)  # fmt: skip

_RESOURCE = (
    "Request the RDMA device plugin's resource in the pod (such as rdma/hca_shared_devices_a: 1); "
    "Docker: --device /dev/infiniband."
)


@check(
    "rdma.device-nodes",
    title="Every HCA has a device node that this user can open",
    fault="An HCA has no device node that this user can open",
    impact="slows-job",
    explains=(
        ("rdma.active-mtu", "unknown"),
        ("roce.chain", "unknown"),
        ("fleet.mtu-equal", "unknown"),
        *((effect, "unknown", HANG) for effect in _OF_HANGING),
        *(("kernel.events", "node", HANG, f"*tasks that hung*{tool}*") for tool in ("ibv_", "ibstat")),
        ("nccl.transport", "log"),
        ("nccl.failures", "log"),
    ),
    source="https://docs.kernel.org/infiniband/user_verbs.html",
    fix="If missing, run `modprobe ib_uverbs`, or request the pod's RDMA resource; if not accessible, fix the "
    "udev rule or cgroup.",
    action="fix-site",
    answers=("NT-CTR-1", "NT-PIT-3"),
    unless=(no_rdma,),
)
def device_nodes(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare /dev/infiniband/uverbsN with the RDMA devices, and test access.

    The collecting user's permissions apply.

    ## Why it matters
    Without its device node, an HCA cannot be opened from user space: NCCL reports "No device" and falls back to TCP. A
    typical case is a container without /dev/infiniband.

    ## Verdicts
    A compute HCA fails if its device node is missing, or if this user cannot read and write it. If `ibv_devinfo`, which
    opens all devices, or the kernel's files of a device do not answer in time, the check is unknown, and the node is
    excluded from jobs: NCCL opens all devices too.

    ## False alarms
    Evidence collected by a user other than the job's, if the site restricts the device nodes to a group; collect as the
    job's user.
    """
    if hanging := _hanging(node):
        yield hanging
    wanted = {port.device for port in site.roles(node).compute} or set(node.rdma_devices)
    names = node.uverbs
    if not node.evidence.exists(DEVICE_NODES):
        yield failed(
            "there is no /dev/infiniband" + (" in this container" if node.in_container else ""),
            found="no such directory",
            expected=f"a device node for each of {', '.join(sorted(wanted))}",
            evidence=[DEVICE_NODES, RDMA_CLASS],
            fix=_RESOURCE if node.in_container else "",
        )
        return
    nodes = node.evidence.listing(DEVICE_NODES)
    good = []
    for device in sorted(wanted):
        uverbs = names.get(device)
        if uverbs is None:
            yield failed(
                f"{device} has no uverbs device",
                subject=device,
                found="not in /sys/class/infiniband_verbs",
                expected="uverbsN",
                evidence=[DEVICE_NODES],
            )
        elif uverbs not in nodes:
            yield failed(
                f"{device}: /dev/infiniband/{uverbs} is missing",
                subject=device,
                found=", ".join(sorted(nodes)) or "an empty directory",
                expected=uverbs,
                evidence=[DEVICE_NODES],
            )
        elif (access := nodes[uverbs].get("access")) is None:
            yield unknown(f"{device}: access to {uverbs} was not recorded", subject=device, evidence=[DEVICE_NODES])
        elif access != "rw":
            yield failed(
                f"{device}: this user cannot open /dev/infiniband/{uverbs}",
                subject=device,
                found=f"mode {nodes[uverbs].get('mode', '?')}, access {access or 'none'}",
                expected="read and write",
                evidence=[DEVICE_NODES],
            )
        else:
            good.append(uverbs)
    if good and not hanging:
        yield passed(
            f"{some_of(len(good), len(wanted), 'HCA')} can be opened", found=", ".join(good), evidence=[DEVICE_NODES]
        )


def _hanging(node: NodeFacts) -> Finding | None:
    """Return the finding for a device that does not answer; None if all do."""
    states = (f"file:{ROOT}/{device}/ports/1/state" for device in node.rdma_devices)
    for key in (DEVINFO, *states):
        if key in node.evidence and (record := node.evidence.record(key)).hangs:
            return unknown(
                f"an RDMA device may hang: {with_subject(key.partition(':')[2], record.describe())}",
                evidence=[key],
                fix="Read /proc/PID/stack of the hanging process and `dmesg | grep -i -e mlx5 -e 'blocked for'`; "
                "drain the node and reboot it.",
                impact="blocks-job",
                owner="node",
                action="reboot",
            )
    return None


def no_infiniband(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without an InfiniBand port."""
    compute = site.roles(node).compute
    if absent := efa_only(compute, "no subnet manager sets their MTU"):
        return absent
    if any(port.infiniband for port in compute):
        return None
    key = compute[0].evidence[0].replace("/state", "/link_layer")
    return skipped("the compute ports are RoCE: see roce.chain for their MTU", evidence=[key])


@check(
    "rdma.active-mtu",
    title="The InfiniBand MTU is as large as the fabric allows",
    fault="The InfiniBand MTU is smaller than the fabric allows",
    impact="slows-job",
    owner="network",
    source="rdma-core ibv_devinfo(1); InfiniBand specification: the subnet manager sets the MTU of a partition",
    fix="Set the partition's MTU in the subnet manager (OpenSM: mtu=5 in partitions.conf), then read `ibv_devinfo`.",
    action="fix-site",
    answers=("PA-14", "NT-FAB-4"),
    unless=(no_compute_port, no_infiniband),
)
def active_mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each InfiniBand compute port's active MTU with the expectation.

    The cluster file's value is used, else 4096 bytes.

    ## Why it matters
    Peers use the smaller of their MTUs: a port at 1024 sends four times the packets, and if an application fixes the
    MTU, the connection fails.

    ## Verdicts
    A smaller MTU fails, except 2048, which may be configured for the partition and warns unless the cluster file
    declares another value. roce.chain judges RoCE ports, whose MTU follows the interface's.

    ## False alarms
    A partition with an MTU of 2048 on purpose; declare `mtu = 2048` in the cluster file. If the ports of a job are not
    known, a small MTU is unknown.
    """
    roles = site.roles(node)
    compute = [port for port in roles.compute if port.infiniband]
    active = [port for port in compute if port.active]
    if not active:
        yield unknown("no compute port is active, so there is no active MTU", evidence=[compute[0].evidence[0]])
        return
    if active and all(port.active_mtu is None for port in active):
        node.evidence.text(DEVINFO)  # raises with the reason, if the tool did not answer
    report = failing(roles, site)
    yield from judge_active_mtus(active, site.mtu, report)
    good = [port for port in active if _has_wanted_mtu(port, site.mtu)]
    if good:
        yield passed(
            f"{some_of(len(good), len(active), 'active InfiniBand port')} {verb(len(good), 'has')} an active MTU of "
            f"{good[0].active_mtu}",
            found=f"{good[0].active_mtu} bytes",
            evidence=[DEVINFO],
        )


def _has_wanted_mtu(port: Port, declared: Expected) -> bool:
    mtu = port.active_mtu
    return mtu is not None and (mtu == (declared.value or USUAL_MTU) or (not declared.value and mtu > USUAL_MTU))


def judge_active_mtus(active: Sequence[Port], declared: Expected, report: Callable[..., Finding]) -> Iterator[Finding]:
    """Report active InfiniBand ports without the declared or usual MTU."""
    wanted = declared if declared.value else Expected(USUAL_MTU, "usual on training fabrics", declared.key)
    for port in active:
        mtu, evidence = port.active_mtu, [key for key in port.evidence if key.startswith("read:")] or [DEVINFO]
        details: dict[str, Any] = {
            "subject": port.name,
            "found": f"{mtu} bytes",
            "expected": f"{wanted.value} bytes ({wanted.source})",
            "evidence": evidence,
        }
        if mtu is None:
            yield unknown(
                f"ibv_devinfo does not list {port.name}",
                subject=port.name,
                evidence=evidence,
                fix="see rdma.device-nodes: ibv_devinfo lists only devices it can open",
            )
        elif _has_wanted_mtu(port, declared):
            continue
        elif mtu == 2048 and not declared.value:
            yield warned(f"{port.name} has an active MTU of 2048; most fabrics use 4096", **details)
        else:
            yield report(f"{port.name} has an active MTU of {mtu} instead of {wanted.value}", **details)

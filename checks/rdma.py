"""RDMA: devices, ports, device nodes, MTU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from preflight.checks.presence import PCI_BUS, RDMA_CLASS, compute_roles, failing, no_rdma
from preflight.cluster import Expected, Site
from preflight.facts import NodeFacts
from preflight.facts.rdma import Port
from preflight.model import Finding, check, compare, failed, passed, skipped, unknown, warned

DEV = "dir:/dev/infiniband"
DEVINFO = "cmd:ibv_devinfo"
SYSFS = "https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband)"


@check(
    "rdma.device-count",
    title="All HCAs of the compute fabric are there",
    source=f"the cluster file (hcas, ports.compute); {SYSFS}",
    fix="Look for the NIC with `lspci -nn` and for its driver in `dmesg` (mlx5, bnxt_re, irdma, efa); reseat it or "
    "reload its driver.",
    answers=("NT-FAB-1", "FP-BW-1"),
)
def device_count(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the RDMA devices that the kernel registered with those that the cluster file promises.

    NCCL spreads traffic over the HCAs that it finds: with one missing the job still starts, and
    every collective waits for the node that has seven rails instead of eight.

    One HCA less than `hcas`, or without a device that `ports.compute` names, fails. Where the cluster file says
    neither, the number that was found is unknown; so it is where only the GPUs near them tell the compute NICs from
    the others, and a GPU is missing.

    A false alarm: a pod or virtual machine that was given some of its host's HCAs; give such nodes a class of their
    own.
    """
    devices = node.rdma_devices
    if not devices and node.in_container:
        _ = node.pci  # raises where /sys shows no bus either: then all of it is hidden, which is not absent
    if missing := site.missing_devices(node):
        yield failed(
            f"HCA {', '.join(missing)} is missing",
            subject=missing[0] if len(missing) == 1 else "",
            found=f"{len(devices)} RDMA devices: {', '.join(devices) or 'none'}",
            expected=f"{', '.join(missing)} (class.{site.class_name}.ports.compute)",
            evidence=[RDMA_CLASS],
        )
        return
    if not devices and not site.hcas.value:
        absent = no_rdma(node, site)
        assert absent is not None
        yield absent
        return
    roles = site.roles(node) if devices else None
    compute = {port.device for port in roles.compute} if roles else set()
    if roles and roles.of_near_gpus and len(compute) < (site.hcas.value or 0) <= len(devices) and _gpu_lost(node, site):
        yield unknown(
            f"{len(compute)} of {len(devices)} RDMA devices are near the GPUs that answer; one is lost, see gpu.count",
            found=f"{len(compute)} near a GPU",
            expected=f"{site.hcas.value} ({site.hcas.source})",
            evidence=[RDMA_CLASS],
            fix=f"mend the GPU first, or name the HCAs: class.{site.class_name}.ports.compute",
        )
        return
    yield compare(len(compute), site.hcas, what="HCAs of the compute fabric", evidence=[RDMA_CLASS])


def _gpu_lost(node: NodeFacts, site: Site) -> bool:
    """Tell whether the matrix, by which compute NICs are told, lacks a GPU that the node has or should have."""
    return len(node.topology.gpus) < max(len(node.gpus_on_bus), site.gpus.value or 0)


@check(
    "rdma.registered",
    title="Every RDMA NIC on the PCI bus is an RDMA device",
    source=SYSFS,
    fix="Load the driver (`modprobe mlx5_ib`, of an EFA `efa`), then read `dmesg | grep -e mlx5 -e efa -e infiniband`.",
    answers=("PA-13",),
)
def registered(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the RDMA-capable NICs on the PCI bus with the devices in /sys/class/infiniband.

    A NIC without its RDMA driver still carries Ethernet, so nothing looks broken, but NCCL falls
    back to TCP without an error.

    Fewer devices than NICs fails: every function of a ConnectX or EFA is one device.

    A false alarm: a container whose /sys/class/infiniband is restricted shows fewer devices than the
    bus; run there, this check says that it cannot tell. A bond merges two ports into one device.
    """
    devices, nics = node.rdma_devices, node.rdma_nics_on_bus
    if not nics:
        yield skipped("the PCI bus holds no NIC that is known to be an RDMA device", evidence=[PCI_BUS])
        return
    bonded = sum("bond" in device for device in devices)
    if len(devices) + bonded >= len(nics):
        yield passed(
            f"{len(nics)} RDMA NICs on the PCI bus, {len(devices)} RDMA devices",
            evidence=[PCI_BUS, RDMA_CLASS],
        )
        return
    details: dict[str, Any] = {
        "found": f"{len(devices)} RDMA devices",
        "expected": f"{len(nics)}, as on the PCI bus",
        "evidence": [RDMA_CLASS, PCI_BUS],
    }
    unbound = [nic.address for nic in nics if not nic.driver]
    message = f"{len(devices)} RDMA devices for {len(nics)} RDMA NICs on the PCI bus"
    if node.in_container:
        yield unknown(message + ", as far as this container sees", fix="ask on the host", **details)
    elif unbound:
        yield failed(message + f"; no driver on {', '.join(unbound)}", subject=unbound[0], **details)
    else:
        yield failed(message, **details)


@check(
    "rdma.port-state",
    title="RDMA ports of the compute fabric are active",
    source=SYSFS,
    fix="Down/Polling: cable or peer; Down/Disabled: `ip link set up`; Initializing: no subnet manager.",
    answers=("NT-FAB-1", "PA-13"),
    reads=("file:/sys/class/infiniband/*/hca_type",),
)
def port_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each compute port's state with ACTIVE over LinkUp.

    NCCL leaves out a port that is not active without a word: the rail's traffic moves to the
    neighbours and every ring runs at the pace of the fullest one.

    Any other state fails. Only ports that a job uses are judged (cluster file, NCCL_IB_HCA, nearest to a GPU;
    on Grace, where no NIC is nearer than another, those that are no BlueField). Where none of these tells, a
    port that is down is unknown.

    A false alarm: a storage, management or spare port that is down by design. Name the job's ports in
    `ports.compute`.
    """
    roles = compute_roles(node, site)
    if isinstance(roles, Finding):
        yield roles
        return
    say = failing(roles, site)
    up = [port for port in roles.compute if port.active]
    if up:
        yield passed(
            f"{len(up)} of {len(roles.compute)} compute ports are active",
            found=", ".join(port.name for port in up),
            evidence=[up[0].evidence[0]],
        )
    for port in roles.compute:
        if port.active:
            continue
        state = f"{port.state}/{port.physical_state}"
        yield say(
            f"{port.name} is {state}, expected ACTIVE/LinkUp{_meaning(port)}",
            subject=port.name,
            found=state,
            expected=f"ACTIVE/LinkUp (compute port: {roles.known_from or 'nobody says'})",
            evidence=port.evidence,
        )


def _meaning(port: Port) -> str:
    if port.state == "INIT":
        return ": the cable is fine, no subnet manager configured the port"
    if port.physical_state == "Polling":
        return ": no light, bad cable or peer off"
    if port.physical_state == "Disabled":
        return ": administratively down"
    return ""


@check(
    "rdma.port-rate",
    title="RDMA ports run at the expected rate",
    source=f"{SYSFS}; customary rates: part catalogue",
    fix="Reseat or replace the cable, then compare `ibstat` with the switch port.",
    answers=("FP-BW-1", "NT-FAB-3", "PA-12"),
)
def port_rate(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each active compute port's negotiated rate, Gb/s, with its peers on the node and the expected one.

    A port that trained at fewer lanes or a lower speed still reports ACTIVE; every ring through it
    then runs at its pace.

    A port below its peers fails without any expectation. The rate is judged, never the width: 2X NDR is a
    whole 200 Gb/s port. Below the cluster file's rate fails, below what is customary for the part warns; where each
    GPU has several ports (2 x 200 Gb/s, 4 x 100 Gb/s of EFA), together they are what is customary for one.

    A false alarm: a speed that the kernel does not know is printed as SDR or QDR on a healthy port; it is unknown
    here.
    """
    roles = compute_roles(node, site)
    if isinstance(roles, Finding):
        yield roles
        return
    compute, say = roles.compute, failing(roles, site)
    active = [port for port in compute if port.active]
    if not active:
        yield unknown("no compute port is active, so none has a rate", evidence=[compute[0].evidence[0]])
    best = max((port.rate_gbps for port in active if port.rate_gbps is not None), default=None)
    at_rate: list[Port] = []
    for port in active:
        rate = port.rate_gbps
        if rate is None:
            yield unknown(
                f"{port.name} is active at a speed that this kernel does not know",
                subject=port.name,
                evidence=port.evidence,
                fix="read it with `mlxlink -d DEVICE` or `ethtool IF`",
            )
        elif best is not None and rate < best:
            yield say(
                f"{port.name} runs at {rate:g} Gb/s, its peers at {best:g} Gb/s",
                subject=port.name,
                found=f"{rate:g} Gb/s",
                expected=f"{best:g} Gb/s, as the other compute ports of this node",
                evidence=port.evidence,
            )
        else:
            at_rate.append(port)
    if at_rate and best is not None:
        yield compare(
            best,
            site.rate_of_each(len(compute), len(node.gpus_on_bus)),
            what=f"rate of {len(at_rate)} compute ports",
            at_least=True,
            unit="Gb/s",
            evidence=[at_rate[0].evidence[-1]],
        )


@check(
    "rdma.link-layer",
    title="All compute ports have one link layer",
    source=SYSFS,
    fix="Set the port type (`mlxconfig -d DEVICE set LINK_TYPE_P1=1|2`), or keep the odd port out of NCCL_IB_HCA.",
    answers=("FP-LOSS-1",),
)
def link_layer(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the compute ports' link layers with each other and with the expected one.

    NCCL uses HCAs of one link layer only: with a mixture it drops the rest, and a port of the wrong
    type joins no fabric at all.

    One port of another layer than the cluster file's `link_layer`, else than most compute ports of the node, fails.

    A false alarm: a storage port of the other kind. Where nothing tells the compute ports, those of the usual layer
    are meant; where there is none, it is unknown.
    """
    roles = compute_roles(node, site)
    if isinstance(roles, Finding):
        yield roles
        return
    compute = roles.compute
    layers = Counter(port.link_layer for port in compute)
    usual = site.link_layer.value or layers.most_common(1)[0][0]
    odd = [port for port in compute if port.link_layer != usual]
    keys = [(odd or list(compute))[0].evidence[0].replace("/state", "/link_layer")]
    if not odd:
        yield passed(f"all {len(compute)} compute ports are {usual}", found=usual, evidence=keys)
        return
    yield failing(roles, site)(
        f"{', '.join(port.name for port in odd)}: {odd[0].link_layer}, expected {usual}",
        subject=odd[0].name if len(odd) == 1 else "",
        found=", ".join(f"{number} {layer}" for layer, number in layers.items()),
        expected=f"{usual} ({site.link_layer.source or 'most compute ports of this node'})",
        evidence=keys,
    )


_RESOURCE = (
    "Request the RDMA device plugin's resource in the pod (such as rdma/hca_shared_devices_a: 1); "
    "Docker: --device /dev/infiniband."
)


@check(
    "rdma.device-nodes",
    title="Every HCA has a device node that this user may open",
    source="https://docs.kernel.org/infiniband/user_verbs.html",
    fix="Missing: `modprobe ib_uverbs`, or request the pod's RDMA resource; not usable: fix the udev rule or cgroup.",
    answers=("NT-CTR-1", "NT-PIT-3"),
)
def device_nodes(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare /dev/infiniband/uverbsN with the RDMA devices, and this user's access to each.

    Without its device node an HCA cannot be opened from user space: NCCL finds "No device" and
    falls back to TCP, most often in a container that was not given /dev/infiniband.

    One compute HCA whose node is missing, or may not be read and written by this user, fails.

    A false alarm: asked as another user than the job's: a site may open the nodes to one group only. Judge as the
    job's user.
    """
    if absent := no_rdma(node, site):
        yield absent
        return
    wanted = {port.device for port in site.roles(node).compute} or set(node.rdma_devices)
    names = node.uverbs
    if not node.evidence.exists(DEV):
        yield failed(
            "there is no /dev/infiniband" + (" in this container" if node.in_container else ""),
            found="no such directory",
            expected=f"a device node for each of {', '.join(sorted(wanted))}",
            evidence=[DEV, RDMA_CLASS],
            fix=_RESOURCE if node.in_container else "",
        )
        return
    nodes = node.evidence.listing(DEV)
    good = []
    for device in sorted(wanted):
        uverbs = names.get(device)
        if uverbs is None:
            yield failed(
                f"{device} has no uverbs device",
                subject=device,
                found="not in /sys/class/infiniband_verbs",
                expected="uverbsN",
                evidence=[DEV],
            )
        elif uverbs not in nodes:
            yield failed(
                f"{device}: /dev/infiniband/{uverbs} is missing",
                subject=device,
                found=", ".join(sorted(nodes)) or "an empty directory",
                expected=uverbs,
                evidence=[DEV],
            )
        elif (access := nodes[uverbs].get("access")) is None:
            yield unknown(f"{device}: access to {uverbs} was not recorded", subject=device, evidence=[DEV])
        elif access != "rw":
            yield failed(
                f"{device}: this user may not open /dev/infiniband/{uverbs}",
                subject=device,
                found=f"mode {nodes[uverbs].get('mode', '?')}, access {access or 'none'}",
                expected="read and write",
                evidence=[DEV],
            )
        else:
            good.append(uverbs)
    if good:
        yield passed(f"{len(good)} of {len(wanted)} HCAs can be opened", found=", ".join(good), evidence=[DEV])


@check(
    "rdma.active-mtu",
    title="InfiniBand MTU is as large as the fabric allows",
    source="rdma-core ibv_devinfo(1); InfiniBand specification: the subnet manager sets the MTU of a partition",
    fix="Set the partition's MTU in the subnet manager (OpenSM: mtu=5 in partitions.conf), then read `ibv_devinfo`.",
    answers=("PA-14", "NT-FAB-4"),
)
def active_mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each active InfiniBand compute port's active MTU, bytes, with the cluster file's, else with 4096.

    Peers use the smaller MTU of the two: one port at 1024 sends four times the packets, and where an
    application fixed the MTU the connection fails instead.

    Anything below fails, except 2048: that can be a choice of the subnet manager's partition, and warns unless the
    cluster file says otherwise. RoCE ports, whose MTU follows the interface's, are judged by roce.chain.

    A false alarm: a partition that the subnet manager holds at 2048 on purpose; say `mtu = 2048` in the cluster
    file. Where nothing tells which ports a job uses, a small MTU is unknown.
    """
    roles = compute_roles(node, site)
    if isinstance(roles, Finding):
        yield roles
        return
    compute = [port for port in roles.compute if not port.roce]
    if not compute:
        key = roles.compute[0].evidence[0].replace("/state", "/link_layer")
        yield skipped("the compute ports are RoCE: see roce.chain for their MTU", evidence=[key])
        return
    active = [port for port in compute if port.active]
    if not active:
        yield unknown("no compute port is active, so none has an active MTU", evidence=[compute[0].evidence[0]])
        return
    if active and all(port.active_mtu is None for port in active):
        node.evidence.text(DEVINFO)  # raises with the reason, if the tool did not answer
    good = []
    for port in active:
        mtu = port.active_mtu
        wanted = site.mtu if site.mtu.value else Expected(4096, "usual on training fabrics", site.mtu.key)
        details: dict[str, Any] = {
            "subject": port.name,
            "found": f"{mtu} bytes",
            "expected": f"{wanted.value} bytes ({wanted.source})",
            "evidence": [DEVINFO],
        }
        if mtu is None:
            yield unknown(
                f"ibv_devinfo does not list {port.name}",
                subject=port.name,
                evidence=[DEVINFO],
                fix="see rdma.device-nodes: it lists what it may open",
            )
        elif mtu == wanted.value or (not site.mtu.value and mtu > 4096):
            good.append(port)
        elif mtu == 2048 and not site.mtu.value:
            yield warned(f"{port.name} has an active MTU of 2048, most fabrics use 4096", **details)
        else:
            say = failing(roles, site)
            yield say(f"{port.name} has an active MTU of {mtu}, expected {wanted.value}", **details)
    if good:
        yield passed(
            f"{len(good)} of {len(active)} active InfiniBand ports have an active MTU of {good[0].active_mtu}",
            found=f"{good[0].active_mtu} bytes",
            evidence=[DEVINFO],
        )

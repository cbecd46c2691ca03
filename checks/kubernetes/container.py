"""Checks of a container's GPUs, networks and RDMA devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from preflight.checks.applicability import (
    RDMA_CLASS,
    efa_only,
    no_gpu,
    no_rdma,
    outside_container,
    outside_pod,
)
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.container import (
    GPU_NODES,
    USABLE_NODES,
    gpu_nodes,
    gpus_given,
    networks,
    usable_gpu_nodes,
)
from preflight.facts.interfaces import ROOT as NET
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT as IB
from preflight.facts.rdma_ports import Port, interfaces
from preflight.model import Finding, check, counted, each_of, failed, none_of, passed, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.parsers.network.network_status import PodNetwork


@check(
    "container.gpu-devices",
    title="The container has the GPUs' device nodes",
    fault="The container lacks device nodes of GPUs",
    impact="blocks-job",
    explains=(
        ("gpu.*", "unknown"),
        ("nvlink.*", "unknown"),
        ("topology.*", "unknown"),
        ("gpudirect.*", "unknown"),
        ("pcie.replay", "unknown"),
        ("counters.gpu-links", "unknown"),
        ("versions.driver-files", "unknown"),
    ),
    source="NVIDIA container toolkit: NVIDIA_VISIBLE_DEVICES; NVIDIA driver README (nvidia-uvm)",
    fix="Request `nvidia.com/gpu` and the runtime class `nvidia`; Docker: `--gpus all`; bubblewrap: `--dev-bind`.",
    action="fix-job",
    unless=(no_gpu, outside_container),
)
def gpu_devices(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look in a container for /dev/nvidia0, nvidiactl and nvidia-uvm.

    ## Why it matters
    The PCI bus shows the host's GPUs in every container; without their device nodes, CUDA finds none, and without
    nvidia-uvm, it fails with error 999, which looks like a broken driver.

    ## Verdicts
    A container with fewer GPUs than the bus passes: it was allocated only these. A container without any GPU fails if
    NVIDIA_VISIBLE_DEVICES or the cluster file declares that it should have some; otherwise it is unknown. Device nodes
    that cannot be opened, because a control group denies it, do not count; if NVIDIA_VISIBLE_DEVICES, Slurm or the
    pod's request assigned them, the check fails. Outside a container, the check is skipped.

    ## False alarms
    An init or sidecar container without a GPU on purpose; if no GPU is declared, the result is unknown.
    """
    nodes = node.parsed(GPU_NODES, gpu_nodes)
    gpus = [name for name in nodes if name.removeprefix("nvidia").isdigit()]
    lacking = sorted({"nvidiactl", "nvidia-uvm"} - nodes)
    requested = node.environment.get("NVIDIA_VISIBLE_DEVICES", "") not in ("", "void", "none")
    usable = usable_gpu_nodes(node.evidence)
    withheld = 0 if usable is None else len(gpus) - usable
    details: dict[str, Any] = {
        "found": ", ".join(sorted(nodes)) or "no /dev/nvidia*",
        "evidence": [GPU_NODES, *([USABLE_NODES] if withheld > 0 else []), PROCESS],
    }
    if withheld > 0 and (gpus_given(node.evidence, node.environment) == len(gpus) or (requested and not usable)):
        opened = none_of(len(gpus), "GPU device") if not usable else f"only {usable} of {len(gpus)} GPU devices"
        yield failed(f"{opened} in this container can be opened",
                     expected="devices allowed by its control group", fix=_WITHHELD, **details)  # fmt: skip
        return
    if withheld > 0 and not usable:
        gpus = []
    if not gpus and (requested or site.members.gpus):
        yield failed(f"this container has no GPU device; the PCI bus has {counted(len(node.gpus_on_bus), 'GPU')}",
                     expected="/dev/nvidia0, nvidiactl, nvidia-uvm", **details)  # fmt: skip
    elif not gpus:
        yield unknown(
            "this container has no GPU device, and it is not declared whether it should have one",
            fix="if the job needs a GPU, request `nvidia.com/gpu` with the runtime class `nvidia`",
            **details,
        )
    elif lacking:
        yield failed(f"/dev/{lacking[0]} is not in this container", subject=lacking[0],
                     expected="nvidiactl and nvidia-uvm", **details)  # fmt: skip
    else:
        usable = len(gpus) - max(withheld, 0)
        yield passed(
            f"this container has {counted(usable, 'GPU device')}; the PCI bus has "
            f"{counted(len(node.gpus_on_bus), 'GPU')}",
            **details,
        )


#: Follows the NVIDIA container toolkit's troubleshooting section on containers that lose access to GPUs.
_WITHHELD = (
    "Restart the container: `systemctl daemon-reload` on the host removes devices that the engine did not "
    "declare to systemd. Declare them with CDI, or configure the engine to use cgroupfs."
)


@check(
    "container.networks",
    title="The pod is attached to the compute fabric's networks",
    fault="The pod lacks a network of the compute fabric",
    impact="slows-job",
    explains=(
        ("container.rdma-address", "node"),
        ("counters.*", "unknown"),
        ("optics.*", "unknown"),
        ("rails.*", "unknown"),
        ("roce.chain", "unknown"),
    ),
    source="Kubernetes Network Custom Resource Definition De-facto Standard, network-status; Multus",
    fix="Name the networks in the pod's annotation k8s.v1.cni.cncf.io/networks, and read `kubectl describe pod`.",
    action="fix-job",
    answers=("NT-CTR-3",),
    unless=(outside_pod,),
)
def pod_networks(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare a pod's secondary networks with the cluster file and its interfaces.

    ## Why it matters
    A pod that Multus attached to the wrong network, or to none, still has an interface and an address: NCCL uses the
    cluster network over TCP.

    ## Verdicts
    The annotation network-status is read through the downward API: the file /etc/podnetinfo/annotations, or the
    variable NETWORK_STATUS. If it is not available, the result is unknown. A missing expected network fails, and so
    does one without its interface in the pod. The cluster file's ports.networks declares the expected networks.
    Outside a pod, the check is skipped.

    ## False alarms
    None known. Old CNIs write only names into the annotation; the missing fields are not compared.
    """
    try:
        attached, key = networks(node.evidence)
    except EvidenceError as error:
        yield unknown(
            f"the pod's networks are unknown: {error}",
            evidence=[error.key],
            fix="mount metadata.annotations through the downward API at /etc/podnetinfo/annotations",
        )
        return
    secondary = [network for network in attached if not network.default]
    wanted, names = site.networks, [network.name for network in secondary]
    broken = [fault for network in secondary for fault in _faults(node, network, key)]
    yield from broken
    found = ", ".join(names) or "only the cluster's own network"
    if wanted.value is None:
        yield unknown(f"the pod's secondary networks: {found}; the expected ones are not declared", found=found,
                      evidence=[key], fix=f'add to the cluster file: {wanted.key} = ["rdma/rail-0"]')  # fmt: skip
    elif missing := [name for name in wanted.value if name not in names and name.split("/")[-1] not in names]:
        yield failed(f"the pod is not attached to {', '.join(missing)}", found=found,
                     expected=f"{', '.join(wanted.value)} ({wanted.source})", evidence=[key])  # fmt: skip
    elif not broken:
        yield passed(f"the pod is attached to {counted(len(names), 'secondary network')}", found=found, evidence=[key])


def _faults(node: NodeFacts, network: PodNetwork, key: str) -> Iterator[Finding]:
    if network.interface and network.interface not in node.netdevs:
        yield failed(f"{network.interface} of the network {network.name} is not in this pod", subject=network.interface,
                     found=", ".join(sorted(node.netdevs)), expected=network.interface,
                     evidence=[key, f"file:{NET}/*/mtu"])  # fmt: skip
    if network.rdma_device and network.rdma_device not in node.rdma_devices:
        yield failed(f"{network.rdma_device} of the network {network.name} is not in this pod",
                     subject=network.rdma_device, found=", ".join(node.rdma_devices) or "no RDMA device",
                     expected=network.rdma_device, evidence=[key, RDMA_CLASS])  # fmt: skip
    yield from judge_address(network, key)


def judge_address(network: PodNetwork, key: str) -> Iterator[Finding]:
    """Report a network without an address from the CNI."""
    if network.interface and network.ips == ():
        yield warned(f"{network.interface} of the network {network.name} has no address from the CNI",
                     subject=network.interface, found="no address", expected="an address", evidence=[key],
                     fix="Configure an IPAM for the network; InfiniBand without IPoIB needs none.")  # fmt: skip


def judge_guids(guids: Mapping[str, tuple[int, str]], report: Callable[..., Finding]) -> Iterator[Finding]:
    """Report RDMA devices with a GUID of zero; ``guids`` has each GUID and its record."""
    for device, (guid, key) in guids.items():
        if not guid:
            yield report(f"{device} has no GUID: none was assigned to the virtual function", subject=device,
                         found="0000:0000:0000:0000", expected="a GUID", evidence=[key])  # fmt: skip


def no_address_needed(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA ports, which need no GUID and no interface."""
    return efa_only(site.roles(node).compute, "they need no GUID and no interface")


@check(
    "container.rdma-address",
    title="Every RDMA device has a GUID, and one of them has an interface in this namespace",
    fault="An RDMA device of the pod has no GUID or interface",
    impact="slows-job",
    explains=(("rdma.port-state", "part"),),
    source="ib-kubernetes: guid of a virtual function; docs.kernel.org/infiniband (net namespaces, GIDs)",
    fix="On InfiniBand, assign the GUID with ib-kubernetes or `ip link set PF vf N node_guid GUID`. On RoCE, move the "
    "interface of the function into the pod.",
    action="fix-job",
    answers=("NT-CTR-4",),
    unless=(no_rdma, no_address_needed),
)
def rdma_address(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each compute device's GUID with zero, and look for its interface.

    The interface of a RoCE port must be in this network namespace.

    ## Why it matters
    A virtual function without a GUID never joins the fabric. A RoCE device whose interface is in another network
    namespace has no usable GID: it is listed and can be opened, but every connection fails.

    ## Verdicts
    A GUID of zeros fails, and so do RoCE devices if none has its interface in the pod; if the interfaces could not be
    read, the result is unknown. rails.subnets checks the addresses of interfaces.

    ## False alarms
    None known. In shared mode, a pod sees all RDMA devices of its host, including unusable ones, so one working RoCE
    device is enough.
    """
    compute = site.roles(node).compute
    devices = dict.fromkeys(port.device for port in compute if not port.efa)
    keys = {device: f"file:{IB}/{device}/node_guid" for device in devices}
    guids = {device: node.parsed(key, _guid) for device, key in keys.items()}
    yield from judge_guids({device: (guid, keys[device]) for device, guid in guids.items()}, failed)
    roce = [port for port in compute if port.roce]
    here, unread = _here(node, roce)
    if unread and not here:
        yield unknown(f"it is unknown whether a RoCE port has its interface in this network namespace: {unread[0]}",
                      evidence=[error.key for error in unread[:3]])  # fmt: skip
    elif roce and not here:
        yield failed(
            f"{none_of(len(roce), 'RoCE port')} has its interface in this network namespace",
            found=f"only {', '.join(sorted(node.netdevs))}",
            expected=f"one of {', '.join(port.netdev or f'that of {port.name}' for port in roce[:4])}",
            evidence=[f"file:{NET}/*/mtu", RDMA_CLASS],
        )
    elif not devices:
        yield unknown("there is no compute port", evidence=[RDMA_CLASS])
    elif all(guids.values()):
        local = ""
        if roce:
            local = f"; {some_of(len(here), len(roce), 'RoCE interface')} {verb(len(here), 'is')} in the pod"
        yield passed(f"{each_of(len(devices), 'RDMA device')} has a GUID{local}", evidence=list(keys.values())[:3])


def _here(node: NodeFacts, roce: list[Port]) -> tuple[list[Port], list[EvidenceError]]:
    """Return ports with an interface in this network namespace.

    Also returns the errors of ports that could not be read.
    """
    here: list[Port] = []
    unread: list[EvidenceError] = []
    for port in roce:
        try:
            if any(name in node.netdevs for name in interfaces(node.evidence, port)):
                here.append(port)
        except EvidenceError as error:
            unread.append(error)
    return here, unread


def _guid(text: str) -> int:
    """Parse a GUID such as ``a088:c203:0018:0000``; 0 means that none is set."""
    parts = text.strip().split(":")
    if len(parts) != 4 or not all(len(part) == 4 for part in parts):
        raise ValueError(f"{text.strip()[:60]!r} is not a GUID")
    return int("".join(parts), 16)

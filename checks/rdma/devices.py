"""Checks of the number of RDMA devices, and of their registration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.checks.applicability import PCI_BUS, RDMA_CLASS, no_rdma
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, compare, counted, failed, passed, skipped, unknown

SYSFS = "https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband)"


def no_device_expected(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node without RDMA devices for which no number is declared."""
    if node.rdma_devices:
        return None
    if node.in_container:
        _ = node.pci  # raises if /sys shows no bus either: hidden, not absent
    if site.missing_devices(node) or site.hcas.value or (site.hcas.value == 0 and not node.rdma_nics_on_bus):
        return None
    return no_rdma(node, site)


@check(
    "rdma.device-count",
    title="All HCAs of the compute fabric are present",
    fault="HCAs of the compute fabric are missing",
    impact="slows-job",
    explains=(
        ("rdma.bandwidth-per-gpu", "node"),
        ("topology.nearest-nic", "node"),
        ("gpudirect.path", "node", "*", "*no direct path*"),
        ("gpudirect.path", "node", "*", "*the nearest NIC is on the other CPU"),
        ("nccl.ib-hca", "names"),
        ("nccl.transport", "log"),
    ),
    source=f"the cluster file (hcas, ports.compute); {SYSFS}",
    fix="Look for the NIC in `lspci -nn` and for its driver in `dmesg` (mlx5, bnxt_re, irdma, efa); reseat it or "
    "reload its driver.",
    answers=("NT-FAB-1", "FP-BW-1"),
    unless=(no_device_expected,),
)
def device_count(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the registered RDMA devices with those that the cluster file expects.

    ## Why it matters
    NCCL spreads traffic over the HCAs it finds: with one missing, the job still starts, and every collective waits for
    the node with seven rails instead of eight.

    ## Verdicts
    Fewer HCAs than `hcas`, or a missing device of `ports.compute`, fails. If the cluster file declares neither, the
    expected number of HCAs is unknown. The result is also unknown if the compute NICs are identified only by the GPUs
    close to them, and a GPU is missing.

    ## False alarms
    A pod or virtual machine with only some of its host's HCAs; give such nodes their own class.
    """
    devices = node.rdma_devices
    if missing := site.missing_devices(node):
        yield failed(
            f"HCA {missing[0]} is missing" if len(missing) == 1 else f"HCAs {', '.join(missing)} are missing",
            subject=missing[0] if len(missing) == 1 else "",
            found=f"{len(devices)} RDMA devices: {', '.join(devices) or 'none'}",
            expected=f"{', '.join(missing)} (class.{site.class_name}.ports.compute)",
            evidence=[RDMA_CLASS],
        )
        return
    if not devices and site.hcas.value == 0 and not node.rdma_nics_on_bus:
        yield compare(0, site.hcas, what="HCAs of the compute fabric", evidence=[RDMA_CLASS, PCI_BUS])
        return
    roles = site.roles(node) if devices else None
    compute = {port.device for port in roles.compute} if roles else set()
    if roles and roles.of_near_gpus and len(compute) < (site.hcas.value or 0) <= len(devices) and gpu_lost(node, site):
        yield unknown(
            f"{len(compute)} of {len(devices)} RDMA devices are close to the GPUs that answer; a GPU is lost: "
            "see gpu.count",
            found=f"{len(compute)} near a GPU",
            expected=f"{site.hcas.value} ({site.hcas.source})",
            evidence=[RDMA_CLASS],
            fix=f"repair the GPU first, or name the HCAs: class.{site.class_name}.ports.compute",
        )
        return
    yield compare(len(compute), site.hcas, what="HCAs of the compute fabric", evidence=[RDMA_CLASS])


def gpu_lost(node: NodeFacts, site: Site) -> bool:
    """Return whether the topology matrix lacks a GPU that the node should have.

    The matrix identifies the compute NICs: those that are close to a GPU.
    """
    return len(node.topology.gpus) < max(len(node.gpus_on_bus), site.gpus.value or 0)


def no_rdma_nic(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a PCI bus without an RDMA NIC."""
    _ = node.rdma_devices  # raises if they could not be read: skip needs complete evidence
    if node.rdma_nics_on_bus:
        return None
    return skipped("the PCI bus has no known RDMA NIC", evidence=[PCI_BUS])


@check(
    "rdma.registered",
    title="Every RDMA NIC on the PCI bus is an RDMA device",
    fault="An RDMA NIC on the PCI bus is not an RDMA device",
    impact="slows-job",
    explains=(
        ("rdma.device-count", "node"),
        ("rdma.bandwidth-per-gpu", "node"),
        ("topology.nearest-nic", "node"),
        ("gpudirect.path", "node", "*", "*no direct path*"),
        ("gpudirect.path", "node", "*", "*the nearest NIC is on the other CPU"),
        ("nccl.transport", "log"),
        ("nccl.failures", "log"),
    ),
    source=SYSFS,
    fix="Load the driver (`modprobe mlx5_ib`, for EFA `efa`), then read `dmesg | grep -e mlx5 -e efa -e infiniband`.",
    action="fix-site",
    answers=("PA-13",),
    unless=(no_rdma_nic,),
)
def registered(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the RDMA NICs on the PCI bus with those in /sys/class/infiniband.

    ## Why it matters
    A NIC without its RDMA driver still carries Ethernet and looks healthy, but NCCL falls back to TCP without an error.

    ## Verdicts
    Fewer devices than NICs fail: every function of a ConnectX or EFA is one device.

    ## False alarms
    None known. In a container, /sys/class/infiniband may be restricted, so fewer devices are unknown there. A bond
    merges two ports into one device, which is taken into account.
    """
    devices, nics = node.rdma_devices, node.rdma_nics_on_bus
    bonded = sum("bond" in device for device in devices)
    if len(devices) + bonded >= len(nics):
        yield passed(
            f"the kernel has {counted(len(devices), 'RDMA device')} for {counted(len(nics), 'RDMA NIC')} on the "
            "PCI bus",
            evidence=[PCI_BUS, RDMA_CLASS],
        )
        return
    details: dict[str, Any] = {
        "found": counted(len(devices), "RDMA device"),
        "expected": f"{len(nics)}, as on the PCI bus",
        "evidence": [RDMA_CLASS, PCI_BUS],
    }
    unbound = [nic.address for nic in nics if not nic.driver]
    have = counted(len(devices), "RDMA device") if devices else "no RDMA device"
    message = f"the kernel has {have} for {counted(len(nics), 'RDMA NIC')} on the PCI bus"
    if node.in_container:
        yield unknown(message + " in this container", fix="run preflight on the host", **details)
    elif unbound:
        yield failed(message + f"; no driver is bound to {', '.join(unbound)}", subject=unbound[0], **details)
    else:
        yield failed(message, **details)

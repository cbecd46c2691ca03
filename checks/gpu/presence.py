"""Checks of the number of GPUs and NVSwitches, and of the driver's answer."""

from __future__ import annotations

from collections.abc import Iterator

from preflight import facts
from preflight.checks.applicability import PCI_BUS, network_switch, no_gpu, nothing
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import COURSE, EvidenceError
from preflight.expectations import Site
from preflight.expectations.catalogue import NVSWITCH_IDS
from preflight.facts.container import (
    GPU_NODES,
    USABLE_NODES,
    given_all_gpus,
    gpu_nodes,
    gpus_given,
    in_pod,
    usable_gpu_nodes,
)
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia.query import Driver
from preflight.facts.pod import pod
from preflight.model import Finding, all_of, check, clause, compare, counted, failed, none_of, passed, skipped, unknown


def no_gpu_expected(node: NodeFacts, site: Site) -> Finding | None:
    """Return the result for a node without GPUs if no number is declared, else None."""
    if node.gpus_on_bus or site.gpus.value is not None:
        return None
    return nothing(node, site) or skipped(
        "GPUs were not judged: the PCI bus has no NVIDIA GPU, and none is declared "
        f"({site.gpus.key} sets how many to expect)",
        evidence=[PCI_BUS],
    )


@check(
    "gpu.count",
    title="All GPUs are on the PCI bus",
    fault="A GPU is missing from the PCI bus",
    impact="blocks-job",
    explains=(
        *IN_LOGS,
        *((effect, on, "*", "*unknown error*") for effect, on in IN_LOGS),
        ("xid.gpu", "missing"),
        ("gpu.*", "missing"),
        ("nvlink.*", "missing"),
        ("pcie.replay", "missing"),
        ("counters.gpu-links", "missing"),
        ("kernel.events", "missing"),
        ("numa.*", "unknown"),
    ),
    source="https://docs.kernel.org/PCI/sysfs-pci.html; board sizes: part catalogue",
    fix="`lspci -d 10de:`; power-cycle the node (a reboot is not enough); if the GPU is still missing, reseat "
    "or replace it.",
    action="reboot",
    answers=("PA-01",),
    reads=("file:/sys/class/dmi/id/*", COURSE),
    unless=(network_switch, no_gpu_expected),
)
def count(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the GPUs on the PCI bus with the declared or catalogued number.

    ## Why it matters
    A job that requests eight GPUs does not start on seven, or runs one rank short.

    ## Verdicts
    The PCI bus is read, not the driver, so that a node with a dead driver does not look like one without GPUs. Fewer
    than the expected number fail; boards with NVSwitches carry eight. Without an expected number, the result is
    unknown. A node without a GPU on the bus is also unknown if anything suggests GPUs: a loaded NVIDIA driver, device
    nodes, NVSwitches on the bus, Xids in the kernel log, a server model that is sold only with GPUs, or GPU readings in
    the history. The same applies to a machine with neither a GPU nor an RDMA NIC, unless its class sets `gpus = 0`,
    because a node looks the same after all its GPUs fell off the bus. A node with NICs and no sign of a GPU, such as a
    storage node, is judged by its NICs alone. A network switch is reported as such and not judged further.

    ## False alarms
    A virtual machine that was given more than four of a board's eight GPUs; declare `gpus` for its class
    in the cluster file.
    """
    yield compare(len(node.gpus_on_bus), site.gpus, what="GPUs on the PCI bus", evidence=[PCI_BUS])


@check(
    "gpu.driver",
    title="The driver answers for every GPU",
    fault="The driver does not answer for a GPU",
    impact="blocks-job",
    explains=(
        *IN_LOGS,
        *((effect, on, "*", "*launch failure*") for effect, on in IN_LOGS),
        ("xid.gpu", "part"),
        ("xid.gpu", "names"),
        ("gpu.*", "unknown"),
        ("numa.*", "unknown"),
        ("nvlink.*", "unknown"),
        ("nvlink.fabric-manager", "node", "no NVIDIA driver is loaded*"),
        ("kernel.events", "node", "*did not answer in time*", "*tasks that hung*nvidia*"),
        ("topology.*", "unknown"),
        ("gpudirect.*", "unknown"),
        ("pcie.replay", "unknown"),
        ("counters.gpu-links", "unknown"),
        ("versions.driver-files", "unknown"),
        ("versions.compatibility", "unknown"),
        ("nccl.mnnvl", "unknown"),
        ("nccl.left-over-disables", "unknown"),
        ("fleet.gpu-settings", "unknown"),
        ("fleet.nvlink-domain", "unknown"),
        ("fleet.firmware", "unknown", "*", "*VBIOS*"),
    ),
    source="https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t)",
    fix="Read `dmesg | grep -i -e nvrm -e xid`; reset the GPU or reboot the node.",
    action="reboot",
    answers=("PA-01",),
    reads=("kube:pod",),
    unless=(no_gpu,),
)
def driver(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the GPUs that NVML (or nvidia-smi) lists with those on the PCI bus.

    ## Why it matters
    If the driver loses a GPU, the job on it dies, possibly without a message of the driver until a tool queries the
    GPU. If the driver itself is dead, no GPU tool lists a GPU.

    ## Verdicts
    A single missing GPU fails. If the driver does not answer in time, the result is unknown, and the node is excluded
    from jobs.

    A container sees the complete PCI bus, but only its own GPUs. There, only the assigned GPUs count:
    NVIDIA_VISIBLE_DEVICES, Slurm's lists and the pod's request, which must agree. If the device nodes match the
    assignment and all GPUs answer, the check passes. If fewer answer, the check fails, or is unknown if the device
    nodes cannot be opened. Without an assignment, a missing GPU fails if the device nodes of all GPUs on the bus exist
    and can be opened, which a control group that withholds a GPU would prevent. If find(1) cannot test that (BusyBox),
    the result is unknown unless the cluster file expects all of them. A GPU that the driver reports as lost always
    fails.

    ## False alarms
    NVIDIA_VISIBLE_DEVICES set manually, in a container with the same number of device nodes.
    """
    bus = {device.address for device in node.gpus_on_bus}
    try:
        listing = node.driver
    except EvidenceError as error:
        yield _silent(node, len(bus), error)
        return
    missing = sorted(bus - {gpu.address for gpu in listing.gpus})
    if not missing:
        yield passed(
            f"driver {listing.version} answers for {all_of(len(bus), 'GPU')}",
            evidence=[listing.evidence, PCI_BUS],
        )
    elif node.in_container and not (_lost(listing) or _all_given(node, site, len(bus))):
        yield _in_container(node, listing, len(bus))
    else:
        yield failed(
            f"the driver does not answer for {len(missing)} of {len(bus)} GPUs: {', '.join(missing)}",
            subject=missing[0] if len(missing) == 1 else "",
            found=_answering(listing),
            expected=f"{len(bus)}, as on the PCI bus",
            evidence=[listing.evidence, PCI_BUS],
        )


def _answering(listing: Driver) -> str:
    """Return how many GPUs answer, and what the driver reports for each other GPU."""
    return clause(len(listing.gpus), "GPU", "answers") + (f" ({'; '.join(listing.lost)})" if listing.lost else "")


def _in_container(node: NodeFacts, listing: Driver, bus: int) -> Finding:
    """Compare the answering GPUs with those assigned to the container."""
    try:
        given = gpus_given(node.evidence, node.environment)
        nodes = sum(name.removeprefix("nvidia").isdigit() for name in node.parsed(GPU_NODES, gpu_nodes))
    except EvidenceError:
        given, nodes = None, 0
    answer, evidence = len(listing.gpus), [listing.evidence, PROCESS, GPU_NODES]
    usable = usable_gpu_nodes(node.evidence)
    if given == nodes and usable is not None and answer <= usable < nodes:
        return unknown(f"{answer} of {given} GPUs assigned to this container answer, because only {usable} can be "
                       "opened",
                       evidence=[*evidence, USABLE_NODES], fix="see container.gpu-devices")  # fmt: skip
    if given is not None and answer == given == nodes:
        return passed(
            f"driver {listing.version} answers for all {given} GPUs assigned to this container, of {bus} on the bus",
            evidence=evidence,
        )
    if given is not None and answer < given == nodes:
        return failed(f"the driver does not answer for {given - answer} of {given} GPUs assigned to this container",
                      found=_answering(listing), expected=f"{given}, as assigned", evidence=evidence)  # fmt: skip
    return unknown(f"{clause(answer, 'GPU', 'is')} visible in this container, but the PCI bus has {bus}",
                   evidence=[listing.evidence, PCI_BUS],
                   fix="run preflight on the host to judge the other GPUs")  # fmt: skip


def _all_given(node: NodeFacts, site: Site, gpus: int) -> bool:
    """Return whether a container was assigned every GPU on the bus.

    If so, a GPU that does not answer is lost.
    """
    usable, expected = usable_gpu_nodes(node.evidence), site.members.gpus
    if (usable is None and expected is None) or usable not in (None, gpus) or expected not in (None, gpus):
        return False
    try:
        nodes = node.parsed(GPU_NODES, gpu_nodes)
        return given_all_gpus(nodes, node.environment, gpus) and _requested(node) in (None, gpus)
    except EvidenceError:
        return False


def _requested(node: NodeFacts) -> int | None:
    """Return the number of GPUs that the pod requests; None if unknown or in no pod."""
    try:
        return pod(node.evidence).gpus if in_pod(node.environment) else None
    except EvidenceError:
        return None


def _lost(listing: Driver) -> bool:
    """Return whether the driver reports a GPU as lost."""
    return any("GPU is lost" in text for text in listing.lost)


def _silent(node: NodeFacts, gpus: int, error: EvidenceError) -> Finding:
    """Distinguish a dead driver from one that could not be queried."""
    evidence = [error.key, NVIDIA_VERSION, PCI_BUS]
    if node.in_container:
        return unknown(
            f"this container sees no driver, although the PCI bus has {counted(gpus, 'GPU')}: {error}",
            evidence=evidence,
            fix="give the container its GPUs (nvidia container runtime, NVIDIA_VISIBLE_DEVICES)",
        )
    if not node.evidence.exists(NVIDIA_VERSION):
        return failed(
            f"no NVIDIA driver is loaded, although {clause(gpus, 'GPU', 'is')} on the PCI bus",
            found="no /proc/driver/nvidia/version",
            expected="a loaded driver",
            evidence=evidence,
            fix="Load it (`modprobe nvidia`) and read `dmesg | grep -i nvrm` for the reason.",
        )
    answers = [
        record
        for key in (facts.nvidia.query.NVML, facts.nvidia.query.QUERY)
        if key in node.evidence and (record := node.evidence.record(key))
    ]
    if any(record.status == "timeout" or record.status == "abandoned" for record in answers):
        hangs = any(record.hangs for record in answers)
        reason = "`dmesg | grep -i xid` and /proc/PID/stack of the hanging nvidia-smi show the reason"
        return unknown(
            f"the driver did not answer in time for {counted(gpus, 'GPU')}: it may hang",
            evidence=evidence,
            fix=f"drain the node; {reason}; then reboot it" if hangs else reason,
            impact="blocks-job" if hangs else "",
        )
    if all(record.status == "missing" for record in answers):
        return unknown(
            f"a driver is loaded, but neither NVML nor nvidia-smi is installed to query {counted(gpus, 'GPU')}",
            evidence=evidence,
            fix="install nvidia-smi (package nvidia-utils) on the node",
        )
    return failed(
        f"the driver answers for {none_of(gpus, 'GPU')}: {error}",
        found=error.why,
        expected=counted(gpus, "GPU"),
        evidence=evidence,
        fix="After an upgrade, reboot to fix a driver/library mismatch; otherwise read `dmesg | grep -i nvrm`.",
    )


def no_switch_on_bus(node: NodeFacts, site: Site) -> Finding | None:
    """Skip boards without NVSwitches on the bus, and virtual machines that show none."""
    wanted = site.part.switches_on_bus if site.part is not None else 0
    if wanted and (_switches(node) or not (node.in_virtual_machine or node.in_container)):
        return None
    return skipped("no NVSwitch is expected on this PCI bus", evidence=[PCI_BUS])


def _switches(node: NodeFacts) -> int:
    return sum(device.vendor == "10de" and device.device in NVSWITCH_IDS for device in node.pci)


@check(
    "nvlink.switches",
    title="All NVSwitches of the board are on the PCI bus",
    fault="An NVSwitch is missing from the PCI bus",
    impact="blocks-job",
    explains=(
        ("nvlink.fabric-manager", "node"),
        ("gpu.fabric-state", "node"),
        ("nvlink.links", "node"),
        ("topology.nvlink", "node"),
    ),
    source="NVIDIA Fabric Manager user guide (HGX A100: six NVSwitches, HGX H100: four), pci.ids",
    fix="`lspci -d 10de: | grep -i bridge`; power-cycle the node; if one is still missing, return the baseboard "
    "to the vendor.",
    action="isolate",
    unless=(no_gpu, no_switch_on_bus),
)
def switches(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Count the NVSwitches on the PCI bus of an eight-GPU board.

    ## Why it matters
    Each NVSwitch carries a share of every GPU's NVLinks. If one is missing, the fabric manager stops, or continues with
    less bandwidth between all GPUs (NVSWITCH_FAILURE_MODE), and no GPU shows why.

    ## Verdicts
    Fewer switches than on the recognised board fail. The check does not apply to Blackwell boards, whose switches are
    behind ConnectX bridges, to NVL72 racks, which have switch trays, or to PCIe cards. It does not apply in a virtual
    machine without switches, because the hypervisor may keep them, or in a container, which may run in such a machine.
    A virtual machine with only some of the GPUs and switches is unknown.

    ## False alarms
    A board with the same GPUs but fewer switches that is missing from the catalogue: add a waiver with a reason.
    """
    part = site.part
    assert part is not None, "no_switch_on_bus skips it"
    present, wanted = _switches(node), part.switches_on_bus
    about = f"{present} of {wanted} NVSwitches of {part.name} are on the PCI bus"
    if present >= wanted:
        yield passed(about, found=present, evidence=[PCI_BUS])
    elif node.in_virtual_machine and len(node.gpus_on_bus) < (part.gpus or 0):
        yield unknown(f"{about} of a virtual machine with {len(node.gpus_on_bus)} GPUs", found=present, expected=wanted,
                      evidence=[PCI_BUS], fix="Count them on the hypervisor.")  # fmt: skip
    else:
        yield failed(about, found=present, expected=f"{wanted} ({part.source})", evidence=[PCI_BUS])

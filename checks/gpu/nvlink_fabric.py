"""Checks of the NVLink fabric and its services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import parsers
from preflight.checks.applicability import no_gpu, no_nvswitch
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

#: Consequence of a fabric manager that stopped after the GPUs joined the fabric.
_NEXT = (
    ", yet all GPUs joined the fabric: a GPU that is reset or a node that is rebooted will not rejoin it, and CUDA "
    "then ends with error 802"
)

FABRIC_GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
MANAGER, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
CHANNELS = "dir:/dev/nvidia-caps-imex-channels"


@check(
    "gpu.fabric-state",
    title="Every GPU has joined the NVLink fabric and reports it healthy",
    fault="A GPU has not joined the NVLink fabric, or reports it unhealthy",
    impact="blocks-job",
    source="https://docs.nvidia.com/deploy/nvml-api/ (nvmlGpuFabricInfoV_t, NVML_GPU_FABRIC_HEALTH_MASK_*)",
    fix="Read `journalctl -u nvidia-fabricmanager`; restart the fabric manager (on GB200, check NMX-C), then reset "
    "the GPU.",
    action="reset",
    answers=("PA-02",),
    unless=(no_gpu,),
)
def fabric_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's NVLink fabric state with "Completed" and "Success".

    The health mask must show no fault.

    ## Why it matters
    Until a GPU has joined the fabric, every CUDA program on it ends with error 802, "system not yet initialized"; a GPU
    that failed to join has no NVLink to its peers. Degraded bandwidth or an unhealthy route slows every transfer over
    NVLink. GPUs of one node in different domains or cliques cannot reach each other over NVLink at all.

    ## Verdicts
    PCIe cards and parts before Hopper have no such state; the driver reports N/A, and the check does not apply. On an
    NVSwitch board of Hopper or newer, N/A is unknown, not a pass. Any other state fails, or is unknown if this version
    does not know it.

    ## False alarms
    "In Progress" just after boot, for a minute or two.
    """
    part = site.part
    expected = part is not None and part.nvswitch and part.gpu.reports_fabric_state
    yield from judge_fabric_state(node.gpu_health, expected)


def judge_fabric_state(health: Health, expected: bool = False) -> Iterator[Finding]:
    """Judge the NVLink fabric of each GPU.

    ``expected`` is true if the GPUs must report a state; N/A is then unknown.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        fabric = gpu.fabric
        if fabric is None:
            return None
        if fabric.state.startswith("unknown"):
            return unknown(f"the fabric's state is {fabric.state}", found=fabric.state, expected="Completed")
        if fabric.state != "Completed":
            return failed(f"fabric state is {fabric.state}", found=fabric.state, expected="Completed")
        if fabric.status != "Success":
            return failed(f"fabric status is {fabric.status}", found=fabric.status, expected="Success")
        if fabric.faults:
            faults = ", ".join(fabric.faults)
            return failed(f"the fabric's health mask reports {faults}", found=faults, expected="no fault")
        return None

    def hidden(gpu: GpuHealth) -> str:
        return "N/A, although this board has NVSwitches" if expected and gpu.not_reported("fabric") else ""

    good = "has joined the fabric without a fault"
    yield from each_gpu(health, judge, what="fabric state", good=good, needs=("fabric",), hidden=hidden)
    yield from _apart(health.gpus, health.evidence)


def _apart(gpus: Sequence[GpuHealth], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report GPUs of one node that joined different NVLink domains or cliques."""
    joined = [
        (gpu, (gpu.fabric.cluster_uuid if gpu.fabric.multi_node else "", gpu.fabric.clique))
        for gpu in gpus
        if gpu.fabric is not None and gpu.fabric.state == "Completed" and gpu.fabric.clique is not None
    ]
    domains = Counter(domain for _, domain in joined)
    if len(domains) < 2:
        return
    usual = domains.most_common(1)[0][0]
    odd = [gpu for gpu, domain in joined if domain != usual]
    yield failed(
        f"{', '.join(gpu.label for gpu in odd)} {verb(len(odd), 'is')} in a different NVLink domain or clique from the "
        "node's other GPUs",
        subject=odd[0].address if len(odd) == 1 else "",
        found=", ".join(
            f"{number} in {uuid or 'this node alone'}, clique {clique}" for (uuid, clique), number in domains.items()
        ),
        expected="one domain and clique for all GPUs of a node",
        evidence=evidence,
        fix="Check the partitions of the NVLink domain (NMX-C, `fmpm -l`), then reset the GPU.",
    )


def no_managed_switch(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without NVSwitches on its PCI bus or behind its NICs."""
    if site.part is not None and site.part.switches_behind_nics:
        return None
    return no_nvswitch(node, site)


@check(
    "nvlink.fabric-manager",
    title="The fabric manager runs and matches the driver's version",
    fault="The fabric manager does not run, or differs from the driver's version",
    impact="blocks-job",
    explains=(("gpu.fabric-state", "node"), *IN_LOGS),
    source=f"{FABRIC_GUIDE} (the versions must match)",
    fix="Install nvidia-fabricmanager of exactly the driver's version. From H100 on, start it as in NVIDIA's "
    "guide: end "
    "all CUDA programs, `nvidia-smi -r`, `systemctl enable --now nvidia-fabricmanager`.",
    action="fix-site",
    answers=("PA-02",),
    unless=(no_gpu, no_managed_switch),
)
def fabric_manager(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for a running fabric manager that matches the driver's version.

    ## Why it matters
    Without the fabric manager, the NVSwitches route no traffic: CUDA ends with error 802, or GPUs communicate only over
    PCIe. A fabric manager that does not match the driver's version refuses to start after the next reboot.

    ## Verdicts
    The check applies to nodes with NVSwitches on the PCI bus, and to HGX B200 and B300, whose NVSwitches are not
    visible there. PCIe cards need no fabric manager; on GB200, it runs on the switch trays. A stopped fabric manager
    fails, and so does a version other than the driver's. On HGX A100 and before, no CUDA program starts while it is
    stopped (NVIDIA's guide, ABORT_CUDA_JOBS_ON_FM_EXIT). From H100 on, the guide calls that setting ineffective, and
    the start of CUDA depends on each GPU's registration in the fabric instead of the service. So if all GPUs report
    that they have joined, a stopped service only warns. That new programs start is an inference from the guide. gcm,
    AWS and gpud fail the node; to do the same, set `services = ["nvidia-fabricmanager"]` in `[class.X.host]`. Until the
    service runs again, a GPU that is reset or a node that is rebooted cannot rejoin the fabric. In a container,
    services are not visible, and the result is unknown.

    ## False alarms
    A virtual machine whose hypervisor runs the fabric manager: the fabric state is Completed without a local service,
    which only warns.
    """
    service = node.services.get(MANAGER)
    if service is None:
        yield unknown(f"systemctl did not report {MANAGER}", evidence=[parsers.host.services.SERVICES])
        return
    if service.active != "active":
        state = service.active if service.known else "not installed"
        report = warned if _joined(node) else failed
        yield report(
            f"the fabric manager {parsers.host.services.state_in_words(state)}" + (_NEXT if report is warned else ""),
            found=state, expected="active", evidence=[parsers.host.services.SERVICES],
        )  # fmt: skip
        return
    yield passed("the fabric manager is active", evidence=[parsers.host.services.SERVICES])
    version, driver = (
        node.parsed(parsers.host.services.FABRIC_MANAGER, parsers.host.services.fabric_manager_version),
        node.gpu_health.driver,
    )
    evidence = [parsers.host.services.FABRIC_MANAGER, *node.gpu_health.evidence]
    if version == driver:
        yield passed(f"fabric manager and driver both have version {version}", evidence=evidence)
    else:
        yield failed(
            f"fabric manager {version} does not match driver {driver}",
            found=version,
            expected=driver,
            evidence=evidence,
        )


def _joined(node: NodeFacts) -> bool:
    try:
        gpus = node.gpu_health.gpus
    except EvidenceError:
        return False
    return bool(gpus) and all(gpu.fabric is not None and gpu.fabric.state == "Completed" for gpu in gpus)


def fabric_of_one_node(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node whose NVLink fabric does not extend to other nodes."""
    health = node.gpu_health
    if _fabric_unread(health) or any(gpu.fabric is not None and gpu.fabric.multi_node for gpu in health.gpus):
        return None
    return skipped("any NVLink fabric is limited to this node", evidence=health.evidence)


def _fabric_unread(health: Health) -> bool:
    """Return whether the fabric state of any GPU could not be read."""
    return not health.gpus or any(gpu.fabric is None and not gpu.not_reported("fabric") for gpu in health.gpus)


@check(
    "nvlink.imex",
    title="IMEX runs on nodes whose NVLink spans nodes",
    fault="IMEX does not run, although NVLink spans nodes",
    impact="blocks-job",
    source="https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/",
    fix="Read `journalctl -u nvidia-imex`; install the same nodes_config.cfg on all nodes and run `systemctl enable "
    "--now nvidia-imex`; check with `nvidia-imex-ctl -N`.",
    action="fix-site",
    reads=("cmd:systemctl show *", CHANNELS),
    unless=(no_gpu, fabric_of_one_node),
)
def imex(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for the IMEX service and its channel on multi-node NVLink fabrics.

    ## Why it matters
    Without IMEX a GPU cannot import the memory of another node: NCCL uses the network instead of NVLink, at a fraction
    of the rate, or fails if MNNVL is forced.

    ## Verdicts
    A fabric spans nodes if its cluster UUID is not zero; otherwise the check does not apply. A service that systemd
    reports as failed fails; one that is only stopped or not installed, or a missing channel0, warns.

    ## False alarms
    Kubernetes ComputeDomains start the service and channel for each job, so an idle node has neither. Mask the host's
    unit there: otherwise it may fail because nodes_config.cfg is missing, which is harmless.
    """
    health = node.gpu_health
    if _fabric_unread(health):
        yield unknown("it is not known whether the NVLink fabric spans nodes", evidence=health.evidence)
        return
    service = node.services.get(IMEX)
    state = "not installed" if service is None or not service.known else service.active
    channel = node.evidence.exists(CHANNELS) and "channel0" in node.evidence.listing(CHANNELS)
    if state == "active" and channel:
        yield passed("IMEX is active, and channel0 exists", evidence=[parsers.host.services.SERVICES, CHANNELS])
        return
    but = "but" if channel or state == "active" else "and"
    here = "exists" if channel else "is missing"
    summary = f"IMEX {parsers.host.services.state_in_words(state)}, {but} channel0 {here}"
    yield (failed if state == "failed" else warned)(
        summary, found=summary, expected="active, with channel0", impact="slows-job",
        evidence=[parsers.host.services.SERVICES, CHANNELS],
    )  # fmt: skip

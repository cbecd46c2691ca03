"""Checks of NVLink, the NVLink fabric and its services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import parsers
from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import PCI_BUS, no_gpu, no_nvswitch
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.expectations.catalogue import MESH, gpu_model
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

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
    "nvlink.links",
    title="Every GPU has all its NVLinks, at full rate",
    fault="A GPU lacks NVLinks, or has slow ones",
    impact="slows-job",
    explains=(("topology.nvlink", "part"), ("topology.nvlink", "node", "*", ""), ("job.errors", "log")),
    source="part catalogue (NVIDIA whitepapers and datasheets); OCI's health checks require the same rates",
    fix="Check gpu.fabric-state and `nvidia-smi nvlink -s`, then reset all GPUs; a link that stays down is a "
    "hardware fault.",
    action="reset",
    separate=True,
    answers=("GS-1", "PA-02"),
    unless=(no_gpu,),
)
def links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's active NVLinks and their rate with the catalogue.

    For unknown parts, the other GPUs of the node are the reference.

    ## Why it matters
    Traffic between GPUs is spread over all links: one link of eighteen that is down costs 6 % of every tensor-parallel
    exchange on all GPUs of the node, and a GPU without any falls back to PCIe.

    ## Verdicts
    Catalogue rates are nominal (A100 and Hopper 25 GB/s, Blackwell 50 GB/s for each link and direction); healthy links
    show up to 6 % more. An unknown part is compared with the best GPU of the node. Cards without NVLink or with
    optional bridges are compared only with each other; a card without a bridge warns if other cards have one. A virtual
    machine with some GPUs of a mesh (V100), each with a different number of links, is unknown.

    ## False alarms
    Parts sold with fewer links (A800, H800) have their own catalogue entry; a part without an entry is compared only
    with the same part.
    """
    health = node.gpu_health
    reporting = [gpu for gpu in health.gpus if gpu.links is not None]
    wanted, rate, source = _measure(site, reporting)
    if reporting and not wanted:
        yield _without(site, health.evidence)
        return

    bridges = (site.part is None or not site.part.gpu.sxm) and _bridged(node)
    board = _nvlinks_of_model(node) if site.part is None and len(reporting) < MESH else 0
    domain = (site.part.nvlink_domain or 0) if site.part is not None else 0
    yield from judge_nvlinks(health, LinkMeasure(wanted, rate, source, board, bridges), domain)


@dataclass(frozen=True)
class LinkMeasure:
    """Reference values for the NVLinks of a GPU."""

    wanted: int  # number of links
    rate: float  # GB/s of each link, in each direction
    source: str
    board: int = 0  # number of links of the model, if only some GPUs of a mesh are here
    bridges: bool = False  # bridges join cards in pairs: one without a bridge may be intended


def judge_nvlinks(health: Health, measure: LinkMeasure, domain: int = 0) -> Iterator[Finding]:
    """Judge the NVLinks of each GPU.

    ``domain`` is the number of GPUs in the NVLink domain, if known.
    """
    wanted, source = measure.wanted, measure.source

    def judge(gpu: GpuHealth) -> Finding | None:
        up, speed = sum(gpu.links or ()), gpu.link_gbytes_s
        if up < wanted and measure.board > wanted:
            return unknown(
                f"{up} of the model's {measure.board} NVLinks are up, and no GPU here has more than {wanted}: "
                "the rest may be connected to GPUs of the board outside this machine",
                found=up,
                expected=f"{measure.board} on a complete board",
                fix="`nvidia-smi nvlink -s` on an identical node",
            )
        if not up and measure.bridges:
            return warned(
                "no NVLink bridge connects it to another card, although other cards of this node have bridges",
                found=0, expected=f"{wanted} ({source}), or no bridge by design",
                fix="Check whether it was sold with a bridge; if so, drain the node and reseat the bridge.",
            )  # fmt: skip
        if up < wanted:
            down = [str(number) for number, active in enumerate(gpu.links or ()) if not active]
            which = f", down: {', '.join(down)}" if health.pasted and up and len(down) == wanted - up else ""
            return failed(f"{up} of {wanted} NVLinks are up{which}", found=up, expected=f"{wanted} ({source})")
        if speed is None:
            return unknown(f"the rate of its {up} NVLinks is not known: {gpu.why('link_gbytes_s')}", found=up)
        if speed < measure.rate:
            return failed(
                f"NVLinks run at {speed:g} GB/s", found=f"{speed:g} GB/s",
                expected=f"at least {measure.rate:g} GB/s ({source})",
            )  # fmt: skip
        return None

    slowest = min((gpu.link_gbytes_s for gpu in health.gpus if gpu.link_gbytes_s is not None), default=0.0)
    good = f"{wanted} NVLinks up"
    if slowest:
        good += f", {slowest:g} GB/s each or more: {wanted * slowest:.0f} GB/s in each direction"
    if domain:
        good += f"; its NVLink domain has {domain} GPUs"
    yield from each_gpu(health, judge, what="NVLinks", good=good, needs=("links",))


#: Relative tolerance between nominal rates and the rates of healthy links.
RATE_SPREAD = 0.06

_FABRIC = (
    "`nvidia-smi -q` shows the fabric's state; `systemctl status nvidia-fabricmanager`; `dmesg -T | grep -i -e xid -e "
    "nvswitch` shows its errors."
)
_COMPARE = "Compare with an identical GPU: `nvidia-smi nvlink -s` of all GPUs, or `preflight check` on the node."


def judge_nvlinks_of_peers(health: Health) -> Iterator[Finding]:
    """Judge the NVLinks of unknown parts by comparing GPUs of the same name.

    Links that are inactive on every GPU are fused off or unused by design. Without a peer to confirm that, inactive
    links are unknown, and so are GPUs without an active link.
    """
    # import-at-use: a check of a node does not need it
    from preflight.expectations.roofline.machine import gpu_named

    gpus = [gpu for gpu in health.gpus if gpu.links]
    most = max((sum(gpu.links or ()) for gpu in gpus), default=0)
    models = {gpu.label: model for gpu in health.gpus if gpu.links is not None and (model := gpu_named(gpu.name or ""))}
    if not most and models:
        first, model = next(iter(models.items()))
        yield warned(
            f"{', '.join(list(models)[:8])}: no NVLink is active, although {model.name} is on an NVLink board: a "
            "fault, unless the fabric manager has not finished, or a virtual machine was given one GPU",
            subject=first, found=0, expected=f"{model.nvlinks} active", fix=_FABRIC,
            evidence=health.evidence,
        )  # fmt: skip
        return
    if not most and health.gpus and all("PCIE" in (gpu.name or "").upper() for gpu in health.gpus):
        yield passed("no NVLink is active: a PCIe card has links only with an optional bridge", found=0,
                     evidence=health.evidence)  # fmt: skip
        return
    if not most:
        shown = f"{len(gpus[0].links or ())} NVLinks" if gpus else "an NVLink"
        count = f"none of {shown} is active (GPUs: {len(gpus)})" if gpus else "no GPU shows an NVLink"
        yield unknown(
            f"{count}, and it is not known whether any should be", found=0, fix=_COMPARE, evidence=health.evidence
        )
        return
    best = max(gpu.link_gbytes_s for gpu in gpus if gpu.link_gbytes_s is not None)
    full = any(gpu.links and all(gpu.links) for gpu in gpus)
    same = len(gpus) > 1 and len({gpu.links for gpu in gpus}) == 1
    alike = same or full or len({sum(gpu.links or ()) for gpu in gpus}) > 1
    if len(health.gpus) > 1 and len({gpu.name for gpu in health.gpus if gpu.links is not None}) == 1 and alike:
        bridges = any(gpu.links == () for gpu in health.gpus)
        yield from judge_nvlinks(
            health, LinkMeasure(most, round(best * (1 - RATE_SPREAD), 3), "its peers", bridges=bridges)
        )
        return
    names = {gpu.name for gpu in gpus}
    for gpu in health.gpus:
        links = gpu.links or ()
        if not links:
            if gpu.links is None or gpu.name in names:
                why = gpu.why("links") if gpu.links is None else "no link, although an identical GPU has some"
                yield unknown(f"{gpu.label}: {why}", subject=gpu.label, fix=_COMPARE, evidence=health.evidence)
            continue
        down = ", ".join(str(number) for number, up in enumerate(links) if not up)
        if not down:
            yield passed(
                f"{gpu.label}: all {len(links)} NVLinks are active", found=len(links), evidence=health.evidence
            )
            continue
        yield unknown(
            f"{gpu.label}: {len(links) - sum(links)} of {len(links)} NVLinks inactive ({down}), and no "
            f"identical GPU shows whether this is by design",
            subject=gpu.label, found=f"inactive: {down}", expected=f"{len(links)} active, or fewer by design",
            fix=_COMPARE, evidence=health.evidence,
        )  # fmt: skip


def _bridged(node: NodeFacts) -> bool:
    """Return whether bridges join cards in pairs; False if topology is unknown."""
    try:
        return node.topology.bridged
    except EvidenceError:
        return False


def _nvlinks_of_model(node: NodeFacts) -> int:
    """Return the number of NVLinks of the node's GPU model; 0 if unknown."""
    models = {gpu_model(device) for device in node.gpus_on_bus}
    model = models.pop() if len(models) == 1 else None
    return model.nvlinks if model is not None else 0


def _measure(site: Site, gpus: Sequence[GpuHealth]) -> tuple[int, float, str]:
    """Return the expected number of links, their rate, and the source of both."""
    if site.part is not None and site.part.gpu.sxm:
        return site.part.gpu.nvlinks, site.part.gpu.link_gbytes_s, site.part.gpu.source
    most = max((sum(gpu.links or ()) for gpu in gpus), default=0)
    best = max((gpu.link_gbytes_s for gpu in gpus if gpu.link_gbytes_s is not None), default=0.0)
    return most, best, "the best GPU of this node"


def _without(site: Site, evidence: tuple[str, ...]) -> Finding:
    if site.part is not None:
        return skipped(f"{site.part.name}: no NVLink, or no optional bridges", evidence=[PCI_BUS])
    return unknown("no GPU has an NVLink, and it is not known whether this machine should have any", evidence=evidence)


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
            return failed(f"fabric health: {faults}", found=faults, expected="no fault")
        return None

    def hidden(gpu: GpuHealth) -> str:
        return "N/A, although this board has NVSwitches" if expected and gpu.not_reported("fabric") else ""

    good = "joined the fabric, healthy"
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
        f"{', '.join(gpu.label for gpu in odd)}: in a different NVLink domain or clique from the node's other GPUs",
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
    explains=(("gpu.fabric-state", "node"), ("job.errors", "log")),
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
    Without it, the NVSwitches route no traffic: CUDA ends with error 802, or GPUs communicate only over PCIe. A fabric
    manager that does not match the driver's version refuses to start after the next reboot.

    ## Verdicts
    The check applies to nodes with NVSwitches on the PCI bus, and to HGX B200 and B300, whose NVSwitches are not
    visible there. PCIe cards need no fabric manager; on GB200, it runs on the switch trays. A stopped fabric manager
    fails, and so does a version other than the driver's. On HGX A100 and before, no CUDA program starts while it is
    stopped (NVIDIA's guide, ABORT_CUDA_JOBS_ON_FM_EXIT). From H100 on, the guide calls that setting ineffective, and
    the start of CUDA depends on each GPU's registration in the fabric instead of the service: if all GPUs report that
    they have joined, a stopped service only warns. That new programs start is an inference from the guide. gcm, AWS and
    gpud fail the node; to do the same, set `services = ["nvidia-fabricmanager"]` in `[class.X.host]`. A GPU that is
    reset or a node that is rebooted will not rejoin the fabric. In a container, services are not visible, and the
    result is unknown.

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
            f"the fabric manager is {state}" + (_NEXT if report is warned else ""),
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
    fix="Install the same nodes_config.cfg on all nodes and run `systemctl enable --now nvidia-imex`; check "
    "with `nvidia-imex-ctl -N`.",
    action="fix-site",
    reads=("cmd:systemctl show *", CHANNELS),
    unless=(no_gpu, fabric_of_one_node),
)
def imex(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for the IMEX service and its channel on multi-node NVLink fabrics.

    ## Why it matters
    Without IMEX a GPU cannot import the memory of another node: NCCL uses the network instead of NVLink, at a tenth of
    the rate, or fails if MNNVL is forced.

    ## Verdicts
    A fabric spans nodes if its cluster UUID is not zero; otherwise the check does not apply. A stopped
    service or a missing channel0 warns.

    ## False alarms
    Kubernetes ComputeDomains start the service and channel for each job, so an idle node has neither.
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
    else:
        summary = f"IMEX is {state}, and channel0 {'exists' if channel else 'is missing'}"
        yield warned(
            summary,
            found=summary,
            expected="active, with channel0",
            evidence=[parsers.host.services.SERVICES, CHANNELS],
        )

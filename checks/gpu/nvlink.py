"""Check of the NVLinks of GPUs, whether or not their part is in the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import PCI_BUS, no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.expectations.catalogue import MESH, gpu_model
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health


@check(
    "nvlink.links",
    title="Every GPU has all its NVLinks, at full rate",
    fault="A GPU lacks NVLinks, or has slow ones",
    impact="slows-job",
    explains=(("topology.nvlink", "part"), ("topology.nvlink", "node", "*", ""), *IN_LOGS),
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
    Traffic between GPUs is spread over all links. If one link of eighteen is down, every tensor-parallel exchange on
    the node takes 6% longer, and a GPU without any link falls back to PCIe.

    ## Verdicts
    Catalogue rates are nominal (A100 and Hopper 25 GB/s, Blackwell 50 GB/s for each link and direction); healthy links
    show up to 6% more. An unknown part is compared with the best GPU of the node. Cards without NVLink or with
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
                "the other links may lead to GPUs of the board outside this machine",
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
    good = f"has {wanted} NVLinks up"
    if slowest:
        good += f", {slowest:g} GB/s or more each, {wanted * slowest:.0f} GB/s in each direction in total"
    if domain:
        good += f"; the NVLink domain has {domain} GPUs"
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
        bridges = any(gpu.links == () for gpu in health.gpus) and not models
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
        return skipped(f"{site.part.name} has no NVLink, or no optional NVLink bridges", evidence=[PCI_BUS])
    return unknown("no GPU has an NVLink, and it is not known whether this machine should have any", evidence=evidence)

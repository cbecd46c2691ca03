"""Checks of errors on GPU links (NVLink and PCIe), in total and within a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import kernel_log
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia import link_errors
from preflight.facts.nvidia.query import NVML
from preflight.model import (
    Finding,
    check,
    clause,
    counted,
    failed,
    none_of,
    passed,
    skipped,
    some_of,
    unknown,
    verb,
    warned,
)
from preflight.parsers.host.kernel_log import parse_uptime
from preflight.parsers.nvidia.nvlink_errors import DAMAGED, FAILED, RECOVERY

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health
    from preflight.parsers.nvidia.nvlink_errors import Counts

#: Tolerated errors and recoveries on all links of one GPU since driver load: a judgement call between Imbue's 5 and
#: DCGM's failure limit of a hundred a second. Recoveries weigh more.
FEW, FEW_RECOVERIES = 100, 5

_LIMITS = "Imbue (5 in total), AWS (any), DCGM (100 CRC errors a second); the limits here are a judgement between them"
_DCGM = "DCGM DcgmHealthWatch (one bit in 10^12: 16 a minute at generation 4 x16, 31 at 5, 62 at 6)"


@check(
    "nvlink.errors",
    title="NVLinks have had few errors",
    fault="An NVLink has had many errors",
    impact="drifts",
    explains=(("trend.gpu-links", "part"),),
    source=f"nvidia-smi nvlink -e, or NVML's fields of each link; limits: {_LIMITS}",
    fix="`preflight check --window 60` under load shows whether the count grows. If so, reset all GPUs of the "
    "node; if errors return, replace the GPU or its board.",
    action="reset",
    separate=True,
    gating=False,
    unless=(no_gpu,),
)
def nvlink_errors(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the NVLink errors of each GPU since driver load with a low limit.

    ## Why it matters
    Each error costs a retransmission: a link with thousands of errors slows every exchange between GPUs, and may fail.

    ## Verdicts
    More than 100 CRC, replay and damaged-packet errors of a GPU warn, and so do more than 5 recoveries or any failed
    recovery. A handful over months is normal and passes. The check never fails, because a total does not show when it
    grew; counters.gpu-links fails on growth. Errors corrected by forward error correction (NVLink 5) are not counted.

    ## False alarms
    Errors from before a GPU was reseated, on a node that was not rebooted since.
    """
    evidence = [link_errors.source(node.evidence)]
    try:
        counts = link_errors.totals(node.evidence)
    except EvidenceError as error:
        yield unknown(f"the NVLink errors could not be read: {error}", evidence=[error.key],
                      fix="Run `nvidia-smi nvlink -e` on the node.")  # fmt: skip
        return
    yield from judge_nvlink_errors(counts, _names(node), evidence)


def judge_nvlink_errors(
    counts: Counts, names: Mapping[str, tuple[str, str]], evidence: Sequence[str]
) -> Iterator[Finding]:
    """Judge the NVLink errors of each GPU.

    ``names`` maps each GPU's UUID to its name in messages and its PCI address.
    """
    if not any(counts.values()):
        yield skipped("no GPU counts NVLink errors", evidence=evidence)
        return
    fine, most = 0, 0
    for uuid, links in counts.items():
        total: Counter[str] = Counter()
        for kinds in links.values():
            total.update(kinds)
        recoveries, lost = total[RECOVERY], total[FAILED]
        others = sum(total.values()) - recoveries - lost
        if others <= FEW and recoveries <= FEW_RECOVERIES and not lost:
            fine, most = fine + bool(links), max(most, others + recoveries)
            continue
        label, address = names.get(uuid, (uuid, ""))
        of_link = {
            link: sum(number for kind, number in kinds.items() if kind != FAILED) for link, kinds in links.items()
        }
        worst = max(of_link, key=of_link.__getitem__)
        yield warned(
            f"{label}: {_listed(total)} on its NVLinks, {of_link[worst]} of them on link {worst}",
            subject=address, found=_listed(total),
            expected=f"at most {FEW} errors and {FEW_RECOVERIES} recoveries since the driver was loaded",
            evidence=evidence,
        )  # fmt: skip
    if fine:
        yield passed(f"{some_of(fine, len(counts), 'GPU')} {verb(fine, 'has')} had few NVLink errors since the driver "
                     "was loaded", found=f"at most {most}", evidence=evidence)  # fmt: skip


@check(
    "pcie.replay",
    title="The PCIe links of GPUs have few replays",
    fault="A GPU's PCIe link has many replays",
    impact="drifts",
    source=f"{_DCGM}; nvmlDeviceGetPcieReplayCounter",
    fix="`preflight check --window 60` shows whether the count grows; then reseat the GPU or its riser at the "
    "next drain.",
    action="isolate",
    separate=True,
    gating=False,
    unless=(no_gpu,),
)
def pcie_replay(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the PCIe replays of each GPU with those of a healthy link.

    ## Why it matters
    A damaged packet is retransmitted. The data stays correct, but thousands of replays a minute slow the GPU's traffic
    to host and NIC, and such a link may lose lanes next.

    ## Verdicts
    The specification allows one wrong bit in 10^12: 31 replays a minute at generation 5 with 16 lanes. The total warns
    only if it exceeds that rate over the entire time since boot; a lower total passes. With --window,
    counters.gpu-links judges the growth.

    ## False alarms
    A burst of replays while the GPU was reset or the machine booted, a few minutes ago.
    """
    try:
        minutes = node.parsed(kernel_log.UPTIME, _minutes)
    except EvidenceError:
        minutes = None

    yield from judge_replays(node.gpu_health, minutes)


def judge_replays(health: Health, minutes: float | None) -> Iterator[Finding]:
    """Judge the PCIe replays of each GPU since its reset.

    ``minutes`` is the time since boot; None if unknown.
    """

    def compare(gpu: GpuHealth) -> Finding | None:
        usual = link_errors.usual_replays_per_min(gpu.pcie_generation_max, gpu.pcie_width_max)
        replays = gpu.pcie_replays
        if usual is None:
            return None
        if minutes is None:
            if not health.pasted or (replays or 0) <= usual * 10:
                return None
            message = f"{replays} PCIe replays since its reset, at an unknown time"
            return unknown(message, found=replays, expected=f"at most {usual} a minute")
        limit = max(usual * minutes, usual * 10)
        if (replays or 0) > limit:
            return warned(f"{replays} PCIe replays since its reset", found=replays,
                          expected=f"at most {limit:.0f} in the {minutes:.0f} minutes since boot")  # fmt: skip
        return None

    most = max((gpu.pcie_replays or 0 for gpu in health.gpus if compare(gpu) is None), default=0)
    good = f"has had at most {most} PCIe replays since the last reset" + ("" if minutes else ", at an unknown time")
    yield from each_gpu(health, compare, what="PCIe replays", good=good, needs=("pcie_replays",))


@check(
    "counters.gpu-links",
    title="No NVLink or PCIe link of a GPU gains errors",
    fault="An NVLink or PCIe link of a GPU gains errors",
    impact="slows-job",
    source=f"nvidia-smi nvlink -e (or NVML), nvmlDeviceGetPcieReplayCounter, read twice; {_DCGM}",
    fix="Check both ends (`nvidia-smi nvlink -s`, `-e`); drain the node and reset all its GPUs. If errors "
    "return, reseat or replace the GPU.",
    action="reset",
    separate=True,
    window=True,
    unless=(no_gpu,),
)
def gpu_links(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NVLink errors and PCIe replays at the start and end of a window.

    ## Why it matters
    Errors that grow now slow the current job: a link stops while it retrains, and every collective waits for it.

    ## Verdicts
    NVLink: recoveries and failed recoveries fail; CRC errors, replays and damaged packets warn. PCIe: replays warn if
    they are more frequent than one wrong bit in 10^12 explains. An idle link shows no errors: run the check under load.

    ## False alarms
    A GPU that was reset within the window.
    """
    yield from _nvlink_growth(node)
    yield from _replay_growth(node)


def _nvlink_growth(node: NodeFacts) -> Iterator[Finding]:
    evidence = [link_errors.source(node.evidence)]
    try:
        gained, links, seconds = link_errors.growth(node.evidence)
    except EvidenceError as error:
        yield _unread("NVLink errors", error, node)
        return
    names = _names(node)
    for link in gained:
        label, address = names.get(link.uuid, (link.uuid, ""))
        report = failed if {RECOVERY, FAILED} & set(link.grown) else warned
        yield report(
            f"{label}: link {link.link} gained {_listed(link.grown)} in {seconds:.0f} s", subject=address,
            found=_listed(link.grown), expected="no growth", evidence=evidence,
        )  # fmt: skip
    if not links:
        yield skipped("no GPU counts NVLink errors", evidence=evidence)
    elif not gained:
        yield passed(f"{none_of(links, 'NVLink')} gained an error in {seconds:.0f} s", found="no growth",
                     evidence=evidence)  # fmt: skip


def _replay_growth(node: NodeFacts) -> Iterator[Finding]:
    try:
        grown, seconds = link_errors.replay_growth(node.evidence)
    except EvidenceError as error:
        yield _unread("PCIe replays", error, node)
        return
    gpus = {gpu.uuid: gpu for gpu in node.gpu_health.gpus}
    few = []
    for uuid, number in grown.items():
        gpu = gpus.get(uuid)
        usual = link_errors.usual_replays_per_min(gpu.pcie_generation_max, gpu.pcie_width_max) if gpu else None
        about = f"{gpu.label if gpu else uuid}: {number} PCIe replays in {seconds:.0f} s"
        subject = gpu.address if gpu else ""
        if number <= (usual or 0) * max(1.0, seconds / 60):
            few.append(number)
        elif usual is None:
            yield unknown(f"{about}; how many are normal for its PCIe link is unknown", subject=subject, found=number,
                          evidence=[NVML])  # fmt: skip
        else:
            yield warned(about, subject=subject, found=number, expected=f"at most {usual} a minute", evidence=[NVML])
    if few:
        yield passed(f"{clause(len(few), 'GPU', 'had')} few or no PCIe replays in {seconds:.0f} s",
                     found=f"at most {max(few)}" if max(few) else "none", evidence=[NVML])  # fmt: skip


def _unread(what: str, error: EvidenceError, node: NodeFacts) -> Finding:
    if error.key not in node.evidence:  # collected by an older preflight
        return skipped(f"{what} were not collected from this node", evidence=[error.key])
    late = node.evidence.record(error.key).status == "not-run"
    return unknown(f"the growth of {what} is unknown: {error}", evidence=[error.key],
                   fix="" if late else "Run `preflight check --window 60` on the node.")  # fmt: skip


def _names(node: NodeFacts) -> dict[str, tuple[str, str]]:
    """Map each GPU's UUID to its name and PCI address; empty if unknown."""
    try:
        return {gpu.uuid: (f"GPU{gpu.index}", gpu.address) for gpu in node.gpu_health.gpus}
    except EvidenceError:
        return {}


def _listed(counts: Mapping[str, int]) -> str:
    nouns = {FAILED: ("failed recovery", "failed recoveries"), DAMAGED: (DAMAGED,)}
    return ", ".join(counted(number, *nouns.get(kind, (f"{kind} error",))) for kind, number in counts.items() if number)


def _minutes(text: str) -> float:
    return parse_uptime(text) / 60

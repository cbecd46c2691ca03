"""Checks of GPU models, memory sizes and firmware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from preflight.checks.applicability import PCI_BUS, no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.expectations import Site
from preflight.expectations.catalogue import GpuModel, gpu_model
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, clause, counted, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

NVML_API = "https://docs.nvidia.com/deploy/nvml-api/"

#: Minimum share of the nominal memory that the driver must show: ECC and reserved areas take up to 7%.
MEMORY_SHARE = 0.9


@check(
    "gpu.same-model",
    title="All GPUs of the node are the same model",
    fault="The node has GPUs of different models",
    impact="slows-job",
    explains=(("fleet.gpu-settings", "node", "*kinds of GPU*"),),
    source=f"{NVML_API} (nvmlDeviceGetName, nvmlDeviceGetMemoryInfo)",
    fix="Compare the part numbers (`nvidia-smi -q | grep -i part`) with the order; replace the one that differs.",
    answers=("GS-5",),
    unless=(no_gpu,),
)
def same_model(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the product names and memory sizes of the node's GPUs.

    ## Why it matters
    A job runs at the pace and within the memory of the smallest GPU.

    ## Verdicts
    Different models or sizes fail on an SXM baseboard, and warn on a node with PCIe cards.

    ## False alarms
    A workstation with a display card in addition to compute cards; it only warns there.
    """
    health = node.gpu_health
    kinds = Counter((gpu.name, gpu.memory_total_mib) for gpu in health.gpus)
    inventory = ", ".join(f"{count} x {name} with {size} MiB" for (name, size), count in kinds.most_common())
    if not kinds or any(name is None or size is None for name, size in kinds):
        yield unknown("name or memory size of a GPU is not known", found=inventory, evidence=health.evidence)
    elif len(kinds) == 1:
        ((name, size), number) = kinds.most_common(1)[0]
        yield passed(
            f"{clause(number, 'GPU', 'is')} {name} with {size} MiB",
            found=inventory,
            evidence=[*health.evidence, PCI_BUS],
        )
    else:
        boards = [part for device in node.gpus_on_bus if (part := gpu_model(device)) and part.sxm]
        report = failed if boards else warned
        yield report(
            f"the node has {len(kinds)} kinds of GPU", found=inventory, expected="one kind", evidence=health.evidence
        )


@check(
    "gpu.right-part",
    title="Every GPU has the memory and cores of its model",
    fault="A GPU has less memory or fewer cores than its model",
    impact="slows-job",
    explains=(("gpu.same-model", "node", "*", ""),),
    source="part catalogue: NVIDIA's whitepapers and datasheets; sizes by PCI id: pci.ids",
    fix="Run `nvidia-smi -q -i N`; compare VBIOS and part number with those of a good GPU, then contact the vendor.",
    answers=("GS-5",),
    unless=(no_gpu,),
)
def right_part(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's memory and CUDA cores with its catalogue entry.

    The PCI id selects the entry.

    ## Why it matters
    A GPU that lost a memory stack or some of its processors still works; the job runs out of memory on one rank, or
    waits for that rank in every step.

    ## Verdicts
    At least 90% of the nominal memory must be present: ECC and the driver take up to 7%. Only NVML reports cores. A
    model or size missing from the catalogue is unknown, not a pass.

    ## False alarms
    A vGPU, which shows the memory of its profile instead of the card's; skip the check there (`--skip gpu.right-part`).
    """
    models = {device.address: (device.device, gpu_model(device)) for device in node.gpus_on_bus}

    def judge(gpu: GpuHealth) -> Finding | None:
        device, model = models.get(gpu.address, ("", None))
        return _compared(gpu, device, model)

    good = "has the nominal memory and cores"
    yield from each_gpu(node.gpu_health, judge, what="memory size", good=good, needs=("memory_total_mib",))


def _compared(gpu: GpuHealth, device: str, model: GpuModel | None) -> Finding | None:
    size = model.memory_gib(device) if model else None
    if model is None or size is None:
        return unknown(
            f"the catalogue has no memory size for {gpu.name or 'this GPU'} (PCI id {device or '?'})",
            found=f"{gpu.memory_total_mib} MiB",
        )
    least, shown = MEMORY_SHARE * size * 1024, gpu.memory_total_mib or 0
    if shown < least:
        return failed(f"{shown} MiB of memory, expected at least {least:.0f} MiB", found=f"{shown} MiB",
                      expected=f"at least {least:.0f} MiB ({model.source})")  # fmt: skip
    if gpu.cuda_cores is not None and model.cuda_cores is not None and gpu.cuda_cores < model.cuda_cores:
        return failed(
            f"{gpu.cuda_cores} CUDA cores, expected {model.cuda_cores}", found=gpu.cuda_cores,
            expected=f"{model.cuda_cores} ({model.source})",
        )  # fmt: skip
    return None


@check(
    "gpu.firmware",
    title="All GPUs of the node have the same firmware, and GSP matches the driver",
    fault="The GPUs of the node differ in firmware, or GSP does not match the driver",
    impact="drifts",
    source=f"{NVML_API} (nvmlDeviceGetVbiosVersion, nvmlDeviceGetGspFirmwareVersion)",
    fix="Run `nvidia-smi --query-gpu=pci.bus_id,vbios_version --format=csv`; update the GPU that differs, then reboot.",
    action="fix-site",
    unless=(no_gpu,),
)
def firmware(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the GPUs' VBIOS and InfoROM, and the GSP firmware with the driver.

    ## Why it matters
    Identical boards with different firmware, as after a replacement, may behave differently.

    ## Verdicts
    Differences only warn, because the driver accepts them. Versions that `firmware.vbios` or `firmware.inforom` in the
    cluster file lists may be mixed. gpu.same-model reports nodes with different models. If GSP is not used, the driver
    reports N/A.

    ## False alarms
    During a firmware roll-out the GPUs of a node differ until the last one is updated: declare both versions.
    """
    health = node.gpu_health
    odd = False
    for name, called in (("vbios", "VBIOS"), ("inforom", "InfoROM")):
        versions = Counter((gpu.name, getattr(gpu, name)) for gpu in health.gpus if getattr(gpu, name) is not None)
        agreed = {version for _, version in versions} <= set(site.alternatives(f"firmware.{name}"))
        if len(versions) > len({model for model, _ in versions}) and not agreed:
            odd = True
            yield warned(
                f"the GPUs have {len(versions)} versions of {called}: {_holders(health, name, versions)}",
                found=", ".join(f"{count} x {version}" for (_, version), count in versions.most_common()),
                expected="one version", evidence=health.evidence,
            )  # fmt: skip
    for gpu in health.gpus:
        if gpu.gsp is not None and gpu.gsp != health.driver:
            odd = True
            yield warned(
                f"GPU{gpu.index}: GSP firmware {gpu.gsp} does not match driver {health.driver}",
                subject=gpu.address, found=gpu.gsp, expected=health.driver, evidence=health.evidence,
            )  # fmt: skip
    read = [gpu for gpu in health.gpus if gpu.vbios is not None]
    if len(read) < len(health.gpus) or not read:
        yield unknown(f"the VBIOS of {counted(len(health.gpus) - len(read), 'GPU')} is not reported",
                      evidence=health.evidence)  # fmt: skip
    elif not odd:
        versions_read = " and ".join(sorted({str(gpu.vbios) for gpu in read}))
        yield passed(f"{clause(len(read), 'GPU', 'has')} VBIOS {versions_read}", evidence=health.evidence)


def _holders(health: Health, name: str, versions: Mapping[tuple[str | None, str], int]) -> str:
    """Describe which GPUs of each model have a different version from most.

    If no version has a majority, all GPUs of the model are listed.
    """
    listed = []
    for model in dict.fromkeys(model for model, _ in versions):
        counts = {version: number for (mine, version), number in versions.items() if mine == model}
        usual = max(counts, key=counts.__getitem__)
        most = f"; most have {usual}" if counts[usual] * 2 > sum(counts.values()) else ""
        named = [
            f"{version} on {', '.join(gpu.label for gpu in health.gpus if getattr(gpu, name) == version)}"
            for version in counts
            if not (most and version == usual)
        ]
        if len(counts) > 1:
            listed.append("; ".join(named) + most)
    return "; ".join(listed)

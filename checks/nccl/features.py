"""Checks of NCCL features: NVLink between nodes, SHARP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight import parsers
from preflight.checks.applicability import RDMA_CLASS, no_gpu
from preflight.checks.nccl.settings_scope import as_set, place, unread
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS, Setting, strtoll
from preflight.facts.node import NodeFacts
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, counted, failed, passed, unknown, warned

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

# --- NVLink between nodes --------------------------------------------------------------------------


@check(
    "nccl.mnnvl",
    title="NCCL_MNNVL_ENABLE does not require missing NVLink between nodes",
    fault="NCCL_MNNVL_ENABLE requires NVLink between nodes, and there is none",
    impact="blocks-job",
    source=f"{GUIDE}#nccl-mnnvl-enable (1: initialisation fails without it; 2, the default: automatic)",
    fix="Unset NCCL_MNNVL_ENABLE, because NCCL detects the fabric; on an NVL72, start IMEX first "
    "(`nvidia-imex-ctl -N`).",
    action="fix-job",
    answers=("NT-ENV-11",),
    reads=("nvml:gpus", "cmd:systemctl show *"),
    unless=(no_gpu,),
)
def mnnvl(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NCCL_MNNVL_ENABLE with the GPUs' NVLink fabric and with IMEX.

    ## Why it matters
    With 1, NCCL requires NVLink between nodes: if NVLink ends at the chassis, or IMEX does not run, the job fails at
    start with an error about memory handles.

    ## Verdicts
    The value 1 fails on a fabric that does not span nodes, and warns on one that does if IMEX is not active. Unset, 0
    and 2 pass; nccl.left-over-disables reports that 0 disables the fabric.

    ## False alarms
    Kubernetes ComputeDomains start IMEX for each job, so an idle node has none; that only warns.
    """
    setting, number = node.nccl_env.get("NCCL_MNNVL_ENABLE"), node.nccl_env.integer("NCCL_MNNVL_ENABLE")
    if setting is None or number != 1:
        missing = list(unread(node, "NCCL_MNNVL_ENABLE"))
        message = (
            f"{setting.text} does not require NVLink between nodes"
            if setting is not None
            else "NCCL_MNNVL_ENABLE is unset, so NCCL uses NVLink between nodes if it works"
        )
        yield from missing or [passed(message, evidence=[PROCESS])]
        return
    health = node.gpu_health
    details: dict[str, Any] = {"subject": setting.name, "found": setting.value, "quote": as_set(setting)}
    if any(gpu.fabric is None and not gpu.not_reported("fabric") for gpu in health.gpus) or not health.gpus:
        yield unknown(f"{setting.text} in {setting.where} requires NVLink between nodes, but it is not known "
                      "whether the NVLink fabric spans nodes",
                      subject=setting.name, evidence=[setting.source, *health.evidence])  # fmt: skip
    elif not any(gpu.fabric is not None and gpu.fabric.multi_node for gpu in health.gpus):
        message = (
            f"{setting.text} in {setting.where} requires NVLink between nodes, but the NVLink fabric is "
            "limited to this node"
        )
        yield failed(message, expected="unset", evidence=[setting.source, *health.evidence], **details)  # fmt: skip
    else:
        yield _imex(node, setting)


def _imex(node: NodeFacts, setting: Setting) -> Finding:
    keys = [setting.source, parsers.host.services.SERVICES]
    service = node.services.get("nvidia-imex.service")
    if service is not None and service.active == "active":
        return passed(
            f"{setting.text} requires an NVLink fabric that spans nodes and an active IMEX; the node has both",
            subject=setting.name,
            evidence=keys,
        )
    state = "not installed" if service is None or not service.known else service.active
    return warned(f"{setting.text} in {setting.where} requires IMEX, which is {state}", subject=setting.name,
                  found=f"IMEX {state}", expected="active before the job starts", evidence=keys,
                  quote=as_set(setting))  # fmt: skip


# --- SHARP -----------------------------------------------------------------------------------------


@check(
    "nccl.sharp",
    title="No variable disables SHARP or requests it without effect",
    fault="A variable disables SHARP, or requests it without effect",
    impact="slows-job",
    source=f"{GUIDE}#nccl-collnet-enable; NVIDIA SHARP user manual: InfiniBand, with the rdma-sharp plug-in",
    fix="Unset it after the A/B test; SHARP needs InfiniBand, the plug-in, sharp_am, and NCCL_COLLNET_ENABLE=1.",
    action="fix-job",
    answers=("NT-ENV-13",),
    gating=False,  # never fails
)
def sharp(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for variables that disable SHARP, or request it without effect.

    ## Why it matters
    SHARP sums gradients in the switches. If it was disabled for a comparison and not enabled again, the fabric carries
    every byte twice. If it is requested without its plug-in, NCCL silently continues without it.

    ## Verdicts
    NCCL_COLLNET_ENABLE=0, NCCL_SHARP_DISABLE=1 and an NCCL_ALGO that excludes CollNet warn on InfiniBand, and pass
    on RoCE, which has no SHARP. NCCL_COLLNET_ENABLE=1 warns without InfiniBand and on fewer nodes than
    NCCL_COLLNET_NODE_THRESHOLD (2); a plug-in missing from the loader's directories is unknown, because it may be
    elsewhere. Unset passes: NCCL does not use SHARP by default.

    ## False alarms
    A run that is part of an A/B test.
    """
    env = node.nccl_env
    collnet = env.integer("NCCL_COLLNET_ENABLE")
    off = [one for one in env.settings if _switches_sharp_off(one)]
    missing = list(unread(node, "a variable that disables or requests SHARP"))
    if not off and collnet != 1:
        yield from missing or [passed("no variable disables SHARP", evidence=[PROCESS])]
        return
    yield from missing
    infiniband = place(node, site).infiniband if node.rdma_devices else False
    for setting in off:
        details: dict[str, Any] = {"subject": setting.name, "evidence": [setting.source, RDMA_CLASS]}
        if infiniband is False:
            yield passed(f"{setting.text}: there is no InfiniBand, so no SHARP to disable", **details)
        elif infiniband is None:
            yield unknown(f"{setting.text} in {setting.where} disables SHARP, but the link layer is unknown", **details)
        else:
            yield warned(f"{setting.text} in {setting.where} disables SHARP", found=setting.value,
                         expected="unset, except in an A/B test", quote=as_set(setting), **details)  # fmt: skip
    requested = env.get("NCCL_COLLNET_ENABLE")
    if requested is not None and collnet == 1:
        yield _sharp_requested(node, requested, infiniband)


def _switches_sharp_off(setting: Setting) -> bool:
    if setting.name == "NCCL_COLLNET_ENABLE":
        return setting.value != "" and strtoll(setting.value) == 0
    if setting.name == "NCCL_ALGO":
        return setting.value.startswith("^") and "collnet" in setting.value.casefold()
    return setting.name == "NCCL_SHARP_DISABLE" and bool(strtoll(setting.value))


def _sharp_requested(node: NodeFacts, setting: Setting, infiniband: bool | None) -> Finding:
    details: dict[str, Any] = {"subject": setting.name, "evidence": [setting.source, RDMA_CLASS]}
    where = f"{setting.text} in {setting.where}"
    if infiniband is False:
        return warned(f"{where} requests SHARP, but there is no InfiniBand", found=setting.value,
                      expected="unset on RoCE", quote=as_set(setting), **details)  # fmt: skip
    nodes, least = _nodes(node), node.nccl_env.integer("NCCL_COLLNET_NODE_THRESHOLD") or 2
    if nodes is not None and nodes < least:
        return warned(f"{where} requests SHARP on {counted(nodes, 'node')}, but SHARP needs {least} or more",
                      found=counted(nodes, "node"),
                      expected=f"{least} nodes (NCCL_COLLNET_NODE_THRESHOLD)", quote=as_set(setting),
                      **details)  # fmt: skip
    plugins = [library.path for library in node.libraries if library.name.startswith("libnccl-net")]
    if infiniband is None or not plugins:
        layer = "the link layer is unknown"
        what = "the loader's directories contain no libnccl-net.so" if infiniband else layer
        return unknown(f"{where} requests SHARP, but {what}", subject=setting.name, evidence=[setting.source,
                       LIBRARIES],
                       fix="look for `Loaded collnet plugin` in the job's NCCL log")  # fmt: skip
    keys = [setting.source, LIBRARIES]
    return passed(f"{where} requests SHARP, and the loader finds {plugins[0]}", subject=setting.name, evidence=keys)


def _nodes(node: NodeFacts) -> int | None:
    """Return the number of nodes of the job from Slurm; None if unknown."""
    for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
        if (value := node.environment.get(name, "")).isdecimal() and len(value) < 8:
            return int(value)
    return None

"""Resources of a container: Multus networks, device plug-ins, GPU devices.

Sources: Kubernetes Network Custom Resource Definition De-facto Standard (network-status); the SR-IOV network device
plugin (``PCIDEVICE_*`` variables); the NVIDIA container toolkit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from preflight.evidence import json_limits
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.pod import POD, pod

if TYPE_CHECKING:
    from preflight.parsers.network.network_status import PodNetwork

#: Usual mount point of the pod's annotations through the downward API.
ANNOTATIONS = ("file:/etc/podnetinfo/annotations", "file:/etc/podinfo/annotations")
#: Environment variable with the annotation, if no file is mounted.
VARIABLE = "NETWORK_STATUS"
#: The annotation's name, new and old.
STATUS = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
GPU_NODES = "cmd:find /dev -maxdepth 1 -name nvidia*"
#: Device nodes that can be opened: a control group's device list does not hide devices but denies access.
USABLE_NODES = "cmd:find /dev -maxdepth 1 -name nvidia* -readable -writable"

_KUBERNETES = "KUBERNETES_SERVICE_HOST"


def in_pod(environment: Mapping[str, str]) -> bool:
    """Return whether the process runs in a Kubernetes pod."""
    return _KUBERNETES in environment


def resources(environment: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return device-plugin resource -> its PCI addresses.

    Resources are spelled as in the variables.
    """
    found = {}
    for name, value in environment.items():
        if name.startswith("PCIDEVICE_") and not name.endswith("_INFO"):
            found[name.removeprefix("PCIDEVICE_")] = tuple(part.strip() for part in value.split(",") if part.strip())
    return found


def networks(evidence: Evidence) -> tuple[tuple[PodNetwork, ...], str]:
    """Return the pod's networks, and the key of their record.

    Raises EvidenceError if no record has them.
    """
    from preflight.parsers.network.network_status import parse_network_status  # start-up: most nodes run no pod

    environment = evidence.value(PROCESS)
    if not isinstance(environment, Mapping):
        raise EvidenceError(PROCESS, "has no names and values")
    for key in (PROCESS, *ANNOTATIONS, POD):
        try:
            text = environment.get(VARIABLE) if key == PROCESS else _annotation(_annotations(evidence, key))
            if text and not isinstance(text, str):
                raise ValueError(f"the value of {VARIABLE} is a {type(text).__name__}, not text")
            if text:
                return parse_network_status(text), key
        except EvidenceError:
            continue
        except ValueError as error:
            raise EvidenceError(key, str(error)) from None
    others = f"in {ANNOTATIONS[1][5:]}, ${VARIABLE} or the API's answer"
    raise EvidenceError(ANNOTATIONS[0], f"no {STATUS[0]} there, or {others}")


def _annotations(evidence: Evidence, key: str) -> Mapping[str, str]:
    return pod(evidence).annotations if key == POD else parse_annotations(evidence.text(key))


def _annotation(annotations: Mapping[str, str]) -> str:
    return next((annotations[name] for name in STATUS if annotations.get(name)), "")


def parse_annotations(text: str) -> dict[str, str]:
    """Read a downward-API file; raises ValueError.

    Its lines are ``name="value"``, quoted as Go and JSON do.
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        try:
            read = json_limits.text(value) if equals and name else None
        except ValueError:
            read = None
        if not isinstance(read, str):
            raise ValueError(f'{line.strip()[:80]!r} is not of the form name="value"')
        found[name] = read
    return found


#: Values of NVIDIA_VISIBLE_DEVICES that select no GPU: then only the device nodes show the assignment.
_NO_CHOICE = frozenset({"", "all", "void", "none"})
_GPU = re.compile(r"[0-9]{1,3}|GPU-[0-9a-fA-F-]{4,40}")
#: Slurm's variables for a step, and for a job on this node: lists of indices, then a count.
_SLURM_LISTS, _SLURM_COUNT = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), "SLURM_GPUS_ON_NODE"


def given_all_gpus(nodes: frozenset[str], environment: Mapping[str, str], gpus: int) -> bool:
    """Return whether a container was assigned all ``gpus`` GPUs.

    If so, it has their device nodes, and no variable selects only some of them. A list that cannot be parsed (MIG
    instances, a path) counts as such a selection.
    """
    if sum(name.removeprefix("nvidia").isdigit() for name in nodes) < gpus:
        return False
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    lists = [environment[name] for name in _SLURM_LISTS if name in environment]
    lists += [] if visible in _NO_CHOICE else [visible]
    for chosen in (text.split(",") for text in lists):
        if len(chosen) < gpus or not all(_GPU.fullmatch(item.strip()) for item in chosen):
            return False
    count = environment.get(_SLURM_COUNT, str(gpus))
    return count.isascii() and count.isdigit() and int(count[:9]) >= gpus


def usable_gpu_nodes(evidence: Evidence) -> int | None:
    """Return the number of GPU device nodes that can be opened; None if not read.

    access(2) respects the device list of the control group, in both versions.
    """
    try:
        return sum(name.removeprefix("nvidia").isdigit() for name in gpu_nodes(evidence.text(USABLE_NODES)))
    except (EvidenceError, ValueError):  # BusyBox's find lacks these tests
        return None


def gpus_given(evidence: Evidence, environment: Mapping[str, str]) -> int | None:
    """Return the number of GPUs that a container's variables and pod select.

    None without a selection, if one cannot be parsed, or if selections contradict each other: with a plug-in that
    shares GPUs, the list of GPUs and the pod's request differ.
    """
    lists = [environment[name] for name in (*_SLURM_LISTS, "NVIDIA_VISIBLE_DEVICES") if name in environment]
    chosen = [{item.strip() for item in text.split(",")} for text in lists if text not in _NO_CHOICE]
    if not all(_GPU.fullmatch(item) for items in chosen for item in items):
        return None
    counts: set[int | None] = {len(items) for items in chosen}
    if in_pod(environment):
        with suppress(EvidenceError):
            counts |= {pod(evidence).gpus} - {None}
    return counts.pop() if len(counts) == 1 else None


def gpu_nodes(text: str) -> frozenset[str]:
    """Return the names of NVIDIA's device nodes; raises ValueError.

    For example ``nvidia0``, ``nvidiactl``.
    """
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if wrong := [name for name in names if not re.fullmatch(r"/dev/nvidia[\w.-]{0,60}", name)]:
        raise ValueError(f"{wrong[0][:60]!r} is not a device node of NVIDIA's")
    return frozenset(name.removeprefix("/dev/") for name in names)

"""Metadata of a benchmark's result: hardware and software of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from preflight.evidence.document import EvidenceError
from preflight.facts import system_settings, versions
from preflight.facts.compatibility import build
from preflight.facts.container_image import VARIABLES as IMAGE
from preflight.facts.container_image import image

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts


def record(node: NodeFacts) -> dict[str, str]:
    """Return the known metadata by name; unread and absent values are left out."""
    found = {}
    for name, part in _PARTS:
        try:
            value = part(node)
        except EvidenceError:
            continue
        if value:
            found[name] = value
    return found


def ambiguous(node: NodeFacts) -> Iterator[tuple[str, str]]:
    """Yield the software that has several installed versions, with the versions.

    Which version the job used is unknown.
    """
    for name, installed in (("NCCL", _nccls), ("PyTorch", _torches)):
        try:
            found = installed(node)
        except EvidenceError:
            continue
        if len(found) > 1:
            yield name, " and ".join(sorted(found))


def _gpus(node: NodeFacts) -> str:
    if not node.gpus_on_bus:
        return ""
    models = Counter(gpu.name or "unknown" for gpu in node.gpu_health.gpus)
    return ", ".join(f"{number} x {model}" for model, number in sorted(models.items()))


def _driver(node: NodeFacts) -> str:
    return node.driver.version if node.gpus_on_bus else ""


def _nccls(node: NodeFacts) -> set[str]:
    bundled = {package.version for package in node.packages if package.name.startswith("nvidia_nccl")}
    return bundled | set(versions.nccl_in_use(node.libraries).values())


def _torches(node: NodeFacts) -> set[str]:
    return {package.version for package in node.packages if package.name == "torch"}


def _cuda(node: NodeFacts) -> str:
    """Return the version of the installed CUDA toolkit, else of PyTorch's CUDA."""
    try:
        return node.parsed(system_settings.CUDA, system_settings.cuda_version)
    except EvidenceError:
        built = {build(node.evidence, package).cuda for package in node.packages if package.name == "torch"}
        return " and ".join(sorted(f"{cuda} (of PyTorch)" for cuda in built if cuda))


def _pytorch(node: NodeFacts) -> str:
    """Return PyTorch's versions, or "none installed" if every location was searched."""
    if found := _torches(node):
        return " and ".join(sorted(found))
    looked = [key for key in node.evidence.records if key.endswith(".dist-info/INSTALLER")]
    complete = looked and all(node.evidence.record(key).status in ("ok", "missing") for key in looked)
    return "none installed" if complete else ""


def _topology(node: NodeFacts) -> str:
    """Return counts of connection codes: of GPU pairs, and of GPUs' nearest NICs."""
    matrix = node.topology
    between = Counter(
        code for gpu in matrix.gpus for other, code in matrix.links.get(gpu, {}).items() if other in matrix.gpus
    )
    nearest = Counter(matrix.nearest_nics(gpu)[0] for gpu in matrix.gpus if gpu in matrix.links)
    pairs = ", ".join(f"{code} x {number // 2}" for code, number in sorted(between.items()) if code != "X")
    nics = ", ".join(f"{code or 'none'} x {number}" for code, number in sorted(nearest.items()))
    return f"GPU-GPU {pairs or 'none'}; GPU-NIC {nics or 'none'}"


def _variables(node: NodeFacts) -> str:
    named = [one for one in node.nccl_env.settings if one.name not in IMAGE]
    return " ".join(f"{one.name}={one.value}" for one in named) or "none set"


_PARTS: tuple[tuple[str, Callable[[NodeFacts], str]], ...] = (
    ("GPUs", _gpus),
    ("driver", _driver),
    ("CUDA", _cuda),
    ("NCCL", lambda node: " and ".join(sorted(_nccls(node)))),
    ("PyTorch", _pytorch),
    ("image", image),
    ("NCCL variables", _variables),
    ("topology", _topology),
)

#: Metadata without which two results cannot be compared.
NEEDED = tuple(name for name, _ in _PARTS)

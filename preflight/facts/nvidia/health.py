"""Health of a node's GPUs: NVML, supplemented by nvidia-smi.

``nvidia-smi -q -x`` and ``nvidia-smi nvlink -s`` are the second sources.
"""

from __future__ import annotations

from collections.abc import Callable

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.nvidia import nvml, smi_xml
from preflight.facts.nvidia.model import NOT_REPORTED, GpuHealth, Health
from preflight.parsers.nvidia import nvlink_status


def health(evidence: Evidence) -> Health:
    """Return the health of all GPUs, from NVML and then ``nvidia-smi -q -x``.

    If NVML hung on a GPU and nvidia-smi did not answer, the answers for earlier GPUs are used. If neither source
    answered, raises EvidenceError, if possible with NVML's reason.
    """
    found = _health(evidence)
    return found if all(gpu.links is not None for gpu in found.gpus) else _with_links(found, evidence)


def _health(evidence: Evidence) -> Health:
    first = _try(lambda: nvml.read_health(evidence))
    if isinstance(first, Health) and not any(map(_lacking, first.gpus)):
        return first
    second = _try(lambda: smi_xml.read_health(evidence))
    if isinstance(first, Health):
        return _completed(first, second) if isinstance(second, Health) else first
    if isinstance(second, Health):
        return second
    if (partial := nvml.part(evidence)) is not None:
        return partial
    refused_first = not first.why.startswith(("was never", "there is no"))
    raise (first if refused_first else second)


def _with_links(found: Health, evidence: Evidence) -> Health:
    """Fill in NVLinks that NVML did not report, from ``nvidia-smi nvlink -s``."""
    try:
        links = nvlink_status.parse(evidence.text(nvlink_status.NVLINK))
    except (EvidenceError, ValueError) as error:
        words = dict.fromkeys(("links", "link_gbytes_s"), str(error)[:200])
        return replace(found, gpus=tuple(replace(gpu, absent={**words, **gpu.absent}) for gpu in found.gpus))
    gpus = tuple(_linked(gpu, links.get(gpu.uuid)) for gpu in found.gpus)
    return replace(found, gpus=gpus, evidence=(*found.evidence, nvlink_status.NVLINK))


def _linked(gpu: GpuHealth, links: nvlink_status.Links | None) -> GpuHealth:
    if gpu.links is not None or links is None:
        return gpu
    return replace(gpu, links=links.up, link_gbytes_s=links.gbytes_s)


def _lacking(gpu: GpuHealth) -> list[str]:
    """Return the missing values that another source may have: all but ``N/A``."""
    return [name for name, why in gpu.absent.items() if why != NOT_REPORTED]


def _try(read: Callable[[], Health]) -> Health | EvidenceError:
    try:
        return read()
    except EvidenceError as error:
        return error


def _completed(first: Health, second: Health) -> Health:
    """Fill the gaps of the first source from the second's values of the same GPU."""
    others = {gpu.uuid: gpu for gpu in second.gpus}
    filled = tuple(_filled(gpu, others[gpu.uuid]) if gpu.uuid in others else gpu for gpu in first.gpus)
    return replace(first, gpus=filled, evidence=first.evidence + second.evidence)


def _filled(gpu: GpuHealth, other: GpuHealth) -> GpuHealth:
    lacking = _lacking(gpu)
    known = {name: value for name in lacking if (value := getattr(other, name)) is not None}
    refused = {name: NOT_REPORTED for name in lacking if other.not_reported(name)}
    return replace(gpu, **known, absent={**gpu.absent, **refused})

"""The GPUs that the driver answers for: NVML, else ``nvidia-smi --query-gpu``."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import address
from preflight.textprep.plain_text import normalize_text

NVML = "nvml:gpus"
QUERY = "cmd:nvidia-smi --query-gpu=index,pci.bus_id,name,uuid,driver_version --format=csv,noheader"


@dataclass(frozen=True)
class GpuIdentity:
    """One GPU that answered."""

    index: int  # NVML index
    address: str  # PCI address in the kernel's form
    name: str  # product name as the driver prints it
    uuid: str


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver's answers about itself and its GPUs."""

    version: str
    gpus: tuple[GpuIdentity, ...]
    lost: tuple[str, ...]  # messages about GPUs that did not answer
    evidence: str  # the record that this was read from


def driver(evidence: Evidence) -> Driver:
    """Return the driver's own view.

    Raises EvidenceError naming NVML's refusal if nothing answered.
    """
    try:
        return _from_nvml(evidence.value(NVML))
    except EvidenceError as error:
        refusal = error
    except ValueError as error:
        refusal = EvidenceError(NVML, str(error))
    try:
        return parse_query(evidence.text(QUERY))
    except EvidenceError as error:
        raise (error if refusal.why.startswith(("was never", "there is no")) else refusal) from None
    except ValueError as error:
        raise EvidenceError(QUERY, str(error)) from None


def _from_nvml(value: Any) -> Driver:
    if not isinstance(value, dict) or not isinstance(value.get("gpus"), list):
        raise ValueError("holds no list of GPUs")
    version = value.get("driver")
    if not isinstance(version, str):
        raise ValueError("holds no driver version")
    gpus, lost = [], []
    for gpu in value["gpus"]:
        if not isinstance(gpu, dict):
            raise ValueError("an entry of the list of GPUs is not an object")
        try:
            gpus.append(GpuIdentity(int(gpu["index"]), address(gpu["bus_id"]), str(gpu["name"]), str(gpu["uuid"])))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            reason = f"GPU {gpu.get('index', '?')}: {gpu.get('errors') or gpu.get('error') or 'incomplete'}"
            lost.append(reason[:200])
    return Driver(version, tuple(gpus), tuple(lost), NVML)


def parse_query(text: str) -> Driver:
    """Read rows of ``nvidia-smi --query-gpu``; raises ValueError with the line.

    The columns are ``index,pci.bus_id,name,uuid,driver_version``.
    """
    gpus, versions, lost = [], set(), []
    for line in normalize_text(text).split("\n"):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and re.fullmatch("[0-9]{1,4}", cells[0]) and cells[3].startswith("GPU-"):
            gpus.append(GpuIdentity(int(cells[0]), address(cells[1]), cells[2], cells[3]))
            versions.add(cells[4])
        elif re.search(r"Unable to determine the device handle|GPU is lost|requires reset", line):
            lost.append(line.strip())
        elif line.strip() == "No devices were found":
            raise ValueError("nvidia-smi printed: No devices were found")
        else:
            raise ValueError(f"{line.strip()[:100]!r} is not a row of five cells")
    if len(versions) != 1:
        raise ValueError("there is no driver version in it" if not versions else "it names several versions")
    return Driver(versions.pop(), tuple(gpus), tuple(lost), QUERY)

"""The GPUs that the driver reports: NVML, or else ``nvidia-smi --query-gpu``."""

from __future__ import annotations

from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pci import address
from preflight.textprep.plain_text import normalize_text

NVML = "nvml:gpus"
_COLUMNS = ("index", "pci.bus_id", "name", "uuid", "driver_version")
QUERY = f"cmd:nvidia-smi --query-gpu={','.join(_COLUMNS)} --format=csv,noheader"


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
    """Return the driver's answers about itself and its GPUs.

    If neither source answered, raises EvidenceError, if possible with NVML's reason.
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
        raise ValueError("has no list of GPUs")
    version = value.get("driver")
    if not isinstance(version, str):
        raise ValueError("has no driver version")
    gpus, lost = [], []
    for gpu in value["gpus"]:
        if not isinstance(gpu, dict):
            raise ValueError("an entry of the list of GPUs is not an object")
        try:
            gpus.append(GpuIdentity(int(gpu["index"]), address(gpu["bus_id"]), str(gpu["name"]), str(gpu["uuid"])))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            errors = gpu.get("errors") or gpu.get("error") or "incomplete answer"
            reasons = dict.fromkeys(map(str, errors.values() if isinstance(errors, dict) else [errors]))
            lost.append(f"GPU {gpu.get('index', '?')}: {', '.join(reasons)}"[:200])
    return Driver(version, tuple(gpus), tuple(lost), NVML)


def parse_query(text: str) -> Driver:
    """Return the driver's answers from rows of ``nvidia-smi --query-gpu``.

    Raises ValueError for the first incomplete line.
    """
    # import-at-use: not needed if NVML answers
    from preflight.parsers.nvidia.query_rows import parse_rows
    from preflight.textprep.lines import Line

    lines = [Line(number, line) for number, line in enumerate(normalize_text(text).split("\n"), 1) if line.strip()]
    rows = parse_rows(lines, 0, _COLUMNS)
    log = rows.required()
    if rows.end < len(lines):
        raise ValueError(f"nvidia-smi printed: {lines[rows.end].text.strip()[:100]}")
    gpus, lost = [], []
    for bus_id, tree in log.gpus:
        if "message" in tree:
            lost.append(tree["message"])
        elif not (tree["index"].isdecimal() and len(tree["index"]) <= 4 and tree["gpu_uuid"].startswith("GPU-")):
            raise ValueError(f"the row of GPU {tree['index'][:40]!r} has no index or no UUID")
        else:
            gpus.append(GpuIdentity(int(tree["index"]), address(bus_id), tree["product_name"], tree["gpu_uuid"]))
    if "driver_version" not in log.general:
        raise ValueError("no driver version found")
    return Driver(log.general["driver_version"], tuple(gpus), tuple(lost), QUERY)

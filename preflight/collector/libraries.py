"""Library calls: one killable child for each library, so that a hung driver costs only its own answer."""

import json
import os
import sys
from typing import Any, Dict, List

from . import library
from .commands import execute
from .records import Deadline, Record

_PACKAGES = {"nvml": "pynvml", "psutil": "psutil"}
_NVIDIA = "0x10de"


def ask(kind: str, calls: List[str], timeout_s: float, deadline: Deadline, cap: int) -> Dict[str, Record]:
    """Make the calls of one library (``nvml`` or ``psutil``); return a record for each."""
    unknown = [call for call in calls if call not in library.CALLS]
    records: Dict[str, Record] = {
        call: {"status": "error", "why": "this collector has no call of that name"} for call in unknown
    }
    known = [call for call in calls if call not in unknown]
    if known:
        records.update(_ask(_PACKAGES[kind], known, timeout_s, deadline, cap))
    return records


def _ask(package: str, calls: List[str], timeout_s: float, deadline: Deadline, cap: int) -> Dict[str, Record]:
    request = {"library": package, "calls": calls, "source": _source(package)}
    argv = [sys.executable, "-I", "-c", _source(library.__name__)]
    child = execute(argv, timeout_s, deadline, cap, json.dumps(request).encode("ascii"))
    answers: Dict[str, Record] = {}
    for line in child.get("out", "").splitlines():
        try:
            answer = json.loads(line)
            answers[answer["call"]] = answer["record"]
        except (ValueError, KeyError, TypeError):  # the library's own noise, or the line that was cut
            continue
    return {call: _judge(answers.get(call), child) for call in calls}


def _judge(answer: Any, child: Record) -> Record:
    """Complete a call's last answer by how the child ended."""
    partial = dict(answer or {}, seconds=child.get("seconds", 0.0))
    if answer and answer["status"] != "cut":
        return partial
    said = [child.get("why"), answer and answer.get("why")]
    if child["status"] == "ok":
        how = "status" if child["rc"] >= 0 else "signal"
        last = child["err"].strip().splitlines()[-1:]
        said = ["the library's process ended with {} {}".format(how, abs(child["rc"])), *said[1:], *last]
    status = "error" if child["status"] == "ok" else child["status"]
    kept = {key: child[key] for key in ("kernel", "bytes") if key in child}
    return dict(partial, status=status, why="; ".join(part for part in said if part), **kept)


def _source(module: str) -> str:
    """Return the source of a module that travelled with the collector; empty if it did not."""
    loader: Any = library.__spec__ and library.__spec__.loader
    try:
        return str(loader.get_source(module) or "")
    except ImportError:
        return ""


def nvidia_present() -> bool:
    """Tell whether there is a driver or a PCI function of NVIDIA's that NVML could speak of."""
    if os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl"):
        return True
    root = "/sys/bus/pci/devices"
    try:
        return any(_vendor(os.path.join(root, entry, "vendor")) == _NVIDIA for entry in os.listdir(root))
    except OSError:
        return False


def _vendor(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read(20).decode("ascii", "replace").strip()
    except OSError:
        return ""

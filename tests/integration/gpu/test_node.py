"""A real node with a GPU, by our collector: NVML and nvidia-smi give the same facts, and every form is read.

Run by ``pytest -m gpu`` on a machine with an NVIDIA GPU. It is written by the documented API of NVML and the forms of
nvidia-smi, and has not run: no machine with a GPU was at hand.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from preflight.evidence.document import Evidence, from_document
from preflight.facts.nvidia import nvml, smi_xml
from preflight.facts.nvidia.model import GpuHealth, Health
from preflight.recognition import read_text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="nvidia-smi is not installed: no NVIDIA GPU"),
]

#: Values that change between two readings, and those that only NVML reports.
MOMENTARY = {
    "temperature_c", "temperature_margin_c", "memory_used_mib", "event_reasons", "performance_state", "utilisation_pct",
    "memory_utilisation_pct", "sm_clock_mhz", "pcie_generation", "processes",
}  # fmt: skip
NVML_ONLY = {"cuda_cores", "links", "link_gbytes_s"}
STEADY = [
    field.name for field in fields(GpuHealth) if field.compare and field.name not in MOMENTARY | NVML_ONLY
]  # fmt: skip


def preflight(*words: str, statuses: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-c", "from preflight.cli.main import main; main()", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode in statuses, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout


def smi(*words: str) -> str:
    return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """The node, as our collector records it."""
    path = tmp_path_factory.mktemp("node") / "node.json"
    preflight("collect", "-o", str(path))
    return from_document(json.loads(path.read_text(encoding="utf-8")), path.stem)


@pytest.fixture(scope="module")
def printed() -> Health:
    """The node, as nvidia-smi prints it."""
    return smi_xml.parse(smi("-q", "-x"))


def test_nvml_and_nvidia_smi_list_the_same_gpus(evidence: Evidence, printed: Health) -> None:
    recorded = nvml.read_health(evidence)
    assert recorded.gpus
    assert (recorded.driver, recorded.silent) == (printed.driver, printed.silent)
    assert [gpu.uuid for gpu in recorded.gpus] == [gpu.uuid for gpu in printed.gpus]


@pytest.mark.parametrize("name", STEADY)
def test_a_fact_is_the_same_from_both(name: str, evidence: Evidence, printed: Health) -> None:
    for recorded, shown in zip(nvml.read_health(evidence).gpus, printed.gpus, strict=True):
        assert getattr(recorded, name) == getattr(shown, name), (recorded.why(name), shown.why(name))


@pytest.mark.parametrize("words", [("-q", "-x"), ("-q",), (), ("topo", "-m")], ids=" ".join)
def test_each_form_of_the_tool_is_read(words: tuple[str, ...], evidence: Evidence) -> None:
    (part,) = read_text(smi(*words), "nvidia-smi")
    kind = " ".join(("nvidia-smi", *words))
    assert (part.kind, part.read_in_full) == (kind, True), part.taken.cut
    assert len(part.taken.facts["gpus"]) == len(nvml.read_health(evidence).gpus)


def test_every_check_of_one_gpu_has_a_result(tmp_path: Path) -> None:
    """Any verdict is possible, but a GPU check that crashed, or could not read its record, is none."""
    report = tmp_path / "report.json"
    preflight("check", "--only", "gpu.*", "--json", str(report), statuses=(0, 1, 3))
    findings: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["findings"]
    assert {item["check"] for item in findings} >= {"gpu.driver", "gpu.pcie-link", "gpu.throttling"}
    assert not [item for item in findings if "crashed" in item["message"]]

"""Values that a text lacks or shows as an error: no pass depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preflight.recognition import open_sources, read

HEAD = "==============NVSMI LOG==============\n\nDriver Version    : 570.124.06\nAttached GPUs     : 2\n"
GPU = """GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Clocks Event Reasons
        Idle                              : Active
        HW Slowdown                       : Not Active
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
    Temperature
        GPU Current Temp                  : 34 C
    Processes                             : None
"""
PORT = """CA 'mlx5_{number}'
	CA type: MT4129
	Number of ports: 1
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: 17
		SM lid: 1
		Link layer: InfiniBand
"""


def verdicts(text: str, folder: Path) -> list[tuple[str, str, str, str]]:
    path = folder / "pasted.txt"
    path.write_text(text, encoding="utf-8")
    findings: list[Any] = [
        finding for part in read(next(open_sources((str(path),)))) for finding in part.findings
    ]  # fmt: skip
    return [(finding["status"], finding["check"], finding["subject"], finding["message"]) for finding in findings]


def statuses(text: str, folder: Path) -> list[tuple[str, str]]:
    return [(status, subject) for status, _, subject, _ in verdicts(text, folder)]


def gpus(second: str) -> str:
    return HEAD + GPU.format(bus="1B") + "\n" + second


def test_a_gpu_that_answers_passes_by_what_is_shown(tmp_path: Path) -> None:
    answers = verdicts(gpus(GPU.format(bus="43")), tmp_path)
    assert {status for status, *_ in answers} == {"pass"}
    assert {check for _, check, *_ in answers} == {
        "gpu.driver", "gpu.ecc-uncorrected", "gpu.throttling", "gpu.persistence",
    }  # fmt: skip


@pytest.mark.parametrize(("error", "status"), [
    ("GPU is lost", "fail"), ("GPU requires reset", "fail"),
    ("Unknown Error", "unknown"), ("[Unknown Error]", "unknown"),
])  # fmt: skip
def test_an_error_in_place_of_a_value_is_no_pass(error: str, status: str, tmp_path: Path) -> None:
    sick = GPU.format(bus="43").replace("34 C", error)
    bad = [verdict for verdict in verdicts(gpus(sick), tmp_path) if verdict[0] != "pass"]
    assert [verdict[:3] for verdict in bad] == [(status, "gpu.driver", "0000:43:00.0")]
    healthy = gpus(GPU.format(bus="43").replace("34 C", "N/A"))
    assert {status for status, _ in statuses(healthy, tmp_path)} == {"pass"}


def test_a_gpu_that_is_cut_before_a_section_of_its_equals_is_unknown(tmp_path: Path) -> None:
    cut = GPU.format(bus="43").partition("    ECC Errors")[0]
    (bad,) = (verdict for verdict in verdicts(gpus(cut), tmp_path) if verdict[0] != "pass")
    assert bad[:3] == ("unknown", "gpu.ecc-uncorrected", "0000:43:00.0")
    assert "not in the output" in bad[3]


def test_a_text_without_a_section_passes_nothing_of_it(tmp_path: Path) -> None:
    bare = "GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA H100 80GB HBM3\n    Persistence Mode : Enabled\n"
    answers = verdicts(HEAD + bare.format(bus="1B") + "\n" + bare.format(bus="43"), tmp_path)
    assert {check for _, check, *_ in answers} == {"gpu.driver", "gpu.persistence"}


def test_a_port_without_its_state_is_not_among_those_that_pass(tmp_path: Path) -> None:
    ports = PORT.format(number=0) + PORT.format(number=1)
    assert statuses(ports, tmp_path) == [("pass", "")]
    cut = ports[: ports.rindex("\t\tState")] + "\t\tSta"
    ((status, check, _, message),) = verdicts(cut, tmp_path)
    assert (status, check) == ("unknown", "rdma.port-state")
    assert "lacks the state of mlx5_1:1" in message


def test_a_link_that_is_being_recovered_is_no_pass(tmp_path: Path) -> None:
    sick = PORT.format(number=1).replace("LinkUp", "LinkErrorRecovery")
    ((status, _, _, message),) = verdicts(PORT.format(number=0) + sick, tmp_path)
    assert status == "warn"
    assert "mlx5_1:1 is ACTIVE/LinkErrorRecovery" in message
    assert "mlx5_0" not in message

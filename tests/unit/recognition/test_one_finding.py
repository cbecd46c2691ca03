"""A fault of a text is one finding, whose reason and next step are its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight import recognition
from preflight.recognition.input_sources import InputSource
from preflight.reports.recognition_answer import answer, findings
from preflight.reports.recognition_text import render


def document(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "text"
    path.write_text(text)
    return recognition.document([("text", recognition.read(InputSource("text", path)))])


def faults(text: str, folder: Path) -> list[Mapping[str, Any]]:
    return [finding for _, finding in findings(document(text, folder)) if finding["status"] != "pass"]


IB = (
    "CA 'mlx5_3'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
    "\t\tLink layer: InfiniBand\n"
    "CA 'mlx5_4'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
    "\t\tLink layer: InfiniBand\n"
)


def of_host(host: str, rate: int) -> str:
    return "".join(f"{host}: {line}\n" for line in IB.format(rate).splitlines())


def test_a_port_slower_than_on_another_host_is_one_finding(tmp_path: Path) -> None:
    assert [
        (finding["status"], finding["subject"]) for finding in faults(of_host("w1", 400) + of_host("w2", 200), tmp_path)
    ] == [("warn", "mlx5_3:1")]
    assert not faults(of_host("w1", 400) + of_host("w2", 400), tmp_path)


XID = "[ 912.25] NVRM: Xid (PCI:0000:5d:00): {}, pid=7120, name=train, {}\n"
DBE = XID.format(48, "DBE (double bit error) detected in the framebuffer")


@pytest.mark.parametrize(
    ("text", "action", "words"),
    [
        (DBE, "reset", "reboot if that fails"),
        (
            DBE + XID.format(64, "Row Remapper Error: (0x12) - All reserved rows for bank are remapped"),
            "replace",
            "RMA",
        ),
        (XID.format(64, "Row Remapper Error: (0x12) - All reserved rows for bank are remapped"), "replace", "RMA"),
        (DBE + XID.format(64, "Row Remapper Error: (0x12) - remapping failed"), "reset", "replace it"),
        (DBE + XID.format(63, "Row Remapper: New row marked for remapping, reset gpu to activate."), "reset", "reboot"),
    ],
)
def test_a_bank_without_reserved_rows_is_replaced_after_the_reset(
    text: str, action: str, words: str, tmp_path: Path
) -> None:
    (finding,) = faults(text, tmp_path)
    assert finding["action"] == action
    assert words in finding["fix"]
    assert ("RMA" in finding["fix"]) is (words == "RMA")
    assert words in answer(document(text, tmp_path), "").step


DF = "Filesystem Size Used Avail Use% Mounted on\n/dev/md1 900G 900G 0 100% {}\n"


@pytest.mark.parametrize(
    ("mount", "command"),
    [("/var/lib", "du -x --max-depth=1 /var/lib"), ("/a$(id)", "du -x --max-depth=1 PLACE")],
)
def test_what_fills_a_disk_is_next(mount: str, command: str, tmp_path: Path) -> None:
    assert answer(document(DF.format(mount), tmp_path), "").command == command


JOURNAL = '{{"__REALTIME_TIMESTAMP": "17410{}", "_HOSTNAME": "{}", "_TRANSPORT": "kernel", "MESSAGE": "{}"}}\n'
OFF = "NVRM: Xid (PCI:0000:5d:00): 79, pid=7120, name=train, GPU has fallen off the bus."


@pytest.mark.parametrize(("host", "named"), [("w-17.pod", ["w-17.pod"]), ("-x;`id`", ["text"])])
def test_a_record_of_journald_names_its_host(host: str, named: list[str], tmp_path: Path) -> None:
    (finding,) = faults(JOURNAL.format(12, host, OFF), tmp_path)
    assert (finding["nodes"], finding["found"]) == (named, OFF)


def test_an_error_is_reported_once_and_without_the_reason_of_another_fault(tmp_path: Path) -> None:
    text = (
        "w1:88:88 [0] NCCL INFO NCCL version 2.23.4+cuda12.6\n"
        "docker: Error response from daemon: OCI runtime create failed: runc create failed: exit status 1\n"
    )
    (finding,) = [item for item in faults(text, tmp_path) if "container" in item["message"]]
    assert finding["why"] == ""


def test_equal_findings_share_their_details(tmp_path: Path) -> None:
    lines = "".join(f"mlx5_{number} port 1 ==> ibs{number} (Down)\n" for number in range(3))
    text = render(document(lines, tmp_path))
    assert text.count("UNKNOWN the interface ibs") == 3
    assert text.count("why ") == 1

"""Rows of ``nvidia-smi --query-gpu``: a node's record, and the same below a header."""

from __future__ import annotations

import pytest

from preflight.facts.nvidia.query import parse_query
from preflight.parsers.nvidia.query_rows import parse_lines
from preflight.textprep.lines import lines_of

HEADER = "index, pci.bus_id, name, uuid, driver_version\n"
ROWS = (
    "0, 00000000:17:00.0, NVIDIA H200, GPU-5d1c3b52-0000-4000-8000-000000000017, 575.57.08\n"
    "1, 00000000:65:00.0, NVIDIA H200, GPU-5d1c3b52-0000-4000-8000-000000000065, 575.57.08\n"
)
LOST = "Unable to determine the device handle for GPU 0000:AA:00.0: GPU is lost.  Reboot the system\n"


def test_a_record_and_a_table_hold_the_same() -> None:
    driver, table = parse_query(ROWS + LOST), parse_lines(lines_of(HEADER + ROWS + LOST), 0)
    assert [gpu.address for gpu in driver.gpus] == ["0000:17:00.0", "0000:65:00.0"]
    assert driver.lost == (LOST.strip(),)
    assert (driver.version, table.gaps) == ("575.57.08", ())
    assert [bus_id for bus_id, _ in table.value.gpus] == ["00000000:17:00.0", "00000000:65:00.0", ""]


def test_a_lost_gpu_alone_leaves_the_driver_unknown() -> None:
    with pytest.raises(ValueError, match="no driver version"):
        parse_query(LOST)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROWS.replace("575.57.08", "570.10.01", 1), "line 2: the rows name several driver versions"),
        (ROWS[:-20], "line 2: the row is truncated"),
        (ROWS.replace("GPU-5d1c", "5d1c"), "GPU '0' has no index or no UUID"),
        ("No devices were found\n", "nvidia-smi printed: No devices were found"),
        ("", "no driver version"),
    ],
)
def test_what_is_not_complete_is_refused_for_a_node(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_query(text)


def test_a_table_of_two_driver_versions_has_a_gap() -> None:
    parsed = parse_lines(lines_of(HEADER + ROWS.replace("575.57.08", "570.10.01", 1)), 0)
    assert [gap.what for gap in parsed.gaps] == ["the rows name several driver versions"]

"""The report on re-made texts: what it lets pass, what it does not, and that no text lost an assertion."""

from __future__ import annotations

import re

import pytest

from tests.remade import FOLDER, ROOT, TABLE, counts, reason, shared, tokens
from tests.test_pasted import INDEX


@pytest.mark.parametrize(
    "line",
    [
        "inet 10.20.30.40 netmask 255.255.255.0", "link/ether 02:11:22:33:44:55 brd ff:ff:ff:ff:ff:ff",
        "Node GUID: 0x0c42a1030017c078", "node_guid: 0c42:a103:0017:c078", "GPU 00000000:3B:00.0",
        "ClusterUUID : 01234567-89ab-cdef-0123-456789abcdef", "alpha:4711:4712 [0] NCCL INFO Using network IB",
        "alpha pid 4711: Test failure common.cu:1000", "[  100.123456] NVRM: fallen off the bus",
        "Serial Number : 0323716156865",
        "Timestamp : Mon Mar 23 08:30:03 2020", "rx_packets: 845320277", "GPU Current Temp : 24 C", "Used : 9985 MiB",
        "[root@alpha ~]# ibstat", "netdev enp3s0f0np0", "# Avg bus bandwidth    : 29.8872", "Vendor SN : AQ00001",
        "This should alert, since this GPU requires a reset.", "1048576 262144 float sum -1 27.76 37.78 66.11 0",
    ],
)  # fmt: skip
def test_a_line_of_somebody_is_a_violation(line: str) -> None:
    assert not reason(line)[0]


@pytest.mark.parametrize(
    "line",
    [
        "> \tstate:\t\tPORT_ACTIVE (4)", "GPU0\t X \tNV18\tSYS\t0-47,96-143\t0\t\tN/A", "    Rate: 200",
        "rx_crc_errors: 0",
        "fw_ver: 28.39.1002", "LnkSta: Speed 8GT/s, Width x2 (downgraded)", "NIC statistics:", "}", "# ibstat mlx5_0",
        "prio:0 dscp:07,06,05,04,03,02,01,00,",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    ],
)  # fmt: skip
def test_a_line_of_a_tool_may_stay(line: str) -> None:
    assert reason(line)[0]


def test_lines_and_tokens_are_found_in_another_place() -> None:
    old = "  inet 10.20.30.40\nRate: 200\n"
    assert shared(old, "Rate: 200\nmore\ninet 10.20.30.40") == [(1, "  inet 10.20.30.40"), (2, "Rate: 200")]
    assert tokens(old, "the peer is 10.20.30.40, it answers") == [("address of IPv4", "10.20.30.40")]


def test_no_text_lost_an_assertion() -> None:
    """The table has what each text asserted before; today's index has no less, as the table says."""
    rows = re.findall(r"^\| (\S+\.txt) \| (.*) \|$", (ROOT / FOLDER / TABLE).read_text(encoding="utf-8"), re.M)
    assert {name for name, _ in rows} == set(INDEX)
    for name, cells in rows:
        pairs = [tuple(map(int, cell.split(" → "))) for cell in cells.split(" | ")]
        assert all(was <= now for was, now in pairs), name
        assert tuple(now for _, now in pairs) == counts(INDEX[name]), name

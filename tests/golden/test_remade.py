"""Report on re-made texts: what it accepts and rejects, and that no text lost an assertion."""

from __future__ import annotations

import re

import pytest

from tests.golden.test_pasted_texts import INDEX
from tests.support.assertion_counts import counts, in_tests, statements
from tests.support.paths import ROOT
from tests.support.remade import PASTED, PLACE, TABLE, TESTS, origins, reason, shared, texts, tokens


@pytest.mark.parametrize(
    "line",
    [
        "inet 10.20.30.40 netmask 255.255.255.0", "link/ether 02:11:22:33:44:55 brd ff:ff:ff:ff:ff:ff",
        "Node GUID: 0x0c42a1030a5b6c7d", "node_guid: 0c42:a103:0a5b:6c7d", "GPU 00000000:3B:00.0",
        "ClusterUUID : 01234567-89ab-cdef-0123-456789abcdef", "alpha:4711:4712 [0] NCCL INFO Using network IB",
        "alpha pid 4711: Test failure common.cu:1000", "[  100.123456] NVRM: fallen off the bus",
        "Serial Number : 0123456789012",
        "Timestamp : Tue Apr  6 12:34:56 2021", "rx_packets: 712345678", "GPU Current Temp : 24 C", "Used : 8642 MiB",
        "[root@alpha ~]# ibstat", "netdev enp3s0f0np0", "# Avg bus bandwidth    : 31.4159", "Vendor SN : AQ00001",
        "It ought to warn us, as the card wants a reset.", "1048576 262144 float sum -1 31.41 33.38 58.42 0",
        "alpha: Running", "Wintermute", "Thanks Peter", "alpha-7: 0", "working on it with Peter", "bob", "0.1 0.2",
        '"node": "gpu-host-7"', "MASTER_ADDR=gpu-host-7", "NCCL_SOCKET_IFNAME=ens3f1", "driver: of gpu-host-7",
        "NCCL INFO of gpu-host-7", "node 0 size: 128657 MB", "node 1 free: 900 MB", "Thread of Peter",
        "Port: alpha eth3", "mpirun -np 2 -H alpha,beta ./a", "$ cat /home/jdoe/out", "ls /scratch/peter",
        "Status: it hangs", "Reserved : 321 MiB", "3b:00.0 3D controller: NVIDIA", "0 [1b000] busId 1b000",
        "[alpha:4711] mca: base", "mail peter@lab.example now", "Jul  4 08:30 alpha", "inet6 2001:db8::7",
        "8.8.4.4 answers", "Rank 0 Pid 1 on alpha device 0 [0x1b]",
    ],
)  # fmt: skip
def test_a_line_that_identifies_a_site_is_a_violation(line: str) -> None:
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
    assert shared("> Rate:  200", "Rate: 200 |") == [(1, "> Rate:  200")], "marks and blanks are no difference"


def rows(folder: str, cells: int) -> dict[str, list[str]]:
    """Return the rows of a table of assertions by text."""
    words = (ROOT / folder / TABLE).read_text(encoding="utf-8")
    found = [line.strip("| ").split(" | ") for line in words.splitlines() if re.match(r"\| \S+\.\w+ \|", line)]
    assert {len(row) for row in found} == {cells}
    return {row[0]: row[1:] for row in found}


def test_no_pasted_text_lost_an_assertion() -> None:
    """The table lists the former assertions of each text; today's index has no fewer."""
    table = rows(PASTED, 4)
    assert set(table) == set(INDEX)
    for name, cells in table.items():
        pairs = [tuple(map(int, cell.split(" → "))) for cell in cells]
        assert all(was <= now for was, now in pairs), name
        assert tuple(now for _, now in pairs) == counts(INDEX[name]), name


def test_no_other_text_lost_an_assertion() -> None:
    modules = statements((ROOT / f"tests/{name}.py").read_text(encoding="utf-8") for name in TESTS)
    known = origins()
    for name, (origin, *cells) in rows(PLACE, 4).items():
        assert origin == known[name], name
        if origin != "re-made":
            assert origin.startswith("recorded: ")
            continue
        pairs = [tuple(map(int, cell.split(" → "))) for cell in cells]
        assert all(was <= now for was, now in pairs), name
        assert sum(now for _, now in pairs) > 0, name
        assert tuple(now for _, now in pairs) == in_tests(modules, name), name


def test_every_text_is_in_a_table() -> None:
    """A text that is neither re-made nor listed as recorded here comes from elsewhere."""
    listed = {f"pasted/{name}" for name in rows(PASTED, 4)} | set(rows(PLACE, 4))
    assert set(texts()) == listed
    assert set(texts()) == set(origins()), "each has its origin on record"


def test_assertions_are_counted_in_the_source_of_tests() -> None:
    source = """
TABLE = {"a": ("x", [1, 2], []), "b": (None,)}
@reads("a.txt")
def test_one():
    assert 1
    with raises(ValueError):
        pass
def test_two():
    assert text("b.txt")
"""
    modules = statements([source])
    assert in_tests(modules, "folder/a.txt") == (4, 2)
    assert in_tests(modules, "b.txt") == (1, 1)
    assert in_tests(modules, "c.txt") == (0, 0)

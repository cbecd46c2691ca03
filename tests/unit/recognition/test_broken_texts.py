"""Output from mails, narrow screens, comments and tutorials, made by hand from each tool's format.

Texts that people really pasted are in test_pasted_texts.py.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from preflight.recognition import read_text
from preflight.recognition.detector import TextPart

TOPO = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    NIC2    NIC3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    NV18    PIX     NODE    SYS     SYS     0-47,96-143     0               N/A
GPU1    NV18     X      NV18    NV18    NODE    PIX     SYS     SYS     0-47,96-143     0               N/A
GPU2    NV18    NV18     X      NV18    SYS     SYS     PIX     NODE    48-95,144-191   1               N/A
GPU3    NV18    NV18    NV18     X      SYS     SYS     NODE    PIX     48-95,144-191   1               N/A
"""
GIDS = """\
DEV     PORT    INDEX   GID                                     IPv4            VER     DEV
---     ----    -----   ---                                     ------------    ---     ---
mlx5_0  1       2       0000:0000:0000:0000:0000:ffff:0a0a:0001 10.10.0.1       v1      eth0
mlx5_0  1       3       0000:0000:0000:0000:0000:ffff:0a0a:0001 10.10.0.1       v2      eth0
n_gids_found=2
"""
NUMACTL = f"""\
available: 1 nodes (0)
node 0 cpus: {" ".join(map(str, range(64)))}
node 0 size: 1024 MB
node 0 free: 1000 MB
node distances:
node   0
  0:  10
"""
IBSTAT = """\
CA 'mlx5_0'
        CA type: MT4129
        Number of ports: 1
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 400
                Link layer: InfiniBand
"""
KERNEL = """\
[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:1b:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Exception
[Sun Feb 23 16:24:20 2025] NVRM: Xid (PCI:0000:1b:00): 119, pid=30417, name=python3, Timeout after 45s of waiting
[Sun Feb 23 16:24:31 2025] mlx5_core 0000:9c:00.0: Port module event: module 0, Cable unplugged from the port of it
[Sun Feb 23 16:24:40 2025] nvidia-nvswitch1: SXid (PCI:0000:8a:00.0): 20034, Fatal, Link 30 LTSSM Fault Up (First)
"""
PERFQUERY = """\
# Port counters: Lid 5 port 1 (CapMask: 0x5300)
PortSelect:......................1
CounterSelect:...................0x0000
SymbolErrorCounter:..............7
LinkDownedCounter:...............1
PortXmitWait:....................2
"""


def read(text: str) -> list[TextPart]:
    return read_text(text, "pasted")


def only(text: str) -> dict[str, Any]:
    (part,) = read(text)
    return part.taken.facts


def screen(text: str, width: int) -> str:
    """Break lines like a screen: at its last column, wherever that is."""
    lines = text.split("\n")
    return "\n".join("\n".join(line[at : at + width] for at in range(0, max(len(line), 1), width)) for line in lines)


def mail(text: str, width: int) -> str:
    """Break lines like a mail: between two words, with the continuation at the margin."""
    return "\n".join(
        "\n".join(textwrap.wrap(line, width, replace_whitespace=False, break_long_words=False, break_on_hyphens=False))
        for line in text.split("\n")
    )


@pytest.mark.parametrize("text", [TOPO, GIDS, NUMACTL], ids=["topo", "show_gids", "numactl"])
@pytest.mark.parametrize("way", [screen, mail])
@pytest.mark.parametrize("width", [76, 80, 100])
def test_broken_lines_are_put_together(text: str, way: Any, width: int) -> None:
    assert only(way(text, width)) == only(text)


@pytest.mark.parametrize("way", [screen, mail])
@pytest.mark.parametrize("width", [72, 80, 100])
def test_a_kernel_log_that_was_broken(way: Any, width: int) -> None:
    def summary(text: str) -> list[Any]:
        facts = only(text)
        return [
            [(one["xid"], one["pid"], one["time"]) for one in facts["xids"]],
            [(one["sxid"], one["fatal"], one["time"]) for one in facts["sxids"]],
            [(one["event"], one["time"]) for one in facts["events"]],
        ]

    assert summary(way(KERNEL, width)) == summary(KERNEL)


def test_a_kernel_log_that_lost_its_line_ends_and_times() -> None:
    facts = only(
        "kernel: pcieport 0000:00:1b.2: AER: Correctable error received from 0000:03:04.0 "
        "kernel: pcieport 0000:03:04.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID) "
        "kernel: pcieport 0000:03:04.0: [ 0] RxErr"
    )
    assert [event["event"] for event in facts["events"]] == ["pcie-aer", "pcie-aer"]
    assert not facts["xids"]


def test_a_page_that_put_each_piece_on_a_line() -> None:
    facts = only(
        "[ 69.847178\n] mlx5_core 0000\n:05\n:00.0\n: poll_health:840\n:(pid 0\n): device's health compromised\n"
        "[ 69.857135\n] mlx5_core 0000\n:05\n:00.0\n: Port module event: module 0, Cable unplugged\n"
    )
    assert [(event["event"], event["time"]) for event in facts["events"]] == [("nic-link-down", "69.857135")]


def test_unbroken_lines_stay_as_they_are() -> None:
    """Rows of one width are not broken lines."""
    assert len(only(GIDS)["gids"]) == 2
    assert len(only(TOPO)["complete_rows"]) == 4


@pytest.mark.parametrize("text", [TOPO, GIDS, NUMACTL, IBSTAT], ids=["topo", "show_gids", "numactl", "ibstat"])
@pytest.mark.parametrize("mark", ["# ", " * ", "// ", "- ", "> > ", "+> "])
def test_comments_and_quotes(text: str, mark: str) -> None:
    assert only("".join(f"{mark}{line}\n" for line in text.splitlines())) == only(text)


def test_a_field_that_looks_like_the_name_of_a_host() -> None:
    """`lspci -vvv | grep ACSCtl` writes the same word before every line."""
    facts = only("ACSCtl: SrcValid- ReqRedir+\n" * 4)
    assert [device["acs_ctl"]["ReqRedir"] for device in facts["devices"]] == [True] * 4


def test_code_within_a_line_keeps_the_blank_before_it() -> None:
    """A command identifies the text below it, even if a page marks it and numbers the lines."""
    text = "We ran `ethtool -S eth0 | grep discards`\n\n     outbound_pci_stalled: 3\n     device_out_of_buffer: 1\n"
    numbered = "".join(f"{number:6}\t{line}\n" for number, line in enumerate(text.splitlines(), 1))
    for shown in (text, numbered, text.replace("We ran ", "")):
        assert only(shown)["ports"] == {"eth0": {"outbound_pci_stalled": 3, "device_out_of_buffer": 1}}


def test_explanations_behind_the_lines() -> None:
    noted = IBSTAT.replace("Rate: 400", "Rate: 400    <- must be 400").replace("Active", "Active   # not Down")
    assert only(noted) == only(IBSTAT)


def test_lines_that_were_left_out() -> None:
    """A text with omitted lines is incomplete, and the lines after them still belong to it."""
    (part,) = read(IBSTAT.replace("        CA type: MT4129\n", "        ...\n"))
    assert not part.taken.complete
    assert part.taken.facts["ports"][0]["rate_gbps"] == 400
    (part,) = read("GPU 0: NVIDIA H100 (UUID: GPU-1)\n  Link 0: 26.562 GB/s\n  [...]\n  Link 3: 26.562 GB/s\n")
    assert not part.taken.complete
    assert part.taken.facts["links"] == {"GPU0": [26.562, None, None, 26.562]}


def test_a_row_of_a_matrix_that_is_cut() -> None:
    """The cells before the cut are read, except the last if one of its digits may be missing."""
    (part,) = read(TOPO.rpartition("GPU3")[0] + "GPU3    NV18    NV18    NV1")
    assert part.taken.facts["cut_rows"] == ["GPU3"]
    assert part.taken.facts["missing_rows"] == part.taken.facts["nics"]
    assert part.taken.facts["links"]["GPU3"] == {"GPU0": "NV18", "GPU1": "NV18"}
    assert "GPU3" not in part.taken.facts["nearest_nics"]
    assert not [found for found in part.findings if found["status"] in ("fail", "warn")]


def test_rows_of_a_matrix_without_its_header() -> None:
    """The position of the X in each row shows which columns are GPUs."""
    facts = only("".join(TOPO.splitlines(keepends=True)[3:]))
    assert facts["gpus"] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert facts["links"]["GPU2"] == {"GPU0": "NV18", "GPU1": "NV18", "GPU3": "NV18"}
    assert facts["affinity"]["GPU3"]["cpu"] == "48-95,144-191"


def test_rows_of_nics_name_their_columns() -> None:
    nic = "NIC1    NODE    PIX     SYS     SYS     NODE     X      SYS     SYS\n"
    facts = only("".join([*TOPO.splitlines(keepends=True)[3:], nic]) + "\nNIC Legend:\n\n  NIC0: mlx5_0\n")
    assert facts["nics"] == ["NIC0", "NIC1", "NIC2", "NIC3"]
    assert facts["links"]["GPU3"]["NIC3"] == facts["links"]["NIC1"]["GPU1"] == "PIX"
    assert facts["affinity"]["GPU3"] == {"cpu": "48-95,144-191", "numa": "1", "gpu_numa_id": None}
    assert facts["nic_devices"] == {"NIC0": "mlx5_0"}


def test_a_matrix_with_glued_cells() -> None:
    """If a page lost the tabs, the codes can be separated; the numbers after them cannot."""
    facts = only("GPU0GPU1NIC0CPU AffinityNUMA Affinity\nGPU0 X NV12PXB0-310\nGPU1NV12 X SYS0-310\nNIC0PXBSYS X\n")
    assert facts["links"]["GPU0"] == {"GPU1": "NV12", "NIC0": "PXB"}
    assert facts["links"]["NIC0"] == {"GPU0": "PXB", "GPU1": "SYS"}
    assert facts["affinity"]["GPU0"] == {"cpu": None, "numa": None, "gpu_numa_id": None}
    facts = only(TOPO.replace("NODE    48-95", "NODE48-95").replace("0               N/A", "0N/A"))
    assert facts["affinity"]["GPU0"] == {"cpu": "0-47,96-143", "numa": "0", "gpu_numa_id": None}
    assert facts["affinity"]["GPU2"]["cpu"] == "48-95,144-191"


@pytest.mark.parametrize("cell", ["15", "XGMI", "True"])
def test_tables_of_another_maker_are_no_matrix(cell: str) -> None:
    """``rocm-smi --showtopo`` has the header of ``nvidia-smi topo -m`` above each of its tables."""
    table = f"       GPU0         GPU1         \nGPU0   0            {cell}\nGPU1   {cell}            0\n"
    assert read(f"===== Weight between two GPUs =====\n{table}\n===== Hops between two GPUs =====\n{table}") == []


def test_the_legend_of_nics_alone() -> None:
    facts = only("NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n")
    assert facts["nic_devices"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_bond_0"}
    assert facts["gpus"] == []
    assert facts["links"] == {}


def test_a_matrix_as_a_table_of_markdown() -> None:
    rows = [line.split() for line in TOPO.splitlines()[1:]]
    header = ["", *TOPO.split()[:8], "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    table = [header, ["---"] * len(header), *rows]
    assert only("".join(f"| {' | '.join(row)} |\n" for row in table)) == only(TOPO)


def test_counters_without_their_head() -> None:
    (part,) = read("".join(PERFQUERY.splitlines(keepends=True)[3:]))
    assert part.kind == "perfquery"
    assert part.taken.facts["counters"] == {"SymbolErrorCounter": 7, "LinkDownedCounter": 1, "PortXmitWait": 2}
    assert not part.taken.complete


def test_other_objects_of_rdma_are_no_ports() -> None:
    assert read("link mlx5_0/1 lqpn 0 type SMI state RTS sq-psn 0 comm [ib_core]\n") == []


def test_kinds_below_a_reason_for_slow_clocks() -> None:
    text = """\
Attached GPUs                             : 1
GPU 00000000:39:00.0
    Product Name                          : NVIDIA H100
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Active
"""
    assert only(text)["gpus"][0]["clocks_event_reasons"] == ["hw_slowdown", "hw_power_brake_slowdown"]


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("PFC configuration:\n\tpriority:  0 1 2 3 4 5 6 7\n\tenabled:   0 0 0 1 0 0 0 0\n", "3"),
        ("PFC configuration:  enabled 0 0 0 0 0 1 0 0\n", "5"),
        ("pfc-cap 8 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off delay 0\n", "3"),
    ],
    ids=["colons", "one line", "dcb in one line"],
)  # fmt: skip
def test_ways_to_show_pfc(text: str, priority: str) -> None:
    assert [number for number, on in only(text)["pfc"].items() if on] == [priority]


def test_pause_as_json() -> None:
    facts = only('[ {\n  "ifname": "eth0",\n  "autonegotiate": true,\n  "rx": true,\n  "tx": false\n} ]\n')
    assert (facts["rx"], facts["tx"], facts["rx_negotiated"]) == (True, False, None)


def test_shortened_gids_are_unknown() -> None:
    facts = only("mlx5_0\t1\t3\tfe80:...:f96a\t\tv2\teth0\n")
    assert (facts["gids"][0]["gid"], facts["gids"][0]["version"]) == (None, "v2")


def test_one_fast_port_may_have_been_cut_off() -> None:
    """In a cut list it is unknown whether all ports are active, and whether all have a small MTU."""
    port = "\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t1024 (3)\n\t\t\tlink_layer:\tEthernet\n"
    (part,) = read(f"hca_id:\tmlx5_0\n\tphys_port_cnt:\t2\n{port}")
    assert {found["status"] for found in part.findings} == {"unknown"}

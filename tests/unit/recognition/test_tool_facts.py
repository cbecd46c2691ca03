"""Facts of tools that a reading of new texts showed to be missing or wrong, and the healthy form of each text."""

from __future__ import annotations

from typing import Any

from preflight.parsers import nccl_log
from preflight.parsers.nccl_log.to_json import document
from preflight.recognition import read_text

LIMITS = """\
real-time non-blocking time  (microseconds, -R) unlimited
core file size              (blocks, -c) 0
max locked memory           (kbytes, -l) {locked}
open files                          (-n) 1048576
pipe size                (512 bytes, -p) 8
POSIX message queues         (bytes, -q) 819200
stack size                  (kbytes, -s) 8192
"""

DIAGNOSTIC = """\
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | {result} |
{warning}+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""

TRACKING = """\
Reference ID    : {source}
Stratum         : {stratum}
System time     : 0.000002200 seconds fast of NTP time
Root delay      : 0.000210000 seconds
Leap status     : {leap}
"""

COPIES = """\
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1         2         3
 0       N/A    391.10    390.02    {last}
 1    391.40       N/A    390.70    {last}
 2    390.91    390.66       N/A    {last}
 3    390.31    390.35    390.44       N/A

SUM device_to_device_memcpy_read_ce 4500.00
"""

WRITES = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_4
 Number of qps   : 2		Transport type : IB
 Link type       : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
{row}
"""

PEERS = " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\t{code}\n GPU1\tOK\tX\t{code}\n GPU2\t{code}\t{code}\tX\n"

CHANNELS = """\
a1:10:20 [0] NCCL INFO Using network IB
a1:10:20 [0] NCCL INFO comm 0x10 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
a1:10:30 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
a2:11:21 [0] NCCL INFO Using network IB
a2:11:31 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/IB/0{direct}
a2:11:31 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [receive] via NET/IB/0{direct}
"""

#: Lines of two hosts, without a line that states the size of the job.
EXCERPT = """\
b1:10:20 [1] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.3.0.4<41011> failed : Connection refused
b1:10:20 [1] NCCL INFO misc/socket.cc:564 -> 2
--
b2:12:22 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.3.0.4<41011> failed : Connection refused
"""


def part_of(text: str) -> Any:
    (part,) = read_text(text, "p")
    return part


def facts_of(text: str) -> Any:
    return part_of(text).taken.facts


def facts_of_log(text: str) -> Any:
    log = nccl_log.parse(text)
    assert log is not None
    return document(log)


def problems(text: str) -> list[str]:
    return [f"{item['status']} {item['message']}" for item in part_of(text).findings if item["status"] != "pass"]


def test_units_and_names_of_all_limits_are_read() -> None:
    limits = facts_of(LIMITS.format(locked="unlimited"))["limits"]
    assert (limits["pipe size"], limits["POSIX message queues"], limits["stack size"]) == (8 * 512, 819200, 8 << 20)
    assert not problems(LIMITS.format(locked="unlimited"))
    assert "limited to 64 MiB" in problems(LIMITS.format(locked="65536"))[0]


def test_a_warning_of_a_gpu_belongs_to_its_test() -> None:
    warning = "| Warning: GPU 6            | Detected 180 PCIe replays in 60 seconds         |\n"
    text = DIAGNOSTIC.format(result="Fail - GPU: 6".ljust(46), warning=warning)
    assert "Detected 180 PCIe replays" in problems(text)[0]
    assert "Warning: GPU 6" not in facts_of(text)["versions"]
    assert not problems(DIAGNOSTIC.format(result="Pass - All".ljust(46), warning=""))


def test_the_stratum_of_a_clock() -> None:
    good = TRACKING.format(source="0A010203 (ntp2.cluster.local)", stratum=3, leap="Normal")
    assert facts_of(good)["stratum"] == 3
    assert facts_of(good)["fields"]["Leap status"] == "Normal"
    assert not problems(good)
    bad = TRACKING.format(source="00000000 ()", stratum=0, leap="Not synchronised")
    assert facts_of(bad)["stratum"] == 0
    assert problems(bad)


def test_an_arrow_in_a_title_is_no_remark() -> None:
    assert len(facts_of(COPIES.format(last="390.50"))["tests"]) == 1
    assert not [text for text in problems(COPIES.format(last="390.50")) if "slow" in text]
    assert "3 of 12 copies are slow" in problems(COPIES.format(last=" 48.50"))[0]


def test_the_status_of_a_failed_completion() -> None:
    bad = facts_of(WRITES.format(row=" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81"))
    assert (bad["status"], bad["syndrome"], bad["fields"]["Number of qps"]) == (12, "0x81", "2")
    good = facts_of(WRITES.format(row=" 65536      5000             391.90             391.55		   0.746"))
    assert (good["status"], good["syndrome"], good["error"]) == (None, None, None)


def test_pairs_without_peer_access_are_named() -> None:
    assert "2 pairs of GPUs (GPU0-GPU2, GPU1-GPU2): CNS" in problems(PEERS.format(code="CNS"))[0]
    assert not problems(PEERS.format(code="OK"))


def test_gpudirect_of_all_channels() -> None:
    mixed, good = facts_of_log(CHANNELS.format(direct="")), facts_of_log(CHANNELS.format(direct="/GDRDMA"))
    assert (mixed["gpudirect_rdma"], mixed["gpudirect_rdma_channels"]) == (False, {"with": 1, "without": 2})
    assert (good["gpudirect_rdma"], good["gpudirect_rdma_channels"]) == (True, {"with": 3, "without": 0})


def test_hosts_of_an_excerpt_are_not_the_nodes_of_the_job() -> None:
    facts = facts_of_log(EXCERPT)
    assert (facts["nnodes"], facts["hosts"], facts["failures"][0]["count"]) == (None, ["b1", "b2"], 2)
    assert facts_of_log(CHANNELS.format(direct=""))["nnodes"] == 2
    two = "".join(f"c{n}:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {n} nranks 2 cudaDev 0 busId 1000 - Init"
                  " COMPLETE\n" for n in (0, 1))  # fmt: skip
    assert facts_of_log(two)["nnodes"] == 2


ROWS = "index, name, memory.used [MiB], memory.total [MiB]\n0, NVIDIA H200, {used} MiB, 143771 MiB\n"
JOBS = """\
JobID             State ExitCode   NodeList
------------ ---------- -------- ----------
88             {state:>8}      0:0     n[4-{last}]
"""
CPUS = """\
Architecture:            x86_64
CPU(s):                  128
  On-line CPU(s) list:   {online}
{offline}Socket(s):               1
NUMA node0 CPU(s):       {online}
"""


def test_full_memory_in_a_list_of_values() -> None:
    full, idle = ROWS.format(used=143601), ROWS.format(used=4)
    assert problems(full) == ["warn GPU0: 100% of its memory is used"]
    assert facts_of(full)["gpus"][0]["index"] == "0"
    assert not problems(idle)


def test_a_word_beyond_its_column_is_read_to_its_end() -> None:
    for last in (5, 12, 120, 1200):  # the last ones reach beyond the column
        (job,) = facts_of(JOBS.format(state="COMPLETED", last=last))["jobs"]
        assert (job["nodes"], job["state"]) == (f"n[4-{last}]", "COMPLETED")
    assert "n[4-1200]" in problems(JOBS.format(state="NODE_FAIL", last=1200))[0]


def test_cpus_that_are_off() -> None:
    off = CPUS.format(online="0-63", offline="  Off-line CPU(s) list:  64-127\n")
    assert facts_of(off)["offline_cpus"] == "64-127"
    assert "64-127 are offline" in problems(off)[0]
    assert not problems(CPUS.format(online="0-127", offline=""))

"""Causes and values in a text, and similar texts without any; made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight import recognition
from preflight.recognition import read_text
from preflight.recognition.input_sources import InputSource


def findings(text: str) -> list[Mapping[str, Any]]:
    return [finding for part in read_text(text, "pasted") for finding in part.findings]


PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_2
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 {row}
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(("row", "status"), [
    ("4194304    10000            385.20             88.75\t\t   0.002645", "warn"),
    ("4194304    10000            385.20             384.11\t\t   0.011448", "unknown"),
    ("4194304    10000            0.00               88.75\t\t   0.002645", "unknown"),  # -D measures no peak
    ("64         10000            4.20               1.10\t\t   2.148438", "unknown"),  # small messages vary
])  # fmt: skip
def test_an_average_far_below_the_peak_in_its_row(row: str, status: str) -> None:
    (finding,) = findings(PERFTEST.format(row=row))
    assert finding["status"] == status
    assert ("385.2 Gb/s" in finding["message"] and "88.75 Gb/s" in finding["message"]) == (status == "warn")


CONTAINED = "[881.20] NVRM: Xid (PCI:0000:3b:00): 94, pid=5150, name=python3, Contained: SM (0x1). RST: No, D-RST: No\n"
REMAPPED = (
    "[881.10] NVRM: Xid (PCI:0000:{bus}:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row "
    "(0x00000000051a77c1) marked for remapping, reset gpu to activate.\n"
)


@pytest.mark.parametrize(("text", "reset"), [
    (REMAPPED.format(bus="3b") + CONTAINED, True), (CONTAINED + REMAPPED.format(bus="3b"), True), (CONTAINED, False),
    (REMAPPED.format(bus="5e") + CONTAINED, False),  # the remapping of another GPU
])  # fmt: skip
def test_a_reset_activates_the_remapping_of_a_contained_error(text: str, reset: bool) -> None:
    (finding,) = (finding for finding in findings(text) if "Xid 94" in finding["message"])
    assert ("nvidia-smi -r" in finding["fix"]) == reset
    assert finding["action"] == ("reset" if reset else "fix-job")


LOST = """\
{0} has lost communication with a remote daemon.

  HNP daemon   : [{1},0] on node opal-007
  Remote daemon: [{1},3] on node opal-061

"""


@pytest.mark.parametrize(("launcher", "name"), [("ORTE", "[41007,0]"), ("PRTE", "prterun-opal-007-2218@0")])
def test_a_daemon_that_was_lost_names_its_node(launcher: str, name: str) -> None:
    (finding,) = findings(LOST.format(launcher, name))
    assert "opal-061" in str(finding)
    assert "lost the daemon" in finding["message"]
    assert "could not start" not in finding["message"]


def test_a_daemon_that_did_not_start_is_not_lost() -> None:
    (finding,) = findings("ORTE was unable to reliably start one or more daemons.\n")
    assert "could not start" in finding["message"]


def test_the_stated_cause_of_a_bus_error() -> None:
    stated = (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
    )
    ended = "RuntimeError: DataLoader worker (pid(s) 3307) exited unexpectedly"
    assert "host.shm" in {
        finding["check"] for finding in findings(f"{stated}\n{ended}\n") if finding["status"] == "fail"
    }
    assert "host.shm" not in {finding["check"] for finding in findings(f"{ended}\n")}


NCCL_TESTS = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 16777216 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4410 on    gpu-a1 device  0 [0000:07:00] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid   4410 on    gpu-a1 device  1 [0000:0f:00] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    31.10   33.72   33.72      0    30.90   33.93   33.93      0
     4194304       1048576     float     sum      -1    52.30   80.20   80.20      0    52.10   80.51   80.51      5
    16777216       4194304     float     sum      -1   130.20  128.86  128.86  2.09715e+06   130.00  129.06  129.06  917504
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 81.0467
#
"""  # noqa: E501


def test_each_size_with_wrong_values_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(NCCL_TESTS, encoding="utf-8")
    parts = recognition.read(InputSource("run.log", path, NCCL_TESTS))
    report = [finding for part in parts for finding in part.findings]
    (finding,) = (finding for finding in report if finding["check"] == "nccl-tests.wrong-values")
    assert "5 wrong values at 4 MiB, 2097150 wrong values at 16 MiB" in finding["message"]
    assert "1 MiB" not in finding["message"].replace("4 MiB", "").replace("16 MiB", "")


ENGINE = """\
vllm:num_requests_running{{engine="0",model_name="acme-7b"}} 12.0
vllm:num_requests_waiting{{engine="0",model_name="acme-7b"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="acme-7b"}} 0.41
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="acme-7b"}} 5120.0
{0}"""
FEW = """\
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="acme-7b"} 3.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="acme-7b"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="acme-7b"} 1.2
"""


@pytest.mark.parametrize(("metric", "few"), [("", False), (FEW, True)])
def test_few_first_tokens_are_counted_only_where_they_are_reported(metric: str, few: bool) -> None:
    (finding,) = (finding for finding in findings(ENGINE.format(metric)) if finding["check"] == "serving.first-token")
    assert finding["status"] == "unknown"
    assert ("fewer than" in finding["message"]) == few


STEP = (
    "[titan] 2025-03-02 04:{minute:02}:10,220 - root - INFO - step: {step}  loss:  2.1{step}  grad_norm:  0.3012  "
    "{rest}\n"
)


def steps(*rates: str) -> str:
    return "".join(
        STEP.format(minute=at, step=500 + 10 * at, rest=f"memory: 50.10GiB(63.30%)  tps: {rate}  mfu: 40.10%")
        for at, rate in enumerate(rates)
    )


def test_a_throughput_is_no_step_time() -> None:
    fast, slow = ["6,204", "6,199", "6,210", "6,201"], ["2,490", "2,487", "2,495", "2,491"]
    (finding,) = (finding for finding in findings(steps(*fast, *slow)) if finding["status"] == "warn")
    assert "6,202, then 2,490 tokens/s" in finding["message"]
    assert " s, then" not in finding["message"]
    assert not any(finding["status"] == "warn" for finding in findings(steps(*fast, *fast)))


FIRMWARE = (
    "[812.200] {1}[Hardware Error]: event severity: recoverable\n"
    "[812.201] {1}[Hardware Error]:   section_type: memory error\n"
)
MODULE = (
    "[812.204] EDAC MC2: 1 UE memory read error on CPU_SrcID#0_MC#2_Chan#1_DIMM#0 (channel:1 slot:0 page:0x71c02a "
    "offset:0x80 grain:32 -  err_code:0x00a0:0x0090)\n"
)
PAGE = "[{at}] Memory failure: 0x71c02a: recovery action for dirty LRU page: Recovered\n"


@pytest.mark.parametrize(("text", "number"), [
    (MODULE + PAGE.format(at="812.206"), 1), (FIRMWARE + MODULE + PAGE.format(at="812.206"), 1),
    (MODULE + PAGE.format(at="9100.5"), 2),  # another one, hours later
])  # fmt: skip
def test_one_memory_error_is_counted_once(text: str, number: int) -> None:
    assert len([finding for finding in findings(text) if "uncorrected memory error" in finding["message"]]) == number

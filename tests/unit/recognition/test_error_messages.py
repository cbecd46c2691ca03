"""Error messages that people paste: recognised, each with a check and the next command."""

from __future__ import annotations

import pytest

from preflight.recognition import read_text

EVERYDAY = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB.": ("framework error", "gpu.memory-headroom"),
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": ("framework error", "gpu.ecc-uncorrected"),
    "RuntimeError: No CUDA GPUs are available": ("framework error", "gpu.driver"),
    "RuntimeError: Did you run some cuda functions? Error 802: system not yet initialized": (
        "framework error", "nvlink.fabric-manager",
    ),
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": ("nvidia-smi error", "gpu.driver"),
    "Failed to initialize NVML: Driver/library version mismatch": ("nvidia-smi error", "versions.driver-files"),
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": (
        "framework error", "gpu.memory-headroom",
    ),
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.": ("slurm error", "kernel.events"),
    "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister": ("framework error", "versions.nccl"),
    "Bus error (core dumped)": ("framework error", "host.shm"),
    "  exitcode  : -9 (pid: 4711)": ("framework error", "kernel.events"),
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is out of shared memory.": (
        "framework error", "host.shm",
    ),
    "[c10d] The server socket has failed to listen. code: -98, name: EADDRINUSE": (
        "framework error", "host.local-ports",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", EVERYDAY)
def test_an_everyday_message_has_its_check_and_a_next_step(line: str) -> None:
    kind, check = EVERYDAY[line]
    (part,) = read_text(f"{line}\n", "pasted")
    (finding,) = part.findings
    assert (part.kind, finding["check"], finding["status"]) == (kind, check, "fail")
    assert finding["fix"].count("`") >= 6
    assert part.taken.facts["errors"][0]["line"] == 1


PROSE = (
    "I always get CUDA out of memory when my batch is too large.",
    "Why does nvidia-smi show No devices were found on your cluster?",
    "    raise RuntimeError('CUDA out of memory')",
    "# Bus error (core dumped) is what we saw last week",
    "gpu7:1:2 [0] NCCL WARN Cuda failure 'out of memory'",
)


@pytest.mark.parametrize("line", PROSE)
def test_a_message_that_a_person_or_a_program_quotes_is_none(line: str) -> None:
    assert read_text(f"{line}\n", "pasted") == []


def test_the_cause_comes_before_what_follows_from_it() -> None:
    (part,) = read_text("ChildFailedError:\n  exitcode  : -9 (pid: 4711)\n", "pasted")
    assert [finding["check"] for finding in part.findings] == ["kernel.events", "job.errors"]


def test_two_nodes_of_one_log_are_apart() -> None:
    line = "Feb 18 12:54:0{} gpu{} kernel: NVRM: Xid (PCI:0000:3c:00): {}, pid=7, name=x, y\n"
    (part,) = read_text(line.format(1, 7, 79) + line.format(2, 8, 31), "pasted")
    messages = sorted(finding["message"].split(":")[0] for finding in part.findings if finding["check"] == "xid.gpu")
    assert messages == ["gpu7", "gpu8"]


def test_a_launcher_names_the_node() -> None:
    (part,) = read_text(
        "node12: NVRM: Xid (PCI:0000:3c:00): 79, pid=7, name=x, GPU has fallen off the bus.\n", "pasted"
    )
    assert part.findings[0]["nodes"] == ["node12"]


def messages(text: str) -> list[tuple[str, str]]:
    return [(finding["status"], finding["message"]) for part in read_text(text, "pasted") for finding in part.findings]


def test_printed_figures_stand_in_the_finding() -> None:
    text = (
        "(Worker pid=31) ERROR 10-03 07:00:00 [core.py:12] ValueError: To serve at least one request with the max seq"
        " len (65536), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory (11.25 GiB)."
    )
    ((_, message),) = messages(text)
    assert "24.00 GiB" in message
    assert "11.25 GiB" in message


def test_each_different_text_of_one_cause_is_quoted_once() -> None:
    text = "Completion with error at client\n" + "".join(
        f"Failed status 12: wr_id {id} syndrom 0x81\n" for id in (4, 5)
    )
    ((_, message),) = messages(text)
    assert message.count("Failed status 12") == 1
    assert "Completion with error" in message


def test_a_local_rank_is_not_the_rank() -> None:
    text = """E1003 07:00:00.100000 77 api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 90) of binary: /bin/python
  host      : gn-31
  rank      : 27 (local_rank: 3)
  exitcode  : -9 (pid: 90)
"""
    ranks = {error["rank"] for part in read_text(text, "pasted") for error in part.taken.facts["errors"]}
    assert ranks == {27}, "the summary gives the rank of the process"
    assert "(rank 27)" in messages(text)[0][1]


def test_an_expired_credential_is_a_matter_of_clocks() -> None:
    text = (
        "slurmd: error: Munge decode failed: Expired credential\n"
        "slurmd: error: ENCODED: Sat Oct 03 07:00:00 2026\nslurmd: error: DECODED: Sat Oct 03 07:09:30 2026\n"
    )
    ((_, message),) = messages(text)
    assert "clocks" in message
    assert "07:09:30" in message
    refused = messages("slurmd: error: Munge decode failed: Invalid credential\n")
    assert "the nodes' clocks differ" not in refused[0][1]


def test_of_many_lines_the_last_ones_have_the_cause() -> None:
    text = """slurmstepd: error: pyxis: child 710 failed with error code: 1
slurmstepd: error: pyxis: failed to create container filesystem
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/a.sqsh
"""
    assert "/images/a.sqsh" in messages(text)[0][1]


def test_the_limit_that_refused_a_job() -> None:
    text = "sbatch: error: AssocGrpGRES\nsbatch: error: Batch job submission failed: Job violates accounting policy\n"
    ((_, message),) = messages(text)
    assert "AssocGrpGRES" in message


def test_an_exception_behind_the_name_of_its_rank() -> None:
    ((status, message),) = messages("[rank8]: AssertionError: no index for split 'valid' in /data/c4\n")
    assert status == "unknown"
    assert "/data/c4" in message


def test_a_row_over_the_width_of_a_table_of_dcgmi() -> None:
    text = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                                                                                  |
| -> 2                      | Failure                                                  |
|    -> Errors                                                                         |
|       -> PCIe system      | Failure                                                  |
|                           | Detected 90 replays per minute                           |
+---------------------------+----------------------------------------------------------+
"""
    ((status, message),) = messages(text)
    assert status == "fail"
    assert message.startswith("GPU 2: PCIe system")


INTERFACE = """{number}: ens{number}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP group default
    link/ether b8:3f:d2:00:00:0{number} brd ff:ff:ff:ff:ff:ff
    inet {address} brd 10.9.0.255 scope global ens{number}
"""


@pytest.mark.parametrize(
    ("addresses", "mtu", "named"),
    [
        (("10.9.0.4/24", "10.9.0.5/24"), 9000, True),
        (("10.9.0.4/24", "10.9.1.5/24"), 9000, False),
        (("10.9.0.4/31", "10.9.0.5/31"), 9000, False),  # both ends of one cable
        (("10.9.0.4/24", "10.9.0.5/24"), 1500, True),  # rails without jumbo frames, or none
    ],
)
def test_rails_in_one_subnet(addresses: tuple[str, str], mtu: int, named: bool) -> None:
    text = "".join(INTERFACE.format(number=at, mtu=mtu, address=own) for at, own in enumerate(addresses, 2))
    assert any(status == "unknown" and "10.9.0.0/24" in message for status, message in messages(text)) == named


def test_a_peer_that_mpi_does_not_reach() -> None:
    text = """WARNING: Open MPI failed to TCP connect to a peer MPI process.  This
should not happen.

  Local host: gn-1
  Message:    connect() to 10.9.0.9:1025 failed
  Error:      No route to host (113)
"""
    assert messages(text)[0][0] == "fail"
    assert "10.9.0.9:1025" in messages(text)[0][1]


def test_the_task_that_stopped_sending_heartbeats() -> None:
    text = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax/replica:0/task:4\n"
    ((status, message),) = messages(text)
    assert status == "fail"
    assert "task:4" in message


def test_a_bus_error_has_several_causes() -> None:
    text = "run.sh: line 12: 4711 Bus error               (core dumped) python3 train.py\n"
    findings = [finding for part in read_text(text, "pasted") for finding in part.findings]
    assert [finding["check"] for finding in findings] == ["host.shm"]
    assert all(cause in findings[0]["message"] for cause in ("/dev/shm", "truncated", "uncorrected"))

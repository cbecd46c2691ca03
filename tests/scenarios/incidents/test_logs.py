"""A job's log beside its nodes: one incident for each cause, also where a log and a node show the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from preflight._startup.lightclass import replace
from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations.cluster_file import decode
from preflight.facts.inventory import DISK_SPACE
from preflight.facts.nvidia.model import Process
from preflight.judge import judge
from preflight.nodeset import unfold
from preflight.parsers.host.mounts import MOUNTS
from preflight.reports.keep_off import bad_nodes
from preflight.reports.verdict_line import headline
from tests.scenarios.incidents.combinations import MORE, PLANTED
from tests.scenarios.incidents.test_situations import Situation, named
from tests.support.machines.inventory import DISKS, HEAD, ROOT_SPACE
from tests.support.machines.records import ok, ran
from tests.support.machines.system import NFS
from tests.support.planted_fleet import CLUSTER
from tests.support.whole_nodes import Fault, both, env, gpu, health, nic, node, record

OFF = "NCCL_IB_DISABLE set by environment to 1."
NOTHING = ("NCCL_IB_HCA set to mlx5_11", "NET/IB : No device found.")
HCAS = ["mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"]
DOWN = {"state": "DOWN", "physical": "Polling"}
NO_UVERBS = nic("mlx5_11", uverbs=False)
FLAPS = nic("mlx5_5", grows={"link_downed": 1})
DIED = nic("mlx5_5", grows={"req_transport_retries_exceeded": 2})


def lines(number: int, *more: str, network: str = "IB") -> str:
    """Return what one rank of a node logs, over RDMA or over TCP."""
    direct = "IB/0/GDRDMA" if network == "IB" else "Socket/0"
    listed = " ".join(f"[{index}]{device}:1/RoCE" for index, device in enumerate(HCAS) if network == "IB")
    logged = (
        f"Bootstrap: Using eno1:192.0.2.{number}<0>", "NCCL version 2.26.2+cuda12.8", *more,
        f"NET/IB : Using {listed} [RO]; OOB eno1:192.0.2.{number}<0>", f"Using network {network}",
        f"comm 0x55e1a2b0 rank {number - 1} nRanks 3 nNodes 3 localRanks 1 localRank 0 MNNVL 0",
        f"Channel 00/0 : {number - 1}[0] -> {number % 3}[0] [send] via NET/{direct}",
    )  # fmt: skip
    return "".join(f"gpu{number:03d}:7:7 [0] NCCL INFO {line}\n" for line in logged)


def failed_queue_pair(number: int, rail: int, peer: int, process: int = 7) -> str:
    """Return NCCL's line of a queue pair whose packets the peer never acknowledged."""
    ends = f"localGid ::ffff:10.{rail}.0.{2 * number + 1} remoteGids::ffff:10.{rail}.0.{2 * peer + 1}"
    return (
        f"gpu{number:03d}:{process}:{process} [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer "
        f"192.0.2.{peer}<41000> with status=12 opcode=0 len=0 vendor err 129 (Send) {ends} hca {HCAS[rail]}\n"
    )


def nccl(number: int, gpu: int, message: str) -> str:
    """Return a warning of NCCL on a node of eight ranks."""
    return f"gpu{number:03d}:{7 + gpu}:{7 + gpu} [{gpu}] init.cc:1700 NCCL WARN {message}\n"


def cuda(number: int, gpu: int, error: str) -> str:
    """Return NCCL's line of a failed call of CUDA."""
    return nccl(number, gpu, f"Cuda failure '{error}'")


def raised(rank: int, error: str) -> str:
    """Return the last line of a rank's traceback."""
    return f"[rank{rank}]: {error}\n" if "Error" in error else f"[rank{rank}]: RuntimeError: CUDA error: {error}\n"


def ranks(gpus: int) -> str:
    """Return the NCCL log of a job with this many ranks on each of three nodes."""
    return "".join(
        f"gpu{number:03d}:{7 + gpu}:{7 + gpu} [{gpu}] NCCL INFO {line}\n"
        for number in (1, 2, 3) for gpu in range(gpus)
        for line in ("NCCL version 2.26.2+cuda12.8", f"comm 0x55e1a2b0 rank {gpus * (number - 1) + gpu} "
                     f"nRanks {3 * gpus} nNodes 3 localRanks {gpus} localRank {gpu} MNNVL 0", "Using network IB")
    )  # fmt: skip


EIGHT, FOUR = ranks(8), ranks(4)
WORKER_KILLED = "[rank11]: RuntimeError: DataLoader worker (pid 5170) is killed by signal: Killed.\n"
WORKERS_ENDED = "[rank11]: RuntimeError: DataLoader worker (pid(s) 5169, 5170) exited unexpectedly\n"
ECC, SHM = "uncorrectable ECC error encountered", "Error while creating shared memory segment /dev/shm/nccl-a (size 9)"
NO_SPACE, SCRATCH = "OSError: [Errno 28] No space left on device:", "host.file-systems @gpu002 site drifts"
FULL = record(DISK_SPACE, ran(f"{HEAD}{ROOT_SPACE}xfs 30725966397440 0 3000975360 3000870112 /scratch\n"))
XID_48 = node(kernel_log=(
    "<4>[421000.1] NVRM: Xid (PCI:0000:61:00): 48, pid=4711, name=python3, An uncorrectable double bit error (DBE) has "
    "been detected on GPU in the framebuffer at partition 1, subpartition 0.",
))  # fmt: skip


def lost(number: int) -> Fault:
    """Plant a GPU that fell off the bus, with the Xid that names its address."""
    bus = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")[number]
    line = (
        f"<4>[42100{number}.1] NVRM: Xid (PCI:0000:{bus}:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
    )
    return lambda machine: replace(gpu(number, on_bus=False)(machine), kernel_log=(*machine.kernel_log, line))


def bad_gpu(number: int) -> Fault:
    """Plant an uncorrectable memory error in a GPU."""
    return health(number, ecc_volatile_dram_uncorrected=1)


UNKNOWN_3 = cuda(2, 3, "unknown error") + raised(11, "unknown error")
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 3 has a total capacity of 79 GiB"
)


#: The lines with which PyTorch names another process on the GPU, or only its own.
OF_8812 = f"{NO_MEMORY} of which 1.00 GiB is free. Process 8812 has 72.27 GiB memory in use."
ALL_ITS_OWN = f"{NO_MEMORY} of which 1.00 GiB is free. Including others, this process has 77.80 GiB memory in use."
LITTLE_ITS_OWN = ALL_ITS_OWN.replace("77.80", "5.73")


def held(number: int) -> Fault:
    """Plant a process that holds most of a GPU's memory."""
    return health(number, processes=(Process(8812, "python3", 74000),), memory_used_mib=74004)


def killed(pid: int, name: str = "python3", group: str = "/slurm/job_7") -> Fault:
    """Plant the kernel's lines about a process that it killed for lack of memory."""
    limit = f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,task_memcg={group},task={name},pid={pid}"
    return node(kernel_log=(
        f"<6>[430900.0] {limit},uid=0", f"<3>[430900.1] Out of memory: Killed process {pid} ({name}) total-vm:9kB",
    ))  # fmt: skip


def killed_at_limit(pid: int, group: str = "/slurm/uid_9/job_7") -> Fault:
    """Plant the kernel's lines about a process that it killed at its job's memory limit."""
    limit = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg={group},task_memcg={group}"
    return node(kernel_log=(
        f"<6>[430900.0] {limit},task=python3,pid={pid},uid=0",
        f"<3>[430900.1] Memory cgroup out of memory: Killed process {pid} (python3) total-vm:9kB",
    ))  # fmt: skip


def sigkill(pid: int) -> str:
    """Return what torchrun prints of rank 11, which is on gpu002."""
    return f"  host      : gpu002\n  rank      : 11 (local_rank: 3)\n  exitcode  : -9 (pid: {pid})\n"


OUT_OF_MEMORY = "kernel.events @gpu002 node blocks-job"
DRIFTS, KILLED = "gpu.left-over-processes @gpu002 job drifts", "kernel.events @gpu002 node drifts"
SHUT_DOWN = node(kernel_log=(
    "<2>[430001.1] XFS (md0): Corruption of in-memory data (0x8) detected at xfs_trans_cancel (fs/xfs/xfs_trans.c:109"
    "5).  Shutting down filesystem.",
))  # fmt: skip


CACHE = record(MOUNTS, ok(f"{DISKS}{NFS}88 81 259:31 / /scratch/cache rw shared:43 - ext4 /dev/nvme11n1 rw\n"))


def judged(faults: Mapping[int, Fault], *logs: str, cluster: str = CLUSTER) -> Any:
    """Return the report of three nodes and their logs."""
    evidences = [from_document(node, node["node"]) for node in Situation([("roce", 3)], faults).documents()]
    run = Evidence("@run", "", {f"log:{number}.log": {"status": "ok", "out": log} for number, log in enumerate(logs)})
    return judge(evidences, registry().checks, decode(cluster.encode(), "cluster.toml"), run=run)


LEFT_OVER = "gpu.left-over-processes @gpu002 job blocks-job"
IO_ERROR = "OSError: [Errno 5] Input/output error:"
UVERBS, SWITCH = "rdma.device-nodes @gpu002 site slows-job", "nccl.left-over-disables @gpu003 job slows-job"
IN_LOG = "nccl.transport @the run's logs job slows-job"
PORT = "rdma.port-state @gpu002 network blocks-job"
ALONE = "nccl.failures @the run's logs job blocks-job"
ERROR = ALONE.replace("nccl.failures", "job.errors")
BAD_GPU = "gpu.ecc-uncorrected @gpu002 node blocks-job"
GOOD = lines(1) + lines(2) + lines(3)

#: What happens: faults of nodes, the log, and the incidents.
CASES: Mapping[str, tuple[Mapping[int, Fault], str, Sequence[str]]] = {
    "healthy": ({}, GOOD, []),
    # TCP, each time for another reason
    "two hosts fall back to TCP, each for its own reason": (
        {2: NO_UVERBS, 3: env(NCCL_IB_DISABLE="1")},
        lines(1) + lines(2, *NOTHING, network="Socket") + lines(3, OFF, network="Socket"),
        [UVERBS, SWITCH],
    ),
    "the same, and only the log has the variable": (
        {2: NO_UVERBS}, lines(1) + lines(2, *NOTHING, network="Socket") + lines(3, OFF, network="Socket"),
        [UVERBS, IN_LOG],
    ),
    "the same, and only the log": (
        {}, lines(1) + lines(2, *NOTHING, network="Socket") + lines(3, OFF, network="Socket"), [IN_LOG, IN_LOG],
    ),
    "two variables on a node, one of which disables RDMA": (
        {3: env(NCCL_IB_DISABLE="1", NCCL_P2P_DISABLE="1")},
        lines(1) + lines(2) + lines(3, OFF, network="Socket"), [SWITCH, SWITCH],
    ),
    # a variable in the environment and in the log
    "a variable of a node is in the log": (
        {3: env(NCCL_IB_DISABLE="1")}, lines(1) + lines(2) + lines(3, OFF, network="Socket"), [SWITCH],
    ),
    "a variable that leaves the network alone is in the log": (
        {3: env(NCCL_P2P_DISABLE="1")},
        lines(1) + lines(2) + lines(3, "NCCL_P2P_DISABLE set by environment to 1."), [SWITCH],
    ),
    "another node has that variable": (
        {3: env(NCCL_P2P_DISABLE="1")},
        lines(1) + lines(2, "NCCL_P2P_DISABLE set by environment to 1.") + lines(3),
        [SWITCH, "nccl.run-settings @the run's logs job slows-job"],
    ),
    "a variable that only the log has": ({}, lines(1) + lines(2) + lines(3, OFF, network="Socket"), [IN_LOG]),
    # a port, and the connections through it
    "the port of a failed queue pair is down": (
        {2: nic("mlx5_5", **DOWN)}, GOOD + failed_queue_pair(2, 3, peer=1), [PORT],
    ),
    "the peer's port is down": ({2: nic("mlx5_5", **DOWN)}, GOOD + failed_queue_pair(1, 3, peer=2), [PORT]),
    "both sides report it, and the peer another rail as well": (
        {2: nic("mlx5_5", **DOWN)},
        GOOD + failed_queue_pair(2, 3, peer=1) + failed_queue_pair(1, 3, 2) + failed_queue_pair(1, 4, 2, 8), [PORT],
    ),
    "two ports are down, one of them in the log": (
        {2: both(nic("mlx5_5", **DOWN), nic("mlx5_9", **DOWN))}, GOOD + failed_queue_pair(2, 3, peer=1),
        [PORT, PORT.replace("blocks", "slows")],
    ),
    "two ports are down, both in the log": (
        {2: both(nic("mlx5_5", **DOWN), nic("mlx5_9", **DOWN))},
        GOOD + failed_queue_pair(2, 3, peer=1) + failed_queue_pair(2, 5, peer=1, process=8), [PORT, PORT],
    ),
    "a queue pair of another device": (
        {2: nic("mlx5_5", **DOWN)}, GOOD + failed_queue_pair(2, 5, peer=1), [ALONE, PORT.replace("blocks", "slows")],
    ),
    "a queue pair of another node": (
        {2: nic("mlx5_5", **DOWN)}, GOOD + failed_queue_pair(3, 3, peer=1), [ALONE, PORT.replace("blocks", "slows")],
    ),
    # a port that is up again: its counters show the cause
    "the port of a failed queue pair flaps": (
        {2: FLAPS}, GOOD + failed_queue_pair(2, 3, peer=1), ["counters.flaps @gpu002 network blocks-job"],
    ),
    "the peer's port flaps": (
        {2: FLAPS}, GOOD + failed_queue_pair(1, 3, peer=2), ["counters.flaps @gpu002 network blocks-job"],
    ),
    "its port damages packets and flaps": (
        {2: nic("mlx5_5", grows={"symbol_error": 60, "link_downed": 1})}, GOOD + failed_queue_pair(2, 3, peer=1),
        ["counters.link-quality @gpu002 network blocks-job"],
    ),
    "its port counts the failed queue pair": (
        {2: DIED}, GOOD + failed_queue_pair(2, 3, peer=1), ["counters.loss @gpu002 network blocks-job"],
    ),
    "its link flapped in the kernel log": (
        {2: MORE["port 5 flapped in the kernel log"]}, GOOD + failed_queue_pair(1, 3, peer=2),
        ["kernel.events @gpu002 network blocks-job"],
    ),
    "another link of the node flapped in the kernel log": (
        {2: MORE["port 5 flapped in the kernel log"]}, GOOD + failed_queue_pair(2, 5, peer=1),
        [ALONE, "kernel.events @gpu002 network drifts"],
    ),
    "another port of the node flaps": (
        {2: FLAPS}, GOOD + failed_queue_pair(2, 5, peer=1), ["counters.flaps @gpu002 network blocks-job", ALONE],
    ),
    "the same port of another node flaps": (
        {3: FLAPS}, GOOD + failed_queue_pair(2, 3, peer=1), ["counters.flaps @gpu003 network blocks-job", ALONE],
    ),
    "two ports flap, both in the log": (
        {2: FLAPS, 3: nic("mlx5_9", grows={"link_downed": 1})},
        GOOD + failed_queue_pair(2, 3, peer=1) + failed_queue_pair(3, 5, peer=1),
        ["counters.flaps @gpu002 network blocks-job", "counters.flaps @gpu003 network blocks-job"],
    ),
    "one port is down, another flaps, both in the log": (
        {2: FLAPS, 3: nic("mlx5_9", **DOWN)},
        GOOD + failed_queue_pair(2, 3, peer=1) + failed_queue_pair(3, 5, peer=1),
        ["counters.flaps @gpu002 network blocks-job", "rdma.port-state @gpu003 network blocks-job"],
    ),
    "a few symbol errors are no cause": (
        {2: nic("mlx5_5", grows={"symbol_error": 1})}, GOOD + failed_queue_pair(2, 3, peer=1),
        ["counters.link-quality @gpu002 network slows-job", ALONE],
    ),
    # errors of a GPU and of a host, in the log of its ranks: one incident with the fault of the node
    "a GPU with the error that NCCL and PyTorch print, and the disk that is full": (
        {2: both(bad_gpu(3), FULL)}, EIGHT + cuda(2, 3, ECC) + raised(11, ECC) + raised(12, f"{NO_SPACE} '/scratch/a'"),
        ["gpu.ecc-uncorrected @gpu002 node blocks-job", SCRATCH.replace("drifts", "blocks-job")],
    ),
    "another GPU, another place, and another node": (
        {2: both(bad_gpu(5), FULL), 3: node(shm_gib=0.0625)},
        EIGHT + cuda(2, 3, ECC) + raised(11, ECC) + raised(12, f"{NO_SPACE} '/home/a'") + nccl(2, 3, SHM),
        ["gpu.ecc-uncorrected @gpu002 node blocks-job", SCRATCH, "host.shm @gpu003 site blocks-job",
         ALONE, ALONE, ALONE.replace("nccl.failures", "job.errors")],
    ),
    "no node shows what NCCL and PyTorch print": ({}, EIGHT + cuda(2, 3, ECC) + raised(11, ECC), [ALONE]),
    "they print it of two GPUs": (
        {}, EIGHT + cuda(2, 3, ECC) + raised(12, ECC), [ALONE, ALONE.replace("nccl.failures", "job.errors")],
    ),
    "an XID of the same error": ({2: XID_48}, EIGHT + cuda(2, 3, ECC), ["xid.gpu @gpu002 node blocks-job"]),
    "a GPU off the bus, and the errors that NCCL and PyTorch print": (
        {2: gpu(3, on_bus=False)}, EIGHT + cuda(2, 3, "unknown error") + raised(11, "unknown error"),
        ["gpu.count @gpu002 node blocks-job"],
    ),
    "the kernel log shows its address": ({2: lost(3)}, EIGHT + UNKNOWN_3, ["gpu.count @gpu002 node blocks-job"]),
    "the address is of another GPU": ({2: lost(5)}, EIGHT + UNKNOWN_3, ["gpu.count @gpu002 node blocks-job", ALONE]),
    "one of two addresses is known: the error may be of the other one": (
        {2: both(lost(5), gpu(3, on_bus=False))}, EIGHT + UNKNOWN_3, ["gpu.count @gpu002 node blocks-job"],
    ),
    "both are known": (
        {2: both(lost(5), lost(6))}, EIGHT + UNKNOWN_3, ["gpu.count @gpu002 node blocks-job", ALONE],
    ),
    "the job has four of the eight GPUs": (
        {2: lost(5)}, FOUR + raised(7, "unknown error"), ["gpu.count @gpu002 node blocks-job"],
    ),
    "the loss moved the number of the GPU with the error": (
        {2: both(lost(1), bad_gpu(3))}, EIGHT + raised(11, ECC), ["gpu.count @gpu002 node blocks-job", BAD_GPU],
    ),
    "the error is of the GPU that now has this number": (
        {2: both(lost(1), bad_gpu(4))}, EIGHT + raised(11, ECC), ["gpu.count @gpu002 node blocks-job", BAD_GPU, ERROR],
    ),
    "it is unknown which GPU is lost": (
        {2: both(gpu(1, on_bus=False), bad_gpu(3))}, EIGHT + raised(11, ECC),
        ["gpu.count @gpu002 node blocks-job", BAD_GPU],
    ),
    "of another node": (
        {3: gpu(3, on_bus=False)}, EIGHT + cuda(2, 3, "unknown error") + raised(11, "unknown error"),
        ["gpu.count @gpu003 node blocks-job", ALONE],
    ),
    "a process of an earlier job holds the memory of a rank's GPU": (
        {2: held(3)}, EIGHT + raised(11, NO_MEMORY), [LEFT_OVER],
    ),
    "the same, and only NCCL prints it": (
        {2: held(3)}, EIGHT + cuda(2, 3, "out of memory"), [LEFT_OVER],
    ),
    "PyTorch names the process": ({2: held(3)}, EIGHT + raised(11, OF_8812), [LEFT_OVER]),
    "it names one that is gone": (
        {2: held(3)}, EIGHT + raised(11, OF_8812.replace("8812", "71")), [DRIFTS, ALONE],
    ),
    "its own process used all": ({2: held(3)}, EIGHT + raised(11, ALL_ITS_OWN), [DRIFTS, ALONE]),
    "its own used little": ({2: held(3)}, EIGHT + raised(11, LITTLE_ITS_OWN), [LEFT_OVER]),
    "the kernel killed the process of a rank": ({2: killed(5120)}, EIGHT + sigkill(5120), [OUT_OF_MEMORY]),
    "it killed another one": (
        {2: killed(220, "exporter")}, EIGHT + sigkill(5120), [KILLED, ERROR],
    ),
    "the kernel killed a worker of the data loader": ({2: killed(5170)}, EIGHT + WORKER_KILLED, [OUT_OF_MEMORY]),
    "it killed one of several workers": ({2: killed(5170)}, EIGHT + WORKERS_ENDED, [OUT_OF_MEMORY]),
    "it killed another process than the worker": ({2: killed(220)}, EIGHT + WORKER_KILLED, [KILLED, ERROR]),
    "in a container, PIDs are others": (
        {2: killed(5120, group="/kubepods/pod7")}, EIGHT + sigkill(63), [OUT_OF_MEMORY],
    ),
    "Slurm reports the kill": (
        {2: killed(5120)}, EIGHT + "slurmstepd-gpu002: error: Detected 1 oom_kill event in StepId=7.0. Some of the "
        "step tasks have been OOM Killed.\nsrun: error: gpu002: task 11: Out Of Memory\n", [OUT_OF_MEMORY],
    ),
    "Slurm reports one of another node": (
        {2: killed(5120)}, EIGHT + "srun: error: gpu003: task 19: Out Of Memory\n",
        [KILLED, ERROR],
    ),
    "a file system was shut down, and a rank cannot write to it": (
        {2: SHUT_DOWN}, EIGHT + raised(11, f"{IO_ERROR} '/scratch/a'"), [OUT_OF_MEMORY],
    ),
    "a rank cannot write elsewhere, or on another node": (
        {2: SHUT_DOWN}, EIGHT + raised(11, f"{IO_ERROR} '/home/a'") + raised(3, f"{IO_ERROR} '/scratch/a'"),
        [OUT_OF_MEMORY, ERROR],
    ),
    "it cannot write to another file system below it": (
        {2: both(SHUT_DOWN, CACHE)}, EIGHT + raised(11, f"{IO_ERROR} '/scratch/cache/a'"),
        [OUT_OF_MEMORY, ERROR, "fleet.host @gpu002 site drifts"],
    ),
    "the root file system became read-only": (
        {2: node(kernel_log=("<2>[430001.1] EXT4-fs (nvme0n1p2): Remounting filesystem read-only",))},
        EIGHT + raised(11, "OSError: [Errno 30] Read-only file system: '/var/tmp/a'"), [OUT_OF_MEMORY],
    ),
    "of another rank's GPU": (
        {2: held(4)}, EIGHT + raised(11, NO_MEMORY), ["gpu.left-over-processes @gpu002 job drifts", ALONE],
    ),
    "an interface that the node lacks, and a small /dev/shm": (
        {2: both(env(NCCL_SOCKET_IFNAME="bond7"), node(shm_gib=0.0625))},
        EIGHT + nccl(2, 3, "Bootstrap : no socket interface found") + nccl(2, 4, SHM),
        ["nccl.socket-ifname @gpu002 job blocks-job", "host.shm @gpu002 site blocks-job"],
    ),
    "only storage can be opened": (
        {2: both(*(nic(f"mlx5_{rail}", uverbs=False) for rail in (0, 3, 4, 5, 6, 9, 10, 11)))},
        lines(1) + lines(2, *NOTHING, network="Socket") + lines(3), [UVERBS],
    ),
    "a queue pair at the port, and one elsewhere": (
        {2: nic("mlx5_5", **DOWN)}, GOOD + failed_queue_pair(2, 3, peer=1) + failed_queue_pair(3, 5, 1), [ALONE, PORT],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_log_and_nodes(case: str) -> None:
    faults, log, incidents = CASES[case]
    report = judged(faults, log)
    assert sorted(named(report)) == sorted(incidents)
    failed = [entry for entry in report["incidents"] if entry["status"] == "fail" and entry["nodes"] == ["@run"]]
    shown = f"the run's logs show {len(failed)} problem{'s' * (len(failed) > 1)}" if failed else ""
    assert re.findall("the run's logs show [^;]*", headline(report)) == [shown] * bool(shown)
    assert not re.search(r"\d checks? failed", headline(report))
    ended = {entry["nodes"][0] for entry in report["incidents"]
             if entry["impact"] == "blocks-job" and entry["owner"] != "job"}  # fmt: skip
    assert not ended or ended <= set(unfold(bad_nodes(report)))


OF_71 = OF_8812.replace("Process 8812 has 72.27 GiB", "Process 71 has 0.52 GiB")


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (OF_8812, "find out which job owns process 8812 (`ps -fp 8812`), and end it if none does"),
        (ALL_ITS_OWN, "no other process uses much of that GPU's memory: use a smaller batch"),
        (f"{OF_71} Including others, this process has 77.10 GiB memory in use.", "no other process uses much"),
        (OF_71, "look for other processes on that GPU"),
        (LITTLE_ITS_OWN, "look for other processes on that GPU"),
        (NO_MEMORY, "look for other processes on that GPU"),
    ],
)
def test_step_for_a_full_gpu_follows_from_the_figures_of_the_message(error: str, step: str) -> None:
    (incident,) = judged({}, EIGHT + raised(11, error))["incidents"]
    assert incident["next"].startswith(step)
    assert "leave memory for NCCL's buffers" in incident["next"]


AT_LIMIT = "a process was killed by the kernel at its job's memory limit: python3 (pid 5170) on gpu002 (rank"


@pytest.mark.parametrize(
    ("faults", "log", "is_named"),
    [
        ({2: killed_at_limit(5170)}, WORKER_KILLED, True),
        ({2: killed_at_limit(5170)}, WORKERS_ENDED, True),
        ({2: killed_at_limit(5170)}, sigkill(5170), True),
        ({2: killed_at_limit(71)}, WORKER_KILLED, False),  # another process
        ({3: killed_at_limit(5170)}, WORKER_KILLED, False),  # the same PID on another node
        ({2: killed_at_limit(5170, "/kubepods/pod7")}, WORKER_KILLED, False),  # in a container, PIDs are others
        ({}, WORKER_KILLED, False),
    ],
)
def test_process_that_the_kernel_killed_at_the_limit_of_its_job(
    faults: Mapping[int, Fault], log: str, is_named: bool
) -> None:
    """The kernel's line alone is not a fault of the node; it names the cause of the error in the log."""
    report = judged(faults, EIGHT + log)
    assert named(report) == [ERROR]
    (incident,) = report["incidents"]
    assert (AT_LIMIT in incident["title"]) == is_named
    assert incident["next"].startswith("Request more memory (`--mem`") == is_named
    (finding,) = (report["findings"][number] for number in incident["findings"])
    assert ("gpu002 cmd:dmesg" in finding.get("quote", str(finding))) == is_named
    assert bad_nodes(report) == ""


HASH = CLUSTER.replace('load_balancing = "one-path"', 'load_balancing = "hash"')
DEFAULT = "nccl.load-balancing @gpu[001-003] job slows-job"
FOUR_PAIRS = lines(1, "NCCL_IB_QPS_PER_CONNECTION set by environment to 4.") + lines(2) + lines(3)
BY_TCP_2 = lines(1) + lines(2, *NOTHING, network="Socket") + lines(3)
BY_TCP_3 = lines(1) + lines(2) + lines(3, OFF, network="Socket")
CROSSED = GOOD + "".join(
    f"gpu00{number}:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [{way}] via NET/IB/{nic}/GDRDMA\n"
    for number, way, nic in ((1, "send", 0), (2, "receive", 3))
)

#: Faults of nodes, logs, and the incidents, where the switches hash.
SEVERAL_LOGS: Mapping[str, tuple[Mapping[int, Fault], Sequence[str], Sequence[str]]] = {
    "the nodes and two logs have NCCL's default": ({}, [GOOD, GOOD], [DEFAULT]),
    "the job sets it, the nodes do not": ({}, [FOUR_PAIRS], [DEFAULT]),
    "the nodes set it, the logs have the default": (
        dict.fromkeys((1, 2, 3), env(NCCL_IB_QPS_PER_CONNECTION="4")), [GOOD, GOOD],
        ["nccl.run-balancing @the run's logs job slows-job"],  # one setting of two logs
    ),
    "two logs, each over TCP for its own reason": (
        {2: NO_UVERBS, 3: env(NCCL_IB_DISABLE="1")}, [BY_TCP_2, BY_TCP_3], [DEFAULT, UVERBS, SWITCH],
    ),
    "two logs over TCP for the same reason": ({2: NO_UVERBS}, [BY_TCP_2, BY_TCP_2], [DEFAULT, UVERBS]),
    "a log over TCP, another crosses rails": (
        {}, [BY_TCP_3, CROSSED], [DEFAULT, IN_LOG, "nccl.rails @the run's logs job slows-job"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SEVERAL_LOGS)
def test_several_logs(case: str) -> None:
    faults, logs, incidents = SEVERAL_LOGS[case]
    assert sorted(named(judged(faults, *logs, cluster=HASH))) == sorted(incidents)


ECC = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/opt/train.py", line 88, in <module>\n'
    "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
)
FULL_DISK = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/opt/train.py", line 90, in <module>\n'
    "[rank2]: OSError: [Errno 28] No space left on device\n"
)
#: What the other ranks and the launcher log afterwards.
AFTERWARDS = (
    "[rank0]:[E1129 02:10:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
    "milliseconds before timing out.\n"
    "E1129 02:11:00.000000 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 "
    "(pid: 99) of binary: /usr/bin/python3\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    "srun: error: gpu002: task 1: Exited with exit code 1\n"
)
MEMORY = {2: PLANTED["uncorrectable error"]}
BROKEN, ERROR = "gpu.ecc-uncorrected @gpu002 node blocks-job", "job.errors @the run's logs job blocks-job"

#: Logs of jobs that ended: faults of nodes, logs, and the incidents.
ENDED: Mapping[str, tuple[Mapping[int, Fault], Sequence[str], Sequence[str]]] = {
    "an error, and what follows from it": ({}, [GOOD + ECC + AFTERWARDS], [ERROR]),
    "a GPU of its rank's node shows it": (MEMORY, [GOOD + ECC + AFTERWARDS], [BROKEN]),
    "a GPU of another node shows it": (
        {3: PLANTED["uncorrectable error"]}, [GOOD + ECC + AFTERWARDS], [BROKEN.replace("gpu002", "gpu003"), ERROR],
    ),
    "two errors": (MEMORY, [GOOD + ECC + FULL_DISK + AFTERWARDS], [BROKEN, ERROR]),
    "two jobs, each with an error": ({}, [GOOD + ECC + AFTERWARDS, GOOD + FULL_DISK + AFTERWARDS], [ERROR, ERROR]),
    "a failed queue pair, and what follows from it": (
        {2: nic("mlx5_5", **DOWN)}, [GOOD + failed_queue_pair(2, 3, peer=1) + AFTERWARDS], [PORT],
    ),
    "a failed queue pair, and an error of a GPU": (
        {2: nic("mlx5_5", **DOWN)}, [GOOD + failed_queue_pair(2, 3, peer=1) + ECC + AFTERWARDS], [PORT, ERROR],
    ),
    "a failed queue pair in one job, a time-out in another": (
        {}, [GOOD + failed_queue_pair(2, 3, peer=1), GOOD + AFTERWARDS], [ALONE, ALONE],
    ),
    "only a time-out": ({}, [GOOD + AFTERWARDS], [ALONE]),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDED)
def test_end_of_a_job_has_one_cause(case: str) -> None:
    faults, logs, incidents = ENDED[case]
    assert sorted(named(judged(faults, *logs))) == sorted(incidents)

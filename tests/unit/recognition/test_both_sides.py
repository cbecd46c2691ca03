"""Findings about texts that were judged wrongly, each beside the findings about a similar text."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight import recognition
from preflight.recognition.input_sources import InputSource

LOOPBACK = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: ens7: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP group default qlen 1000
    link/ether 0a:42:ac:11:00:07 brd ff:ff:ff:ff:ff:ff
    inet 10.44.4.17/22 brd 10.44.7.255 scope global ens7
3: {other}: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 9000 qdisc noqueue state DOWN group default
    link/ether 0a:42:9d:00:00:01 brd ff:ff:ff:ff:ff:ff
"""

BRIEF = "lo               UNKNOWN        127.0.0.1/8 \nens7             UP             10.44.4.17/22 \n{more}"

MLXLINK = """\
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Standard_RS-FEC - (544,514)
Loopback Mode                      : No Loopback
Auto Negotiation                   : ON

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : {}
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical BER                   : 3E-12
Link Down Counter                  : {}
Link Error Recovery Counter        : 0
"""
ENDED_JOBS = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
881            finetune       gpus      vision        768     FAILED      1:0
881.batch         batch                 vision         96     FAILED      1:0
881.0            python                 vision        768 {:>10}      1:0
"""
MODULES = """\
Module                  Size  Used by
ib_core               516096  3 {}
mlx5_ib               475136  0
mlx5_core            2174976  1 mlx5_ib
"""
SPACE = """\
Filesystem                Size  Used Avail Use% Mounted on
10.9.0.4@o2ib:/proj       1.4P  1.4P   {} 100% /proj
/dev/nvme0n1p2            880G  120G  760G  14% /
"""
GENERATIONS = """\
index, pci.bus_id, pstate, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max
0, 00000000:1E:00.0, P0, 5, 5, 16, 16
1, 00000000:4A:00.0, {}, {}, 5, 16, 16
"""
MEMORY_USE = """\
index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
0, NVIDIA H200, 139800 MiB, 143771 MiB, {} %
"""

STEP = (
    " iteration {step:8d}/     900 | consumed samples: {step:12d} | elapsed time per iteration (ms): 1900.5 | "
    "learning rate: 1.0E-04 | global batch size:   512 |{loss} grad norm: {norm} | number of nan iterations:   0 |\n"
)

OPEN_MPI = """\
--------------------------------------------------------------------------
WARNING: There was an error initializing an OpenFabrics device.

  Local host:   rack2-n4
  Local device: mlx5_6
--------------------------------------------------------------------------
"""
LOCKED = """\
--------------------------------------------------------------------------
The OpenFabrics (openib) BTL failed to initialize while trying to
allocate some locked memory.  This typically can indicate that the
memlock limits are set too low.
--------------------------------------------------------------------------
"""
UCX = "[1764000000.120000] [n4:51200:0]  ib_mlx5_log.c:177  UCX  {level} Transport retry count exceeded on mlx5_6:1\n"
ENDPOINT = "[n4:51200] pml_ucx.c:419  Error: ucp_ep_create(proc=3) failed: Destination is unreachable\n"
CALL = "[n4:51200] *** An error occurred in MPI_Bcast\n[n4:51200] *** MPI_ERRORS_ARE_FATAL (processes will abort)\n"
PROXY = "[proxy:0:2@n4] HYD_pmcd_pmip_control_cmd_cb (proxy/pmip_cb.c:480): assert (!closed) failed\n"
STACK = """\
Abort(672) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:
MPIDI_OFI_mpi_init_hook(1580): OFI addrinfo() failed (ofi_init.c:1580:MPIDI_OFI_mpi_init_hook:No data available)
"""

CONTROLLED = "NodeName=q7 Arch=x86_64 CoresPerSocket=48\n   CPUAlloc=0 CPUTot=192\n   State={state} Weight=1\n"
XLA = "2026-02-03 09:10:11.120131: {level} external/xla/xla/service/collective.cc:77] {text}\n"
POD = """\
kind: Pod
spec:
  containers:
  - name: tune
    env:
    - name: {name}
      value: {value}
    resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""

SOCKETS = """\
n4:51:60 [0] NCCL INFO NCCL version 2.23.4+cuda12.6
n4:51:60 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n4:51:60 [0] NCCL INFO Using network Socket
n4:51:60 [0] NCCL INFO comm 0x5 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 53000 commId 0x7 - Init COMPLETE
"""
SET = "n4:51:60 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
KILLED = (
    "[ 12.1] oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0-1,task_memcg=/a,task=py3,"
    "pid=414,uid=7\n"
)
PCIE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNODE\tSYS\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A
GPU1\tNODE\t X \tSYS\tSYS\tNODE\tSYS\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNODE\tSYS\tPIX\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNODE\t X \tSYS\tNODE\t32-63\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPIX\tNODE\tSYS\t X 
"""
SLOTS = """\
	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NODE	PIX	NODE	0-31	0		N/A
GPU1	NODE	 X 	NODE	NODE	0-31	0		N/A
NIC0	PIX	NODE	 X 	NODE
NIC1	NODE	NODE	NODE	 X 
"""
LINKS = """\
link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens7f0np0
link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens8f0np0
link mlx5_2/1 state DOWN physical_state POLLING netdev {other}
"""
OVERFLOW = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, reducing to 1\n"

DOWN = "Nov  8 10:00:09 n4 kernel: mlx5_core 0000:5e:00.0 ens7: Link down\n"
UP = "Nov  8 10:00:11 n4 kernel: mlx5_core 0000:5e:00.0 ens7: Link up\n"
BOOT = "Nov  8 10:00:00 n4 kernel: Linux version 6.8.0-40-generic (build@farm) #40 SMP\n"
DRIVER = "Nov  8 10:00:01 n4 kernel: mlx5_core 0000:5e:00.0: firmware version: 28.39.1002\n"
HEAT = (
    "Nov  8 10:00:03 n4 kernel: CPU12: Core temperature above threshold, cpu clock throttled (total events = {count})\n"
)
CORRECTED = """\
Nov  8 10:00:03 n4 kernel: mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer
Nov  8 10:00:03 n4 kernel: mlx5_core 0000:5e:00.0:    [ 0] RxErr                  (First)
"""
MODULE = "Nov  8 10:00:00 n4 kernel: mlx5_core 0000:5e:00.0: Port module event: module 0, {state}\n"

OPTICS = """\
	Identifier                                : 0x19 (OSFP 8X Pluggable Transceiver with CMIS)
	Vendor name                               : GLASSLINK
	Module temperature                        : 77.10 degrees C / 170.78 degrees F
	Alarm/warning flags implemented           : Yes
	Module temperature high alarm             : {high}
"""

RAS = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  MISMATCH

Warnings
========

#0-0 (5be079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  14 ranks have launched up to operation 7702
  {rest}
"""

HEALTH = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report     |                                                          |
+===========================+==========================================================+
| Overall Health            | {health:56} |
+---------------------------+----------------------------------------------------------+
"""

ROCM = """\
========================================= ROCm System Management Interface =========================================
=================================================== Concise Info ===================================================
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
====================================================================================================================
0       2     0x74a1,   10311  51.0°C      140.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  0%     0%
1       3     0x74a1,   20622  50.0°C      139.0W    NPS1, SPX, 0        131Mhz  900Mhz  0%   auto  {cap}  0%     0%
====================================================================================================================
=============================================== End of ROCm SMI Log ================================================
"""
LOADED = """index, name, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, \
clocks_event_reasons.active
0, NVIDIA H100 80GB HBM3, {generation}, 5, 16, 16, {reasons}
1, NVIDIA H100 80GB HBM3, 5, 5, 16, 16, 0x0000000000000000
"""
TABLE = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.133.20             Driver Version: 570.133.20     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  {name:26}  On  |   00000000:0B:00.0 Off |                  Off |
| 31%   39C    P8             20W /  450W |     110MiB /  24564MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""


BRIEF_RAILS = "rail0            UP             172.20.0.7/24 \nrail1            UP             {second}/24 \n"
LANES = """\
	Identifier                                : 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver)
	Vendor name                               : GLASSLINK
	Laser tx bias current (Channel 1)         : 7.210 mA
	Laser tx bias current (Channel 2)         : {bias} mA
	Laser tx bias current (Channel 3)         : 7.310 mA
	Rcvr signal avg optical power (Channel 1) : 0.8811 mW / -0.55 dBm
	Rcvr signal avg optical power (Channel 2) : {light}
	Rcvr signal avg optical power (Channel 3) : 0.9011 mW / -0.45 dBm
	Module temperature high alarm             : {hot}
"""
SWEEP = """\
CA: q-01 mlx5_0:
      0xe09d73030044a1b0   31  1[  ] ==( {width}  106.25 Gbps Active/  LinkUp)==>   7  3[  ] "spine-2" ({could})
CA: q-02 mlx5_0:
      0xe09d73030044a1c0   32  1[  ] ==( {second})==>      [  ] "" ( )
Switch: 0xe09d73030011a000 spine-2:
           7    3[  ] ==( 4X      106.25 Gbps Active/  LinkUp)==>      31    1[  ] "q-01 mlx5_0" ( )
           7    4[  ] ==(                Down/ Polling)==>             [  ] "" ( )
"""
MEMORY = """\
MemTotal:       1056000000 kB
MemAvailable:    {available} kB
HugePages_Total:    {pages}
HugePages_Free:     {free}
HugePages_Rsvd:        0
Hugepagesize:       2048 kB
"""
LANES_OF_GPUS = "index, name, pcie.link.gen.current, pcie.link.width.current\n" + "".join(
    f"{gpu}, NVIDIA H200, 5, {{{gpu}}}\n" for gpu in range(4)
)
PORT = """\
CA 'mlx5_{device}'
	CA type: MT4129
	Number of ports: 1
	Node GUID: 0xa088c203006a{device}000
	Port 1:
		State: Down
		Physical state: {physical}
		Rate: 10
		Base lid: 65535
		SM lid: 0
		Link layer: InfiniBand
"""
RETIRED = """\
==============NVSMI LOG==============
Driver Version                            : 470.256.02
Attached GPUs                             : 1
GPU 00000000:17:00.0
    Product Name                          : Tesla V100-SXM3-32GB
    Retired Pages
        Single Bit ECC                    : 60
        Double Bit ECC                    : 2
        Pending Page Blacklist            : {pending}
"""


def one_hca(local: int, hosts: int, hcas: str = "[0]mlx5_4:1/IB") -> str:
    """Return the log of a job whose nodes print this list of HCAs."""
    lines = []
    for rank in range(local * hosts):
        head = f"t{rank // local}:{80 + rank}:{80 + rank} [{rank % local}] NCCL INFO "
        lines += [f"{head}NET/IB : Using {hcas} [RO]; OOB eth0:10.7.0.{rank // local}<0>", f"{head}Using network IB",
                  f"{head}comm 0x9a{rank:03x} rank {rank} nRanks {local * hosts} nNodes {hosts} localRanks {local} "
                  f"localRank {rank % local} MNNVL 0",
                  f"{head}ncclCommInitRank comm 0x9a{rank:03x} rank {rank} nranks {local * hosts} cudaDev "
                  f"{rank % local} nvmlDev 0 busId {rank % local + 1}b000 commId 0x61 - Init COMPLETE"]  # fmt: skip
    return "\n".join(lines) + "\n"


VALUES = """\
$ cat /sys/devices/system/cpu/cpu9/cpufreq/scaling_governor
{governor}
$ cat /proc/sys/kernel/numa_balancing
{balancing}
"""
GROUP = "root@pod-3:/# cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max\n{memory}\n{cpu} 100000\n"
MOUNTS = """\
nfs-9:/vol/a on /work type nfs ({options},vers=3,rsize=65536)
tmpfs on /dev/shm type tmpfs (rw,nosuid,nodev,size={size})
"""
DMAR = """\
[  {second}.000000] DMAR: DRHD: handling fault status reg 2
[  {second}.300000] DMAR: [DMA Read NO_PASID] Request device [9b:00.0] fault addr 0x7e0000001000 [fault reason 0x06] PTE
"""
XID = "Nov  9 04:{minute:02d}:10 n4 kernel: NVRM: Xid (PCI:0000:2a:00): 92, pid='<unknown>', High ECC rate\n"
PAIR = """\
# nThread 1 nGpus 1 minBytes 4294967296 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid  8101 on       p-1 device  0 [0x1b] NVIDIA H200
#  Rank  1 Group  0 Pid  8102 on       p-2 device  0 [0x1b] NVIDIA H200
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  4294967296    1073741824     float     sum      -1  {half:.0f}  {rate:.2f}  {rate:.2f}      0  {half:.0f}  {rate:.2f}  {rate:.2f}      0
  8589934592    2147483648     float     sum      -1  {time:.0f}  {rate:.2f}  {rate:.2f}      0  {time:.0f}  {rate:.2f}  {rate:.2f}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {rate:.4f}
#
"""  # noqa: E501
MESH = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n" + "".join(
    f"GPU{row}\t"
    + "\t".join(" X " if row == column else f"{{{int(2 in (row, column))}}}" for column in range(4))
    + "\t0-63\t0\n"
    for row in range(4)
)
INTERFACES = "".join(
    f"{at}: {name}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {{{at - 2}}} qdisc mq state UP group default qlen 1000\n"
    f"    link/ether 0a:42:ac:12:00:0{at} brd ff:ff:ff:ff:ff:ff\n    inet 10.5{at}.0.7/24 scope global {name}\n"
    for at, name in enumerate(("eno1", "rail0", "rail1"), 2)
)


def pair(rate: float) -> str:
    """Return the output of all_reduce_perf between two GPUs at a rate in GB/s."""
    return PAIR.format(rate=rate, time=8589934592 / rate / 1e3, half=4294967296 / rate / 1e3)


QOS = """\
Priority trust state: dscp
dscp2prio mapping:
	prio:3 dscp:24,26,
Receive buffer size (bytes): 180000,0,0,0,0,0,0,0,
Cable len: 7
PFC configuration:
	priority    0   1   2   3   4   5   6   7
	enabled     {pfc}
	buffer      0   0   0   0   0   0   0   0
"""


NVUE = """\
cumulus@leaf3:~$ nv show interface swp9 counters
                     operational
-------------------  -----------
carrier-transitions  0
in-errors            {errors}
out-drops            0
"""


def set_up(absent: int | None, complete: bool) -> str:
    """Return the log of eight ranks on two hosts that set up a communicator; one may be absent."""
    lines = []
    for rank in range(8):
        head = f"c{rank // 4}:{700 + rank}:{700 + rank} [{rank % 4}] NCCL INFO "
        named = f"comm 0x7a{rank:03x} rank {rank} nranks 8 cudaDev {rank % 4} busId {rank % 4 + 1}a000 commId 0x51"
        if rank != absent:
            lines += [f"{head}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.9.0.{rank // 4}<0>",
                      f"{head}Using network IB", f"{head}ncclCommInitRank {named} - Init START",
                      *([f"{head}ncclCommInitRank {named} - Init COMPLETE"] if complete else [])]  # fmt: skip
        else:
            lines.append(f"{head}Bootstrap : Using eth0:10.9.0.{rank // 4}<0>")
    return "\n".join(lines) + "\n"


def stamped(text: str) -> str:
    lines = text.splitlines()
    return "".join(f"2026-11-03T10:00:{at % 60:02d}.{at:09d}Z {line}\n" for at, line in enumerate(lines, 17))


BRIDGES = "".join(
    f"GPU {gpu}: NVIDIA A100-SXM4-80GB (UUID: GPU-{gpu}a1b2c3d-1111-2222-3333-444455556666)\n"
    + "".join(f"\t Link {link}: 25 GB/s\n" for link in range(12))
    for gpu in range(4)
)

REMAPPED = """\
gpu_bus_id, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure
00000000:0F:00.0, 0, 0, 0, {failure}
00000000:1F:00.0, 0, 0, 0, 0
"""
NO_LINKS = "GPU 3: NVIDIA {name} (UUID: GPU-1a2b3c4d-1111-2222-3333-444455556666)\n" + "".join(
    f"\t Link {link}: <inactive>\n" for link in range(18)
)


def norms(listed: str, first: int = 1) -> str:
    return "".join(
        STEP.format(step=step, loss=" lm loss: 2.1E+00 |", norm=norm) for step, norm in enumerate(listed.split(), first)
    )


#: Text, the findings that are not a pass (status, check, words), words that none has, and the exit status.
Row = tuple[str, list[tuple[str, str, str]], str, int]
SOCKETS = """\
n8:912:912 [0] NCCL INFO Bootstrap : Using eno1:10.44.0.8<0>
n8:912:912 [0] NCCL INFO NCCL version 2.23.4+cuda12.6
n8:912:990 [0] NCCL INFO NET/IB : No device found.
n8:912:990 [0] NCCL INFO NET/Socket : Using [0]eno1:10.44.0.8<0>
n8:912:990 [0] NCCL INFO Using network Socket
"""
DAMAGED = (
    "<nvidia_smi_log><driver_version>570.86.15</driver_version><gpu id='00000000:18:00.0'>"
    "<product_name><uuid>GPU-1</uuid></product_name></gpu></nvidia_smi_log>"
)

ROWS: dict[str, Row] = {
    "loopback and a bridge": (LOOPBACK.format(mtu=9000, other="docker0"), [], "", 0),
    "a port without a link": (
        LOOPBACK.format(mtu=9000, other="ens8"),
        [("unknown", "rdma.port-state", "ens8 is up, but has no link")],
        "lo ",
        3,
    ),
    "a small MTU beside loopback": (LOOPBACK.format(mtu=1500, other="docker0"), [], "", 3),
    "a small MTU beside a port": (
        LOOPBACK.format(mtu=1500, other="ens8").replace("NO-CARRIER,", "LOWER_UP,"),
        [("unknown", "roce.chain", "ens7 has MTU 1500, but ens8 has 9000")],
        "lo ",
        3,
    ),
    "short list": (BRIEF.format(more="eth0@if9        UP             10.244.0.9/24 \n"), [], "", 0),
    "short list, down": (
        BRIEF.format(more="ens8             DOWN           \n"),
        [("unknown", "rdma.port-state", "ens8 is DOWN")],
        "",
        3,
    ),
    "a loss that is NAN": (
        "".join(
            STEP.format(
                step=step,
                loss=f" lm loss: {'     NAN' if step > 3 else '2.1E+00'} |",
                norm="nan" if step > 3 else "0.9",
            )
            for step in range(1, 6)
        ),
        [("fail", "torch.steps", "the loss is nan from step 4 on")],
        "is a number",
        1,
    ),
    "a norm without a loss": (
        "".join(STEP.format(step=step, loss="", norm="nan") for step in range(1, 4)),
        [("warn", "torch.steps", "the line shows no loss")],
        "is a number",
        0,
    ),
    "a norm beside a loss": (
        "".join(STEP.format(step=step, loss=" lm loss: 2.1E+00 |", norm="nan") for step in range(1, 4)),
        [("warn", "torch.steps", "the loss is a number")],
        "shows no loss",
        0,
    ),
    "a device": (OPEN_MPI, [("warn", "rdma.device-nodes", "cannot be opened")], "locked", 0),
    "a device without locked memory": (
        OPEN_MPI + LOCKED,
        [("fail", "host.memlock", "max locked memory is too small")],
        "cannot be opened",
        1,
    ),
    "an error of UCX": (UCX.format(level="ERROR"), [("fail", "counters.loss", "mlx5_6:1 on n4")], "", 1),
    "a warning of UCX": (UCX.format(level="WARN "), [("warn", "counters.loss", "mlx5_6:1 on n4")], "", 0),
    "an unreachable peer": (
        ENDPOINT + CALL,
        [("fail", "job.errors", "no connection to a peer"), ("fail", "job.errors", "an MPI call failed")],
        "",
        1,
    ),
    "its cause": (
        UCX.format(level="ERROR") + ENDPOINT,
        [("fail", "counters.loss", "retry count exceeded")],
        "no connection",
        1,
    ),
    "a daemon that is gone": (PROXY, [("fail", "host.services", "lost the daemon")], "could not start", 1),
    "a daemon that did not start": (
        PROXY.replace("assert (!closed) failed", "unable to execute ./train"),
        [("fail", "host.services", "could not start its daemons")],
        "lost the daemon",
        1,
    ),
    "a stack of MPI": (
        STACK,
        [("fail", "job.errors", "could not be initialised"), ("fail", "job.errors", "OFI addrinfo() failed")],
        "",
        1,
    ),
    "a link alone": (DOWN + UP, [("unknown", "kernel.events", "ens7 went down and came back once (line 1)")], "", 3),
    "a link, twice": ((DOWN + UP) * 2, [("warn", "kernel.events", "2 times (the first on line 1)")], "", 0),
    "a link after a boot": (BOOT + DOWN + UP, [], "", 0),
    "a link after the driver's start": (DRIVER + DOWN + UP, [], "", 0),
    "a link long after a boot": (
        BOOT.replace("10:00", "08:00") + DOWN + UP,
        [("unknown", "kernel.events", "once (line 2)")],
        "",
        3,
    ),
    "a little heat": (HEAT.format(count=3), [("unknown", "kernel.events", "CPU 12: slowed down by heat")], "", 3),
    "heat": (HEAT.format(count=4100), [("warn", "kernel.events", "up to 4100 events")], "", 0),
    "a link that came up": (UP, [], "", 0),
    "a table with times": (stamped(HEALTH.format(health="Healthy")), [], "", 0),
    "a sick table with times": (
        stamped(HEALTH.format(health="Warning")),
        [("warn", "gpu.driver", "dcgmi health reports Warning")],
        "",
        0,
    ),
    "links": (BRIDGES, [], "", 0),
    "links that are cut": (
        BRIDGES[: BRIDGES.index("GPU-3") + 20],
        [("unknown", "nvlink.links", "GPU3")],
        "bridge",
        3,
    ),
    "a link beside errors": (
        CORRECTED + DOWN + UP,
        [("unknown", "kernel.events", "1 corrected"), ("unknown", "kernel.events", "came back once (line 3)")],
        "",
        3,
    ),
    "a cable error": (
        MODULE.format(state="Cable error, Power budget exceeded"),
        [("warn", "kernel.events", "Cable error, Power budget exceeded")],
        "",
        0,
    ),
    "a cable": (MODULE.format(state="Cable plugged"), [], "", 0),
    "heat without thresholds": (
        OPTICS.format(high="On"),
        [("warn", "optics.module", "its thresholds are not shown")],
        "latched",
        0,
    ),
    "no heat": (OPTICS.format(high="Off"), [], "", 0),
    "ranks behind": (
        RAS.format(rest="2 ranks have launched up to operation 7701: 5, 13"),
        [("unknown", "nccl.ras", "ranks 5, 13 are at operation 7701; the other ranks have launched operation 7702")],
        "",
        3,
    ),
    "TCP on an unknown number of nodes": (
        SOCKETS,
        [("unknown", "nccl.transport", "NCCL chose TCP sockets")],
        "",
        3,
    ),
    "TCP on one node": (
        SOCKETS + "n8:912:990 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 - Init COMPLETE\n"
        "n8:912:990 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "n8:912:990 [0] NCCL INFO comm 0x55 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n",
        [],
        "",
        0,
    ),
    "a product name that holds an element": (DAMAGED, [], "", 0),
    "ranks in another form": (
        RAS.format(rest="some ranks lag"),
        [("unknown", "nccl.ras", "those in the text are all 7702")],
        "remaining",
        3,
    ),
}

ROWS |= {
    "a launch command": (
        "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5 torchrun --nnodes=2 --nproc-per-node=8 tune.py\n",
        [],
        "",
        0,
    ),
    "one setting": ("$ mpirun -np 16 -x NCCL_SOCKET_IFNAME=bond0 ./all_reduce_perf -e 1G\n", [], "", 0),
    "a prefix that excludes": ("srun --export=ALL,NCCL_SOCKET_IFNAME=^lo,docker0 ./tune\n", [], "", 0),
    "loopback on one node": ("NCCL_SOCKET_IFNAME=lo torchrun --standalone --nproc-per-node=8 tune.py\n", [], "", 0),
    "loopback on two nodes": (
        "NCCL_SOCKET_IFNAME=lo torchrun --nnodes=2 --nproc-per-node=8 tune.py\n",
        [("warn", "nccl.run-settings", "lo in the command on line 1 (not seen in force) selects only interfaces")],
        "",
        0,
    ),
    "disabled by a command": (
        "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 torchrun --nproc-per-node=8 tune.py\n",
        [("warn", "nccl.run-settings", "switches GPU peer-to-peer off"), ("warn", "nccl.run-settings", "InfiniBand")],
        "",
        0,
    ),
    "a container's bridge": (
        "mpirun -np 16 -x NCCL_SOCKET_IFNAME=docker0 ./all_reduce_perf -e 1G\n",
        [("warn", "nccl.run-settings", "docker0")],
        "",
        0,
    ),
    "a variable of docker": (
        "docker run --rm -e NCCL_IB_DISABLE=1 tuner:7 python tune.py\n",
        [("warn", "nccl.run-settings", "InfiniBand")],
        "",
        0,
    ),
    "a variable of srun": (
        "srun -N4 --export=ALL,NCCL_NET=Socket python tune.py\n",
        [("warn", "nccl.run-settings", "forces TCP")],
        "",
        0,
    ),
    "an image": (
        "FROM tuner:7\nENV NCCL_IB_DISABLE=1 NCCL_DEBUG=WARN\nCOPY . /app\n",
        [("warn", "nccl.run-settings", "NCCL_IB_DISABLE=1 in line 2")],
        "",
        0,
    ),
    "a command with a placeholder": (
        "mpirun -np 8 -x NCCL_SOCKET_IFNAME=$IFACE ./all_reduce_perf\n",
        [("unknown", "nccl.run-settings", "placeholder")],
        "",
        3,
    ),
    "an SXM part without links": (
        NO_LINKS.format(name="H100 80GB HBM3"),
        [("warn", "nvlink.links", "GPU3: no NVLink is active, although H100 SXM is on an NVLink board")],
        "",
        0,
    ),
    "a card without a bridge": (NO_LINKS.format(name="H100 PCIe"), [], "", 0),
    "an unknown part without links": (NO_LINKS.format(name="X9"), [("unknown", "nvlink.links", "none of")], "", 3),
    "inf at the start": (norms("inf inf inf 4.1 3.2 2.8 2.6 2.5 2.4 2.2"), [], "", 0),
    "inf only": (norms("inf inf"), [("unknown", "torch.steps", "inf in 2 of 2 steps, first")], "", 3),
    "inf later": (
        norms("2.1 2.0 inf inf inf inf", first=900),
        [("warn", "torch.steps", "inf in 4 of 6 steps")],
        "",
        0,
    ),
    "causes before the launcher": (
        PROXY + STACK,
        [("fail", "job.errors", "OFI addrinfo"), ("fail", "job.errors", ""), ("fail", "host.services", "")],
        "",
        1,
    ),
    "remapped rows as numbers": (
        REMAPPED.format(failure=1),
        [("fail", "gpu.row-remap", "0000:0f:00.0")],
        "not reported",
        1,
    ),
    "no failed remapping": (REMAPPED.format(failure=0), [], "", 0),
    "nodes of a configuration": (
        "NodeName=q[7-9] CPUs=192 SocketsPerBoard=2 RealMemory=1500000 Gres=gpu:h200:8 State=UNKNOWN\n"
        "PartitionName=tune Nodes=q[7-9] Default=YES State=UP\n",
        [],
        "",
        3,
    ),
    "GPUs of a configuration": ("NodeName=q7 Name=gpu Type=h200 File=/dev/nvidia[0-7]\n" * 2, [], "", 3),
    "a node that its configuration keeps out": (
        'NodeName=q7 CPUs=192 RealMemory=1500000 State=DOWN Reason="psu"\n',
        [("warn", "host.services", "its configuration keeps it out of service: State=DOWN")],
        "taken out",
        0,
    ),
    "a node that did not register": (
        CONTROLLED.format(state="UNKNOWN"),
        [("unknown", "host.services", "it has not registered")],
        "taken out",
        3,
    ),
    "a node that does not answer": (
        CONTROLLED.format(state="DOWN*+CLOUD"),
        [("fail", "host.services", "DOWN+CLOUD+NOT_RESPONDING")],
        "",
        1,
    ),
    "a node powered down": (CONTROLLED.format(state="IDLE+CLOUD+POWERED_DOWN"), [], "", 0),
    "a node in maintenance": (
        CONTROLLED.format(state="IDLE+MAINTENANCE"),
        [("warn", "host.services", "it may accept no job")],
        "",
        0,
    ),
    "a fatal line": (
        XLA.format(level="F", text="Check failed: stream->ok() device 3 is not usable"),
        [("fail", "job.errors", "the program ended itself with a fatal error: Check failed")],
        "logged as",
        1,
    ),
    "an error line": (
        XLA.format(level="E", text="Check of device 3 was not conclusive"),
        [("unknown", "job.errors", "logged as an error")],
        "ended",
        3,
    ),
    "a rendezvous without a thread": (
        XLA.format(level="E", text="This thread has been waiting for `init clique` for 30 seconds and may be stuck.")
        + XLA.format(level="F", text="Termination timeout for `init clique` of 90 seconds exceeded. Exiting."),
        [("warn", "torch.hang", "a thread waits"), ("fail", "torch.hang", "XLA ended the program")],
        "",
        1,
    ),
    "a thread that is unstuck": (
        XLA.format(level="E", text="Thread is unstuck! Warning above was a false-positive."),
        [],
        "",
        3,
    ),
    "a host without sshd": (
        "ssh: connect to host q-31 port 22: Connection refused\n",
        [("fail", "host.services", "q-31: the launcher cannot log in")],
        "TCP connection to the other",
        1,
    ),
    "a server that was not started": (
        "Couldn't connect to q-31:18515\n",
        [("fail", "pair.pingpong", "no TCP connection to the other side")],
        "log in",
        1,
    ),
    "a pod's variable": (POD.format(name="NCCL_DEBUG", value="WARN"), [], "", 0),
    "a pod's variable that disables": (
        POD.format(name="NCCL_P2P_DISABLE", value='"1"'),
        [("warn", "nccl.run-settings", "NCCL_P2P_DISABLE=1 in line 6")],
        "",
        0,
    ),
    "a variable of compose": (
        "    environment:\n      - HF_HOME=/srv/hf\n      - NCCL_IB_DISABLE=1\n",
        [("warn", "nccl.run-settings", "NCCL_IB_DISABLE=1 in line 3")],
        "",
        0,
    ),
    "a variable of a mapping": (
        "env_vars:\n  NCCL_NET: Socket\n",
        [("warn", "nccl.run-settings", "forces TCP")],
        "",
        0,
    ),
    "a list in a sentence": ("It hangs, whatever we set:\n- NCCL_IB_DISABLE=1 or 0\n", [], "", 3),
    "corrected errors at a rate": (
        "".join(CORRECTED.replace("00:03", f"00:{second:02d}") for second in range(10, 40, 5)),
        [("unknown", "kernel.events", "within 25 s, but 720 an hour if they go on: 50 are a fault")],
        "",
        3,
    ),
    "corrected errors far apart": (
        "".join(CORRECTED.replace("10:00", f"1{hour}:00") for hour in range(6)),
        [("unknown", "kernel.events", "6 corrected hardware errors")],
        "an hour",
        3,
    ),
    "a command above a log without its settings": (
        f"$ NCCL_IB_DISABLE=1 NCCL_DEBUG=INFO mpirun -np 16 ./t\n{SOCKETS}",
        [("warn", "nccl.run-settings", "NCCL_IB_DISABLE=1"), ("unknown", "nccl.transport", "TCP")],
        "",
        3,
    ),
    "a command above a log with them": (
        f"$ NCCL_IB_DISABLE=1 NCCL_DEBUG=INFO mpirun -np 16 ./t\n{SET}{SOCKETS}",
        [("warn", "nccl.run-settings", "NCCL_IB_DISABLE"), ("fail", "nccl.transport", "TCP")],
        "the command on line",
        1,
    ),
    "a kill by the job's limit, without the line of the process": (
        KILLED.format(constraint="CONSTRAINT_MEMCG"),
        [("warn", "kernel.events", "py3 (pid 414) was killed at its job's memory limit")],
        "ran out",
        0,
    ),
    "a kill of a node without memory": (
        KILLED.format(constraint="CONSTRAINT_NONE"),
        [("warn", "kernel.events", "the node ran out of memory: the kernel killed py3")],
        "",
        0,
    ),
    "both lines of a kill": (
        KILLED.format(constraint="CONSTRAINT_NONE")
        + "[ 12.2] Out of memory: Killed process 414 (py3) total-vm:1kB, anon-rss:1kB\n",
        [("warn", "kernel.events", "the kernel killed py3 (pid 414)")],
        "2 ",
        0,
    ),
    "two NICs for four PCIe GPUs": (
        PCIE,
        [("unknown", "topology.nvlink", ""), ("unknown", "topology.nearest-nic", "GPU1, GPU3 share the NIC")],
        "",
        3,
    ),
    "a NIC in the wrong slot": (
        SLOTS,
        [("unknown", "topology.nvlink", ""), ("warn", "topology.nearest-nic", "GPU1's nearest NIC is behind the CPU")],
        "",
        3,
    ),
    "the unused second port of a card": (
        LINKS.format(other="ens7f1np1"),
        [("unknown", "rdma.port-state", "mlx5_2:1")],
        "",
        3,
    ),
    "the first port of a card without a peer": (
        LINKS.format(other="ens9f0np0"),
        [("warn", "rdma.port-state", "mlx5_2:1")],
        "",
        0,
    ),
    "a loss scale that collapsed": (OVERFLOW.format(scale=2) * 3, [("warn", "job.errors", "below 100")], "", 0),
    "a rank for which the others wait": (
        set_up(absent=6, complete=False),
        [("unknown", "nccl.failures", "but rank 6: 7 of 8 ranks began")],
        "",
        3,
    ),
    "all ranks set up their communicator": (set_up(absent=None, complete=True), [], "", 0),
    "a slow link of a busy GPU": (
        LOADED.format(generation=3, reasons="0x0000000000000000"),
        [("warn", "gpu.pcie-link", "generation 3 of 5, although the GPU is not idle")],
        "",
        0,
    ),
    "a slow link of an idle GPU": (LOADED.format(generation=1, reasons="0x0000000000000001"), [], "", 0),
    "one lower power cap": (
        ROCM.format(cap="400.0W"),
        [("warn", "gpu.power-limit", "GPU1 is limited to 400 W")],
        "",
        0,
    ),
    "equal power caps": (ROCM.format(cap="750.0W"), [], "", 0),
    "ECC off on a GPU for displays": (TABLE.format(name="NVIDIA GeForce RTX 4090"), [], "ECC", 0),
    "ECC off on a GPU for computing": (
        TABLE.format(name="NVIDIA L40S"),
        [("warn", "gpu.ecc-mode", "ECC is off")],
        "",
        0,
    ),
    "a sentence about a setting": ("It hangs with NCCL_IB_DISABLE=1 as well.\n", [], "", 3),
}

ROWS |= {
    "rails that share a subnet": (
        BRIEF_RAILS.format(second="172.20.0.107"),
        [("unknown", "rails.subnets", "rail0, rail1 have addresses in one subnet, 172.20.0.0/24")],
        "",
        3,
    ),
    "rails with a subnet each": (BRIEF_RAILS.format(second="172.20.1.7"), [], "", 0),
    "a dark lane beside an alarm": (
        LANES.format(bias="0.000", light="0.0013 mW / -28.86 dBm", hot="On"),
        [
            ("warn", "optics.module", "Module temperature high alarm"),
            ("unknown", "optics.module", "1 of 3 lanes receive too little light (lane 2 0.0013 mW)"),
            ("unknown", "optics.module", "laser of lane 2 is off"),
        ],
        "",
        3,
    ),
    "lanes with light": (LANES.format(bias="7.100", light="0.7011 mW / -1.54 dBm", hot="Off"), [], "", 0),
    "a port that polls beside a narrow link": (
        SWEEP.format(width="1X", could=" Could be 4X", second="               Down/ Polling"),
        [("warn", "fabric.link-speed", "1X"), ("unknown", "rdma.port-state", "q-02 mlx5_0 port 1 is Down (Polling)")],
        "spine-2 port 4",
        3,
    ),
    "an unused port of a switch": (
        SWEEP.format(width="4X", could=" ", second="4X      106.25 Gbps Active/  LinkUp"),
        [],
        "",
        0,
    ),
    "huge pages that take the memory": (
        MEMORY.format(available=20000000, pages=490000, free=490000),
        [("warn", "kernel.events", "95% of the host's memory is reserved as huge pages that nothing uses")],
        "",
        0,
    ),
    "huge pages in use": (MEMORY.format(available=620000000, pages=190000, free=2000), [], "", 0),
    "one HCA for eight GPUs": (
        one_hca(8, 2),
        [("unknown", "nccl.hca-count", "NCCL found only mlx5_4:1 for the 8 ranks of t0")],
        "",
        3,
    ),
    "one HCA for one GPU": (one_hca(1, 2), [], "", 0),
    "one HCA on the only node": (one_hca(8, 1), [], "", 0),
    "two HCAs": (one_hca(8, 2, "[0]mlx5_4:1/IB [1]mlx5_5:1/IB"), [], "", 0),
    "fewer lanes than its peers": (
        LANES_OF_GPUS.format(16, 16, 8, 16),
        [("fail", "gpu.pcie-link", "GPU2: PCIe link has 8 lanes, its peers have 16")],
        "",
        1,
    ),
    "the lanes of its peers": (LANES_OF_GPUS.format(16, 16, 16, 16), [], "", 0),
    "slots of two widths": (
        LANES_OF_GPUS.format(16, 8, 8, 8),
        [("warn", "gpu.pcie-link", f"GPU{gpu}") for gpu in (1, 2, 3)],
        "",
        0,
    ),
    "a port alone that is switched off": (
        PORT.format(device=3, physical="Disabled"),
        [("warn", "rdma.port-state", "mlx5_3:1 is DOWN/Disabled")],
        "",
        0,
    ),
    "a port alone that polls": (
        PORT.format(device=3, physical="Polling"),
        [("warn", "rdma.port-state", "mlx5_3:1 is DOWN/Polling")],
        "",
        0,
    ),
    "all ports of a node are down": (
        PORT.format(device=3, physical="Polling") + "\n" + PORT.format(device=4, physical="Disabled"),
        [("fail", "rdma.port-state", "mlx5_3:1"), ("fail", "rdma.port-state", "mlx5_4:1")],
        "",
        1,
    ),
    "a slow link of a GPU that no value calls idle": (
        GENERATIONS.format("P0", 3),
        [("unknown", "gpu.pcie-link", "0000:4a:00.0: PCIe link runs at generation 3 of 5, and nothing shows")],
        "while idle",
        3,
    ),
    "a slow link of a GPU that saves power": (GENERATIONS.format("P8", 1), [], "", 0),
    "full memory of a GPU that computes": (MEMORY_USE.format(97), [], "", 0),
    "full memory of an idle GPU": (
        MEMORY_USE.format(0),
        [("warn", "gpu.memory-headroom", "97% of its memory is used")],
        "",
        0,
    ),
    "a link that went down often since a known time": (
        MLXLINK.format(431.5, 5),
        [("warn", "counters.flaps", "its link went down 5 times in the 7.192 h")],
        "",
        0,
    ),
    "a link that went down as often in a month": (MLXLINK.format(43200.0, 5), [], "", 0),
    "a step whose node failed": (
        ENDED_JOBS.format("NODE_FAIL"),
        [("fail", "host.services", "job 881.0: a node of the job"), ("fail", "job.errors", "job 881: it ended")],
        "",
        1,
    ),
    "a step that failed like its job": (ENDED_JOBS.format("FAILED"), [("fail", "job.errors", "job 881: ")], "", 1),
    "a module that is only named as a user": (MODULES.format("ib_umad,ib_uverbs,mlx5_ib"), [], "", 0),
    "a module that is not named": (
        MODULES.format("ib_umad,mlx5_ib"),
        [("unknown", "kernel.modules", "ib_uverbs is not in the list")],
        "",
        3,
    ),
    "a full share that is only rounded": (
        SPACE.format("12T"),
        [("warn", "host.file-systems", "/proj is 100% full, 12 TiB are free")],
        "",
        0,
    ),
    "a full share": (SPACE.format("0"), [("fail", "host.file-systems", "/proj is 100% full (line 2)")], "", 1),
    "a page that waits for its retirement": (
        RETIRED.format(pending="Yes"),
        [("fail", "gpu.retired-pages", "62 pages are retired, and another retirement waits for a reset")],
        "",
        1,
    ),
    "retired pages": (RETIRED.format(pending="No"), [("fail", "gpu.retired-pages", "62 pages")], "waits", 1),
}

ROWS |= {
    "values below prompts": (
        VALUES.format(governor="powersave", balancing=1),
        [("warn", "kernel.cpu-governor", "powersave"), ("warn", "kernel.numa-balancing", "numa_balancing=1")],
        "",
        0,
    ),
    "good values below prompts": (VALUES.format(governor="performance", balancing=0), [], "", 0),
    "a limit below its command": (
        "root@g7:~# ulimit -l\n8192\nroot@g7:~# date\n",
        [("warn", "host.memlock", "8 MiB")],
        "",
        0,
    ),
    "no limit below its command": ("$ ulimit -l\nunlimited\n", [], "", 0),
    "limits of a control group": (
        GROUP.format(memory=34359738368, cpu=800000),
        [("unknown", "host.inventory", "memory.max: 34359738368"), ("unknown", "host.inventory", "cpu.max: 800000")],
        "",
        3,
    ),
    "a control group without limits": (GROUP.format(memory="max", cpu="max"), [], "", 0),
    "a soft mount and little shared memory": (
        MOUNTS.format(options="rw,soft,proto=udp", size="65536k"),
        [("unknown", "host.file-systems", "soft over UDP"), ("warn", "host.shm", "/dev/shm has 64 MiB")],
        "",
        3,
    ),
    "a hard mount": (MOUNTS.format(options="rw,hard,proto=tcp", size="512g"), [], "", 0),
    "slurm.conf and the hardware": (
        "[2026-11-03T08:00:02.100] error: Node configuration differs from hardware: CPUs=192:192(hw) Boards=1:1(hw) "
        "SocketsPerBoard=2:4(hw)\n",
        [("fail", "host.inventory", "SocketsPerBoard=2:4(hw)")],
        "",
        1,
    ),
    "a fault of the IOMMU minutes after boot": (
        DMAR.format(second=388),
        [("warn", "kernel.events", "the IOMMU refused 1 access of 9b:00.0")],
        "DRHD",
        0,
    ),
    "a fault of the IOMMU during boot": (
        DMAR.format(second=12),
        [("unknown", "kernel.events", "during boot")],
        "DRHD",
        3,
    ),
    "an Xid, thirty times": (
        "".join(XID.format(minute=minute) for minute in range(0, 60, 2)),
        [("warn", "xid.gpu", "Xid 92")],
        "",
        0,
    ),
    "an Xid, once": (XID.format(minute=3), [("unknown", "xid.gpu", "Xid 92")], "", 3),
    "one slow pair of three": (
        pair(48.1) + pair(20.2) + pair(47.9),
        [
            ("warn", "nccl-tests.busbw", "found 20.2 GB/s, but another run of the same test in this log reached 48.1"),
            ("unknown", "nccl-tests.busbw", "found 48.1 GB/s"),
            ("unknown", "nccl-tests.busbw", "found 47.9 GB/s"),
        ],
        "",
        3,
    ),
    "three equal pairs": (
        pair(48.1) + pair(46.2) + pair(47.9),
        [("unknown", "nccl-tests.busbw", f"found {rate} GB/s, but no expected value") for rate in (48.1, 46.2, 47.9)],
        "another run",
        3,
    ),
    "a GPU with fewer NVLinks": (
        MESH.format("NV18", "NV16"),
        [("fail", "topology.nvlink", "GPU2 has NV16 to its peers, which have NV18 to each other")],
        "",
        1,
    ),
    "a GPU without NVLinks": (
        MESH.format("NV12", "SYS"),
        [("fail", "topology.nvlink", "GPU2 has no NVLink to its peers, which have NV12 to each other")],
        "",
        1,
    ),
    "equal NVLinks": (MESH.format("NV18", "NV18"), [], "", 0),
    "an interface for management": (INTERFACES.format(1500, 9000, 9000), [], "", 0),
    "a rail with a small MTU": (
        INTERFACES.format(9000, 9000, 1500),
        [("unknown", "roce.chain", "rail1 has MTU 1500")],
        "",
        3,
    ),
}

ROWS |= {
    "memory that another process holds": (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=50.1\n",
        [("fail", "gpu.memory-headroom", "less free memory than the server is configured to use")],
        "",
        1,
    ),
    "counters of NVUE": (
        NVUE.format(errors=88121),
        [("unknown", "counters.link-quality", "leaf3 swp9: in-errors 88121")],
        "",
        3,
    ),
    "good counters of NVUE": (NVUE.format(errors=0), [], "", 0),
    "PFC without a buffer of its own": (
        QOS.format(pfc="1   1   0   1   0   0   0   0"),
        [("warn", "roce.chain", "PFC is on for 3 priorities"), ("warn", "roce.chain", "(and 2 more priorities)")],
        "",
        0,
    ),
}

VERSIONS = "{host}: index, name, driver_version\n{host}: 0, NVIDIA H200, {driver}\n"
GATHERED = """\
---------------
{hosts}
---------------
index, driver_version
0, {driver}
"""
QUEUE_PAIR = (
    "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_6:1, curr state INIT, next state RTR"
)
SYSTEM_ERROR = (
    "[rank5]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n"
    "[rank5]: Last error:\n[rank5]: {}\n"
)
ABSENT = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
CARDS = "".join(
    f"GPU {gpu}: NVIDIA {{0}} (UUID: GPU-{gpu}a1b2c3d-1111-2222-3333-44445555666{gpu})\n{{{gpu + 1}}}"
    for gpu in range(2)
)
UP_LINKS = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(12))


def drivers(versions: dict[str, str], form: str = VERSIONS) -> str:
    """Return the drivers that some hosts show."""
    return "".join(form.format(host=host, hosts=host, driver=driver) for host, driver in versions.items())


ROWS |= {
    **{
        f"a denied fault: {text}": (f"n4 prolog: {text}\n", [], "", 3)
        for text in (
            "nvidia-fabricmanager failed=no",
            "fabric manager: errors: none, nvlinks: 18",
            "fabricmanager error_count=0 up=8",
            "nvswitch check failed: false",
            "fabric manager reports no errors",
            '"OOMKilled": false,',
            "MemoryError: 0",
        )
    },
    **{
        f"a fault: {text}": (f"n4 prolog: {text}\n", [("fail", check, "")], "", 1)
        for text, check in (
            ("nvidia-fabricmanager failed=yes", "nvlink.fabric-manager"),
            ("nvidia-fabricmanager failed", "nvlink.fabric-manager"),
            ("fabric manager: failed: no NVSwitch answers", "nvlink.fabric-manager"),
            ("fabric manager: aborted with error=0", "nvlink.fabric-manager"),
            ('"OOMKilled": true,', "kernel.events"),
            ("fabric manager errors: 3", "nvlink.fabric-manager"),
        )
    },
    **{
        f"an error of a host whose name begins like a denial: {host}": (
            f"srun: error: {host}: task 1: Exited with exit code 1\n",
            [("fail", "job.errors", host)],
            "",
            1,
        )
        for host in ("node-a03-127", "none5", "no-gpu-1")
    },
    "a queue pair in PyTorch's words": (
        SYSTEM_ERROR.format(QUEUE_PAIR),
        [("fail", "nccl.failures", "ibv_modify_qp")],
        "opened or queried",
        1,
    ),
    "a queue pair alone": (QUEUE_PAIR + "\n", [("fail", "pair.pingpong", "queue pair")], "opened", 1),
    "a device that cannot be opened": (
        "ibv_open_device: mlx5_1 failed\n",
        [("fail", "rdma.device-nodes", "opened or queried")],
        "",
        1,
    ),
    "a call without memory": (
        "ibv_create_cq failed: Cannot allocate memory\n",
        [("fail", "host.memlock", "a call of the RDMA library")],
        "",
        1,
    ),
    "a GPU of a board without its links": (
        CARDS.format("H200", UP_LINKS, ABSENT),
        [("fail", "nvlink.links", "GPU1: 0 of 12 NVLinks are up")],
        "bridge",
        1,
    ),
    "a card without a bridge": (
        CARDS.format("H100 NVL", UP_LINKS, ABSENT),
        [("warn", "nvlink.links", "no NVLink bridge")],
        "",
        0,
    ),
    "links on both": (CARDS.format("H200", UP_LINKS, UP_LINKS), [], "", 0),
    "one host with another driver": (
        drivers({"t1": "570.86.15", "t2": "570.86.15", "t3": "550.54.15"}),
        [("warn", "fleet.driver-equal", "550.54.15, but 570.86.15 on 2 other hosts")],
        "",
        0,
    ),
    "two hosts with two drivers": (
        drivers({"t1": "570.86.15", "t2": "550.54.15"}),
        [("unknown", "fleet.driver-equal", "but")],
        "",
        3,
    ),
    "hosts with one driver": (drivers({"t1": "570.86.15", "t2": "570.86.15"}), [], "", 0),
    "clush: one host with another driver": (
        drivers({"t[1-2,4] (3)": "570.86.15", "t3": "550.54.15"}, GATHERED),
        [("warn", "fleet.driver-equal", "550.54.15, but 570.86.15 on 3 other hosts")],
        "",
        0,
    ),
    "clush: hosts with one driver": (drivers({"t[1-4] (4)": "570.86.15"}, GATHERED), [], "", 0),
}

PFC = """\
leaf6# show interface priority-flow-control
==========================================================================
Port               Mode Oper(VL bmap)  RxPPP      TxPPP
==========================================================================
Ethernet1/7        {}   On  (8)       4          31
Ethernet1/8        {}           0          0
"""
FULL = """\
[adm@t7] out: Filesystem      Size  Used Avail Use% Mounted on
[adm@t7] out: /dev/nvme1n1p2  440G  {} {}% /
"""
LAUNCH = "vela3:71:71 [0] NCCL INFO NCCL version 2.26.2+cuda12.8\n"


def steps_of(times: list[float]) -> str:
    """Return a step line of Megatron-LM for each time in ms."""
    line = STEP.replace("1900.5", "{time}").replace("{loss}", " lm loss: 2.1E+00 |").replace("{norm}", "0.9")
    return "".join(line.format(step=step, time=time) for step, time in enumerate(times, 1))


WRITE = """\
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : bnxt_re2
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    5000           {rate:.2f}             {rate:.2f}            0.0231
---------------------------------------------------------------------------------------
$ cat /sys/class/infiniband/{device}/ports/1/rate
200 Gb/sec (4X HDR)
"""
PODS = """\
$ kubectl get pods -A | grep -e network -e roce
roce-system   rdma-shared-dp-ds-x7k2q    1/1   Running     3 (41d ago)   60d
roce-system   multus-sriov-h9w4m         {}          60d
"""
JOURNAL = """\
Feb 17 08:41:10 vela-gpu-17 nicwatch[882]: NIC statistics:
Feb 17 08:41:10 vela-gpu-17 nicwatch[882]:      rx_bytes: 771200
Feb 17 08:41:10 vela-gpu-17 nicwatch[882]:      tx_bytes: 431200
Feb 17 08:41:10 vela-gpu-17 nicwatch[882]:      rx_discards_phy: {}
"""
FILTERED = """\
[ops@login2 ~]$ scontrol show node vela31 | grep -e State -e Reason
   State={} ThreadsPerCore=1 TmpDisk=0 Weight=5 Owner=N/A MCS_label=N/A
{}"""
AGGREGATED = """\
Ethernet Channel Bonding Driver: v6.8.0

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: {}
MII Status: up

Slave Interface: rail0a
MII Status: up
Speed: {speed} Mbps
Link Failure Count: 0
Aggregator ID: 4

Slave Interface: rail0b
MII Status: up
Speed: {speed} Mbps
Link Failure Count: 0
Aggregator ID: 4
"""
LIMITED = (
    "[    7.310022] mlx5_core 0000:2b:00.0: 126.016 Gb/s available PCIe bandwidth, limited by {} link at 0000:29:01.0 "
    "(capable of 252.048 Gb/s with {} link)\n"
)
LIBRARY = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.12\n"
MARKED = "$ cat /sys/class/net/rail4/ecn/roce_np/enable/3 /sys/class/net/rail4/ecn/roce_rp/enable/3\n{}\n{}\n"

ROWS |= {
    "PFC that is set, but not in operation": (
        PFC.format("On", "On   Off"),
        [("warn", "link.pfc", "Ethernet1/8: PFC is set to on, but is off")],
        "",
        0,
    ),
    "PFC of one port of two": (
        PFC.format("Auto", "Auto Off"),
        [("unknown", "link.pfc", "Ethernet1/8: PFC Off")],
        "",
        3,
    ),
    "PFC of two ports": (PFC.format("On", "On   On  (8)"), [], "", 0),
    "a full disk behind Fabric's prefix": (
        FULL.format("440G   40K", 100),
        [("fail", "host.file-systems", "")],
        "",
        1,
    ),
    "a disk with room behind Fabric's prefix": (FULL.format("120G  320G", 28), [], "", 0),
    "congestion control that is off": (
        MARKED.format(1, 0),
        [("unknown", "roce.chain", "rail4: congestion control is off for priority 3 (roce_rp")],
        "",
        3,
    ),
    "congestion control that is on": (MARKED.format(1, 1), [], "", 0),
    "slow steps in a log of NCCL, reported once": (
        f"{LAUNCH}{steps_of([1000.0] * 15 + [2600.5] * 15)}",
        [("warn", "torch.steps", "from step 16 on, steps take 2.6 times as long")],
        "",
        0,
    ),
    "even steps in a log of NCCL": (f"{LAUNCH}{steps_of([1000.0] * 30)}", [], "", 0),
    "a slow write test above the port's rate": (
        WRITE.format(rate=98.31, device="bnxt_re2"),
        [("warn", "pair.write-bw", "98.31 Gb/s at 1048576 bytes, over a port of 200 Gb/s")],
        "",
        0,
    ),
    "a fast write test above the port's rate": (WRITE.format(rate=196.4, device="bnxt_re2"), [], "", 0),
    "a write test above the rate of another port": (
        WRITE.format(rate=98.31, device="bnxt_re0"),
        [("unknown", "pair.write-bw", "the text does not show the port's rate")],
        "",
        3,
    ),
    "pods without a header": (
        PODS.format("0/2   ImagePullBackOff   0"),
        [("fail", "container.state", "ImagePull")],
        "",
        1,
    ),
    "healthy pods without a header": (PODS.format("2/2   Running            0"), [], "", 0),
    "nodes without a header": (
        "".join(f"vela{n}   {state}   worker   41d   v1.31.4\n" for n, state in ((31, "NotReady"), (32, "Ready"))),
        [("fail", "host.services", "vela31")],
        "vela32",
        1,
    ),
    "counters in a journal": (
        JOURNAL.format(55120),
        [("unknown", "counters.loss", "rx_discards_phy 55120")],
        "",
        3,
    ),
    "counters in a journal that are zero": (JOURNAL.format(0), [], "", 0),
    "the state of a node without its name": (
        FILTERED.format("DOWN+NOT_RESPONDING", "   Reason=Not responding [slurm@2026-02-17T08:30:00]\n"),
        [("fail", "host.services", "vela31: taken out of service: Not responding")],
        "",
        1,
    ),
    "a healthy state of a node without its name": (FILTERED.format("MIXED", ""), [], "", 0),
    "a fast bond with one flow per peer": (
        AGGREGATED.format("layer2 (0)", speed=200000),
        [("unknown", "rdma.port-state", "the hash policy is layer2")],
        "",
        3,
    ),
    "a slow bond with one flow per peer": (AGGREGATED.format("layer2 (0)", speed=10000), [], "", 0),
    "a fast bond with many flows per peer": (AGGREGATED.format("layer3+4 (1)", speed=200000), [], "", 0),
    "a NIC with half of its lanes, reported once": (
        LIMITED.format("16.0 GT/s PCIe x8", "16.0 GT/s PCIe x16"),
        [("warn", "kernel.events", "0000:2b:00.0: its PCIe link has x8 of x16 lanes")],
        "",
        0,
    ),
    "a NIC at half of its speed": (
        LIMITED.format("8.0 GT/s PCIe x16", "16.0 GT/s PCIe x16"),
        [("warn", "kernel.events", "less PCIe bandwidth than it could use")],
        "",
        0,
    ),
    "the version of NVML": (LIBRARY, [("fail", "versions.driver-files", "590.12")], "", 1),
}


@pytest.mark.parametrize("name", ROWS)
def test_findings_of_both_sides(name: str, tmp_path: Path) -> None:
    text, expected, absent, status = ROWS[name]
    path = tmp_path / "text"
    path.write_text(text)
    parts = recognition.read(InputSource("text", path))
    findings = [finding for part in parts for finding in part.findings if finding["status"] != "pass"]
    messages = [f"{finding['status']} {finding['check']}: {finding['message']}" for finding in findings]
    assert len(messages) == len(expected), messages
    for kind, check, words in expected:
        assert any(message.startswith(f"{kind} {check}: ") and words in message for message in messages), messages
    assert not [message for message in messages if absent and absent in message], messages
    assert recognition.exit_status([("text", parts)]) == status, [(part.kind, part.judged) for part in parts]

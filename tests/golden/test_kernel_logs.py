"""Kernel logs of many distributions, drivers and clocks, each with its expected judgement.

All are made by hand in the forms of the kernel's messages; the expectations were written before the first reading.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

import pytest

from preflight.recognition import read_text


@dataclass(frozen=True)
class Excerpt:
    """A log, and its findings other than passes: status and subject."""

    text: str
    expected: frozenset[tuple[str, str]]
    words: tuple[str, ...] = ()  # of the messages


def _of(text: str, *expected: tuple[str, str], words: tuple[str, ...] = ()) -> Excerpt:
    return Excerpt(text.lstrip("\n"), frozenset(expected), words)


def _many(line: str, number: int, first: float, step: float) -> str:
    return "".join(f"[{first + step * at:.6f}] {line.format(at=at)}\n" for at in range(number))


EXCERPTS = {
    "Ubuntu, ext4 of an NVMe drive, dmesg -T": _of(
        """
[Tue Mar  4 02:11:07 2025] nvme nvme2: I/O 118 (Write) QID 9 timeout, aborting
[Tue Mar  4 02:11:37 2025] nvme nvme2: I/O 118 QID 9 timeout, reset controller
[Tue Mar  4 02:12:08 2025] nvme nvme2: Device not ready; aborting reset, CSTS=0x1
[Tue Mar  4 02:12:08 2025] nvme nvme2: Disabling device after reset failure: -19
[Tue Mar  4 02:12:08 2025] I/O error, dev nvme2n1, sector 732160 op 0x1:(WRITE) flags 0x8800 phys_seg 8 prio class 2
[Tue Mar  4 02:12:08 2025] Aborting journal on device nvme2n1p1-8.
[Tue Mar  4 02:12:08 2025] EXT4-fs error (device nvme2n1p1): ext4_journal_check_start:83: comm fluentd: Detected aborted journal
[Tue Mar  4 02:12:08 2025] EXT4-fs (nvme2n1p1): Remounting filesystem read-only
""", ("fail", "nvme2n1"), ("fail", "nvme2"), words=("became read-only", "the kernel disabled nvme2"),
    ),
    "Rocky, XFS of a drive, journal": _of(
        """
Mar 04 02:11:07 cn0417 kernel: XFS (nvme1n1p2): metadata I/O error in "xfs_imap_to_bp+0x5c/0xa0 [xfs]" at daddr 0x2a8c40 len 32 error 5
Mar 04 02:11:07 cn0417 kernel: XFS (nvme1n1p2): Metadata I/O Error (0x1) detected at xfs_trans_read_buf_map+0x1d1/0x330 [xfs] (fs/xfs/xfs_trans_buf.c:296).  Shutting down filesystem.
Mar 04 02:11:07 cn0417 kernel: XFS (nvme1n1p2): Please unmount the filesystem and rectify the problem(s)
""", ("fail", "nvme1n1"), words=("shut down",),
    ),
    "SUSE, btrfs forced read-only, ISO": _of(
        """
2025-03-04T02:11:07,118204+01:00 BTRFS error (device sda3): bdev /dev/sda3 errs: wr 12, rd 0, flush 1, corrupt 0, gen 0
2025-03-04T02:11:07,118412+01:00 BTRFS: error (device sda3 state A) in btrfs_commit_transaction:2494: errno=-5 IO failure (Error while writing out transaction)
2025-03-04T02:11:07,118433+01:00 BTRFS info (device sda3 state EA): forced readonly
""", ("fail", "sda"), words=("read-only",),
    ),
    "btrfs as it is mounted": _of(
        """
[    8.110244] BTRFS: device label scratch devid 1 transid 88127 /dev/sdb1 scanned by (udev-worker) (611)
[    9.218801] BTRFS info (device sdb1): first mount of filesystem 7c1f9f8e-2d2c-4d0a-8a8e-1f6f2f6b5d11
[    9.218819] BTRFS info (device sdb1): using crc32c (crc32c-intel) checksum algorithm
[    9.304120] BTRFS info (device sdb1): enabling ssd optimizations
""",
    ),
    "md: a member failed, the array still runs": _of(
        """
[81211.402117] blk_update_request: critical medium error, dev sdc, sector 1177216 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
[81211.402190] md/raid1:md127: Disk failure on sdc2, disabling device.
               md/raid1:md127: Operation continuing on 1 devices.
""", ("warn", "sdc"), ("warn", "md127"), words=("the array md127 lost sdc2 and continues without it",),
    ),
    "md: a stripe set lost a member": _of(
        """
[81211.402117] I/O error, dev nvme4n1, sector 1177216 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2
[81211.402190] md/raid0:md0: Disk failure on nvme4n1 detected, failing array.
[81211.402201] XFS (md0): log I/O error -5
[81211.402211] XFS (md0): Filesystem has been shut down due to log error (0x2).
""", ("fail", "md0"), ("warn", "nvme4n1"), words=("the array md0 failed",),
    ),
    "ZFS suspended a pool": _of(
        """
[90211.771204] WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.
""", ("fail", "tank"), words=("suspended",),
    ),
    "Lustre: a target out of reach, and evicted": _of(
        """
Mar  4 02:11:07 cn0417 kernel: Lustre: 4711:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent 1741054200/real 1741054200]  req@00000000c8a1d2b3 x1825/t0(0) o400->scr-OST0004-osc-ffff9a0c@10.8.0.14@o2ib:28/4 lens 224/224 e 0 to 1 dl 1741054267 ref 1 fl Rpc:XNQr/0/ffffffff rc 0/-1
Mar  4 02:11:07 cn0417 kernel: Lustre: scr-OST0004-osc-ffff9a0c: Connection to scr-OST0004 (at 10.8.0.14@o2ib) was lost; in progress operations using this service will wait for recovery to complete
Mar  4 02:13:44 cn0417 kernel: LustreError: 167-0: scr-OST0004-osc-ffff9a0c: This client was evicted by scr-OST0004; in progress operations using this service will fail.
Mar  4 02:13:44 cn0417 kernel: Lustre: scr-OST0004-osc-ffff9a0c: Connection restored to 10.8.0.14@o2ib (at 10.8.0.14@o2ib)
""", ("warn", "scr-OST0004"), words=("evicted",),
    ),
    "Lustre: lost and restored while a server was failed over": _of(
        """
Mar  4 02:11:07 cn0417 kernel: Lustre: scr-MDT0000-mdc-ffff9a0c: Connection to scr-MDT0000 (at 10.8.0.11@o2ib) was lost; in progress operations using this service will wait for recovery to complete
Mar  4 02:12:31 cn0417 kernel: Lustre: scr-MDT0000-mdc-ffff9a0c: Connection restored to 10.8.0.12@o2ib (at 10.8.0.12@o2ib)
""",
    ),
    "mlx5: firmware stopped": _of(
        """
[512004.118212] mlx5_core 0000:5c:00.0: print_health_info:504:(pid 0): Health issue observed, FW irisc assert, severity(3) ERROR:
[512004.118233] mlx5_core 0000:5c:00.0: print_health_info:508:(pid 0): assert_var[0] 0x00000001
[512004.118240] mlx5_core 0000:5c:00.0: poll_health:1023:(pid 0): device's health compromised - reached miss count
[512004.902100] mlx5_core 0000:5c:00.0: mlx5_health_try_recover:335:(pid 911): handling bad device here
""", ("fail", "0000:5c:00.0"),
    ),
    "bnxt: a link that flaps": _of(
        "".join(
            f"[{7000 + 60 * at}.114400] bnxt_en 0000:41:00.0 enp65s0f0np0: NIC Link is Down\n"
            f"[{7003 + 60 * at}.280100] bnxt_en 0000:41:00.0 enp65s0f0np0: NIC Link is Up, 100000 Mbps full duplex,"
            " Flow control: none\n"
            for at in range(5)
        ), ("warn", "enp65s0f0np0"), words=("came back 5 times",),
    ),
    "ice: one link down and up again, by hand or not": _of(
        """
[88120.118811] ice 0000:17:00.0 ens2f0: NIC Link is Down
[88133.554021] ice 0000:17:00.0 ens2f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC, Negotiated FEC: RS-FEC, Autoneg Advertised: Off, Autoneg Negotiated: False, Flow Control: None
""",
        ("unknown", "ens2f0"), words=("went down and came back once",),
    ),
    "EDAC i10nm: corrected, one": _of(
        """
[66120.771802] EDAC MC2: 1 CE memory read error on CPU_SrcID#0_MC#2_Chan#1_DIMM#0 (channel:1 slot:0 page:0x8f2a41 offset:0x740 grain:32 syndrome:0x0 -  err_code:0x0101:0x0090 ProcessorSocketId:0x0 MemoryControllerId:0x2)
""",
        ("unknown", "CPU_SrcID#0_MC#2_Chan#1_DIMM#0"), words=("1 corrected hardware error (",),
    ),
    "EDAC skx: a storm of corrected errors": _of(
        _many("EDAC skx MC0: HANDLING MCE MEMORY ERROR", 40, 66120, 20)
        + _many("EDAC MC0: 1 CE memory scrubbing error on CPU_SrcID#0_MC#0_Chan#2_DIMM#0 (channel:2 slot:0"
                " page:0x4cf88{at} offset:0x0 grain:32 syndrome:0x0)", 40, 66920, 20),
        ("warn", "CPU_SrcID#0_MC#0_Chan#2_DIMM#0"), words=("40 corrected memory errors",),
    ),
    "EDAC amd64: an uncorrected error": _of(
        """
[441250.118722] mce: [Hardware Error]: Machine check events logged
[441250.118733] [Hardware Error]: Uncorrected, software restartable error.
[441250.118738] [Hardware Error]: CPU:68 (19:11:1) MC21_STATUS[Over|UE|MiscV|AddrV|-|PCC|SyndV|UECC|-|-|-]: 0xfe002000a0ad011b
[441250.118744] EDAC MC1: 1 UE Cannot decode normalized address on mc#1csrow#2channel#7 (csrow:2 channel:7 page:0x0 offset:0x0 grain:64)
""", ("fail", "CPU 68"), ("fail", "mc#1csrow#2channel#7"),
        words=("1 uncorrected machine check on CPU 68, which reports the memory error on mc#1csrow#2channel#7",),
    ),
    "GHES on ARM: corrected memory": _of(
        """
[ 9120.401200] {3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 6
[ 9120.401207] {3}[Hardware Error]: It has been corrected by h/w and requires no further action
[ 9120.401211] {3}[Hardware Error]: event severity: corrected
[ 9120.401214] {3}[Hardware Error]:  Error 0, type: corrected
[ 9120.401217] {3}[Hardware Error]:   section_type: memory error
[ 9120.401222] {3}[Hardware Error]:   node:0 card:3 module:0 rank:1 bank:5 row:2209 column:816
""",
        ("unknown", ""), words=("1 corrected hardware error (memory-error 1",),
    ),
    "GHES on ARM: fatal PCIe": _of(
        """
[ 9120.401200] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 2
[ 9120.401211] {1}[Hardware Error]: event severity: fatal
[ 9120.401214] {1}[Hardware Error]:  Error 0, type: fatal
[ 9120.401217] {1}[Hardware Error]:   section_type: PCIe error
[ 9120.401222] {1}[Hardware Error]:   port_type: 4, root port
[ 9120.401230] {1}[Hardware Error]:   device_id: 0009:00:00.0
""", ("fail", "0009:00:00.0"), words=("fatal PCIe error",),
    ),
    "AER: a storm of corrected errors": _of(
        "".join(
            f"[{1000 + at}.000100] pcieport 0000:a0:01.0: AER: Correctable error message received from 0000:a1:00.0\n"
            f"[{1000 + at}.000120] nvidia 0000:a1:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer,"
            " (Receiver ID)\n"
            f"[{1000 + at}.000130] nvidia 0000:a1:00.0:   device [10de:2330] error status/mask=00000001/00006000\n"
            f"[{1000 + at}.000140] nvidia 0000:a1:00.0:    [ 0] RxErr                  (First)\n"
            for at in range(120)
        ), ("warn", "0000:a1:00.0"), words=("120 corrected PCIe errors",),
    ),
    "AER: a few corrected in a day": _of(
        "".join(
            f"[{90000 + 9000 * at}.000100] pcieport 0000:a0:01.0: AER: Corrected error received: 0000:a0:01.0\n"
            f"[{90000 + 9000 * at}.000120] pcieport 0000:a0:01.0: PCIe Bus Error: severity=Corrected, type=Data Link"
            " Layer, (Transmitter ID)\n"
            f"[{90000 + 9000 * at}.000130] pcieport 0000:a0:01.0:   device [8086:352a] error status/mask=00001000/0000\n"
            f"[{90000 + 9000 * at}.000140] pcieport 0000:a0:01.0:    [12] Timeout\n"
            for at in range(6)
        ),
        ("unknown", "0000:a0:01.0"), words=("6 corrected hardware errors (pcie-aer 6",),
    ),
    "memory: a job at the limit of its cgroup": _of(
        """
[71200.100100] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[71200.100200] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_4711,mems_allowed=0-1,oom_memcg=/system.slice/slurmstepd.scope/job_4711,task_memcg=/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0,task=python3,pid=90122,uid=2044
[71200.100300] Memory cgroup out of memory: Killed process 90122 (python3) total-vm:61207488kB, anon-rss:50331648kB, file-rss:20480kB, shmem-rss:0kB, UID:2044 pgtables:99000kB oom_score_adj:0
[71200.300100] oom_reaper: reaped process 90122 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
""", ("warn", "python3"),
    ),
    "memory: the node ran out": _of(
        """
[71200.100100] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
[71200.100200] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/system.slice/nv-hostengine.service,task=nv-hostengine,pid=2210,uid=0
[71200.100300] Out of memory: Killed process 2210 (nv-hostengine) total-vm:9910222kB, anon-rss:412220kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:3000kB oom_score_adj:0
""", ("warn", ""), words=("nv-hostengine",),
    ),
    "a planned reboot: the end of one boot and the beginning of the next": _of(
        """
-- Boot 3f0c7d2a9b1e4c5d8e7f60718293a4b5 --
Mar 04 06:00:01 cn0417 kernel: mlx5_core 0000:5c:00.0 ens5np0: Link down
Mar 04 06:00:02 cn0417 kernel: XFS (nvme0n1p2): Unmounting Filesystem 2f7c1d0a-11d2-4f0f-a5d4-0c0d0e0f1011
Mar 04 06:00:02 cn0417 kernel: reboot: Restarting system
-- Boot 9a1e4c5d8e7f60718293a4b53f0c7d2a --
Mar 04 06:04:11 cn0417 kernel: Linux version 5.14.0-503.22.1.el9_5.x86_64 (mockbuild@builder.example.org) (gcc 11.5.0) #1 SMP
Mar 04 06:04:11 cn0417 kernel: mlx5_core 0000:5c:00.0: firmware version: 28.43.2026
Mar 04 06:04:20 cn0417 kernel: mlx5_core 0000:5c:00.0 ens5np0: Link down
Mar 04 06:04:24 cn0417 kernel: mlx5_core 0000:5c:00.0 ens5np0: Link up
Mar 04 06:04:31 cn0417 kernel: XFS (nvme0n1p2): Ending clean mount
""",
    ),
    "a drive pulled and put back in": _of(
        """
[55120.100100] pcieport 0000:64:03.0: pciehp: Slot(21): Link Down
[55120.100200] pcieport 0000:64:03.0: pciehp: Slot(21): Card not present
[55121.900100] pcieport 0000:64:03.0: pciehp: Slot(21): Card present
[55121.900200] pcieport 0000:64:03.0: pciehp: Slot(21): Link Up
[55122.700200] nvme nvme5: pci function 0000:66:00.0
[55122.900200] nvme nvme5: 64/0/0 default/read/poll queues
""",
    ),
    "noise of USB, IPMI, cloud-init and audit": _of(
        """
[    3.118812] usb 1-14.1: new high-speed USB device number 5 using xhci_hcd
[    3.409112] usb 1-14.1: device descriptor read/64, error -71
[    4.118812] usb 1-14-port2: unable to enumerate USB device
[    7.220100] ipmi_si IPI0001:00: IPMI message handler: Found new BMC (man_id: 0x002a7c, prod_id: 0x1d0c, dev_id: 0x20)
[    7.420100] ipmi_si IPI0001:00: The BMC does not support clearing the recv irq bit, compensating, but the BMC needs to be fixed.
[    8.100100] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.XHCI.RHUB.HS14], AE_NOT_FOUND (20230628/psargs-330)
[    9.110100] ERST: [Firmware Warn]: Firmware does not respond in time.
[   14.110100] cloud-init[1811]: Cloud-init v. 24.4 running 'init' at Tue, 04 Mar 2025 06:04:31 +0000. Up 14.05 seconds.
[   15.000100] systemd[1]: Failed to start ipmievd.service - Ipmievd Daemon.
[   15.200100] audit: type=1400 audit(1741068275.100:61): apparmor="DENIED" operation="capable" class="cap" profile="/usr/sbin/cupsd" pid=2110 comm="cupsd" capability=12  capname="net_admin"
[   21.000100] Process accounting resumed
[  621.000100] hrtimer: interrupt took 8411 ns
[ 1621.000100] perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate to 79500
[ 2621.000100] TCP: request_sock_TCP: Possible SYN flooding on port 6817. Sending cookies.  Check SNMP counters.
""", ("unknown", ""), ("unknown", "6817"),
    ),
    "an oops of a driver": _of(
        """
[120411.118800] BUG: kernel NULL pointer dereference, address: 0000000000000058
[120411.118820] #PF: supervisor read access in kernel mode
[120411.118840] Oops: 0000 [#1] PREEMPT SMP NOPTI
[120411.118850] CPU: 41 PID: 88122 Comm: ptlrpcd_03_01 Tainted: G           OE     5.14.0-427.13.1.el9_4.x86_64 #1
""", ("fail", ""), words=("NULL pointer dereference",),
    ),
    "an oops on ARM": _of(
        """
[  991.118800] Unable to handle kernel paging request at virtual address ffff80009d3c0000
[  991.118820] Mem abort info:
[  991.118840] Internal error: Oops: 0000000096000007 [#1] SMP
""", ("fail", ""),
    ),
    "a kernel warning is no oops": _of(
        """
[  991.118800] ------------[ cut here ]------------
[  991.118820] WARNING: CPU: 12 PID: 4711 at net/core/dev.c:3212 skb_warn_bad_offload+0x8c/0xf0
[  991.118840] Modules linked in: nvidia_uvm(OE) nvidia(OE) mlx5_ib mlx5_core
[  991.118860] ---[ end trace 0000000000000000 ]---
""", ("unknown", ""),
    ),
    "a hard lockup": _of(
        """
[70111.000100] watchdog: Watchdog detected hard LOCKUP on cpu 17
[70111.000200] Modules linked in: nvidia_uvm(POE) nvidia(POE)
""", ("warn", ""), words=("CPU 17",),
    ),
    "RCU stalls": _of(
        """
Mar  4 02:11:07 cn0417 kernel: rcu: INFO: rcu_sched self-detected stall on CPU
Mar  4 02:11:07 cn0417 kernel: rcu:     17-....: (5250 ticks this GP) idle=9b2/1/0x4000000000000000 softirq=99/99 fqs=2622
""", ("warn", ""),
    ),
    "many tasks hang behind one NFS server": _of(
        "[70000.100000] nfs: server nas1.example.org not responding, still trying\n" + "".join(
            f"[{70120 + at}.100000] INFO: task rsync:{9000 + at} blocked for more than 120 seconds.\n"
            f"[{70120 + at}.100100] task:rsync           state:D stack:0     pid:{9000 + at} ppid:1\n"
            f"[{70120 + at}.100200] Call Trace:\n"
            f"[{70120 + at}.100300]  rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]\n"
            f"[{70120 + at}.100400]  nfs4_do_close+0x2b1/0x350 [nfsv4]\n"
            for at in range(4)
        ), ("warn", "nas1.example.org"), ("warn", ""),
    ),
    "an NFS server that came back": _of(
        """
[70000.100000] nfs: server nas1.example.org not responding, still trying
[70044.100000] nfs: server nas1.example.org OK
""",
    ),
    "GPFS and a multipath device": _of(
        """
[70000.100000] device-mapper: multipath: 253:4: Failing path 8:64.
[70000.100200] sd 7:0:0:3: rejecting I/O to offline device
[70000.100300] sd 7:0:0:3: [sde] Synchronizing SCSI cache
""", ("warn", ""),
    ),
    "SAS: a disk with a bad sector": _of(
        """
[70000.100000] sd 0:2:1:0: [sdb] tag#318 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=2s
[70000.100100] sd 0:2:1:0: [sdb] tag#318 Sense Key : Medium Error [current] [descriptor]
[70000.100200] sd 0:2:1:0: [sdb] tag#318 Add. Sense: Unrecovered read error
[70000.100300] sd 0:2:1:0: [sdb] tag#318 CDB: Read(16) 88 00 00 00 00 01 5d 50 a3 ae 00 00 00 08 00 00
[70000.100400] blk_update_request: critical medium error, dev sdb, sector 5860533166 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
""", ("warn", "sdb"),
    ),
    "thermal throttling of CPUs": _of(
        """
[70000.100000] mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)
[70000.100100] mce: CPU12: Core temperature above threshold, cpu clock throttled (total events = 1)
[70001.100100] mce: CPU12: Core temperature/speed normal
""", ("unknown", "CPU 12"), words=("slowed down by heat, up to 1 event",),
    ),
    "a memory page taken out": _of(
        """
[70000.100000] mce: Uncorrected hardware memory error in user-access at 2f41c00440
[70000.100200] Memory failure: 0x2f41c00: Sending SIGBUS to python3:88211 due to hardware memory corruption
[70000.100300] Memory failure: 0x2f41c00: recovery action for dirty LRU page: Recovered
""", ("fail", ""), words=("uncorrected memory error",),
    ),
    "a page taken out for corrected errors": _of(
        """
[70000.100000] soft offline: 0x2f41c00: migrated page
[70000.100100] RAS: Soft-offlining pfn: 0x2f41c00
""",
    ),
    "i40e resets a queue": _of(
        """
[70000.100000] NETDEV WATCHDOG: eno1 (i40e): transmit queue 7 timed out
[70000.100100] i40e 0000:3d:00.0 eno1: tx_timeout: VSI_seid: 390, Q 7, NTC: 0x1f, HWB: 0x20, NTU: 0x20, TAIL: 0x20, INT: 0x0
""", ("warn", "eno1"),
    ),
    "containers and bridges that come and go": _of(
        "".join(
            f"[{70000 + at}.100000] cni0: port {at}(veth{at}a1b2c3d) entered disabled state\n"
            f"[{70000 + at}.200000] IPv6: ADDRCONF(NETDEV_CHANGE): veth{at}a1b2c3d: link becomes ready\n"
            f"[{70000 + at}.300000] eth0: renamed from tmp{at}\n"
            for at in range(20)
        ),
    ),
    "dm-crypt and a verity error": _of(
        """
[70000.100000] device-mapper: verity: 254:1: data block 181812 is corrupted
""", ("warn", "254:1"),
    ),
    "a panic, from pstore": _of(
        """
<0>[120411.118800] Kernel panic - not syncing: Fatal machine check on current CPU
<4>[120411.118900] Kernel Offset: 0x1a000000 from 0xffffffff81000000
""", ("fail", ""), words=("kernel panic",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCERPTS)
def test_a_log_has_the_findings_that_were_expected_of_it(name: str) -> None:
    excerpt = EXCERPTS[name]
    findings = [finding for part in read_text(excerpt.text, "pasted") for finding in part.findings]
    loud = {(f["status"], f["subject"]) for f in findings if f["status"] not in ("pass", "skip")}
    messages = "\n".join(str(finding["message"]) for finding in findings)
    assert loud == excerpt.expected, messages
    for words in excerpt.words:
        assert words in messages

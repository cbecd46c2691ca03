"""Errors of RDMA, NIC and network tools, and of module loaders.

Sources: infiniband-diags, libibumad, rdma-core, ethtool, iproute2, kmod, MFT.
"""

from __future__ import annotations

from preflight.parsers.messages.signature import NETWORK_TOOL, signatures

_IB = ("ibstat", "sminfo", "ls -l /dev/infiniband")
_DEVICES = ("ibstat", "lspci | grep -i -e mellanox -e infiniband -e ethernet", "lsmod | grep -e mlx5_ib -e ib_uverbs")
_LINK = ("ip -br link", "ls /sys/class/net", "dmesg -T | tail -50")
_MODULE = ("modinfo MODULE", "dkms status", "dmesg -T | tail -50")
_MFT = ("mst status -v", "lspci -d 15b3:", "dmesg -T | grep -i mlx5 | tail -50")
#: A call of the RDMA library, from its name on.
_FAILED = r":? .{0,60}(?:failed|returned -?\d|error \d).{0,80}"

SIGNATURES = signatures(NETWORK_TOOL, (
    ("mad-unanswered", "_do_madrpc failed|mad_rpc|query failed|path query failed|iberror: failed|ibwarn:",
     r"_do_madrpc failed(?P<what>.{0,80})|ibwarn: \[\d{1,9}\] (?!.*sim_).{0,200}(?:failed|timed out|timeout).{0,120}"
     r"|\b\w{4,20}: iberror: failed: .{1,120}",
     "fail", "a management packet was not answered: no subnet manager, a port that is down, or a hanging device",
     "fabric.subnet-manager", _IB, "Check the state of the port, and the subnet manager's log."),
    ("umad-open", "UMAD|umad|can't open MAD port|Failed to open",
     r"can't open (?:UMAD|MAD) port.{0,120}|umad_(?:init|open_port).{0,120}(?:fail|can't).{0,80}"
     r"|[Ff]ailed to open '\S{0,64}' port '?\d{0,3}'?.{0,80}|can't initialize UMAD library.{0,80}",
     "fail", "the port cannot be opened for management: no device, no permission, or ib_umad is not loaded",
     "rdma.device-nodes", _DEVICES, "Run `modprobe ib_umad`; run the tool as root; in a pod, add /dev/infiniband."),
    ("verbs-open", "ibv_|IB device|Infiniband|verbs|RDMA device|ibpanic:|IB resources",
     r"ibpanic: \[\d{1,9}\] .{1,160}|Couldn't create IB resources|Couldn't get (?:device )?context.{0,80}"
     r"|Unable to find the Infiniband/RoCE device"
     r"|Failed to (?:get IB devices list|open device|query (?:device|port)|get device list).{0,120}"
     r"|(?:IB|RDMA) device \S{1,64} not found"
     rf"|ibv_(?:open|query|get_device|alloc_pd)\w{{0,40}}{_FAILED}"
     r"|libibverbs: Warning: (?:couldn't load driver|no userspace device-specific driver).{0,160}",
     "fail", "an RDMA device cannot be opened or queried", "rdma.device-nodes", _DEVICES,
     "Load the driver (`modprobe mlx5_ib`) and its user-space provider (rdma-core); in a pod, request the device."),
    ("memlock", "RLIMIT_MEMLOCK",
     r"libibverbs: Warning: RLIMIT_MEMLOCK is (?P<what>\d{1,12} bytes)",
     "warn", "the locked-memory limit is too low for RDMA to register its buffers", "host.memlock",
     ("ulimit -l", "systemctl show slurmd -p LimitMEMLOCK", "cat /etc/security/limits.d/*.conf"),
     "Set the limit of locked memory to unlimited where the job is started."),
    ("interface-missing", "No such device|does not exist|Cannot find device|not found|Cannot get ",
     r"(?:Cannot get .{0,60}|netlink error|Device \"[\w.@-]{1,64}\"|Cannot find device \"(?P<node>[\w.@-]{1,64})\""
     r"|\w{1,40}: error fetching interface information).{0,80}(?:No such device|does not exist|Device not found)"
     r"|Device \"[\w.@-]{1,64}\" does not exist|Cannot find device \"[\w.@-]{1,64}\"",
     "unknown", "the interface in the command does not exist: a wrong name, another namespace, or a lost NIC",
     "rdma.registered", _LINK, "Compare `ip -br link` with `lspci`: a NIC on the bus without an interface lost its "
                               "driver."),
    ("route-missing", "RTNETLINK answers|Network is unreachable|No route to host",
     r"RTNETLINK answers: (?P<what>Network is unreachable|No route to host|Invalid argument|No such (?:process|device))"
     r"|connect: (?:Network is unreachable|No route to host)|ping: .{0,60}Network is unreachable",
     "fail", "there is no route to the address", "rails.subnets", ("ip route get ADDRESS", "ip rule", "ip -br addr"),
     "Set the interface's address and route; check that its link is up."),
    ("module-missing", "modinfo: ERROR|modprobe: FATAL|modprobe: ERROR|insmod: ERROR",
     r"(?:modinfo: ERROR|modprobe: FATAL): Module (?P<what>[\w-]{1,60}) not found.{0,120}"
     r"|(?:modprobe|insmod): ERROR: could not insert (?:module )?'?(?P<gpu>[\w./-]{1,120})'?: .{1,80}",
     "fail", "a kernel module cannot be loaded: it was not built for this kernel, or is incompatible with it",
     "kernel.modules", _MODULE, "Build or install the module for the running kernel (`dkms autoinstall`), then load it."
     ),
    ("mft-error", "-E- ",
     r"^\s{0,8}-E- (?P<what>(?:.{0,120}(?:[Ff]ailed|[Cc]ould not|[Cc]annot|[Uu]nable|[Nn]o such|not found|not supported"
     r"|[Ee]rror|[Ii]nvalid|burnt?|[Dd]evice).{0,160}))",
     "fail", "a firmware tool could not reach the NIC", "rdma.firmware", _MFT,
     "Run `mst start` as root; a NIC in recovery mode (livefish) needs its firmware flashed again."),
    ("perftest-cq", "ompletion with error|Failed to poll|wc_status|Failed status",
     r"[Cc]ompletion with error.{0,120}|[Ff]ailed status (?:[a-z ]{3,60}\()?(?P<what>\d{1,2})\b.{0,120}",
     "fail", "an RDMA operation ended with an error: 12 and 13 mean unacknowledged packets, 4 and 10 a protection "
             "fault",
     "pair.pingpong", ("ibv_devinfo -d DEVICE", "show_gids DEVICE", "ethtool -S IF | grep -e discard -e err"),
     "Test the path with `ib_write_bw` between both ports; check GID index, MTU and PFC of both ends."),
    ("rdma-cm", "RDMA_CM_EVENT_|rdma_resolve_|rdma_connect|rdma_bind",
     r"RDMA_CM_EVENT_(?P<what>(?:ADDR|ROUTE|CONNECT)_ERROR|UNREACHABLE|REJECTED|DEVICE_REMOVAL).{0,80}"
     r"|rdma_(?:resolve_addr|resolve_route|connect|bind_addr): .{1,80}",
     "fail", "the RDMA connection manager found no address, no route or no peer", "pair.pingpong",
     ("rdma link", "ip route get ADDRESS", "show_gids"),
     "Use the address of an interface that belongs to an RDMA device, on both ends."),
    ("libfabric-none", "fi_getinfo", r"fi_getinfo(?:\(\))?:? .{0,40}(?:-61\b|No data available).{0,40}",
     "fail", "libfabric finds no provider that fits the request", "rdma.device-nodes",
     ("fi_info -l", "ls /dev/infiniband", "ibv_devinfo"),
     "Check that the device exists, and that the requested provider is installed: `fi_info -p efa`."),
    ("queue-pair", "ibv_modify_qp|odify QP|to RTR|to RTS|remote QP|remote address",
     rf"ibv_modify_qp{_FAILED}"
     r"|[Ff]ailed to modify (?:\S{0,20} )?QP.{0,80}|[Cc]ouldn.t (?:read remote address|connect to remote QP|read/write"
     r" remote address).{0,80}|[Uu]nable to [Cc]onnect the HCA's.{0,80}",
     "fail", "the queue pair cannot be connected: there is no path to the peer's address, or the GIDs, GID indexes "
             "or MTUs of the ends do not match", "pair.pingpong",
     ("show_gids DEVICE", "ibv_devinfo -d DEVICE", "ping -I IF ADDRESS"),
     "Set the GID index of the RoCE v2 address on both sides (`-x`, `-g`), and check the route between them."),
    ("gid-index", "GID|gid|sgid",
     r"[Ff]ailed to read GID index.{0,80}|can't read sgid of index.{0,40}|Incompatibility issue with GID types"
     r"|[Gg]id index should be between.{0,80}|[Ii]nvalid GID index.{0,40}",
     "fail", "the GID index in the command does not exist, or is of a different RoCE version", "roce.chain",
     ("show_gids DEVICE", "ibv_devinfo -v -d DEVICE | grep GID", "ip -br addr"),
     "Use the index of the RoCE v2 address; if there is none, set an address on the interface."),
    ("memory-registration", "MR|work buf|ibv_reg_",
     rf"ibv_reg_\w{{1,30}}{_FAILED}"
     r"|Couldn't (?:allocate|register) (?:MR|work buf).{0,80}|[Ff]ailed to (?:create|register) MR.{0,80}",
     "fail", "memory could not be registered: locked memory is limited, or RDMA cannot access GPU memory",
     "host.memlock",
     ("ulimit -l", "lsmod | grep peermem", "dmesg -T | tail -20"),
     "Set `ulimit -l unlimited`; for GPU memory, load nvidia-peermem, or use `--use_cuda_dmabuf`."),
    ("verbs-call", "ibv_", rf"ibv_\w{{4,40}}{_FAILED}",
     "fail", "a call of the RDMA library failed: locked memory is limited, the HCA has no resources left, or a limit "
             "of the device is exceeded", "host.memlock", ("ulimit -l", "rdma resource show", "dmesg -T | tail -20"),
     "Set `ulimit -l unlimited`; compare the number of queue pairs with the limits that `ibv_devinfo -v` shows."),
    ("tcp-connect", "ouldn't connect to|Unable to init the socket connection|onnection refused|onnection timed out",
     r"[Cc]ouldn't connect to (?P<what>\S{1,80})|Unable to init the socket connection"
     r"|^\W{0,4}(?:connect|nc: .{0,60}|curl: .{0,60}): ?Connection "
     r"(?:refused|timed out)",
     "fail", "there is no TCP connection to the other side", "pair.pingpong",
     ("ping -c 3 ADDRESS", "nc -vz ADDRESS PORT", "ip route get ADDRESS"),
     "Start the server side first; check the firewall, and the address, which must be on the other node."),
))  # fmt: skip

"""Probes for every node, each with its reason; all are read-only."""

from __future__ import annotations

from preflight.probes.probe import Probe

_PCI = "/sys/bus/pci/devices"
_IB = "/sys/class/infiniband"
_NET = "/sys/class/net"
#: Interfaces of RDMA devices; for a bond, its members.
_RDMA_NETDEVS = (f"{_IB}/*/device/net/*", f"{_IB}/*/device/net/*/master/lower_*/device/net/*")
#: Mounts that are never declared: the kernel's own file systems, images, and what is mounted for containers; network
#: file systems are always included. A line is "ID PARENT DEVICE ROOT PLACE OPTIONS … - TYPE SOURCE OPTIONS".
UNINTERESTING_MOUNT = (
    r"(?!.* - (?:nfs4?|lustre|gpfs|beegfs|wekafs|ceph|cifs|smb3|panfs|pvfs2|orangefs|fuse\.glusterfs|fuse\.ceph"
    r"|fuse\.dfuse) )(?:.* - (?:proc|sysfs|cgroup2?|devpts|mqueue|securityfs|debugfs|tracefs|bpf|pstore|hugetlbfs"
    r"|configfs|fusectl|nsfs|binfmt_misc|rpc_pipefs|efivarfs|devtmpfs|selinuxfs|nfsd|squashfs|fuse\.lxcfs) "
    r"|(?:\S+ ){4}/(?:run|proc|sys|snap|var/lib/(?:docker|containerd|containers|kubelet|rancher|enroot))[/ ])"
)
#: Counters of single queues and rings, of which a large NIC has thousands: `rx12_packets`, `[3]: rx_drops`, ….
_RINGS = r"\s*(?:(?:rx|tx|ch|cq|xdp|xsk)_?(?:queue_)?[0-9]+_|(?:rx|tx)_xsk[0-9]|\[[0-9]+\]:|(?:rx|tx)-[0-9]+\.)"
#: Driver messages at level notice or info that event kinds need (parsers/host/kernel_event_kinds.py).
_NOTICES = (
    r"[Ll]ink (?:is )?(?:[Uu]p|[Dd]own)\b|Link (?:DOWN|ACTIVE)|link status |Cable (?:un)?plugged|pciehp: Slot\("
    r"|oom-kill:|Machine check events logged|\[Hardware Error\]|EDAC |mounted filesystem|Mounting V[0-9]"
    r"|first mount of filesystem|re-mounted |forced readonly|Attached SCSI removable|nfs: server |Connection restored"
    r"|recovery done|BERT: Error records|was lost; in progress|_[a-z0-9_]{1,60}\+0x[0-9a-f]{1,8}/0x"
    r"|NVRM: loading NVIDIA UNIX|Linux version [0-9]"
)

PROBES = (
    # GPUs
    Probe("cmd", "nvidia-smi topo -m", "GPU-GPU and GPU-NIC paths, NIC names, CPU affinity", 20),
    Probe(
        "cmd",
        "nvidia-smi --query-gpu=index,pci.bus_id,name,uuid,driver_version --format=csv,noheader",
        "GPUs that the driver reports, if NVML cannot be called",
        20,
    ),
    Probe("nvml", "gpus", "GPUs that the driver reports, and their health; each call separately", 20, twice=True),
    Probe("cmd", "nvidia-smi -q -x", "health of each GPU, if NVML cannot be called", 20),
    Probe("cmd", "nvidia-smi nvlink -s", "NVLinks of each GPU, if NVML cannot be called", 20),
    Probe("cmd", "nvidia-smi nvlink -e", "error counters of each NVLink", 20, twice=True, where=("nvidia",)),
    Probe(
        "cmd",
        "systemctl show --property=Id,LoadState,ActiveState,SubState nvidia-fabricmanager.service nvidia-imex.service",
        "state of the services that add GPUs to the NVLink fabric",
        where=("nvidia",),
    ),
    Probe("cmd", "nv-fabricmanager --version", "version of the fabric manager, which must match the driver's"),
    Probe("dir", "/dev/nvidia-caps-imex-channels", "IMEX channels, for NVLink between nodes"),
    Probe(
        "cmd",
        "dmesg --raw --level=emerg,alert,crit,err,warn",
        "Xids, SXids and other errors in the kernel's log",
        needs="root",
    ),
    Probe("file", "/proc/uptime", "uptime, for the age of kernel messages"),
    Probe("file", "/proc/driver/nvidia/version", "the loaded kernel driver, even if user space is broken"),
    # PCI bus: available even if a driver is dead
    Probe("dir", _PCI, "all PCI functions and their position below bridges and switches"),
    Probe("file", _PCI + "/*/{uevent,numa_node,local_cpulist}", "class, ids, driver and NUMA node of each"),
    Probe(
        "cmd",
        "lspci -Dnvv",
        "ACS on the bridges between GPU and NIC, MaxReadReq, relaxed ordering",
        20,
        needs="root",
        where=("nvidia", "rdma"),
    ),
    Probe("file", "/sys/bus/pci/drivers/nvidia/*:*/iommu_group/type", "whether the IOMMU translates for each GPU"),
    Probe("file", _IB + "/*/device/iommu_group/type", "whether the IOMMU translates for each HCA"),
    Probe("dir", "/sys/kernel/iommu_groups", "whether an IOMMU is in use"),
    Probe(
        "cmd",
        "dmesg --raw --level=notice,info",
        "changes of links, slots and mounts in driver messages",
        needs="root",
        keep=_NOTICES,
    ),
    Probe("file", _IB + "/*/device/{current,max}_link_{width,speed}", "the PCIe link of each HCA"),
    # RDMA
    Probe("dir", _IB, "RDMA devices registered by the kernel"),
    Probe("file", _IB + "/*/{fw_ver,hca_type,board_id,node_guid,sys_image_guid,parent}", "HCA model, firmware, GUIDs"),
    Probe("dir", _IB + "/*/ports", "the ports of each HCA"),
    Probe("dir", _IB + "/*/device/net", "the network interface of each HCA"),
    Probe(
        "file",
        _IB + "/*/ports/*/{state,phys_state,rate,link_layer,lid,sm_lid,gid_attrs/ndevs/0}",
        "state, rate and link layer of each port",
    ),
    Probe("file", _IB + "/*/ports/*/{gids,gid_attrs/types}/{0,1,2,3,4,5,6,7}", "addresses of the GID table"),
    Probe("file", _IB + "/*/ports/*/pkeys/{0,1,2,3}", "partitions of InfiniBand that each port is a member of"),
    Probe("file", _IB + "/*/ports/*/gids/{15,31,63,127,255,511,1023,2047}", "length of each GID table"),
    Probe("file", "/sys/class/infiniband_verbs/*/ibdev", "HCA of each /dev/infiniband/uverbsN"),
    Probe("dir", "/dev/infiniband", "device nodes, and this user's access to them"),
    Probe("cmd", "ibstat", "ports, if sysfs cannot be read", where=("rdma",)),
    Probe("cmd", "ibv_devinfo", "active MTU; whether the devices can be opened from user space", where=("rdma",)),
    # Ethernet side of RoCE
    Probe("file", _NET + "/*/{mtu,operstate,speed,type,address}", "MTU, link and MAC of each network interface"),
    Probe("file", "/proc/net/vlan/config", "VLAN tags of interfaces"),
    Probe("file", _NET + "/*/qos/trust*", "whether DSCP or the VLAN tag gives the priority (vendor driver)"),
    Probe("file", _NET + "/*/bonding/slaves", "members of a bond, which have its quality of service"),
    Probe("cmd", "dcb -j pfc show dev {}", "PFC per priority (upstream tool)", each=_RDMA_NETDEVS),
    Probe("cmd", "dcb -j app show dev {}", "priority of each DSCP, trust state (upstream tool)", each=_RDMA_NETDEVS),
    Probe("cmd", "dcb -j buffer show dev {}", "receive buffers: PFC headroom (upstream tool)", each=_RDMA_NETDEVS),
    Probe("cmd", "dcb -j dcbx show dev {}", "whether host or firmware sets DCB (upstream tool)", each=_RDMA_NETDEVS),
    Probe(
        "cmd",
        "mlnx_qos -i {}",
        "PFC, trust state, DSCP map, buffers, DCBX mode (vendor tool)",
        needs="root",
        each=_RDMA_NETDEVS,
    ),
    Probe("cmd", "ethtool -a {}", "global pause, which excludes PFC", each=_RDMA_NETDEVS),
    Probe("file", _NET + "/*/ecn/roce_*/enable/*", "ECN per priority (vendor driver)"),
    Probe("file", _NET + "/*/ecn/roce_*/*", "DCQCN parameters, DSCP of CNPs (vendor driver)"),
    Probe("file", "/sys/kernel/debug/mlx5/*/cc_params/*", "the same (upstream driver); only for root"),
    Probe("file", _IB + "/*/tc/*/traffic_class", "traffic class that the driver gives all queue pairs (vendor driver)"),
    # Counters: a single reading shows totals; two, S seconds apart (--window S), show growth
    Probe(
        "files",
        _IB + "/*/ports/*/{counters,hw_counters}",
        "bytes, errors, waits, ECN and CNP of each RDMA port",
        twice=True,
    ),
    Probe(
        "cmd",
        "ethtool -S {}",
        "discards, pauses per priority, FEC and symbol errors",
        each=_RDMA_NETDEVS,
        twice=True,
        omit=_RINGS,
    ),
    Probe("file", _NET + "/*/carrier_changes", "number of link changes", twice=True),
    Probe("file", "/proc/stat", "CPU utilisation by kind of work", twice=True, omit="intr "),
    # Optics and cables
    Probe("cmd", "ethtool -m {}", "module or cable: temperature, light, alarms", 20, "root", each=_RDMA_NETDEVS),
    Probe("cmd", "ethtool --show-fec {}", "forward error correction of each link", each=_RDMA_NETDEVS),
    Probe(
        "cmd",
        "mlxlink -d {} -m -c",
        "bit error ratios of each link, and its module on InfiniBand",
        20,
        "root",
        each=(_IB + "/mlx5_*", _IB + "/ib*"),
    ),
    # NCCL
    Probe("env", "process", "NCCL, UCX, Slurm and device variables that a job would inherit"),
    Probe("env", "ranks", "the same variables of running job processes, if readable by this user"),
    Probe("env", "files", "existence and access of the files named by NCCL variables"),
    Probe("file", "/etc/nccl.conf", "NCCL settings of this host"),
    Probe("file", "~/.nccl.conf", "NCCL settings of this user"),
    # Host
    Probe("file", "/proc/self/status", "allowed CPUs and memory nodes, capabilities"),
    Probe("file", "/proc/self/limits", "memlock and open files"),
    Probe("file", "/sys/devices/system/node/node*/cpulist", "NUMA nodes and their CPUs"),
    Probe("cmd", "find /dev -maxdepth 1 -name nvidia*", "GPU device nodes of a container"),
    Probe(
        "cmd",
        "find /dev -maxdepth 1 -name nvidia* -readable -writable",
        "GPU device nodes allowed by the control group",
        where=("nvidia",),
    ),
    Probe("file", "/etc/{podnetinfo,podinfo}/annotations", "a pod's networks, through the downward API"),
    Probe("file", "/run/.containerenv", "image of a podman container"),
    Probe("kube", "pod", "in a pod with a service account: resource requests and networks", 5),
    Probe("statvfs", "/dev/shm", "space for NCCL's shared memory"),
    Probe("file", "/proc/sys/net/ipv4/ip_local_port_range", "ports for NCCL's sockets"),
    Probe("dir", "/sys/module", "kernel modules: peer memory, RDMA, NVIDIA"),
    Probe("file", "/sys/module/{mlx5_core,efa,ib_core,nvidia,nvidia_peermem}/version", "versions of the drivers"),
    Probe("cmd", "ofed_info -s", "version of the OFED or DOCA packages, if installed", 5),
    Probe("dir", "/sys/devices/system/cpu/cpufreq", "whether the kernel controls the CPU frequency"),
    Probe("file", "/sys/devices/system/cpu/cpufreq/policy*0/scaling_governor", "frequency governor, every tenth CPU"),
    Probe("file", "/proc/sys/kernel/numa_balancing", "whether the kernel moves pages between NUMA nodes"),
    Probe("cmd", "chronyc -n tracking", "whether the clock is synchronised, and its offset", 5),
    Probe("cmd", "timedatectl show", "whether the clock is synchronised, without chrony", 5, where=("systemd",)),
    Probe("file", "/proc/net/route", "interface of the default route"),
    Probe(
        "file",
        "/proc/sys/net/ipv4/conf/{all,en*,eth*,ib*,rdma*,roce*,gpu*,rail*,bond*}/{arp_ignore,arp_announce,rp_filter}",
        "how rails that share a subnet answer ARP",
    ),
    Probe(
        "cmd",
        "lldpcli -f json0 show neighbors details",
        "the switch at the other end of each cable",
        needs="root",
        where=("rdma",),
    ),
    Probe(
        "cmd",
        "ip -j addr",
        "addresses of each network interface",
        otherwise=(Probe("psutil", "net_if_addrs", "the same, without ip(8)"),),
    ),
    Probe(
        "cmd",
        "find -H /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/local/cuda/lib64"
        " /usr/local/nvidia/lib64 /usr/local/lib -maxdepth 1 ( -name libnvidia-ml.so* -o -name libcuda.so*"
        " -o -name libnvidia-ptxjitcompiler.so* -o -name libnccl*.so* ) -printf '%s %p %l\\n'",
        "size and version of the driver's libraries and NCCL",
    ),
    Probe(
        "cmd",
        "find -H /opt /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/local/lib"
        " -maxdepth 4 ( -name libsharp_coll.so* -o -name libnccl-net*.so* ) -printf '%s %p %l\\n'",
        "NCCL's SHARP plug-in and the library that it loads",
        20,
        where=("rdma",),
    ),
    Probe(
        "file",
        "/usr/{lib,local/lib}/python3*/{dist,site}-packages/{torch,nvidia_nccl_cu*}-*.dist-info/INSTALLER",
        "versions of PyTorch and its NCCL, by the directories' names",
    ),
    Probe(
        "file",
        "/opt/{conda,venv}/lib/python3*/site-packages/{torch,nvidia_nccl_cu*}-*.dist-info/INSTALLER",
        "the same, of conda and virtual environments",
    ),
    Probe(
        "file",
        "~/.local/lib/python3*/site-packages/{torch,nvidia_nccl_cu*}-*.dist-info/INSTALLER",
        "the same, of this user",
    ),
    Probe("file", "/usr/{lib,local/lib}/python3*/{dist,site}-packages/torch/version.py", "CUDA version of PyTorch"),
    Probe(
        "file",
        "/opt/{conda,venv}/lib/python3*/site-packages/torch/version.py",
        "the same, of conda and virtual environments",
    ),
    Probe("file", "~/.local/lib/python3*/site-packages/torch/version.py", "the same, of this user"),
    Probe("dir", "/usr/local/cuda/compat", "forward-compatible libcuda"),
    Probe(
        "file",
        "/proc/self/mountinfo",
        "mounted file systems and their mode, without those of the kernel and of containers",
        omit=UNINTERESTING_MOUNT,
    ),
    Probe(
        "cmd",
        "df -B1 -t ext2 -t ext3 -t ext4 -t xfs -t btrfs -t zfs -t f2fs -t vfat -t bcachefs"
        " --output=fstype,size,avail,itotal,iavail,target",
        "file systems on disks without space or inodes",
        5,
    ),
    Probe("file", "/proc/swaps", "whether swap is on"),
    Probe("file", "/proc/mdstat", "members of disk arrays"),
    Probe(
        "cmd", "systemctl list-units --state=failed --plain --no-pager --full", "units that failed", where=("systemd",)
    ),
    Probe("file", "/sys/class/nvme/*/{transport,address}", "NVMe devices over a network"),
    Probe("file", "/proc/cmdline", "IOMMU and other boot settings"),
    Probe("file", "/proc/sys/kernel/{osrelease,hostname}", "kernel release, host name"),
    Probe("file", "/etc/os-release", "distribution"),
    Probe("file", "/etc/{Eos-release,sonic/sonic_version.yml}", "whether this is a network switch"),
    Probe("file", "/host/machine.conf", "the same, of systems that ONIE installed"),
    # Values that must be equal on nodes of one kind, or unique
    Probe("file", "/etc/machine-id", "detects cloned nodes; only a digest leaves the node", digest=True),
    Probe("file", "/proc/sys/kernel/random/boot_id", "detects one machine under two names"),
    Probe("file", "/sys/class/dmi/id/{bios_version,bios_date,product_name}", "version of the BIOS, model of server"),
    Probe("cmd", "head -c 2048 /proc/cpuinfo", "model and microcode of the first CPU", 5),
    Probe("file", "/sys/devices/system/cpu/cpu*0/topology/physical_package_id", "sockets, by every tenth CPU"),
    Probe("file", "/proc/meminfo", "memory of the node"),
    Probe("file", "/sys/devices/system/cpu/online", "logical CPUs"),
    Probe("file", "/sys/devices/system/cpu/smt/control", "whether simultaneous multithreading is on"),
    Probe("file", "/sys/class/nvme/*/state", "whether each NVMe drive works"),
    Probe("file", "/sys/kernel/mm/transparent_hugepage/enabled", "transparent huge pages"),
    Probe("file", "/proc/sys/vm/nr_hugepages", "memory reserved as huge pages"),
    Probe("file", "/proc/sys/net/core/{rmem_max,wmem_max}", "maximum size of socket buffers"),
    Probe("file", "/proc/sys/net/ipv4/{tcp_rmem,tcp_wmem}", "sizes of TCP buffers"),
    Probe("file", "/sys/module/ib_core/parameters/netns_mode", "whether network namespaces share RDMA devices"),
    Probe("file", "/usr/local/cuda/version.json", "version of the CUDA toolkit"),
    Probe("cmd", "nvidia-ctk --version", "version of the NVIDIA container toolkit", 5),
    Probe("file", "/etc/nvidia-imex/nodes_config.cfg", "nodes of the NVLink domain"),
)

"""Errors of Python, PyTorch's launcher and the operating system in a job's output."""

from __future__ import annotations

from preflight.parsers.messages.signature import FRAMEWORK, signatures

_SHM = ("df -h /dev/shm", "ls -lS /dev/shm | head", "docker inspect CONTAINER | grep -i shm")
_KILLED = ("dmesg -T | grep -i -e 'out of memory' -e oom", "sacct -j JOB --format=JobID,State,ExitCode,MaxRSS,ReqMem",
           "free -g")  # fmt: skip
_FIRST_ERROR = ("grep -n -i -e error -e traceback LOG | head", "preflight read LOG", "dmesg -T | tail -50")
_LIMITS = ("ulimit -a", "cat /proc/sys/fs/file-nr", "systemctl show slurmd -p LimitNOFILE -p LimitNPROC")
_DISK = ("df -h; df -i", "mount | grep -e ' ro[, ]'", "dmesg -T | grep -i -e 'i/o error' -e 'read-only'")
_PORTS = ("ss -ltnp | grep PORT", "sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports",
          "ps aux | grep -e torchrun -e python")  # fmt: skip
_RENDEZVOUS = ("getent hosts $MASTER_ADDR", "nc -vz $MASTER_ADDR $MASTER_PORT", "env | grep -e MASTER -e IFNAME")

SIGNATURES = signatures(FRAMEWORK, (
    ("shared-memory", "Bus error|shared memory|/dev/shm|SIGBUS|ignal: 7|ignal 7|torch_",
     r"out of shared memory|insufficient shared memory|Error while creating shared memory segment"
     r"|unable to (?:mmap|open shared memory object|write to file|resize) .{0,80}torch_"
     r"|/dev/shm.{0,60}No space left|No space left on device.{0,80}/dev/shm",
     "fail", "/dev/shm is too small for the processes of the job", "host.shm", _SHM,
     "Give the container more shared memory (`--shm-size`, an emptyDir), or remove leftover files in /dev/shm."),
    ("bus-error", "Bus error|SIGBUS|ignal: 7|ignal 7", r"Bus error|SIGBUS|killed by signal: 7\b",
     "fail", "a bus error ended a process: mapped memory is not available. Usually /dev/shm is full; otherwise a "
             "mapped file was truncated or its file system failed, or memory has an uncorrected error", "host.shm",
     ("df -h /dev/shm", "dmesg -T | grep -i -e 'hardware error' -e 'i/o error'", "df -h; mount | grep -e nfs"),
     "`df -h /dev/shm` shows whether it is full: then give the container more (`--shm-size`); otherwise check the "
     "file system that the process maps."),
    ("unit-failed", "Failed with result|Failed to start|Failed to mount|entered failed state",
     r"^\s{0,8}(?:systemd\[\d{1,10}\]: )?(?P<what>\S{1,120}\.(?:service|mount|socket|target)): Failed with result"
     r"|^\s{0,8}(?:systemd\[\d{1,10}\]: )?Failed to (?:start|mount) (?P<gpu>[\w/][^:]{1,120})\.$"
     r"|^\s{0,8}(?:systemd\[\d{1,10}\]: )?Unit .{0,80}entered failed state",
     "warn", "a systemd unit failed", "host.failed-units",
     ("systemctl --failed", "systemctl status UNIT", "journalctl -u UNIT -b"),
     "Read the unit's preceding lines; restart the unit once the cause is fixed."),
    ("gpfs", "mmfs",
     r"\bmmfs\w{0,8}(?:\[\d{1,10}\])?: (?:\[\w{1,3}\] )?\[E\] (?P<what>.{1,200})"
     r"|^\s{0,8}\[E\] (?=.{0,200}\bmmfs).{1,200}",
     "fail", "the GPFS client reports an error", "host.mounts",
     ("mmgetstate -a", "mmlsmount all -L", "tail -50 /var/adm/ras/mmfs.log.latest"),
     "Check the cluster's state and the node's network."),
    ("fabric-manager", "NVSwitch|nvswitch|abric manager|abric Manager|abricmanager",
     r"(?i)^(?!.{0,200}nvidia-nvswitch\d).{0,80}(?:fail(?:ed|ure)?|unable|cannot|could not|error)\b.{0,80}\bnvswitch"
     r"|\bfabric ?manager\b.{0,120}\b(?:fail(?:ed|ure)?|error|abort\w*|mismatch|(?:do(?:es)?n't|not) match)",
     "fail", "the fabric manager reports an error: GPUs may not reach each other over NVLink", "nvlink.fabric-manager",
     ("systemctl status nvidia-fabricmanager", "tail -50 /var/log/fabricmanager.log",
      "nvidia-smi -q | grep -A 8 -i fabric"),
     "Install the fabric manager of the driver's version and restart it; look for SXids in the kernel log."),
    ("address-in-use", "EADDRINUSE|ddress already in use",
     r"EADDRINUSE|[Aa]ddress already in use",
     "fail", "the rendezvous port is in use by an earlier run, or by another program's connection",
     "host.local-ports", _PORTS, "End the earlier run, or use another MASTER_PORT outside the ephemeral range."),
    ("rendezvous", "Rendezvous|rendezvous",
     r"Rendezvous(?:Timeout|Connection|Closed)Error|rdzv.{0,40}(?:timed out|failed)",
     "fail", "the launchers of the nodes did not find each other", "nccl.socket-ifname", _RENDEZVOUS,
     "Check name resolution, firewall and interface of the rendezvous address, and whether all nodes started."),
    ("jax-coordination", "oordination service|distributed service|Barrier timed out|heartbeat|/replica:",
     r"tasks are unhealthy|^\s{0,8}/job:\w{1,40}/replica:\d{1,4}/task:\d{1,6}\s*$"
     r"|JAX distributed service detected fatal errors"
     r"|[Cc]oordination service.{0,120}(?:error|unavailable|timed out|failed)"
     r"|DEADLINE_EXCEEDED: Barrier timed out|heartbeat timeout|[Mm]issing heartbeats?|failed to send heartbeat"
     r"|have stopped sending heartbeats",
     "fail", "a process of the job ended, hangs or never joined: the coordination service gave up", "job.errors",
     ("grep -n -i -e error -e traceback LOG | head", "preflight read LOG",
      "sacct -j JOB --format=JobID,State,NodeList"),
     "Look for the first error in the logs of the tasks that the message names."),
    ("loss-scale-exhausted", "loss scale",
     r"[Cc]urrent loss scale already at minimum",
     "fail", "every step overflowed until the loss scale reached its minimum: infinite or NaN gradients", "job.errors",
     ("grep -n -i -e overflow -e nan LOG | head", "nvidia-smi -q -d ECC", "dcgmi diag -r 3"),
     "Check the learning rate and the data; if only one rank reports it, test its GPU."),
    ("loss-scale-low", "loss scale|loss_scale",
     r"(?:OVERFLOW!|[Gg]radient overflow).{0,80}?(?:Attempted|reducing|setting|current) loss[ _]scale(?: to)?[:=]? "
     r"(?:\d{1,2}|0?\.\d{1,12}|\d(?:\.\d{1,6})?e-\d{1,3})(?:\.0{1,6})?(?![\d.e])",
     "warn", "nearly every step overflows: the loss scale has fallen below 100", "job.errors",
     ("grep -n -i -e overflow -e nan LOG | head", "nvidia-smi -q -d ECC", "dcgmi diag -r 3"),
     "Check the learning rate and the data; if only one rank reports it, test its GPU."),
    ("no-rdma-device", "No IB devices found|IB devices list|No RDMA devices",
     r"^\W{0,8}No IB devices found|[Ff]ailed to get IB devices list|No RDMA devices (?:were )?(?:found|available)",
     "unknown", "the program finds no RDMA device: there is none, its driver is not loaded, or none is assigned",
     "rdma.registered", ("lspci | grep -i -e mellanox -e infiniband", "lsmod | grep -e mlx5_ib -e ib_uverbs",
                         "ls -l /dev/infiniband /sys/class/infiniband"),
     "Load the driver (`modprobe mlx5_ib`); in a pod, request the RDMA resource."),
    ("device-plugin-xid", "XidCriticalError|marked unhealthy|as unhealthy",
     r"XidCriticalError: (?P<what>Xid=\d{1,4} on Device=\S{1,64})|device marked unhealthy: (?P<gpu>[\w-]{1,64})",
     "fail", "the device plug-in marked a GPU unhealthy because of an Xid", "xid.gpu",
     ("dmesg -T | grep -i -e xid -e nvrm", "nvidia-smi -q", "kubectl describe node NODE | grep -A 12 -i allocatable"),
     "Look up the Xid: drain the node and reset the GPU if its Xid requires it, then restart the plug-in."),
    ("mpi-rank-ended", "noticed that process rank|BAD TERMINATION",
     r"(?:mpirun|mpiexec|prterun) noticed that process rank (?P<rank>\d{1,6}) .{0,60}on node (?P<node>[\w.-]{1,64}) "
     r"exited on (?P<what>signal \d{1,2} .{0,40})|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
     "fail", "the launcher ended the job: a rank was killed or crashed", "job.errors", _FIRST_ERROR,
     "The cause is in the output of that rank, or in the kernel log of its node at that time."),
    ("ray-actor-died", "ActorDied|actor died|RayActorError|WorkerCrashed|worker died",
     r"ActorDiedError|RayActorError|WorkerCrashedError|The actor died unexpectedly|worker died or was killed",
     "fail", "a Ray worker ended: killed at the memory limit, crashed, or its node was lost", "job.errors",
     _KILLED, "Look for its first error in /tmp/ray/session_latest/logs, and for an out-of-memory kill on its node."),
    ("gloo-connection", "gloo|Gloo",
     r"[Gg]loo.{0,160}(?:Connection (?:closed by peer|refused|reset by peer)|connectFullMesh failed|timed out"
     r"|Unable to find (?:address|interface))",
     "fail", "a process of the group ended, or cannot be reached over Gloo's interface", "nccl.socket-ifname",
     ("env | grep -e GLOO -e IFNAME", "getent hosts $(hostname)", "grep -n -i -e error -e traceback LOG | head"),
     "If no rank ended before it, set GLOO_SOCKET_IFNAME to an interface that all nodes share."),
    ("nvshmem-setup", "nvshmem|NVSHMEM",
     r"nvshmem(?:_| )setup (?:heap )?failed|NVSHMEM ERROR|nvshmemx?_init.{0,60}failed|nvshmem.{0,80}non-zero status",
     "fail", "NVSHMEM could not set up its heap or transport", "rdma.device-nodes",
     ("NVSHMEM_DEBUG=INFO, and run again", "ls -l /dev/infiniband; lsmod | grep -e peermem -e gdrdrv", "ulimit -l"),
     "Its first line names the step; IBGDA needs the driver's PeerMappingOverride, other transports need GPUDirect "
     "RDMA."),
    ("child-killed", "exitcode|SIGKILL|exit code|ignal 9|signal: Killed",
     r"exitcode {0,4}:? {0,4}-9\b|exit code:? -9\b|Signal 9 \(SIGKILL\) received|killed by signal: Killed"
     r"|(?:worker|WORKER|process).{0,60}exit(?:ed|code).{0,20}(?:-9|137)\b|died with <Signals\.SIGKILL",
     "fail", "a process was killed (SIGKILL): usually by the kernel, at the memory limit", "kernel.events", _KILLED,
     "If the kernel log has an out-of-memory kill, request more memory or use fewer data-loader workers."),
    ("child-segfault", "exitcode|Segmentation|SIGSEGV|ignal: 11|ignal 11",
     r"exitcode {0,4}:? {0,4}-11\b|Segmentation fault(?: \(|$|\b)|Fatal Python error: Segmentation|SIGSEGV",
     "fail", "a process crashed (segmentation fault)", "job.errors", _FIRST_ERROR,
     "Read the stack (`coredumpctl`, PYTHONFAULTHANDLER=1): the usual cause is a library from another build."),
    ("child-aborted", "exitcode|SIGABRT|core dumped",
     r"exitcode {0,4}:? {0,4}-6\b|Signal 6 \(SIGABRT\)|SIGABRT\b|Aborted \(core dumped\)",
     "fail", "a process aborted: a C++ exception or the watchdog ended it", "job.errors", _FIRST_ERROR,
     "The previous line names the exception."),
    ("child-failed", "ChildFailedError|exitcode",
     r"ChildFailedError|exitcode {0,4}:? {0,4}(?P<what>[1-9]\d{0,2})\b",
     "fail", "a rank ended with an error: the first error of its own log is the cause", "job.errors", _FIRST_ERROR,
     "Look in the rank's own output for the first error; with torchrun, use @record to see the traceback."),
    ("host-out-of-memory", "MemoryError|bad_alloc|DefaultCPUAllocator|Cannot allocate memory|oom-kill|OOMKilled",
     r"\bMemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't allocate|not enough) memory"
     r"|\[Errno 12\] Cannot allocate memory|(?<!container )OOMKilled",
     "fail", "the host's memory, or the job's memory limit, was too small", "kernel.events", _KILLED,
     "Request more memory, or use fewer data-loader workers and less pinned memory."),
    ("killed", "Killed", r"^\W{0,8}(?:\S{1,80}: line \d{1,6}: +\d{1,10} )?Killed(?: {2,}\S.{0,200})?\s*$",
     "fail", "a process was killed: usually by the kernel, at the memory limit", "kernel.events", _KILLED,
     "If the kernel log has an out-of-memory kill, request more memory or use fewer data-loader workers."),
    ("too-many-files", "Too many open files|Errno 24|ancdata",
     r"Too many open files|\[Errno 24\]|received 0 items of ancdata",
     "fail", "the limit on open files is too low", "host.open-files", _LIMITS,
     "Raise the limit (`ulimit -n`, LimitNOFILE of the service that starts jobs)."),
    ("no-threads", "start new thread|pthread_create|blas_thread_init|Resource temporarily unavailable",
     r"can't start new thread|pthread_create failed|blas_thread_init|[Ff]ork.{0,40}Resource temporarily unavailable"
     r"|\[Errno 11\] Resource temporarily unavailable",
     "fail", "the limit on processes and threads is too low", "host.open-files", _LIMITS,
     "Raise the limit (`ulimit -u`, TasksMax and pids.max), or set OMP_NUM_THREADS."),
    ("disk-full", "No space left|quota exceeded|Errno 28|Errno 122",
     r"No space left on device|[Dd]isk quota exceeded|\[Errno (?:28|122)\]",
     "fail", "a file system is full, or a quota is exhausted", "host.file-systems", _DISK,
     "Free up space or inodes; check the location of checkpoints, caches and /tmp."),
    ("disk-read-only", "Read-only file system|Errno 30|Errno 5]|Input/output error",
     r"Read-only file system|\[Errno (?:30|5)\]|Input/output error",
     "fail", "a file system went read-only or has errors", "host.file-systems", _DISK,
     "Look for I/O errors in the kernel log; drain the node before changing its disk."),
    ("stale-mount", "Stale file handle|Transport endpoint is not connected|Errno 116|Errno 107",
     r"Stale (?:NFS )?file handle|Transport endpoint is not connected|\[Errno (?:116|107)\]",
     "fail", "a network file system lost its server", "host.mounts",
     ("mount | grep -e nfs -e lustre -e fuse -e gpfs", "dmesg -T | grep -i -e nfs -e lustre", "df -h"),
     "Remount the file system; check its server and the path to it."),
))  # fmt: skip

"""Errors of training and serving programs, and of their launchers."""

from __future__ import annotations

from preflight.parsers.messages.signature import FRAMEWORK, signatures

_FIRST_ERROR = ("grep -n -i -e error -e traceback LOG | head", "preflight read LOG", "dmesg -T | tail -50")
_FILES = ("ls -l CHECKPOINT", "df -h; df -i", "mount | grep -e nfs -e lustre -e gpfs -e fuse")
_LAYOUT = ("grep -n -e world_size -e WORLD_SIZE -e nproc LOG | head", "env | grep -e WORLD -e SLURM_NTASKS -e RANK",
           "nvidia-smi -L | wc -l")  # fmt: skip
_BUILD = ("pip list | grep -i -e torch -e triton -e nvidia", "nvcc --version; nvidia-smi",
          "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_device_capability())'")  # fmt: skip
_IMPORT = ("pip list | grep -i -e torch -e nvidia -e flash", "python -c 'import sys; print(sys.path)'",
           "echo $PYTHONPATH $LD_LIBRARY_PATH")  # fmt: skip
_HUB = ("env | grep -i -e HF_ -e proxy", "ls -l ${HF_HOME:-~/.cache/huggingface}", "getent hosts HUB")
_LOGIN = ("ssh -v NODE true", "getent hosts NODE", "systemctl status sshd")
_MPI = ("mpirun --version; which mpirun orted prted", "scontrol show hostnames; cat HOSTFILE", "srun --mpi=list")
_RAY = ("ray status", "ls -t /tmp/ray/session_latest/logs | head", "dmesg -T | grep -i -e 'out of memory' -e oom")
_EP = ("NVSHMEM_DEBUG=INFO, and run again", "ibstat; ibdev2netdev", "dmesg -T | grep -i -e xid -e mlx5")

SIGNATURES = signatures(FRAMEWORK, (
    ("checkpoint-damaged",
     "PytorchStreamReader|central directory|safetensors|SafetensorError|IncompleteBuffer|HeaderTooLarge|unpickling|"
     "Unpickling|pickle data|Ran out of input|unexpected EOF|deserializing header|orrupt|InvalidHeader|truncated",
     r"PytorchStreamReader failed|failed finding central directory|(?:Metadata)?IncompleteBuffer|HeaderTooLarge"
     r"|InvalidHeader(?:Deserialization|Length)?\b|[Ee]rror while deserializing header|UnpicklingError"
     r"|pickle data was truncated|EOFError: Ran out of input|unexpected EOF, expected \d{1,12} more bytes"
     r"|(?i:checkpoint|weights|shard|tensor file)\b.{0,80}(?:[Cc]orrupt|truncated|incomplete)"
     r"|[Cc]orrupt(?:ed)? (?:checkpoint|weights|shard)",
     "fail", "a weights file or checkpoint is damaged or incomplete", "job.errors", _FILES,
     "Go back to the previous checkpoint; check whether the file system was full or the writer was killed."),
    ("checkpoint-mismatch", "state_dict|size mismatch|state dict|Unexpected key|Missing key",
     r"Error\(s\) in loading state_dict|size mismatch for [\w.]{1,200}:|(?:Missing"
     r"|Unexpected) key(?:\(s\))? in (?:checkpoint )?"
     r"state.?dict",
     "fail", "the checkpoint is from a different model: shapes or names differ", "job.errors",
     ("grep -n -i -e 'size mismatch' -e 'key(s)' LOG | head", "diff OLD_CONFIG NEW_CONFIG", "ls -l CHECKPOINT"),
     "Compare the configuration that wrote the checkpoint: vocabulary, hidden size, parallel layout."),
    ("checkpoint-missing", "heckpoint",
     r"(?:[Nn]o|[Cc]ould not find|[Cc]annot find|can't find) (?:a |any |valid "
     r"|the )?(?:latest )?checkpoints?\b.{0,60}(?:found|in|at|from)"
     r"|[Cc]heckpoint.{0,120}(?:does not exist|not found|No such file)",
     "warn", "no checkpoint was found where the program looked", "job.errors", _FILES,
     "This is normal when a job first starts; when it resumes, check the path and the mount."),
    ("not-a-number",
     "nan|NaN|inf|non-finite|Inf",
     r"[Ll]oss (?:is|became|was) (?:nan|NaN|inf|infinite)|Unexpected result (?:nan|inf)|[Ff]ound (?:NaN|nan|Inf"
     r"|inf)s? in\b"
     r"|NaN or Inf found|[Nn]on-finite (?:loss|grad\w*|value)|grad(?:ient)?[ _]?norm(?:s)? (?:is|=|:) ?(?:nan|inf)\b"
     r"|[Ll]oss is (?:infinite or NaN|not finite)|returned nan values",
     "fail", "the loss or a gradient is not a number", "job.errors",
     ("grep -n -i -e nan -e inf LOG | head", "nvidia-smi -q -d ECC", "dcgmi diag -r 3"),
     "Check the learning rate and the data of that step; if only one rank reports it, test its GPU."),
    ("parallel-layout", "divisible|world size|world_size|WORLD_SIZE",
     r"(?:world[_ ]?size|WORLD_SIZE|data.?parallel|tensor.{0,20}parallel|pipeline.{0,20}parallel|attention heads"
     r"|num_heads|batch"
     r"|number of GPUs|expert).{0,120}(?:not divisible|be divisible|does ?n.t (?:match|divide)|is not equal"
     r"|not a multiple)"
     r"|world size \(\d{1,6}\) is (?:not|less|larger)",
     "fail", "the number of ranks does not match the parallel layout or the model", "job.errors", _LAYOUT,
     "Choose tensor, pipeline and expert parallelism so that their product divides the number of GPUs."),
    ("data-loader-worker", "DataLoader worker|DataLoader timed out",
     r"DataLoader worker \(pid.{1,60}\) (?:is killed by signal: (?!Bus|Killed)|exited unexpectedly)"
     r"|DataLoader timed out after",
     "fail", "a worker of the data loader was killed, crashed, or hangs", "job.errors",
     ("dmesg -T | grep -i -e 'out of memory' -e oom -e segfault", "df -h /dev/shm", "free -g"),
     "If the kernel killed it, use fewer workers or more memory; if it hangs, check the storage that it reads from."),
    ("kernel-build", "BackendCompilerFailed|InductorError|_dynamo.exc|OutOfResources|ptxas|nvcc|CompilationError"
     "|building"
     " extension|ninja: build|Error compiling|PassManager",
     r"BackendCompilerFailed|InductorError|torch\._dynamo\.exc\.\w{3,40}|OutOfResources: out of resource"
     r"|ptxas (?:fatal|error|/tmp)|nvcc (?:fatal|error)|triton\.compiler\.errors\.\w{1,40}|Error building extension"
     r"|ninja: build stopped|Error compiling objects for extension|PassManager::run failed",
     "fail", "a kernel could not be compiled for this GPU", "job.errors", _BUILD,
     "Compare the versions of PyTorch, Triton and CUDA with the GPU; run once without compilation to continue."),
    ("extension-abi", "undefined symbol|GLIBC|CXXABI",
     r"undefined symbol: (?P<what>_Z\w{1,120})|version .?(?P<lib>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,12}).? not found",
     "fail", "a compiled extension was built for a different PyTorch, compiler or system", "job.errors",
     _IMPORT,
     "Rebuild or reinstall the extension for exactly this PyTorch and this image."),
    ("package-missing", "No module named|cannot import name",
     r"(?:ModuleNotFoundError|ImportError): (?:No module named '?(?P<what>[\w.]{1,120})|cannot import name)",
     "fail", "a Python package is missing, or has the wrong version", "job.errors", _IMPORT,
     "Install the package in the image or environment of the job, on all nodes."),
    ("program-missing", "not found|No such file|xec format error",
     r"(?:(?:ba|z|c|k|da)?sh|[\w./-]{1,200}): (?:line \d{1,6}: "
     r"|\d{1,6}: )?(?P<what>[\w./+-]{1,80}): (?:command )?not found$"
     r"|execve\(\): (?P<path>\S{1,200}): No such file|executable file not found in \$PATH|[Ee]xec format error"
     r"|unable to find the specified executable file",
     "fail", "a program is not installed in the job's environment, or is for a different architecture", "job.errors",
     ("which PROGRAM; echo $PATH", "uname -m; file PROGRAM", "module list"),
     "Load its module or environment in the job's script; check the image's architecture."),
    ("bad-arguments", "rror: unrecognized|rror: the following|rror: argument|is not in struct|MissingMandatory"
     "|omegaconf|hydra",
     r"error: (?:unrecognized arguments|the following arguments are required|argument [\w/-]{1,60}:).{0,200}"
     r"|is not in struct|MissingMandatoryValue|omegaconf\.errors\.\w{1,60}|hydra\.errors\.\w{1,60}",
     "fail", "the program does not accept its arguments or its configuration", "job.errors",
     ("PROGRAM --help", "git diff CONFIG", "preflight read LOG"), "Correct the named argument or setting."),
    ("model-hub", "gated|Client Error|RepositoryNotFound|not a local folder|LocalEntryNotFound|OfflineMode|couldn't "
     "connect to"
     "|HfHub|Too Many Requests|Max retries exceeded",
     r"GatedRepo|gated repo|(?:401|403|404|429) Client Error|RepositoryNotFoundError"
     r"|is not a local folder and is not a valid"
     r"|LocalEntryNotFoundError|OfflineModeIsEnabled|HfHubHTTPError|[Cc]ouldn't connect to '?http"
     r"|429 .{0,20}Too Many Requests"
     r"|Max retries exceeded with url",
     "fail", "a model or data set could not be fetched: no access, a wrong name, or no path to the server",
     "job.errors", _HUB, "Give the job a token or a local copy; on nodes without internet access, fetch it in "
                         "advance."),
    ("ray-memory", "low on memory|memory pressure|ray.exceptions.OutOfMemory|ObjectStoreFull|OutOfDisk",
     r"running low on memory|[1-9]\d{0,5} Workers? \(tasks / actors\) killed due to memory pressure"
     r"|ray\.exceptions\.OutOfMemoryError|ObjectStoreFullError|OutOfDiskError",
     "fail", "Ray killed a task: the memory, object store or disk of its node was nearly full", "kernel.events", _RAY,
     "Use fewer tasks per node or more memory per task (`memory=`); check which process grew."),
    ("ray-disk", "full, available space", r"is over \d{1,3}% full, available space: \S.{0,80}",
     "warn", "the disk to which Ray spills objects is nearly full", "host.file-systems", _RAY,
     "Free space on the disk, or use another disk (`--temp-dir`, object_spilling_config)."),
    ("mpi-tcp", "failed to TCP connect|connect() to",
     r"Open MPI failed to TCP connect to a peer|Message:\s{1,12}connect\(\) to (?P<what>\S{1,60}) failed",
     "fail", "an MPI process cannot be reached over TCP", "nccl.socket-ifname", _MPI,
     "Set the interface that all nodes share (`--mca btl_tcp_if_include`); check route and firewall."),
    ("ray-node", "NodeDied|node has died|node died|marked dead"
     "|placement group|fulfill resource request|cannot be scheduled|connect to GCS"
     "|GCS|raylet",
     r"NodeDiedError|because its node (?:has )?died.{0,80}"
     r"|node .{0,120}(?:has been |was )marked dead|raylet.{0,60}(?:died|failed|crashed)"
     r"|(?:[Ff]ailed|[Uu]nable|[Tt]imed out).{0,40}\b(?:GCS|raylet)\b|GCS.{0,60}(?:unreachable|not reachable"
     r"|timed out|unavailable)",
     "fail", "a Ray node was lost, or the head node does not answer", "host.services", _RAY,
     "Check that the node is up, and read the end of its raylet.out and gcs_server.out."),
    ("ray-resources", "fulfill resource request|placement group|cannot be scheduled|Insufficient resources",
     r"No available node types can fulfill resource request|[Pp]lacement group.{0,120}(?:infeasible|cannot"
     r"|timed? ?out|unable)"
     r"|cannot be scheduled right now|Insufficient resources.{0,80}(?:GPU|bundle)",
     "warn", "Ray has no node with the resources of a task: too few GPUs joined, or all are in use", "gpu.count", _RAY,
     "Compare the resources in `ray status` with the GPUs of the nodes."),
    ("model-load", "failed to load|UNAVAILABLE:",
     r"failed to load '(?P<what>[^']{1,120})'|\|\s{0,4}UNAVAILABLE: .{1,200}",
     "fail", "the server could not load a model", "job.errors",
     ("grep -n -i -e error -e failed LOG | head", "ls -l MODEL_REPOSITORY", "nvidia-smi"),
     "The reason follows its name: a missing file, a different version, or too little memory."),
    ("engine-version", "ngine|serialization",
     r"[Ee]ngine (?:plan|file|was|version).{0,120}(?:incompatible|mismatch|different|not compatible)"
     r"|[Ss]erialization.{0,60}(?:version|[Aa]ssertion|Check).{0,80}(?:failed|mismatch)"
     r"|IRuntime::deserialize\w{0,40}: Error Code",
     "fail", "an engine was built with a different version, or for a different GPU", "versions.compatibility", _BUILD,
     "Rebuild the engine with the version, and on the GPU, that serves it."),
    ("tensorrt-llm", "Assertion failed|TllmException|TensorRT-LLM",
     r"\[TensorRT-LLM\]\[ERROR\]\s{0,2}(?P<what>.{5,200})|TllmException|Assertion failed: .{1,200}\.(?:cpp|cu"
     r"|h):\d{1,6}",
     "fail", "an assertion of the program failed", "job.errors", _FIRST_ERROR,
     "Read the condition of the assertion: usually, the layout of ranks or a size does not match the engine."),
    ("store-unreached", "client socket has failed to connect",
     r"client socket has failed to connect to (?P<what>\S{1,120}) \(errno: (?:11[0-3]|101|104)\b.{0,80}",
     "unknown", "the rendezvous store was not reached: it is not up, or its name, port, firewall or node is wrong",
     "nccl.socket-ifname", ("getent hosts $MASTER_ADDR", "nc -vz $MASTER_ADDR $MASTER_PORT", "env | grep MASTER"),
     "If the job does not start after a minute, check that the node of rank 0 is up and its port reachable."),
    ("store-lost", "recvValue failed|should dump|sendBytes failed",
     r"\b(?:recvValue|sendBytes) failed on SocketImpl\(.{0,200}"
     r"|Failed to check the .should dump. flag on TCPStore.{0,120}",
     "unknown", "the rendezvous store ended before this rank: harmless when a job ends, otherwise the process or the "
                "node of rank 0 failed first", "job.errors", _FIRST_ERROR,
     "Look for the first error of rank 0 and in the kernel log of its node."),
    ("name-unresolved", "gaierror|Name or service not known|name resolution|not resolve host",
     r"gaierror.{0,80}|Name or service not known|Temporary failure in name resolution|[Cc]ould not resolve host.{0,80}",
     "fail", "a host name cannot be resolved", "nccl.socket-ifname",
     ("getent hosts NAME", "cat /etc/resolv.conf", "env | grep -e MASTER -e HOST"),
     "Correct the name, or DNS on that node; in a pod, the headless service of the job."),
    ("cache-preemption", "PreemptionMode",
     r"is preempted by PreemptionMode.{0,20}because there is not enough KV cache space",
     "warn", "requests are preempted: the KV cache is too small for them", "gpu.memory-headroom",
     ("nvidia-smi", "grep -c PreemptionMode LOG", "grep -i 'kv cache' LOG | tail"),
     "Raise gpu_memory_utilization or tensor_parallel_size, or lower max_num_seqs and max_model_len."),
    ("broadcast-waits", "shared memory broadcast block",
     r"No available (?:shared memory broadcast )?block found in \d{1,5} seconds?",
     "warn", "an engine's workers do not read their queue: one hangs, is busy for a long time, or has ended",
     "torch.hang", ("py-spy dump --pid PID", "nvidia-smi", "dmesg -T | grep -i xid"),
     "If the line repeats without requests, find the worker that hangs."),
    ("extension-build", "XFORMERS|xFormers|CUDA SETUP|bitsandbytes|Apex|flash_attn",
     r"xFormers can't load C\+\+/CUDA extensions.{0,80}|CUDA SETUP: (?:Problem|ERROR|Something).{0,120}"
     r"|bitsandbytes.{0,60}compiled without GPU support.{0,40}|bitsandbytes library load error.{0,80}",
     "warn", "a compiled extension does not match the installed PyTorch or CUDA: it is slow or does not work",
     "versions.compatibility", ("python -m torch.utils.collect_env", "pip list | grep -i -e torch -e cuda",
                                "ldconfig -p | grep cudart"),
     "Install the build of the extension for this PyTorch and CUDA."),
    ("straggler", "straggler|Straggler",
     r"(?i)straggler[s ]{0,2}(?:detected|found|identified|warning)\b.{0,160}|\b(?:is|as) a straggler\b.{0,120}",
     "warn", "a rank is slower than its peers", "torch.straggler",
     ("nvidia-smi -q -d PERFORMANCE", "dmesg -T | tail -50", "ibstat"),
     "Compare clocks, temperature, PCIe and links of that rank's GPU with those of its peers."),
    ("driver-validation", "validating|validation",
     r"[Ee]rror validating (?P<what>[\w -]{3,40}? (?:installation|status|workload|plugin|toolkit)).{0,120}",
     "fail", "the GPU operator's validation failed on this node", "gpu.driver",
     ("kubectl logs -n gpu-operator POD -c driver-validation", "nvidia-smi", "dmesg -T | grep -i nvrm"),
     "Check the logs of the driver and toolkit pods on that node."),
    ("mpi-slots", "slots available|slots$|already filled|slots that were requested",
     r"not enough slots available in the system|nodes which are allocated for this job are already filled",
     "fail", "more processes were requested than the launcher has slots", "job.errors", _MPI,
     "Set slots in the host file, request that many tasks, or use --oversubscribe if intended."),
    ("mpi-daemon-lost", "Remote daemon|lost communication|assert (!closed)",
     r"Remote daemon ?: {0,4}\[[^\s]{3,80}\] on node (?P<node>[\w.-]{1,64})"
     r"|(?:ORTE|PRTE|PRRTE) has lost communication with a remote daemon"
     r"|(?:\[proxy[\w:]{0,20}@[\w.-]{1,64}\] )?HYD[TU]?_\w{3,60}.{0,80}assert \(!closed\) failed",
     "fail", "the launcher lost the daemon of a node while the job ran: the node, its network or the daemon failed",
     "host.services", ("ssh NODE uptime", "dmesg -T | tail -50", "ip -s link"),
     "Check that the node is up: `ssh NODE uptime`, its kernel log and the interface of the launcher's network."),
    ("mpi-daemons", "daemon|orted|prted|ORTE|PRTE|Hydra|hydra|HYD|proxy",
     r"unable to reliably start one or more daemons|(?:ORTE|PRTE|PRRTE) (?:daemon |was unable)|ORTE was unable"
     r"|daemon.{0,60}(?:has unexpectedly failed|on a (?:remote )?node failed|died unexpectedly)|(?:orted"
     r"|prted): (?:command )?not found"
     r"|HYD[TU]?_\w{3,60}(?!.{0,80}assert \(!closed\)).{0,120}(?:error|failed|assert|unable)"
     r"|unable to (?:connect to|launch).{0,40}prox(?:y|ies)",
     "fail", "the launcher could not start its daemons on all nodes", "host.services", (*_LOGIN[:2], _MPI[0]),
     "Try `ssh NODE which orted` manually; all nodes need the same MPI at the same path."),
    ("mpi-init", "PMIX|PMI|MPI_INIT|MPI_Init|OPAL|opal_|orte_|ompi_|No components were able",
     r"PMIX[_ ]ERR(?:OR)?\b|PMI2?_Init.{0,40}(?:fail|error)|MPI_INIT(?:_THREAD)? failed"
     r"|MPI_Init(?:_thread)?\b.{0,80}(?:[Ff]atal|fail|abort|error)"
     r"|(?:opal|orte|ompi|prte)_\w{2,40} failed|OPAL ERROR|not built with (?:SLURM|Slurm)'?s? PMI"
     r"|support for PMIx?\b.{0,40}not"
     r"|No components were able to be opened|[Uu]nable to (?:start|initialize|open).{0,40}PMIx?\b",
     "fail", "MPI could not be initialised: launcher and library do not match, or a transport is missing",
     "job.errors", _MPI,
     "Start the program with the mpirun of the same MPI, or `srun --mpi=pmix` with the matching plug-in."),
    ("mpi-fabric", "OFI ",
     r"\bOFI \w{2,40}(?:\(\))? failed\b.{0,200}",
     "fail", "MPI found no usable provider of libfabric (OFI), or its call failed", "job.errors",
     ("fi_info -l", "ibstat; rdma link", "env | grep -E '^(FI|I_MPI|MPIR|UCX)_'"),
     "Compare FI_PROVIDER and the interface that it names with `fi_info` on each node."),
    ("mpi-error", "An error occurred in MPI_|MPI_ERRORS_ARE_FATAL",
     r"\*\*\* An error occurred in MPI_\w{2,40}|MPI_ERRORS_ARE_FATAL",
     "fail", "an MPI call failed: the message before it has the cause", "job.errors", _FIRST_ERROR,
     "Look for the first error in the output of that rank."),
    ("mpi-abort", "MPI_ABORT|MPI_Abort|non-zero exit code|Primary job",
     r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6})|MPI_Abort\(\S{0,20}|Primary job {1,4}terminated normally, but"
     r"|[Pp]rocess(?:es)? (?:returned|exited with) a non-zero exit code",
     "fail", "a rank ended the job: its own error, before this line, is the cause", "job.errors", _FIRST_ERROR,
     "Look for the first error in the output of that rank."),
    ("launcher-login", "ssh|publickey|Host key|resolve hostname|pdsh",
     r"ssh: connect to host (?P<node>[\w.-]{1,64}) port \d{1,5}: .{1,80}|ssh: Could not resolve hostname.{1,80}"
     r"|Host key verification failed|Permission denied \((?:publickey|gssapi)"
     r"|pdsh@\S{1,64}: \S{1,64}: ssh exited with exit code 255"
     r"|kex_exchange_identification",
     "fail", "the launcher cannot log in to a node", "host.services", _LOGIN,
     "Try `ssh NODE true` manually as the job's user; the usual causes are sshd, host key, name and firewall."),
    ("launcher-exit", "exits with return code|exited with return code|returned non-zero exit status|has FAILED|death "
     "signal",
     r"exit(?:s|ed) with return code = (?P<what>-?[1-9]\d{0,3})|returned non-zero exit status [1-9]\d{0,3}"
     r"|Received .{0,20}(?:SIG(?:TERM|HUP|INT)|15|1|2) death signal",
     "fail", "the launcher ended: one of its processes had an error, or it received a termination signal", "job.errors",
     _FIRST_ERROR, "The first error in the output of that process is the cause."),
    ("engine-ended", "EngineCore|EngineDead|Engine process failed|Scheduler hit an exception|ngine core init",
     r"EngineCore (?:failed to start|encountered (?:a fatal|an) (?:error|issue)|hit an exception|died)|EngineDeadError"
     r"|Engine (?:process|core)(?: initialization)? failed|Scheduler hit an exception",
     "fail", "the serving engine ended: the error before this line is the cause", "job.errors", _FIRST_ERROR,
     "Look for the first traceback before this line."),
    ("serving-watchdog", "Watchdog timeout (|Scheduler watchdog",
     r"Watchdog timeout \(.{1,200}|Scheduler watchdog timeout.{0,160}",
     "fail", "the serving engine's watchdog saw no step for too long: a worker hangs", "torch.hang", _FIRST_ERROR,
     "Run `py-spy dump` on its workers and `nvidia-smi`; look for an Xid in the kernel's log."),
    ("xla-rendezvous", "Termination timeout|consistent program state",
     r"Termination timeout for .{0,300}|(?:Exiting|[Tt]erminating).{0,80}to ensure a consistent program state.{0,200}",
     "fail", "XLA ended the program: not all threads of a collective reached its rendezvous", "torch.hang",
     _FIRST_ERROR, "A GPU or process hangs or has ended: run `nvidia-smi`; look for an Xid in the kernel's log."),
    ("xla-waits", "may be stuck",
     r"This thread has been waiting for .{0,400}may be stuck.{0,200}",
     "warn", "a thread waits in a collective that others have not joined (XLA)", "torch.hang", _FIRST_ERROR,
     "Unless a later line reports it as unstuck, a GPU or process hangs: run `nvidia-smi`; look for an Xid."),
    ("horovod-stall", "submitted to be reduced|HorovodInternalError|Horovod has been shut down",
     r"submitted to be reduced, gathered or broadcasted by subset of ranks|HorovodInternalError"
     r"|Horovod has been shut down",
     "fail", "some ranks wait in a collective that others did not join (Horovod)", "torch.hang", _FIRST_ERROR,
     "Check the ranks that it reports as missing: they hang, have ended, or took a different branch."),
    ("expert-parallel", "DeepEP|deep_ep|ibgda|IBGDA|PeerMappingOverride",
     r"DeepEP (?:timeout|error)|deep_ep.{0,60}(?:timeout|[Aa]ssert\w* fail)|(?:ibgda|IBGDA).{0,120}(?:[Ff]ail"
     r"|[Ee]rror|[Uu]nable|not supported)"
     r"|PeerMappingOverride.{0,60}(?:not|missing|require)",
     "fail", "a dispatch between experts was not answered, or its transport could not be set up: a rank hangs, or "
             "NVSHMEM's path to the NIC is broken", "rdma.port-state", _EP,
     "If one rank ended first, that is the cause; otherwise check IBGDA's requirements and the ports of the named "
     "ranks."),
    ("jax-backend", "nitialize backend|CUDA backend failed|CUDA-enabled jaxlib|DNN library",
     r"Unable to initialize backend '(?:cuda|gpu)'|CUDA backend failed to initialize"
     r"|CUDA-enabled jaxlib is not installed"
     r"|DNN library initialization failed",
     "fail", "JAX cannot use the GPU: driver, plug-in or libraries do not match", "versions.compatibility",
     ("nvidia-smi", "pip list | grep -i -e jax -e nvidia", "python -c 'import jax; print(jax.devices())'"),
     "Install jax[cuda] for the driver; remove an older CUDA from LD_LIBRARY_PATH."),
    ("pool-process", "process pool was terminated|BrokenProcessPool|terminated abruptly",
     r"process in the process pool was terminated abruptly|BrokenProcessPool",
     "fail", "a worker process was killed or crashed", "job.errors",
     ("dmesg -T | grep -i -e 'out of memory' -e oom -e segfault", "free -g", "ulimit -a"),
     "If the kernel killed it, use fewer workers or more memory."),
    ("cuda-other", "CUDA error: |CUDA Error: |cudaError|CUDA_ERROR_",
     r"CUDA [Ee]rror: (?P<what>[a-z][\w ,'-]{5,100})|\bcudaError(?!_t\b|String|Enum)[A-Z]\w{3,40}"
     r"|\bCUDA_ERROR_[A-Z_]{4,40}\b",
     "fail", "a CUDA call failed", "job.errors",
     ("dmesg -T | grep -i -e xid -e nvrm", "nvidia-smi -q", "preflight check --only 'gpu.*' --only 'xid.*'"),
     "Look for an Xid at the same time; run the program with CUDA_LAUNCH_BLOCKING=1 to see the call."),
))  # fmt: skip

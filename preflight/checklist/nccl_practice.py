"""Tuning items, second part: communicators, environment, SHARP, records, roles."""

from __future__ import annotations

from preflight.checklist.item import COMPUTE, CONTAINER, ENVIRONMENT, INFINIBAND, Checklist, lack, question

_LIST = Checklist("network-tuning")

#: Packages and libraries are examined on the node.
_INSTALLED = "the software installed where preflight runs; a job in an image has its own"

ITEMS = (
    _LIST.item(
        "NT-COM-1", "Is the communicator created once and reused, not per step?", "trace",
        question("No rank creates more communicators than any layout needs", "nccl.communicators"),
        question("None is created in the training loop", "nccl.late-communicators"),
    ),
    _LIST.item(
        "NT-COM-2", "Are user buffers registered on all ranks or none?", "trace",
        question("All ranks in the log register buffers, or none", "nccl.buffers"),
        within="a log with NCCL_DEBUG_SUBSYS=REG",
    ),
    _LIST.item(
        "NT-DDP-1", "DistributedDataParallel, one process per GPU, not DataParallel", "node trace",
        question("Each running training process uses one GPU", "gpu.process-per-gpu"),
        question("A trace of the job shows one GPU per process", "torch.data-parallel"),
    ),
    _LIST.item(
        "NT-DDP-2", "Is the gradient bucket size right (early start or short tail)?", "trace",
        question("The tail: exposed communication after the backward pass of a step", "torch.overlap"),
        question("The start: the first bucket, relative to the backward pass", "torch.bucket-start"),
        question("Number and size of the buckets", "torch.bucket-start"),
    ),
    _LIST.item(
        "NT-SCL-1", "Share of collectives in the step time; scale-out efficiency", "bench trace",
        question("Share of the collectives in the step time", "torch.collective-share"),
        question("Throughput per GPU as the job grows", "job.scaling", needs="logs of the same job at two sizes"),
    ),
    _LIST.item(
        "NT-CPU-1", "CPU load does not spike during collectives (staging, TCP, Gloo)", "window trace",
        question("While the network is loaded, the CPUs keep up on average", "counters.cpu"),
        question("TCP: no single CPU is saturated by interrupts or kernel work", "counters.cpu"),
        within="a window with RDMA traffic, during collectives; shorter spikes are not visible, and a CPU saturated "
               "by user code is printed, not judged: NCCL's threads poll by design, and staged copies look the same",
    ),
    _LIST.item(
        "NT-GDR-1", "GPUDirect RDMA path: nvidia-peermem loaded or DMA-BUF supported", "node",
        question("One of the two is present", "gpudirect.peer-memory"),
        question("Nothing blocks it between GPU and NIC", "gpudirect.iommu", "gpudirect.path"),
        question("The NICs are configured for it", "pcie.max-read-request", "pcie.relaxed-ordering"),
    ),
    _LIST.item(
        "NT-GDR-2", "baselines with ib_write_bw / ib_read_bw recorded", "pair",
        question("Between the memory of two hosts", "pair.write-bw", "pair.read-bw"),
        question("Between the memory of two GPUs", "pair.write-bw-gpu", "pair.read-bw-gpu"),
    ),
    # pitfalls
    _LIST.item(
        "NT-PIT-1", "wrong backend (gloo for GPU tensors)", "trace",
        question("NCCL runs the collectives of GPU tensors", "torch.backend"),
    ),
    _LIST.item(
        "NT-PIT-2", "TCP fallback though RDMA exists", "node trace",
        question("No channel uses TCP between nodes; otherwise, the cause", "nccl.transport"),
    ),
    _LIST.item(
        "NT-PIT-3", "RDMA device missing in the container", "node",
        question("Every HCA has a device node that this user can open", "rdma.device-nodes", where=CONTAINER),
        question("The modules that this hardware needs are loaded", "kernel.modules", where=CONTAINER),
    ),
    _LIST.item(
        "NT-PIT-4", "bundled and system NCCL differ", "node fleet",
        question("There is one NCCL, or the one bundled with PyTorch", "versions.nccl"),
        question("All nodes have the same NCCL", "fleet.nccl-equal"),
        within=_INSTALLED,
    ),
    _LIST.item(
        "NT-PIT-5", "ephemeral port range too narrow for the rank count", "node",
        question("The range has a port for each rank", "host.local-ports"),
        within="the ranks of the job in which preflight runs; outside a job, at least 10,000 ports",
    ),
    _LIST.item(
        "NT-PIT-6", "memory registration: memlock limit, registration cache, allocator fragmentation", "node trace",
        question("RDMA can pin unlimited memory", "host.memlock"),
        question("No variable disables a registration cache", "rdma.registration-cache"),
        question("Allocator fragmentation", "torch.memory"),
        within=ENVIRONMENT,
    ),
    # environment variables
    _LIST.item(
        "NT-ENV-1", "NCCL_DEBUG left verbose in production", "node",
        question("Level, subsystems and file are suitable for production", "nccl.debug-output"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-2", "NCCL_SOCKET_IFNAME names an interface that exists", "node",
        question("It selects an existing interface that is up", "nccl.socket-ifname"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-3", "NCCL_IB_HCA names HCAs that exist, are active and are the compute fabric", "node",
        question("It selects the active ports of the compute fabric", "nccl.ib-hca", needs=COMPUTE),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-4", "NCCL_IB_DISABLE not left at 1", "node",
        question("It is not in force", "nccl.left-over-disables"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-5", "NCCL_P2P_DISABLE not left at 1", "node",
        question("It is not in force", "nccl.left-over-disables"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-6", "NCCL_SHM_DISABLE not left at 1", "node",
        question("It is not in force", "nccl.left-over-disables"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-7", "async error handling on, under the name the installed PyTorch reads", "node",
        question("It is on, under that name", "nccl.pytorch-variables"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-8", "NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD <= 64", "node",
        question("The product is at most 64", "nccl.socket-threads"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-9", "NCCL_MIN/MAX_NCHANNELS not forced on NVSwitch systems", "node",
        question("NCCL chooses the number of channels", "nccl.pinned-choices"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-10", "NCCL_TOPO_FILE readable and correct; NCCL_TOPO_DUMP_FILE writable", "node",
        question("The files exist and name these GPUs; the dump can be written", "nccl.named-files"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-11", "NCCL_MNNVL_ENABLE only on hardware that supports it (IMEX running)", "node",
        question("It is forced on only if NVLink spans nodes and IMEX runs", "nccl.mnnvl"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-12", "NCCL_IGNORE_CPU_AFFINITY matches the inherited affinity mask", "node",
        question("It is set only if the mask excludes the GPU's CPUs", "numa.nccl-affinity"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-13", "SHARP switched off only for an A/B test", "node",
        question("No variable switches it off, or requests it without effect", "nccl.sharp"),
        within=ENVIRONMENT,
    ),
    _LIST.item(
        "NT-ENV-14", "the same NCCL environment on every rank", "fleet",
        question("NCCL's variables are the same on all nodes and ranks", "fleet.ranks-agree"),
        within=ENVIRONMENT,
    ),
    # SHARP
    _LIST.item(
        "NT-SHP-1", "SHARP-capable switches (not applicable to RoCE)", "fabric",
        question("Every switch has an aggregation node", "fabric.sharp", where=INFINIBAND),
    ),
    _LIST.item(
        "NT-SHP-2", "aggregation manager reachable", "node fabric",
        question("It is registered with the subnet manager", "fabric.sharp", where=INFINIBAND),
        question("It grants trees to a job on these hosts", "nccl.in-network", where=INFINIBAND),
        within="the log of a job that requests SHARP; `sharp_hello` would start a separate job, which no probe does",
    ),
    _LIST.item(
        "NT-SHP-3", "NCCL RDMA SHARP plugin present and loadable", "node",
        question("The job's log shows it loaded, if it is requested", "nccl.in-network"),
        question("The file and its dependencies are on the node, and the loader finds them", "nccl.sharp-plugin"),
    ),
    _LIST.item(
        "NT-SHP-4", "the NCCL log shows SHARP (CollNet) or NVLS in use", "trace",
        question("Channels in the log use it", "nccl.in-network"),
    ),
    _LIST.item(
        "NT-SHP-5", "fabric telemetry agrees", "fabric switch",
        lack("The switches count reductions while the job runs",
             "the fields of an aggregation manager's telemetry (sharp_am) are documented, but no recording of them was "
             "available, so no result from them could pass; and no source states whether the port of a switch "
             "to its aggregation node counts reductions; by hand: in UFM's sharp_am, active_jobs rises when the job "
             "starts, its HCAs are in the histogram, and agg_nodes_in_invalid_state is 0"),
    ),
    # records and roles
    _LIST.item(
        "NT-REC-1",
        "every result records GPU model, driver, CUDA, NCCL, PyTorch, image, NCCL variables, counts, topology",
        "report",
        question(
            "GPU model, driver, CUDA, NCCL, PyTorch, image, NCCL variables, counts and topology are recorded for each "
            "node",
            "nccl-tests.record",
        ),
        within="a result of nccl-tests, with evidence from its nodes",
    ),
    _LIST.item(
        "NT-ROL-1", "separate fabric roles: NCCL uses the compute fabric, not storage or management", "node trace",
        question("NCCL_IB_HCA keeps NCCL off the ports of other roles", "nccl.ib-hca", needs=COMPUTE),
        question("No connection in the job's log uses a port of another role", "nccl.hca-roles", needs=COMPUTE),
    ),
    _LIST.item(
        "NT-CNT-1", "HCA and port counters: ibstat, perfquery, ethtool -S", "window",
        question("The counters can be read", "counters.visible"),
        question("Loss counters do not grow", "counters.loss"),
        question("Link error counters do not grow, and no link goes down", "counters.link-quality", "counters.flaps"),
    ),
)  # fmt: skip

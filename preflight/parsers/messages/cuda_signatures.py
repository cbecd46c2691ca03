"""Errors of CUDA and its libraries, as printed by programs."""

from __future__ import annotations

from preflight.parsers.messages.signature import FRAMEWORK, signatures

_MEMORY = ("nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv", "nvidia-smi -q -d MEMORY",
           "preflight check --only 'gpu.*'")  # fmt: skip
_XID = ("dmesg -T | grep -i -e xid -e nvrm", "nvidia-smi -q", "preflight check --only 'gpu.*' --only 'xid.*'")
_ECC = ("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT", "dmesg -T | grep -i xid", "preflight check --only 'gpu.*'")
_FABRIC = ("systemctl status nvidia-fabricmanager", "nvidia-smi -q | grep -A 8 -i fabric",
           "dmesg -T | grep -i -e nvswitch -e sxid -e nvrm")  # fmt: skip
_DEVICES = ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $SLURM_JOB_GPUS", "ls -l /dev/nvidia*")
_VERSIONS = ("nvidia-smi", "cat /proc/driver/nvidia/version", "python -c 'import torch; print(torch.version.cuda)'")
_DRIVER = ("nvidia-smi", "dmesg -T | grep -i -e nvrm -e xid", "lsmod | grep nvidia")
_NVLINK = ("nvidia-smi nvlink -s", "nvidia-smi nvlink -e", "dmesg -T | grep -i -e xid -e sxid")

SIGNATURES = signatures(FRAMEWORK, (
    ("cuda-out-of-memory",
     "CUDA out of memory|out of memory|OUT_OF_MEMORY|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|HIP out of memory",
     r"(?:CUDA|HIP) out of memory|OutOfMemoryError: CUDA|CUDA (?:driver |runtime )?error(?: \d{1,4})?:? \(?out of mem"
     r"|CUDA runtime error in .{0,200}: out of memory"
     r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED: .{0,80}(?:[Oo]ut of memory|allocat)",
     "fail", "the GPU's memory was too small for an allocation", "gpu.memory-headroom", _MEMORY,
     "If another process uses the memory, end it; otherwise use a smaller batch, sharding, or expandable segments."),
    ("serving-memory", "GPU memory utilization|cache blocks|KV cache|memory capacity is unbalanced",
     r"Free memory on device.{0,80} is less than desired GPU memory utilization"
     r"|No available memory for the cache blocks|[Mm]emory capacity is unbalanced"
     r"|larger than the (?:maximum number of tokens that can be stored|available KV cache memory)",
     "fail", "the GPU has less free memory than the server is configured to use", "gpu.memory-headroom",
     _MEMORY,
     "If another process uses the memory, end it; otherwise lower gpu_memory_utilization or max_model_len."),
    ("cuda-ecc-uncorrectable", "ECC",
     r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable",
     "fail", "the GPU had an uncorrectable memory error", "gpu.ecc-uncorrected", _ECC,
     "Drain the node and reset the GPU; if a row remapping failed or the error recurs, replace the GPU."),
    ("cuda-fabric-not-ready", "system not yet initialized|SYSTEM_NOT_READY|cudaErrorSystemNotReady|Error 802",
     r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|\bError 802\b",
     "fail", "the NVLink fabric is not set up: the fabric manager is not running, or its version differs from the "
             "driver",
     "nvlink.fabric-manager", _FABRIC,
     "Start the nvidia-fabricmanager of exactly the driver's version; then the GPUs join the fabric."),
    ("cuda-no-device",
     "No CUDA GPUs|no CUDA-capable device|NO_DEVICE|cudaErrorNoDevice|Found no NVIDIA driver|no NVIDIA GPU",
     r"No CUDA GPUs are available|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice"
     r"|Found no NVIDIA driver on your system",
     "fail", "the process sees no GPU: none was assigned to it, or the driver reports none", "gpu.driver", _DEVICES,
     "Compare the GPUs assigned by the scheduler or container (CUDA_VISIBLE_DEVICES, /dev/nvidia*) with `nvidia-smi "
     "-L`."),
    ("cuda-invalid-device", "invalid device ordinal|ERROR_INVALID_DEVICE|cudaErrorInvalidDevice",
     r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b",
     "fail", "the process chose a GPU number that is not assigned to it", "gpu.count", _DEVICES,
     "Start as many ranks on each node as it has GPUs, or check for a GPU that fell off the bus."),
    ("cuda-driver-too-old",
     "insufficient for CUDA|too old|forward compatibility|SYSTEM_DRIVER_MISMATCH|unsupported display driver|Error 80"
     "|unsupported toolchain|INSUFFICIENT_DRIVER",
     r"CUDA driver version is insufficient for CUDA runtime version|NVIDIA driver on your system is too old"
     r"|forward compatibility was attempted on non.supported HW|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
     r"|system has unsupported display driver|\bError 80[34]\b|compiled with an unsupported toolchain"
     r"|CUDA_ERROR_INSUFFICIENT_DRIVER",
     "fail", "the driver does not support the CUDA version of the program", "versions.compatibility", _VERSIONS,
     "Update the driver, or use an image with an older CUDA; a libcuda.so in the image must not shadow the driver's."),
    ("cuda-no-kernel-image", "no kernel image|NO_BINARY_FOR_GPU|is not compatible with the current PyTorch",
     r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU"
     r"|CUDA capability sm_\d{2,3}a? is not compatible with the current PyTorch",
     "fail", "the program was not built for this GPU's architecture", "versions.compatibility", _VERSIONS,
     "Use a build for this architecture (TORCH_CUDA_ARCH_LIST), or a newer image."),
    ("torch-without-cuda", "not compiled with CUDA",
     r"Torch not compiled with CUDA enabled|torch was not compiled with (?:flash|CUDA)",
     "fail", "this PyTorch was built without CUDA", "versions.compatibility", _VERSIONS,
     "Install a CUDA build of PyTorch that the driver supports."),
    ("cuda-illegal-access", "illegal memory access|ILLEGAL_ADDRESS|cudaErrorIllegalAddress",
     r"illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress",
     "fail", "a kernel accessed an invalid address: a bug in the program, or a GPU fault", "job.errors", _XID,
     "Run the program with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; if only one GPU fails, test that GPU."),
    ("cuda-device-assert", "device-side assert", r"device-side assert triggered",
     "fail", "a kernel's own assertion failed: usually, an index or label is out of range", "job.errors", _XID,
     "Run the program with CUDA_LAUNCH_BLOCKING=1: the traceback then names the operation."),
    ("cuda-launch-failed",
     "unspecified launch failure|LAUNCH_FAILED|launch timed out|misaligned address|illegal instruction|hardware stack|"
     "LAUNCH_TIMEOUT|cudaErrorLaunch",
     r"unspecified launch failure|CUDA_ERROR_LAUNCH_(?:FAILED|TIMEOUT)|cudaErrorLaunch(?:Failure|Timeout)"
     r"|the launch timed out and was terminated|misaligned address|an illegal instruction was encountered"
     r"|hardware stack error|CUDA_ERROR_HARDWARE_STACK_ERROR",
     "fail", "a GPU exception stopped a kernel", "xid.gpu", _XID,
     "Look for an Xid at the same time; if it happens on only one GPU, drain it and run `dcgmi diag -r 3`."),
    ("cuda-nvlink", "NVLink error|NVLINK_UNCORRECTABLE|NvlinkUncorrectable",
     r"uncorrectable NVLink error|CUDA_ERROR_NVLINK_UNCORRECTABLE|cudaErrorNvlinkUncorrectable",
     "fail", "an NVLink had an uncorrectable error", "nvlink.links", _NVLINK,
     "Drain the node and reset all its GPUs; if the error recurs, replace the GPU or its board."),
    ("cuda-devices-busy", "busy or unavailable|DEVICE_UNAVAILABLE|DevicesUnavailable",
     r"CUDA-capable devices? (?:are|is\(are\)|is/are) busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE"
     r"|cudaErrorDevicesUnavailable",
     "fail", "the GPU accepts no further process: exclusive or prohibited mode, or an earlier process uses it",
     "gpu.compute-mode", ("nvidia-smi -q -d COMPUTE", "nvidia-smi", "fuser -v /dev/nvidia*"),
     "End the process that uses the GPU, or run `nvidia-smi -c DEFAULT`."),
    ("cuda-mps", "MPS ", r"MPS (?:client failed to connect|server is not ready|client terminated without resource)",
     "fail", "CUDA's MPS server does not answer", "gpu.compute-mode",
     ("ps aux | grep nvidia-cuda-mps", "nvidia-smi -q -d COMPUTE", "ls -l ${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}"),
     "Restart the MPS daemon, or unset CUDA_MPS_PIPE_DIRECTORY."),
    ("cuda-initialization", "initialization error|NOT_INITIALIZED|CUDA unknown error|ERROR_UNKNOWN|unknown error",
     r"CUDA error: initialization error|CUDA unknown error|CUDA (?:driver )?error: unknown error|CUDA_ERROR_UNKNOWN"
     r"|CUDA_ERROR_NOT_INITIALIZED",
     "fail", "the driver, or one of its device nodes, does not answer", "gpu.driver",
     _DRIVER, "Check that `nvidia-smi` works and /dev/nvidia-uvm exists, then the kernel log."),
    ("cuda-peer-access", "peer access", r"peer access (?:is not supported|has not been enabled) between these two",
     "warn", "two GPUs cannot access each other directly", "topology.nvlink",
     ("nvidia-smi topo -p2p r", "nvidia-smi topo -m", "lspci -vv | grep -i acsctl"),
     "Check MIG, ACS and the IOMMU; without peer access NCCL uses host memory."),
    ("cublas-allocation", "CUBLAS_STATUS_|cublas",
     r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|cublasCreate.{0,60}failed",
     "fail", "cuBLAS could not create its context: usually the GPU's memory is full", "gpu.memory-headroom", _MEMORY,
     "Free memory on the GPU; otherwise look for an earlier CUDA error, which cuBLAS is only the first to report."),
    ("cublas-execution", "CUBLAS_STATUS_",
     r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED"
     r"|LICENSE_ERROR)",
     "fail", "a cuBLAS call failed on the GPU", "xid.gpu", _XID,
     "Look for an Xid at the same time; if other ranks run the same call, test this GPU (`dcgmi diag -r 3`)."),
    ("cudnn", "CUDNN_STATUS_|cuDNN error",
     r"CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED|INTERNAL_ERROR|NOT_SUPPORTED|MAPPING_ERROR"
     r"|VERSION_MISMATCH|SUBLIBRARY_\w{1,40})",
     "fail", "a cuDNN call failed: the memory is full, a library has the wrong version, or the GPU is faulty",
     "gpu.memory-headroom", _MEMORY, "Free memory on the GPU; compare the loaded cuDNN with the version that the "
                                     "program was built for."),
    ("undefined-nccl-symbol", "undefined symbol", r"undefined symbol: (?P<what>p?nccl\w{1,60})",
     "fail", "the loaded NCCL is older than the version that the program was built for", "versions.nccl",
     ("find / -name 'libnccl.so*' 2>/dev/null", "echo $LD_LIBRARY_PATH $LD_PRELOAD",
      "python -c 'import torch; print(torch.cuda.nccl.version())'"),
     "Remove the older libnccl.so.2 from LD_LIBRARY_PATH, or load the version that the program was built for."),
    ("undefined-cuda-symbol", "undefined symbol",
     r"undefined symbol: (?P<what>(?:cu|cuda|cublas|cudnn|nvrtc|nvml|__nv|__cudaRegister)[A-Za-z]\w{1,80})",
     "fail", "a CUDA library of another version was loaded", "versions.compatibility",
     ("echo $LD_LIBRARY_PATH $LD_PRELOAD", "ldconfig -p | grep -e libcuda -e libcudart -e libcudnn",
      "pip list | grep -i nvidia"),
     "Remove the other version from LD_LIBRARY_PATH; in a container, use the libraries of one image."),
    ("missing-cuda-library", "cannot open shared object file",
     r"(?P<what>lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so[.\d]{0,12}): cannot open shared object file",
     "fail", "a driver library is missing in the program's environment", "versions.driver-files",
     ("ldconfig -p | grep -e libcuda -e nvidia-ml", "echo $LD_LIBRARY_PATH", "nvidia-smi"),
     "Install the driver's libraries; in a container, start it with the NVIDIA runtime (`--gpus`)."),
    ("missing-library", "cannot open shared object file",
     r"(?P<what>lib(?:nccl|cudart|cudnn\w{0,20}|cublas\w{0,4}|cufft|nvrtc|cusparse\w{0,4}|nvshmem_host)\.so[.\d]{0,12})"
     r": cannot open shared object file",
     "fail", "a CUDA library is missing in the program's environment", "job.errors",
     ("ldconfig -p | grep -e cuda -e nccl -e cudnn", "echo $LD_LIBRARY_PATH", "pip list | grep -i nvidia"),
     "Install the library in the image, or add its folder to LD_LIBRARY_PATH."),
))  # fmt: skip

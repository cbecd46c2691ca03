"""Errors printed instead of output by ``nvidia-smi``, NVML and container runtimes."""

from __future__ import annotations

from preflight.parsers.messages.signature import NVIDIA_SMI, signatures

_DRIVER = ("dmesg -T | grep -i -e nvrm -e nvidia", "lsmod | grep nvidia", "cat /proc/driver/nvidia/version")
_LOST = ("dmesg -T | grep -i -e xid -e 'fallen off'", "lspci -d 10de:", "nvidia-smi -L")
_CONTAINER = ("nvidia-smi -L", "nvidia-container-cli info", "ls -l /dev/nvidia*")
_BUS = r"(?P<gpu>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"

SIGNATURES = signatures(NVIDIA_SMI, (
    ("nvml-version-mismatch", "ersion mismatch",
     r"(?:NVML|nvidia-smi|NVML_ERROR\w{0,40}).{0,60}[Dd]river/library version mismatch|Driver/library version mismatch",
     "fail", "the driver's libraries and its loaded kernel module have different versions", "versions.driver-files",
     ("cat /proc/driver/nvidia/version", "cat /sys/module/nvidia/version; modinfo -F version nvidia",
      "ldconfig -p | grep nvidia-ml"),
     "Reboot the node after the driver's upgrade, or unload and load its modules."),
    ("nvidia-smi-no-driver", "communicate with the NVIDIA driver|couldn't communicate|NVML_ERROR_DRIVER_NOT_LOADED"
     "|Driver Not Loaded",
     r"couldn.?t communicate with the NVIDIA driver|NVML_ERROR_DRIVER_NOT_LOADED|NVML: Driver Not Loaded",
     "fail", "the NVIDIA driver is not loaded, or does not answer", "gpu.driver", _DRIVER,
     "Run `modprobe nvidia`, then read the kernel log: the usual cause is a kernel update without a rebuilt module."),
    ("gpu-handle-lost", "Unable to determine the device handle",
     rf"Unable to determine the device handle for (?:GPU|gpu) ?(?:(?:\d{{1,3}}: )?{_BUS}|(?P<gpu2>\d{{1,3}}))?"
     r"[:.]? {0,2}(?P<what>.{0,120})",
     "fail", "the GPU is on the bus but does not answer: it fell off the bus or needs a reset", "gpu.driver",
     _LOST, "Drain the node and power-cycle it; if the GPU stays away, reseat or replace it."),
    ("gpu-lost", "GPU is lost", r"^\W{0,6}GPU is lost|GPU is lost\.\s{1,4}Reboot the system",
     "fail", "a GPU is lost: it fell off the bus", "gpu.driver", _LOST,
     "Drain the node and reboot it; if the GPU stays away, reseat or replace it."),
    ("nvidia-smi-no-devices", "No devices were found", r"^\W{0,8}No devices were found\W{0,3}$",
     "fail", "the driver is loaded but reports no GPU", "gpu.driver", _LOST,
     "Look in the kernel log for why it did not initialise the GPUs (RmInitAdapter, Xid)."),
    ("nvlinks-inactive", "all links are in",
     r"Unable to retrieve NVLink information as all links are in[Aa]ctive",
     "unknown", "no NVLink of the GPU is up: a part without NVLinks, or a fabric that is not set up", "nvlink.links",
     ("nvidia-smi topo -m", "systemctl status nvidia-fabricmanager", "nvidia-smi -q | grep -A 8 -i fabric"),
     "On a board with NVSwitches start the fabric manager in the driver's version, then reset the GPUs."),
    ("nvml-unknown-error", "Failed to initialize NVML: Unknown Error",
     r"Failed to initialize NVML: Unknown Error",
     "fail", "the process cannot open the GPUs' device nodes: typical for a container with a rewritten cgroup",
     "container.gpu-devices", _CONTAINER,
     "Restart the container; set `native.cgroupdriver=cgroupfs` or pass the device nodes (`--device`)."),
    ("nvml-permissions", "Insufficient Permissions|GPU access blocked",
     r"Failed to initialize NVML: (?:Insufficient Permissions|GPU access blocked by the operating system)",
     "fail", "the process cannot open the GPUs' device nodes", "container.gpu-devices", _CONTAINER,
     "Give the user or the container access to /dev/nvidia*."),
    ("nvml-not-found", "NVML Shared Library Not Found|Can't find library: libnvidia-ml|couldn't find libnvidia-ml"
     "|libnvidia-ml.so library",
     r"NVML Shared Library Not Found|couldn.?t find (?:the )?libnvidia-ml\.so|Can.?t find library: libnvidia-ml",
     "fail", "the driver's libraries are missing", "versions.driver-files",
     ("ldconfig -p | grep nvidia-ml", "cat /proc/driver/nvidia/version", "nvidia-container-cli info"),
     "Install the driver's libraries; in a container, start it with the NVIDIA runtime."),
    ("nvidia-smi-missing", "nvidia-smi", r"nvidia-smi: (?:command )?not found|command not found: nvidia-smi",
     "unknown", "nvidia-smi is missing: no driver, or a container without it", "gpu.driver",
     ("lspci -d 10de:", "cat /proc/driver/nvidia/version", "ls -l /dev/nvidia*"),
     "Install the driver's tools, or start the container with the NVIDIA runtime."),
    ("inforom-corrupted", "nfoROM is corrupted|nforom is corrupted", rf"(?i:inforom is corrupted at gpu {_BUS})",
     "warn", "the GPU's own configuration memory is corrupted: its error counts and limits are unreliable",
     "gpu.firmware", ("nvidia-smi -q | grep -i -A 5 inforom", "nvidia-smi -q -d ECC", "dmesg -T | grep -i nvrm"),
     "Drain the node and reset the GPU; if the error remains, have the vendor reflash or replace it."),
    ("dcgm-no-hostengine", "establish a connection to the specified host|nv-hostengine|open connection to remote host",
     r"[Uu]nable to establish a connection to the specified host|unable to open connection to remote host"
     r"|nv-hostengine (?:is not running|version mismatch).{0,80}|Host engine (?:is not running|already running)",
     "fail", "DCGM's host engine does not answer: it is not running, or listens elsewhere", "host.services",
     ("systemctl status nvidia-dcgm", "nv-hostengine --version", "nvidia-smi -L"),
     "Run `systemctl start nvidia-dcgm`; if it does not start, read its journal: the driver may not answer."),
    ("docker-no-runtime", "could not select device driver",
     r"could not select device driver .{0,20}with capabilities: \[\[gpu",
     "fail", "the container runtime does not support GPUs: the NVIDIA container toolkit is missing",
     "container.gpu-devices", ("nvidia-ctk --version", "docker info | grep -i runtime", "nvidia-smi -L"),
     "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure`, and restart the runtime."),
    ("nvidia-container-cli", "nvidia-container-cli",
     r"nvidia-container-cli: (?P<what>(?:initialization|device|mount|requirement|container|ldcache|detection) error"
     r".{0,160})",
     "fail", "the container's GPUs could not be set up", "container.gpu-devices",
     ("nvidia-container-cli -k -d /dev/tty info", "nvidia-smi -L", "ls -l /dev/nvidia*"),
     "Check what the message names: a driver that does not answer, an unsatisfied CUDA version, a missing device."),
))  # fmt: skip

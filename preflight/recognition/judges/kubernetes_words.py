"""Words in Kubernetes reasons, states and messages that indicate faults.

Their meaning is judged only in this module; the parsers return them as printed.
"""

from __future__ import annotations

import re

#: Words of a reason or message -> check for the same fault, and next step; the first match counts.
_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), check, fix)
    for pattern, check, fix in (
        (r"oom|out of memory|memory limit|exit code 137", "container.state",
         "Raise the pod's memory limit, or reduce the memory of its data loaders; see the node's kernel log."),
        (r"insufficient (?:nvidia\.com/|amd\.com/)?gpu|insufficient nvidia\.com", "container.state",
         "Free GPUs, or see whether a node lost one: `kubectl describe node`, allocatable nvidia.com/gpu."),
        (r"insufficient (?:rdma|nvidia\.com/\S*(?:rdma|hostdev|mlnx)|vpc\.amazonaws|openshift\.io)|rdma/",
         "container.device-plugin", "Check that the RDMA device plug-in runs on the nodes and has free devices."),
        (r"UnexpectedAdmissionError|device plugin|allocate failed|unhealthy devices?", "container.device-plugin",
         "Run `kubectl logs` for the device plug-in on that node, and `nvidia-smi` on the node: a GPU may be lost."),
        (r"FailedMount|FailedAttachVolume|MountVolume|unable to attach or mount", "host.mounts",
         "Check the volume's claim and driver, and whether the node reaches the server."),
        (r"FailedCreatePodSandBox|CNI|network-status|multus|sandbox", "container.networks",
         "`kubectl logs` of the CNI on that node; compare the NetworkAttachmentDefinition with the node."),
        (r"\bxid|nvidia-container-cli|nvml|(?<![\w./-])GPUs?(?![\w.-])", "container.gpu-devices",
         "`nvidia-smi` and `dmesg | grep -i xid` on that node."),
        (r"DiskPressure|ephemeral-storage|no space|low on resource: ephemeral", "host.file-systems",
         "Free space on the node: images, logs, emptyDir volumes."),
        (r"MemoryPressure|low on resource: memory|SystemOOM", "kernel.events",
         "Reserve memory for system daemons, and set limits for pods."),
        (r"shm|shared memory", "host.shm", "Mount an emptyDir of medium Memory at /dev/shm."),
        (r"Insufficient (?:memory|cpu|pods|hugepages)|didn't match|taint|affinity|FailedScheduling|Preempt",
         "container.state", "Run `kubectl describe node`: check labels, taints and allocatable resources."),
        (r"ErrImagePull|ImagePullBackOff|Failed to pull image|Back-off pulling|pull QPS", "container.state",
         "Check the image name and, from that node, the registry credentials."),
        (r"NodeNotReady|Rebooted|NodeHasInsufficient|NetworkNotReady|TaintManagerEviction|Kubelet|node lost|Evicted",
         "host.services", "`kubectl describe node`; kubelet's log and the kernel's log of that node."),
    )
)  # fmt: skip
_OTHER = ("container.state", "`kubectl logs --previous` of the pod has the first error.")


def cause(text: str) -> tuple[str, str]:
    """Return the check and the next step for the fault that a text describes."""
    return next(((check, fix) for pattern, check, fix in _CAUSES if pattern.search(text)), _OTHER)


#: Reasons of a warning that prove a fault.
FATAL = re.compile(r"OOM|Evicted|NodeNotReady|UnexpectedAdmissionError|Rebooted|Xid|GPU|DeviceUnhealthy", re.I)
#: Events of type Normal that terminate or block a pod: by reason, or by message for common reasons.
NOT_NORMAL = re.compile(
    r"\w*Preempt(?:ed|ing|ion)|\w*Evict(?:ed|ion)?|NodeNot(?:Schedulable|Ready)|(?:Removing|Deleting)Node|\w+(?:Failed|Failure)"
    r"|\w*Unhealthy|\w*Restarting|BackOff"
)
STOPPED = re.compile(r"(?i)failed (?:liveness|startup) probe|exited with code [1-9]|marking for deletion|\bpreempted\b")
#: Words of a warning after which the container or pod does not run, unless it was started later.
NOT_STARTED = re.compile(
    r"(?i)failed to (?:create|start) (?:containerd? task|shim task|container)|OCI runtime|failed to pull image"
    r"|FailedCreatePod(?:SandBox|Container)|(?:create|start|run)container(?:config)?error"
    r"|error: (?:ErrImagePull|ImagePullBackOff|InvalidImageName)|back-off (?:pulling|restarting)"
    r"|executable file not found"
)
#: Transient states while a pod starts or ends.
PASSING = re.compile(r"Pending|ContainerCreating|PodInitializing|Terminating|Init:\d{1,3}/\d{1,3}|Not\w*Ready")
#: Words of good, transient and bad states: a judgement call.
WELL = re.compile(
    r"(?i)ready|running|succeeded|complete(?:d)?|bound|active|available|healthy|true|deployed|established|synced"
    r"|normal|created|enabled|finished|admitted|ok|up|success|valid|applied|installed|idle|ignore|provisioned|done"
    r"|-|<none>|<unset>|none|"
)
#: State of a running Docker container.
WELL_FOR_NOW = re.compile(r"Up \S[\w ]*(?:\(healthy\))?")
GOING_ON = re.compile(
    r"(?i)pending\S*|creating|initiali[sz]ing|terminating|suspended|queued|progressing|updating|restarting|reconciling"
    r"|inprogress|waiting|unknown|containercreating|scaling|starting|upgrading|installing|draining|cordon\S*|inqueue"
)
BAD = re.compile(
    r"(?i).*(?:fail|error|not ?ready|notready|crash|backoff|oom|evict|lost|unhealthy|degraded|invalid|denied"
    r"|unavailable|false|stalled|expired|exceeded|abort|conflict|missing|down).*"
)
#: A bad state in a column that is not one of the state columns.
BAD_WORD = re.compile(r"(?i)fail(?:ed|ure|ing)?|error|degraded|unhealthy|not ?ready|stalled|lost|crash\w{0,20}")
EXITED = re.compile(r"Exited(?: \((\d{1,3})\).*)?")
#: Bad states that may be transient: a warning instead of a failure.
NOT_WELL = re.compile(r"(?i)not ?ready|false|unavailable|degraded")
COUNT = re.compile(r"\d{1,7}")
#: A resource of a quota: amount used, and limit.
QUOTA = re.compile(r"([\w./-]{1,120}): (\w{1,20})/(\w{1,20})")
SHARE = re.compile(r"(\d{1,7})/(\d{1,7})")

#: Conditions that are a fault if true, and conditions that are a fault if not true.
BAD_IF_TRUE = re.compile(
    r"Fail\w*|\w*Fail(?:ed|ure|ing)|Degraded|Stalled|\w*Error\w*|Unhealthy|\w+Pressure|\w*Deadlock\w*|DisruptionTarget"
    r"|Evicted|\w+(?:Down|Lost|Unavailable|Problem)|Xid\w*|Restarting|Invalid"
)
BAD_COLUMN = re.compile(r"(?i)\w*(?:pressure|unavailable|degraded|failed|problem|unhealthy|unschedulable|deadlock)")
BAD_UNLESS_TRUE = re.compile(
    r"\w*(?:Ready|Available|Healthy|Valid|Synced|Configured|UpToDate|Scheduled|Admitted|Initialized)"
)
BAD_REASON = re.compile(r"\w*(?:Exceeded|Failed|Error|Invalid|Unhealthy|Denied|NotFound|Unschedulable|Insufficient)\w*")
#: Words in the message of a false condition that may mean a fault; without them, waiting may be normal.
BAD_MESSAGE = re.compile(
    r"(?i)\b(?:could ?n[o']t|cannot|can't|insufficient|unable|fail(?:ed|ure|s)?|exceed\w*|denied|timed? ?out)\b"
)

#: Conditions that are true on a healthy node; all others are false.
GOOD_IF_TRUE = re.compile(r"\w*(?:Ready|Healthy|Available|Valid|Synced|Configured|UpToDate)")
#: Resources of a device plug-in, whose allocatable number falls if a device is unhealthy.
DEVICES = re.compile(r"(?:nvidia\.com|amd\.com|rdma|openshift\.io|vpc\.amazonaws\.com)/\S+")
#: Taints set by Kubernetes for judged conditions, and taints that reserve nodes for a purpose.
ORDINARY_TAINT = re.compile(
    r"node(?:-role)?\.kubernetes\.io/|node\.cloudprovider|(?:nvidia|amd)\.com/gpu\b|(?!.*health)[\w./-]*(?:gpu|dedicated|pool|team"
    r"|partition|workload|purpose|rdma|spot)[\w./-]*[=:]"
)
#: Words in a taint that indicate a fault.
ILL = re.compile(r"(?i)unhealthy|fault|fail|repair|quarantine|broken|degraded|bad|error|lost|xid|drain|maint")

_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def seconds(age: str) -> int | None:
    """Return the age in seconds of an event's last occurrence; None if unreadable."""
    parts = re.findall(r"(\d{1,4})([dhms])", age.partition(" (")[0])
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None

"""Words in reasons, states and messages of Kubernetes: which are faults.

How controllers name their states is a judgement, made once here; the parsers return them as printed.
"""

from __future__ import annotations

import re

#: Words of a reason or a message, the check that judges the same, and what to do; the first that fits counts.
_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), check, fix)
    for pattern, check, fix in (
        (r"oom|out of memory|memory limit|exit code 137", "container.state",
         "Raise the pod's memory limit, or lower what its data loaders use; see the kernel's log of the node."),
        (r"insufficient (?:nvidia\.com/|amd\.com/)?gpu|insufficient nvidia\.com", "container.state",
         "Free GPUs, or see whether a node lost one: `kubectl describe node`, allocatable nvidia.com/gpu."),
        (r"insufficient (?:rdma|nvidia\.com/\S*(?:rdma|hostdev|mlnx)|vpc\.amazonaws|openshift\.io)|rdma/",
         "container.device-plugin", "See that the RDMA device plug-in runs on the nodes and what it has free."),
        (r"UnexpectedAdmissionError|device plugin|allocate failed|unhealthy devices?", "container.device-plugin",
         "`kubectl logs` of the device plug-in on that node; `nvidia-smi` there: a GPU may be lost."),
        (r"FailedMount|FailedAttachVolume|MountVolume|unable to attach or mount", "host.mounts",
         "See the volume's claim and driver, and whether the node reaches the server."),
        (r"FailedCreatePodSandBox|CNI|network-status|multus|sandbox", "container.networks",
         "`kubectl logs` of the CNI on that node; compare NetworkAttachmentDefinition and node."),
        (r"\bxid|nvidia-container-cli|nvml|(?<![\w./-])GPUs?(?![\w.-])", "container.gpu-devices",
         "`nvidia-smi` and `dmesg | grep -i xid` on that node."),
        (r"DiskPressure|ephemeral-storage|no space|low on resource: ephemeral", "host.file-systems",
         "Free space on the node: images, logs, emptyDir volumes."),
        (r"MemoryPressure|low on resource: memory|SystemOOM", "kernel.events",
         "Give system daemons reserved memory, and pods limits."),
        (r"shm|shared memory", "host.shm", "Mount an emptyDir of medium Memory at /dev/shm."),
        (r"Insufficient (?:memory|cpu|pods|hugepages)|didn't match|taint|affinity|FailedScheduling|Preempt",
         "container.state", "`kubectl describe node`: labels, taints and what is allocatable."),
        (r"ErrImagePull|ImagePullBackOff|Failed to pull image|pull QPS", "container.state",
         "See the image's name and the registry's credentials, from that node."),
        (r"NodeNotReady|Rebooted|NodeHasInsufficient|NetworkNotReady|TaintManagerEviction|Kubelet|node lost|Evicted",
         "host.services", "`kubectl describe node`; kubelet's log and the kernel's log of that node."),
    )
)  # fmt: skip
_OTHER = ("container.state", "`kubectl logs --previous` of the pod has the first error.")


def cause(text: str) -> tuple[str, str]:
    """Return the check that judges the same, and what to do, by the words of a text."""
    return next(((check, fix) for pattern, check, fix in _CAUSES if pattern.search(text)), _OTHER)


#: Reasons of a warning that alone prove a fault.
FATAL = re.compile(r"OOM|Evicted|NodeNotReady|UnexpectedAdmissionError|Rebooted|Xid|GPU|DeviceUnhealthy", re.I)
#: Words of a warning after which the container or pod does not run, unless it was started later.
NOT_STARTED = re.compile(
    r"(?i)failed to (?:create|start) (?:containerd? task|shim task|container)|OCI runtime|failed to pull image"
    r"|FailedCreatePod(?:SandBox|Container)|(?:create|start|run)container(?:config)?error"
    r"|error: (?:ErrImagePull|ImagePullBackOff|InvalidImageName)|back-off (?:pulling|restarting)"
    r"|executable file not found"
)
#: Words of a status that come and go while a pod starts or ends.
PASSING = re.compile(r"Pending|ContainerCreating|PodInitializing|Terminating|Init:\d{1,3}/\d{1,3}|Not\w*Ready")
#: Words of a state that is well, that passes, and that is not: a judgement of how controllers name them.
WELL = re.compile(
    r"(?i)ready|running|succeeded|complete(?:d)?|bound|active|available|healthy|true|deployed|established|synced"
    r"|normal|created|enabled|finished|admitted|ok|up|success|valid|applied|installed|idle|ignore|provisioned|done"
    r"|-|<none>|<unset>|none|"
)
#: A container of docker that runs.
WELL_FOR_NOW = re.compile(r"Up \S[\w ]*(?:\(healthy\))?")
GOING_ON = re.compile(
    r"(?i)pending\S*|creating|initiali[sz]ing|terminating|suspended|queued|progressing|updating|restarting|reconciling"
    r"|inprogress|waiting|unknown|containercreating|scaling|starting|upgrading|installing|draining|cordon\S*|inqueue"
)
BAD = re.compile(
    r"(?i).*(?:fail|error|not ?ready|notready|crash|backoff|oom|evict|lost|unhealthy|degraded|invalid|denied"
    r"|unavailable|false|stalled|expired|exceeded|abort|conflict|missing|down).*"
)
#: A state in a column of another name.
BAD_WORD = re.compile(r"(?i)fail(?:ed|ure|ing)?|error|degraded|unhealthy|not ?ready|stalled|lost|crash\w{0,20}")
EXITED = re.compile(r"Exited(?: \((\d{1,3})\).*)?")
#: A state that may pass by itself.
NOT_WELL = re.compile(r"(?i)not ?ready|false|unavailable|degraded")
COUNT = re.compile(r"\d{1,7}")
SHARE = re.compile(r"(\d{1,7})/(\d{1,7})")

#: Conditions that are a fault where they are true, and those that are one where they are not.
BAD_IF_TRUE = re.compile(
    r"Fail\w*|\w*Fail(?:ed|ure|ing)|Degraded|Stalled|\w*Error\w*|Unhealthy|\w+Pressure|\w*Deadlock\w*|DisruptionTarget"
    r"|Evicted|\w+(?:Down|Lost|Unavailable|Problem)|Xid\w*|Restarting|Invalid"
)
BAD_UNLESS_TRUE = re.compile(
    r"\w*(?:Ready|Available|Healthy|Valid|Synced|Configured|UpToDate|Scheduled|Admitted|Initialized)"
)
BAD_REASON = re.compile(r"\w*(?:Exceeded|Failed|Error|Invalid|Unhealthy|Denied|NotFound|Unschedulable|Insufficient)\w*")
#: Words of a message about something that is not so: it may wait as it should.
BAD_MESSAGE = re.compile(
    r"(?i)\b(?:could ?n[o']t|cannot|can't|insufficient|unable|fail(?:ed|ure|s)?|exceed\w*|denied|timed? ?out)\b"
)

#: Conditions that are true on a healthy node; each other one is false there.
GOOD_IF_TRUE = re.compile(r"\w*(?:Ready|Healthy|Available|Valid|Synced|Configured|UpToDate)")
#: Devices that a plug-in offers: their number falls where it finds one unhealthy.
DEVICES = re.compile(r"(?:nvidia\.com|amd\.com|rdma|openshift\.io|vpc\.amazonaws\.com)/\S+")
#: Taints that Kubernetes sets itself, of conditions that are judged, and those that set nodes apart for a purpose.
ORDINARY_TAINT = re.compile(
    r"node(?:-role)?\.kubernetes\.io/|node\.cloudprovider|(?:nvidia|amd)\.com/gpu\b|(?!.*health)[\w./-]*(?:gpu|dedicated|pool|team"
    r"|partition|workload|purpose|rdma|spot)[\w./-]*[=:]"
)
#: Words of a taint about a fault.
ILL = re.compile(r"(?i)unhealthy|fault|fail|repair|quarantine|broken|degraded|bad|error|lost|xid|drain|maint")

_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def seconds(age: str) -> int | None:
    """Return the age of an event's last occurrence."""
    parts = re.findall(r"(\d{1,4})([dhms])", age.partition(" (")[0])
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None

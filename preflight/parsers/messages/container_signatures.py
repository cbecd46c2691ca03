"""Errors of container runtimes, Kubernetes daemons and kubectl."""

from __future__ import annotations

from preflight.parsers.messages.signature import FRAMEWORK, signatures

_RUNTIME = (
    "nvidia-ctk --version; nvidia-smi -L",
    "journalctl -u containerd -u docker | tail -50",
    "ls -l /dev/nvidia* /etc/cdi",
)
_IMAGE = ("docker pull IMAGE; crictl pull IMAGE", "kubectl get secret; cat ~/.config/enroot/.credentials", "df -h")
_CNI = (
    "kubectl get network-attachment-definitions -A",
    "kubectl -n kube-system logs MULTUS",
    "ls /opt/cni/bin /etc/cni/net.d",
)
_KUBELET = ("kubectl describe node NODE", "journalctl -u kubelet | tail -100", "systemctl status containerd")
_PLUGIN = ("kubectl logs -n gpu-operator DEVICE_PLUGIN_POD", "nvidia-smi -L",
           "kubectl describe node NODE | grep -A 12 -i allocatable")  # fmt: skip
_API = ("kubectl cluster-info", "kubectl config current-context", "kubectl get --raw /readyz")

SIGNATURES = signatures(FRAMEWORK, (
    ("cdi-devices", "CDI",
     r"unresolvable CDI devices? (?P<what>\S{1,160})|failed to inject CDI devices?.{0,160}",
     "fail", "the runtime does not know the requested device: the CDI specification is missing or outdated",
     "container.gpu-devices", ("nvidia-ctk cdi list", "ls -l /etc/cdi /var/run/cdi", "nvidia-smi -L"),
     "Regenerate the specification: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`."),
    ("image-pull", "pull|anifest|toomanyrequests|authentication required|basic auth|x509|error code: "
     "40|ImagePull|docker image",
     r"pull access denied|manifest (?:for \S{1,200} )?(?:unknown|not found)|toomanyrequests"
     r"|unauthorized: authentication required"
     r"|no basic auth credentials|failed to (?:pull|resolve|import|fetch)(?: and unpack)? (?:docker )?(?:image"
     r"|reference|manifest)"
     r"|no matching manifest for|ErrImagePull|ImagePullBackOff|[Ff]ailed to pull image|returned error code: 40[134]"
     r"|registry.{0,80}x509: certificate",
     "fail", "the image could not be fetched: no access, a wrong name or tag, or no path to the registry",
     "container.state", _IMAGE, "Try the pull manually on that node; check the name, the credentials and the disk."),
    ("container-network", "network for sandbox|CNI|multus|no free VF|error adding container to "
     "network|IPAM|whereabouts|sriov"
     "|pod network",
     r"failed to (?:setup|set up) (?:pod )?network|CNI (?:plugin not initialized|request failed"
     r"|network .{0,60}not found)"
     r"|SRIOV-CNI failed|no free VFs?\b|error adding (?:container to|pod to) (?:CNI )?network"
     r"|failed to find (?:CNI )?plugin"
     r"|network plugin is not ready|(?:IPAM|whereabouts).{0,100}(?:exhausted|no (?:more )?(?:IP|address)|[Ee]rror"
     r"|[Ff]ail)"
     r"|[Cc]ould not allocate IP|no IP addresses available in range",
     "fail", "the pod's network could not be set up", "container.networks", _CNI,
     "Check the network attachment that the message names: its definition, resource and address range, and the "
     "plug-in on that node."),
    ("nvml-in-container", "NVML",
     r"[Ff]ailed to init(?:ialize)? NVML: (?:could not load|ERROR_).{1,160}"
     r"|failed to init(?:ialize)? NVML: .{1,160}|could not load NVML(?: library)?"
     r"|NVML.{0,60}ERROR_(?:LIBRARY_NOT_FOUND|DRIVER_NOT_LOADED|UNKNOWN)",
     "fail", "the program in the container cannot load the driver's library (NVML)", "container.gpu-devices",
     _RUNTIME,
     "Set the NVIDIA runtime class for the pod, or make the NVIDIA runtime the default on that node."),
    ("device-plugin", "unregistered device|"
     "device plugin|evice plugin|listAndWatch|ncompatible|Kubelet|llocate failed|nhealthy|unable to "
     "create plugin manager",
     r"can't allocate unregistered device (?P<what>[\w./-]{1,100})"
     r"|listAndWatch ended unexpectedly for device plugin|(?:[Cc]ould not|[Ff]ailed to) (?:register|serve|start|dial"
     r"|create)\b.{0,60}"
     r"(?:device.?plugin|plugin manager|Kubelet)|[Ii]ncompatible (?:strategy|platform"
     r"|device discovery strategy) detected"
     r"|[Aa]llocate failed due to|[Mm]ark all resources [Uu]nhealthy|error starting plugins?:"
     r"|no healthy devices present; cannot allocate|unhealthy devices (?:nvidia\.com|rdma)\S{1,60}",
     "fail", "the device plug-in does not offer its devices", "container.device-plugin", _PLUGIN,
     "Check that the driver answers on that node and that the runtime uses the NVIDIA toolkit; then restart the "
     "plug-in."),
    ("kubelet", "PLEG|untime is down|network not ready|NodeNotReady|rror syncing pod|updating node status|viction "
     "manager"
     "|ailed to admit|cgroup driver|Unable to register node|ailed to update (?:node )?lease|update lease|StartContainer"
     "|CreatePodSandbox|ailed to garbage",
     r"PLEG is not healthy|container runtime is down|(?:runtime )?network (?:is )?not ready|status is now: NodeNotReady"
     r"|Error syncing pod|Error updating node status|(?i:eviction manager): (?:attempting|must evict|pods? )"
     r"|Failed to admit pod"
     r"|(?:misconfiguration: )?kubelet cgroup driver|Unable to register node|[Ff]ailed to (?:update|ensure"
     r"|renew).{0,20}lease"
     r"|failed to \\?\"(?:StartContainer|CreatePodSandbox|KillContainer)",
     "fail", "kubelet cannot run pods properly on this node", "host.services", _KUBELET,
     "Read the quoted reason, then the logs of kubelet and of the runtime on that node."),
    ("oci-runtime", "OCI runtime|shim task|containerd task|runc|container init|crun:",
     r"OCI runtime (?:create|exec|start) failed|failed to create (?:shim|containerd) task|runc (?:create|run"
     r"|exec) failed"
     r"|error during container init|crun: (?:error|cannot|executable|writing).{0,160}|failed to start container",
     "fail", "the container could not be started", "container.state", _RUNTIME,
     "The end of the line has the reason: a device, a mount, a program, or the NVIDIA hook."),
    ("container-tool", "FATAL:|enroot|docker|podman|Docker daemon|apptainer|singularity|squashfs",
     r"^FATAL: {2,8}(?P<what>\S.{0,200})|enroot[\w-]{0,20}: (?:failed|error|\[ERROR\]|command).{0,160}"
     r"|[Cc]annot connect to the Docker daemon|Error response from daemon: .{1,200}|podman: error"
     r"|squashfuse.{0,40}(?:fail|error)",
     "fail", "the container could not be created or started", "container.state",
     ("df -h /tmp $APPTAINER_TMPDIR $ENROOT_CACHE_PATH", "docker info; apptainer --version; enroot version",
          "nvidia-smi -L"),
     "Check what the message names: space, permissions, an image, or the daemon."),
    ("kubectl", "The connection to the server|Unable to connect to the server|API group list|Error from server|logged "
     "in to the server",
     r"The connection to the server \S{1,120} was refused|Unable to connect to the server: .{1,160}"
     r"|[Cc]ouldn't get current server API group list|must be logged in to the server"
     r"|Error from server \((?:Timeout|InternalError|ServiceUnavailable|Forbidden|Unauthorized)\)",
     "fail", "the Kubernetes API does not answer, or does not accept this user", "host.services", _API,
     "Check which cluster kubectl uses, whether the API server is up, and whether the credentials are valid."),
    ("kubectl-none", "Error from server|doesn't have a resource type|No resources found",
     r"Error from server \((?:NotFound|BadRequest|AlreadyExists|Conflict|Invalid)\).{0,200}"
     r"|the server doesn't have a resource type \S{1,80}",
     "warn", "the object is not in this cluster", "host.services", _API,
     "Compare name, namespace and context; a missing resource type means that its operator is not installed."),
))  # fmt: skip

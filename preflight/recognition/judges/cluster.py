"""Judges of Kubernetes, Slurm, limits and training logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isinf, isnan
from statistics import median

from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent
from preflight.parsers.cluster.kubernetes_pod import PodDescription
from preflight.parsers.cluster.slurm_nodes import DrainReason, SlurmNode
from preflight.parsers.host.ulimit import ProcessLimits
from preflight.parsers.messages.scan import error_in
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue

# --- Kubernetes ---------------------------------------------------------------------------------------

#: Words of a reason or a message, the check that judges the same, and what to do; the first that fits counts.
_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), check, fix)
    for pattern, check, fix in (
        (r"oom|out of memory|memory limit|exit code 137", "kernel.events",
         "Raise the pod's memory limit, or lower what its data loaders use; see the kernel's log of the node."),
        (r"insufficient (?:nvidia\.com/|amd\.com/)?gpu|insufficient nvidia\.com", "container.device-plugin",
         "Free GPUs, or see whether a node lost one: `kubectl describe node`, allocatable nvidia.com/gpu."),
        (r"insufficient (?:rdma|nvidia\.com/\S*(?:rdma|hostdev|mlnx)|vpc\.amazonaws|openshift\.io)|rdma/",
         "container.device-plugin", "See that the RDMA device plug-in runs on the nodes and what it has free."),
        (r"UnexpectedAdmissionError|device plugin|allocate failed|unhealthy devices?", "container.device-plugin",
         "`kubectl logs` of the device plug-in on that node; `nvidia-smi` there: a GPU may be lost."),
        (r"FailedMount|FailedAttachVolume|MountVolume|unable to attach or mount", "host.mounts",
         "See the volume's claim and driver, and whether the node reaches the server."),
        (r"FailedCreatePodSandBox|CNI|network-status|multus|sandbox", "container.networks",
         "`kubectl logs` of the CNI on that node; compare NetworkAttachmentDefinition and node."),
        (r"xid|nvidia-container-cli|nvml|GPU", "container.gpu-devices",
         "`nvidia-smi` and `dmesg | grep -i xid` on that node."),
        (r"DiskPressure|ephemeral-storage|no space|low on resource: ephemeral", "host.file-systems",
         "Free space on the node: images, logs, emptyDir volumes."),
        (r"MemoryPressure|low on resource: memory|SystemOOM", "kernel.events",
         "Give system daemons reserved memory, and pods limits."),
        (r"shm|shared memory", "host.shm", "Mount an emptyDir of medium Memory at /dev/shm."),
        (r"Insufficient (?:memory|cpu|pods|hugepages)|didn't match|taint|affinity|FailedScheduling|Preempt",
         "container.device-plugin", "`kubectl describe node`: labels, taints and what is allocatable."),
        (r"ErrImagePull|ImagePullBackOff|Failed to pull image|pull QPS", "container.gpu-devices",
         "See the image's name and the registry's credentials, from that node."),
        (r"NodeNotReady|Rebooted|NodeHasInsufficient|NetworkNotReady|TaintManagerEviction|Kubelet|node lost|Evicted",
         "host.services", "`kubectl describe node`; kubelet's log and the kernel's log of that node."),
    )
)  # fmt: skip
_OTHER = ("nccl.failures", "`kubectl logs --previous` of the pod has the first error.")


def _cause(text: str) -> tuple[str, str]:
    return next(((check, fix) for pattern, check, fix in _CAUSES if pattern.search(text)), _OTHER)


#: Reasons of a warning that alone prove a fault.
_FATAL = re.compile(r"OOM|Evicted|NodeNotReady|UnexpectedAdmissionError|Rebooted|Xid|GPU|DeviceUnhealthy", re.I)


def _events(events: Sequence[KubernetesEvent]) -> Judged:
    warnings: dict[str, KubernetesEvent] = {}
    for event in events:
        if event.type == "Warning" or _FATAL.fullmatch(event.reason):
            warnings.setdefault(f"{event.reason} {event.object}", event)
    if not warnings:
        return (("container.device-plugin", _normal),) if events else ()
    return tuple((_cause(f"{event.reason} {event.message}")[0], _event_judge(event)) for event in warnings.values())


def _event_judge(event: KubernetesEvent) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = failed if _FATAL.search(event.reason) else warned
        of = f"{event.object}: " if event.object else ""
        yield report(
            f"{of}{event.reason}: {event.message[:200]} (line {event.line})", subject=event.object,
            found=event.reason, evidence=part.evidence, fix=_cause(f"{event.reason} {event.message}")[1],
        )  # fmt: skip

    return judge_part


def _normal(part: PastedValue) -> Iterator[Finding]:
    yield passed(f"{len(part.value)} events, none of them a warning", evidence=part.evidence)


def _pod(pod: PodDescription) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for container in pod.containers:
        for state, reason, code in (
            (container.last_state, container.last_reason, container.last_exit_code),  # why it waits to start again
            (container.state, container.reason, container.exit_code),
        ):
            bad = reason not in ("", "Completed", "ContainerCreating", "PodInitializing") or bool(code)
            if bad and state in ("Terminated", "Waiting"):
                words = f"{reason} exit code {code}" if code is not None else reason
                judges.append((_cause(words)[0], _container_judge(pod, container.name, state, words, container.line)))
                break
    if pod.status in ("Failed", "Unknown") or pod.reason in ("Evicted", "NodeLost", "UnexpectedAdmissionError"):
        judges.append((_cause(f"{pod.reason} {pod.message}")[0], _pod_judge(pod)))
    judges += [pair for pair in _events(pod.events) if pair[1] is not _normal]
    return tuple(judges) or (("container.device-plugin", _pod_runs),)


def _container_judge(pod: PodDescription, name: str, state: str, words: str, line: int) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        on = f" on {pod.node}" if pod.node else ""
        report = failed if state == "Terminated" or "BackOff" in words or "Err" in words else warned
        yield report(f"pod {pod.name}{on}, container {name}: {state.lower()}, {words} (line {line})",
                     subject=pod.node or pod.name, found=words, evidence=part.evidence,
                     fix=_cause(words)[1])  # fmt: skip

    return judge_part


def _pod_judge(pod: PodDescription) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        words = f"{pod.reason or pod.status}: {pod.message[:160]}".rstrip(": ")
        yield failed(f"pod {pod.name}{f' on {pod.node}' if pod.node else ''}: {words}", subject=pod.node or pod.name,
                     found=pod.reason or pod.status, evidence=part.evidence,
                     fix=_cause(f"{pod.reason} {pod.message}")[1])  # fmt: skip

    return judge_part


def _pod_runs(part: PastedValue) -> Iterator[Finding]:
    pod: PodDescription = part.value
    waiting = [name for name, value in pod.conditions if value != "True"]
    if pod.status in ("Running", "Succeeded") and not (waiting and pod.status == "Running"):
        yield passed(f"pod {pod.name} is {pod.status}", evidence=part.evidence)
    else:
        yield unknown(f"pod {pod.name} is {pod.status or 'in an unknown state'}, and no event shows why",
                      found=pod.status, evidence=part.evidence, fix=f"kubectl get events --field-selector "
                      f"involvedObject.name={pod.name}")  # fmt: skip


# --- Slurm --------------------------------------------------------------------------------------------

#: Words of a reason, and the check that judges the same.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), check)
    for pattern, check in (
        (r"not responding|unexpectedly rebooted|slurmd|munge|clock", "host.services"),
        (r"kill task failed|not ending|unkillable|zombie", "host.zombies"),
        (r"low (?:real)?memory|low socket|low cpu|low core|low tmpdisk", "host.inventory"),
        (r"xid", "xid.gpu"), (r"ecc|remap|retired", "gpu.ecc-uncorrected"), (r"nvlink|fabric", "nvlink.links"),
        (r"gres/gpu|gpu|nvidia|nvml", "gpu.count"), (r"ib\b|infiniband|rdma|link down|mlx|hca|port", "rdma.port-state"),
        (r"mount|nfs|lustre|gpfs|beegfs", "host.mounts"), (r"disk|file ?system|space", "host.file-systems"),
        (r"prolog|epilog|health|nhc|preflight", "host.services"), (r"oom|memory", "kernel.events"),
    )
)  # fmt: skip
#: Reasons that people give for work that was planned.
_PLANNED = re.compile(
    r"(?i)\b(?:maint\w*|upgrade|reserved|planned|reboot asap|scheduled|testing|test|decommission\w*)\b"
)


def _check_of_reason(reason: str) -> str:
    if (hit := error_in(reason)) is not None:
        return hit[0].check
    return next((check for pattern, check in _REASONS if pattern.search(reason)), "host.services")


def _reasons(reasons: Sequence[DrainReason]) -> Judged:
    return tuple(
        (_check_of_reason(item.reason), _reason_judge(item.nodes, item.reason, f"since {item.since}", item.line))
        for item in reasons
    ) or (("host.services", _no_reasons),)


def _reason_judge(nodes: str, reason: str, since: str, line: int) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = warned if _PLANNED.search(reason) else failed
        yield report(f"{nodes}: taken out of service: {reason} ({since}, line {line})", subject=nodes, found=reason,
                     expected="in service", evidence=part.evidence,
                     fix=f"`scontrol show node {nodes}`; look for the cause on the node before it is"
                         f" resumed.")  # fmt: skip

    return judge_part


def _no_reasons(part: PastedValue) -> Iterator[Finding]:
    if part.complete:
        yield passed("no node is out of service", evidence=part.evidence)


_OUT = frozenset({"DOWN", "DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "NOT_RESPONDING", "ERROR", "UNKNOWN"})


def _nodes(nodes: Sequence[SlurmNode]) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for node in nodes:
        if _OUT & set(node.state):
            state = "+".join(node.state)
            words = node.reason or state
            judges.append((_check_of_reason(words), _reason_judge(node.name, words, f"state {state}", node.line)))
        elif node.reason and node.state:
            judges.append((_check_of_reason(node.reason), _leftover_reason(node)))
    return tuple(judges) or ((("host.services", _in_service),) if any(node.state for node in nodes) else ())


def _leftover_reason(node: SlurmNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield warned(f"{node.name}: in service ({'+'.join(node.state)}), and it has a reason: {node.reason} (line "
                     f"{node.line})", subject=node.name, found=node.reason, evidence=part.evidence)  # fmt: skip

    return judge_part


def _in_service(part: PastedValue) -> Iterator[Finding]:
    yield passed(f"{len(part.value)} nodes are in service", evidence=part.evidence)


# --- limits -------------------------------------------------------------------------------------------

#: Open files below which a job of eight ranks with data loaders runs out: a judgement, as in host.open-files.
_FEW_FILES = 4096


def _memlock(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "max locked memory" not in limits.soft:
        return
    locked = limits.soft["max locked memory"]
    if locked is None:
        yield passed("locked memory is unlimited", evidence=part.evidence)
    else:
        yield warned(f"locked memory is limited to {locked // 1024} KiB: RDMA cannot pin its buffers",
                     found=f"{locked // 1024} KiB", expected="unlimited", evidence=part.evidence)  # fmt: skip


def _files(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "open files" not in limits.soft:
        return
    files = limits.soft["open files"]
    if files is not None and files < _FEW_FILES:
        yield warned(f"a process may open {files} files", found=files, expected=f"at least {_FEW_FILES}",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"a process may open {'any number of' if files is None else files} files", evidence=part.evidence)


# --- training -----------------------------------------------------------------------------------------

#: A step that takes this many times the median is a stall, and how many steps a judgement needs: judgements.
_STALL, _ENOUGH = 2.0, 8


def _steps(part: PastedValue) -> Iterator[Finding]:
    log: TrainingLog = part.value
    bad = False
    if broken := [step for step in log.steps if step.loss is not None and (isnan(step.loss) or isinf(step.loss))]:
        bad = True
        yield failed(f"the loss is {broken[0].loss} from step {broken[0].step} on (line {broken[0].line})",
                     found=str(broken[0].loss), expected="a number", evidence=part.evidence,
                     fix="Look at the learning rate and the data of that step; if one rank alone has it, test its"
                         " GPU.")  # fmt: skip
    times = [(step.step_time_s, step) for step in log.steps[1:] if step.step_time_s is not None]
    rates = [(step.throughput, step) for step in log.steps[1:] if step.throughput]
    if not times and rates:  # the time of a step follows from the throughput
        times = [(1 / rate, step) for rate, step in rates if rate]
    if len(times) >= _ENOUGH:
        usual = median(time for time, _ in times)
        slow = [(time, step) for time, step in times if time > _STALL * usual]
        if slow:
            bad = True
            time, step = max(slow, key=lambda pair: pair[0])
            yield warned(f"{len(slow)} of {len(times)} steps took more than twice the median, step {step.step} "
                         f"{time / usual:.1f} times (line {step.line})", found=f"{time / usual:.1f} times the median",
                         expected="steps alike", evidence=part.evidence)  # fmt: skip
        elif not bad:
            yield passed(f"{len(times)} steps take about the same time", evidence=part.evidence)
    elif not bad:
        yield unknown(f"{len(log.steps)} steps of {log.framework} are too few to compare", found=len(log.steps),
                      expected=f"at least {_ENOUGH}", evidence=part.evidence,
                      fix="Give more of the log, from its beginning.")  # fmt: skip


JUDGES: Judges = {
    "kubernetes events": _events,
    "kubernetes describe": _pod,
    "sinfo": _reasons,
    "scontrol node": _nodes,
    "ulimit": (("host.memlock", _memlock), ("host.open-files", _files)),
    "training log": (("torch.steps", _steps),),
}

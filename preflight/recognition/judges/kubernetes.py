"""Judges of Kubernetes: events, pods, nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent
from preflight.parsers.cluster.kubernetes_list import KubernetesList, ListedNode, ListedObject, ListedPod
from preflight.parsers.cluster.kubernetes_node import NodeCondition, NodeDescription
from preflight.parsers.cluster.kubernetes_object import KubernetesObject, KubernetesObjects
from preflight.parsers.cluster.kubernetes_pod import PodDescription
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue
from preflight.textprep.plain_text import ends_of

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
        (r"\bxid|nvidia-container-cli|nvml|(?<![\w./-])GPUs?(?![\w.-])", "container.gpu-devices",
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


#: Words of a warning after which the container or pod does not run, unless it was started later.
_NOT_STARTED = re.compile(
    r"(?i)failed to (?:create|start) (?:containerd? task|shim task|container)|OCI runtime|failed to pull image"
    r"|FailedCreatePod(?:SandBox|Container)|(?:create|start|run)container(?:config)?error"
    r"|error: (?:ErrImagePull|ImagePullBackOff|InvalidImageName)|back-off (?:pulling|restarting)"
    r"|executable file not found"
)


def _is_later(event: KubernetesEvent, other: KubernetesEvent) -> bool:
    """Return whether an event is younger than another, or below it."""
    ages = [_seconds(item.age) for item in (event, other)]
    if ages[0] is None or ages[1] is None or ages[0] == ages[1]:
        return event.line > other.line
    return ages[0] < ages[1]


_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def _seconds(age: str) -> int | None:
    """Return the age of an event's last occurrence."""
    parts = re.findall(r"(\d{1,4})([dhms])", age.partition(" (")[0])
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None


def _events(events: Sequence[KubernetesEvent]) -> Judged:
    warnings: dict[str, KubernetesEvent] = {}
    for event in events:
        if event.type == "Warning" or _FATAL.fullmatch(event.reason):
            warnings.setdefault(f"{event.reason} {event.object}", event)
    if not warnings:
        return (("container.device-plugin", _normal),) if events else ()
    starts: dict[str, tuple[KubernetesEvent, KubernetesEvent]] = {}  # the youngest of an object, and the lowest
    for event in events:
        if event.reason == "Started":
            youngest, _ = starts.get(event.object, (event, event))
            starts[event.object] = (event if _is_later(event, youngest) else youngest, event)
    judges: list[tuple[str, Judge]] = []
    for event in warnings.values():
        started = any(_is_later(start, event) for start in starts.get(event.object, ()))
        judges.append((_cause(f"{event.reason} {event.message}")[0], _event_judge(event, started)))
    return tuple(judges)


def _event_judge(event: KubernetesEvent, started: bool) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        stopped = not started and _NOT_STARTED.search(f"{event.reason}: {event.message}")
        report = failed if stopped or _FATAL.search(event.reason) else warned
        since = "; it was started since" if started else ""
        of = f"{event.object}: " if event.object else ""
        yield report(
            f"{of}{event.reason}: {ends_of(event.message, 320)} {since} (line {event.line})", subject=event.object,
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
                if container.state == "Waiting" and container.reason not in ("", reason):
                    words += f", now {container.reason}"
                if container.message:
                    words += f": {ends_of(container.message, 320)}"
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
        of = f"pod {pod.name}{on}, container {name}" if pod.name or name else "the container"
        yield report(f"{of}: {state.lower()}, {words} (line {line})",
                     subject=pod.node or pod.name, found=words, evidence=part.evidence,
                     fix=_cause(words)[1])  # fmt: skip

    return judge_part


def _pod_judge(pod: PodDescription) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        words = f"{pod.reason or pod.status}: {ends_of(pod.message, 320)}".rstrip(": ")
        yield failed(f"pod {pod.name}{f' on {pod.node}' if pod.node else ''}: {words}", subject=pod.node or pod.name,
                     found=pod.reason or pod.status, evidence=part.evidence,
                     fix=_cause(f"{pod.reason} {pod.message}")[1])  # fmt: skip

    return judge_part


def _pod_runs(part: PastedValue) -> Iterator[Finding]:
    pod: PodDescription = part.value
    if not pod.name and pod.containers:  # the states of containers alone
        if all(item.state == "Running" and item.ready for item in pod.containers):
            yield passed("the container runs, and is ready", evidence=part.evidence)
        else:
            yield unknown("the text does not show why the container is not ready", found=pod.containers[0].state,
                          evidence=part.evidence, fix="`kubectl describe pod POD`, all of it.")  # fmt: skip
        return
    waiting = [name for name, value in pod.conditions if value != "True"]
    if pod.status in ("Running", "Succeeded") and not (waiting and pod.status == "Running"):
        yield passed(f"pod {pod.name} is {pod.status}", evidence=part.evidence)
    else:
        yield unknown(f"pod {pod.name} is {pod.status or 'in an unknown state'}, and no event shows why",
                      found=pod.status, evidence=part.evidence, fix=f"kubectl get events --field-selector "
                      f"involvedObject.name={pod.name}")  # fmt: skip


# --- kubectl get, kubectl describe node -----------------------------------------------------------------

#: Words of a status that come and go while a pod starts or ends.
_PASSING = re.compile(r"Pending|ContainerCreating|PodInitializing|Terminating|Init:\d{1,3}/\d{1,3}|Not\w*Ready")
#: Restarts from which a pod that runs again is remarked on: a judgement.
_RESTARTS = 5


def _listed(table: KubernetesList) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for pod in table.pods:
        if (judge := _pod_row(pod)) is not None:
            check, _ = _cause(pod.status)
            judges.append(("container.device-plugin" if pod.status == "Pending" else check, judge))
    judges += [("host.services", _node_row(node)) for node in table.nodes if node.status != "Ready" or node.marks]
    judges += [
        (_cause(f"{row.name} {trouble.words}")[0], _object_judge(row.name, trouble, row.line))
        for row in table.others if (trouble := _row_trouble(row)) is not None
    ]  # fmt: skip
    if judges:
        return tuple(judges)
    return (("host.services", _every_row_well),) if table.pods or table.nodes or table.others else ()


class _Trouble(NamedTuple):
    """A fault of an object: status, words, the value as printed."""

    status: str
    words: str
    value: str


#: Words of a state that is well, that passes, and that is not: a judgement of how controllers name them.
_WELL = re.compile(
    r"(?i)ready|running|succeeded|complete(?:d)?|bound|active|available|healthy|true|deployed|established|synced"
    r"|normal|created"
    r"|enabled|finished|admitted|ok|up|success|valid|applied|installed|idle|ignore|provisioned|done|-|<none>|<unset>"
    r"|none|"
)
#: A container of docker that runs.
_WELL_FOR_NOW = re.compile(r"Up \S[\w ]*(?:\(healthy\))?")
_GOING_ON = re.compile(
    r"(?i)pending\S*|creating|initiali[sz]ing|terminating|suspended|queued|progressing|updating|restarting|reconciling"
    r"|inprogress|waiting|unknown|containercreating|scaling|starting|upgrading|installing|draining|cordon\S*|inqueue"
)
_BAD = re.compile(
    r"(?i).*(?:fail|error|not ?ready|notready|crash|backoff|oom|evict|lost|unhealthy|degraded|invalid|denied"
    r"|unavailable|false"
    r"|stalled|expired|exceeded|abort|conflict|missing|down).*"
)
#: A state in a column of another name.
_BAD_WORD = re.compile(r"(?i)fail(?:ed|ure|ing)?|error|degraded|unhealthy|not ?ready|stalled|lost|crash\w{0,20}")
_STATE_COLUMNS = ("STATUS", "STATE", "PHASE", "TERMINALSTATE", "READY", "AVAILABLE", "HEALTHY", "HEALTH", "SYNCED")


def _state_trouble(name: str, value: str) -> _Trouble | None:
    """Return what is not well about a state, a word unknown here as it was printed."""
    if _WELL.fullmatch(value) or _WELL_FOR_NOW.fullmatch(value):
        return None
    if exited := re.fullmatch(r"Exited(?: \((\d{1,3})\).*)?", value):
        return None if exited[1] == "0" else _Trouble("warn" if exited[1] else "unknown", f"{name} is {value}", value)
    status = "fail" if _BAD.fullmatch(value) else "unknown"
    if re.fullmatch(r"(?i)not ?ready|false|unavailable|degraded", value):
        status = "warn"
    remark = "" if status == "fail" or _GOING_ON.fullmatch(value) or _BAD.fullmatch(value) else " (not known here)"
    return _Trouble(status, f"{name} is {value}{remark}", value)


def _row_trouble(row: ListedObject) -> _Trouble | None:
    columns = row.columns
    for name in (*_STATE_COLUMNS, *(name for name in columns if name.endswith((" STATUS", " STATE")))):
        value = columns.get(name, "")
        if re.fullmatch(r"\d{1,7}(?:/\d{1,7})?", value):
            continue
        if (trouble := _state_trouble(name.lower(), value)) is not None:
            return trouble
    bad = next((name for name, value in columns.items() if name != "NAME" and _BAD_WORD.fullmatch(value)), None)
    if bad is not None:
        return _Trouble("warn", f"{bad.lower()} is {columns[bad]}", columns[bad])
    for name in ("ADMITTED", "ESTABLISHED", "ACCEPTED", "PROGRAMMED", "VALID", "SYNCED"):
        if columns.get(name) == "False":
            return _Trouble("unknown" if name == "ADMITTED" else "warn", f"{name.lower()} is False", "False")
    counts = {name: int(value) for name, value in columns.items() if re.fullmatch(r"\d{1,7}", value)}
    wanted = counts.get("DESIRED")
    for name in ("READY", "AVAILABLE", "UP-TO-DATE", "CURRENT"):
        if wanted is not None and name in counts and counts[name] < wanted:
            words = f"{counts[name]} of {wanted} {'updated' if name == 'UP-TO-DATE' else name.lower()}"
            return _Trouble("warn", words, f"{counts[name]}/{wanted}")
    if (share := re.fullmatch(r"(\d{1,7})/(\d{1,7})", columns.get("READY", ""))) and int(share[1]) < int(share[2]):
        return _Trouble("warn", f"{share[1]} of {share[2]} ready", share[0])
    share = re.fullmatch(r"(\d{1,7})/(\d{1,7})", columns.get("COMPLETIONS", ""))
    if share and "STATUS" not in columns and int(share[1]) < int(share[2]):
        return _Trouble("unknown", f"{share[1]} of {share[2]} complete: it runs, or it failed", share[0])
    if counts.get("FAILED", 0) or counts.get("ERRORS", 0):
        return _Trouble("fail", f"{counts.get('FAILED') or counts.get('ERRORS')} failed", "failed")
    if counts.get("RESTARTS", 0) >= _RESTARTS:
        return _Trouble("warn", f"{counts['RESTARTS']} restarts", str(counts["RESTARTS"]))
    return None


_REPORTS = {"fail": failed, "warn": warned, "unknown": unknown}


def _object_judge(name: str, trouble: _Trouble, line: int, kind: str = "") -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        of = f"{kind} {name}".strip() or "the object"
        yield _REPORTS[trouble.status](
            f"{of}: {trouble.words} (line {line})", subject=name, found=trouble.value[:200], evidence=part.evidence,
            fix=f"`kubectl describe {kind.lower() or 'KIND'} {name}`: conditions and events. "
                f"{_cause(f'{name} {trouble.words}')[1]}",
        )  # fmt: skip

    return judge_part


# --- objects as JSON, as YAML, and described -------------------------------------------------------------

#: Conditions that are a fault where they are true, and those that are one where they are not.
_BAD_IF_TRUE = re.compile(
    r"Fail\w*|\w*Fail(?:ed|ure|ing)|Degraded|Stalled|\w*Error\w*|Unhealthy|\w+Pressure|\w*Deadlock\w*|DisruptionTarget"
    r"|Evicted|\w+(?:Down|Lost|Unavailable|Problem)|Xid\w*|Restarting|Invalid"
)
_BAD_UNLESS_TRUE = re.compile(
    r"\w*(?:Ready|Available|Healthy|Valid|Synced|Configured|UpToDate|Scheduled|Admitted|Initialized)"
)
_BAD_REASON = re.compile(
    r"\w*(?:Exceeded|Failed|Error|Invalid|Unhealthy|Denied|NotFound|Unschedulable|Insufficient)\w*"
)
#: Words of a message about something that is not so: it may wait as it should.
_BAD_MESSAGE = re.compile(
    r"(?i)\b(?:could ?n[o']t|cannot|can't|insufficient|unable|fail(?:ed|ure|s)?|exceed\w*|denied|timed? ?out)\b"
)
#: Findings on one output.
_MOST_JUDGED = 200


def _objects(listed: KubernetesObjects) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for pod in listed.pods:
        pairs = _pod(pod)
        if pod.status not in ("Running", "Succeeded") or any(judge is not _pod_runs for _, judge in pairs):
            judges += [(check, _of(pod, judge)) for check, judge in pairs]
    for node in listed.nodes:
        judges.append(("host.services", _of(node, _node_conditions)))
        judges.append(("container.device-plugin", _of(node, _node_devices)))
    judges += [pair for pair in _events(listed.events) if pair[1] is not _normal]
    for item in listed.others:
        judges += [
            (_cause(f"{item.name} {trouble.words}")[0], _object_judge(item.name, trouble, item.line, item.kind))
            for trouble in _object_troubles(item)
        ]
    if judges:
        return tuple(judges[:_MOST_JUDGED])
    return (("host.services", _every_object_well),) if listed.pods or listed.events or listed.others else ()


def _of(value: object, judge: Judge) -> Judge:
    """Return the judge of one object of a list."""

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield from judge(PastedValue(value, part.evidence, part.complete, part.earlier))

    return judge_part


def _object_troubles(entry: KubernetesObject) -> Iterator[_Trouble]:
    over = any(item.type in ("Complete", "Succeeded", "Failed") and item.status == "True" for item in entry.conditions)
    reported = False
    for item in entry.conditions:
        if (status := _condition_status(item, over)) is not None:
            reported = True
            words = f": {ends_of(item.message, 320)}" if item.message else ""
            yield _Trouble(status, f"{item.type} is {item.status} ({item.reason}{words})", f"{item.type}={item.status}")
    for error in entry.errors:
        reported = True
        yield _Trouble("fail", f"{error.field}: {ends_of(error.text, 320)}", error.text)
    if (trouble := _state_trouble("its state", entry.state)) is not None:
        reported = True
        yield _Trouble(
            trouble.status, f"{trouble.words}{f': {ends_of(entry.message, 320)}' if entry.message else ''}", entry.state
        )
    for name, state in entry.parts[:_MOST_JUDGED]:
        if (trouble := _state_trouble(name, state)) is not None and trouble.status != "unknown":
            reported = True
            yield trouble
    counts = {name.lower(): number for name, number in entry.counts.items()}
    if not reported and counts.get("failed", 0):
        yield _Trouble("fail", f"{counts['failed']} of its pods failed", str(counts["failed"]))
    unavailable = counts.get("numberunavailable", counts.get("unavailablereplicas", counts.get("unavailable", 0)))
    if not reported and unavailable:
        yield _Trouble("warn", f"{unavailable} of its pods are not available", str(unavailable))
    elif not reported and counts.get("waiting", 0):
        yield _Trouble("unknown", f"{counts['waiting']} of its pods wait", str(counts["waiting"]))


def _condition_status(item: NodeCondition, over: bool) -> str | None:
    """Return the status of the finding that a condition is; None for a sound one."""
    if _BAD_IF_TRUE.fullmatch(item.type):
        if item.status != "True":
            return None
        return "fail" if item.type.startswith("Fail") or item.type.endswith(("Failed", "Failure", "Error")) else "warn"
    if _BAD_UNLESS_TRUE.fullmatch(item.type):
        return None if item.status == "True" or over else "warn"
    if item.status != "True" and _BAD_REASON.fullmatch(item.reason):
        return "warn"
    return "unknown" if item.status == "False" and _BAD_MESSAGE.search(item.message) else None


def _every_object_well(part: PastedValue) -> Iterator[Finding]:
    listed: KubernetesObjects = part.value
    if part.complete:
        number = len(listed.pods) + len(listed.others) + len(listed.events)
        yield passed(f"{number} objects are as they should be", evidence=part.evidence)


def _pod_row(pod: ListedPod) -> Judge | None:
    """Return the judge of an unhealthy pod; None for a healthy one."""
    well = pod.status in ("Completed", "Succeeded") or (pod.status == "Running" and pod.ready == pod.containers)
    if well and (pod.status != "Running" or pod.restarts < _RESTARTS):
        return None

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        on = f" on {pod.node}" if pod.node else ""
        words = f"pod {pod.name}{on}: {pod.status}, {pod.ready} of {pod.containers} containers ready"
        if pod.restarts:
            words += f", {pod.restarts} restarts"
        passing = pod.status == "Running" or _PASSING.fullmatch(pod.status)
        report = warned if well else unknown if passing else failed
        yield report(f"{words} (line {pod.line})", subject=pod.node or pod.name, found=pod.status,
                     expected="Running, all containers ready", evidence=part.evidence,
                     fix=f"`kubectl describe pod {pod.name}`; `kubectl logs {pod.name} --previous`")  # fmt: skip

    return judge_part


def _node_row(node: ListedNode) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        state = ", ".join((node.status, *node.marks))
        report = warned if node.status == "Ready" else failed  # a node may be cordoned on purpose
        yield report(f"node {node.name}: {state} (line {node.line})", subject=node.name, found=state, expected="Ready",
                     evidence=part.evidence, fix=f"`kubectl describe node {node.name}`: conditions, taints,"
                                                 " events.")  # fmt: skip

    return judge_part


def _every_row_well(part: PastedValue) -> Iterator[Finding]:
    table: KubernetesList = part.value
    if part.complete:
        words = f"{len(table.nodes)} nodes are ready" if table.nodes else f"{len(table.pods)} pods run or ended well"
        words = f"{len(table.others)} objects are as they should be" if table.others else words
        yield passed(words, evidence=part.evidence)


#: Conditions that are true on a healthy node; each other one is false there.
_GOOD_IF_TRUE = re.compile(r"\w*(?:Ready|Healthy|Available|Valid|Synced|Configured|UpToDate)")
#: Devices that a plug-in offers: their number falls where it finds one unhealthy.
_DEVICES = re.compile(r"(?:nvidia\.com|amd\.com|rdma|openshift\.io|vpc\.amazonaws\.com)/\S+")


#: Taints that Kubernetes sets itself, of conditions that are judged, and those that set nodes apart for a purpose.
_ORDINARY_TAINT = re.compile(
    r"node(?:-role)?\.kubernetes\.io/|node\.cloudprovider|(?:nvidia|amd)\.com/gpu\b|(?!.*health)[\w./-]*(?:gpu|dedicated|pool|team"
    r"|partition|workload|purpose|rdma|spot)[\w./-]*[=:]"
)
#: Words of a taint about a fault.
_ILL = re.compile(r"(?i)unhealthy|fault|fail|repair|quarantine|broken|degraded|bad|error|lost|xid|drain|maint")


def _node_name(node: NodeDescription) -> str:
    return f"node {node.name}" if node.name else "the node"


def _node_conditions(part: PastedValue) -> Iterator[Finding]:
    node: NodeDescription = part.value
    bad = False
    for item in node.conditions:
        good = item.status == ("True" if _GOOD_IF_TRUE.fullmatch(item.type) else "False")
        if good or (item.type == "NetworkUnavailable" and item.status == "Unknown"):
            continue
        bad = True
        report = failed if item.type == "Ready" or item.type.endswith("Pressure") else warned
        words = f": {ends_of(item.message, 320)}" if item.message else ""
        yield report(f"{_node_name(node)}: {item.type} is {item.status} ({item.reason}{words}; line {item.line})",
                     subject=node.name, found=f"{item.type}={item.status}", evidence=part.evidence,
                     fix=f"`kubectl describe node {node.name}`: events; kubelet's log and `dmesg` of the"
                         " node.")  # fmt: skip
    if node.unschedulable:
        bad = True
        yield warned(f"{_node_name(node)} is cordoned: it takes no new pod", subject=node.name, found="unschedulable",
                     expected="schedulable", evidence=part.evidence,
                     fix=f"Find out why, then `kubectl uncordon {node.name}`.")  # fmt: skip
    for taint in node.taints:
        if not _ORDINARY_TAINT.match(taint) and not taint.endswith("PreferNoSchedule"):
            bad = True
            report = warned if _ILL.search(taint) else unknown
            yield report(f"{_node_name(node)}: the taint {taint} keeps pods off", subject=node.name, found=taint,
                         expected="no taint, or one that the pod tolerates", evidence=part.evidence,
                         fix="Find out who set it and why: a controller of the cluster, or a person.")  # fmt: skip
    if not bad and part.complete and any(item.type == "Ready" for item in node.conditions):
        yield passed(f"{_node_name(node)} is ready, and under no pressure", evidence=part.evidence)


def _node_devices(part: PastedValue) -> Iterator[Finding]:
    node: NodeDescription = part.value
    fewer = False
    for name, number in node.capacity.items():
        offered = node.allocatable.get(name)
        if _DEVICES.fullmatch(name) and offered is not None and offered < number:
            fewer = True
            yield failed(
                f"{_node_name(node)}: {offered} of {number} {name} may be allocated: the device plug-in reports the "
                "rest unhealthy", subject=node.name, found=offered, expected=number, evidence=part.evidence,
                fix="`kubectl logs` of the device plug-in on that node; there `nvidia-smi` and `dmesg | grep -i xid`.",
            )  # fmt: skip
    counted = [f"{number} {name}" for name, number in node.allocatable.items() if _DEVICES.fullmatch(name)]
    if counted and not fewer:
        yield passed(f"{_node_name(node)} offers all of its {', '.join(counted[:6])}", evidence=part.evidence)


JUDGES: Judges = {
    "kubernetes events": _events,
    "kubernetes describe": _pod,
    "kubernetes get": _listed,
    "kubernetes object": _objects,
    "kubernetes node": (("host.services", _node_conditions), ("container.device-plugin", _node_devices)),
}

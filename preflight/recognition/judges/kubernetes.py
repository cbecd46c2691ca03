"""Judges of Kubernetes output: `kubectl get` as a table, JSON or YAML, and quotas."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model import Finding, counted, failed, passed, unknown, warned
from preflight.parsers.cluster.kubernetes_list import KubernetesList, ListedNode, ListedPod
from preflight.parsers.cluster.kubernetes_object import KubernetesObjects
from preflight.parsers.cluster.kubernetes_quota import Quota
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue
from preflight.recognition.judges.kubernetes_nodes import node_conditions, node_devices
from preflight.recognition.judges.kubernetes_objects import RESTARTS, object_judge, object_troubles, row_trouble
from preflight.recognition.judges.kubernetes_pods import judge_events, judge_pod, no_warning, pod_runs
from preflight.recognition.judges.kubernetes_words import PASSING, cause


def _listed(table: KubernetesList) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for pod in table.pods:
        if (judge := _pod_row(pod)) is not None:
            check, _ = cause(pod.status)
            judges.append(("container.state" if pod.status == "Pending" else check, judge))
    judges += [("host.services", _node_row(node)) for node in table.nodes if node.status != "Ready" or node.marks]
    judges += [
        (cause(f"{row.name} {trouble.words}")[0], object_judge(row.name, trouble, row.line))
        for row in table.others if (trouble := row_trouble(row)) is not None
    ]  # fmt: skip
    if len({node.version for node in table.nodes}) > 1:
        judges.append(("fleet.software", _versions))
    if judges:
        return tuple(judges)
    return (("host.services", _every_row_well),) if table.pods or table.nodes or table.others else ()


def _objects(listed: KubernetesObjects) -> Judged:
    judges: list[tuple[str, Judge]] = []
    for pod in listed.pods:
        pairs = judge_pod(pod)
        if pod.status not in ("Running", "Succeeded") or any(judge is not pod_runs for _, judge in pairs):
            judges += [(check, _of(pod, judge)) for check, judge in pairs]
    for node in listed.nodes:
        judges.append(("host.services", _of(node, node_conditions)))
        judges.append(("container.device-plugin", _of(node, node_devices)))
    judges += [pair for pair in judge_events(listed.events) if pair[1] is not no_warning]
    for item in listed.others:
        judges += [
            (cause(f"{item.name} {trouble.words}")[0], object_judge(item.name, trouble, item.line, item.kind))
            for trouble in object_troubles(item)
        ]
    if judges:
        return tuple(judges)
    return (("host.services", _every_object_well),) if listed.pods or listed.events or listed.others else ()


def _of(value: object, judge: Judge) -> Judge:
    """Return a judge that applies ``judge`` to one object of a list."""

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield from judge(PastedValue(value, part.evidence, part.complete, part.earlier))

    return judge_part


def _every_object_well(part: PastedValue) -> Iterator[Finding]:
    listed: KubernetesObjects = part.value
    if part.complete:
        number = len(listed.pods) + len(listed.others) + len(listed.events)
        yield passed(f"{number} objects are healthy", evidence=part.evidence)


def _pod_row(pod: ListedPod) -> Judge | None:
    """Return the judge of an unhealthy pod; None for a healthy one."""
    well = pod.status in ("Completed", "Succeeded") or (pod.status == "Running" and pod.ready == pod.containers)
    if well and (pod.status != "Running" or pod.restarts < RESTARTS):
        return None

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        on = f" on {pod.node}" if pod.node else ""
        words = f"pod {pod.name}{on}: {pod.status}, {pod.ready} of {pod.containers} containers ready"
        if pod.restarts:
            words += f", {pod.restarts} restarts"
        passing = pod.status == "Running" or PASSING.fullmatch(pod.status)
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


def _versions(part: PastedValue) -> Iterator[Finding]:
    """Report kubelet versions that differ between nodes."""
    versions: dict[str, list[str]] = {}
    for node in part.value.nodes:
        versions.setdefault(node.version, []).append(node.name)
    shown = "; ".join(f"{version}: {', '.join(names[:4])}" for version, names in list(versions.items())[:4])
    yield unknown(f"the nodes run {len(versions)} versions of kubelet: {shown}; normal only during an upgrade",
                  found=shown, expected="one version", evidence=part.evidence,
                  fix="Finish or repeat the upgrade.")  # fmt: skip


def _every_row_well(part: PastedValue) -> Iterator[Finding]:
    table: KubernetesList = part.value
    if part.complete:
        words = (
            f"{counted(len(table.nodes), 'node')} ready"
            if table.nodes
            else f"{counted(len(table.pods), 'pod')} running or completed"
        )
        words = f"{len(table.others)} objects are healthy" if table.others else words
        yield passed(words, evidence=part.evidence)


def _quota(part: PastedValue) -> Iterator[Finding]:
    """Report the resources whose quota is used up."""
    quota: Quota = part.value
    used_up = [row for row in quota.rows if row.used == row.hard != "0"]
    of = f"quota {quota.name}" if quota.name else "the quota"
    for row in used_up:
        yield unknown(f"{of}: {row.resource} is used up, {row.used} of {row.hard}; no further pod starts "
                      f"(line {row.line})", subject=row.resource, found=f"{row.used} of {row.hard}",
                      expected="some left", evidence=part.evidence,
                      fix="`kubectl get pods -A`: delete unneeded pods, or raise the quota.")  # fmt: skip
    if quota.rows and not used_up and part.complete:
        yield passed(f"{of} has room for {counted(len(quota.rows), 'resource')}", evidence=part.evidence)


JUDGES: Judges = {
    "kubernetes quota": (("container.device-plugin", _quota),),
    "kubernetes events": judge_events,
    "kubernetes describe": judge_pod,
    "kubernetes get": _listed,
    "kubernetes object": _objects,
    "kubernetes node": (("host.services", node_conditions), ("container.device-plugin", node_devices)),
}

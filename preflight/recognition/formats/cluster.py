"""Output formats of Kubernetes, Slurm, training programs and serving engines."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from statistics import median
from typing import Any

from preflight.facts.step_times import LONGER, recurrence, recurring
from preflight.model import counted
from preflight.parsers.cluster import kubernetes_quota
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent
from preflight.parsers.cluster.kubernetes_list import KubernetesList
from preflight.parsers.cluster.kubernetes_node import NodeDescription
from preflight.parsers.cluster.kubernetes_object import KubernetesObjects
from preflight.parsers.cluster.kubernetes_pod import PodDescription
from preflight.parsers.cluster.sacct import EndedJob
from preflight.parsers.cluster.sinfo import Sinfo
from preflight.parsers.cluster.slurm_control import SlurmControl
from preflight.parsers.cluster.slurm_nodes import SlurmNode
from preflight.parsers.training import nccl_ras, python_stacks, serving_metrics
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.parsers.training.serving_log import ServingLog
from preflight.recognition.formats.typed import output_format


def _event(event: KubernetesEvent) -> dict[str, Any]:
    return {"type": event.type, "reason": event.reason, "object": event.object or None, "message": event.message,
            "age": event.age, "line": event.line}  # fmt: skip


def _events(events: tuple[KubernetesEvent, ...]) -> tuple[dict[str, Any], str]:
    warnings = sorted({event.reason for event in events if event.type == "Warning"})
    return {
        "events": [_event(event) for event in events]
    }, f"{counted(len(events), 'event')}; warnings: {', '.join(warnings) or 'none'}"


def _pod(pod: PodDescription) -> tuple[dict[str, Any], str]:
    containers = [
        {"name": item.name, "state": item.state or None, "reason": item.reason or None, "exit_code": item.exit_code,
         "last_state": item.last_state or None, "last_reason": item.last_reason or None,
         "last_exit_code": item.last_exit_code, "restarts": item.restarts, "ready": item.ready, "line": item.line}
        for item in pod.containers
    ]  # fmt: skip
    facts = {
        "name": pod.name, "namespace": pod.namespace, "node": pod.node or None, "status": pod.status or None,
        "reason": pod.reason or None, "containers": containers, "conditions": dict(pod.conditions),
        "events": [_event(event) for event in pod.events],
    }  # fmt: skip
    if not pod.name:
        return facts, f"state of a container: {pod.containers[0].state if pod.containers else 'unknown'}"
    return facts, f"pod {pod.name} on {pod.node or 'no node'}: {pod.status or 'unknown'}"


def _sinfo(report: Sinfo) -> tuple[dict[str, Any], str]:
    reasons = [
        {"reason": item.reason, "user": item.user, "since": item.since, "nodes": item.nodes, "line": item.line}
        for item in report.reasons
    ]
    states = [
        {"partition": item.partition or None, "state": item.state or None, "nodes": item.nodes,
         "reason": item.reason or None, "counts": item.counts or None, "line": item.line}
        for item in report.states
    ]  # fmt: skip
    if states:
        return {"reasons": reasons, "states": states}, f"{counted(len(states), 'row')} of nodes by state"
    return {"reasons": reasons}, counted(len(reasons), "reason")


def _jobs(jobs: tuple[EndedJob, ...]) -> tuple[dict[str, Any], str]:
    listed = [
        {"id": job.id, "name": job.name or None, "state": job.state, "exit_code": job.exit_code or None,
         "nodes": job.nodes or None, "reason": job.reason or None, "fields": dict(job.fields), "line": job.line}
        for job in jobs
    ]  # fmt: skip
    states = ", ".join(dict.fromkeys(job.state for job in jobs))
    return {"jobs": listed}, f"{counted(len(jobs), 'job or step', 'jobs and steps')}: {states[:80]}"


def _listed(table: KubernetesList) -> tuple[dict[str, Any], str]:
    pods = [
        {"namespace": pod.namespace or None, "name": pod.name, "ready": pod.ready, "containers": pod.containers,
         "status": pod.status, "restarts": pod.restarts, "node": pod.node or None, "line": pod.line}
        for pod in table.pods
    ]  # fmt: skip
    nodes = [
        {"name": node.name, "status": node.status, "marks": list(node.marks), "version": node.version,
         "line": node.line}
        for node in table.nodes
    ]  # fmt: skip
    if nodes:
        return {
            "nodes": nodes
        }, f"{counted(len(nodes), 'node')}, {sum(node.status == 'Ready' for node in table.nodes)} ready"
    if table.others:
        objects = [
            {"namespace": row.namespace or None, "name": row.name, "columns": dict(row.columns), "line": row.line}
            for row in table.others
        ]
        return {
            "objects": objects
        }, f"{counted(len(objects), 'object')}: {', '.join(row.name for row in table.others[:4])}"
    return {"pods": pods}, f"{counted(len(pods), 'pod')}: {', '.join(sorted({pod.status for pod in table.pods}))[:80]}"


def _objects(listed: KubernetesObjects) -> tuple[dict[str, Any], str]:
    objects = [
        {"kind": entry.kind or None, "name": entry.name or None, "namespace": entry.namespace or None,
         "state": entry.state or None, "reason": entry.message or None,
         "conditions": [{"type": item.type, "status": item.status, "reason": item.reason,
                         "message": item.message or None} for item in entry.conditions],
         "counts": dict(entry.counts), "errors": {item.field: item.text for item in entry.errors}, "line": entry.line}
        for entry in listed.others
    ]  # fmt: skip
    facts = {
        "objects": objects, "pods": [_pod(pod)[0] for pod in listed.pods],
        "nodes": [_node(node)[0] for node in listed.nodes],
        "events": [_event(event) for event in listed.events],
    }  # fmt: skip
    kinds = [
        *(entry.kind or "object" for entry in listed.others),
        *("Pod" for _ in listed.pods),
        *("Node" for _ in listed.nodes),
    ]
    names = [
        *(entry.name for entry in listed.others),
        *(pod.name for pod in listed.pods),
        *(node.name for node in listed.nodes),
    ]
    words = ", ".join(f"{kind} {name}" for kind, name in zip(kinds[:4], names, strict=False))
    return {name: value for name, value in facts.items() if value}, words or counted(len(listed.events), "event")


def _control(report: SlurmControl) -> tuple[dict[str, Any], str]:
    if report.counters is not None:
        return {"counters": dict(report.counters)}, f"{counted(len(report.counters), 'counter')} of slurmctld"
    if report.partitions:
        partitions = {entry.name: {"state": entry.state, "fields": dict(entry.fields), "line": entry.line}
                      for entry in report.partitions}  # fmt: skip
        return {"partitions": partitions}, ", ".join(f"{entry.name} {entry.state}" for entry in report.partitions[:6])
    controllers = [{"role": entry.role, "host": entry.host, "state": entry.state, "line": entry.line}
                   for entry in report.controllers]  # fmt: skip
    return {"controllers": controllers}, ", ".join(f"{entry.host} {entry.state}" for entry in report.controllers[:6])


def _node(node: NodeDescription) -> tuple[dict[str, Any], str]:
    conditions = [
        {"type": item.type, "status": item.status, "reason": item.reason, "message": item.message or None,
         "line": item.line}
        for item in node.conditions
    ]  # fmt: skip
    facts = {
        "name": node.name, "unschedulable": node.unschedulable, "taints": list(node.taints), "conditions": conditions,
        "capacity": dict(node.capacity), "allocatable": dict(node.allocatable), "system": dict(node.system_info),
    }  # fmt: skip
    ready = next((item.status for item in node.conditions if item.type == "Ready"), "unknown")
    return facts, f"node {node.name or '(no name)'}: Ready {ready}"


def _nodes(nodes: tuple[SlurmNode, ...]) -> tuple[dict[str, Any], str]:
    facts = {
        node.name: {"state": list(node.state), "reason": node.reason or None, "gres": node.fields.get("Gres"),
                    "fields": dict(node.fields), "line": node.line}
        for node in nodes
    }  # fmt: skip
    states = ", ".join(f"{node.name} {'+'.join(node.state)}" for node in nodes[:4])
    configured = all(node.configured for node in nodes)
    number = f"{counted(len(nodes), 'line')} of a configuration" if configured else counted(len(nodes), "node")
    return {"nodes": facts}, f"{number}: {states}"


TRAINING = "training log"


def _rates(rates: Sequence[float], unit: str) -> dict[str, Any]:
    return {"median": median(rates), "min": min(rates), "unit": unit}


def training(log: TrainingLog) -> tuple[dict[str, Any], str]:
    """Return the documented facts and the summary of training steps."""
    times = [step.step_time_s for step in log.steps if step.step_time_s is not None]
    losses = [step.loss for step in log.steps if step.loss is not None and not isnan(step.loss)]
    rates = [step.throughput for step in log.steps if step.throughput is not None]
    norms = [step.grad_norm for step in log.steps if step.grad_norm is not None and not isnan(step.grad_norm)]
    shares = [step.mfu_pct for step in log.steps if step.mfu_pct is not None]
    facts = {
        "framework": log.framework, "steps": len(log.steps), "first_step": log.steps[0].step if log.steps else None,
        "last_step": log.steps[-1].step if log.steps else None,
        "step_time_s": {"median": median(times), "max": max(times), "first": times[0], "last": times[-1]} if times
        else None,
        "throughput": _rates(rates, log.steps[-1].throughput_unit) if rates else None,
        "last_loss": losses[-1] if losses else None,
        "last_grad_norm": norms[-1] if norms else None, "last_mfu_pct": shares[-1] if shares else None,
    }  # fmt: skip
    words = f", median step {median(times):.3g} s" if times else ""
    if log.between is not None:
        facts["steps_between"] = log.between.count
        words += f"; {log.between.count:,} more in the middle were compared by their time only"
    if (long := recurring(log, LONGER)) is not None:
        facts["recurring"] = {
            "every": long.every,
            "times_the_median": round(long.ratio, 3),
            "cost": round(long.cost, 5),
        }
        words += f"; {recurrence(long)}"
    return facts, f"{counted(len(log.steps), 'step')} of {log.framework}{words}"


def _serving(log: ServingLog) -> tuple[dict[str, Any], str]:
    reports = [
        {"engine": item.engine or None, "generation_tokens_s": item.generation_tokens_s,
         "prompt_tokens_s": item.prompt_tokens_s, "running": item.running, "waiting": item.waiting,
         "kv_cache_used": item.cache_used, "line": item.line}
        for item in log.reports
    ]  # fmt: skip
    rates = [item.generation_tokens_s for item in log.reports if item.generation_tokens_s]
    words = f", median {median(rates):.4g} tokens/s" if rates else ""
    facts = {"program": log.program or None, "reports": reports, "kv_cache_tokens": log.cache_tokens,
             "started": log.started is not None}  # fmt: skip
    if not reports:
        return facts, "the server started" if log.started is not None else f"KV cache of {log.cache_tokens} tokens"
    return facts, f"{counted(len(reports), 'report')} of {log.program}{words}"


KINDS = (
    output_format("kubernetes object", _objects),
    output_format("kubernetes describe", _pod),
    output_format("kubernetes events", _events),
    output_format("kubernetes node", _node),
    output_format("kubernetes quota", lambda quota: (kubernetes_quota.facts(quota), kubernetes_quota.summary(quota))),
    output_format("kubernetes get", _listed),
    output_format("sinfo", _sinfo),
    output_format("scontrol node", _nodes),
    output_format("sacct", _jobs),
    output_format("squeue", _jobs),
    output_format("scontrol job", _jobs),
    output_format("scontrol", _control),
    output_format("seff", _jobs),
    output_format(TRAINING, training),
    output_format("serving log", _serving),
    output_format("ncclras", lambda value: (nccl_ras.facts(value), nccl_ras.summary(value))),
    output_format("python stacks", lambda value: (python_stacks.facts(value), python_stacks.summary(value))),
    output_format("serving metrics", lambda value: (serving_metrics.facts(value), serving_metrics.summary(value))),
)

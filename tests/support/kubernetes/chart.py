"""Writer of the Helm chart and the examples: ``python -m tests.support.kubernetes.chart``.

Both are made from the Kustomize bases, so that nothing has to agree by hand: the chart from their text, each example
from the pod of ``init-container/job.yaml``. A test compares the files with the result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from preflight.version import VERSION
from tests.support.paths import ROOT

BASES = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm"
EXAMPLES = ROOT / "deploy" / "kubernetes-examples"

_WRITTEN = "# Written by python -m tests.support.kubernetes.chart from deploy/kubernetes{place}; do not edit.\n"
_CHART = """\
apiVersion: v2
name: preflight
description: Judges GPU nodes of a training cluster
type: application
version: {version}
appVersion: "{version}"
kubeVersion: ">=1.29.0-0"
"""
_VALUES = """\
# Your image, by digest or tag, and the runtime class of your GPU nodes.
image: registry.example/preflight:1
runtimeClassName: nvidia
# Expectations of your site; --set-file cluster=cluster.toml
cluster: |
{cluster}
# Judges each GPU node every five minutes.
daemonset:
  enabled: true
# Lets an installed node-problem-detector read the verdicts.
nodeProblemDetector:
  enabled: true
# Serves the metrics of each node on port 9798; podMonitor: for the Prometheus Operator.
metrics:
  enabled: false
  podMonitor: false
# Taints the nodes whose condition PreflightFailed is true, at most this many. mode: dry-run only logs, apply taints.
taint:
  enabled: false
  mode: dry-run
  percent: 10
  most: 10
# Collects once from this number of nodes, with one pod on each, into an existing volume claim.
collect:
  enabled: false
  nodes: 2
  gpus: 8
  rdmaResource: rdma/hca_shared_devices_a
  claimName: preflight-evidence
"""
#: Text of the bases -> the value in its place.
_IMAGE = ("registry.example/preflight:1", "{{ .Values.image | quote }}")
_RUNTIME = ("runtimeClassName: nvidia", "runtimeClassName: {{ .Values.runtimeClassName | quote }}")
_COLLECT = (
    ("completions: 2", "completions: {{ .Values.collect.nodes }}"),
    ("parallelism: 2", "parallelism: {{ .Values.collect.nodes }}"),
    ("nvidia.com/gpu: 8", "nvidia.com/gpu: {{ .Values.collect.gpus }}"),
    ("rdma/hca_shared_devices_a: 1", "{{ .Values.collect.rdmaResource | quote }}: 1"),
    ("claimName: preflight-evidence", "claimName: {{ .Values.collect.claimName | quote }}"),
)
_TAINT = (
    ("--percent=10", "--percent={{ .Values.taint.percent }}"),
    ("--most=10", "--most={{ .Values.taint.most }}"),
    ("--mode=dry-run", "--mode={{ .Values.taint.mode }}"),
)


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _with_values(path: str, *values: tuple[str, str]) -> str:
    text = (BASES / path).read_text(encoding="utf-8")
    for printed, value in values:
        if text.count(printed) != 1:
            raise ValueError(f"{path} has {text.count(printed)} times {printed!r}, expected once")
        text = text.replace(printed, value)
    return text


def _config_map(folder: str, data: Mapping[str, str]) -> str:
    """Return the ConfigMap that a folder's generator makes; Kustomize has no file for it."""
    (generator,) = yaml.safe_load((BASES / folder / "kustomization.yaml").read_text())["configMapGenerator"]
    if set(generator["files"]) != set(data):
        raise ValueError(f"{folder}: the generator has {generator['files']}")
    place = f"  namespace: {generator['namespace']}\n" if "namespace" in generator else ""
    entries = "".join(f"  {name}: |\n{text}" for name, text in data.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {generator['name']}\n{place}data:\n{entries}"


def _if(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _script(folder: str, name: str) -> str:
    return _config_map(folder, {name: _indented((BASES / folder / name).read_text(), 4)})


def chart() -> Iterator[tuple[Path, str]]:
    """Yield the files of the chart."""
    files = ("preflight-monitor.json", "check_preflight.sh")
    monitor = {name: _indented((BASES / "node-problem-detector" / name).read_text(), 4) for name in files}
    templates = {
        "base": "---\n".join(_with_values(f"base/{name}.yaml") for name in ("serviceaccount", "role", "rolebinding")),
        "cluster": _config_map("base", {"cluster.toml": "{{ .Values.cluster | indent 4 }}\n"}),
        "daemonset": _if("daemonset.enabled", _with_values("daemonset/daemonset.yaml", _IMAGE, _RUNTIME)),
        "node-problem-detector": _if("nodeProblemDetector.enabled", _config_map("node-problem-detector", monitor)),
        "collect": _if("collect.enabled", _with_values("job/job.yaml", _IMAGE, _RUNTIME, *_COLLECT)),
    }
    metrics = [_with_values("metrics/daemonset.yaml", _IMAGE), _script("metrics", "serve_metrics.py")]
    templates["metrics"] = _if("metrics.enabled", "---\n".join(metrics))
    templates["podmonitor"] = _if("metrics.podMonitor", _with_values("metrics/podmonitor.yaml"))
    taint = [
        _with_values("taint/rbac.yaml"),
        _with_values("taint/deployment.yaml", _IMAGE, *_TAINT),
        _script("taint", "taint_nodes.py"),
    ]
    templates["taint"] = _if("taint.enabled", "---\n".join(taint))
    cluster = _indented((BASES / "base" / "cluster.toml").read_text().rstrip("\n"), 2)
    note = _WRITTEN.format(place="")
    yield CHART / "Chart.yaml", note + _CHART.format(version=VERSION)
    yield CHART / "values.yaml", note + _VALUES.format(cluster=cluster)
    for name, text in templates.items():
        yield CHART / "templates" / f"{name}.yaml", note + text


def _pod() -> dict[str, Any]:
    """Return the pod template of the Job with the init container."""
    job = yaml.safe_load((BASES / "init-container" / "job.yaml").read_text())
    return copy.deepcopy(job["spec"]["template"])


def _apart(pod: dict[str, Any]) -> dict[str, Any]:
    """Put each pod of the job on a node of its own."""
    labels = {"app.kubernetes.io/name": "training"}
    pod["metadata"]["labels"] = labels
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


def _job(**spec: Any) -> dict[str, Any]:
    return {"completions": 2, "parallelism": 2, "completionMode": "Indexed", **spec, "template": _apart(_pod())}


def _of_kind(api: str, kind: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "training", **metadata}, "spec": dict(spec)}


#: A pod whose init container refuses is replaced, which costs no retry; 2, an invalid cluster file, ends the job.
_REFUSED = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "preflight", "operator": "In", "values": [2]}},
        {"action": "Ignore", "onExitCodes": {"containerName": "preflight", "operator": "In", "values": [1, 3]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
}


def _survivor() -> dict[str, Any]:
    spec = _job(backoffLimit=2, activeDeadlineSeconds=86400, podFailurePolicy=_REFUSED)
    return _of_kind("batch/v1", "Job", spec)


def _kueue() -> dict[str, Any]:
    job = _of_kind("batch/v1", "Job", {"suspend": True, **_job(backoffLimit=2, podFailurePolicy=_REFUSED)})
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    return job


def _jobset() -> dict[str, Any]:
    job = {"name": "node", "replicas": 1, "template": {"spec": _job(backoffLimit=2, podFailurePolicy=_REFUSED)}}
    spec = {"failurePolicy": {"maxRestarts": 2}, "replicatedJobs": [job]}
    return _of_kind("jobset.x-k8s.io/v1alpha2", "JobSet", spec)


def _named(pod: dict[str, Any], container: str) -> dict[str, Any]:
    pod["spec"]["containers"][0]["name"] = container
    return pod


def _without_restart_policy(pod: dict[str, Any]) -> dict[str, Any]:
    """Leave the restart policy to the operator, whose own field decides."""
    del pod["spec"]["restartPolicy"]
    return pod


def _pytorchjob() -> dict[str, Any]:
    def replica(number: int) -> dict[str, Any]:
        pod = _without_restart_policy(_named(_apart(_pod()), "pytorch"))
        return {"replicas": number, "restartPolicy": "OnFailure", "template": pod}

    spec = {"runPolicy": {"backoffLimit": 2}, "nprocPerNode": "8",
            "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(1)}}  # fmt: skip
    return _of_kind("kubeflow.org/v1", "PyTorchJob", spec)


def _trainer() -> dict[str, Any]:
    """Return the runtime for TrainJobs of Kubeflow Trainer 2, which name it in ``runtimeRef``."""
    spec = {"backoffLimit": 2, "template": _named(_apart(_pod()), "node")}
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": label}, "spec": spec}}
    policy = {"numNodes": 2, "torch": {"numProcPerNode": "auto"}}
    return _of_kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime",
                    {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [job]}}})  # fmt: skip


def _mpijob() -> dict[str, Any]:
    worker = _without_restart_policy(_named(_apart(_pod()), "mpi"))
    worker["spec"]["containers"][0]["command"] = ["/usr/sbin/sshd", "-De"]
    image = worker["spec"]["containers"][0]["image"]
    launch = {"name": "mpi", "image": image, "command": ["mpirun", "-n", "16", "python3", "train.py"]}
    replicas = {"Launcher": {"replicas": 1, "template": {"spec": {"containers": [launch]}}},
                "Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": worker}}  # fmt: skip
    return _of_kind("kubeflow.org/v2beta1", "MPIJob",
                    {"slotsPerWorker": 8, "runPolicy": {"backoffLimit": 2}, "mpiReplicaSpecs": replicas})  # fmt: skip


def _volcano() -> dict[str, Any]:
    task = {"name": "node", "replicas": 2, "template": _apart(_pod())}
    spec = {"schedulerName": "volcano", "minAvailable": 2, "maxRetry": 2,
            "policies": [{"event": "PodFailed", "action": "RestartJob"}], "tasks": [task]}  # fmt: skip
    return _of_kind("batch.volcano.sh/v1alpha1", "Job", spec)


#: Name of the example -> its object.
KINDS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "job": _survivor, "kueue": _kueue, "jobset": _jobset, "pytorchjob": _pytorchjob, "trainer": _trainer,
    "mpijob": _mpijob, "volcano": _volcano,
}  # fmt: skip


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def examples() -> Iterator[tuple[Path, str]]:
    """Yield the file of each example."""
    note = _WRITTEN.format(place="/init-container/job.yaml")
    for name, kind in KINDS.items():
        yield EXAMPLES / f"{name}.yaml", note + yaml.dump(kind(), Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    for path, text in (*chart(), *examples()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

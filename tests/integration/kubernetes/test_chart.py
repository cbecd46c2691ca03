"""deploy/helm and deploy/kubernetes-examples: written from the Kustomize bases, and valid.

The chart is rendered by the renderer of the tests (tests/support/kubernetes/helm_template.py), which knows the chart's
own actions and refuses all others; ``pytest -m helm`` compares it with helm, and has not run. The kinds of
JobSet, Kubeflow, MPI and Volcano have no schema here: their pods are validated, and nothing of them has run.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import kubernetes_validate
import pytest
import yaml

from preflight.gate.policy import rule
from tests.integration.kubernetes.test_manifests import KUBERNETES, VERSIONS, resources
from tests.support.kubernetes import chart
from tests.support.kubernetes.helm_template import rendered
from tests.support.paths import ROOT

VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())
EVERYTHING = {
    **VALUES, "collect": {**VALUES["collect"], "enabled": True}, "taint": {**VALUES["taint"], "enabled": True},
    "metrics": {"enabled": True, "podMonitor": True},
}  # fmt: skip


def objects(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of the chart, as rendered by the tests' renderer."""
    texts = [rendered(path.read_text(), values) for path in sorted(chart.CHART.glob("templates/*.yaml"))]
    return [item for text in texts for item in yaml.load_all(text, yaml.CSafeLoader) if item]


def by_name(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


def test_the_files_are_those_of_the_bases() -> None:
    written = dict((*chart.chart(), *chart.examples()))
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tests.support.kubernetes.chart"
    files = {path for folder in (chart.CHART, chart.EXAMPLES) for path in folder.rglob("*") if path.is_file()}
    assert files == set(written)


def test_the_chart_makes_what_kustomize_makes() -> None:
    made = by_name(objects(EVERYTHING))
    folders = [
        resource for name in ("daemonset", "job", "metrics", "taint") for resource in resources(KUBERNETES / name)
    ]
    maps = {
        "preflight": ["base/cluster.toml"],
        "preflight-monitor": [
            "node-problem-detector/preflight-monitor.json",
            "node-problem-detector/check_preflight.sh",
        ],
        "preflight-metrics": ["metrics/serve_metrics.py"],
        "preflight-taint": ["taint/taint_nodes.py"],
    }
    for name, files in maps.items():
        data = {file.rpartition("/")[2]: (KUBERNETES / file).read_text() for file in files}
        assert made.pop(("ConfigMap", name))["data"] == data
    assert made == by_name(folders)


@pytest.mark.parametrize("version", VERSIONS)
def test_its_objects_are_valid(version: str) -> None:
    for item in objects(EVERYTHING):
        if item["kind"] == "PodMonitor":
            continue
        kubernetes_validate.validate(item, version, strict=True)


def test_values_reach_the_objects() -> None:
    collect = {"enabled": True, "nodes": 64, "gpus": 4, "rdmaResource": "rdma/rail", "claimName": "evidence"}
    made = by_name(objects({**VALUES, "image": "mirror/preflight@sha256:00", "runtimeClassName": "", "collect": collect,
                            "cluster": "[class.a]\ngpus = 4\n", "daemonset": {"enabled": False},
                            "nodeProblemDetector": {"enabled": False}}))  # fmt: skip
    assert set(made) == {("ServiceAccount", "preflight"), ("Role", "preflight"), ("RoleBinding", "preflight"),
                         ("ConfigMap", "preflight"), ("Job", "preflight-collect")}  # fmt: skip
    assert made["ConfigMap", "preflight"]["data"] == {"cluster.toml": "[class.a]\ngpus = 4\n"}
    job = made["Job", "preflight-collect"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (job["completions"], job["parallelism"], container["image"]) == (64, 64, "mirror/preflight@sha256:00")
    assert {"nvidia.com/gpu": 4, "rdma/rail": 1}.items() <= container["resources"]["limits"].items()
    assert job["template"]["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"] == "evidence"


def test_the_taint_is_off_until_it_is_chosen() -> None:
    assert not any("taint" in name or "metrics" in name for _, name in by_name(objects(VALUES)))
    chosen = {"enabled": True, "mode": "apply", "percent": 5, "most": 3}
    deployment = by_name(objects({**VALUES, "taint": chosen}))["Deployment", "preflight-taint"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][-3:] == ["--percent=5", "--most=3", "--mode=apply"]


@pytest.mark.parametrize("template", [
    "{{ .Release.Name }}", "{{ include \"x\" . }}", "{{ .Values.image | upper }}", "{{.Values.image}}",
    "{{ .Values.collect }}", "{{- range .Values.a }}\n{{- end }}", "{{- if .Values.image }}", "{{- end }}",
    "{{- if .Values.image }}\n{{- if .Values.image }}\n{{- end }}\n{{- end }}",
])  # fmt: skip
def test_the_renderer_refuses_what_the_chart_does_not_use(template: str) -> None:
    with pytest.raises(ValueError, match=r"renderer|text or number|nested|end"):
        rendered(template, VALUES)
    with pytest.raises(KeyError):
        rendered("{{ .Values.imaeg }}", VALUES)


@pytest.mark.helm
@pytest.mark.skipif(not shutil.which("helm"), reason="helm is not installed")
def test_helm_renders_the_same() -> None:
    command = [
        "helm",
        "template",
        "preflight",
        str(chart.CHART),
        "--set",
        "collect.enabled=true,metrics.enabled=true,metrics.podMonitor=true,taint.enabled=true",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert by_name([item for item in yaml.safe_load_all(ran.stdout) if item]) == by_name(objects(EVERYTHING))


EXAMPLES = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(chart.EXAMPLES.glob("*.yaml"))}


def pod_templates(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the pod templates in an object of any kind."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        else:
            for below in value.values():
                yield from pod_templates(below)
    for below in value if isinstance(value, list) else ():
        yield from pod_templates(below)


@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, VERSIONS[-1]) for name in EXAMPLES), *(("job", version) for version in VERSIONS[:-1])],
)
def test_an_example_has_valid_pods_that_wait_for_their_resources(name: str, version: str) -> None:
    example = EXAMPLES[name]
    if example["apiVersion"] == "batch/v1":
        kubernetes_validate.validate(example, version, strict=True)
    judged = 0
    for template in pod_templates(example):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", **template.get("metadata", {})},
               "spec": template["spec"]}  # fmt: skip
        kubernetes_validate.validate(pod, version, strict=True)
        if "initContainers" in template["spec"]:
            (first,), (main_one,) = template["spec"]["initContainers"], template["spec"]["containers"]
            assert (first["name"], first["resources"]) == ("preflight", main_one["resources"])
            assert first["args"][:2] == ["gate", "init-container"]
            (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
            judged += 1
    assert judged


@pytest.mark.parametrize("name", ["job", "kueue", "jobset"])
def test_a_refused_pod_costs_no_retry(name: str) -> None:
    """The statuses are those of the gate: refused and not judged are retried, an invalid configuration is not."""
    spec = EXAMPLES[name]["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if name == "jobset" else spec
    action = {status: rule["action"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule
              for status in rule["onExitCodes"]["values"]}  # fmt: skip
    actions = {outcome: action[rule("init-container", outcome).exit] for outcome in ("fail", "unknown", "error")}
    assert actions == {"fail": "Ignore", "unknown": "Ignore", "error": "FailJob"}
    assert action[rule("init-container", "unknown", strict=True).exit] == "Ignore"
    assert spec["backoffLimit"] > 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "a pod failure policy needs it"


def test_the_page_names_every_example() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    for name in EXAMPLES:
        assert f"`{name}.yaml`" in page

"""deploy/kubernetes: every resource is valid and requests only what it needs, and its command lines work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import load
from preflight.gate.verdict import Verdict, to_document
from preflight.judge import judge
from tests.support import machines, paths
from tests.support.machines.pod import pod as made_pod
from tests.support.whole_nodes import CHECKS, site

KUBERNETES = paths.ROOT / "deploy" / "kubernetes"
FOLDERS = sorted(path.parent for path in KUBERNETES.glob("*/kustomization.yaml"))
#: The oldest version in use with the features of the manifests, and the newest of the validator.
VERSIONS = ("1.29", "1.31", kubernetes_validate.latest_version())
CHECK = KUBERNETES / "node-problem-detector" / "check_preflight.sh"

Resource = Mapping[str, Any]


def resources(folder: Path) -> Iterator[Resource]:
    """Yield the resources of a folder, and of the folders that it is based on."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in kustomization.get("resources", ()):
        place = (folder / name).resolve()
        if place.is_dir():
            yield from resources(place)
        else:
            yield from yaml.safe_load_all(place.read_text())


def pods(folder: Path) -> Iterator[Resource]:
    for resource in resources(folder):
        if "template" in resource.get("spec", {}):
            yield resource["spec"]["template"]["spec"]


def containers(folder: Path) -> Iterator[Resource]:
    for pod in pods(folder):
        yield from (*pod.get("initContainers", ()), *pod["containers"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_resources_are_valid(folder: Path, version: str) -> None:
    for resource in resources(folder):
        if resource["kind"] != "PodMonitor":  # a kind of the Prometheus Operator, without a schema here
            kubernetes_validate.validate(resource, version, strict=True)


def test_the_validator_is_strict() -> None:
    pod = next(iter(pods(KUBERNETES / "init-container")))
    misspelt = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {**pod, "initContainer": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_a_kustomization_names_is_there(folder: Path) -> None:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = [*kustomization.get("resources", ())]
    for generator in kustomization.get("configMapGenerator", ()):
        named += generator["files"]
    assert named
    for name in named:
        assert (folder / name).exists(), name
    unused = {path.name for path in folder.iterdir()} - {Path(name).name for name in named} - {"kustomization.yaml"}
    assert not unused


def knows_kustomize() -> bool:
    """Return whether kubectl is 1.21 or later: older ones have a kustomize of 2018."""
    if shutil.which("kubectl") is None:
        return False
    ran = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"], capture_output=True, timeout=30, check=True
    )
    version = json.loads(ran.stdout)["clientVersion"]
    return (int(version["major"]), int(re.sub(r"\D", "", version["minor"]))) >= (1, 21)


@pytest.mark.skipif(not knows_kustomize(), reason="no kubectl of 1.21 or later")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds_it(folder: Path) -> None:
    ran = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=True)
    built = list(yaml.safe_load_all(ran.stdout))
    for resource in built:
        if resource["kind"] == "PodMonitor":
            continue
        kubernetes_validate.validate(resource, VERSIONS[-1], strict=True)
    maps = {resource["metadata"]["name"] for resource in built if resource["kind"] == "ConfigMap"}
    used = {volume["configMap"]["name"] for pod in pods(folder) for volume in pod["volumes"] if "configMap" in volume}
    assert used <= maps


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_containers_have_no_more_than_they_need(folder: Path) -> None:
    for container in containers(folder):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"]["drop"] == ["ALL"]
        assert not security.get("privileged")
        assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
        allowed = {"init-container": {"IPC_LOCK"}, "daemonset": {"SYSLOG"}}.get(folder.name, set())
        assert set(security["capabilities"].get("add", ())) <= allowed
    for pod in pods(folder):
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["automountServiceAccountToken"] is False
        assert not pod.get("hostPID")
        assert not pod.get("hostIPC")
        assert bool(pod.get("hostNetwork")) == (folder.name == "daemonset")


def test_the_pod_monitor_finds_the_metrics() -> None:
    """Field names as in the API reference of the Prometheus Operator."""
    daemonset, monitor = resources(KUBERNETES / "metrics")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    (endpoint,), (port,) = monitor["spec"]["podMetricsEndpoints"], container["ports"]
    assert endpoint["port"] == port["name"]
    assert str(port["containerPort"]) == container["command"][-1]
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "preflight-metrics", "the job that the alert rules name"
    (judging,) = pods(KUBERNETES / "daemonset")
    places = {volume["name"]: volume["hostPath"]["path"] for pod in (judging, *pods(KUBERNETES / "metrics"))
              for volume in pod["volumes"] if volume["name"] == "textfile"}  # fmt: skip
    assert set(places.values()) == {"/var/lib/node_exporter/textfile"}


def test_a_tainted_node_is_judged_and_scraped() -> None:
    for folder in ("daemonset", "metrics"):
        (pod,) = pods(KUBERNETES / folder)
        assert {"key": "gpu-preflight/failed", "operator": "Exists"} in pod["tolerations"]


#: Capabilities and volumes of the Pod Security Standards: what *baseline* lets a container add, *restricted* mount.
BASELINE_ADDS = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"
}  # fmt: skip


def pod_security(pod: Resource) -> str:
    """Return the strictest level of the Pod Security Standards that admits a pod, by the fields of our manifests."""
    every = [{**pod.get("securityContext", {}), **container["securityContext"]}
             for container in (*pod.get("initContainers", ()), *pod["containers"])]  # fmt: skip
    adds = {name for container in every for name in container["capabilities"].get("add", ())}
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
    host = any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")) or "hostPath" in kinds
    if host or adds - BASELINE_ADDS or any(container.get("privileged") for container in every):
        return "privileged"
    strict = all(
        container.get("runAsNonRoot") is True and container.get("runAsUser") != 0
        and not container["allowPrivilegeEscalation"] and container["capabilities"]["drop"] == ["ALL"]
        and container["seccompProfile"]["type"] == "RuntimeDefault"
        for container in every
    )  # fmt: skip
    return "restricted" if strict and adds <= {"NET_BIND_SERVICE"} and kinds <= RESTRICTED_VOLUMES else "baseline"


def test_the_page_states_the_pod_security_level_of_each_folder() -> None:
    page = (paths.ROOT / "docs" / "kubernetes.md").read_text()
    stated = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (\*?[a-z ]+\*?) \|$", page, re.M))
    levels = {folder.name: "".join({f"*{pod_security(pod)}*" for pod in pods(folder)}) or "no pod"
             for folder in FOLDERS if folder.name != "base"}  # fmt: skip
    assert stated == levels


@pytest.mark.parametrize(("change", "level"), [
    ({}, "restricted"), ({"hostNetwork": True}, "privileged"),
    ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "privileged"),
    ({"volumes": [{"name": "x", "nfs": {}}]}, "baseline"),
])  # fmt: skip
def test_the_level_follows_the_pod(change: Resource, level: str) -> None:
    (pod,) = pods(KUBERNETES / "job")
    assert pod_security({**pod, **change}) == level
    container = pod["containers"][0]
    security = {**container["securityContext"], "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
    assert pod_security({**pod, "containers": [{**container, "securityContext": security}]}) == "privileged"
    security = {**container["securityContext"], "runAsUser": 0}
    assert pod_security({**pod, "containers": [{**container, "securityContext": security}]}) == "baseline"


def test_rbac_lets_it_read_a_pod_by_its_name_and_no_more() -> None:
    rules = [rule for resource in resources(KUBERNETES / "base") for rule in resource.get("rules", ())]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    of_cluster = [resource for folder in FOLDERS for resource in resources(folder)
                  if resource["kind"].startswith("Cluster")]  # fmt: skip
    role, binding = of_cluster
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]}]
    (account,) = binding["subjects"]
    (taint,) = pods(KUBERNETES / "taint")
    assert (account["namespace"], taint["serviceAccountName"]) == ("kube-system", account["name"])


def test_the_token_is_in_the_init_container_alone() -> None:
    (pod,) = pods(KUBERNETES / "init-container")
    (first,), (main_one,) = pod["initContainers"], pod["containers"]
    mounts = {mount["name"]: mount for mount in first["volumeMounts"]}
    assert mounts["token"]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert "token" not in {mount["name"] for mount in main_one["volumeMounts"]}
    for same in ("securityContext", "resources"):
        assert first[same] == main_one[same], "it judges a container like the job's"
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in first["env"]}
    assert fields == {
        "NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
        "NETWORK_STATUS": "metadata.annotations['k8s.v1.cni.cncf.io/network-status']",
    }  # fmt: skip
    assert first["terminationMessagePath"] == "/dev/termination-log"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments that the manifests pass to preflight."""
    for folder in FOLDERS:
        for container in containers(folder):
            if "preflight" not in container["image"] or folder.name in ("metrics", "taint"):  # programs of their own
                continue
            if "args" in container:
                yield folder.name, container["args"]
            for script in container.get("command", ())[2:]:
                _, _, called = script.replace("\\\n", " ").partition("/opt/preflight ")
                yield folder.name, called.split("||")[0].split()


@pytest.mark.parametrize(("folder", "words"), list(command_lines()), ids=lambda value: str(value)[:40])
def test_command_lines_are_understood(folder: str, words: list[str]) -> None:
    context = click.Context(main)
    command = main.get_command(context, words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=context)


def test_the_cluster_file_is_one() -> None:
    cluster = load(KUBERNETES / "base" / "cluster.toml")
    resources_of = cluster.classes["training"].ports.resources or ()
    (pod,) = pods(KUBERNETES / "init-container")
    assert set(resources_of) <= set(pod["initContainers"][0]["resources"]["limits"])


# --- node-problem-detector -------------------------------------------------------------------------


def test_the_monitor_is_as_the_custom_plugin_wants_it() -> None:
    """Field names as in node-problem-detector's docs/custom_plugin_monitor.md."""
    monitor = json.loads((CHECK.parent / "preflight-monitor.json").read_text())
    assert monitor["plugin"] == "custom"
    assert monitor["pluginConfig"]["max_output_length"] == 80
    (rule,), (condition,) = monitor["rules"], monitor["conditions"]
    assert rule["type"] == "permanent"
    assert rule["condition"] == condition["type"]
    assert Path(rule["path"]).name == CHECK.name
    daemonset = (KUBERNETES / "daemonset" / "daemonset.yaml").read_text()
    assert f"--report-dir={Path(rule['args'][0]).parent}" in daemonset


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def verdict(outcome: str, reason: str, **changes: Any) -> str:
    cause = "gpu.count" if outcome == "fail" else ""
    made = Verdict(node="gpu001", status=outcome, at=int(time.time()), boot_id=boot_id(), policy="0" * 32, cause=cause,
                   reason=reason, owner="node", causes=(cause,) if cause else (), seconds=0.5)  # fmt: skip
    return json.dumps({**to_document(made), **changes}, indent=1) + "\n"


FOUND = "preflight: gpu.count: found 7, expected 8 (cluster.toml class.training.gpus)"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (lambda: verdict("pass", ""), 0, "preflight passed"),
        (lambda: verdict("fail", FOUND), 1, "[isolate] gpu.count: found 7, expected 8"),
        (lambda: verdict("fail", FOUND, action="reboot"), 1, "[reboot] gpu.count: found 7, expected 8"),
        (lambda: verdict("fail", FOUND, action="$(touch EXECUTED)"), 1, "gpu.count: found 7"),
        (lambda: verdict("fail", 'preflight: a: found "x", expected y'), 1, "gpu.count failed"),
        (lambda: verdict("fail", "preflight: " + "w" * 150), 1, "w" * 70),
        (lambda: verdict("unknown", "preflight: gpu.driver: timeout"), 2, "not judged: gpu.driver: timeout"),
        (
            lambda: verdict("error", "preflight: cluster.toml:3: unknown key"),
            2,
            "configuration of preflight: cluster.toml:3",
        ),
        (lambda: verdict("pass", "", at=int(time.time()) - 5000), 2, "preflight last judged this node 500"),
        (lambda: verdict("pass", "", at=int(time.time()) + 5000), 2, "from the future"),
        (lambda: verdict("pass", "", boot_id="another"), 2, "since it booted"),
        (lambda: verdict("pass", "", status="better"), 2, "damaged"),
        (lambda: verdict("pass", "", at="$(touch EXECUTED)"), 2, "damaged: no time"),
        (lambda: verdict("fail", "preflight: $(touch EXECUTED); `touch EXECUTED`"), 1, "$(touch EXECUTED)"),
        (lambda: verdict("fail", FOUND)[:-20], 1, "gpu.count"),
        (lambda: verdict("fail", FOUND)[:60], 2, "damaged"),
        (lambda: "", 2, "damaged"),
        (lambda: "{}\n", 2, "damaged"),
        (lambda: "x" * 70_000, 2, "too long"),
        (lambda: "\x1b[31m\n" * 10, 2, "damaged"),
        (None, 2, "no verdict of preflight on this node"),
    ],
)
def test_the_plugin_prints_the_verdict(
    tmp_path: Path, text: Callable[[], str] | None, status: int, message: str
) -> None:
    file = tmp_path / "verdict.json"
    if text is not None:
        file.write_text(text())
    ran = subprocess.run(["/bin/sh", str(CHECK), str(file), "900"], capture_output=True, timeout=20, check=False,
                         cwd=tmp_path)  # fmt: skip
    assert (ran.returncode, message in ran.stdout.decode("ascii")) == (status, True), ran.stdout
    assert len(ran.stdout) <= 81, "80 bytes and the end of the line"
    assert ran.stdout.count(b"\n") == 1
    assert not ran.stderr
    assert not (tmp_path / "EXECUTED").exists()


def test_a_healthy_pod_is_let_in_with_the_checks_that_the_base_leaves_out() -> None:
    """A pod that sees only its image and what its privileges allow is not blocked by invisible facts."""
    gate = load(KUBERNETES / "base" / "cluster.toml").gate
    assert gate is not None
    left_out = gate.hook("init-container").skip or ()
    applied = [check for check in CHECKS if not any(fnmatchcase(check.id, pattern) for pattern in left_out)]
    evidence = from_document(machines.evidence(made_pod()), "hgx-h100-pod")
    report = judge([evidence], applied, site("hgx-h100-pod"))
    assert report["exit_status"] == 0, [f for f in report["findings"] if f["status"] in ("fail", "unknown")]
    unseen = [check for check in CHECKS if check not in applied and check.window is False]
    assert len(unseen) < 16, "it leaves out no more than that"

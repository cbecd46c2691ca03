"""Real pods: the gate as an init container of the built image blocks or releases the main container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from preflight.gate.verdict import Verdict, from_document
from tests.support import hostroot
from tests.support.kubernetes import pods
from tests.support.kubernetes.apiserver import NAMESPACE, TOKEN, ApiServer, ServedPod
from tests.support.kubernetes.pods import IMAGE, Pods
from tests.support.machines import Machine, hgx_h100
from tests.support.paths import ROOT

NAME = "hgx-h100"

#: Expectations for a pod on this made-up node; the rest of its machine is the real one.
CLUSTER = """
[class.training]
gpus = 8
hcas = 8
[class.training.ports]
compute = "mlx5_[0,3-6,9-11]"
[class.training.thresholds]
memlock_gib = 1
shm_gib = 1
[gate.init-container]
only = ["gpu.count", "rdma.device-count", "rdma.device-nodes", "container.*", "host.memlock", "host.shm"]
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Pods]:
    if reason := pods.why_not():
        pytest.skip(f"pods: {reason}")
    made = Pods()
    yield made
    made.close()


@pytest.fixture(scope="module")
def node(engine: Pods) -> Path:
    """The root of a node; parts of it are mounted into pods."""
    machine: Machine = hgx_h100(NAME)
    root = hostroot.write(machine, engine.folder / "node", python=False)
    (root / "bin" / "find").unlink()
    (root / "sys" / "fs" / "cgroup").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        os.mknod(root / "dev" / name, 0o20666, os.makedev(1, 3))
        (root / "dev" / name).chmod(0o666)
    (root / "cluster").mkdir()
    (root / "cluster" / "cluster.toml").write_text(CLUSTER)
    return root


class Played:
    """A pod that ran: the output of its init container, and whether its main container ran."""

    def __init__(
        self, engine: Pods, root: Path, name: str, lacks: str, server: ApiServer | None = None, **changes: Any
    ) -> None:  # fmt: skip
        report = engine.folder / f"report-{name}"
        report.mkdir()
        log = report / "termination-log"
        log.touch()
        mounts = {"/etc/preflight": root / "cluster", "/report": report, "/dev/termination-log": log,
                  "/sys": root / "sys", "/usr/local/bin": root / "bin"}  # fmt: skip
        if lacks != "/dev/infiniband":
            mounts["/dev/infiniband"] = root / "dev" / "infiniband"
        if lacks != "GPUs":
            mounts |= {f"/dev/{path.name}": path for path in (root / "dev").glob("nvidia*") if path.is_char_device()}
        if server:
            mounts["/var/run/secrets/kubernetes.io/serviceaccount"] = server.service_account()
        capabilities = {"drop": ["ALL"], "add": [] if lacks == "IPC_LOCK" else ["IPC_LOCK"]}
        volumes = [
            {"name": f"v{number}", "hostPath": {"path": str(path)}} for number, path in enumerate(mounts.values())
        ]
        volume_mounts = [{"name": f"v{number}", "mountPath": place} for number, place in enumerate(mounts)]
        if lacks != "/dev/shm":
            volumes.append({"name": "shm", "emptyDir": {}})
            volume_mounts.append({"name": "shm", "mountPath": "/dev/shm"})
        security = {"runAsUser": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": capabilities}  # fmt: skip
        first = {
            "name": "preflight", "image": IMAGE, "securityContext": security, "volumeMounts": volume_mounts,
            "args": ["gate", "init-container", "--cluster=/etc/preflight/cluster.toml", f"--node={NAME}",
                     "--termination-log=/dev/termination-log", "--report-dir=/report", "--state-dir=/report/state"],
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], **changes,
        }  # fmt: skip
        main = {
            "name": "main", "image": IMAGE, "command": ["sh", "-c", "echo main ran >/report/main.txt"],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [mount for mount in volume_mounts if mount["mountPath"] == "/report"],
        }  # fmt: skip
        spec = {"restartPolicy": "Never", "initContainers": [first], "containers": [main], "volumes": volumes}
        self.status, self.output = engine.play(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, "host" if server else "none"
        )
        self.released = self.status == 0 and engine.ended(f"{name}-main")
        self.main = (report / "main.txt").read_text() if (report / "main.txt").exists() else ""
        self.main_state = engine.state(f"{name}-main")
        self.exit_status = engine.run("inspect", "--format={{.State.ExitCode}}", f"{name}-preflight").stdout.decode()
        self.message = log.read_text()
        self.report = report
        engine.down(name)

    @property
    def verdict(self) -> Verdict:
        """The output of the init container on its volume."""
        return from_document(json.loads((self.report / "verdict.json").read_text()))


def test_the_image_is_built_and_small(engine: Pods) -> None:
    described = json.loads(engine.podman("inspect", "--type=image", IMAGE))[0]
    assert described["Config"]["User"] == "65534:65534"
    assert described["Config"]["Entrypoint"] == ["python3", "-I", "/opt/preflight"]
    ours = json.loads(engine.podman("history", "--format=json", IMAGE))
    assert sum(layer["size"] for layer in ours[: len(ours) - 1]) < 120_000_000


@pytest.mark.parametrize("base", [(), (f"--build-arg=BASE={pods.BASE}",)], ids=["no base", "a tag"])
def test_the_base_has_to_be_named_by_digest(engine: Pods, base: tuple[str, ...]) -> None:
    file = ROOT / "deploy/container/Containerfile"
    built = engine.run("build", "--network=none", "--isolation=oci", "--build-arg=TOOLS=", *base, f"--file={file}",
                       str(engine.folder / "build"))  # fmt: skip
    assert built.returncode
    assert not base or b"BASE has to be NAME@sha256:DIGEST, not localhost/base:1" in built.stderr + built.stdout


def test_the_image_runs_unprivileged_on_a_read_only_root(engine: Pods) -> None:
    hardened = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    ran = engine.run("run", *hardened, IMAGE, "check", "--only", "host.shm", "--json", "-")
    report = json.loads(ran.stdout)
    assert report["nodes"][0]["checks"].keys() == {"host.shm"}
    assert ran.returncode == report["exit_status"]
    ids = engine.podman(
        "run", *hardened, "--entrypoint=python3", IMAGE, "-c", "import os;print(os.getuid(),os.getgid())"
    )
    assert ids.split() == ["65534", "65534"]


def test_a_pod_that_has_everything_is_released(engine: Pods, node: Path) -> None:
    pod = Played(engine, node, "whole", "")
    assert pod.status == 0, pod.output + pod.message
    assert pod.released
    assert pod.main == "main ran\n"
    assert pod.verdict.status == "pass"
    assert (pod.report / "report.json").exists()
    assert "pass" in pod.message


@pytest.mark.parametrize(
    ("name", "lacks", "cause", "text"),
    [
        ("no-rdma", "/dev/infiniband", "rdma.device-nodes", "/dev/infiniband"),
        ("no-lock", "IPC_LOCK", "host.memlock", "IPC_LOCK"),
        ("no-shm", "/dev/shm", "host.shm", "/dev/shm"),
        ("no-gpu", "GPUs", "container.gpu-devices", "/dev/nvidia0"),
    ],
)
def test_a_pod_that_lacks_something_is_held_back_with_the_cause(
    engine: Pods, node: Path, name: str, lacks: str, cause: str, text: str
) -> None:
    pod = Played(engine, node, name, lacks)
    assert pod.status == 125, pod.output
    assert pod.main == ""
    assert pod.main_state == "created"
    assert pod.exit_status.strip() == "1", pod.message
    assert pod.verdict.causes == (cause,), pod.message
    assert cause in pod.message.splitlines()[0], "the most important words first"
    assert text in pod.message, pod.message
    assert len(pod.message.encode()) <= 4096
    html = (pod.report / "report.html").read_text()
    assert cause in html, "the report outlives the container"


DEVICE_PLUGIN = """
[class.training]
gpus = 8
hcas = 8
[class.training.ports]
compute = "mlx5_[0,3-6,9-11]"
resources = ["rdma/hca_shared_devices_a"]
[gate.init-container]
only = ["gpu.count", "rdma.device-count", "rdma.device-nodes", "container.device-plugin"]
"""


@pytest.mark.parametrize("fault", ["", "not requested", "forbidden"])
def test_a_pod_reads_its_allocation_from_the_api(engine: Pods, node: Path, tmp_path: Path, fault: str) -> None:
    """NT-CTR-2, with a simulated API server (tests/support/kubernetes/apiserver.py): its answers are made by hand."""
    (node / "cluster" / "plugin.toml").write_text(DEVICE_PLUGIN)
    document = json.loads((ROOT / "tests/data/kubernetes/pod.json").read_text())
    if fault == "not requested":
        for container in (*document["spec"]["initContainers"], *document["spec"]["containers"]):
            container["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    refused = (403, "Forbidden", 'pods "trainer-0" is forbidden') if fault == "forbidden" else None
    with ApiServer(tmp_path, [ServedPod(document, get=refused)]) as server:
        place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port),
                 "POD_NAME": "trainer-0"}  # fmt: skip
        args = ["gate", "init-container", "--cluster=/etc/preflight/plugin.toml", f"--node={NAME}",
                "--termination-log=/dev/termination-log", "--report-dir=/report"]  # fmt: skip
        played = Played(engine, node, f"api-{fault.replace(' ', '-') or 'whole'}", "", server, args=args,
                        env=[{"name": name, "value": value} for name, value in place.items()])  # fmt: skip
    assert played.verdict.status == {"": "pass", "forbidden": "unknown"}.get(fault, "fail"), played.message
    assert (played.main == "main ran\n") == (not fault)
    if fault == "forbidden":
        assert played.exit_status.strip() == "3"
        assert "NOT JUDGED" in played.message.splitlines()[0], "what could not be judged is not started"
        assert "HTTP 403" in played.message
        assert "allow the pod's service account to `get` its pod" in played.message
    elif fault:
        assert "container.device-plugin" in played.message.splitlines()[0]
        assert "rdma/hca_shared_devices_a" in played.message
    everything = b"".join(path.read_bytes() for path in played.report.rglob("*") if path.is_file())
    assert TOKEN.encode() not in everything


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_running_pod_is_collected_over_kubectl(
    engine: Pods, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real kubectl, a simulated API server, and a real container behind its `exec`."""
    wait = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"
    main = {"name": "main", "image": IMAGE, "command": ["python3", "-c", wait]}
    assert engine.play({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer-0"},
                        "spec": {"restartPolicy": "Never", "containers": [main]}})[0] == 0  # fmt: skip
    document = json.loads((ROOT / "tests/data/kubernetes/pod.json").read_text())
    inside = ServedPod(
        document, {**os.environ, **engine.environment}, ("podman", "exec", "--interactive", "trainer-0-main")
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    with ApiServer(tmp_path, [inside]) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
        ran = subprocess.run(
            [sys.executable, "-m", "preflight", "check", "--via", "kubectl", "--hosts", "trainer-0", "-n", NAMESPACE,
             "-c", "main", "--save", str(tmp_path / "kept"), "--json", "-", "--only", "host.*"],
            capture_output=True, text=True, timeout=90, check=False, cwd=ROOT,
        )  # fmt: skip
        assert server.wait_for_processes(), "the collector has ended"
    engine.down("trainer-0")
    report = json.loads(ran.stdout)
    assert report["run"]["via"] == "kubectl", ran.stderr
    assert not report["nodes"][0].get("no_answer"), report["nodes"]
    saved = json.loads((tmp_path / "kept" / "trainer-0.json").read_text())
    assert (saved["node"], saved["collector"]["where"], saved["collector"]["uid"]) == ("trainer-0", "container", 65534)
    assert saved["records"]["file:/proc/sys/kernel/hostname"]["out"].strip() == "trainer-0"


def test_an_invalid_cluster_file_starts_nothing_and_is_reported(engine: Pods, node: Path) -> None:
    (node / "cluster" / "wrong.toml").write_text("[class.training]\ngpu = 8\n")
    args = ["gate", "init-container", "--cluster=/etc/preflight/wrong.toml", "--termination-log=/dev/termination-log"]
    pod = Played(engine, node, "mistaken", "", args=args)
    assert (pod.status, pod.main) == (125, "")
    assert pod.exit_status.strip() == "2", pod.message
    assert "wrong.toml:2" in pod.message


def test_the_job_leaves_evidence_that_judge_takes_together(engine: Pods, tmp_path: Path) -> None:
    """The arguments, user and root of deploy/kubernetes/job, on two named nodes; `preflight judge` combines them."""
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/job/job.yaml").read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    shared = tmp_path / "evidence"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.toml").write_text(CLUSTER)
    for name in ("gpu001", "gpu002"):
        args = [word.replace("$(NODE_NAME)", name) for word in container["args"]]
        engine.podman("run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", f"--hostname=pod-{name}",
                      "--security-opt=no-new-privileges", f"--user={container['securityContext']['runAsUser']}",
                      f"--volume={shared}:/shared/evidence", f"--volume={tmp_path}/cluster:/etc/preflight:ro",
                      IMAGE, *args)  # fmt: skip
    ran = subprocess.run([sys.executable, "-m", "preflight", "judge", str(shared), "--json", "-"], cwd=ROOT,
                         capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert [node["name"] for node in json.loads(ran.stdout)["nodes"]] == ["gpu001", "gpu002"]


def test_the_shell_of_the_daemonset_survives_a_bad_node(tmp_path: Path) -> None:
    """Its loop continues after any exit status of the gate, and ends at once on SIGTERM."""
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/daemonset/daemonset.yaml").read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    for tool, body in (("python3", 'echo "$@" >>calls; exit 1'), ("sleep", "exec /bin/sleep 0.05")):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / tool).chmod(0o755)
    script = container["command"][2]
    process = subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    try:
        calls = tmp_path / "calls"
        while not calls.exists() or len(calls.read_text().splitlines()) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()

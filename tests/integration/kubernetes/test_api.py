"""Collection of a pod's own objects, from a simulated API server (tests/support/kubernetes) over real HTTPS."""

from __future__ import annotations

import copy
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.collector import kubernetes_api
from preflight.collector.records import Deadline
from preflight.evidence.document import from_document
from preflight.facts.pod import is_device, is_gpu, is_rdma, parse_pod, variable_of
from preflight.judge import judge
from preflight.probes.probe import Probe, plan
from preflight.transport.local import node
from tests.integration.container.test_container import BWRAP
from tests.support.kubernetes.apiserver import NAMESPACE, TOKEN, ApiServer, ServedPod
from tests.support.paths import ROOT
from tests.support.stopwatch import Stopwatch

OBJECT: Mapping[str, Any] = json.loads((ROOT / "tests/data/kubernetes/pod.json").read_text())
FORBIDDEN = (
    'pods "trainer-0" is forbidden: User "system:serviceaccount:training:preflight" cannot get resource "pods" in API '
    'group "" in the namespace "training"'
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path, [ServedPod(OBJECT)]) as server:
        yield server


def variables(server: ApiServer, **more: str) -> dict[str, str]:
    """Return the variables that a kubelet and the downward API set in a container."""
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port),
            "POD_NAME": "trainer-0", **more}  # fmt: skip


def collect(server: ApiServer, folder: Path | None = None, limit_s: float = 5.0, **more: str) -> dict[str, Any]:
    folder = folder or server.service_account()
    watch = Stopwatch()
    record = kubernetes_api.answer("pod", limit_s, Deadline(30), str(folder), variables(server, **more))
    assert watch.seconds < limit_s + 5
    assert TOKEN not in json.dumps(record)
    assert "hunter2" not in json.dumps(record)
    return record


def test_the_pod_is_recorded_and_trimmed(server: ApiServer) -> None:
    record = collect(server)
    assert record["status"] == "ok"
    assert set(record["value"]) == {"namespace", "name", "node", "host_network", "containers", "annotations"}
    assert set(record["value"]["annotations"]) == {"k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"}
    assert record["value"]["containers"][0] == {
        "name": "preflight", "init": True, "privileged": False, "claims": [],
        "image": "registry.example/preflight:1", "restarts": None, "ended": "",
        "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"},
        "requests": {"cpu": "1", "memory": "512Mi", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"},
    }  # fmt: skip
    parsed = parse_pod(record["value"])
    assert parsed.devices == {
        "nvidia.com/gpu": ("preflight", "main"),
        "rdma/hca_shared_devices_a": ("preflight", "main"),
    }
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/trainer-0")


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ((403, "Forbidden", FORBIDDEN), "denied", 'HTTP 403: pods "trainer-0" is forbidden'),
        ((500, "InternalError", "etcdserver: request timed out"), "error", "HTTP 500: etcdserver: request timed out"),
        ((503, "ServiceUnavailable", f"the token {TOKEN} is none"), "error", "the token [redacted] is none"),
    ],
)
def test_what_the_server_refuses(server: ApiServer, fault: tuple[int, str, str], status: str, reason: str) -> None:
    server.pods["trainer-0"].get = fault
    record = collect(server)
    assert (record["status"], reason in record["why"]) == (status, True), record


def test_an_expired_token(server: ApiServer) -> None:
    record = collect(server, server.service_account(token="of-last-week"))
    assert (record["status"], "HTTP 401: the token has expired" in record["why"]) == ("denied", True)


def test_a_pod_by_another_name(server: ApiServer) -> None:
    record = collect(server, POD_NAME="gpu001")
    assert "HTTP 404: no pod gpu001 in the namespace training: set POD_NAME" in record["why"]


@pytest.mark.parametrize("name", ["../../../secrets/x", "a\r\nHost: evil", "A", "", "x" * 300])
def test_an_invalid_name_is_not_requested(server: ApiServer, name: str) -> None:
    record = kubernetes_api.answer(
        "pod", 5, Deadline(30), str(server.service_account()), variables(server, POD_NAMESPACE=name)
    )
    assert record["status"] in ("error", "ok"), "an empty one is as good as none"
    assert record["status"] == "error" or not name
    assert len(server.requests) == (not name)


def test_a_malformed_token_is_neither_sent_nor_recorded(server: ApiServer) -> None:
    record = collect(server, server.service_account(token="abc\r\nX-Evil: 1"))
    assert record == {"status": "error", "why": "the token of the service account is malformed"}
    assert not server.requests


def test_a_server_with_another_certificate(server: ApiServer, tmp_path: Path) -> None:
    folder = server.service_account()
    other = tmp_path / "other"
    other.mkdir()
    with ApiServer(other, []) as stranger:
        (folder / "ca.crt").write_bytes(stranger.certificate.read_bytes())
    record = collect(server, folder)
    assert (record["status"], "no trusted connection" in record["why"]) == ("error", True), record
    assert not server.requests, "the token was not sent"


def test_a_server_that_is_not_there(server: ApiServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    record = collect(server, KUBERNETES_SERVICE_PORT=port)
    assert (record["status"], "cannot be reached" in record["why"]) == ("error", True), record


def test_a_server_that_is_silent(server: ApiServer) -> None:
    server.delay_s = 30
    record = collect(server, limit_s=0.5)
    assert (record["status"], "did not answer within 0.5 s" in record["why"]) == ("timeout", True), record


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "error", "not an object of Kubernetes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "error", "HTTP 200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{", "error", "not an object"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://192.0.2.1/\r\nContent-Length: 2\r\n\r\n{}", "error", "HTTP 302"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "error", "not an object"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 4_100_000, "error", "longer than"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "error", "not HTTP"),
        (b"", "error", ""),
    ],
)
def test_answers_that_are_none(server: ApiServer, answer: bytes, status: str, reason: str) -> None:
    """A peer with the right certificate that misbehaves."""
    context = server._context
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with context.wrap_socket(connection, server_side=True) as peer:
                peer.recv(65536)
                try:
                    peer.sendall(answer)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        record = collect(server, KUBERNETES_SERVICE_PORT=str(listening.getsockname()[1]))
        thread.join(5)
    assert (record["status"], reason in record["why"]) == (status, True), record


def test_a_server_that_drips(server: ApiServer) -> None:
    """Each byte comes in time, but the complete answer does not."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            try:
                with server._context.wrap_socket(connection, server_side=True) as peer:
                    peer.recv(65536)
                    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        peer.sendall(b" ")
                        time.sleep(0.05)
            except (OSError, ssl.SSLError):
                return

        threading.Thread(target=serve, daemon=True).start()
        record = collect(server, limit_s=0.6, KUBERNETES_SERVICE_PORT=str(listening.getsockname()[1]))
    assert record["status"] == "timeout"


def test_no_request_outside_a_pod_or_without_an_account(server: ApiServer, tmp_path: Path) -> None:
    nowhere = kubernetes_api.answer("pod", 5, Deadline(30), str(server.service_account()), {})
    assert nowhere == {"status": "missing", "why": "not in a Kubernetes pod"}
    bare = kubernetes_api.answer("pod", 5, Deadline(30), str(tmp_path / "none"), variables(server))
    assert bare == {"status": "missing", "why": "no service account is mounted in this pod"}
    secrets = kubernetes_api.answer("secrets", 5, Deadline(30), str(server.service_account()), variables(server))
    assert secrets["status"] == "error"
    assert not server.requests


@pytest.mark.parametrize("damage", ["spec", "containers", "resources", "limits", "annotations"])
def test_an_object_of_another_shape_is_trimmed_all_the_same(damage: str) -> None:
    body = copy.deepcopy(dict(OBJECT))
    spec = body["spec"]
    main = spec["containers"][0]
    holder = {"spec": body, "containers": spec, "resources": main, "limits": main["resources"],
              "annotations": body["metadata"]}[damage]  # fmt: skip
    for value in (None, "text", 7, ["x"], {"x": ["y"]}):
        holder[damage] = value
        assert isinstance(kubernetes_api.trimmed(body), dict)


def test_names_of_resources() -> None:
    rdma = ("rdma/hca_shared_devices_a", "rdma/ib", "rdma/vhca", "nvidia.com/mlnxnics", "mellanox.com/mlx5_vf",
            "vpc.amazonaws.com/efa", "networking.gke.io.networks/rdma-0", "nvidia.com/sriov-rdma-vf")  # fmt: skip
    assert all(is_device(name) and is_rdma(name) for name in rdma)
    for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "nvidia.com/hostdev", "intel.com/fiber"):
        assert is_device(name)
        assert not is_rdma(name), name
    assert is_gpu("nvidia.com/mig-1g.10gb")
    for name in ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "attachable-volumes.kubernetes.io/x"):
        assert not is_device(name)
    assert variable_of("mellanox.com/mlx5_vf") == "MELLANOX_COM_MLX5_VF"


@pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed, or may not make namespaces here")
def test_a_collector_in_a_container_records_what_its_pod_was_given(server: ApiServer, tmp_path: Path) -> None:
    """End to end: a mounted service account, the shipped collector, the judge; and no token in the evidence."""
    python = tmp_path / "python"
    account = server.service_account()
    inside = [BWRAP or "", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
              "--tmpfs", "/run", "--ro-bind", str(account), "/run/secrets/kubernetes.io/serviceaccount"]  # fmt: skip
    for name, value in variables(server).items():
        inside += ["--setenv", name, value]
    python.write_text("#!/bin/sh\nexec " + " ".join(inside) + f' {sys.executable} "$@"\n')
    python.chmod(0o755)
    probes = [Probe("kube", "pod", "", 5), Probe("env", "process", ""), Probe("dir", "/dev/infiniband", ""),
              Probe("dir", "/sys/class/infiniband", ""), Probe("dir", "/sys/bus/pci/devices", ""),
              Probe("file", "/sys/bus/pci/devices/*/{uevent,numa_node,local_cpulist}", "")]  # fmt: skip
    document = node.collect(plan(probes, node="", deadline_s=20), str(python))
    assert TOKEN not in json.dumps(document)
    evidence = from_document(document, "pod")
    assert evidence.collector["where"] == "container"
    assert evidence.record("kube:pod").ok, evidence.record("kube:pod")
    checks = [check for check in registry().checks if check.id == "container.device-plugin"]
    ((status, message),) = [(f["status"], f["message"]) for f in judge([evidence], checks)["findings"]]
    assert (status, message) == (
        "fail", "rdma/hca_shared_devices_a is requested by preflight, main, but this container has no /dev/infiniband",
    )  # fmt: skip


def test_old_pythons_read_it() -> None:
    """The collector supports 3.6; this module imports nothing at its top that would slow a node outside a pod."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import sys;sys.path.insert(0,sys.argv[1]);import collector.kubernetes_api;"
         "print([n for n in ('ssl','http.client','socket','email') if n in sys.modules])",
         str(ROOT / "preflight")], capture_output=True, text=True, check=True, timeout=30, env=dict(os.environ),
    )  # fmt: skip
    assert ran.stdout.strip() == "[]", ran.stdout

"""`check --via kubectl`: the real kubectl, a simulated API server (tests/support/kubernetes) and real processes."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from preflight.probes.probe import Probe, plan
from preflight.transport.errors import TransportError
from preflight.transport.kubernetes import error_messages
from preflight.transport.kubernetes.kubectl import Kubectl, KubectlTransport, find
from tests.integration.container.test_container import BWRAP
from tests.support.kubernetes.apiserver import NAMESPACE, ApiServer, ServedPod
from tests.support.local_transport import EVIDENCE
from tests.support.paths import ROOT
from tests.support.stopwatch import Stopwatch

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

OBJECT: Mapping[str, Any] = json.loads((ROOT / "tests/data/kubernetes/pod.json").read_text())
NODE_S = 40.0
FORBIDDEN = 'pods "trainer-0" is forbidden: User "person" cannot {} resource "{}" in API group "" in the namespace "{}"'


def document(name: str, phase: str = "Running", **labels: str) -> Mapping[str, Any]:
    made = copy.deepcopy(dict(OBJECT))
    made["metadata"].update(name=name, labels={"job-name": "trainer", **labels})
    made["status"]["phase"] = phase
    return made


def pod(name: str = "trainer-0", **options: Any) -> ServedPod:
    options.setdefault("environment", {"PATH": os.environ["PATH"]})
    phase = options.pop("phase", "Running")
    return ServedPod(document(name, phase), **options)


def make_plan(*argv: str, deadline_s: float = 8.0, **options: Any) -> dict[str, Any]:
    probe = Probe("cmd", " ".join(argv or ("echo", "ok")), "a test", deadline_s / 2)
    return plan((probe,), node="gpu001", deadline_s=deadline_s, **options)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a kubeconfig, and kubectl's cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer(home, [pod()]) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
        yield server
        assert server.wait_for_processes(), "what was started behind exec has ended with its connection"


def collect(
    name: str = "trainer-0", plan: Mapping[str, Any] | None = None, kubectl: Kubectl | None = None,
    node_s: float = NODE_S,
) -> dict[str, Any]:  # fmt: skip
    """Collect, and compare the outcome with the promises of every transport."""
    transport = KubectlTransport(kubectl or Kubectl())
    try:
        watch = Stopwatch()
        answer = transport.collect(name, plan or make_plan(), time.monotonic() + node_s)
        assert watch.seconds < node_s + 5
    finally:
        transport.close()
    jsonschema.validate(answer, EVIDENCE)
    return answer


def silence(answer: Mapping[str, Any]) -> tuple[str, str]:
    return answer["no_answer"]["phase"], answer["no_answer"]["reason"]


# --- answers ---------------------------------------------------------------------------------------


def test_an_answer_over_web_socket_or_what_this_kubectl_speaks(server: ApiServer) -> None:
    answer = collect(kubectl=Kubectl(NAMESPACE, "main"))
    assert answer["records"]["cmd:echo ok"]["out"] == "ok\n"
    exec_request = next(request for request in server.requests if request.path.endswith("/exec"))
    assert exec_request.query["container"] == ["main"]
    assert "tty" not in exec_request.query


def test_an_answer_over_spdy(server: ApiServer) -> None:
    server.web_socket = False
    assert "cmd:echo ok" in collect()["records"]
    assert server.spoken == {"spdy/3.1"}


@pytest.mark.parametrize("web_socket", [True, False])
def test_a_megabyte_comes_back_unchanged(server: ApiServer, web_socket: bool) -> None:
    server.web_socket = web_socket
    record = collect(plan=make_plan("seq", "1", "150000"))["records"]["cmd:seq 1 150000"]
    assert (record["status"], len(record["out"])) == ("ok", 938895)


def test_a_container_without_a_shell(server: ApiServer, home: Path) -> None:
    bare = home / "bare"
    bare.mkdir()
    (bare / "python3").symlink_to(sys.executable)
    server.pods["trainer-0"].environment = {"PATH": str(bare)}
    answer = collect(plan=make_plan(sys.executable, "--version"))
    assert next(iter(answer["records"].values()))["status"] == "ok"


def test_output_of_a_container_before_the_answer_is_harmless(server: ApiServer, home: Path) -> None:
    noise = 'echo Welcome; echo \'Error from server (NotFound): pods "x" not found\' >&2; exec "$0" "$@"'
    server.pods["trainer-0"].prefix = ("/bin/sh", "-c", noise)
    assert "cmd:echo ok" in collect()["records"]


def test_an_overloaded_api_server_is_retried(server: ApiServer) -> None:
    server.pods["trainer-0"].busy = 2
    assert "cmd:echo ok" in collect()["records"]


# --- no answer, by its true name -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "phase", "text"),
    [
        ({"get": (403, "Forbidden", FORBIDDEN.format("get", "pods", NAMESPACE))}, "authenticate",
         "RBAC does not let you get pods"),
        ({"refuse": (403, "Forbidden", FORBIDDEN.format("create", "pods/exec", NAMESPACE))}, "authenticate",
         "RBAC does not let you create pods/exec"),
        ({"phase": "Succeeded"}, "start", "the pod has ended (Succeeded)"),
        ({"refuse": (400, "BadRequest", "pod trainer-0 does not have a host assigned")}, "start",
         "the pod is not scheduled yet"),
        ({"refuse": (404, None, 'container not found ("main")')}, "start",
         "the container main does not run"),
        ({"refuse": (500, "", "error dialing backend: dial tcp 192.0.2.10:10250: i/o timeout")}, "connect",
         "the API server cannot reach the node's kubelet: dial tcp 192.0.2.10:10250"),
        ({"failure": "Internal error occurred: OCI runtime exec failed: exec failed: unable to start container "
          'process: exec: "sh": executable file not found in $PATH: unknown'}, "start", "neither sh nor python3"),
        ({"failure": "Internal error occurred: the shim has died"}, "connect", "the shim has died"),
        ({"prefix": ("/bin/sh", "-c", "echo no licence; exit 7")}, "start", "ended with status 7 before it started"),
        ({"prefix": ("/bin/sh", "-c", "kill -9 $$")}, "start", "by signal 9 (out of memory?) before it started"),
    ],
)  # fmt: skip
def test_faults_by_their_true_names(server: ApiServer, options: dict[str, Any], phase: str, text: str) -> None:
    server.pods["trainer-0"] = pod(**options)
    found, reason = silence(collect())
    assert (found, text in reason) == (phase, True), reason
    assert "trainer-0" not in reason, "reasons that name the pod cannot be folded"


def test_no_such_pod_and_no_such_container(server: ApiServer) -> None:
    assert silence(collect("trainer-9", kubectl=Kubectl(NAMESPACE))) == (
        "resolve", "no such pod in the namespace training: see `kubectl get pods`, or specify its namespace with -n",
    )  # fmt: skip
    phase, reason = silence(collect(kubectl=Kubectl(container="sidecar")))
    assert (phase, "the pod has no container sidecar" in reason) == ("start", True), reason


def test_an_expired_token(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(token="expired")))
    phase, reason = silence(collect())
    assert (phase, "it may have expired, log in again" in reason) == ("authenticate", True), reason


def test_an_api_server_that_is_not_there_or_another(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with ApiServer(home, [pod()]) as server:
        other = tmp_path / "other"
        other.mkdir()
        with ApiServer(other, []) as stranger:
            monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(ca=stranger.certificate)))
            phase, reason = silence(collect())
            assert (phase, "not the one of your kubeconfig" in reason) == ("connect", True), reason
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(server=f"https://127.0.0.1:{stranger.port}")))
        phase, reason = silence(collect())
        assert (phase, "refuses the connection" in reason) == ("connect", True), reason


@pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed, or may not make namespaces here")
def test_a_container_without_python(server: ApiServer, home: Path) -> None:
    hidden = [path for path in ("/usr/bin/python3", "/usr/local/bin/python3", "/usr/libexec/platform-python",
                                "/opt/conda/bin/python3") if Path(path).exists()]  # fmt: skip
    binds = [word for path in hidden for word in ("--ro-bind", "/dev/null", os.path.realpath(path))]
    (home / "bin").mkdir()
    (home / "bin" / "sh").symlink_to("/bin/sh")
    server.pods["trainer-0"].prefix = (BWRAP or "", "--ro-bind", "/", "/", *binds)
    server.pods["trainer-0"].environment = {"PATH": str(home / "bin")}
    phase, reason = silence(collect())
    assert (phase, "no python3 (3.6 or newer)" in reason) == ("start", True), reason


def test_a_connection_that_is_cut(server: ApiServer) -> None:
    server.pods["trainer-0"].cut_after = 400
    phase, reason = silence(collect(plan=make_plan("seq", "1", "20000")))
    assert (phase, "the connection was lost" in reason) == ("read", True), reason


def test_silence_ends_at_the_deadline(server: ApiServer) -> None:
    server.pods["trainer-0"].silent = True
    phase, reason = silence(collect(node_s=2))
    assert (phase, "no answer within 2 s" in reason) == ("connect", True), reason


def test_a_pod_that_hangs_later(server: ApiServer) -> None:
    server.pods["trainer-0"].prefix = (
        sys.executable,
        "-c",
        "import time;print('PREFLIGHT-READY 1',flush=True);time.sleep(60)",
    )
    server.pods["trainer-0"].environment = {}
    transport = KubectlTransport()
    phase, reason = silence(transport.collect("trainer-0", make_plan(), time.monotonic() + 6))
    transport.close()
    assert (phase, "no answer within 6 s" in reason) == ("collect", True), reason
    for process in server._processes:  # one that does not read its input is left to the kubelet
        process.kill()


def test_closing_ends_what_runs(server: ApiServer) -> None:
    transport = KubectlTransport()
    answers: list[dict[str, Any]] = []
    plan = make_plan("sleep", "60", deadline_s=60)
    worker = threading.Thread(
        target=lambda: answers.append(transport.collect("trainer-0", plan, time.monotonic() + 60))
    )
    worker.start()
    until = time.monotonic() + 60
    while not server.running():
        assert time.monotonic() < until
        time.sleep(0.01)
    transport.close()
    worker.join(30)
    assert silence(answers[0]) == ("collect", "interrupted")


# --- before any pod is touched ---------------------------------------------------------------------


def test_a_configuration_that_is_of_no_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match="no usable configuration"):
        KubectlTransport()
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(TransportError, match="no `kubectl` in PATH"):
        KubectlTransport()


def test_an_unknown_context(server: ApiServer) -> None:
    path = Path(os.environ["KUBECONFIG"])
    path.write_text(json.dumps({**json.loads(path.read_text()), "current-context": "elsewhere"}))
    with pytest.raises(TransportError, match="no usable configuration"):
        KubectlTransport()


def test_pods_by_their_labels(server: ApiServer) -> None:
    others = [
        pod("trainer-1"),
        pod("trainer-2", phase="Failed"),
        ServedPod(document("other-0", **{"job-name": "other"})),
    ]
    server.pods.update({one.name: one for one in others})
    assert find("job-name=trainer", Kubectl()) == (("trainer-0", "trainer-1"), 1)
    with pytest.raises(TransportError, match="no pod in the namespace training has these labels"):
        find("job-name=none", Kubectl(NAMESPACE))
    server.token = "another"
    with pytest.raises(TransportError, match="it may have expired, log in again"):
        find("job-name=trainer", Kubectl())


# --- the command -----------------------------------------------------------------------------------


def check(*words: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", "check", "--via", "kubectl", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, cwd=ROOT)


def test_many_pods_are_collected_and_judged(server: ApiServer, tmp_path: Path) -> None:
    server.pods.update({f"trainer-{number}": pod(f"trainer-{number}") for number in range(1, 4)})
    server.pods["trainer-3"].refuse = (403, "Forbidden", FORBIDDEN.format("create", "pods/exec", NAMESPACE))
    server.pods["trainer-4"] = pod("trainer-4", phase="Succeeded")
    report_file = tmp_path / "report.json"
    ran = check("--pods", "job-name=trainer", "-c", "main", "--only", "host.*", "--json", str(report_file))
    assert "warning: 1 more pods with these labels have ended and are left out" in ran.stderr
    report = json.loads(report_file.read_text())
    schema = json.loads((ROOT / "preflight/schemas/report-1.json").read_text())
    jsonschema.validate(report, schema)
    assert report["run"]["via"] == "kubectl"
    phases = {node["name"]: (node.get("no_answer") or {}).get("phase", "") for node in report["nodes"]}
    assert phases == {"trainer-0": "", "trainer-1": "", "trainer-2": "", "trainer-3": "authenticate"}
    assert ran.returncode in (1, 3), "a pod without an answer is no pass"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pods", "a=b", "--hosts", "trainer-0"), "not both"),
        (("--hosts", "--all"), "is not a host name"),
        (("-n", "training"), "select pods"),
    ],
)
def test_usage_errors_come_before_any_pod_is_touched(server: ApiServer, words: tuple[str, ...], message: str) -> None:
    ran = check(*words)
    assert (ran.returncode, message in ran.stderr) == (2, True), ran.stderr
    assert not server.spoken


def test_pods_only_with_kubectl(server: ApiServer) -> None:
    for words in (("--pods", "a=b"), ("--hosts", "x", "-n", "y"), ("-c", "main")):
        ran = subprocess.run([sys.executable, "-m", "preflight", "check", *words], capture_output=True, text=True,
                             timeout=60, check=False, cwd=ROOT)  # fmt: skip
        assert ran.returncode == 2
        assert "--via kubectl" in ran.stderr


@pytest.mark.parametrize(
    ("stderr", "phase", "reason"),
    [
        (b"Unable to connect to the server: dial tcp: lookup api.example on 192.0.2.1:53: no such host\n", "connect",
         "does not resolve"),
        (b"Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout\n", "connect", "i/o timeout"),
        (b"Unable to connect to the server: getting credentials: exec: executable aws not found\n", "authenticate",
         "credential plug-in of your kubeconfig failed: exec: executable aws not found"),
        (b'error: unable to upgrade connection: container not found ("main")\n', "start", "does not run"),
        (b"error: unable to upgrade connection: <html>proxy</html>\n", "connect", "perhaps due to a proxy"),
        (b"error: Internal error occurred: error executing command in container: failed to exec in container: "
         b'failed to start exec "1": OCI runtime exec failed: executable file `python3` not found in $PATH\n', "start",
         "the container has no python3"),
        (b"", "connect", "without a message"),
        (b"\x1b[31m\xff\n", "connect", "\\x1b[31m\\xff"),
    ],
)  # fmt: skip
def test_words_of_kubectl(stderr: bytes, phase: str, reason: str) -> None:
    answer = error_messages.meaning(stderr, "training").answer
    assert (answer.phase, reason in answer.reason) == (phase, True), answer.reason


def test_a_kubectl_that_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any kubectl in PATH: its output is not taken for pods, and it has a deadline."""
    tool = home / "kubectl"
    tool.write_text("#!/bin/sh\nprintf -- '--all\\tRunning\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    with pytest.raises(TransportError, match="is not a pod name"):
        find("a=b", Kubectl())

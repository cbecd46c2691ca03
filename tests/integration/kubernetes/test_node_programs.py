"""The two programs of deploy/kubernetes: one serves a node's metrics, one taints the nodes that preflight fails.

The API server is played: it has nodes, pages and resource versions as documented, but no scheduler.
"""

from __future__ import annotations

import json
import os
import runpy
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.kubernetes.apiserver_http import certificate
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
METRICS = runpy.run_path(str(FOLDER / "metrics" / "serve_metrics.py"))
TAINT = runpy.run_path(str(FOLDER / "taint" / "taint_nodes.py"))
NOW = 1_800_000_000


# --- metrics ---------------------------------------------------------------------------------------


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    file = tmp_path / "preflight.prom"
    server = METRICS["Server"](str(file), 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield file, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", error.read()


def test_metrics_are_served_as_they_are(endpoint: tuple[Path, str]) -> None:
    file, url = endpoint
    assert get(f"{url}/metrics")[::2] == (503, f"{file}: No such file or directory\n".encode())
    file.write_text("# TYPE preflight_x gauge\npreflight_x 1\n")
    assert get(f"{url}/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", file.read_bytes())
    assert [get(url + path)[0] for path in ("/", "/metrics/../preflight.prom", "/etc/passwd")] == [404] * 3


@pytest.mark.parametrize(("place", "why"), [
    ("empty", "empty"), ("long", "too long"), ("link", "Too many levels of symbolic links"), ("pipe", "not a file"),
    ("folder", "not a file"),
])  # fmt: skip
def test_other_files_are_not_served(endpoint: tuple[Path, str], place: str, why: str) -> None:
    file, url = endpoint
    if place == "folder":
        file.mkdir()
    elif place == "link":
        file.symlink_to("/etc/passwd")
    elif place == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(b"x" * ((4 << 20) + 1 if place == "long" else 0))
    status, _, body = get(f"{url}/metrics")
    assert (status, why in body.decode()) == (503, True), body


# --- taint -----------------------------------------------------------------------------------------


def at(second: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def node(name: str, status: str, message: str = "", *, age_s: float = 60, now: float = NOW, cordoned: bool = False,
         taints: tuple[str, ...] = ()) -> dict[str, Any]:  # fmt: skip
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": at(now)}]
    if status:
        conditions.append({"type": "PreflightFailed", "status": status, "message": message,
                           "lastHeartbeatTime": at(now - age_s)})  # fmt: skip
    every = [{"key": key, "effect": "NoSchedule", "value": "x"} for key in taints]
    return {"metadata": {"name": name, "resourceVersion": "1"}, "status": {"conditions": conditions},
            "spec": {"unschedulable": cordoned, **({"taints": every} if every else {})}}  # fmt: skip


OURS, OTHER = "gpu-preflight/failed", "site/maintenance"
GPU = "[isolate] gpu.count: found 7, expected 8"


@pytest.mark.parametrize(("item", "expected"), [
    (node("a", "True", GPU), ("add", "gpu.count")),
    (node("a", "True", "no check"), ("add", "no")),
    (node("a", "True", "$(reboot)"), ("add", "failed")),
    (node("a", "True", "[fix-job] host.memlock: 8 MiB"), None),
    (node("a", "True", GPU, age_s=901), None),
    (node("a", "True", GPU, age_s=-301), None),
    (node("a", "True", GPU, cordoned=True), None),
    (node("a", "True", GPU, taints=(OURS,)), None),
    (node("a", "True", GPU, taints=(OTHER,)), ("add", "gpu.count")),
    (node("a", "False", taints=(OURS,)), ("remove", "")),
    (node("a", "False", taints=(OURS,), cordoned=True), ("remove", "")),
    (node("a", "False", taints=(OURS,), age_s=901), None),
    (node("a", "False", taints=(OTHER,)), None),
    (node("a", "Unknown", taints=(OURS,)), None),
    (node("a", "Unknown", GPU), None),
    (node("a", "", taints=(OURS,)), None),
    (node("a", ""), None),
])  # fmt: skip
def test_a_taint_follows_a_known_verdict(item: dict[str, Any], expected: tuple[str, str] | None) -> None:
    changes = [(what, check) for what, _, check in TAINT["plan"]([TAINT["_slim"](item)], NOW, 0.1, 10)]
    assert changes == ([expected] if expected else [])


@pytest.mark.parametrize(("sick", "tainted", "healthy", "most", "added"), [
    (3, 0, 0, 10, 1), (3, 1, 20, 10, 1), (20, 0, 180, 10, 10), (5, 0, 95, 2, 2), (4, 4, 32, 10, 0), (2, 0, 8, 0, 0),
])  # fmt: skip
def test_a_fault_of_all_nodes_taints_few(sick: int, tainted: int, healthy: int, most: int, added: int) -> None:
    nodes = [node(f"s{n}", "True", GPU) for n in range(sick)] + [node(f"h{n}", "False") for n in range(healthy)]
    nodes += [node(f"t{n}", "True", GPU, taints=(OURS,)) for n in range(tainted)]
    nodes += [node(f"cpu{n}", "Unknown", "no verdict") for n in range(500)]
    done = [what for what, *_ in TAINT["plan"](map(TAINT["_slim"], nodes), NOW, 0.1, most)]
    assert (done.count("add"), done.count("hold")) == (added, sick - added)


class NodesApi(BaseHTTPRequestHandler):
    """List and patch of nodes; ``server.nodes`` holds them."""

    server: Any

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        first, size = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        items, more = self.server.nodes[first : first + size], first + size < len(self.server.nodes)
        self._answer(200, {"items": items, "metadata": {"continue": str(first + size) if more else ""}})

    def do_PATCH(self) -> None:
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        (patched,) = (item for item in self.server.nodes if self.path == f"/api/v1/nodes/{item['metadata']['name']}")
        if patch["metadata"].pop("resourceVersion") != patched["metadata"]["resourceVersion"] or self.server.busy:
            self._answer(409, {"kind": "Status"})
            return
        assert {key: list(value) for key, value in patch.items()} == {"metadata": [], "spec": ["taints"]}
        patched["spec"] |= patch["spec"]
        self._answer(200, patched)

    def _answer(self, status: int, body: Any) -> None:
        allowed = self.headers["Authorization"] == "Bearer t0ken"
        raw = json.dumps(body).encode()
        self.send_response(status if allowed else 401)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *words: object) -> None:
        pass


def test_nodes_are_tainted_through_the_api(tmp_path: Path) -> None:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), NodesApi)
    server.socket = certificate(tmp_path).wrap_socket(server.socket, server_side=True)
    now = time.time()
    server.busy, server.nodes = False, [node(f"h{n}", "False", now=now) for n in range(60)]
    server.nodes += [
        node("sick", "True", GPU, now=now, taints=(OTHER,)),
        node("well", "False", now=now, taints=(OURS,)),
    ]
    (tmp_path / "token").write_text("t0ken\n")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        api = TAINT["Api"]("127.0.0.1", server.server_address[1], str(tmp_path))
        done = ["removed the taint of well", f"tainted sick: {OURS}=gpu.count:NoSchedule"]
        assert list(TAINT["one_round"](api, 0.1, 10, True)) == [f"dry run: {line}" for line in done]
        server.busy = True
        assert [line.partition(": PATCH")[0] for line in TAINT["one_round"](api, 0.1, 10, False)] == [
            "unchanged until the next round: well", "unchanged until the next round: sick"
        ]  # fmt: skip
        server.busy = False
        assert list(TAINT["one_round"](api, 0.1, 10, False)) == done
        assert list(TAINT["one_round"](api, 0.1, 10, False)) == []
        *_, sick, well = (item["spec"]["taints"] for item in server.nodes if "taints" in item["spec"])
        assert [taint["key"] for taint in sick] == [OTHER, OURS]
        assert well == []
        (tmp_path / "token").write_text("expired")
        with pytest.raises(TAINT["ApiError"], match="HTTP status 401"):
            list(TAINT["one_round"](api, 0.1, 10, False))
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()

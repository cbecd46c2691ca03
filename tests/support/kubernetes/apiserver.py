"""A simulated Kubernetes API server: real HTTPS on loopback, real `exec`, and prepared answers instead of a cluster.

It answers the requests for pods of `kubectl` and of a pod's service account: discovery, `get`, `list`, and `exec` over
both protocols of kubectl, WebSocket (v5.channel.k8s.io, RFC 6455) and, for older clients, SPDY/3.1
(tests/support/kubernetes/apiserver_spdy.py). `exec` starts a real process on this machine; when the connection ends,
the standard input of the process is closed, as a kubelet does. There is no scheduler, no kubelet and no admission. The
answers in tests/data/kubernetes were written by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubernetes import apiserver_http as http
from tests.support.kubernetes import apiserver_spdy
from tests.support.kubernetes.apiserver_streams import ERROR, STDERR, STDIN, STDOUT, Channels

TOKEN = "eyJhbGciOiJSUzI1NiJ9.simulated.token-of-the-tests"
NAMESPACE = "training"


@dataclass
class ServedPod:
    """One pod: the API object, and the process behind `exec`."""

    document: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()  # runs the command of exec in a separate container
    refuse: tuple[int, str | None, str] | None = None  # HTTP status, reason (None: a kubelet's text), message of `exec`
    get: tuple[int, str, str] | None = None  # the same for `get`
    failure: str = ""  # of the container runtime, once connected: OCI runtime exec failed: ...
    silent: bool = False  # `exec` is never answered
    cut_after: int | None = None  # bytes of output after which the connection is lost
    busy: int = 0  # number of times that `exec` is refused

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.document["metadata"]["name"])


class ApiServer:
    """The server, in a separate thread; a context manager."""

    def __init__(self, folder: Path, pods: Sequence[ServedPod], *, token: str = TOKEN, web_socket: bool = True) -> None:
        """Prepare the server; with ``web_socket=False``, it supports only SPDY, as behind some proxies."""
        self.pods = {pod.name: pod for pod in pods}
        self.token, self.web_socket = token, web_socket
        self.requests: list[http.Request] = []
        self.spoken: set[str] = set()  # protocols in which `exec` was requested
        self.delay_s = 0.0  # before any answer
        self._folder, self._processes = folder, set[asyncio.subprocess.Process]()
        self._loop = asyncio.new_event_loop()
        self.certificate = folder / "ca.crt"
        self._context = http.certificate(folder)

    def __enter__(self) -> ApiServer:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exception: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def kubeconfig(self, token: str = "", server: str = "", ca: Path | None = None) -> Path:
        """Write a kubeconfig for this server and return its path."""
        path = self._folder / f"kubeconfig-{len(list(self._folder.glob('kubeconfig-*')))}"
        cluster = {
            "server": server or f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(ca or self.certificate),
        }
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": cluster}],
            "users": [{"name": "person", "user": {"token": token or self.token}}],
            "contexts": [{"name": "simulated",
                          "context": {"cluster": "simulated", "user": "person", "namespace": NAMESPACE}}],
        }))  # fmt: skip
        return path

    def service_account(self, token: str = "") -> Path:
        """Write the files that a kubelet mounts for a pod's service account, and return the folder."""
        folder = self._folder / "serviceaccount"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token or self.token)
        (folder / "namespace").write_text(NAMESPACE)
        (folder / "ca.crt").write_bytes(self.certificate.read_bytes())
        return folder

    def running(self) -> int:
        """Count the running processes behind `exec`."""
        return sum(process.returncode is None for process in self._processes)

    def wait_for_processes(self, limit_s: float = 60.0) -> bool:
        """Wait until every process behind `exec` has ended by itself."""
        until = time.monotonic() + limit_s
        while self.running() and time.monotonic() < until:
            time.sleep(0.01)
        return not self.running()

    # --- the connection ---

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    async def _end(self) -> None:
        self._server.close()
        for process in self._processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            while request := await http.request(reader):
                self.requests.append(request)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if request.path.endswith("/exec"):
                    if await self._exec(request, reader, writer):
                        break
                    continue
                await http.reply(writer, *self._answer(request))
        writer.close()

    # --- requests ---

    def _answer(self, request: http.Request) -> tuple[int, Mapping[str, Any]]:
        known: dict[str, Mapping[str, Any]] = {
            "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"]},
            ]},
        }  # fmt: skip
        if refused := self._refused(request):
            return refused
        if request.path in known:
            return 200, known[request.path]
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        if request.path == pods:
            return 200, {"kind": "ServedPodList", "apiVersion": "v1", "metadata": {}, "items": self._selected(request)}
        pod = self.pods.get(request.path.removeprefix(pods + "/"))
        if pod is None:
            name = request.path.rpartition("/")[2]
            return http.status(404, "NotFound", f'pods "{name}" not found')
        return http.status(*pod.get) if pod.get else (200, pod.document)

    def _refused(self, request: http.Request) -> tuple[int, Mapping[str, Any]] | None:
        """Return the answer to a request without a valid token."""
        if request.headers.get("authorization") == f"Bearer {self.token}":
            return None
        return http.status(401, "Unauthorized", "Unauthorized")

    def _selected(self, request: http.Request) -> list[Mapping[str, Any]]:
        wanted = dict(part.split("=") for part in request.query.get("labelSelector", ("",))[0].split(",") if part)
        labels = {name: pod.document["metadata"].get("labels", {}) for name, pod in self.pods.items()}
        return [pod.document for name, pod in self.pods.items() if wanted.items() <= labels[name].items()]

    async def _exec(self, request: http.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry out `exec`; return whether the connection was used up."""
        pod = self.pods.get(request.path.split("/")[-2])
        if refused := self._refused(request):
            await http.reply(writer, *refused)
            return False
        if pod is None:
            await http.reply(writer, *http.status(404, "NotFound", "pods not found"))
            return False
        if pod.refuse and pod.refuse[1] is None:
            await http.reply(writer, pod.refuse[0], pod.refuse[2])
            return False
        if pod.refuse:
            await http.reply(writer, *http.status(pod.refuse[0], pod.refuse[1] or "", pod.refuse[2]))
            return False
        named = request.query.get("container", [""])[0]
        if named and named not in {one["name"] for one in pod.document["spec"]["containers"]}:
            why = f"container {named} is not valid for pod {pod.name}"
            await http.reply(writer, *http.status(400, "BadRequest", why))
            return False
        if pod.busy:
            pod.busy -= request.upgrade != "websocket"  # kubectl tries again over SPDY before it gives up
            await http.reply(writer, *http.status(429, "TooManyRequests", "the server has received too many requests"))
            return False
        if pod.silent:
            await reader.read()
            return True
        channels: Channels
        if request.upgrade == "websocket":
            if not self.web_socket:
                await http.reply(writer, *http.status(400, "BadRequest", "unknown upgrade"))
                return False
            channels = await http.web_socket(request, reader, writer)
        else:
            channels = await apiserver_spdy.accept(reader, writer)
        self.spoken.add(request.upgrade)
        await self._bridge(pod, request.query["command"], channels)
        return True

    async def _bridge(self, pod: ServedPod, command: Sequence[str], channels: Channels) -> None:
        """Connect a process to the streams of a connection."""
        if pod.failure:
            await channels.send(ERROR, json.dumps(http.status(500, "InternalError", pod.failure)[1]).encode())
            await channels.close()
            return
        try:
            process = await asyncio.create_subprocess_exec(
                *pod.prefix, *command, env=dict(pod.environment), start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError:
            lacks = f'exec: "{command[0]}": executable file not found in $PATH'
            why = f"failed to exec in container: OCI runtime exec failed: exec failed: {lacks}: unknown"
            await channels.send(ERROR, json.dumps(http.status(500, "InternalError", why)[1]).encode())
            await channels.close()
            return
        self._processes.add(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(_feed(channels, process.stdin))
        out = _drain(process.stdout, lambda data: channels.send(STDOUT, data), pod.cut_after)
        err = _drain(process.stderr, lambda data: channels.send(STDERR, data))
        try:
            cut, _ = await asyncio.gather(out, err)
            if cut:
                channels.abort()
                return
            await channels.send(ERROR, json.dumps(http.ended(await process.wait())).encode())
            await channels.close()
        except ConnectionError:
            pass
        finally:
            feeding.cancel()
            process.stdin.close()


async def _feed(channels: Channels, stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        while True:
            channel, data = await channels.receive()
            if channel == STDIN and not data:
                break
            if channel == STDIN:
                stdin.write(data)
                await stdin.drain()
    stdin.close()


async def _drain(
    stream: asyncio.StreamReader, send: Callable[[bytes], Coroutine[Any, Any, None]], cut_after: int | None = None
) -> bool:
    """Send all data of a stream; return whether the connection must be cut."""
    count = 0
    while data := await stream.read(32768):
        count += len(data)
        if cut_after is not None and count > cut_after:
            await send(data[: cut_after - count])
            return True
        await send(data)
    return False

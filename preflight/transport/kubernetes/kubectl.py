"""Transport over the system's ``kubectl exec``.

kubectl handles kubeconfig, credentials and proxies. Each pod has one process in its own process group. The frames are
those of the other transports; nothing is installed in the pod, which needs python3 (3.6 or newer). When the connection
ends, the collector gets end-of-file on its standard input and exits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preflight.errors import PreflightError
from preflight.transport.bootstrap_protocol import SCRIPT, WITHOUT_SHELL, lacks_python
from preflight.transport.child_transport import ChildChannel, ConnectionRejected, PipedTransport
from preflight.transport.errors import NoAnswer, TransportError, quoted
from preflight.transport.kubernetes import error_messages

#: Seconds for kubectl to read its configuration, and to list pods.
_CONFIG_S, _LIST_S = 15.0, 30.0

#: Phases of ended pods, which cannot be collected from; a retried Job leaves such pods.
_ENDED = ("Succeeded", "Failed")

#: A valid pod name, which kubectl cannot parse as an option.
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")

_COLUMNS = r'{range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}'


@dataclass(frozen=True)
class Kubectl:
    """Options of kubectl; if empty, its kubeconfig or the pod determines them."""

    namespace: str = ""
    container: str = ""

    def command(self, *words: str) -> list[str]:
        """Return a command line; raises TransportError without kubectl."""
        path = shutil.which("kubectl")
        if not path:
            raise TransportError("no `kubectl` in PATH: install it, or use --via ssh")
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        return [path, *where, *words]

    @property
    def place(self) -> str:
        """The namespace as shown in messages."""
        return self.namespace or "of your context"


def find(selector: str, kubectl: Kubectl) -> tuple[tuple[str, ...], int]:
    """Return the pods that a label selector matches, and the number of ended ones.

    Raises TransportError if there are none or they cannot be listed.
    """
    command = kubectl.command("get", "pods", f"--selector={selector}", f"--output=jsonpath={_COLUMNS}",
                              f"--request-timeout={_LIST_S - 10:g}s")  # fmt: skip
    ran = _run(command, _LIST_S)
    if ran.returncode:
        answer = error_messages.meaning(ran.stderr, kubectl.place).answer
        raise TransportError(f"--pods: the pods could not be listed: {answer.reason}")
    rows = [line.split("\t") for line in ran.stdout.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    if strange := [row[0] for row in rows if not _NAME.fullmatch(row[0])]:
        raise TransportError(
            f"--pods: {quoted(strange[0].encode())} is not a pod name: check that `kubectl` is the real one"
        )
    alive = tuple(sorted(row[0] for row in rows if row[-1] not in _ENDED))
    if not alive:
        ended = f"; {len(rows)} have ended" if rows else ""
        raise TransportError(f"--pods: no pod in the namespace {kubectl.place} has these labels{ended}")
    return alive, len(rows) - len(alive)


class KubectlTransport(PipedTransport):
    """Transport over ``kubectl exec``; methods are thread-safe."""

    def __init__(self, kubectl: Kubectl = Kubectl()) -> None:
        """Check ``kubectl`` and its configuration; raise TransportError if unusable."""
        super().__init__(os.environ)
        self._kubectl = kubectl
        self._check()

    def _check(self) -> None:
        """Let ``kubectl`` read its kubeconfig.

        An error in it is found before any pod is contacted.
        """
        command = self._kubectl.command("config", "view", "--minify", "--output=name")
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return  # in a pod, kubectl uses the service account instead
        ran = _run(command, _CONFIG_S)
        if ran.returncode:
            message = quoted(ran.stderr)
            fix = "set KUBECONFIG, or `kubectl config use-context`"
            raise TransportError(f"kubectl has no usable configuration: {message}; {fix}")

    def _once(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        try:
            return self._exec(host, ("sh", "-c", SCRIPT), plan, until)
        except _MissingProgram as absent:
            if absent.program != "sh":
                raise NoAnswer("start", f"the container has no {absent.program}") from None
        try:
            return self._exec(host, WITHOUT_SHELL, plan, until)
        except _MissingProgram:
            fix = "specify one that has it with -c, or add an ephemeral container with `kubectl debug`"
            raise NoAnswer("start", f"the container has neither sh nor python3: {fix}") from None

    def _exec(self, pod: str, inside: Sequence[str], plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Start the collector with a command in the pod.

        Raises _MissingProgram if the container lacks the program.
        """
        left_s = until - time.monotonic()
        container = [f"--container={self._kubectl.container}"] if self._kubectl.container else []
        command = self._kubectl.command("exec", "--stdin", pod, *container, "--", *inside)
        channel, status = self._converse(command, plan, until, error_messages.NOTICES)
        protocol = channel.protocol
        if channel.late and not protocol.announced:
            silent = f"no answer within {left_s:.3g} s{_last_words(channel)}"
            raise NoAnswer("connect", f"{silent}; try: kubectl exec POD -- true")
        if channel.late:
            return protocol.document(f"no answer within {left_s:.3g} s")
        if protocol.announced:
            # Older versions exit with status 0 when the connection is lost.
            lost = status in (0, 1) and b"command terminated with exit code 1" not in channel.stderr
            return protocol.document("the connection was lost" if lost else "", status)
        if lacks_python(channel.stderr):
            return protocol.document("", status)
        meaning = error_messages.meaning(channel.stderr, self._kubectl.place)
        if meaning.lacks:
            raise _MissingProgram(meaning.lacks)
        raise ConnectionRejected(meaning.answer) if meaning.busy else meaning.answer


class _MissingProgram(PreflightError):
    """A program that is not in the container."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.program = program


def _last_words(channel: ChildChannel) -> str:
    output = quoted(error_messages.NOTICES.sub(b"", channel.stderr))
    return f" (kubectl said: {output})" if output else ": the API server or the kubelet is silent"


def _run(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise TransportError(
            f"`kubectl` did not answer within {limit_s:g} s: check that the API server is up"
        ) from None
    except OSError as error:
        raise TransportError(f"{command[0]} could not be executed: {error.strerror}") from None

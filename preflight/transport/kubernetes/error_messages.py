"""Error messages of ``kubectl exec``, and their causes.

Texts of kubectl 1.20 and 1.32, of the API server, and of runc and crun behind a kubelet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.transport.errors import NoAnswer, quoted

_RBAC = "a role that may `get` pods and `create` pods/exec there"

# The API server's message is a complete line, after kubectl's own prefix. First match wins.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (r"Error from server \(NotFound\): pods \"(?P<pod>[^\"]+)\" not found", "resolve",
     "no such pod in the namespace {namespace}: see `kubectl get pods`, or specify its namespace with -n"),
    (r"Error from server \(NotFound\): namespaces \"(?P<name>[^\"]+)\" not found", "resolve",
     "no such namespace: {name}"),
    (r"Error from server \(Forbidden\): .*cannot (?P<verb>\w+) resource \"(?P<what>[\w/]+)\".*", "authenticate",
     "RBAC does not let you {verb} {what} in the namespace {namespace}: request " + _RBAC),
    (r"Error from server \(Forbidden\): (?P<why>.+)", "authenticate", "forbidden: {why}"),
    (r"error: You must be logged in to the server.*|Error from server \(Unauthorized\).*|error: .*Unauthorized.*",
     "authenticate", "the API server rejects your token or certificate: it may have expired, log in again"),
    (r".*getting credentials: (?P<why>.+)", "authenticate", "the credential plug-in of your kubeconfig failed: {why}"),
    (r".*x509: (?P<why>.+)", "connect", "the API server's certificate is not the one of your kubeconfig: {why}"),
    (r"(?:The connection to the server (?P<where>\S+) was refused.*)", "connect",
     "the API server {where} refuses the connection: check that it is up and the context is right"),
    (r"Unable to connect to the server: .*no such host.*", "connect",
     "the API server's name does not resolve: check the context"),
    (r"Unable to connect to the server: (?P<why>.+)", "connect", "the API server cannot be reached: {why}"),
    (r"error: cannot exec into a container in a completed pod; current phase is (?P<phase>\w+)", "start",
     "the pod has ended ({phase})"),
    (r".*unable to upgrade connection: container not found \(\"(?P<name>[^\"]+)\"\)", "start",
     "the container {name} does not run: waiting, ended, or its init containers still run; `kubectl describe pod`"),
    (r".*pod \S+ does not have a host assigned", "start", "the pod is not scheduled yet; `kubectl describe pod`"),
    (r".*container \"?(?P<name>[\w.-]+?)\"? (?:not found in pod|is not valid for pod) .*", "start",
     "the pod has no container {name}: specify one with -c"),
    (r".*error dialing backend: (?P<why>.+)", "connect", "the API server cannot reach the node's kubelet: {why}"),
    (r"error: .*(?:websocket: bad handshake|unable to upgrade connection).*(?P<why>Forbidden|forbidden).*",
     "authenticate", "RBAC does not let you exec in the namespace {namespace}: request " + _RBAC),
    (r".*unable to upgrade connection: (?P<why>.+)", "connect",
     "the path to the API server does not support `exec` (WebSocket or SPDY), perhaps due to a proxy: {why}"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), phase, reason) for pattern, phase, reason in _MEANINGS)

#: Messages of an API server that is overloaded or restarting, which are worth a retry.
_BUSY = re.compile(
    r"Error from server \((?:TooManyRequests|ServiceUnavailable|Timeout|ServerTimeout)\).*"
    r"|Error from server: (?:etcdserver: .+|rpc error: code = Unavailable .+)"
    r"|Unable to connect to the server: .*(?:TLS handshake timeout|connection reset by peer|EOF)"
)

#: Messages of runc, crun or the kubelet: the program to start is not in the container.
_ABSENT = re.compile(
    r"exec: \\?\"?(?P<a>[\w./-]+?)\\?\"?: (?:stat \S+ )?(?:executable file not found|no such file)"
    r"|executable file `(?P<b>[^`]+)` not found"
)

#: kubectl's own messages among the container's standard error.
NOTICES = re.compile(
    rb"^(?:Defaulted container .+|Defaulting container name to .+|command terminated with exit code \d+"
    rb"|Use 'kubectl describe pod/.+|[EIW]\d{4} \d\d:\d\d:\d\d\.\d+ .*)\n?",
    re.M,
)

_EXIT = re.compile(rb"^command terminated with exit code (\d+)", re.M)


@dataclass(frozen=True)
class ExecFailure:
    """Why kubectl could not start the command.

    ``busy`` is true if a retry may help; ``lacks`` names a program that is not in the container.
    """

    answer: NoAnswer
    busy: bool = False
    lacks: str = ""


def meaning(stderr: bytes, namespace: str) -> ExecFailure:
    """Return the meaning of a ``kubectl`` error before the command started.

    ``namespace`` is shown in the reason.
    """
    output = NOTICES.sub(b"", stderr)
    lines = [line.strip() for line in output.decode("utf-8", "backslashreplace").splitlines()]
    for line in lines:
        if found := _ABSENT.search(line):
            lacks = found["a"] or found["b"]
            return ExecFailure(NoAnswer("start", f"the container has no {lacks}"), lacks=lacks)
    for line in lines:
        if _BUSY.fullmatch(line):
            why = quoted(line.encode())
            return ExecFailure(NoAnswer("connect", f"the API server is busy or restarts: {why}"), busy=True)
    for pattern, phase, reason in _COMPILED:
        for line in lines:
            if found := pattern.fullmatch(line):
                words = {name: quoted((text or "").encode()) for name, text in found.groupdict().items()}
                return ExecFailure(NoAnswer(phase, reason.format_map({"namespace": namespace, **words})))
    if ended := _EXIT.search(stderr):
        return ExecFailure(NoAnswer("start", _not_begun(int(ended[1]), quoted(output))))
    return ExecFailure(NoAnswer("connect", f"kubectl gave up: {quoted(output) or 'without a message'}"))


def _not_begun(status: int, output: str) -> str:
    """Describe how a command ended that never started in the container."""
    how = f"was killed by signal {status - 128}" if 128 < status < 160 else f"ended with status {status}"
    memory = " (out of memory?)" if status == 137 else ""
    return f"the collector command {how}{memory} before it started" + (
        f"; the container printed: {output}" if output else ""
    )

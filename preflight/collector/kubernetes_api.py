"""Query of the Kubernetes API for the collector's own pod.

It is one `get` request, with the pod's own service account.
"""

import json
import os
import re
import time

from .records import Deadline, Record, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

#: Mount point of the service account.
FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"

#: Annotations that are collected: the networks that Multus attached, and those that were requested.
_ANNOTATIONS = (
    "k8s.v1.cni.cncf.io/network-status",
    "k8s.v1.cni.cncf.io/networks-status",
    "k8s.v1.cni.cncf.io/networks",
)

#: Maximum bytes of an answer: etcd stores objects of at most 1.5 MiB.
_LARGEST = 4000000
#: Maximum number of containers, and of resources or claims of each; maximum characters of a name or quantity, and of an
#: annotation.
_MAX_ITEMS, _LONGEST, _LONGEST_ANNOTATION = 64, 253, 100000

# Text allowed in a path or a header.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}\Z")


def answer(
    target: str, timeout_s: float, deadline: Deadline, folder: str = FOLDER, variables: "Mapping[str, str]" = os.environ
) -> Record:
    """Answer a probe of kind ``kube``; ``pod`` is the only target."""
    if target != "pod":
        return {"status": "error", "why": "this collector reads only its own pod from the Kubernetes API"}
    if "KUBERNETES_SERVICE_HOST" not in variables:
        return {"status": "missing", "why": "not in a Kubernetes pod"}
    if not os.path.exists(folder + "/token"):
        return {"status": "missing", "why": "no service account is mounted in this pod"}
    try:
        token = _read(folder + "/token")
        namespace = variables.get("POD_NAMESPACE") or _read(folder + "/namespace")
    except OSError as error:
        return refusal(error, str(error.filename))
    name = variables.get("POD_NAME") or os.uname().nodename
    if not _TOKEN.match(token):
        return {"status": "error", "why": "the token of the service account is malformed"}
    if not _NAME.match(name) or not _NAME.match(namespace):
        return {"status": "error", "why": "POD_NAME or the namespace is not a name of Kubernetes"}
    left_s = max(0.1, min(timeout_s, deadline.at - time.monotonic()))
    record = _get(namespace, name, token, folder + "/ca.crt", left_s, variables)
    if "why" in record:
        record["why"] = record["why"].replace(token, "[redacted]")
    return record


def _get(
    namespace: str, name: str, token: str, authority: str, left_s: float, variables: "Mapping[str, str]"
) -> Record:
    """Get the pod's object; return a record, which for a failure names the reason."""
    import http.client
    import socket

    try:
        import ssl
    except ImportError:
        return {"status": "missing", "why": "this Python has no ssl"}
    until = time.monotonic() + left_s
    host = variables["KUBERNETES_SERVICE_HOST"]
    port = variables.get("KUBERNETES_SERVICE_PORT_HTTPS") or variables.get("KUBERNETES_SERVICE_PORT") or "443"
    try:
        context = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(host, int(port), timeout=left_s, context=context)
        try:
            headers = {"Authorization": "Bearer " + token, "Accept": "application/json", "User-Agent": "preflight"}
            connection.request("GET", "/api/v1/namespaces/{}/pods/{}".format(namespace, name), headers=headers)
            answered = connection.getresponse()
            raw = b""
            while len(raw) <= _LARGEST:
                part = answered.read1(65536) if time.monotonic() < until else None
                if part is None:
                    raise socket.timeout
                if not part:
                    break
                raw += part
        finally:
            connection.close()
    except socket.timeout:
        return {"status": "timeout", "why": "the API server did not answer within {:.3g} s".format(left_s)}
    except ssl.SSLError as error:
        return {"status": "error", "why": "no trusted connection to the API server: {}".format(error.reason or error)}
    except OSError as error:
        why = "{}: {}".format(type(error).__name__, error.strerror or error)
        return {"status": "error", "why": "the API server cannot be reached: " + why}
    except (http.client.HTTPException, ValueError) as error:
        return {"status": "error", "why": "the API server's answer is not HTTP: {}".format(type(error).__name__)}
    if len(raw) > _LARGEST:
        return {"status": "error", "why": "the API server's answer is longer than {} bytes".format(_LARGEST)}
    return _judged(answered.status, raw, namespace, name)


def _judged(code: int, raw: bytes, namespace: str, name: str) -> Record:
    """Turn the API server's answer into a record."""
    try:
        body = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return {"status": "error", "why": "HTTP {}: the answer is not an object of Kubernetes".format(code)}
    detail = body.get("message")
    message = ": " + detail[:300] if isinstance(detail, str) and detail else ""
    if code == 401:
        return {"status": "denied", "why": "HTTP 401: the token has expired, or is for another cluster"}
    if code == 403:
        return {"status": "denied", "why": "HTTP 403" + message}
    if code == 404:
        why = "HTTP 404: no pod {} in the namespace {}: set POD_NAME through the downward API".format(name, namespace)
        return {"status": "error", "why": why}
    if code != 200 or body.get("kind") != "Pod":
        return {"status": "error", "why": "HTTP {}{}".format(code, message)}
    return {"status": "ok", "value": trimmed(body)}


def trimmed(body: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return the fields of a pod's object that are judged.

    Environment, volumes and other annotations stay on the node.
    """
    metadata, spec = _object(body.get("metadata")), _object(body.get("spec"))
    annotations = _object(metadata.get("annotations"))
    kinds = (("initContainers", True), ("containers", False))
    return {
        "namespace": _text(metadata.get("namespace")),
        "name": _text(metadata.get("name")),
        "node": _text(spec.get("nodeName")),
        "host_network": spec.get("hostNetwork") is True,
        "containers": [
            _container(_object(container), init, _object(body.get("status")))
            for kind, init in kinds
            for container in _list(spec.get(kind))[:_MAX_ITEMS]
        ],
        "annotations": {
            key: str(annotations[key])[:_LONGEST_ANNOTATION]
            for key in _ANNOTATIONS
            if isinstance(annotations.get(key), str)
        },
    }


def _container(container: "Dict[str, Any]", init: bool, status: "Dict[str, Any]") -> "Dict[str, Any]":
    resources = _object(container.get("resources"))
    return {
        "name": _text(container.get("name")),
        "init": init,
        "privileged": _object(container.get("securityContext")).get("privileged") is True,
        "image": _image(container, status),
        "restarts": _restarts(container, init, status),
        "ended": _ended(container, init, status),
        "limits": _quantities(resources.get("limits")),
        "requests": _quantities(resources.get("requests")),
        "claims": [_text(_object(claim).get("name")) for claim in _list(resources.get("claims"))[:_MAX_ITEMS]],
    }


def _states(container: "Dict[str, Any]", init: bool, status: "Dict[str, Any]") -> "List[Dict[str, Any]]":
    """Return the statuses that the kubelet reports for a container."""
    kind = "initContainerStatuses" if init else "containerStatuses"
    states = [_object(state) for state in _list(status.get(kind))[:_MAX_ITEMS]]
    return [state for state in states if state.get("name") == container.get("name")]


def _restarts(container: "Dict[str, Any]", init: bool, status: "Dict[str, Any]") -> "Optional[int]":
    """Return the number of restarts of a container; None if not reported."""
    for state in _states(container, init, status):
        if type(state.get("restartCount")) is int:
            return int(state["restartCount"])
    return None


def _ended(container: "Dict[str, Any]", init: bool, status: "Dict[str, Any]") -> str:
    """Return the last termination, such as ``OOMKilled 137``; empty if none."""
    for state in _states(container, init, status):
        for kind in ("state", "lastState"):
            ended = _object(_object(state.get(kind)).get("terminated"))
            if ended:
                return "{} {}".format(_text(ended.get("reason")), _text(ended.get("exitCode"))).strip()
    return ""


def _image(container: "Dict[str, Any]", status: "Dict[str, Any]") -> str:
    """Return the image in the pod's spec, with the digest that the kubelet reports."""
    for state in _list(status.get("containerStatuses"))[:_MAX_ITEMS]:
        digest = _text(_object(state).get("imageID"))
        if digest and _object(state).get("name") == container.get("name"):
            return "{} {}".format(_text(container.get("image")), digest).strip()
    return _text(container.get("image"))


def _quantities(found: "Any") -> "Dict[str, str]":
    pairs = sorted(_object(found).items())[:_MAX_ITEMS]
    return {_text(name): _text(quantity) for name, quantity in pairs}


def _object(found: "Any") -> "Dict[str, Any]":
    return found if isinstance(found, dict) else {}


def _list(found: "Any") -> "List[Any]":
    return found if isinstance(found, list) else []


def _text(found: "Any") -> str:
    return str(found)[:_LONGEST] if isinstance(found, (str, int, float)) else ""


def _read(path: str) -> str:
    with open(path, "rb") as stream:
        return stream.read(65536).decode("ascii", "replace").strip()

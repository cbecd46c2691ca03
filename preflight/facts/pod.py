"""The pod of a node's collector, from the Kubernetes API: its resources.

Sources: Kubernetes API reference, core/v1 Pod (resources, claims); "Device Plugins" and "Dynamic Resource Allocation"
in the Kubernetes documentation; names of RDMA resources in the READMEs of k8s-rdma-shared-dev-plugin,
sriov-network-device-plugin and the cloud providers' plug-ins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError

POD = "kube:pod"

#: Words in the name of an RDMA resource: ``rdma/hca_shared_devices_a``, ``nvidia.com/mlnxnics``,
#: ``vpc.amazonaws.com/efa``, ``networking.gke.io.networks/rdma-0``, ``mellanox.com/mlx5_vf``, ``rdma/ib``.
_RDMA = re.compile(r"rdma|roce|infiniband|mlnx|mlx[45]|(?:^|[/_.-])(?:hca|vhca|ib|efa)(?:$|[0-9/_.-])")

#: Resources that are GPUs or parts of a GPU.
_GPU = re.compile(r"(?:nvidia|amd|intel)\.com/(?:gpu|pgpu|mig-|shared-gpu|i915|xe)")

_GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class Container:
    """One container of the pod."""

    name: str
    init: bool
    privileged: bool
    resources: Mapping[str, str]  # name -> quantity, from limits and requests; limits take precedence
    claims: tuple[str, ...]  # claims of dynamic resource allocation
    image: str = ""  # the pod's image, and its running digest; empty from older collectors
    restarts: int | None = None  # None if the kubelet or an older collector did not report it
    ended: str = ""  # reason and exit code of its last termination: ``OOMKilled 137``


@dataclass(frozen=True)
class Pod:
    """A pod as the API describes it."""

    namespace: str
    name: str
    node: str
    containers: tuple[Container, ...]
    annotations: Mapping[str, str]

    @property
    def devices(self) -> dict[str, tuple[str, ...]]:
        """Device-plugin resource -> the containers that request at least one of it."""
        found: dict[str, list[str]] = {}
        for container in self.containers:
            for name, quantity in container.resources.items():
                if is_device(name) and quantity not in ("", "0"):
                    found.setdefault(name, []).append(container.name)
        return {name: tuple(names) for name, names in sorted(found.items())}

    @property
    def gpus(self) -> int | None:
        """Number of GPUs of each container that requests any; None if they differ.

        Also None for parts of a GPU.
        """
        requested = {(name, quantity) for container in self.containers for name, quantity in container.resources.items()
                 if is_gpu(name)}  # fmt: skip
        if len(requested) != 1:
            return None
        name, quantity = requested.pop()
        return int(quantity) if name == _GPU_RESOURCE and re.fullmatch(r"[1-9][0-9]{0,2}", quantity) else None

    @property
    def claims(self) -> tuple[str, ...]:
        """Resource claims of all containers."""
        return tuple(dict.fromkeys(claim for container in self.containers for claim in container.claims))

    @property
    def privileged(self) -> bool:
        """Whether any container is privileged, and so sees all devices of the host."""
        return any(container.privileged for container in self.containers)


def is_device(resource: str) -> bool:
    """Return whether a resource belongs to a device plug-in.

    Only such resources have a domain other than Kubernetes' own.
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_rdma(resource: str) -> bool:
    """Return whether a resource's name suggests RDMA.

    A site may use any name.
    """
    return bool(_RDMA.search(resource.lower())) and not is_gpu(resource)


def is_gpu(resource: str) -> bool:
    """Return whether a resource is a GPU or part of one."""
    return bool(_GPU.match(resource))


def variable_of(resource: str) -> str:
    """Return a resource's name as in the SR-IOV plug-in's ``PCIDEVICE_…`` variables."""
    return re.sub(r"[^A-Z0-9]", "_", resource.upper())


def pod(evidence: Evidence) -> Pod:
    """Return the pod; raises EvidenceError if the API returned none."""
    value = evidence.value(POD)
    try:
        return parse_pod(value)
    except ValueError as error:
        raise EvidenceError(POD, str(error)) from None


def parse_pod(value: Any) -> Pod:
    """Return the pod in a record's value; raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError("the pod is not an object")
    containers = value.get("containers")
    if not isinstance(containers, list) or not containers:
        raise ValueError("the pod has no containers")
    annotations = value.get("annotations")
    return Pod(
        namespace=str(value.get("namespace") or ""),
        name=str(value.get("name") or ""),
        node=str(value.get("node") or ""),
        containers=tuple(_container(one) for one in containers),
        annotations=dict(_texts(annotations, "the annotations")) if annotations is not None else {},
    )


def _container(one: Any) -> Container:
    if not isinstance(one, Mapping) or not isinstance(one.get("name"), str) or not one["name"]:
        raise ValueError("a container of the pod has no name")
    limits, requests = one.get("limits", {}), one.get("requests", {})
    claims = one.get("claims", [])
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        raise ValueError(f"the claims of {one['name'][:60]!r} are not a list of names")
    merged = {**dict(_texts(requests, "the requests")), **dict(_texts(limits, "the limits"))}
    image = one.get("image", "")
    if not isinstance(image, str):
        raise ValueError(f"the image of {one['name'][:60]!r} is not text")
    restarts, ended = one.get("restarts"), one.get("ended", "")
    if (restarts is not None and (type(restarts) is not int or restarts < 0)) or not isinstance(ended, str):
        raise ValueError(f"the restarts of {one['name'][:60]!r} are not a number, or its termination is not text")
    privileged = one.get("privileged") is True
    return Container(
        one["name"], one.get("init") is True, privileged, merged, tuple(claims), image, restarts, ended[:120]
    )


def _texts(found: Any, what: str) -> Iterator[tuple[str, str]]:
    if not isinstance(found, Mapping):
        raise ValueError(f"{what} are not an object")
    for name, text in found.items():
        if not isinstance(text, str):
            raise ValueError(f"{what} hold a {type(text).__name__}")
        yield name, text
